"""Instances to rows: which of them share a row, and how many a row has room for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbert.data.packing import pack, sums_of_rows
from kbert.pretraining.masking import Masking

# The numbers of instances a row that `choose_row_shape` tries.
_TEXTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class RowShape(NamedTuple):
    """The room of every row of a run, so that one shape is compiled.

    Attributes
    ----------
    length : int
        Tokens (T).
    texts : int
        Most instances (K): slots of ``first_positions``.
    masked : int
        Most tokens to predict (M): slots of ``masked_positions``, for each of which the masked-LM head computes the
        logits of the whole vocabulary.
    """

    length: int
    texts: int
    masked: int


def packed_rows(lengths: np.ndarray, masking: Masking, shape: RowShape) -> list[list[int]]:
    """Put instances into few rows.

    Parameters
    ----------
    lengths : ndarray of int, shape (n_instances,)
        Tokens of each instance, none over ``shape.length``.
    masking : Masking
    shape : RowShape

    Returns
    -------
    list of list of int
        The instances of each row.
    """
    n_masked = masking.number(lengths)
    rows = pack(lengths, shape.length, shape.texts)
    # Short instances have more tokens to predict for their length. The shape has room for those of nearly all rows; the
    # others are divided.
    for i in np.flatnonzero(sums_of_rows(n_masked, rows) > shape.masked):
        row = rows[i]
        divided = []
        while row:
            room = int(np.searchsorted(np.cumsum(n_masked[row]), shape.masked, "right"))
            divided.append(row[:room])
            row = row[room:]
        rows[i], *others = divided
        rows += others
    return rows


def choose_row_shape(lengths: np.ndarray, masking: Masking, length: int, masked_cost: float = 1.0) -> RowShape:
    """The shape under which instances of such lengths take the least computing.

    More instances in a row leave less padding, and may want more room for tokens to predict.

    Parameters
    ----------
    lengths : ndarray of int, shape (n_instances,)
        Tokens of each instance of a sample.
    masking : Masking
    length : int
        Tokens of a row, at least as many as any instance has.
    masked_cost : float, default=1.0
        What the masked-LM head takes for one token to predict, where the layers take 1 for one token of a row.
    """
    n_masked = masking.number(lengths)
    shapes, costs = [], []
    for texts in _TEXTS:
        rows = pack(lengths, length, texts)
        # An instance that fills a row has to fit too, though the sample may have none.
        masked = max(int(sums_of_rows(n_masked, rows).max(initial=0)), int(masking.number(length)))
        shapes.append(RowShape(length, texts, masked))
        costs.append(len(rows) * (length + masked_cost * masked))
        if max(map(len, rows), default=0) < texts:  # more room for instances is of no use
            break
    return shapes[int(np.argmin(costs))]
