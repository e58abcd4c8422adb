"""Texts of any length as overlapping windows, so that no word of them is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.ragged import row_splits
from kbert.text.sequences import TokenSequences, assemble, room_for_texts, tokenize, truncated_lengths
from kbert.values.number_rules import is_whole


def build_windows(
    tokenizer: ColumnTokenizer,
    texts: Iterable[str],
    pairs: Iterable[str] | None = None,
    max_length: int = 128,
    stride: int | None = None,
    first_row: int = 0,
) -> TokenSequences:
    """Tokenise a column of texts, or of pairs of texts, into windows of at most ``max_length`` tokens.

    The windows of a text start ``stride`` tokens apart. Only the last one is moved back so that it ends with the text:
    so every window of a long text is full. Pairs that do not fit divide a window as truncation does: the shorter text
    is whole if it takes less than half of the window. The first window of one text goes with the first window of the
    other, and so on; the text with fewer windows repeats its last one.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    texts : iterable of str
        The first texts; n_rows of them.
    pairs : iterable of str, optional
        The second texts, as many. None if the rows are single texts.
    max_length : int, default=128
        Greatest length of a window in tokens, special tokens included: at least 3, for pairs 5.
    stride : int, optional
        Tokens from the start of a window to the start of the next one; None is half of ``max_length``. A smaller stride
        gives each word more context on both sides, and more windows. A text of a pair that has fewer tokens than this
        in a window moves on by as many as it has.
    first_row : int, default=0
        The number of the first row in error messages, if the texts are a chunk of a column.

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
    first, second = tokenize(tokenizer, texts, pairs, first_row)
    columns = [first] if second is None else [first, second]
    lengths = [column.lengths for column in columns]
    kept, steps, n_windows = window_counts(lengths, max_length, stride)

    rows = np.repeat(np.arange(len(first)), n_windows)
    number = np.arange(len(rows)) - row_splits(n_windows)[rows]  # of each window in its row
    pieces = []
    for column, length, room, step in zip(columns, lengths, kept, steps, strict=True):
        starts = np.minimum(number * step[rows], (length - room)[rows])
        pieces += [column.slices(rows, starts, room[rows]), room[rows]]
    return assemble(tokenizer, rows, np.zeros(len(rows), bool), *pieces)


def window_counts(
    lengths: list[NDArray[np.int64]], max_length: int, stride: int | None
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]], NDArray[np.int64]]:
    """How texts of these lengths are divided into windows.

    Parameters
    ----------
    lengths : list of one or two ndarray of int64, each of shape (n_rows,)
        The tokens of the first texts, and of the second texts if there are any.
    max_length, stride
        As in `build_windows`.

    Returns
    -------
    kept, steps : list of ndarray of int64
        For each text, its tokens in every window of the row, and those from the start of a window to the next.
    n_windows : ndarray of int64, shape (n_rows,)
        At least one for each row.

    Raises
    ------
    ValueError
        If ``max_length`` is too small, or ``stride`` too large.
    """
    first, *others = lengths
    budget = room_for_texts(max_length, bool(others))
    stride = checked_stride(stride, max_length, budget)
    kept = list(truncated_lengths(first, others[0], budget)) if others else [np.minimum(first, budget)]
    # No step is longer than what a text has in a window; an empty text has one window, whatever the step.
    steps = [np.clip(room, 1, stride) for room in kept]
    needed = [1 - (room - length) // step for room, length, step in zip(kept, lengths, steps, strict=True)]
    return kept, steps, np.maximum.reduce(needed)


def checked_stride(stride: int | None, max_length: int, budget: int) -> int:
    """The step between windows that hold ``budget`` tokens of text.

    Raises
    ------
    ValueError
        If ``stride`` is no positive whole number, or so large that words between the windows would be skipped.
    """
    stride = min(max_length // 2, budget) if stride is None else stride
    if not is_whole(stride, 1) or stride > budget:
        raise ValueError(
            f"stride must be a whole number from 1 to {budget}, got {stride!r}: windows of max_length={max_length} "
            f"hold {budget} tokens of text, and what lies between two windows would be skipped."
        )
    return stride


def most_context(
    rows: NDArray[Any], starts: NDArray[np.int64], kept: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pieces that each window gives more context than the other windows of its row do.

    The context of a piece in a window is the number of tokens on the side where there are fewer; of equal windows the
    first is taken (Devlin et al., 2018: ``_check_is_max_context`` of run_squad.py). So each piece belongs to the window
    whose middle is nearest. The border between two neighbouring windows lies halfway between their middles.

    Parameters
    ----------
    rows, starts, kept : ndarray of int, shape (n_windows,)
        The row of each window, ascending; its first piece, counted in the row's text; and how many pieces it has, the
        same number in all windows of a row.

    Returns
    -------
    first, end : ndarray of int, shape (n_windows,)
        The first such piece of each window and the piece after the last one, counted in the row's text.
    """
    end = starts + kept
    goes_on = np.flatnonzero(rows[1:] == rows[:-1])
    end[goes_on] = (starts[goes_on] + starts[goes_on + 1] + kept[goes_on] + 1) // 2
    first = starts.copy()
    first[goes_on + 1] = end[goes_on]
    return first, end
