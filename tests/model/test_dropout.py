"""Dropout: how many values it drops, and that no two streams of it have to do with each other."""

import keras
import numpy as np
import pytest
from keras import ops

from kbert.model.dropout import Dropout

pytestmark = pytest.mark.backend

N = 1_000_000


@pytest.fixture(autouse=True)
def _seeded():
    """PyTorch's dropout draws from its global generator."""
    keras.utils.set_random_seed(0)


def _dropped(layer, n):
    """Which of n values the layer's next call drops."""
    return ops.convert_to_numpy(layer(ops.ones((n // 100, 100)), training=True)).ravel() == 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_dropped_is_the_rate_and_the_rest_is_scaled(rate):
    values = ops.convert_to_numpy(Dropout(rate, seed=3)(ops.ones((N // 100, 100)), training=True))
    sigma = (rate * (1 - rate) / N) ** 0.5
    assert abs((values == 0).mean() - rate) < 4 * sigma
    np.testing.assert_allclose(values[values != 0], 1 / (1 - rate), rtol=1e-6)


def test_nearly_everything_may_be_dropped():
    values = ops.convert_to_numpy(Dropout(0.999999, seed=3)(ops.ones((N // 100, 100)), training=True))
    assert (values == 0).mean() > 0.9999


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_drops_the_same_share(dtype):
    values = Dropout(0.1, seed=3, dtype=dtype)(ops.ones((N // 100, 100)), training=True)
    assert keras.backend.standardize_dtype(values.dtype) == dtype.removeprefix("mixed_")
    dropped = ops.convert_to_numpy(ops.cast(values, "float32")) == 0
    assert abs(dropped.mean() - 0.1) < 4 * (0.09 / N) ** 0.5


def test_nothing_is_dropped_when_predicting_or_at_rate_zero():
    x = np.random.default_rng(0).normal(size=(50, 20)).astype("float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.5, seed=1)(x, training=False)), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.5, seed=1)(x)), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.0, seed=1)(x, training=True)), x)


def test_positions_near_each_other_are_dropped_independently():
    dropped = _dropped(Dropout(0.5, seed=3), N) - 0.5
    correlations = [4 * np.mean(dropped[shift:] * dropped[:-shift]) for shift in range(1, 65)]
    assert np.abs(correlations).max() < 5 / N**0.5


def _strongest(streams, shifts=64):
    """The strongest correlation of any two streams, one of them moved by up to ``shifts`` places, in sigmas."""
    streams = [stream - 0.5 for stream in streams]
    n = len(streams[0])
    middle = slice(shifts, n - shifts)
    correlations = [
        4 * np.mean(a[middle] * b[shifts + shift : n - shifts + shift])
        for i, a in enumerate(streams)
        for b in streams[:i]
        for shift in range(-shifts, shifts + 1)
    ]
    return np.abs(correlations).max() * (n - 2 * shifts) ** 0.5


def test_layers_and_steps_with_adjacent_seeds_drop_independently():
    layers = [Dropout(0.5, seed=seed) for seed in (5, 6, 7)]
    # About 2000 comparisons: five and a half sigma comes once in ten thousand runs of this test.
    assert _strongest([_dropped(layer, 20_000) for _step in range(2) for layer in layers]) < 5.5


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch draws from a generator of its own")
def test_the_layers_of_a_model_drop_independently_in_a_training_step(toy_config):
    from kbert.model import BertForSequenceClassification
    from kbert.model.dropout import random_bits
    from kbert.training.functional import state_values

    model = BertForSequenceClassification(toy_config, num_labels=2)
    streams = []
    for step in range(3):
        seed = np.random.SeedSequence([0, step]).generate_state(2, "uint32")  # as the training loop makes them
        values = state_values(model, ops.convert_to_tensor(seed), [])
        assert len(values) == 1 + 3 * toy_config.num_hidden_layers + 1
        streams += [ops.convert_to_numpy(random_bits((20_000,), value)) < 2**31 for value in values[:4]]
    assert _strongest(streams) < 5.5
