"""BertEncoder as a part of a user's own Keras model, with plain compile, fit, save and load."""

import copy
import dataclasses
import subprocess
import sys

import keras
import numpy as np
import pytest

from kbert import BertEncoder
from kbert.model import (
    INPUT_NAMES,
    BertForFeatures,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
)

pytestmark = pytest.mark.backend


@pytest.fixture(scope="module")
def data(rows_of):
    """Texts of which half hold the token 7; the label says which."""
    rng = np.random.default_rng(0)
    labels = np.arange(64) % 2
    texts = [rng.integers(10, 100, rng.integers(6, 12)) for _ in labels]
    for text, label in zip(texts, labels, strict=True):
        if label:
            text[rng.integers(1, len(text))] = 7
    return rows_of([[text] for text in texts], 12), labels


def test_a_model_around_the_encoder_learns_and_survives_a_keras_file(toy_config, data, tmp_path):
    x, y = data
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUT_NAMES}
    pooled = BertEncoder(toy_config, name="bert")(inputs)["pooled_output"]
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(pooled))
    model.compile(keras.optimizers.Adam(3e-3), "binary_crossentropy", metrics=["accuracy"])

    history = model.fit(x, y, batch_size=16, epochs=8, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]

    predicted = model.predict(x, batch_size=16, verbose=0)
    assert ((predicted[:, 0] > 0.5) == y).mean() > 0.9

    model.save(tmp_path / "mine.keras")
    again = keras.saving.load_model(tmp_path / "mine.keras")
    np.testing.assert_array_equal(again.predict(x, batch_size=16, verbose=0), predicted)


def test_an_encoder_that_is_not_trainable_stays_as_it_was(toy_config, data):
    x, y = data
    encoder = BertEncoder(toy_config)
    encoder.trainable = False
    before = [np.array(keras.ops.convert_to_numpy(weight)) for weight in encoder.weights]
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUT_NAMES}
    model = keras.Model(inputs, keras.layers.Dense(1)(encoder(inputs)["pooled_output"]))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    head = np.array(keras.ops.convert_to_numpy(model.layers[-1].kernel))
    model.fit(x, y, batch_size=32, verbose=0)
    assert not np.array_equal(head, keras.ops.convert_to_numpy(model.layers[-1].kernel))
    for weight, array in zip(encoder.weights, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), array)


def freeze_encoder(model):
    model.get_layer("bert").trainable = False


def freeze_a_layer_and_a_part(model):
    layers = model.get_layer("bert").transformer_layers
    layers[0].trainable = layers[-1].attention.trainable = False


@pytest.mark.compiles
@pytest.mark.parametrize("freeze", [freeze_encoder, freeze_a_layer_and_a_part])
def test_what_is_frozen_survives_a_keras_file_with_the_optimizers_state(toy_config, data, tmp_path, freeze):
    x, y = data
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUT_NAMES}
    pooled = BertEncoder(toy_config, name="bert")(inputs)["pooled_output"]
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    freeze(model)
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    model.fit(x, y, batch_size=32, verbose=0)
    model.save(tmp_path / "mine.keras")
    again = keras.saving.load_model(tmp_path / "mine.keras")
    assert [v.trainable for v in again.weights] == [v.trainable for v in model.weights]
    assert 0 < len(again.trainable_weights) < len(again.weights)
    for one, other in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (one, other)))


@pytest.mark.slow
def test_a_head_whose_encoder_is_frozen_is_copied_so(toy_config):
    model = BertForSequenceClassification(toy_config, 2)
    model.encoder.trainable = False
    model.encoder.pooler.trainable = True
    for again in (copy.deepcopy(model), type(model).from_config(model.get_config())):
        assert [v.trainable for v in again.weights] == [v.trainable for v in model.weights]


def encoder_in_one_graph(encoder):
    """A user's model of the encoder's own layers, which Keras saves and clones one by one."""
    return keras.Model(encoder.inputs, keras.layers.Dense(1)(encoder.output["pooled_output"]))


def copies(model, path):
    model.save(path)
    return keras.saving.load_model(path), keras.models.clone_model(model), copy.deepcopy(model)


@pytest.mark.slow
def test_layers_of_the_encoder_in_the_graph_of_another_model_stay_frozen(toy_config, tmp_path):
    encoder = BertEncoder(toy_config)
    encoder.embeddings.trainable = False
    encoder.transformer_layers[0].trainable = encoder.transformer_layers[-1].attention.trainable = False
    model = encoder_in_one_graph(encoder)
    for again in copies(model, tmp_path / "mine.keras"):
        assert [v.trainable for v in again.weights] == [v.trainable for v in model.weights]
    assert 0 < len(model.trainable_weights) < len(model.weights)


def adapters(model):
    """Layer by layer: rank and alpha."""
    dense = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Dense)]
    return [(layer.lora_rank, layer.lora_alpha) for layer in dense if layer.lora_enabled]


@pytest.mark.slow
@pytest.mark.parametrize("around", [encoder_in_one_graph, lambda encoder: encoder])
def test_a_model_with_adapters_is_copied_with_adapters_that_can_be_trained(toy_config, data, tmp_path, around):
    x, _ = data
    encoder = BertEncoder(toy_config)
    encoder.embeddings.trainable = False
    for layer in encoder.transformer_layers:
        layer.attention.query.enable_lora(2, lora_alpha=5)
        layer.attention.query.lora_kernel_b.assign(np.full(layer.attention.query.lora_kernel_b.shape, 0.1))
        layer.intermediate.enable_lora(3)
    model = around(encoder)
    assert set(adapters(model)) == {(2, 5), (3, 3)}
    loaded, clone, deep = copies(model, tmp_path / "mine.keras")
    for again in (loaded, clone, deep):
        assert adapters(again) == adapters(model)
        assert [v.trainable for v in again.weights] == [v.trainable for v in model.weights]
        for layer in again._flatten_layers():
            # One matrix is 0 in a new adapter, so that it changes nothing; were both, they could never be trained.
            assert not getattr(layer, "lora_enabled", False) or np.any(keras.ops.convert_to_numpy(layer.lora_kernel_a))
    for again in (loaded, deep):
        for found, expected in zip(
            keras.tree.flatten(again.predict(x, verbose=0)),
            keras.tree.flatten(model.predict(x, verbose=0)),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_encoder_of_another_architecture_is_refused(toy_config):
    encoder = BertEncoder(dataclasses.replace(toy_config, max_position_embeddings=100, hidden_dropout_prob=0.3))
    with pytest.raises(ValueError, match="max_position_embeddings is 100 instead of .*config=encoder.config"):
        BertForSequenceClassification(toy_config, 2, encoder=encoder)
    assert BertForSequenceClassification(encoder.config, 2, encoder=encoder).encoder is encoder


@pytest.mark.slow
def test_a_part_of_the_encoder_and_a_clone_are_models_like_any_other(toy_config, data, tmp_path):
    x, _ = data
    encoder = BertEncoder(toy_config)
    part = keras.Model(encoder.inputs, encoder.get_layer("layer_0").output)
    part.save(tmp_path / "part.keras")
    again = keras.saving.load_model(tmp_path / "part.keras")
    np.testing.assert_array_equal(again.predict(x, verbose=0), part.predict(x, verbose=0))
    clone = keras.models.clone_model(encoder)
    clone.set_weights(encoder.get_weights())
    expected = encoder.predict(x, verbose=0)
    for name, found in clone.predict(x, verbose=0).items():
        np.testing.assert_array_equal(found, expected[name])
    with pytest.raises(NotImplementedError, match=r"shares the word embeddings.*from_config\(model.get_config\(\)\)"):
        keras.models.clone_model(BertForPreTraining(toy_config, nsp=False))


@pytest.mark.slow
def test_a_policy_for_each_layer_survives_a_keras_file(toy_config, tmp_path):
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    BertEncoder(toy_config, dtype=policies).save(tmp_path / "mine.keras")
    again = keras.saving.load_model(tmp_path / "mine.keras")
    assert again.transformer_layers[0].compute_dtype == "bfloat16"


@pytest.mark.slow
def test_quantized_layers_are_refused_with_what_has_int8(toy_config, data):
    x, _ = data
    encoder = BertEncoder(toy_config)
    with pytest.raises(NotImplementedError, match="export.*int8"):
        encoder.quantize("int8")
    with pytest.raises(ValueError, match="dtype='int8_from_float32' is of quantized weights"):
        BertEncoder(toy_config, dtype="int8_from_float32")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUT_NAMES}
    model = keras.Model(inputs, encoder(inputs)["pooled_output"])
    before = model.predict(x, verbose=0)
    with pytest.warns(UserWarning, match="kbert trains and computes in floating point alone"):
        model.quantize("int8")
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)


@pytest.mark.slow
@pytest.mark.compiles
def test_another_process_opens_a_keras_file_once_it_has_imported_a_model(toy_config, tmp_path):
    BertForTokenClassification(toy_config, 3).save(tmp_path / "tagger.keras")
    code = "import sys, keras; from kbert import BertEncoder; print(keras.saving.load_model(sys.argv[1]).num_labels)"
    run = [sys.executable, "-c", code, str(tmp_path / "tagger.keras")]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()[-1] == "3"


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64"])
def test_ids_may_have_any_dtype(toy_config, rows_of, dtype):
    """np.zeros makes first_positions of float64; a classifier on [CLS] does not go by Keras's graph."""
    x = {**rows_of([[np.arange(10, 20)], [np.arange(30, 35)]], 16), "first_positions": np.zeros((2, 1), "int32")}
    other = {name: array.astype(dtype) for name, array in x.items()}
    for model in (BertForSequenceClassification(toy_config, 3), BertForTokenClassification(toy_config, 3)):
        mine, theirs = ({name: each[name] for name in model.input_names} for each in (x, other))
        np.testing.assert_array_equal(model.predict(theirs, verbose=0), model.predict(mine, verbose=0))


def test_what_is_no_config_is_refused():
    with pytest.raises(TypeError, match=r"config must be a BertConfig, got str. BertConfig.from_size\('tiny'\)"):
        BertEncoder("tiny")


@pytest.mark.parametrize("seed", [-1, 2**31, 0.5, "0", True])
def test_what_is_no_seed_is_refused(toy_config, seed):
    with pytest.raises(ValueError, match=f"seed must be None or a whole number from 0 to .*, got {seed!r}"):
        BertEncoder(toy_config, seed=seed)


def test_a_seed_that_is_none_comes_from_kerass_random_state(toy_config):
    def start():
        model = BertForTokenClassification(toy_config, 3, seed=None)
        return keras.ops.convert_to_numpy(model.encoder.embeddings.word)

    keras.utils.set_random_seed(1)
    first, second = start(), start()
    keras.utils.set_random_seed(1)
    np.testing.assert_array_equal(start(), first)
    assert not np.array_equal(first, second)


def test_a_precision_for_each_layer_is_refused(toy_config):
    policies = keras.dtype_policies.DTypePolicyMap("float32", {"layer_0": keras.DTypePolicy("bfloat16")})
    with pytest.raises(ValueError, match="policies of its own for layer_0, .* one precision.*mixed_bfloat16"):
        BertEncoder(toy_config, dtype=policies)


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.*deprecated",
    "ignore:There is a performance drop",
    "ignore:Converting a tensor",
)
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="these are functions of PyTorch")
@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "trace"])
def test_pytorchs_transforms_take_a_model(toy_config, rows_of, transform):
    import torch

    x = rows_of([[np.arange(10, 20)], [np.arange(30, 35)]], 16)
    layer = BertEncoder(toy_config).transformer_layers[0]
    vectors = torch.rand(2, 16, toy_config.hidden_size)
    mask = torch.tensor(x["text_ids"])[:, None, :, None] == torch.tensor(x["text_ids"])[:, None, None, :]

    def total(vectors):
        return (layer(vectors, mask) ** 2).sum()

    wanted = torch.autograd.functional.jacobian(total, vectors)
    if transform == "grad":
        torch.testing.assert_close(torch.func.grad(total)(vectors), wanted)
    elif transform == "jvp":
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the others have no such derivative
            found = torch.func.jvp(total, (vectors,), (torch.ones_like(vectors),))[1]
        torch.testing.assert_close(found, wanted.sum(), rtol=1e-4, atol=1e-4)
    elif transform == "vmap":
        shifts = torch.tensor([0.0, 1.0])
        found = torch.func.vmap(lambda shift: total(vectors + shift))(shifts)
        torch.testing.assert_close(found, torch.stack([total(vectors + shift) for shift in shifts]))
    else:
        traced = torch.jit.trace(layer, (vectors, mask))
        torch.testing.assert_close(traced(2 * vectors, mask), layer(2 * vectors, mask))


def test_normalised_vectors_can_be_trained_where_rows_hold_fewer_texts_than_slots(toy_config, rows_of):
    # A slot without a text is zeros, of which the square root has no derivative.
    texts = np.arange(10, 20), np.arange(30, 35)
    x = {**rows_of([texts, texts[:1]], 16), "first_positions": np.array([[0, 10], [0, 0]], "int32")}
    model = BertForFeatures(toy_config, normalize=True)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.train_on_batch(x, np.ones((2, 2, toy_config.hidden_size), "float32"))
    assert all(np.isfinite(keras.ops.convert_to_numpy(weight)).all() for weight in model.weights)
    vectors = keras.ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), [[1, 1], [1, 0]], atol=1e-6)
