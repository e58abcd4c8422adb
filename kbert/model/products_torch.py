"""Products of matrices on PyTorch: of float32 on a CPU by oneDNN, called as PyTorch's compiler calls it, or by MKL."""

from __future__ import annotations

from typing import Any

import torch

# Not part of PyTorch's public interface. A version that does not have them uses PyTorch's own product.
try:
    _linear = torch.ops.mkldnn._linear_pointwise
    _pack, _packs_bfloat16 = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._is_mkldnn_bf16_supported
except (AttributeError, RuntimeError):
    _linear = _pack = _packs_bfloat16 = None

# On processors with AVX2 alone, MKL is faster than oneDNN; PyTorch's own products of float32 are MKL's
# (docs/project/performance_notes.md).
_mkl_is_faster = torch.backends.cpu.get_cpu_capability() == "AVX2" and torch.backends.mkl.is_available()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, kernel)
        return _linear(x, kernel.t(), bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        for_x, for_kernel, for_bias = ctx.needs_input_grad
        return (
            _Product.apply(dy, kernel.t(), None) if for_x else None,
            _Product.apply(x.t(), dy, None) if for_kernel else None,
            dy.sum(0) if for_bias else None,
        )


def onednn_product(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    """x (M, D) times kernel (D, U), plus bias (U,); it has derivatives of any order.

    None unless these are matrices of float32 on a CPU that are not empty, and PyTorch has oneDNN.
    """
    return _Product.apply(x, kernel, bias) if _takes(x, kernel) else None


def added_product(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    """The same on a GPU, whose product adds the bias before it writes; None elsewhere, and where there is none."""
    if bias is None or x.device.type != "cuda" or not x.dtype == kernel.dtype == bias.dtype:
        return None
    return torch.addmm(bias, x, kernel)


def packed(kernel: torch.Tensor) -> torch.Tensor:
    """A kernel (D, U) in bfloat16 in the order that oneDNN reads fastest, for `product_without_grad` alone.

    It is the same tensor where oneDNN does not multiply bfloat16. With few rows, such as those of one short text, a
    product then takes a quarter less time (docs/project/performance_notes.md).
    """
    if _pack is None or kernel.device.type != "cpu" or not _may_call() or not _packs_bfloat16():
        return kernel
    in_order: torch.Tensor = _pack(kernel.t())
    return in_order


def product_without_grad(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (M, D) times kernel (D, U), plus bias (U,), without derivatives: by oneDNN where it can, else by PyTorch."""
    if kernel.is_mkldnn or _takes(x, kernel):
        # One that was `packed` has its rows and columns exchanged.
        y: torch.Tensor = _linear(x, kernel if kernel.is_mkldnn else kernel.t(), bias, "none", [], "")
        return y
    return _pytorchs_own(x, kernel, bias)


def product_in_training(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """As `product_without_grad`, but by MKL where that is faster. Its last digits depend on the number of rows.

    Training can do with that. A prediction cannot: a row has to get the same one whichever rows are beside it.
    """
    multiply = _pytorchs_own if _mkl_is_faster else product_without_grad
    return multiply(x, kernel, bias)


def _pytorchs_own(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.mm(x, kernel) if bias is None else torch.addmm(bias, x, kernel)


def _may_call() -> bool:
    """Whether PyTorch's oneDNN may be called directly now: not by its compiler, its tracer or its `torch.func`."""
    return (
        _linear is not None
        and torch.backends.mkldnn.enabled
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch._C._are_functorch_transforms_active()
    )


def _takes(x: torch.Tensor, kernel: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.numel() > 0 and x.dtype == kernel.dtype == torch.float32 and _may_call()
