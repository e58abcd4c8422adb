"""Products of matrices on PyTorch: by oneDNN on a CPU, called as PyTorch's compiler calls it.

Of float32 all products, since oneDNN is faster than PyTorch's own choice. Of bfloat16, which PyTorch gives to oneDNN
anyway, those that predicting follows with an addition or with GELU: oneDNN does that before it writes the result.
"""

from __future__ import annotations

from typing import Any

import torch

# Not part of PyTorch's public interface. A version that does not have it uses PyTorch's own product.
try:
    _linear = torch.ops.mkldnn._linear_pointwise
    _linear_and_sum = _linear.binary
    _takes_bfloat16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
except (AttributeError, RuntimeError):
    _linear = _linear_and_sum = None
    _takes_bfloat16 = False


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


def product(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x (M, D) times kernel (D, U), plus bias (U,), without derivatives: by oneDNN where it can, else by PyTorch."""
    if _takes(x, kernel):
        y: torch.Tensor = _linear(x, kernel.t(), bias, "none", [], "")
        return y
    return torch.mm(x, kernel) if bias is None else torch.addmm(bias, x, kernel)


def product_gelu(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    """GELU(x kernel + bias), without derivatives, in one pass where oneDNN can."""
    if _takes(x, kernel, _takes_bfloat16):
        y: torch.Tensor = _linear(x, kernel.t(), bias, "gelu", [], approximate)
        return y
    return torch.nn.functional.gelu(product(x, kernel, bias), approximate=approximate)


def product_sum(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Give x kernel + bias + other (M, U), without derivatives, in one pass where oneDNN can."""
    if _takes(x, kernel, _takes_bfloat16):
        y: torch.Tensor = _linear_and_sum(x, other, kernel.t(), bias, "add")
        return y
    return product(x, kernel, bias).add_(other)


def _takes(x: torch.Tensor, kernel: torch.Tensor, bfloat16: bool = False) -> bool:
    """Whether oneDNN is called: for a product of float32, or also of bfloat16."""
    return (
        _linear is not None
        and torch.backends.mkldnn.enabled
        and x.device.type == "cpu"
        and x.numel() > 0
        and x.dtype == kernel.dtype
        and (x.dtype == torch.float32 or (bfloat16 and x.dtype == torch.bfloat16))
        and not torch.compiler.is_compiling()
    )
