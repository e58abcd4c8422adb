"""Packing: several short texts in a row, so that few tokens of a batch are padding and one shape serves all batches.

The texts of a row are kept apart by ``text_ids`` (see `BertEncoder`), so each gets the vectors that it gets alone.
"""

from typing import NamedTuple

import numpy as np

# Row lengths to choose from. Few, so that similar data sets (the folds of a grid search) get the same shape.
LENGTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)

# A token of a row of length L costs about 1 + L / 1280 of what it costs in a very short one, attention growing with L
# (measured: 448 tokens of minilm-l6 in rows of 16, 64 and 128, docs/performance.md).
_ATTENTION_LENGTH = 1280


class Layout(NamedTuple):
    """The shape of a batch: ``rows`` x ``length`` tokens with room for ``slots`` texts in each row."""

    rows: int
    length: int
    slots: int


def pack(lengths: np.ndarray, length: int, slots: int) -> list[list[int]]:
    """Put texts into as few rows as a best fit, longest first, finds.

    Parameters
    ----------
    lengths : ndarray of int, shape (n_texts,)
        Tokens of each text, none over ``length``.
    length : int
        Tokens of a row.
    slots : int
        Most texts in a row.

    Returns
    -------
    list of list of int
        The texts of each row.
    """
    rows: list[list[int]] = []
    rows_by_room: list[list[int]] = [[] for _ in range(length + 1)]
    # Bit r is set where rows_by_room[r] has a row: the least room that suffices is its lowest bit from `need` on.
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


def row_length(longest: int) -> int:
    """The shortest of `LENGTHS` that takes a text of ``longest`` tokens; beyond them a multiple of 256."""
    return next((length for length in LENGTHS if length >= longest), -(-longest // 256) * 256)


def slots_of(length: int) -> int:
    """Most texts in a row of this length: each slot costs a run through the head, and few texts are under 8 tokens."""
    return max(1, length // 8)


def choose_layout(steps: list[np.ndarray]) -> Layout:
    """The cheapest shape into which every step's texts can be packed.

    Parameters
    ----------
    steps : list of ndarray of int
        The lengths of the texts of each step.
    """
    shortest = row_length(max(int(lengths.max()) for lengths in steps))
    # Rows longer than twice the longest text hardly fill better, and attention costs more.
    candidates = sorted(length for length in {shortest, *LENGTHS} if shortest <= length <= max(2 * shortest, 64))

    def smallest(length: int, steps: list[np.ndarray]) -> Layout:
        slots = slots_of(length)
        return Layout(max(len(pack(lengths, length, slots)) for lengths in steps), length, slots)

    def cost(layout: Layout) -> float:
        return layout.rows * layout.length * (1 + layout.length / _ATTENTION_LENGTH)

    # A sample of the steps tells most lengths apart; the best few have to show that they hold for all.
    best = sorted(candidates, key=lambda length: cost(smallest(length, steps[:200])))[:3]
    return min((smallest(length, steps) for length in best), key=cost)
