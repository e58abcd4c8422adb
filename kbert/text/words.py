"""Rows of words as windows of tokens, for tasks with an output for every word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.ragged import Ragged, ranges, row_splits
from kbert.text.sequences import TokenSequences, assemble
from kbert.text.windows import most_context, window_counts


@dataclass(frozen=True, eq=False)
class WordSequences:
    """Rows of words as windows of tokens, in which one token stands for each word: the first of its pieces.

    Attributes
    ----------
    sequences : TokenSequences
        One or several windows for each row that has words; rows without words have none.
    words : ndarray of int64, shape (n_tokens,)
        For each token of all sequences the number of the word that it stands for, counted over all rows; -1 for the
        other tokens. Each word has one token.
    splits : ndarray of int64, shape (n_rows + 1,)
        The words of row i are ``splits[i]`` to ``splits[i + 1]``.
    """

    sequences: TokenSequences
    words: NDArray[np.int64]
    splits: NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.splits) - 1

    @property
    def n_words(self) -> int:
        """Number of words in all rows."""
        return int(self.splits[-1])

    @classmethod
    def concatenate(cls, chunks: list[WordSequences]) -> WordSequences:
        """Join consecutive chunks of a column, in each of which rows and words are numbered from 0."""
        sequences, words, lengths = [], [], []
        n_rows = n_words = 0
        for chunk in chunks:
            # Not by TokenSequences.concatenate, which takes the number of rows from the last row that has a sequence:
            # rows without words have none.
            rows = chunk.sequences.rows + n_rows
            sequences.append(
                TokenSequences(chunk.sequences.tokens, chunk.sequences.first_length, chunk.sequences.truncated, rows)
            )
            words.append(np.where(chunk.words >= 0, chunk.words + n_words, -1))
            lengths.append(np.diff(chunk.splits))
            n_rows += chunk.n_rows
            n_words += chunk.n_words
        tokens = Ragged(
            np.concatenate([s.tokens.values for s in sequences]),
            row_splits(np.concatenate([s.lengths for s in sequences])),
        )
        joined = TokenSequences(
            tokens,
            np.concatenate([s.first_length for s in sequences]),
            np.concatenate([s.truncated for s in sequences]),
            np.concatenate([s.rows for s in sequences]),
        )
        return cls(joined, np.concatenate(words), row_splits(np.concatenate(lengths)))

    def of_rows(self, rows: NDArray[Any]) -> WordSequences:
        """Some rows, whose numbers are given in ascending order. These rows and their words are numbered from 0."""
        lengths = np.diff(self.splits)[rows]
        row_number = np.full(self.n_rows, -1, np.int64)
        row_number[rows] = np.arange(len(rows))
        word_number = np.full(self.n_words + 1, -1, np.int64)  # the last for -1
        word_number[ranges(self.splits[:-1][rows], lengths)] = np.arange(lengths.sum())
        kept = np.flatnonzero(row_number[self.sequences.rows] >= 0)
        chosen = self.sequences.take(kept)
        chosen = TokenSequences(chosen.tokens, chosen.first_length, chosen.truncated, row_number[chosen.rows])
        tokens = ranges(self.sequences.tokens.splits[kept], chosen.lengths)
        return WordSequences(chosen, word_number[self.words[tokens]], row_splits(lengths))


def build_word_windows(
    tokenizer: ColumnTokenizer, rows: Sequence[Sequence[str]], max_length: int = 128, stride: int | None = None
) -> tuple[WordSequences, NDArray[np.int64]]:
    """Tokenise rows of words into windows of at most ``max_length`` tokens.

    A word is represented by its first piece (Devlin et al., 2018, section 5.3), in the window that gives this piece
    most context (`most_context`). The windows of a row start ``stride`` tokens apart, as those of `build_windows`.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    rows : list of list of str
        A word that has no piece, such as "" or a control character, becomes the unknown token.
    max_length : int, default=128
        Greatest length of a window in tokens, special tokens included: at least 3.
    stride : int, optional
        Tokens from the start of a window to the start of the next one; None is half of ``max_length``.

    Returns
    -------
    sequences : WordSequences
    words_of_pieces : ndarray of int64
        The word that each token of all windows is a piece of, -1 for special tokens.

    Raises
    ------
    ValueError
        If ``max_length`` is too small, or ``stride`` is so large that words between the windows would be skipped.
    """
    word_splits = row_splits(np.fromiter(map(len, rows), np.int64, len(rows)))
    pieces = word_pieces(tokenizer, list(chain.from_iterable(rows)))
    # The tokens of row r are those from token_splits[r] on; word w begins at token pieces.splits[w].
    token_splits = pieces.splits[word_splits]
    lengths = np.diff(token_splits)

    (kept,), (steps,), n_windows = window_counts([lengths], max_length, stride)
    n_windows = np.where(lengths > 0, n_windows, 0)
    of_row = np.repeat(np.arange(len(rows)), n_windows)
    number = np.arange(len(of_row)) - row_splits(n_windows)[of_row]
    starts = np.minimum(number * steps[of_row], (lengths - kept)[of_row])
    kept = kept[of_row]

    source = ranges(token_splits[of_row] + starts, kept)  # for each token of a text in a window, its number in pieces
    values = pieces.values[source]
    sequences = assemble(tokenizer, of_row, np.zeros(len(of_row), bool), values, kept)

    word_of_piece = np.full(len(pieces.values), -1, np.int64)
    word_of_piece[pieces.splits[:-1]] = np.arange(len(pieces))
    words_of_texts = word_of_piece[source]
    first, end = (np.repeat(token_splits[of_row] + bound, kept) for bound in most_context(of_row, starts, kept))
    words_of_texts[(source < first) | (source >= end)] = -1

    # -1 on the special tokens too
    words, words_of_pieces = (np.full(len(sequences.tokens.values), -1, np.int64) for _ in range(2))
    words[ranges(sequences.tokens.splits[:-1] + 1, kept)] = words_of_texts
    words_of_pieces[ranges(sequences.tokens.splits[:-1] + 1, kept)] = np.repeat(np.arange(len(pieces)), pieces.lengths)[
        source
    ]
    return WordSequences(sequences, words, word_splits), words_of_pieces


def word_pieces(tokenizer: ColumnTokenizer, words: list[str]) -> Ragged:
    """The pieces of each word, at least one. Each different word is tokenised once."""
    numbers: dict[str, int] = {}
    number_of_word = np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.int64, len(words))
    different = tokenizer.tokenize_column(list(numbers), name="words")
    empty = different.lengths == 0
    lengths = np.where(empty, 1, different.lengths)
    splits = row_splits(lengths)
    values = np.full(splits[-1], tokenizer.unk_id, np.int32)
    values[ranges(splits[:-1][~empty], lengths[~empty])] = different.values
    return Ragged(values, splits).take(number_of_word)
