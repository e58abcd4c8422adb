"""BertEncoder as a part of a user's own Keras model, with plain compile, fit, save and load."""

import keras
import numpy as np
import pytest

from kbert import BertEncoder
from kbert.model import INPUT_NAMES, BertForFeatures

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
