"""Attention on PyTorch on a GPU: by FlashAttention where it is known where each text begins, else under a mask.

FlashAttention takes no mask. For texts of several lengths in one array it takes their bounds (``cu_seqlens``; Dao,
2023), and computes nothing between two texts, where a mask has it compute all and drop most.

Letter key: B batch, T length, S tokens that are read, N heads, H head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

# PyTorch's own FlashAttention with bounds, which its nested tensors call; its public form has no dropout. Versions
# without it compute under the mask.
_flash = getattr(torch.ops.aten, "_flash_attention_forward", None)
_LARGEST_HEAD, _HEAD_MULTIPLE = 256, 8
# The bounds of the texts of the batch that is computed, on the device; None where nobody has told them.
_bounds: ContextVar[torch.Tensor | None] = ContextVar("text_bounds", default=None)


def text_bounds(text_ids: np.ndarray) -> np.ndarray:
    """Where each text begins in the rows of a batch, put one after the other; padding counts as a text.

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


@contextmanager
def texts_at(bounds: torch.Tensor | None) -> Iterator[None]:
    """Within this context, the batch that is computed has texts at these bounds."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, rate: float
) -> torch.Tensor:
    """What the queries (B, S, N, H) read of keys and values (B, T, N, H) under a mask (B, 1, S, T): (B, S, N, H).

    A share ``rate`` of the probabilities is dropped. No matrix of them is stored.
    """
    bounds, (B, T, N, H) = _bounds.get(), key.shape
    if (
        bounds is not None
        and _flash is not None
        and query.shape == key.shape
        and query.dtype in (torch.bfloat16, torch.float16)
        and H <= _LARGEST_HEAD
        and not H % _HEAD_MULTIPLE
    ):
        flat: list[Any] = [array.reshape(B * T, N, H) for array in (query, key, value)]
        context: torch.Tensor = _flash(*flat, bounds, bounds, T, T, rate, False, False)[0]
        return context.view(B, T, N, H)
    heads_first = (array.transpose(1, 2) for array in (query, key, value))
    return scaled_dot_product_attention(*heads_first, attn_mask=mask, dropout_p=rate).transpose(1, 2)
