"""Texts of any length as overlapping windows, so that no word of them is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kbert.text.sequences import TokenSequences, assemble, room_for_texts, row_splits, tokenize, truncated_lengths

if TYPE_CHECKING:
    from kbert.text.wordpiece import WordPieceTokenizer


def build_windows(
    tokenizer: WordPieceTokenizer,
    texts: Iterable[str],
    pairs: Iterable[str] | None = None,
    max_length: int = 128,
    stride: int | None = None,
    first_row: int = 0,
) -> TokenSequences:
    """Tokenise a column of texts, or of pairs of texts, into windows of at most ``max_length`` tokens.

    The windows of a text start ``stride`` tokens apart, but the last is moved back to end with the text, so that each
    window of a long text is full. Pairs that do not fit share a window as in truncation, the shorter text being whole
    if it takes less than half of it; the first window of the one text goes with the first of the other, and so on, the
    text with fewer windows repeating its last.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    texts : iterable of str
        The first texts; n_rows of them.
    pairs : iterable of str, optional
        The second texts, as many.
    max_length : int
        Greatest length of a window, special tokens included: at least 3, for pairs 5.
    stride : int, optional
        Tokens from the start of a window to that of the next; half of ``max_length`` by default. A text that has less
        room than that in its windows takes steps of that room.
    first_row : int
        What error messages call the first row.

    Returns
    -------
    TokenSequences
        At least one window for each row, in the given order.

    Raises
    ------
    ValueError
        If a text cannot be tokenised, the columns differ in length, ``max_length`` is too small, or ``stride`` is so
        large that words between the windows would be skipped.
    TypeError
        If a row is not a str.
    """
    budget = room_for_texts(max_length, pairs is not None)
    stride = checked_stride(stride, max_length, budget)
    first, second = tokenize(tokenizer, texts, pairs, first_row)
    columns = [first] if second is None else [first, second]
    lengths = [column.lengths for column in columns]
    kept = [np.minimum(lengths[0], budget)] if second is None else truncated_lengths(*lengths, budget)
    # The room that a text has in a window is at least the step; an empty text has one window, whatever the step.
    steps = [np.clip(room, 1, stride) for room in kept]
    needed = [1 - (room - length) // step for room, length, step in zip(kept, lengths, steps, strict=True)]
    n_windows = np.maximum.reduce(needed)

    rows = np.repeat(np.arange(len(first)), n_windows)
    number = np.arange(len(rows)) - row_splits(n_windows)[rows]  # of a window in its row
    pieces = []
    for column, length, room, step in zip(columns, lengths, kept, steps, strict=True):
        starts = np.minimum(number * step[rows], (length - room)[rows])
        pieces += [column.parts(rows, starts, room[rows]), room[rows]]
    return assemble(tokenizer, rows, np.zeros(len(rows), bool), *pieces)


def checked_stride(stride: int | None, max_length: int, budget: int) -> int:
    """The step between windows that hold ``budget`` tokens of text."""
    stride = min(max_length // 2, budget) if stride is None else stride
    if not 1 <= stride <= budget:
        raise ValueError(
            f"stride must be from 1 to {budget}, got {stride}: windows of max_length={max_length} hold {budget} tokens "
            "of text, and what lies between two windows would be skipped."
        )
    return stride


def most_context(rows: np.ndarray, starts: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pieces that each window gives more context than the other windows of its row do.

    The context of a piece in a window is the number of tokens on the side where there are fewer; of equal windows the
    first is taken (Devlin et al., 2018: ``_check_is_max_context`` of run_squad.py). So it is a matter of which window's
    middle is nearest, and changes halfway between two of them.

    Parameters
    ----------
    rows, starts, kept : ndarray of int, shape (n_windows,)
        The row of each window, ascending, its first piece in the row's text, and how many it has: the same number in
        all windows of a row.

    Returns
    -------
    first, end : ndarray of int, shape (n_windows,)
        From which piece on, and the piece after the last; counted in the row's text.
    """
    end = starts + kept
    goes_on = np.flatnonzero(rows[1:] == rows[:-1])
    end[goes_on] = (starts[goes_on] + starts[goes_on + 1] + kept[goes_on] + 1) // 2
    first = starts.copy()
    first[goes_on + 1] = end[goes_on]
    return first, end
