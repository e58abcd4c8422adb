"""How many tokens rows have before anything is cut, and how many of them a model computes: by counting, not computing.

A row is tokenised once (`PieceCounts`). All else is arithmetic, for any ``max_length`` and ``stride``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbert.data.columns import Columns
from kbert.text.wordpiece import WordPieceTokenizer

C = TypeVar("C", bound=Columns, contravariant=True)


class PieceCounts(NamedTuple):
    """The word pieces of rows, before anything is cut.

    Attributes
    ----------
    texts : list of one or two ndarray of int64, each of shape (n_sequences,)
        The pieces of the first text of each sequence, and of the second one if there is any: a question and its
        context, a context and an option.
    rows : ndarray of int64, shape (n_sequences,)
        The row of each sequence, ascending: one for each row, or one for each option. A row of no words has none.
    n_rows : int
    """

    texts: list[NDArray[np.int64]]
    rows: NDArray[np.int64]
    n_rows: int

    @classmethod
    def concatenate(cls, chunks: Iterable[PieceCounts]) -> PieceCounts:
        """Join consecutive chunks, in each of which rows are numbered from 0."""
        texts, rows, n_rows = [], [], 0
        for chunk in chunks:
            texts.append(chunk.texts)
            rows.append(chunk.rows + n_rows)
            n_rows += chunk.n_rows
        return cls([np.concatenate(column) for column in zip(*texts, strict=True)], np.concatenate(rows), n_rows)

    @property
    def n_specials(self) -> int:
        """Special tokens of each sequence: [CLS], and a [SEP] after each text."""
        return 1 + len(self.texts)

    @property
    def whole(self) -> NDArray[np.int64]:
        """Tokens of each row's longest sequence, special ones included; shape (n_rows,)."""
        longest = np.zeros(self.n_rows, np.int64)
        np.maximum.at(longest, self.rows, np.sum(self.texts, axis=0) + self.n_specials)
        return longest

    def by_row(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums over the sequences of each row, shape (n_rows,)."""
        return np.bincount(self.rows, tokens, self.n_rows).astype(np.int64)


class RowLengths(NamedTuple):
    """Lengths of rows in tokens, special ones included; each array has the shape (n_rows,).

    Attributes
    ----------
    whole : ndarray of int64
        Before anything is cut: both texts of a pair, the question and its whole context, the words of a row, and of
        multiple choice the longest option with its context. 0 for a row of no words.
    cut : ndarray of int64
        What the model computes for a row that is cut at ``max_length``: the first window of a row that is read in
        windows, and all options of multiple choice together.
    windowed : ndarray of int64 or None
        What it computes for a row that is read in windows; None for multiple choice, which has none.
    in_windows : bool
        Whether rows are read in windows: by ``long_text``, and always by the tagger and the question answerer.
    sequences : ndarray of int64, shape (n_sequences,)
        The tokens of each sequence that the model computes with the present parameters: rows, their windows or options.
    rows : ndarray of int64, shape (n_sequences,)
        The row of each sequence, ascending.
    """

    whole: NDArray[np.int64]
    cut: NDArray[np.int64]
    windowed: NDArray[np.int64] | None
    in_windows: bool
    sequences: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(
        cls, counts: PieceCounts, cut: NDArray[np.int64], n_windows: NDArray[np.int64] | None, in_windows: bool
    ) -> RowLengths:
        """The lengths of rows whose sequences keep ``cut`` tokens each, in every one of their ``n_windows`` windows."""
        repeats = n_windows if in_windows and n_windows is not None else 1
        windowed = None if n_windows is None else counts.by_row(n_windows * cut)
        return cls(
            counts.whole,
            counts.by_row(cut),
            windowed,
            in_windows,
            np.repeat(cut, repeats),
            np.repeat(counts.rows, repeats),
        )


class LengthReader(Protocol[C]):
    """What reads rows, and knows how long they are: a task, `TextReader` or `WordReader`."""

    def piece_counts(self, columns: C, tokenizer: WordPieceTokenizer) -> PieceCounts:
        """The word pieces of all rows."""
        ...

    def lengths(self, counts: PieceCounts) -> RowLengths:
        """The lengths of the rows, with the present ``max_length``, ``long_text`` and ``stride``."""
        ...


def row_lengths(reader: LengthReader[C], columns: C, tokenizer: WordPieceTokenizer) -> RowLengths:
    """Count the tokens of rows.

    Parameters
    ----------
    reader : Task, TextReader or WordReader
        Its ``max_length`` is a number: what "auto" stands for was settled.
    columns : Columns
        What ``reader.read(X)`` gave.
    tokenizer : WordPieceTokenizer

    Returns
    -------
    RowLengths

    Raises
    ------
    ValueError
        If a text cannot be tokenised, ``max_length`` is too small, or ``stride`` too large.
    """
    return reader.lengths(reader.piece_counts(columns, tokenizer))
