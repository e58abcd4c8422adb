"""Attention on PyTorch on a GPU: by FlashAttention where it is known where each text begins, else under a mask.

FlashAttention takes no mask. For texts of several lengths in one array it takes their bounds (``cu_seqlens``; Dao,
2023), and computes nothing between two texts, where a mask has it compute all and drop most.

Letter key: B batch, T length, S tokens that are read, N heads, H head size.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

# PyTorch's own FlashAttention with bounds, which its nested tensors call; its public form has no dropout.
_flash: Any = getattr(torch.ops.aten, "_flash_attention_forward", None)
# The bounds of the texts of the batch that is computed, on the device; None where nobody has told them.
_bounds: ContextVar[torch.Tensor | None] = ContextVar("text_bounds", default=None)


def text_bounds(text_ids: np.ndarray) -> np.ndarray:
    """Where each text begins in the rows of a batch, put one after the other; padding counts as a text.

    The tokens of a text are side by side, as `kbert.data.batches.make_batch` has them.

    Parameters
    ----------
    text_ids : ndarray of int32, shape (B, T)

    Returns
    -------
    ndarray of int32
        Ascending from 0 to B * T, which is repeated until there are a power of two and one: so there are few shapes.
    """
    flat = text_ids.ravel()
    begins = np.concatenate([[True], flat[1:] != flat[:-1]])
    begins[:: text_ids.shape[1]] = True
    starts = np.flatnonzero(begins)
    bounds = np.full((1 << (len(starts) - 1).bit_length()) + 1, flat.size, np.int32)
    bounds[: len(starts)] = starts
    return bounds


@functools.cache
def _has_flash(device: torch.device, dtype: torch.dtype, N: int, H: int) -> bool:
    """Whether PyTorch has FlashAttention for heads of a size on a device. Only a trial tells.

    GPUs older than Ampere lack it, and so do PyTorch's builds for Windows, and some heads on some GPUs.
    """
    if _flash is None or dtype not in (torch.bfloat16, torch.float16):
        return False
    try:
        with torch.inference_mode(False), torch.enable_grad():
            array = torch.ones((2, N, H), dtype=dtype, device=device, requires_grad=True)
            bounds = torch.tensor([0, 1, 2], dtype=torch.int32, device=device)
            context = _flash(array, array, array, bounds, bounds, 2, 2, 0.0, False, False)[0]
            torch.autograd.grad(context.float().sum(), [array])
    except torch.OutOfMemoryError:
        raise
    except Exception:  # each reason has its own
        return False
    return True


@contextmanager
def texts_at(bounds: torch.Tensor | None = None) -> Iterator[None]:
    """Within this context, the batch that is computed has texts at these bounds."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, rate: float, all_read: bool
) -> torch.Tensor:
    """What the queries (B, S, N, H) read of keys and values (B, T, N, H) under a mask (B, 1, S, T): (B, S, N, H).

    A share ``rate`` of the probabilities is dropped. No matrix of them is stored. ``all_read`` says that the queries
    are those of all tokens, in their order.
    """
    bounds, (B, T, N, H) = _bounds.get(), key.shape
    if all_read and bounds is not None and _has_flash(query.device, query.dtype, N, H):
        flat = [array.reshape(B * T, N, H) for array in (query, key, value)]
        context: torch.Tensor = _flash(*flat, bounds, bounds, T, T, rate, False, False)[0]
        return context.view(B, T, N, H)
    heads_first = (array.transpose(1, 2) for array in (query, key, value))
    return scaled_dot_product_attention(*heads_first, attn_mask=mask, dropout_p=rate).transpose(1, 2)
