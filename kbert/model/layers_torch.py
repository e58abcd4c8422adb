"""A transformer layer on PyTorch on a CPU, forwards and backwards in few operations.

PyTorch runs one operation at a time, and each costs some microseconds of Python and one or more passes through memory.
`kbert.model.layers` says what a layer computes, in operations that every backend has. Here the same formulas are
written in the fewest operations that PyTorch has for them, with the derivatives by hand: no copies of arrays, no graph
of each operation, and products in the form that is fastest (docs/project/performance_notes.md). Dropout draws the same
numbers in the same order.

Letter key: B batch, T length, S tokens that are read (T, or less in the last layer), N heads, H head size, D hidden, M
tokens of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from kbert.config import GELU
from kbert.model.base import MASKED
from kbert.model.dropout import LARGEST_RATE, kept
from kbert.model.products_torch import product_in_training, product_without_grad

# What takes the place of weights, by their variables' ids, where layers may be computed by this module; None elsewhere.
# `kbert.training.fused_layers` sets it. Layers then have first derivatives only. `_Weights` are kept there too, by the
# ids of layers.
weights_in_use: ContextVar[dict[int, Any] | None] = ContextVar("fused_layers", default=None)

# Not part of PyTorch's public interface. A version that does not have them leaves the layers to `kbert.model.layers`.
try:
    _softmax_backward = torch._softmax_backward_data
    _gelu_backward = torch.ops.aten.gelu_backward
    _norm_backward = torch.ops.aten.native_layer_norm_backward
    can_differentiate = True
except (AttributeError, RuntimeError):
    can_differentiate = False

# Scores of attention that are computed at a time when predicting in bfloat16: 4 MB, which a processor's cache holds.
_SCORES = 2 << 20


def fused_layer(
    layer: Any, x: torch.Tensor, mask: torch.Tensor, readers: torch.Tensor, training: bool
) -> torch.Tensor | None:
    """What a `TransformerLayer` gives for ``readers`` (B, S, D) of x (B, T, D), under a mask (B, 1, S, T).

    Where all tokens are readers, they are x itself. None where this module cannot compute it. It can where
    `weights_in_use` is set, in float32 and bfloat16 on a CPU, unless a kernel has LoRA, or nearly all is dropped, or
    PyTorch has other derivatives than those known here.
    """
    dropouts = (layer.attention.dropout, layer.attention_dropout, layer.output_dropout)
    rates = [dropout.rate if training else 0.0 for dropout in dropouts]
    if (
        weights_in_use.get() is None
        or not can_differentiate
        or x.device.type != "cpu"
        or x.dtype not in (torch.float32, torch.bfloat16)
        or not x.numel()
        or not is_plain(layer)
        or max(rates) > LARGEST_RATE
    ):
        return None
    if not torch.is_grad_enabled() and not any(rates):
        return _predicted(layer, x, mask, readers)
    config, attention = layer.config, layer.attention
    attended = _Attention.apply(
        readers, x, mask, *(array for part in projections(attention) for array in weights_of(part.kernel, part.bias)),
        config.num_attention_heads, rates[0],
    )  # fmt: skip
    y = _OutputAndNorm.apply(
        attended, readers, *weights_of(attention.output_dense.kernel, attention.output_dense.bias),
        *weights_of(layer.attention_norm.gamma, layer.attention_norm.beta),
        layer.attention_norm.epsilon, rates[1],
    )  # fmt: skip
    expanded = _Expansion.apply(
        y, *weights_of(layer.intermediate.kernel, layer.intermediate.bias), GELU[config.hidden_act]
    )
    z: torch.Tensor = _OutputAndNorm.apply(
        expanded, y, *weights_of(layer.output_dense.kernel, layer.output_dense.bias),
        *weights_of(layer.output_norm.gamma, layer.output_norm.beta),
        layer.output_norm.epsilon, rates[2],
    )  # fmt: skip
    return z


def is_plain(layer: Any) -> bool:
    """Whether a `TransformerLayer` has nothing that these formulas lack, and is not being compiled."""
    dense = (*projections(layer.attention), layer.attention.output_dense, layer.intermediate, layer.output_dense)
    return (
        layer.config.hidden_act in GELU
        and not any(part.lora_enabled for part in dense)
        and not torch.compiler.is_compiling()
    )


def projections(attention: Any) -> tuple[Any, Any, Any]:
    return attention.query, attention.key, attention.value


def weights_of(*variables: Any) -> Iterator[torch.Tensor]:
    """Of the type that is computed in."""
    cast = weights_in_use.get() or {}
    for variable in variables:
        weight = cast.get(id(variable))  # to ask for the value casts it, within the call of a Keras model
        yield variable.value if weight is None else weight


class _Weights(NamedTuple):
    """A layer's weights, of the type that is computed in: kernel and bias, or gamma and beta, of each part."""

    projections: tuple[tuple[torch.Tensor, ...], ...]
    output: tuple[torch.Tensor, ...]
    attention_norm: tuple[torch.Tensor, ...]
    intermediate: tuple[torch.Tensor, ...]
    narrow: tuple[torch.Tensor, ...]
    output_norm: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, layer: Any) -> _Weights:
        """Those in use. To ask Keras for them takes as long as a product of a short text, so they are kept there."""
        kept = weights_in_use.get()
        assert kept is not None
        if id(layer) not in kept:
            attention = layer.attention
            dense = (*projections(attention), attention.output_dense, layer.intermediate, layer.output_dense)
            query, key, value, output, wide, narrow = (tuple(weights_of(part.kernel, part.bias)) for part in dense)
            norms = (tuple(weights_of(part.gamma, part.beta)) for part in (layer.attention_norm, layer.output_norm))
            of_attention, of_output = norms
            kept[id(layer)] = cls((query, key, value), output, of_attention, wide, narrow, of_output)
        found: _Weights = kept[id(layer)]
        return found


def _predicted(layer: Any, x: torch.Tensor, mask: torch.Tensor, readers: torch.Tensor) -> torch.Tensor:
    """The same without dropout and derivatives, for which nothing has to be kept."""
    weights, config, (B, S, D) = _Weights.of(layer), layer.config, readers.shape
    read, flat = readers.reshape(-1, D), x.reshape(-1, D)
    query, key, value = (
        _heads(product_without_grad(of, *projection), B, config.num_attention_heads)
        for of, projection in zip((read, flat, flat), weights.projections, strict=True)
    )
    context = _joined(_attended(query, key, value, mask))
    epsilon = config.layer_norm_eps
    y = _sum_and_norm(context, read, weights.output, weights.attention_norm, epsilon)
    wide = product_without_grad(y, *weights.intermediate)
    active = torch.nn.functional.gelu(wide, approximate=GELU[config.hidden_act])
    return _sum_and_norm(active, y, weights.narrow, weights.output_norm, epsilon).view(B, S, D)


def _attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention: query (B, N, S, H), which is changed, key and value (B, N, T, H), mask (B, 1, S, T)."""
    B, N, S, H = query.shape
    if query.dtype != torch.bfloat16:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    # PyTorch's own multiplies bfloat16 no faster than float32.
    query.mul_(H**-0.5)
    context = torch.empty_like(query)
    n_rows = max(1, _SCORES // (N * S * key.shape[2]))
    for start in range(0, B, n_rows):
        rows = slice(start, start + n_rows)
        scores = torch.matmul(query[rows], key[rows].transpose(-1, -2))
        scores.add_(torch.where(mask[rows], 0.0, MASKED).to(scores.dtype))
        torch.matmul(torch.softmax(scores, -1), value[rows], out=context[rows])
    return context


def _sum_and_norm(
    inside: torch.Tensor,
    x: torch.Tensor,
    dense: tuple[torch.Tensor, ...],
    norm: tuple[torch.Tensor, ...],
    epsilon: float,
) -> torch.Tensor:
    """LayerNorm(x + inside kernel + bias), of matrices."""
    summed = product_without_grad(inside, *dense).add_(x)
    return torch.nn.functional.layer_norm(summed, summed.shape[-1:], *norm, epsilon)


class _Attention(torch.autograd.Function):
    """What readers (B, S, D) attend to in x (B, T, D), (B, S, D): the layer's attention without its output product."""

    @staticmethod
    def forward(
        ctx: Any,
        readers: torch.Tensor,
        x: torch.Tensor,
        mask: torch.Tensor,
        query_kernel: torch.Tensor,
        query_bias: torch.Tensor,
        key_kernel: torch.Tensor,
        key_bias: torch.Tensor,
        value_kernel: torch.Tensor,
        value_bias: torch.Tensor,
        n_heads: int,
        rate: float,
    ) -> torch.Tensor:
        B, T, D = x.shape
        read, flat = readers.reshape(-1, D), x.reshape(-1, D)
        query, key, value = (
            _heads(product_in_training(of, kernel, bias), B, n_heads)
            for of, kernel, bias in (
                (read, query_kernel, query_bias), (flat, key_kernel, key_bias), (flat, value_kernel, value_bias)
            )
        )  # (B, N, S, H), and (B, N, T, H) twice  # fmt: skip
        scale = (D // n_heads) ** -0.5
        query.mul_(scale)
        scores = torch.matmul(query, key.transpose(-1, -2)).add_(torch.where(mask, 0.0, MASKED).to(x.dtype))
        probabilities = torch.softmax(scores, -1)  # computed in float32, and rounded then
        factors = kept(scores, rate) if rate else None
        dropped = probabilities if factors is None else probabilities * factors
        kernels = (query_kernel, key_kernel, value_kernel)
        ctx.save_for_backward(read, flat, query, key, value, probabilities, factors, dropped, *kernels)
        ctx.scale = scale
        return _joined(torch.matmul(dropped, value)).view(readers.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        read, flat, query, key, value, probabilities, factors, dropped, *kernels = ctx.saved_tensors
        B, N, _, H = value.shape
        d_context = _heads(d_context.reshape(-1, N * H), B, N)
        d_value = torch.matmul(dropped.transpose(-1, -2), d_context)
        d_dropped = torch.matmul(d_context, value.transpose(-1, -2))
        if factors is not None:
            d_dropped.mul_(factors)
        d_scores = _softmax_backward(d_dropped, probabilities, -1, probabilities.dtype)
        d_query = _joined(torch.matmul(d_scores, key).mul_(ctx.scale))
        d_key, d_value = _joined(torch.matmul(d_scores.transpose(-1, -2), query)), _joined(d_value)
        for_readers, for_x, _, for_weights = ctx.needs_input_grad[:4]
        of_weights: list[torch.Tensor | None] = [None] * 6
        if for_weights:
            outputs = zip((read, flat, flat), (d_query, d_key, d_value), kernels, strict=True)
            of_weights = [gradient for of, dy, kernel in outputs for gradient in (by_kernel(of, dy, kernel), dy.sum(0))]
        d_readers = product_in_training(d_query, kernels[0].t()).view(B, -1, N * H) if for_readers else None
        d_x = None
        if for_x:
            d_x = (
                product_in_training(d_key, kernels[1].t())
                .add_(product_in_training(d_value, kernels[2].t()))
                .view(B, -1, N * H)
            )
        return d_readers, d_x, None, *of_weights, None, None


class _Expansion(torch.autograd.Function):
    """y (B, S, D) to GELU(y kernel + bias) (B, S, 4 D), the wide layer of the feed-forward part."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
        flat = y.reshape(-1, y.shape[-1])
        wide = product_in_training(flat, kernel, bias)
        ctx.save_for_backward(flat, wide, kernel)
        ctx.approximate = approximate
        return torch.nn.functional.gelu(wide, approximate=approximate).view(*y.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_active: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flat, wide, kernel = ctx.saved_tensors
        for_y, for_weights = ctx.needs_input_grad[:2]
        d_wide = _gelu_backward(d_active.reshape(wide.shape), wide, approximate=ctx.approximate)
        return (
            product_in_training(d_wide, kernel.t()).view(*d_active.shape[:-1], -1) if for_y else None,
            by_kernel(flat, d_wide, kernel) if for_weights else None,
            d_wide.sum(0) if for_weights else None,
            None,
        )


class _OutputAndNorm(torch.autograd.Function):
    """LayerNorm(x + dropout(inside kernel + bias)): how both parts of a layer end, x (B, S, D)."""

    @staticmethod
    def forward(
        ctx: Any,
        inside: torch.Tensor,
        x: torch.Tensor,
        kernel: torch.Tensor,
        bias: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        epsilon: float,
        rate: float,
    ) -> torch.Tensor:
        flat = inside.reshape(-1, inside.shape[-1])
        out = product_in_training(flat, kernel, bias)
        factors = kept(out, rate) if rate else None
        residual = (out if factors is None else out.mul_(factors)).add_(x.reshape(out.shape))
        y, mean, deviation = torch.native_layer_norm(residual, (out.shape[-1],), gamma, beta, epsilon)
        ctx.save_for_backward(flat, residual, mean, deviation, factors, kernel, gamma, beta)
        return y.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flat, residual, mean, deviation, factors, kernel, gamma, beta = ctx.saved_tensors
        for_inside, for_x, for_weights = ctx.needs_input_grad[:3]
        wanted = [True, for_weights, for_weights]
        d_residual, d_gamma, d_beta = _norm_backward(
            dy.reshape(residual.shape), residual, residual.shape[-1:], mean, deviation, gamma, beta, wanted
        )
        d_out = d_residual if factors is None else d_residual * factors
        return (
            product_in_training(d_out, kernel.t()).view(*dy.shape[:-1], -1) if for_inside else None,
            d_residual.view(dy.shape) if for_x else None,
            by_kernel(flat, d_out, kernel) if for_weights else None,
            d_out.sum(0) if for_weights else None,
            d_gamma,
            d_beta,
            None,
            None,
        )


def by_kernel(x: torch.Tensor, dy: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The derivative by the kernel (D, U) of a product (M, U), whose own is dy, in the kernel's order in memory.

    Kernels from files are (U, D) there. The optimiser goes through both in one order.
    """
    return product_in_training(x.t(), dy) if kernel.is_contiguous() else product_in_training(dy.t(), x).t()


def _heads(flat: torch.Tensor, B: int, n_heads: int) -> torch.Tensor:
    """(M, D) to (B, N, T, H)."""
    return flat.view(B, -1, n_heads, flat.shape[-1] // n_heads).transpose(1, 2).contiguous()


def _joined(heads: torch.Tensor) -> torch.Tensor:
    """(B, N, T, H) to (M, D)."""
    B, N, T, H = heads.shape
    return heads.transpose(1, 2).reshape(B * T, N * H)
