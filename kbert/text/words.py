"""Rows of words to windows of tokens, for tasks that say something of every word."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from kbert.text.sequences import Ragged, TokenSequences, assemble, ranges, room_for_texts, row_splits
from kbert.text.windows import checked_stride, most_context

if TYPE_CHECKING:
    from kbert.text.wordpiece import WordPieceTokenizer


@dataclass(frozen=True, eq=False)
class WordSequences:
    """Rows of words, as windows of tokens in which each word has one place.

    Attributes
    ----------
    sequences : TokenSequences
        One or several windows for each row that has words; rows without words have none.
    words : ndarray of int64, shape (n_tokens,)
        For each token of all sequences, the word whose place it is, counted over all rows; -1 for the others.
    splits : ndarray of int64, shape (n_rows + 1,)
        The words of row i are ``splits[i]`` to ``splits[i + 1]``.
    """

    sequences: TokenSequences
    words: np.ndarray
    splits: np.ndarray

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return len(self.splits) - 1

    @property
    def n_words(self) -> int:
        """Words of all rows."""
        return int(self.splits[-1])

    @classmethod
    def concatenate(cls, parts: list[WordSequences]) -> WordSequences:
        """Those of consecutive parts of a column."""
        sequences, words, lengths = [], [], []
        n_rows = n_words = 0
        for part in parts:
            # Rows without words have no sequence that would count them.
            rows = part.sequences.rows + n_rows
            sequences.append(
                TokenSequences(part.sequences.tokens, part.sequences.first_length, part.sequences.truncated, rows)
            )
            words.append(np.where(part.words >= 0, part.words + n_words, -1))
            lengths.append(np.diff(part.splits))
            n_rows += part.n_rows
            n_words += part.n_words
        tokens = Ragged(
            np.concatenate([s.tokens.values for s in sequences]),
            row_splits(np.concatenate([s.lengths for s in sequences])),
        )
        first_length, truncated, rows = (
            np.concatenate([getattr(s, name) for s in sequences]) for name in ("first_length", "truncated", "rows")
        )
        joined = TokenSequences(tokens, first_length, truncated, rows)
        return cls(joined, np.concatenate(words), row_splits(np.concatenate(lengths)))

    def of_rows(self, rows: np.ndarray) -> WordSequences:
        """Those of some rows, given in ascending order; rows and words are counted anew from 0."""
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
    tokenizer: WordPieceTokenizer, rows: list[list[str]], max_length: int = 128, stride: int | None = None
) -> WordSequences:
    """Tokenise rows of words into windows of at most ``max_length`` tokens.

    The place of a word is its first piece (Devlin et al., 2018, section 5.3), in the window that gives this piece most
    context (`most_context`). Windows are those of `build_windows`.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    rows : list of list of str
        A word that has no piece, such as "" or a control character, becomes the unknown token.
    max_length : int
        Greatest length of a window, special tokens included, at least 3.
    stride : int, optional
        Tokens from the start of a window to that of the next; half of ``max_length`` by default.

    Returns
    -------
    WordSequences

    Raises
    ------
    ValueError
        If ``max_length`` or ``stride`` cannot be used.
    """
    room = room_for_texts(max_length, pairs=False)
    stride = checked_stride(stride, max_length, room)
    word_splits = row_splits(np.fromiter(map(len, rows), np.int64, len(rows)))
    pieces = _pieces(tokenizer, list(chain.from_iterable(rows)))
    # The tokens of row r are those from token_splits[r] on; word w begins at token pieces.splits[w].
    token_splits = pieces.splits[word_splits]
    lengths = np.diff(token_splits)

    kept = np.minimum(lengths, room)
    n_windows = np.where(lengths > 0, 1 - (kept - lengths) // stride, 0)
    of_row = np.repeat(np.arange(len(rows)), n_windows)
    number = np.arange(len(of_row)) - row_splits(n_windows)[of_row]
    starts = np.minimum(number * stride, (lengths - kept)[of_row])
    kept = kept[of_row]

    source = ranges(token_splits[of_row] + starts, kept)  # of every token of a text in a window, its number
    values = pieces.values[source]
    sequences = assemble(tokenizer, of_row, np.zeros(len(of_row), bool), values, kept)

    word_of_token = np.full(len(pieces.values), -1, np.int64)
    word_of_token[pieces.splits[:-1]] = np.arange(len(pieces))
    words = word_of_token[source]
    first, end = (np.repeat(token_splits[of_row] + bound, kept) for bound in most_context(of_row, starts, kept))
    words[(source < first) | (source >= end)] = -1

    placed = np.full(len(sequences.tokens.values), -1, np.int64)
    placed[ranges(sequences.tokens.splits[:-1] + 1, kept)] = words
    return WordSequences(sequences, placed, word_splits)


def _pieces(tokenizer: WordPieceTokenizer, words: list[str]) -> Ragged:
    """The pieces of each word, at least one. Each different word is looked up once."""
    numbers: dict[str, int] = {}
    places = np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.int64, len(words))
    different = tokenizer.tokenize_column(list(numbers), name="words")
    empty = different.lengths == 0
    lengths = np.where(empty, 1, different.lengths)
    splits = row_splits(lengths)
    values = np.full(splits[-1], tokenizer.unk_id, np.int32)
    values[ranges(splits[:-1][~empty], lengths[~empty])] = different.values
    return Ragged(values, splits).take(places)
