"""The attention that PyTorch brings for training on GPUs does what kbert's own does elsewhere."""

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.model.layers import SameText, SelfAttention, _torch_attention

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch: run with KERAS_BACKEND=torch"),
]

RATE = 0.3


@pytest.fixture
def arrays():
    """Query, key and value of two rows of 12 tokens, each of two texts and some padding, and their mask."""
    keras.utils.set_random_seed(0)
    text_ids = keras.ops.convert_to_tensor([[1] * 5 + [2] * 4 + [0] * 3, [1] * 10 + [0] * 2])
    return *(keras.random.normal((2, 12, 4, 8)).requires_grad_() for _ in range(3)), SameText()(text_ids)


@pytest.fixture
def layer():
    return SelfAttention(BertConfig(hidden_size=32, num_attention_heads=4, attention_probs_dropout_prob=RATE), seed=0)


def test_without_dropout_it_is_the_same_function(arrays, layer):
    import torch

    expected = layer._explicit_attention(*arrays, training=False)
    given = _torch_attention(*arrays, 0.0)
    torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((given * weights).sum(), arrays[:3]),
        torch.autograd.grad((expected * weights).sum(), arrays[:3]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_with_dropout_both_have_the_same_mean_and_spread(arrays, layer):
    import torch

    with torch.no_grad():
        ours = torch.stack([layer._explicit_attention(*arrays, training=True) for _ in range(4000)]).cpu().numpy()
        theirs = torch.stack([_torch_attention(*arrays, RATE) for _ in range(4000)]).cpu().numpy()
    error = ((ours.var(0) + theirs.var(0)) / 4000) ** 0.5
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 5 * error + 1e-6).all()
    np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.1, atol=1e-6)
