"""Rows of words: reading them, and the model's output for each word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.tags import WordColumn, word_column
from kbert.errors import MissingTextWarning
from kbert.tasks.row_lengths import PieceCounts, RowLengths
from kbert.text import WordPieceTokenizer
from kbert.text.ragged import row_splits
from kbert.text.windows import window_counts
from kbert.text.words import WordSequences, build_word_windows, word_pieces
from kbert.training.predict import predict_words
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras


@dataclass(kw_only=True)
class WordReader:
    """Rows of words, or texts whose words a tokenizer splits: for tagging, and for `BertVectorizer`.

    Parameters
    ----------
    max_length, stride
        As in `kbert.BertTagger`.
    """

    max_length: int = 128
    stride: int | None = None

    def read(self, X: Any, name: str = "X") -> WordColumn:
        """Rows of words, or texts that are not split yet."""
        return word_column(X, name)

    def cut_rows(self, columns: WordColumn, tokenizer: WordPieceTokenizer) -> NDArray[np.int64]:
        """None: rows of words are read whole, in windows."""
        return np.array([], np.int64)

    def piece_counts(self, columns: WordColumn, tokenizer: WordPieceTokenizer) -> PieceCounts:
        """The word pieces of all rows."""
        return PieceCounts.concatenate(
            self._counted(chunk.words, tokenizer) for chunk in columns.chunks(tokenizer.split_words)
        )

    @staticmethod
    def _counted(rows: list[list[str]], tokenizer: WordPieceTokenizer) -> PieceCounts:
        pieces = word_pieces(tokenizer, list(chain.from_iterable(rows)))
        of_rows = np.diff(pieces.splits[row_splits(np.fromiter(map(len, rows), np.int64, len(rows)))])
        numbers = np.flatnonzero(of_rows)  # a row of no words is not computed
        return PieceCounts([of_rows[numbers]], numbers, len(rows))

    def lengths(self, counts: PieceCounts) -> RowLengths:
        """The lengths of the rows."""
        (kept,), _, n_windows = window_counts(counts.texts, self.max_length, self.stride)
        return RowLengths.of(counts, kept + counts.n_specials, n_windows, in_windows=True)

    def warn_cut(self, n_cut: int, n_rows: int, details: str) -> None:
        """Nothing: rows of words are read whole, in windows."""

    def warn_missing(self, columns: WordColumn, n_missing: int, n_rows: int, details: str) -> None:
        """Say that words, or texts, are empty."""
        what = "texts" if columns.raw_texts is not None else "words"
        warn_user(
            f"{n_missing} of the {what} in {n_rows} rows {'are' if n_missing > 1 else 'is'} empty ({details}). Every "
            "row and every word still gets a result.",
            MissingTextWarning,
        )

    def windows(self, columns: WordColumn, tokenizer: WordPieceTokenizer) -> WordSequences:
        """Rows of words, split already, as overlapping windows of tokens."""
        return build_word_windows(tokenizer, columns.words, self.max_length, self.stride)[0]

    def predict(
        self, model: keras.Model, tokenizer: WordPieceTokenizer, columns: WordColumn
    ) -> Iterator[tuple[WordColumn, list[np.ndarray]]]:
        """The model's output for each word, some rows at a time.

        Yields
        ------
        chunk : WordColumn
            Some rows, split into words.
        outputs : list of ndarray of float32, shape (n_words, n_outputs)
            One array for each of these rows.
        """
        first_row = 0
        for chunk in columns.chunks(tokenizer.split_words):
            windows = self.windows(chunk, tokenizer)
            outputs = predict_words(model, windows, first_row)
            yield chunk, np.split(outputs, windows.splits[1:-1])
            first_row += chunk.n_rows
