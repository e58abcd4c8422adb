"""TensorFlow's SavedModel: a Keras model of kbert behind a signature with the field's usual inputs."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np

from kbert.weights.exported import Run
from kbert.weights.onnx_graph import INPUTS

FILES = ("saved_model.pb", "fingerprint.pb", "variables", "assets")


def write_saved_model(folder: str | Path, model: keras.Model, values: dict) -> None:
    """Write a model under the TensorFlow backend. Inputs and outputs are those of `onnx_model`.

    Parameters
    ----------
    folder : str or Path
    model : keras.Model
    values : dict
        The content of the config.json of its weights folder.

    Raises
    ------
    ValueError
        Under another backend.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f'format="savedmodel" needs the TensorFlow backend, and Keras runs on {keras.backend.backend()}. Save the '
            'estimator, and load and export it in a process with KERAS_BACKEND=tensorflow; or take format="onnx".'
        )
    import tensorflow as tf

    names = [tensor.name for tensor in model.inputs]
    one_text, masked = (name in names for name in ("first_positions", "masked_positions"))

    def serve(input_ids, attention_mask, token_type_ids):
        shape = tf.shape(input_ids, out_type="int32")
        # Beyond the table, a look-up is silent on an accelerator.
        tf.debugging.assert_less_equal(shape[1], model.config.max_position_embeddings)
        inputs = {
            "token_ids": tf.cast(input_ids, "int32"),
            "segment_ids": tf.cast(token_type_ids, "int32"),
            "position_ids": tf.broadcast_to(tf.range(shape[1]), shape),
            "text_ids": tf.cast(attention_mask, "int32"),
            "first_positions": tf.zeros((shape[0], 1), "int32"),
        }
        inputs["masked_positions"] = inputs["position_ids"]
        result = model({name: inputs[name] for name in names}, training=False)
        return _outputs(tf, values, result[:, 0] if one_text and not masked else result)

    module = tf.Module()
    module.model = model
    module.serve = tf.function(
        serve, input_signature=[tf.TensorSpec((None, None), tf.int64, name=name) for name in INPUTS]
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})


def _outputs(tf, values: dict, result) -> dict:
    """The model's output, (B, n) or (B, T, n), by name."""
    architecture, problem_type = values["architectures"][0], values.get("problem_type")
    if architecture == "BertModel":
        return {"sentence_embedding" if len(result.shape) == 2 else "token_embeddings": result}
    if architecture == "BertForQuestionAnswering":
        return {"start_logits": result[..., 0], "end_logits": result[..., 1]}
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        return {"logits": result["mlm_logits"]}
    if architecture == "BertForTokenClassification" or problem_type == "single_label_classification":
        return {"logits": result, "probabilities": tf.nn.softmax(result)}
    if problem_type == "multi_label_classification":
        return {"logits": result, "probabilities": tf.nn.sigmoid(result)}
    return {"logits": result}


def saved_model_runner(folder: str | Path) -> Run:
    """TensorFlow, with a folder that `write_saved_model` wrote."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = signature(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: result.numpy() for name, result in results.items()}

    # The signature's variables are those of the loaded object, which is to live as long.
    run.loaded = loaded
    return run
