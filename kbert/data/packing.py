"""Sequence packing: several short texts share a row, so that few tokens of a batch are padding, and one shape fits all.

``text_ids`` (see `BertEncoder`) say which of the texts in a row a token belongs to. Attention stays within each text,
so that its vectors are those that it would have alone.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Row lengths to choose from. Few, so that similar data sets (the folds of a grid search) get the same shape.
LENGTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)

# A token in a row of length L costs about 1 + L / 1280 times as much time as in a very short row, because attention
# grows with L (measured with 448 tokens of minilm-l6 in rows of 16, 64 and 128; docs/project/performance_notes.md).
_ATTENTION_LENGTH = 1280


class Layout(NamedTuple):
    """The shape of a batch.

    Attributes
    ----------
    rows : int
        Number of rows.
    length : int
        Tokens of each row.
    slots : int
        Greatest number of texts in a row.
    """

    rows: int
    length: int
    slots: int


def pack(lengths: NDArray[Any], length: int, slots: int) -> list[list[int]]:
    """Pack texts into few rows: best-fit decreasing. The longest text goes first, each into the fullest row it fits in.

    Parameters
    ----------
    lengths : ndarray of int, shape (n_texts,)
        Tokens of each text, at most ``length``.
    length : int
        Tokens of a row.
    slots : int
        Greatest number of texts in a row.

    Returns
    -------
    list of list of int
        The numbers of the texts in each row.
    """
    rows: list[list[int]] = []
    rows_by_room: list[list[int]] = [[] for _ in range(length + 1)]
    # Bit r is set if rows_by_room[r] has a row, so the lowest bit from `need` on is the least room that is enough.
    rooms = 0
    for text in np.argsort(-lengths, kind="stable").tolist():
        need = int(lengths[text])
        fitting = rooms >> need
        if fitting:
            room = need + (fitting & -fitting).bit_length() - 1
            row = rows_by_room[room].pop()
            if not rows_by_room[room]:
                rooms ^= 1 << room
            rows[row].append(text)
        else:
            room, row = length, len(rows)
            rows.append([text])
        if len(rows[row]) < slots and room > need:
            rows_by_room[room - need].append(row)
            rooms |= 1 << (room - need)
    return rows


def sums_of_rows(values: NDArray[Any], rows: list[list[int]]) -> NDArray[Any]:
    """The sum of the values of each row's texts, for rows that `pack` made."""
    texts = np.fromiter(chain.from_iterable(rows), int, len(values))
    sizes = np.fromiter(map(len, rows), int, len(rows))
    return np.add.reduceat(values[texts], np.cumsum(sizes) - sizes) if rows else np.zeros(0, int)


def row_length(longest: int) -> int:
    """The shortest of `LENGTHS` that holds a text of ``longest`` tokens; a multiple of 256 if it is longer than all."""
    return next((length for length in LENGTHS if length >= longest), -(-longest // 256) * 256)


def slots_of(length: int) -> int:
    """The greatest number of texts in a row of this length: one for 8 tokens, since few texts are shorter.

    The head computes an output for every slot, used or not.
    """
    return max(1, length // 8)


def choose_layout(steps: list[NDArray[Any]]) -> Layout:
    """The shape of least cost into which the texts of every step can be packed.

    Parameters
    ----------
    steps : list of ndarray of int
        The lengths of the texts of each step, in tokens.
    """
    shortest = row_length(max(int(lengths.max()) for lengths in steps))
    # Rows that are longer than twice the longest text have hardly less padding, and attention costs more.
    candidates = sorted(length for length in {shortest, *LENGTHS} if shortest <= length <= max(2 * shortest, 64))

    def smallest(length: int, steps: list[NDArray[Any]]) -> Layout:
        slots = slots_of(length)
        return Layout(max(len(pack(lengths, length, slots)) for lengths in steps), length, slots)

    def cost(layout: Layout) -> float:
        return layout.rows * layout.length * (1 + layout.length / _ATTENTION_LENGTH)

    # Some steps are enough to find the best three lengths; which of these is best is decided with all steps.
    best = sorted(candidates, key=lambda length: cost(smallest(length, steps[:200])))[:3]
    return min((smallest(length, steps) for length in best), key=cost)
