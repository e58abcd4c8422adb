"""The attention that PyTorch brings for training on GPUs does what kbert's own does elsewhere."""

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.model.layers import SameText, SelfAttention

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

    from kbert.model.attention_torch import attention

    expected = layer._explicit_attention(*arrays, training=False)
    given = attention(*arrays, 0.0, True)
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

    from kbert.model.attention_torch import attention

    with torch.no_grad():
        ours = torch.stack([layer._explicit_attention(*arrays, training=True) for _ in range(4000)]).cpu().numpy()
        theirs = torch.stack([attention(*arrays, RATE, True) for _ in range(4000)]).cpu().numpy()
    error = ((ours.var(0) + theirs.var(0)) / 4000) ** 0.5
    assert (np.abs(ours.mean(0) - theirs.mean(0)) < 5 * error + 1e-6).all()
    np.testing.assert_allclose(ours.std(0), theirs.std(0), rtol=0.1, atol=1e-6)


def test_bounds_are_where_a_text_or_padding_begins():
    from kbert.model.attention_torch import text_bounds

    text_ids = np.array([[1, 1, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1], [1, 2, 3, 3, 3, 0]], "int32")
    assert text_bounds(text_ids).tolist() == [0, 2, 4, 6, 12, 13, 14, 17, 18]  # eight texts, and the end
    assert text_bounds(text_ids[:, :5]).tolist() == [0, 2, 4, 5, 10, 11, 12, 15, 15]  # the end is repeated


def test_with_bounds_each_text_is_computed_by_itself(arrays, layer, monkeypatch):
    """FlashAttention is on GPUs alone, so a loop over the texts stands in for it here."""
    import torch

    from kbert.model import attention_torch

    query, key, value, mask = (array.detach() for array in arrays)
    text_ids = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 10 + [0] * 2], "int32")
    calls = []

    def flash(query, key, value, bounds, same, longest, longest_too, rate, is_causal, debug):
        calls.append((longest, rate, is_causal, debug))
        assert bounds is same and longest == longest_too
        context = torch.full_like(query, torch.nan)
        for start, end in zip(bounds.tolist(), bounds.tolist()[1:], strict=False):
            parts = (array[start:end].transpose(0, 1).float() for array in (query, key, value))
            found = torch.nn.functional.scaled_dot_product_attention(*parts)
            context[start:end] = found.transpose(0, 1).to(query.dtype)
        return context, None

    monkeypatch.setattr(attention_torch, "_flash", flash)
    monkeypatch.setattr(attention_torch, "_has_flash", lambda *_: True)
    half = [array.to(torch.bfloat16) for array in (query, key, value)]
    with attention_torch.texts_at(torch.from_numpy(attention_torch.text_bounds(text_ids))):
        given = attention_torch.attention(*half, mask, 0.0, True)
        some = attention_torch.attention(half[0][:, :3], *half[1:], mask[:, :, :3], 0.0, False)
    assert calls == [(12, 0.0, False, False)]  # of some readers it is under the mask
    expected = layer._explicit_attention(query, key, value, mask, training=False)
    torch.testing.assert_close(given.float(), expected, rtol=0.02, atol=0.02)
    torch.testing.assert_close(some.float(), expected[:, :3], rtol=0.02, atol=0.02)
    assert attention_torch.attention(*half, mask, 0.0, True).shape == given.shape
    assert len(calls) == 1  # nobody told the bounds the second time
