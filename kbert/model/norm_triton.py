"""LayerNorm(residual + dropout(product)) in Triton: what follows the product is one kernel of a GPU, and so backwards.

PyTorch runs a kernel for the dropout, one for the sum and three for the norm in float32, each of which reads and writes
all vectors. These read and write once, and the backward pass sums up the derivatives of the bias on its way. Sums and
statistics are in float32; the sum is rounded to the type of the product before its statistics are taken, as it is where
PyTorch computes it. Dropped are the values that a hash of their place and the seed says, the one of
`kbert.model.dropout`, so that the mask need not be stored.

Letter key: M vectors, D numbers of each.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from kbert.model.layers_torch import by_kernel

# Programs of the backward pass, each of which goes through its part of the vectors: at most some for each of the
# hundred or so processors of a large GPU, with at least so many vectors each, since their sums are added up afterwards.
_PROGRAMS, _LEAST_ROWS = 512, 4


@triton.jit
def _mix(x):  # type: ignore[no-untyped-def]
    """`kbert.model.dropout._mix`."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return x ^ (x >> 15)


@triton.jit
def _is_kept(place, seed_at, stream, threshold):  # type: ignore[no-untyped-def]
    """`kbert.model.dropout.random_bits`, of some places, and whether each is kept."""
    first = tl.load(seed_at).to(tl.uint32, bitcast=True) + stream.to(tl.uint32)
    second = tl.load(seed_at + 1).to(tl.uint32, bitcast=True)
    within = _mix(first ^ _mix(second))
    outer = _mix(within + second)
    bits = _mix(_mix(place.to(tl.uint32) + within) ^ outer)
    return (bits >> 1).to(tl.int32) >= threshold


@triton.jit(do_not_specialize=["stream", "threshold"])
def _forward(  # type: ignore[no-untyped-def]
    x_at, residual_at, gamma_at, beta_at, seed_at, sum_at, y_at, mean_at, scale_at, epsilon, stream, factor, threshold,
    D, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < D
    place = row * D + column
    x = tl.load(x_at + place, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        x = tl.where(_is_kept(place, seed_at, stream, threshold), x * factor, 0.0)
    x += tl.load(residual_at + place, mask=inside, other=0.0).to(tl.float32)
    rounded = x.to(sum_at.dtype.element_ty)
    tl.store(sum_at + place, rounded, mask=inside)
    x = rounded.to(tl.float32)
    mean = tl.sum(x, axis=0) / D
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / D + epsilon)
    gamma = tl.load(gamma_at + column, mask=inside, other=0.0)
    beta = tl.load(beta_at + column, mask=inside, other=0.0)
    tl.store(y_at + place, (centred * scale * gamma + beta).to(y_at.dtype.element_ty), mask=inside)
    tl.store(mean_at + row, mean)
    tl.store(scale_at + row, scale)


@triton.jit(do_not_specialize=["stream", "threshold", "M", "rows_each"])
def _backward(  # type: ignore[no-untyped-def]
    dy_at, sum_at, gamma_at, seed_at, mean_at, scale_at, dx_at, dresidual_at, sums_at, stream, factor, threshold, M, D,
    rows_each, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < D
    gamma = tl.load(gamma_at + column, mask=inside, other=0.0)
    dgamma = tl.zeros([BLOCK], tl.float32)
    dbeta = tl.zeros([BLOCK], tl.float32)
    dbias = tl.zeros([BLOCK], tl.float32)
    last = tl.minimum((program + 1) * rows_each, M)
    number = program * rows_each
    while number < last:
        row = number.to(tl.int64)
        place = row * D + column
        dy = tl.load(dy_at + place, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(sum_at + place, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_at + row)
        normed = tl.where(inside, (x - tl.load(mean_at + row)) * scale, 0.0)
        dgamma += dy * normed
        dbeta += dy
        dy *= gamma
        along = tl.sum(dy * normed, axis=0) / D
        dsum = (dy - normed * along - tl.sum(dy, axis=0) / D) * scale
        tl.store(dresidual_at + place, dsum.to(dresidual_at.dtype.element_ty), mask=inside)
        if DROPS:
            dsum = tl.where(_is_kept(place, seed_at, stream, threshold), dsum * factor, 0.0)
            tl.store(dx_at + place, dsum.to(dx_at.dtype.element_ty), mask=inside)
        dbias += tl.where(inside, dsum, 0.0)
        number += 1
    sums_at += program * 3 * D + column
    tl.store(sums_at, dgamma, mask=inside)
    tl.store(sums_at + D, dbeta, mask=inside)
    tl.store(sums_at + 2 * D, dbias, mask=inside)


class _ProductAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inside: torch.Tensor,
        residual: torch.Tensor,
        kernel: torch.Tensor,
        bias: torch.Tensor,
        gamma: torch.Tensor,
        beta: torch.Tensor,
        seed: torch.Tensor,
        stream: int,
        epsilon: float,
        rate: float,
    ) -> torch.Tensor:
        x, residual = torch.addmm(bias, inside, kernel), residual.contiguous()
        M, D = x.shape
        summed, y = torch.empty_like(x), torch.empty_like(x)
        mean, scale = (torch.empty(M, dtype=torch.float32, device=x.device) for _ in range(2))
        # The hash's upper 31 bits are compared with the last one.
        ctx.numbers = (stream, 1 / (1 - rate), round(rate * 2**31))
        ctx.options = {"BLOCK": triton.next_power_of_2(D), "DROPS": rate > 0, "num_warps": _warps(D)}
        _forward[(M,)](x, residual, gamma, beta, seed, summed, y, mean, scale, epsilon, *ctx.numbers, D, **ctx.options)
        ctx.save_for_backward(inside, kernel, summed, gamma, seed, mean, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inside, kernel, summed, gamma, seed, mean, scale = ctx.saved_tensors
        M, D = summed.shape
        n_programs = max(1, min(M // _LEAST_ROWS, _PROGRAMS))
        dresidual = torch.empty_like(summed)
        dx = torch.empty_like(summed) if ctx.options["DROPS"] else dresidual
        sums = torch.empty((n_programs, 3, D), dtype=torch.float32, device=dy.device)
        _backward[(n_programs,)](
            dy.contiguous(), summed, gamma, seed, mean, scale, dx, dresidual, sums, *ctx.numbers, M, D,
            -(-M // n_programs), **ctx.options,
        )  # fmt: skip
        dgamma, dbeta, dbias = sums.sum(0).unbind()
        dkernel = by_kernel(inside, dx, kernel) if ctx.needs_input_grad[2] else None
        return (
            dx @ kernel.t(), dresidual, dkernel, dbias.to(kernel.dtype), dgamma, dbeta, None, None, None, None,
        )  # fmt: skip


def _warps(D: int) -> int:
    """Groups of 32 threads for a vector: about eight numbers a thread."""
    return min(8, max(1, triton.next_power_of_2(D) // 256))


def product_and_norm(
    inside: torch.Tensor,
    residual: torch.Tensor,
    kernel: torch.Tensor,
    bias: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    seed: torch.Tensor,
    stream: int,
    epsilon: float,
    rate: float,
) -> torch.Tensor:
    """LayerNorm(residual + dropout(inside kernel + bias)).

    Parameters
    ----------
    inside : tensor, shape (M, U)
    residual : tensor, shape (M, D)
    kernel, bias : tensor, shapes (U, D) and (D,)
    gamma, beta : tensor of float32, shape (D,)
    seed : tensor of int32, shape (2,)
        Of the dropout; it is not read where nothing is dropped.
    stream : int
        Another one gives other random numbers under the same seed.
    epsilon, rate : float
    """
    y: torch.Tensor = _ProductAndNorm.apply(inside, residual, kernel, bias, gamma, beta, seed, stream, epsilon, rate)
    return y


@functools.cache
def works_on(device: torch.device, D: int) -> bool:
    """Whether Triton can compile for vectors of a size on a device: it needs a C compiler, which not every one has."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            x = torch.ones((2, D), dtype=torch.bfloat16, device=device, requires_grad=True)
            gamma, seed = torch.ones(D, device=device), torch.zeros(2, dtype=torch.int32, device=device)
            kernel, bias = x.detach().new_zeros((D, D)), x.detach()[0]
            for rate in (0.0, 0.5):
                y = product_and_norm(x, x, kernel, bias, gamma, gamma, seed, 0, 1e-12, rate)
                torch.autograd.grad(y.sum(), [x])
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever a compiler, a linker or a driver may say
        return False
    return True
