"""Which word of which text each token of a sequence comes from, however the sequence was cut, windowed or joined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.text.batch_encoder import text_list
from kbert.text.ragged import Ragged, row_splits
from kbert.text.sequences import SequenceSource, TokenSequences
from kbert.text.wordpiece import WordPieceTokenizer

# The token numbers of the special tokens; those of texts follow.
_CLS, _SEP, _UNK, _N_SPECIALS = 0, 1, 2, 3


class TracedColumn(NamedTuple):
    """The words of a column of texts.

    Attributes
    ----------
    splits : ndarray of int64, shape (n_texts + 1,)
        The words of text i are ``splits[i]`` to ``splits[i + 1]``, counted over all columns that were traced.
    offsets : ndarray of int64, shape (n_words, 2)
        Where each word begins and ends in its text, in characters, the end exclusive.
    """

    splits: NDArray[np.int64]
    offsets: NDArray[np.int64]


class TracingTokenizer:
    """Stands in for a tokenizer when sequences are built, and knows afterwards where each token comes from.

    It gives every token a number of its own in place of its id. What builds sequences only moves tokens about, so that
    `ids_and_words` can read the numbers off them.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer

    Attributes
    ----------
    columns : list of TracedColumn
        Of each column of texts that was tokenised, in this order.
    """

    cls_id, sep_id, unk_id = _CLS, _SEP, _UNK
    vocab_size = 2**31 - 1

    def __init__(self, tokenizer: WordPieceTokenizer):
        self._tokenizer = tokenizer
        self.columns: list[TracedColumn] = []
        self._ids = [np.array([tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id], np.int32)]
        self._words = [np.full(_N_SPECIALS, -1, np.int64)]
        self._n_tokens, self._n_words = _N_SPECIALS, 0

    def tokenize_column(self, texts: Iterable[str], name: str = "texts", first_row: int = 0) -> Ragged:
        """The numbers of the tokens of many texts."""
        return self.tokenize_with_offsets(texts, name, first_row)[0]

    def tokenize_with_offsets(
        self, texts: Iterable[str], name: str = "texts", first_row: int = 0
    ) -> tuple[Ragged, NDArray[np.int32]]:
        """The numbers of the tokens of many texts, and where each stands in its text."""
        rows = text_list(texts, name)
        ids, offsets = self._tokenizer.tokenize_with_offsets(rows, name, first_row)
        _, spans = self._tokenizer.split_words(rows)
        splits = row_splits(np.fromiter(map(len, spans), np.int64, len(spans)))
        words = np.array([span for of_text in spans for span in of_text], np.int64).reshape(-1, 2)
        # A token belongs to the last word of its text that begins no later than it does.
        longest = 1 + int(max(offsets.max(initial=0), words.max(initial=0)))
        starts_of_words = np.repeat(np.arange(len(rows)), np.diff(splits)) * longest + words[:, 0]
        starts_of_tokens = np.repeat(np.arange(len(rows)), ids.lengths) * longest + offsets[:, 0]
        word = np.searchsorted(starts_of_words, starts_of_tokens, "right") - 1

        self.columns.append(TracedColumn(splits + self._n_words, words))
        self._ids.append(ids.values)
        self._words.append(word + self._n_words)
        numbers = Ragged(np.arange(self._n_tokens, self._n_tokens + len(ids.values)), ids.splits)
        self._n_tokens += len(ids.values)
        self._n_words += len(words)
        return numbers, offsets

    def ids_and_words(self, sequences: SequenceSource) -> tuple[TokenSequences, NDArray[np.int64]]:
        """Sequences of token numbers as those of the tokenizer's own ids, and the word of each of their tokens.

        Words are counted over all columns; -1 on special tokens.
        """
        traced = sequences.take(slice(None))
        numbers = traced.tokens.values
        tokens = Ragged(np.concatenate(self._ids)[numbers], traced.tokens.splits)
        return TokenSequences(tokens, traced.first_length, traced.truncated, traced.rows), np.concatenate(self._words)[
            numbers
        ]
