"""What the X of an estimator is read into: one interface, whatever the task."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kbert.data.arrow_texts import ArrowTexts


class Columns(Protocol):
    """Rows of X as plain Python lists: of texts, pairs, questions, options or words.

    `TextColumns`, `QuestionColumns`, `ChoiceColumns` and `WordColumn` have these members, and each has attributes of
    its own besides. They are immutable.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def names(self) -> list[str] | None:
        """The names of the columns of a DataFrame, in the order in which they are read; None if X has no names."""

    @property
    def n_missing(self) -> int:
        """How many texts were missing or empty, over all rows and columns; 0 for a selection of rows."""

    def missing_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows with such texts, ascending."""

    @property
    def n_characters(self) -> NDArray[np.int64]:
        """Characters that are tokenised for each row, shape (n_rows,)."""

    def texts(self) -> Iterator[str]:
        """All texts, in no particular order, to learn a vocabulary from."""

    def keys(self) -> Iterator[Hashable]:
        """What identifies each row: equal for two rows that are the same, and for no others."""

    def rows(self, rows: slice) -> Self:
        """Some neighbouring rows."""

    def take(self, rows: NDArray[Any]) -> Self:
        """Some rows, by their numbers."""


def character_counts(columns: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Characters of each row over all columns, shape (n_rows,)."""
    n_rows = len(columns[0])
    return sum((np.fromiter(map(len, column), np.int64, n_rows) for column in columns), np.zeros(n_rows, np.int64))


def taken(column: Sequence[Any], rows: NDArray[Any]) -> Sequence[Any]:
    """Some values of a column, by the numbers of their rows."""
    return column.take(rows) if isinstance(column, ArrowTexts) else [column[i] for i in rows.tolist()]


def is_empty(text: str) -> bool:
    """Whether a text has nothing but white space, if anything."""
    return not text or text.isspace()


def rows_with_empty(columns: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """The numbers of the rows in which a column has an empty text, ascending."""
    return np.array([i for i, texts in enumerate(zip(*columns, strict=True)) if any(map(is_empty, texts))], np.int64)
