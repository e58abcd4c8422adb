"""Rows of tokens for a whole column of texts, without a Python loop over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import index
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.ragged import Ragged, Selection, ranges, row_splits
from kbert.values.number_rules import whole_number


class SequenceSource(Protocol):
    """What one batch is made of: sequences that exist already, or that are built when they are taken."""

    @property
    def splits(self) -> NDArray[np.int64]:
        """Where each sequence begins and ends if all of them are concatenated, shape (n_sequences + 1,)."""

    def take(self, selection: Selection) -> TokenSequences:
        """The selected sequences, in the order of the selection."""


class Sequences(SequenceSource, Protocol):
    """The sequences of all rows of X: `TokenSequences`, or `QuestionWindows`, which builds them when they are taken.

    Each sequence belongs to a row; a row has several sequences if it is read in windows, or has several options.
    """

    @property
    def rows(self) -> NDArray[Any]:
        """The row of each sequence, ascending, shape (n_sequences,)."""

    @property
    def first_length(self) -> NDArray[Any]:
        """How many tokens of each sequence have segment id 0, shape (n_sequences,)."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence, special ones included, shape (n_sequences,)."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def __len__(self) -> int: ...

    def rows_with(self, token: int) -> NDArray[np.int64]:
        """The numbers of the rows that have a token, ascending."""

    def of_rows(self, rows: NDArray[Any]) -> Self:
        """The sequences of some rows, whose numbers are given in ascending order. These rows are numbered from 0."""


# Sequences that are looked at together.
_TEXTS_AT_ONCE = 4096


def some_at_a_time(sequences: Sequences) -> Iterator[TokenSequences]:
    """All sequences in order, some thousand at a time: those that are built when taken are not all there at once."""
    for start in range(0, len(sequences), _TEXTS_AT_ONCE):
        yield sequences.take(np.arange(start, min(start + _TEXTS_AT_ONCE, len(sequences))))


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """Sequences "[CLS] a [SEP]" or "[CLS] a [SEP] b [SEP]", of a greatest length and not padded.

    There is one for each row of a column of texts, truncated if the row is too long (`build_sequences`); or there are
    several, the windows of the row (`build_windows`) or its options (`build_choices`).

    Attributes
    ----------
    tokens : Ragged
        Token ids of each sequence, special tokens included.
    first_length : ndarray of int64 or int32, shape (n_sequences,)
        How many tokens have segment id 0: "[CLS] a [SEP]". The others are "b [SEP]" and have segment id 1.
    truncated : ndarray of bool, shape (n_sequences,)
        Whether tokens of the row's texts were cut off.
    rows : ndarray of int64 or int32, shape (n_sequences,)
        The row that each sequence belongs to, ascending.
    """

    tokens: Ragged
    first_length: NDArray[Any]
    truncated: NDArray[np.bool_]
    rows: NDArray[Any]

    @classmethod
    def concatenate(cls, chunks: Iterable[TokenSequences]) -> TokenSequences:
        """Join the sequences of consecutive chunks of a column, in each of which rows are numbered from 0.

        A fit holds the result, so its arrays are as small as they can be: lengths and rows have four bytes, and tokens
        two if none is over 65535.
        """
        tokens, lengths, first_length, truncated, rows = [], [], [], [], []
        n_rows = 0
        for chunk in chunks:
            values = chunk.tokens.values
            tokens.append(values.astype(np.uint16) if values.max(initial=0) < 2**16 else values)
            lengths.append(chunk.lengths.astype(np.int32))
            first_length.append(chunk.first_length.astype(np.int32))
            truncated.append(chunk.truncated)
            rows.append((chunk.rows + n_rows).astype(np.int32))
            n_rows += chunk.n_rows
        return cls(
            Ragged(np.concatenate(tokens), row_splits(np.concatenate(lengths))),
            np.concatenate(first_length),
            np.concatenate(truncated),
            np.concatenate(rows),
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def are_pairs(self) -> bool:
        """Whether there are second texts."""
        return bool((self.first_length < self.lengths).any())

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence, special ones included, int64, shape (n_sequences,)."""
        return self.tokens.lengths

    @property
    def splits(self) -> NDArray[np.int64]:
        """Where each sequence begins and ends in ``tokens.values``, shape (n_sequences + 1,)."""
        return self.tokens.splits

    @property
    def n_rows(self) -> int:
        """Number of rows that the sequences belong to."""
        return int(self.rows[-1]) + 1 if len(self.rows) else 0

    @property
    def cut_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows with truncated sequences, ascending."""
        return np.unique(self.rows[self.truncated]).astype(np.int64)

    def rows_with(self, token: int) -> NDArray[np.int64]:
        """The numbers of the rows that have a token, ascending."""
        return np.unique(self.rows[self.tokens.rows_with(token)]).astype(np.int64)

    def take(self, selection: Selection) -> TokenSequences:
        """The selected sequences, in the order of the selection."""
        return TokenSequences(
            self.tokens.take(selection), self.first_length[selection], self.truncated[selection], self.rows[selection]
        )

    def of_rows(self, rows: NDArray[Any]) -> TokenSequences:
        """The sequences of some rows, whose numbers are given in ascending order. These rows are numbered from 0."""
        number = np.full(self.n_rows, -1, np.int64)
        number[rows] = np.arange(len(rows))
        chosen = self.take(number[self.rows] >= 0)
        return replace(chosen, rows=number[chosen.rows])

    def padded(
        self, rows: Selection = slice(None), length: int | None = None, pad_id: int = 0
    ) -> dict[str, NDArray[np.int32]]:
        """Some sequences as BertEncoder's inputs, each in a row of its own.

        Parameters
        ----------
        rows : index array, mask or slice, default=slice(None)
            Which sequences, B of them; all of them by default.
        length : int, optional
            Length T to pad to, in tokens. None is the length of the longest of these sequences. Give a number to get
            arrays of one shape for different rows.
        pad_id : int, default=0
            Token id of the padding.

        Returns
        -------
        dict of ndarray of int32, each of shape (B, T)
            ``token_ids``, ``segment_ids`` (0 on padding), ``position_ids`` (0 to T - 1), and ``text_ids`` (1 on tokens,
            0 on padding: with one sequence in each row this is an attention mask).

        Raises
        ------
        ValueError
            If a sequence is longer than ``length``.
        """
        chosen = self.take(rows)
        longest = int(chosen.lengths.max(initial=0))
        length = longest if length is None else index(length)
        if length < longest:
            raise ValueError(
                f"length is {length}, and the longest of these rows has {longest} tokens. Pad to at least that."
            )
        positions = np.arange(length, dtype=np.int32)
        real = positions < chosen.lengths[:, None]  # (B, T)
        token_ids = np.full(real.shape, pad_id, np.int32)
        token_ids[real] = chosen.tokens.values
        return {
            "token_ids": token_ids,
            "segment_ids": (real & (positions >= chosen.first_length[:, None])).astype(np.int32),
            "position_ids": np.repeat(positions[None], len(chosen), axis=0),
            "text_ids": real.astype(np.int32),
        }


def build_sequences(
    tokenizer: ColumnTokenizer,
    texts: Iterable[str],
    pairs: Iterable[str] | None = None,
    max_length: int = 128,
    first_row: int = 0,
) -> TokenSequences:
    """Tokenise a column of texts, or of pairs of texts, into sequences of at most ``max_length`` tokens.

    A pair that does not fit loses tokens from the end of the longer text, and of the second one if both are equally
    long, until it fits (``_truncate_seq_pair`` of the original ``run_classifier.py``).

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    texts : iterable of str
        The first texts; n_rows of them.
    pairs : iterable of str, optional
        The second texts, as many. None if the rows are single texts.
    max_length : int, default=128
        Greatest length of a sequence in tokens, special tokens included: at least 3, for pairs 5. Longer sequences keep
        more of a text and cost more time. The model's ``max_position_embeddings`` (512 for BERT) is the limit.
    first_row : int, default=0
        The number of the first row in error messages, if the texts are a chunk of a column.

    Returns
    -------
    TokenSequences
        n_rows sequences in the given order.

    Raises
    ------
    ValueError
        If a text cannot be tokenised, the columns differ in length, or ``max_length`` is too small.
    TypeError
        If a row is not a str.
    """
    budget = room_for_texts(max_length, pairs is not None)
    first, second = tokenize(tokenizer, texts, pairs, first_row)
    rows = np.arange(len(first))
    if second is None:
        kept = np.minimum(first.lengths, budget)
        return assemble(tokenizer, rows, first.lengths > budget, first.slices(rows, 0, kept), kept)
    kept, kept_second = truncated_lengths(first.lengths, second.lengths, budget)
    truncated = kept + kept_second < first.lengths + second.lengths
    return assemble(
        tokenizer, rows, truncated, first.slices(rows, 0, kept), kept, second.slices(rows, 0, kept_second), kept_second
    )


def tokenize(
    tokenizer: ColumnTokenizer, texts: Iterable[str], pairs: Iterable[str] | None, first_row: int
) -> tuple[Ragged, Ragged | None]:
    """The token ids of the first texts, and of the second texts if there are any.

    Raises
    ------
    ValueError
        If a text cannot be tokenised, or the columns differ in length.
    TypeError
        If a row is not a str.
    """
    first = tokenizer.tokenize_column(texts, name="texts", first_row=first_row)
    if pairs is None:
        return first, None
    second = tokenizer.tokenize_column(pairs, name="pairs", first_row=first_row)
    if len(first) != len(second):
        raise ValueError(
            f"texts has {len(first)} rows and pairs has {len(second)}. Give one second text for each first."
        )
    return first, second


def truncated_lengths(
    first: NDArray[np.int64], second: NDArray[np.int64], budget: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many tokens the two texts of each pair keep if together they may have ``budget`` tokens.

    The original code removes one token at a time from the longer text, from the second one on a tie. So the second text
    keeps half of the budget, rounded down, or all that a short first text leaves to it, if that is more.
    """
    fits = first + second <= budget
    kept_second = np.where(fits, second, np.minimum(second, np.maximum(budget // 2, budget - first)))
    return np.where(fits, first, budget - kept_second), kept_second


def room_for_texts(max_length: int, pairs: bool) -> int:
    """How many tokens of text fit beside the special tokens in a sequence of ``max_length``.

    Raises
    ------
    ValueError
        If ``max_length`` is not a whole number, or too small.
    """
    n_specials, least, row = (3, 5, "a pair of texts") if pairs else (2, 3, "a text")
    what_for = f" for {row} ({n_specials} special tokens and at least one piece of each text)"
    return whole_number(max_length, "max_length", least, what_for) - n_specials


def assemble(
    tokenizer: ColumnTokenizer,
    rows: NDArray[np.int64],
    truncated: NDArray[np.bool_],
    first: NDArray[Any],
    first_lengths: NDArray[np.int64],
    second: NDArray[Any] | None = None,
    second_lengths: NDArray[np.int64] | None = None,
) -> TokenSequences:
    """Build sequences from the tokens of their texts by adding the special tokens.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    rows, truncated : ndarray, shape (n_sequences,)
        As in `TokenSequences`.
    first, second : ndarray of int, shape (n_tokens,)
        The tokens of all first texts, concatenated, and those of all second texts; None for single texts.
    first_lengths, second_lengths : ndarray of int, shape (n_sequences,)
        How many of these belong to each sequence.
    """
    lengths = first_lengths + 2
    if second_lengths is not None:
        lengths = lengths + second_lengths + 1
    splits = row_splits(lengths)
    starts = splits[:-1]
    # What the texts do not overwrite remains [SEP], but for the [CLS] at the start.
    values = np.full(splits[-1], tokenizer.sep_id, np.int32)
    values[starts] = tokenizer.cls_id
    values[ranges(starts + 1, first_lengths)] = first
    if second_lengths is not None:
        values[ranges(starts + first_lengths + 2, second_lengths)] = second
    return TokenSequences(Ragged(values, splits), first_lengths + 2, truncated, rows)
