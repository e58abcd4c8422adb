"""TensorFlow's SavedModel: one of kbert's Keras models with the inputs that other BERTs have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbert.weights.runtimes import INPUTS

if TYPE_CHECKING:
    import keras


def write_saved_model(folder: str | Path, model: keras.Model, values: dict[str, Any]) -> None:
    """Write a model as a SavedModel. Inputs and outputs are those of `onnx_model`.

    Parameters
    ----------
    folder : str or Path
    model : keras.Model
    values : dict
        The content of the config.json of its weights folder.

    Raises
    ------
    ValueError
        If Keras does not run on TensorFlow.
    """
    from kbert.model.setup import keras

    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f'format="savedmodel" needs the TensorFlow backend, and Keras runs on {keras.backend.backend()}. Save the '
            'estimator, and load and export it in a process with KERAS_BACKEND=tensorflow; or take format="onnx".'
        )
    import tensorflow as tf

    names = [tensor.name for tensor in model.inputs]
    one_text, masked = (name in names for name in ("first_positions", "masked_positions"))

    def serve(input_ids: Any, attention_mask: Any, token_type_ids: Any) -> dict[str, Any]:
        shape = tf.shape(input_ids, out_type="int32")
        # Without this check, positions beyond the table are looked up without an error on a GPU.
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


def _outputs(tf: Any, values: dict[str, Any], result: Any) -> dict[str, Any]:
    """Name the outputs. ``result`` is what the model gives, (B, n) or (B, T, n)."""
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
