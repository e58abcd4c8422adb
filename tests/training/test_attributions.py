"""Scores of tokens: derivatives that a difference quotient confirms, and a sum that is what they explain."""

import gc
import weakref

import keras
import numpy as np
import pytest

from kbert.model.parts import BlendedModel
from kbert.training import attributions as module
from kbert.training.attributions import Path, Targets, Tokens, attributions
from kbert.training.backends import backend_step

pytestmark = pytest.mark.backend

TOKENS = Tokens(baseline=4, cls=2, sep=3)
LABEL = 1


@pytest.fixture(scope="module")
def model(model_of):
    """With weights ten times as large as at the start of a training, so that outputs are far from linear."""
    model = model_of()
    for weight in model.weights:
        if len(weight.shape) == 2:
            weight.assign(keras.ops.convert_to_numpy(weight.value) * 10)
    return model


@pytest.fixture(scope="module")
def texts(sequences):
    """Three texts of 8 tokens, of which the first is [CLS] and the last [SEP]."""
    some = sequences.take(np.arange(3))
    some.tokens.values.reshape(3, 8)[:, [0, -1]] = TOKENS.cls, TOKENS.sep
    return some


@pytest.fixture(scope="module")
def along(model, texts):
    """The label's logits of the texts, each in a row of its own, by the shares of their words."""
    run, padded = backend_step().predictor(BlendedModel(model)), texts.padded()
    ids = padded["token_ids"]
    inputs = {**padded, "first_positions": np.zeros((3, 1), "int32")}
    inputs["baseline_ids"] = np.where(np.isin(ids, TOKENS), ids, TOKENS.baseline).astype("int32")

    def along(shares):
        outputs = run({**inputs, "shares": np.asarray(shares, "float32")})
        return keras.ops.convert_to_numpy(outputs)[:, 0, LABEL].astype("float64")

    return along


@pytest.fixture(autouse=True)
def one_shape(monkeypatch):
    """Few tokens in a batch, so that all batches have one shape."""
    monkeypatch.setattr(module, "_BATCH_TOKENS", 32)


def test_calls_leave_nothing_in_the_model(model_of, texts):
    model = model_of()
    path = Path.integral(2)
    nodes = []
    for _ in range(3):
        of_all_texts(model, texts, path)
        nodes.append(sum(len(layer._inbound_nodes) for layer in model._flatten_layers()))
    assert nodes[0] == nodes[1] == nodes[2]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def of_all_texts(model, texts, path):
    return attributions(model, texts, Targets(np.arange(3), np.full(3, LABEL), np.zeros(3, int)), path, TOKENS)


def test_a_derivative_is_the_difference_quotient_by_the_token(model, texts, along):
    found = of_all_texts(model, texts, Path.end())
    np.testing.assert_allclose(found.end, along(np.ones((3, 8))), rtol=0, atol=1e-5)
    step = 0.01
    for token in range(8):
        up, down = np.ones((2, 3, 8))
        up[:, token] += step
        down[:, token] -= step
        quotients = (along(up) - along(down)) / (2 * step)
        np.testing.assert_allclose([scores[token] for scores in found.scores], quotients, rtol=0, atol=2e-3)
        assert token not in (0, 7) or not quotients.any()


def test_scores_add_up_to_the_difference_between_baseline_and_text(model, texts, along, monkeypatch):
    monkeypatch.setattr(module, "_POINTS_AT_ONCE", 66)  # two texts at a time
    found = of_all_texts(model, texts, Path.integral(32))
    difference = along(np.ones((3, 8))) - along(np.zeros((3, 8)))
    np.testing.assert_allclose(found.end - found.start, difference, rtol=0, atol=1e-5)
    assert np.abs(difference).min() > 0.05
    np.testing.assert_allclose([scores.sum() for scores in found.scores], difference, rtol=0, atol=0.01)
