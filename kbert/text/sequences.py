"""Rows of tokens for a whole column of texts, without a Python loop over the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kbert.text.wordpiece import WordPieceTokenizer


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths in one flat array.

    Attributes
    ----------
    values : ndarray of int32 or uint16, shape (n_values,)
        All rows, one after the other.
    splits : ndarray of int64, shape (n_rows + 1,)
        Row i is ``values[splits[i]:splits[i + 1]]``.
    """

    values: np.ndarray
    splits: np.ndarray

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Length of each row, int64, shape (n_rows,)."""
        return np.diff(self.splits)

    def row(self, i: int) -> np.ndarray:
        """One row, as a view. Negative numbers count from the end."""
        i = range(len(self))[i]
        return self.values[self.splits[i] : self.splits[i + 1]]

    def take(self, indices) -> Ragged:
        """The rows that an index array, a mask or a slice selects, in its order."""
        rows = np.arange(len(self))[indices]
        lengths = self.splits[rows + 1] - self.splits[rows]
        return Ragged(self.parts(rows, 0, lengths), row_splits(lengths))

    def parts(self, rows, starts, lengths: np.ndarray) -> np.ndarray:
        """Of each of ``rows`` the values from ``starts`` on, as many as ``lengths`` says; one after the other."""
        return self.values[ranges(self.splits[rows] + starts, lengths)]


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """Sequences "[CLS] a [SEP]" or "[CLS] a [SEP] b [SEP]", of a greatest length and not padded.

    One for each row of a column of texts, cut where it is too long (`build_sequences`), or several windows of a row
    (`kbert.text.windows.build_windows`).

    Attributes
    ----------
    tokens : Ragged
        Token ids, the special ones included.
    first_length : ndarray of int64 or int32, shape (n_sequences,)
        How many tokens have segment id 0: "[CLS] a [SEP]". The others are "b [SEP]" and have segment id 1.
    truncated : ndarray of bool, shape (n_sequences,)
        Which were cut.
    rows : ndarray of int64 or int32, shape (n_sequences,)
        The row that each is of, ascending.
    """

    tokens: Ragged
    first_length: np.ndarray
    truncated: np.ndarray
    rows: np.ndarray

    @classmethod
    def concatenate(cls, parts: Iterable[TokenSequences]) -> TokenSequences:
        """Those of consecutive parts of a column, each of whose rows are counted from 0.

        A fit holds them all, so numbers are as small as they can be: tokens have two bytes if none is over 65535.
        """
        tokens, lengths, first_length, truncated, rows = [], [], [], [], []
        n_rows = 0
        for part in parts:
            values = part.tokens.values
            tokens.append(values.astype(np.uint16) if values.max(initial=0) < 2**16 else values)
            lengths.append(part.lengths.astype(np.int32))
            first_length.append(part.first_length.astype(np.int32))
            truncated.append(part.truncated)
            rows.append((part.rows + n_rows).astype(np.int32))
            n_rows += part.n_rows
        return cls(
            Ragged(np.concatenate(tokens), row_splits(np.concatenate(lengths))),
            *map(np.concatenate, (first_length, truncated, rows)),
        )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> np.ndarray:
        """Length of each, special tokens included, int64, shape (n_sequences,)."""
        return self.tokens.lengths

    @property
    def splits(self) -> np.ndarray:
        """Where the tokens of each begin and end among those of all."""
        return self.tokens.splits

    @property
    def n_rows(self) -> int:
        """How many rows they are of."""
        return int(self.rows[-1]) + 1 if len(self.rows) else 0

    @property
    def n_truncated(self) -> int:
        """How many were cut."""
        return int(self.truncated.sum())

    def take(self, indices) -> TokenSequences:
        """Those that an index array, a mask or a slice selects, in its order."""
        return TokenSequences(
            self.tokens.take(indices), self.first_length[indices], self.truncated[indices], self.rows[indices]
        )

    def of_rows(self, rows: np.ndarray) -> TokenSequences:
        """Those of some rows, given in ascending order, which are counted anew from 0."""
        number = np.full(self.n_rows, -1, np.int64)
        number[rows] = np.arange(len(rows))
        chosen = self.take(number[self.rows] >= 0)
        return replace(chosen, rows=number[chosen.rows])

    def padded(self, rows=slice(None), length: int | None = None, pad_id: int = 0) -> dict[str, np.ndarray]:
        """Some rows as BertEncoder's inputs.

        Parameters
        ----------
        rows : index array, mask or slice
            Which rows, B of them; all of them by default.
        length : int, optional
            Length T to pad to; that of the longest of these rows by default.
        pad_id : int
            Token id of the padding.

        Returns
        -------
        dict of ndarray of int32, each of shape (B, T)
            ``token_ids``, ``segment_ids`` (0 on padding), ``position_ids`` (0 to T - 1), ``text_ids`` (1, or 0).
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
    tokenizer: WordPieceTokenizer,
    texts: Iterable[str],
    pairs: Iterable[str] | None = None,
    max_length: int = 128,
    first_row: int = 0,
) -> TokenSequences:
    """Tokenise a column of texts, or of pairs of texts, into rows of at most ``max_length`` tokens.

    Pairs that do not fit lose tokens from the end of the longer text, on a tie from the second, until they fit
    (``_truncate_seq_pair`` of the original ``run_classifier.py``).

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    texts : iterable of str
        The first texts; n_rows of them.
    pairs : iterable of str, optional
        The second texts, as many.
    max_length : int
        Greatest length of a row, special tokens included: at least 3, for pairs 5.
    first_row : int
        What error messages call the first row.

    Returns
    -------
    TokenSequences
        n_rows rows in the given order.

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
        return assemble(tokenizer, rows, first.lengths > budget, first.parts(rows, 0, kept), kept)
    kept, kept_second = truncated_lengths(first.lengths, second.lengths, budget)
    cut = kept + kept_second < first.lengths + second.lengths
    return assemble(
        tokenizer, rows, cut, first.parts(rows, 0, kept), kept, second.parts(rows, 0, kept_second), kept_second
    )


def tokenize(
    tokenizer: WordPieceTokenizer, texts: Iterable[str], pairs: Iterable[str] | None, first_row: int
) -> tuple[Ragged, Ragged | None]:
    """The pieces of the first texts, and of the second ones where there are any."""
    first = tokenizer.tokenize_column(texts, name="texts", first_row=first_row)
    if pairs is None:
        return first, None
    second = tokenizer.tokenize_column(pairs, name="pairs", first_row=first_row)
    if len(first) != len(second):
        raise ValueError(
            f"texts has {len(first)} rows and pairs has {len(second)}. Give one second text for each first."
        )
    return first, second


def truncated_lengths(first: np.ndarray, second: np.ndarray, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """How much is left of the two texts of each pair, once the longer has been cut, token by token, until both fit.

    The original pops from the longer list, on a tie from the second, until the sum is at most ``budget``. So the second
    keeps half of the budget, rounded down, or whatever a short first text leaves to it, if that is more.
    """
    fits = first + second <= budget
    kept_second = np.where(fits, second, np.minimum(second, np.maximum(budget // 2, budget - first)))
    return np.where(fits, first, budget - kept_second), kept_second


def text_list(texts: Iterable[str], name: str = "texts") -> list[str]:
    """A column of texts as a list, whose rows were found to be strings.

    Raises
    ------
    ValueError
        If this is no column.
    TypeError
        If a row is not a str.
    """
    if isinstance(texts, str):
        raise ValueError(f"{name} is a single str, and a column of texts is wanted. Put it in a list: [{name}].")
    if isinstance(texts, Mapping) or getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            f"{name} is a {type(texts).__name__}, and one column of texts is wanted. Select one column of it."
        )
    rows = texts if isinstance(texts, list) else list(texts)
    # The tokenizers library would take a tuple for a pair of texts. A set of types is quick, a look at each row is not.
    if not all(issubclass(kind, str) for kind in set(map(type, rows))):
        row, value = next((row, value) for row, value in enumerate(rows) if not isinstance(value, str))
        raise TypeError(
            f"{name}: row {row} is of type {type(value).__name__} ({value!r:.60}), and texts are str. Turn it into a "
            'str first; a missing text is "".'
        )
    return rows


def room_for_texts(max_length: int, pairs: bool) -> int:
    """The tokens that the special ones leave of a greatest length."""
    n_specials, least, row = (3, 5, "a pair of texts") if pairs else (2, 3, "a text")
    try:
        value = -1 if isinstance(max_length, bool) else index(max_length)
    except TypeError:
        value = -1
    if value < least:
        raise ValueError(
            f"max_length must be a whole number of at least {least} for {row} ({n_specials} special tokens and at "
            f"least one piece of each text), got {max_length!r}."
        )
    return value - n_specials


def assemble(
    tokenizer: WordPieceTokenizer,
    rows: np.ndarray,
    truncated: np.ndarray,
    first: np.ndarray,
    first_lengths: np.ndarray,
    second: np.ndarray | None = None,
    second_lengths: np.ndarray | None = None,
) -> TokenSequences:
    """Put pieces of the texts, one sequence's after the other's, and the special tokens in place."""
    splits = row_splits(first_lengths + 2 if second is None else first_lengths + second_lengths + 3)
    starts = splits[:-1]
    # Every place that gets no piece of a text is a [SEP], or the [CLS] at the start.
    values = np.full(splits[-1], tokenizer.sep_id, np.int32)
    values[starts] = tokenizer.cls_id
    values[ranges(starts + 1, first_lengths)] = first
    if second is not None:
        values[ranges(starts + first_lengths + 2, second_lengths)] = second
    return TokenSequences(Ragged(values, splits), first_lengths + 2, truncated, rows)


def row_splits(lengths: np.ndarray) -> np.ndarray:
    """Where rows of these lengths begin and end in a flat array."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The ranges [start, start + length), one after the other."""
    splits = row_splits(lengths)
    return np.repeat(starts - splits[:-1], lengths) + np.arange(splits[-1])
