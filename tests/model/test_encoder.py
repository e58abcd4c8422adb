"""The encoder: texts packed into rows, padding, precision, input checks, initial weights, Keras's serialisation."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from kbert import BertConfig, BertEncoder
from kbert.model import (
    BertForFeatures,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from kbert.model.base import FunctionalBert
from kbert.training.backends import backend_step

pytestmark = pytest.mark.backend


@pytest.fixture(scope="module")
def encoder(toy_config):
    return BertEncoder(toy_config, seed=1)


@pytest.fixture(scope="module")
def classifier(toy_config):
    return BertForSequenceClassification(toy_config, num_labels=3, seed=1)


@pytest.fixture(scope="module")
def inputs(rows_of, texts):
    """Two rows of one text."""
    return rows_of([[texts[3]], [texts[7]]], 16)


def _array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def _outputs(model, inputs):
    return {name: _array(tensor) for name, tensor in model(inputs).items()}


def _with_starts(inputs):
    return {**inputs, "first_positions": np.zeros((len(inputs["token_ids"]), 1), "int32")}


# === Packing and padding ===


def test_a_text_gets_the_same_vectors_among_others_in_a_row_as_alone(encoder, rows_of, texts):
    rows = [[texts[0], texts[9], texts[4]], [texts[11], texts[1]], [texts[6], texts[8]]]
    packed = _outputs(encoder, rows_of(rows, 28))["sequence_output"]
    order = [text for row in rows for text in row]
    alone = _outputs(encoder, rows_of([[text] for text in order], 16))["sequence_output"]
    i = 0
    for r, row in enumerate(rows):
        start = 0
        for text in row:
            np.testing.assert_allclose(packed[r, start : start + len(text)], alone[i, : len(text)], rtol=0, atol=1e-5)
            start += len(text)
            i += 1


def test_a_token_sees_its_own_text_and_no_other(encoder, rows_of, texts):
    inputs = rows_of([[texts[5], texts[6]]], 16)
    n = len(texts[5])
    changed = {**inputs, "token_ids": inputs["token_ids"].copy()}
    changed["token_ids"][0, n] = (inputs["token_ids"][0, n] + 1) % 100
    difference = np.abs(
        _outputs(encoder, inputs)["sequence_output"] - _outputs(encoder, changed)["sequence_output"]
    ).max(axis=-1)[0]
    assert (difference[:n] == 0).all()
    assert (difference[n : n + len(texts[6])] > 1e-4).all()


def test_logits_of_packed_texts_are_those_of_each_alone(classifier, rows_of, texts):
    packed = {**rows_of([[texts[2], texts[8]]], 16), "first_positions": np.array([[0, len(texts[2])]], "int32")}
    alone = _with_starts(rows_of([[texts[2]], [texts[8]]], 16))
    np.testing.assert_allclose(_array(classifier(packed))[0], _array(classifier(alone))[:, 0], rtol=0, atol=1e-5)


def test_the_pooled_output_is_the_pooler_of_the_first_token(encoder, inputs):
    outputs = _outputs(encoder, inputs)
    pooled = _array(encoder.pooler(outputs["sequence_output"][:, 0]))
    np.testing.assert_allclose(outputs["pooled_output"], pooled, rtol=0, atol=1e-6)
    assert np.abs(pooled).max() < 1


# === Precision ===


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("training", [False, True])
def test_rows_of_nothing_but_padding_are_finite(toy_config, rows_of, texts, dtype, training):
    encoder = BertEncoder(toy_config, dtype=dtype)
    outputs = encoder(rows_of([[texts[3], texts[5]], [], [texts[11]]], 16), training=training)
    assert all(np.isfinite(_array(tensor)).all() for tensor in outputs.values())


@pytest.mark.parametrize("dtype, tolerance", [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_half_precision_is_close_to_float32(toy_config, inputs, classifier, dtype, tolerance):
    model = BertForSequenceClassification(toy_config, num_labels=3, dtype=dtype, seed=1)
    difference = np.abs(_array(model(_with_starts(inputs))) - _array(classifier(_with_starts(inputs)))).max()
    assert 0 < difference < tolerance


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_policy_reaches_every_layer_and_leaves_weights_and_logits_in_float32(toy_config, inputs, dtype):
    model = BertForSequenceClassification(toy_config, num_labels=3, dtype=dtype)
    compute = dtype.removeprefix("mixed_")
    parts = [
        layer
        for layer in model.encoder._flatten_layers()
        if not isinstance(layer, (BertEncoder, keras.layers.InputLayer))
    ]
    assert len(parts) > 20
    assert {layer.name: layer.compute_dtype for layer in parts if layer.variables} == {
        layer.name: compute for layer in parts if layer.variables
    }
    assert model.classifier.compute_dtype == "float32"
    assert (model.compute_dtype, model.encoder.compute_dtype) == (compute, compute)
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in model.weights} == {"float32"}
    assert keras.backend.standardize_dtype(model(_with_starts(inputs)).dtype) == "float32"
    assert keras.backend.standardize_dtype(model.encoder(inputs)["sequence_output"].dtype) == compute


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForTokenClassification, BertForQuestionAnswering])
def test_outputs_far_from_0_keep_float32s_digits(toy_config, inputs, head, dtype, tmp_path):
    choices = {} if head is BertForQuestionAnswering else {"num_labels": 2}
    model = head(toy_config, dtype=dtype, seed=1, **choices)
    inputs = _with_starts(inputs) if head is BertForSequenceClassification else inputs
    plain = _array(model(inputs))
    layer = model.qa_outputs if head is BertForQuestionAnswering else model.classifier
    layer.bias.assign([2000.25, -2001.5])
    np.testing.assert_allclose(_array(model(inputs)) - plain, plain * 0 + [2000.25, -2001.5], rtol=0, atol=1e-3)
    assert np.isfinite(_array(model(inputs, training=True))).all()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(_array(again(inputs)), _array(model(inputs)))


def test_without_a_dtype_the_global_policy_holds(toy_config):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        encoder = BertEncoder(toy_config)
    finally:
        keras.config.set_dtype_policy(before)
    assert encoder.transformer_layers[0].attention.query.compute_dtype == "bfloat16"
    assert encoder.get_config()["dtype"] == "mixed_bfloat16"


# === Input checks ===


@pytest.mark.parametrize("key", ["token_ids", "segment_ids", "position_ids", "text_ids"])
def test_a_missing_key_is_named(encoder, inputs, key):
    with pytest.raises(ValueError, match=f"(lacks|[Mm]issing).*{key}"):
        encoder({name: array for name, array in inputs.items() if name != key})


def test_an_extra_key_is_named(encoder, inputs):
    with pytest.raises(ValueError, match="unknown attention_mask"):
        encoder({**inputs, "attention_mask": inputs["text_ids"]})


def test_an_extra_key_is_named_in_keras_predict_and_in_a_model_around_the_encoder(toy_config, inputs):
    encoder = BertEncoder(toy_config)  # one of its own: under JAX a predict that fails leaves a model without values
    wrong = {**inputs, "attention_mask": inputs["text_ids"]}
    with pytest.raises(ValueError, match="unknown attention_mask"):
        encoder.predict(wrong, verbose=0)
    with pytest.raises(ValueError, match="unknown attention_mask"):
        symbols = {name: keras.Input((None,), dtype="int32", name=name) for name in wrong}
        keras.Model(symbols, encoder(symbols))(wrong)


def test_the_classifier_asks_for_first_positions(classifier, inputs):
    with pytest.raises(ValueError, match="first_positions"):
        classifier(inputs)


@pytest.mark.parametrize("place", [-1, 99])
def test_a_position_beyond_the_rows_is_named(classifier, inputs, place):
    places = np.full((len(inputs["token_ids"]), 1), place, "int32")
    with pytest.raises(ValueError, match=f"first_positions must lie in .*got values from {place}"):
        classifier({**inputs, "first_positions": places})


@pytest.mark.parametrize("wrong", [{"pooling": "max"}, {"layers": "third"}])
def test_vectors_that_are_not_known_are_refused(toy_config, wrong):
    with pytest.raises(ValueError, match="BertForFeatures: '(max|third)' is none of"):
        BertForFeatures(toy_config, **wrong)


def test_arrays_of_several_shapes_are_named(encoder, inputs):
    with pytest.raises(ValueError, match=r"must have one shape.*token_ids of \(\d+, \d+\).*text_ids of \(\d+, 2\)"):
        encoder({**inputs, "text_ids": inputs["text_ids"][:, :2]})


def test_arrays_of_one_row_without_its_axis_are_refused(encoder, inputs):
    with pytest.raises(ValueError, match=r"must have one shape, \(rows, tokens\), got token_ids of \(\d+,\)"):
        encoder({name: array[0] for name, array in inputs.items()})


def test_a_list_of_arrays_is_refused(encoder, inputs):
    with pytest.raises(TypeError, match="dict with the keys token_ids.*list"):
        encoder(list(inputs.values()))


@pytest.mark.parametrize("key, limit", [("token_ids", 100), ("segment_ids", 2), ("position_ids", 64)])
@pytest.mark.parametrize("beyond", [True, False])
def test_an_id_outside_its_table_is_named(encoder, inputs, key, limit, beyond):
    wrong = {**inputs, key: inputs[key].copy()}
    wrong[key][1, 2] = limit if beyond else -1
    calls = [encoder, encoder.predict, encoder.evaluate, encoder.fit]  # Keras makes tensors of arrays
    for call in (*calls, encoder.predict_on_batch, encoder.test_on_batch, encoder.train_on_batch):
        with pytest.raises(ValueError, match=rf"{key} must lie in \[0, {limit}\)"):
            call(wrong)


# === Initial weights ===


def test_initial_weights_are_a_normal_cut_at_two_sigma_of_one_fiftieth(toy_config):
    encoder = BertEncoder(toy_config)
    matrices = [_array(weight) for weight in encoder.weights if len(weight.shape) == 2]
    values = np.concatenate([matrix.ravel() for matrix in matrices])
    assert np.abs(values).max() <= 0.04
    # A normal cut at two sigma keeps 0.8796 of its deviation.
    assert values.std() == pytest.approx(0.8796 * 0.02, rel=0.02)
    assert abs(values.mean()) < 4 * values.std() / len(values) ** 0.5


def test_no_two_matrices_start_from_the_same_numbers(toy_config):
    matrices = [_array(weight).ravel() for weight in BertEncoder(toy_config).weights if len(weight.shape) == 2]
    correlations = [
        np.corrcoef(a[: len(b)], b[: len(a)])[0, 1] * min(len(a), len(b)) ** 0.5
        for i, a in enumerate(matrices)
        for b in matrices[:i]
    ]
    assert np.abs(correlations).max() < 5


def test_biases_start_at_zero_and_layer_norms_at_one_and_zero(toy_config):
    vectors = {weight.path: _array(weight) for weight in BertEncoder(toy_config).weights if len(weight.shape) == 1}
    starts = {path: np.unique(vector).tolist() for path, vector in vectors.items()}
    expected = {path: [1.0 if path.endswith("gamma") else 0.0] for path in vectors}
    assert starts == expected
    assert sum(path.endswith("gamma") for path in vectors) == 1 + 2 * toy_config.num_hidden_layers


@pytest.mark.parametrize("same", [True, False])
def test_the_seed_decides_the_start(toy_config, same):
    first, second = (BertEncoder(toy_config, seed=seed) for seed in (3, 3 if same else 4))
    equal = [
        np.array_equal(_array(a), _array(b))
        for a, b in zip(first.weights, second.weights, strict=True)
        if len(a.shape) == 2
    ]
    assert all(equal) if same else not any(equal)


# === Serialisation ===


def test_a_model_made_again_from_its_config_has_the_same_start(toy_config, inputs):
    encoder = BertEncoder(toy_config.with_dropout(0.3), dtype="mixed_bfloat16", name="mine", seed=5)
    again = BertEncoder.from_config(encoder.get_config())
    assert (again.name, again.config, again.seed) == ("mine", encoder.config, 5)
    for name, array in _outputs(encoder, inputs).items():
        np.testing.assert_array_equal(_outputs(again, inputs)[name], array)


@pytest.mark.parametrize("kind", ["encoder", "classifier"])
def test_a_model_survives_a_keras_file(request, kind, inputs, tmp_path):
    model = request.getfixturevalue(kind)
    if kind == "classifier":
        inputs = _with_starts(inputs)
        model.classifier.bias.assign([1.0, 2.0, 3.0])  # no start value
    else:
        model.pooler.dense.bias.assign(np.linspace(-1, 1, 32))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model) and again.config == model.config
    for before, after in zip(keras.tree.flatten(model(inputs)), keras.tree.flatten(again(inputs)), strict=True):
        np.testing.assert_array_equal(_array(before), _array(after))


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("mixed_bfloat16", 0.05)])
def test_of_the_last_layer_what_is_read_is_enough(dtype, tolerance):
    """The pooler's vectors by `vectors_of_texts` are those of the whole sequence output."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=48, initializer_range=0.2)
    encoder = BertEncoder(config, dtype=dtype)
    text_ids = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 12], "int32")
    inputs = {
        "token_ids": np.random.default_rng(0).integers(1, 50, (2, 12)).astype("int32"),
        "segment_ids": text_ids % 2,
        "position_ids": np.array([[*range(5), *range(4), 0, 0, 0], [*range(12)]], "int32"),
        "text_ids": text_ids,
    }
    first_positions = np.array([[0, 5], [0, 0]], "int32")
    found = keras.ops.convert_to_numpy(keras.ops.cast(encoder.vectors_of_texts(inputs, first_positions), "float32"))
    hidden = encoder(inputs)["sequence_output"]
    expected = [[encoder.pooler(hidden[row : row + 1, at]) for at in line] for row, line in enumerate(first_positions)]
    expected = [[keras.ops.convert_to_numpy(keras.ops.cast(v[0], "float32")) for v in line] for line in expected]
    np.testing.assert_allclose(found, expected, atol=tolerance)
    # A token of the second text changes that text's vector alone.
    inputs["token_ids"][0, 6] += 1
    changed = keras.ops.convert_to_numpy(keras.ops.cast(encoder.vectors_of_texts(inputs, first_positions), "float32"))
    assert np.array_equal(changed[0, 0], found[0, 0]) and not np.array_equal(changed[0, 1], found[0, 1])


def _model(kind, config, **options):
    """A model of a kind, with a head on the mean or on [CLS], for instance."""
    of_mean = dataclasses.replace(config, classifier_pooling="mean")
    makers = {
        "encoder": lambda: BertEncoder(config),
        "mean": lambda: BertForSequenceClassification(of_mean, 3, **options),
        "cls": lambda: BertForSequenceClassification(config, 3, **options),
        "tagger": lambda: BertForTokenClassification(config, 3, **options),
        "answers": lambda: BertForQuestionAnswering(config, **options),
        "features": lambda: BertForFeatures(config, **options),
    }
    return makers[kind]()


def _taken_by(model, inputs):
    """The inputs, with the starts of texts where the model takes them."""
    return _with_starts(inputs) if "first_positions" in model.input_names else inputs


@pytest.mark.parametrize(
    "kind, options",
    [
        *((kind, {}) for kind in ("encoder", "mean", "cls", "tagger", "answers")),
        *(("features", options) for options in ({"pooling": "cls"}, {"normalize": True}, {"pooling": None})),
    ],
)
def test_outputs_are_those_of_the_graph_of_layers(toy_config, inputs, kind, options):
    """Models compute them without Keras's walk through the graph (`outputs_of`)."""
    model = _model(kind, dataclasses.replace(toy_config, initializer_range=0.2), **options)
    given = _taken_by(model, inputs)
    found, expected = (
        [_array(tensor) for tensor in keras.tree.flatten(outputs)]
        for outputs in (model(given), FunctionalBert.outputs_of(model, given, training=False))
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="hooks are PyTorch's")
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hooks_that_a_user_registers_are_run(toy_config, inputs, pooling):
    """Of the model, its encoder with embeddings and layers, its dropout and its classifier."""
    from torch.nn.modules.module import register_module_forward_hook

    model = BertForSequenceClassification(dataclasses.replace(toy_config, classifier_pooling=pooling), 3)
    predict = backend_step().predictor(model)
    given, seen = _with_starts(inputs), []
    before = _array(predict(given))
    encoder = model.encoder
    hooked = [model, encoder, encoder.embeddings, *encoder.transformer_layers, model.dropout, model.classifier]
    handles = [part.register_forward_hook(lambda part, _, output: seen.append(part)) for part in hooked]
    np.testing.assert_allclose(_array(predict(given)), before, atol=1e-6)
    assert sorted(map(id, seen)) == sorted(map(id, hooked))
    for handle in handles:
        handle.remove()
    seen.clear()
    handle = register_module_forward_hook(lambda part, _, output: seen.append(part))  # of all modules
    np.testing.assert_allclose(_array(predict(given)), before, atol=1e-6)
    handle.remove()
    assert {id(part) for part in seen} >= set(map(id, hooked))
    encoder.embeddings.register_forward_hook(lambda layer, _, output: 0 * output)
    assert not np.allclose(_array(predict(given)), before)


class WithoutTexts(BertEncoder):
    """What a user may make of an encoder."""

    def call(self, inputs, training=None, mask=None):
        return {name: 0 * output for name, output in super().call(inputs, training).items()}


@pytest.mark.parametrize("kind", ["mean", "cls", "tagger", "answers", "features"])
def test_an_encoder_with_a_call_of_its_own_is_called(toy_config, inputs, kind):
    models = (_model(kind, toy_config, encoder=encoder(toy_config)) for encoder in (WithoutTexts, BertEncoder))
    found = [_array(model(_taken_by(model, inputs))) for model in models]
    assert not found[0].any() and found[1].any()  # biases are 0 at the start


@pytest.mark.parametrize("part", ["hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"])
@pytest.mark.parametrize("kind", ["encoder", "mean", "cls", "tagger", "answers", "features"])
def test_dropout_is_in_training_alone(toy_config, inputs, kind, part):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0, part: 0.5}
    model = _model(kind, dataclasses.replace(toy_config, initializer_range=0.2, **rates))
    given = _taken_by(model, inputs)
    without, within = (_array(keras.tree.flatten(model(given, training=training))[-1]) for training in (False, True))
    has_one = part != "classifier_dropout" or kind in ("mean", "cls", "tagger")
    assert np.allclose(within, without, atol=1e-5) != has_one
    np.testing.assert_allclose(_array(keras.tree.flatten(model(given))[-1]), without, atol=1e-6)


def test_a_call_with_symbolic_inputs_has_symbolic_outputs(classifier):
    inputs = {tensor.name: tensor for tensor in classifier.inputs}
    assert classifier.call(inputs).shape == (None, None, 3)


# === Heads around one encoder ===


def test_heads_around_one_encoder_share_its_weights_seed_and_precision(toy_config, inputs):
    encoder = BertEncoder(toy_config, dtype="mixed_bfloat16", seed=5)
    classifier = BertForSequenceClassification(toy_config, 3, encoder=encoder)
    alone = BertForSequenceClassification(toy_config, 3, dtype="mixed_bfloat16", seed=5)
    assert classifier.get_config() == {**alone.get_config(), "name": classifier.name}
    tagger = BertForTokenClassification(toy_config, 3, encoder=encoder)
    features = BertForFeatures(toy_config, pooling=None, encoder=encoder)
    assert classifier.encoder is tagger.encoder is features.encoder is encoder
    for shared, own in zip(classifier.weights, alone.weights, strict=True):
        np.testing.assert_array_equal(_array(shared), _array(own))
    before = _array(features(inputs))
    np.testing.assert_array_equal(_array(classifier(_with_starts(inputs))), _array(alone(_with_starts(inputs))))
    encoder.transformer_layers[-1].output_norm.beta.assign(np.linspace(-3, 3, toy_config.hidden_size))
    assert not np.allclose(_array(features(inputs)), before)
    assert not np.allclose(_array(classifier(_with_starts(inputs))), _array(alone(_with_starts(inputs))))
