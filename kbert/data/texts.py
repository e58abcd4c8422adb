"""Texts and pairs of texts from any container. No Keras here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.arrow_texts import ArrowTexts
from kbert.data.columns import character_counts, is_empty, rows_with_empty, taken
from kbert.data.frames import (
    NO_SAMPLES,
    Column,
    Table,
    is_missing,
    is_scalar,
    read_table,
    refuse_what_has_no_rows,
)
from kbert.data.mistakes import texts_of
from kbert.values.printable import shown
from kbert.values.surrogates import require_no_surrogates


@dataclass(frozen=True)
class TextColumns:
    """Columns of texts: one for single texts, two for pairs. It is one kind of `kbert.data.columns.Columns`.

    Attributes
    ----------
    columns : tuple of list of str or of ArrowTexts
        One list for each column, all of the same length; a slice of it is a list.
    names : list of str or None
        The column names of a DataFrame, if all of them are strings, and different: scikit-learn's
        ``feature_names_in_``.
    n_missing : int
        How many texts, over all columns, were missing or empty; 0 in `rows` and `take`.
    """

    columns: tuple[Sequence[str], ...]
    names: list[str] | None = None
    n_missing: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0])

    @property
    def n_characters(self) -> NDArray[np.int64]:
        """Characters of each row, int64, shape (n_rows,)."""
        return character_counts(self.columns)

    def missing_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows with a missing or empty text."""
        return rows_with_empty(self.columns)

    def texts(self) -> Iterator[str]:
        """All texts, column by column."""
        return chain(*self.columns)

    def rows(self, rows: slice) -> TextColumns:
        """Some neighbouring rows."""
        return TextColumns(tuple(column[rows] for column in self.columns), self.names)

    def take(self, rows: NDArray[Any]) -> TextColumns:
        """Some rows, by their numbers."""
        return TextColumns(tuple(taken(column, rows) for column in self.columns), self.names)

    def keys(self) -> Iterator[Hashable]:
        """The texts of each row."""
        return zip(*self.columns, strict=True)


def text_columns(X: Any, *, columns: tuple[int, ...] = (1, 2), name: str = "X") -> TextColumns:
    """Read one or more columns of texts out of any usual container.

    Parameters
    ----------
    X : array-like
        For one column: a list or tuple of str, a Series, an Index, a 1-D array, or anything with one column. For
        several: a DataFrame, a 2-D array, or a list of rows, such as pairs of str. Containers of other libraries are
        read through their ``to_pandas`` or ``__array__``. A missing text (None, NaN, pd.NA, NaT) becomes "".
    columns : tuple of int, default=(1, 2)
        The numbers of columns that are allowed.
    name : str, default="X"
        What messages call X.

    Returns
    -------
    TextColumns
        Row i of X is entry i of each column.

    Raises
    ------
    TypeError
        If X is no container of rows (a dict, an iterator, a sparse matrix), or a value is not a text.
    ValueError
        If X is a single str, is empty, is ragged, has another number of columns, or a text holds a lone surrogate.
    """
    refuse_what_has_no_rows(X, name)
    table = read_table(X, name, of_texts=True)
    if table.shape[0] == 0:
        raise ValueError(f"{NO_SAMPLES.format(table.shape)} {name} is empty: give at least one text.")
    if len(table.columns) not in columns:
        raise ValueError(_wrong_number_of_columns(table, columns, name))
    texts, n_missing = [], 0
    for column in table.columns:
        plain, missing = plain_texts(column, name)
        texts.append(plain)
        n_missing += missing
    return TextColumns(tuple(texts), table.names, n_missing)


def _wrong_number_of_columns(table: Table, columns: tuple[int, ...], name: str) -> str:
    """The message for a container with a number of columns that is not allowed."""
    n_found = len(table.columns)
    if n_found == 0:
        return (
            f"Found array with 0 feature(s) (shape={table.shape}) while a minimum of 1 is required. Give a text column."
        )
    expected = " or ".join(map(str, columns))
    message = f"{name} has {table.described}, where {expected} are expected."
    if n_found < min(columns):
        return f"{message} Give the missing columns too."
    if table.labels:
        choice = texts_of(table)
        example = "" if choice is None else f", for example {choice}"
        return f"{message} Choose those that hold the texts{example}."
    some = [value for column in table.columns for value in column.values[:10] if not is_missing(value)]
    if some and all(isinstance(value, Number) and not isinstance(value, bool) for value in some):
        return f"{message} These are numbers: give the texts as they are, without a vectorizer before."
    return f"{message} Rows go first: give one tuple for each row, as in list(zip(first_texts, second_texts))."


# --- One column -> plain str


def plain_texts(column: Column, name: str) -> tuple[Sequence[str], int]:
    """The texts of a column as plain str, "" for missing ones, and how many were missing or empty.

    Raises
    ------
    TypeError
        If a value is neither a text nor missing.
    ValueError
        If a text has a lone surrogate.
    """
    if isinstance(column.values, ArrowTexts):  # which are UTF-8, and have no surrogates
        filled = column.values.filled()
        return filled, sum(map(is_empty, filled))
    texts, n_missing = [], 0
    for i, value in enumerate(column.values):
        if type(value) is not str:
            if isinstance(value, str):
                # Not str(value), which of a subclass may be anything: of an Enum's member it is the name.
                value = str.__str__(value)
            elif is_missing(value):
                value = ""
            else:
                raise TypeError(_not_a_text(column, i, name))
        if is_empty(value):
            n_missing += 1
        elif not value.isascii():
            require_no_surrogates(value, column.where(i, name))
        texts.append(value)
    return texts, n_missing


def _not_a_text(column: Column, i: int, name: str) -> str:
    """The message for a value that is no text."""
    value = column.values[i]
    dtype = "" if column.dtype is None else f" (dtype {column.dtype})"
    message = f"{column.where(i, name)}{dtype} is of type {type(value).__name__}, not a text: {shown(value)}."
    if isinstance(value, bytes | bytearray):
        return f"{message} Decode bytes first, with value.decode('utf-8')."
    if is_scalar(value):
        return f"{message} Convert with {column.convert}."
    return f"{message} Give one str for each row and column."
