"""Products of matrices by oneDNN are PyTorch's own products, and so are their gradients."""

import keras
import numpy as np
import pytest

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch: run with KERAS_BACKEND=torch"),
]


@pytest.fixture
def arrays():
    import torch

    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in ((70, 48), (48, 33), (33,))]


@pytest.fixture
def onednn_product():
    from kbert.model import products_torch

    if products_torch._linear is None:
        pytest.skip("this PyTorch has no oneDNN: pip install torch==2.13.0 for one that has")
    return products_torch.onednn_product


def close(found, expected):
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-4, atol=1e-4)


def test_product_and_gradients(arrays, onednn_product):
    import torch

    x, kernel, bias = arrays
    weights = torch.linspace(-1, 1, 33)
    close(onednn_product(x, kernel, bias), x @ kernel + bias)
    close(onednn_product(x, kernel.T.contiguous().T, None), x @ kernel)
    found = torch.autograd.grad((onednn_product(x, kernel, bias) * weights).sin().sum(), arrays)
    expected = torch.autograd.grad(((x @ kernel + bias) * weights).sin().sum(), arrays)
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def test_gradients_of_gradients(arrays, onednn_product):
    import torch

    x, kernel, bias = arrays

    def penalty(y):
        (for_x,) = torch.autograd.grad(y.tanh().sum(), x, create_graph=True)
        return torch.autograd.grad((for_x**2).sum(), (x, kernel))

    for one, other in zip(penalty(onednn_product(x, kernel, bias)), penalty(x @ kernel + bias), strict=True):
        close(one, other)


def test_no_rows(arrays, onednn_product):
    _, kernel, _ = arrays
    assert onednn_product(kernel.T[:0], kernel, None) is None


def test_other_types_are_left_to_pytorch(arrays, onednn_product):
    import torch

    x, kernel, _ = arrays
    assert onednn_product(x.to(torch.bfloat16), kernel.to(torch.bfloat16), None) is None
    assert onednn_product(x.double(), kernel.double(), None) is None


def test_the_layers_use_it(monkeypatch):
    from kbert.model import products_torch
    from kbert.model.layers import Dense

    layer = Dense(4)
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    fast = layer(x)
    assert type(fast.grad_fn).__name__ == "ViewBackward0" and "_Product" in str(fast.grad_fn.next_functions)
    monkeypatch.setattr(products_torch, "_linear", None)
    plain = layer(x)
    assert "_Product" not in str(plain.grad_fn.next_functions)
    close(fast, plain)


@pytest.mark.parametrize("mkl_is_faster", [False, True])
def test_products_in_training_are_those_of_the_faster_library(arrays, onednn_product, mkl_is_faster, monkeypatch):
    from kbert.model import products_torch

    x, kernel, bias = (array.detach() for array in arrays)
    linear, calls = products_torch._linear, []
    monkeypatch.setattr(products_torch, "_linear", lambda *given: calls.append(given) or linear(*given))
    monkeypatch.setattr(products_torch, "_mkl_is_faster", mkl_is_faster)
    for given in ((x, kernel), (x, kernel, bias), (x, kernel.T.contiguous().T)):
        close(products_torch.product_in_training(*given), x @ kernel + (bias if len(given) == 3 else 0))
    assert len(calls) == (0 if mkl_is_faster else 3)


def test_a_table_that_is_filled_up_has_the_same_product(arrays, monkeypatch):
    """As on a GPU: 33 rows become 64, and their products are left out again."""
    import torch

    from kbert.model import products

    x, table, _ = arrays
    table = table.t()  # (33, 48)
    expected = products.product_with_table(x, table)
    monkeypatch.setattr(products, "_is_on_gpu_of_torch", lambda _: True)
    shapes = []
    product = products.product
    monkeypatch.setattr(products, "product", lambda x, kernel: shapes.append(kernel.shape) or product(x, kernel))
    given = products.product_with_table(x, table)
    assert [tuple(shape) for shape in shapes] == [(48, 64)] and given.shape == (70, 33)
    close(given, expected)
    factors = torch.linspace(-1, 1, given.numel()).view(given.shape)
    ours, theirs = (torch.autograd.grad((y * factors).sum(), arrays[:2]) for y in (given, expected))
    for one, other in zip(ours, theirs, strict=True):
        close(one, other)
