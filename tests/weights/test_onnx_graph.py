"""ONNX: the graph that is written gives what the Keras model gives, for any number of rows and any length."""

import json
import logging
from dataclasses import replace

import keras
import numpy as np
import pytest

from kbert.errors import WeightsMismatchError
from kbert.model import (
    LAYER_CHOICES,
    BertForFeatures,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from kbert.weights import (
    save_encoder,
    save_multiple_choice,
    save_pretraining,
    save_question_answerer,
    save_sequence_classifier,
    save_token_classifier,
)
from kbert.weights.folder import read_folder
from kbert.weights.onnx_files import quantize_dynamically, write_onnx
from kbert.weights.runtimes import RUNNERS

pytestmark = pytest.mark.slow

onnx = pytest.importorskip("onnx", reason="to write ONNX, run: pip install 'kbert-learn[onnx]'")
pytest.importorskip("onnxruntime", reason="to run ONNX, run: pip install 'kbert-learn[onnx]'")

NAMES = {0: "a", 1: "b", 2: "c"}
# From one file: one row, more rows, and as many tokens as there are positions.
SHAPES = ((1, 3), (4, 9), (2, 64))


def with_random_weights(model):
    """The model, of which no array holds its start value."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(1.0 if weight.name == "gamma" else 0.0, 0.15, weight.shape).astype("float32"))
    return model


def given(rows, length, seed=0):
    """The inputs of an exported model; the first row is all tokens, others end in padding."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, length + 1, rows)
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    segments = mask & (np.arange(length) >= lengths[:, None] // 2)
    inputs = {"input_ids": rng.integers(0, 100, mask.shape), "attention_mask": mask, "token_type_ids": segments}
    return {name: array.astype("int64") for name, array in inputs.items()}


def keras_output(model, inputs, **more):
    """What the Keras model gives for the same rows."""
    B, T = inputs["input_ids"].shape
    arrays = {
        "token_ids": inputs["input_ids"],
        "segment_ids": inputs["token_type_ids"],
        "position_ids": np.tile(np.arange(T), (B, 1)),
        "text_ids": inputs["attention_mask"],
        "first_positions": np.zeros((B, 1)),
        "masked_positions": np.tile(np.arange(T), (B, 1)),
    }
    arrays = {tensor.name: arrays[tensor.name].astype("int32") for tensor in model.inputs}
    outputs = model(arrays, training=False)
    outputs = outputs["mlm_logits"] if isinstance(outputs, dict) else outputs
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.stop_gradient(outputs)))


def written(folder, **choices):
    """The function that runs what is written of a weights folder; the file has been looked at by onnx's own checker."""
    write_onnx(folder, **choices)
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return RUNNERS["onnxruntime"](folder, "float32")


def same(found, expected, mask=None):
    """Compare, leaving out the vectors of padding, which nobody reads and where Keras's padding sees padding alone."""
    kept = slice(None) if mask is None else mask.astype(bool)
    np.testing.assert_allclose(found[kept], expected[kept], atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def classifier(toy_config):
    return with_random_weights(BertForSequenceClassification(toy_config, 3, dtype="float32"))


@pytest.fixture
def classifier_folder(classifier, tmp_path):
    save_sequence_classifier(classifier, tmp_path, NAMES, "single_label_classification")
    return tmp_path


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


# === Heads ===


@pytest.mark.backend
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_a_classifier_gives_the_same_logits_in_any_shape(toy_config, tmp_path, activation):
    config = replace(toy_config, hidden_act=activation)
    model = with_random_weights(BertForSequenceClassification(config, 3, dtype="float32"))
    save_sequence_classifier(model, tmp_path, NAMES, "single_label_classification")
    run = written(tmp_path)
    for shape in SHAPES:
        inputs = given(*shape)
        outputs, expected = run(inputs), keras_output(model, inputs)[:, 0]
        same(outputs["logits"], expected)
        same(outputs["probabilities"], softmax(expected))


def test_the_two_forms_of_gelu_are_told_apart(toy_config, classifier, tmp_path):
    """At the tolerance of the test above."""
    exact = with_random_weights(BertForSequenceClassification(replace(toy_config, hidden_act="gelu"), 3))
    inputs = given(4, 9)
    assert np.abs(keras_output(exact, inputs) - keras_output(classifier, inputs)).max() > 1e-4


@pytest.mark.parametrize("problem_type", ["multi_label_classification", "regression"])
def test_probabilities_are_those_of_the_task(classifier, tmp_path, problem_type):
    save_sequence_classifier(classifier, tmp_path, NAMES, problem_type)
    outputs, expected = written(tmp_path)(given(4, 9)), keras_output(classifier, given(4, 9))[:, 0]
    same(outputs["logits"], expected)
    if problem_type == "regression":
        assert list(outputs) == ["logits"]
    else:
        same(outputs["probabilities"], 1 / (1 + np.exp(-expected)))


def test_options_have_one_score_each(toy_config, tmp_path):
    model = with_random_weights(BertForSequenceClassification(toy_config, 1, dtype="float32"))
    save_multiple_choice(model, tmp_path)
    outputs = written(tmp_path)(given(4, 9))
    same(outputs["logits"], keras_output(model, given(4, 9))[:, 0])
    assert list(outputs) == ["logits"]


@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_and_spans(toy_config, tmp_path, shape):
    inputs = given(*shape)
    tagger = with_random_weights(BertForTokenClassification(toy_config, 3, dtype="float32"))
    save_token_classifier(tagger, tmp_path / "tags", NAMES)
    outputs, expected = written(tmp_path / "tags")(inputs), keras_output(tagger, inputs)
    same(outputs["logits"], expected, inputs["attention_mask"])
    same(outputs["probabilities"], softmax(expected), inputs["attention_mask"])

    answerer = with_random_weights(BertForQuestionAnswering(toy_config, dtype="float32"))
    save_question_answerer(answerer, tmp_path / "spans")
    outputs, expected = written(tmp_path / "spans")(inputs), keras_output(answerer, inputs)
    same(outputs["start_logits"], expected[..., 0], inputs["attention_mask"])
    same(outputs["end_logits"], expected[..., 1], inputs["attention_mask"])


@pytest.mark.parametrize("nsp", [True, False])
def test_masked_words_have_the_logits_of_every_word(toy_config, tmp_path, nsp):
    model = with_random_weights(BertForPreTraining(toy_config, nsp, dtype="float32"))
    save_pretraining(model, tmp_path)
    inputs = given(4, 9)
    same(written(tmp_path)(inputs)["logits"], keras_output(model, inputs), inputs["attention_mask"])


@pytest.mark.parametrize("depth", [1, 5])
@pytest.mark.parametrize("layers", LAYER_CHOICES)
def test_every_choice_of_layers(toy_config, tmp_path, layers, depth):
    config, inputs = replace(toy_config, num_hidden_layers=depth), given(4, 9)
    for pooling, name in (("mean", "sentence_embedding"), ("cls", "sentence_embedding"), (None, "token_embeddings")):
        model = with_random_weights(BertForFeatures(config, layers, pooling, dtype="float32"))
        save_encoder(model.encoder, tmp_path)
        found, expected = written(tmp_path, layers=layers, pooling=pooling)(inputs)[name], keras_output(model, inputs)
        same(found, *((expected, inputs["attention_mask"]) if pooling is None else (expected[:, 0],)))


@pytest.mark.parametrize("pooling", ["mean", "cls", None])
def test_normalized_vectors(toy_config, tmp_path, pooling):
    inputs = given(4, 9)
    model = with_random_weights(BertForFeatures(toy_config, "sum_all", pooling, True, dtype="float32"))
    save_encoder(model.encoder, tmp_path)
    outputs = written(tmp_path, layers="sum_all", pooling=pooling, normalize=True)(inputs)
    (found,), expected = outputs.values(), keras_output(model, inputs)
    same(found, *((expected, inputs["attention_mask"]) if pooling is None else (expected[:, 0],)))
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1)[..., :1], 1, atol=1e-5)


# === The file ===


def test_more_padding_changes_nothing(classifier_folder):
    run, inputs = written(classifier_folder), given(4, 9)
    padded = {name: np.pad(array, ((0, 0), (0, 20)), constant_values=0) for name, array in inputs.items()}
    padded["input_ids"][:, 9:] = 7
    same(run(padded)["logits"], run(inputs)["logits"])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_row_of_padding_alone_gives_numbers(encoder, tmp_path, pooling):
    save_encoder(encoder, tmp_path)
    inputs = given(2, 5)
    inputs["attention_mask"][1] = 0
    vectors = written(tmp_path, pooling=pooling)(inputs)["sentence_embedding"]
    assert np.isfinite(vectors).all()
    assert not vectors[1].any() or pooling == "cls"  # the mean of no vectors is 0, as in kbert


def test_more_tokens_than_positions_are_an_error(classifier_folder):
    run = written(classifier_folder)
    with pytest.raises(Exception, match="(?i)broadcast|dimension"):
        run(given(1, 65))


def test_the_operators_are_those_of_opset_17_alone(classifier_folder):
    written(classifier_folder)
    model = onnx.load(str(classifier_folder / "model.onnx"))
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    assert model.ir_version == 8 and {node.domain for node in model.graph.node} == {""}
    named = {value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
             for value in (*model.graph.input, *model.graph.output)}  # fmt: skip
    assert named == {
        **dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ["batch", "length"]),
        **dict.fromkeys(("logits", "probabilities"), ["batch", 3]),
    }


def test_arrays_beyond_what_a_message_holds_have_a_file_of_their_own(classifier_folder, monkeypatch):
    expected = written(classifier_folder)(given(4, 9))["logits"]
    whole = (classifier_folder / "model.onnx").stat().st_size
    monkeypatch.setattr("kbert.weights.onnx_files._LARGEST", 0)
    found = written(classifier_folder)(given(4, 9))["logits"]
    small, data = (classifier_folder / name for name in ("model.onnx", "model.onnx.data"))
    assert np.array_equal(found, expected)
    assert data.stat().st_size > 0.5 * whole > small.stat().st_size
    quantize_dynamically(classifier_folder)
    assert np.abs(RUNNERS["onnxruntime"](classifier_folder, "float32")(given(4, 9))["logits"] - expected).max() < 0.5


def test_quantizing_leaves_the_root_logger_alone(classifier_folder, caplog):
    expected = written(classifier_folder)(given(8, 30))["logits"]
    size = (classifier_folder / "model.onnx").stat().st_size
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    quantize_dynamically(classifier_folder)
    assert (logging.getLogger().handlers, logging.getLogger().level) == (handlers, level) and not caplog.records
    found = RUNNERS["onnxruntime"](classifier_folder, "float32")(given(8, 30))["logits"]
    assert 0 < np.abs(found - expected).max() < 0.2 * np.ptp(expected)
    assert (classifier_folder / "model.onnx").stat().st_size < 0.7 * size


def test_openvino_runs_the_same_file(classifier_folder):
    openvino = pytest.importorskip("openvino", reason="to run this, run: pip install openvino")
    run = written(classifier_folder)
    # On processors that have bfloat16 it would compute in that.
    precise = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.compile_model(str(classifier_folder / "model.onnx"), "CPU", precise)
    for shape in SHAPES:
        inputs = given(*shape)
        same(compiled(inputs)["logits"], run(inputs)["logits"])


# === What is refused ===


def _change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_arrays_that_are_not_those_of_the_config_are_named(classifier_folder, monkeypatch):
    _change_config(classifier_folder, intermediate_size=32)
    with pytest.raises(WeightsMismatchError, match=r"encoder.layer.0.intermediate.dense.weight has shape \(64, 32\)"):
        write_onnx(classifier_folder)
    _change_config(classifier_folder, intermediate_size=64, num_hidden_layers=3)
    with pytest.raises(WeightsMismatchError, match="encoder.layer.2.attention.self.query.weight is missing"):
        write_onnx(classifier_folder)
    assert "bert.encoder.layer.1.output.dense.bias" in read_folder(classifier_folder)
    assert not (classifier_folder / "model.onnx").exists()


def test_an_unknown_head_is_named(classifier_folder):
    _change_config(classifier_folder, architectures=["BertForNextSentencePrediction"])
    with pytest.raises(WeightsMismatchError, match="BertForNextSentencePrediction"):
        write_onnx(classifier_folder)
