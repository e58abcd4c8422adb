"""A transformer layer on PyTorch on a GPU in bfloat16, in few kernels.

`kbert.model.layers` says what a layer computes. Here it is written in the fewest kernels that PyTorch and Triton have
for it: products that add their bias, `kbert.model.attention_torch`, and dropout, sum and LayerNorm in one.

Letter key: B batch, T length, S tokens that are read (T, or less in the last layer), N heads, H head size, D hidden.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import torch

from kbert.config import GELU
from kbert.model.attention_torch import attention
from kbert.model.layers_torch import is_plain, projections, weights_in_use, weights_of


def cuda_layer(
    layer: Any, x: torch.Tensor, mask: torch.Tensor, readers: torch.Tensor, training: bool
) -> torch.Tensor | None:
    """As `kbert.model.layers_torch.fused_layer`; None where this module cannot compute it.

    It can in bfloat16 on a GPU, where `weights_in_use` is set, unless a kernel has LoRA.
    """
    if not weights_in_use.get() or not is_plain(layer) or not _takes(x, *weights_of(layer.intermediate.kernel)):
        return None
    part, (B, S, D) = layer.attention, readers.shape
    T, N = x.shape[1], layer.config.num_attention_heads
    rates = [
        dropout.rate if training else 0.0 for dropout in (part.dropout, layer.attention_dropout, layer.output_dropout)
    ]
    read, flat = readers.reshape(B * S, D), x.reshape(B * T, D)
    query, key, value = (
        _product(of, dense).view(B, -1, N, D // N)
        for of, dense in zip((read, flat, flat), projections(part), strict=True)
    )
    context = attention(query, key, value, mask, rates[0], readers is x).reshape(B * S, D)
    seed = torch.empty(2, dtype=torch.int32, device=x.device)
    if any(rates[1:]):
        seed.random_(-(2**31), 2**31 - 1)
    y = _and_norm(context, read, part.output_dense, layer.attention_norm, seed, 0, rates[1])
    wide = torch.nn.functional.gelu(_product(y, layer.intermediate), approximate=GELU[layer.config.hidden_act])
    return _and_norm(wide, y, layer.output_dense, layer.output_norm, seed, 1, rates[2]).view(B, S, D)


def _takes(x: torch.Tensor, kernel: torch.Tensor) -> bool:
    # A model that was made on the CPU may be used where Keras takes the GPU: Keras then moves its weights.
    on_gpu = x.device.type == "cuda" and x.device == kernel.device
    return on_gpu and x.dtype == kernel.dtype == torch.bfloat16 and x.numel() > 0


def _product(x: torch.Tensor, dense: Any) -> torch.Tensor:
    kernel, bias = weights_of(dense.kernel, dense.bias)
    return torch.addmm(bias, x, kernel)


def _and_norm(
    inside: torch.Tensor, residual: torch.Tensor, dense: Any, norm: Any, seed: torch.Tensor, stream: int, rate: float
) -> torch.Tensor:
    """LayerNorm(residual + dropout(dense(inside))) of arrays (M, U) and (M, D)."""
    kernel, bias, gamma, beta = weights_of(dense.kernel, dense.bias, norm.gamma, norm.beta)
    if _has_triton():
        from kbert.model import norm_triton

        if norm_triton.works_on(inside.device, residual.shape[1]):
            return norm_triton.product_and_norm(
                inside, residual, kernel, bias, gamma, beta, seed, stream, norm.epsilon, rate
            )
    x = torch.addmm(bias, inside, kernel)
    x = torch.nn.functional.dropout(x, rate) if rate else x
    normed = torch.nn.functional.layer_norm(
        (residual + x).float(), gamma.shape, gamma.float(), beta.float(), norm.epsilon
    )
    return normed.to(x.dtype)


@functools.cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
