"""A layer in the few kernels of a GPU is the layer in the operations of every backend, and so are its gradients.

There is no GPU here, so a CPU computes what a GPU would, the kernels of Triton in its interpreter.
"""

from contextlib import contextmanager

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.model.heads import BertForSequenceClassification

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch: run with KERAS_BACKEND=torch"),
]


@pytest.fixture
def norm():
    """`kbert.model.norm_triton`, whose kernels run on a CPU (tests/conftest.py)."""
    import torch

    pytest.importorskip("triton", reason="Triton, for Linux, comes with kbert-learn[parity]")
    from kbert.model import norm_triton

    norm_triton.works_on.cache_clear()
    assert norm_triton.works_on(torch.device("cpu"), 32)
    yield norm_triton
    norm_triton.works_on.cache_clear()


@pytest.fixture
def model():
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=16, initializer_range=0.2,
    )  # fmt: skip
    return BertForSequenceClassification(config, 3, dtype="mixed_bfloat16", seed=1)


def inputs():
    """Two rows of 12 tokens: two texts and some padding, and one text that fills its row."""
    import torch

    text_ids = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 12], "int32")
    arrays = {
        "token_ids": np.random.default_rng(0).integers(1, 50, (2, 12)).astype("int32"),
        "segment_ids": text_ids % 2,
        "position_ids": np.array([[*range(5), *range(4), 0, 0, 0], [*range(12)]], "int32"),
        "text_ids": text_ids,
        "first_positions": np.array([[0, 5], [0, 0]], "int32"),
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@contextmanager
def as_on_a_gpu(monkeypatch, has_triton):
    """Layers are computed by `cuda_layer`; gives the list of what it computed, None where it could not."""
    from kbert.model import layers_cuda, layers_torch

    computed = []

    def fused_layer(*arguments):
        computed.append(layers_cuda.cuda_layer(*arguments))
        return computed[-1]

    with monkeypatch.context() as patch:
        patch.setattr(layers_cuda, "_takes", lambda *_: True)
        patch.setattr(layers_cuda, "_has_triton", lambda: has_triton)
        patch.setattr(layers_torch, "fused_layer", fused_layer)
        yield computed


def outputs_and_gradients(model, training=False):
    import torch

    from kbert.training.fused_layers import FusedLayers

    layers = FusedLayers(model)
    parameters = [variable.value for variable in model.trainable_variables]
    torch.manual_seed(3)
    with layers.in_use():
        outputs = model(inputs(), training=training)
    factors = torch.linspace(-1, 1, outputs.numel()).view(outputs.shape)
    return outputs.detach(), layers.gradients((outputs * factors).sum(), parameters)


@pytest.mark.parametrize("has_triton", [False, True])
def test_outputs_and_gradients_are_those_of_other_devices(model, norm, monkeypatch, has_triton):
    import torch

    expected, expected_gradients = outputs_and_gradients(model)
    with as_on_a_gpu(monkeypatch, has_triton) as computed:
        given, gradients = outputs_and_gradients(model)
    assert len(computed) == 2 and all(output is not None for output in computed)
    torch.testing.assert_close(given, expected, rtol=0.02, atol=0.02)
    for variable, ours, theirs in zip(model.trainable_variables, gradients, expected_gradients, strict=True):
        assert ours.dtype == torch.float32
        if "key/bias" in variable.path:  # 0 but for rounding: a softmax does not depend on it
            assert float(ours.norm()) < 0.01
        else:
            assert float((ours - theirs).norm()) < 0.05 * float(theirs.norm()) + 1e-6, variable.path


def test_training_repeats_by_its_seed(model, norm, monkeypatch):
    import torch

    norm.works_on.cache_clear()
    with as_on_a_gpu(monkeypatch, True):
        first, *_ = outputs_and_gradients(model, training=True)
        second, *_ = outputs_and_gradients(model, training=True)
        without, *_ = outputs_and_gradients(model)
    # The first time Triton is tried out, which draws no random numbers.
    assert torch.equal(first, second) and not torch.equal(first, without)


def test_layers_with_lora_are_left_to_keras(model, monkeypatch):
    model.encoder.transformer_layers[0].intermediate.enable_lora(2)
    with as_on_a_gpu(monkeypatch, False) as computed:
        outputs_and_gradients(model)
    assert computed[0] is None and computed[-1] is not None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("M", [1, 3, 41])
def test_norm_without_dropout(norm, dtype, M, monkeypatch):
    import torch

    monkeypatch.setattr(norm, "_PROGRAMS", 4)  # several vectors each
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_()

    U, D, kind = 16, 24, getattr(torch, dtype)
    inside, residual, kernel, bias = (drawn(*shape, dtype=kind) for shape in ((M, U), (M, D), (U, D), (D,)))
    gamma, beta, seed = drawn(D), drawn(D), torch.zeros(2, dtype=torch.int32)
    arrays = (inside, residual, kernel, bias, gamma, beta)
    given = norm.product_and_norm(*arrays, seed, 0, 1e-12, 0.0)
    summed = (residual + torch.addmm(bias, inside, kernel)).float()
    expected = torch.nn.functional.layer_norm(summed, (D,), gamma, beta, 1e-12)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 0.03, "atol": 0.06}
    torch.testing.assert_close(given.float(), expected, **tolerance)
    factors = drawn(M, D).detach()
    for ours, theirs in zip(
        torch.autograd.grad((given.float() * factors).sum(), arrays),
        torch.autograd.grad((expected * factors).sum(), arrays),
        strict=True,
    ):
        assert ours.dtype == theirs.dtype
        assert float((ours - theirs).float().norm()) <= (1e-5 if dtype == "float32" else 0.02) * float(theirs.norm())


def random_bits_of_numpy(size, first, second):
    """`kbert.model.dropout.random_bits`, for which PyTorch lacks shifts of uint32."""

    def mix(x):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0xD35A2D97)
        return x ^ (x >> np.uint32(15))

    with np.errstate(over="ignore"):
        within = mix(first ^ mix(second))
        return mix(mix(np.arange(size, dtype="uint32") + within) ^ mix(within + second))


@pytest.mark.parametrize("stream", [0, 1])
def test_dropped_is_what_the_hash_says(norm, stream):
    """Forwards and backwards: the mask of `kbert.model.dropout`, which is not stored."""
    import torch

    M, D, rate = 40, 24, 0.3
    seed = torch.tensor([-12345, 678], dtype=torch.int32)
    bits = random_bits_of_numpy(M * D, np.uint32((-12345 + stream) % 2**32), np.uint32(678)).reshape(M, D)
    kept = torch.from_numpy(bits >= np.uint32(rate * 2**32)).float() / (1 - rate)
    residual = torch.randn((M, D), generator=torch.Generator().manual_seed(0)).requires_grad_()
    bias, gamma, beta = torch.ones(D).requires_grad_(), torch.ones(D), torch.zeros(D)
    nothing = torch.zeros(M, 16), torch.zeros(16, D)
    given = norm.product_and_norm(nothing[0], residual, nothing[1], bias, gamma, beta, seed, stream, 1e-12, rate)
    expected = torch.nn.functional.layer_norm(residual + bias * kept, (D,), gamma, beta, 1e-12)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
    factors = torch.linspace(-1, 2, M * D).view(M, D) ** 2
    ours, theirs = (torch.autograd.grad((y * factors).sum(), (residual, bias)) for y in (given, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_where_triton_cannot_compile_pytorch_computes(model, norm, monkeypatch):
    def refuse(*_):
        raise RuntimeError("Failed to find C compiler")

    expected, _ = outputs_and_gradients(model)
    monkeypatch.setattr(norm, "product_and_norm", refuse)
    norm.works_on.cache_clear()
    with as_on_a_gpu(monkeypatch, True) as computed:
        given, _ = outputs_and_gradients(model)
    assert len(computed) == 2 and np.allclose(given, expected, atol=0.03)
