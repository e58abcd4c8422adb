"""Rows of question answering, a question and a context each, from any container. No Keras here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.columns import character_counts, rows_with_empty, taken
from kbert.data.frames import (
    NO_SAMPLES,
    Table,
    named_columns,
    read_table,
    refuse_one_row,
    refuse_what_has_no_rows,
)
from kbert.data.texts import plain_texts

NAMES = ("question", "context")


@dataclass(frozen=True)
class QuestionColumns:
    """Questions and their contexts as plain lists. It is one kind of `kbert.data.columns.Columns`.

    Attributes
    ----------
    questions, contexts : list of str, or ArrowTexts
    names : list of str or None
        The names of the columns that were read, questions first, if X is a DataFrame that names them.
    n_missing : int
        How many questions and contexts were missing or empty; 0 in `rows` and `take`.
    """

    questions: Sequence[str]
    contexts: Sequence[str]
    names: list[str] | None = None
    n_missing: int = 0

    @property
    def columns(self) -> tuple[Sequence[str], Sequence[str]]:
        """Questions and contexts."""
        return self.questions, self.contexts

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.questions)

    @property
    def n_characters(self) -> NDArray[np.int64]:
        """Characters of each row: of its question and of its context; int64, shape (n_rows,)."""
        return character_counts(self.columns)

    def missing_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows with a missing or empty question or context."""
        return rows_with_empty(self.columns)

    def texts(self) -> Iterator[str]:
        """All texts: the questions, then the contexts."""
        return chain(self.questions, self.contexts)

    def rows(self, rows: slice) -> QuestionColumns:
        """Some neighbouring rows."""
        return QuestionColumns(self.questions[rows], self.contexts[rows], self.names)

    def take(self, rows: NDArray[Any]) -> QuestionColumns:
        """Some rows, by their numbers."""
        return QuestionColumns(taken(self.questions, rows), taken(self.contexts, rows), self.names)

    def keys(self) -> Iterator[Hashable]:
        """The question and the context of each row."""
        return zip(*self.columns, strict=True)


def question_columns(X: Any, name: str = "X") -> QuestionColumns:
    """Read questions and contexts out of any usual container.

    Parameters
    ----------
    X : array-like
        A DataFrame with columns named question and context, in any order and among any others; or two columns, of
        questions and of contexts, in a DataFrame without these names, an array or a list of tuples. A missing text
        (None, NaN, pd.NA) becomes "".
    name : str, default="X"
        What messages call X.

    Returns
    -------
    QuestionColumns

    Raises
    ------
    TypeError
        If X is no container of rows, or a value is no text.
    ValueError
        If X is empty, is one row only, or has other columns, or a text holds a lone surrogate.
    """
    refuse_one_row(X, NAMES, name)
    refuse_what_has_no_rows(X, name)
    table = read_table(X, name, of_texts=True)
    if table.shape[0] == 0:
        raise ValueError(f"{NO_SAMPLES.format(table.shape)} {name} is empty: give at least one row.")
    found = named_columns(table, NAMES, NAMES, "question and context", name)
    columns, names = (list(found.values()), list(found)) if found else (table.columns, table.names)
    if len(columns) != 2:
        raise ValueError(_no_two_columns(table, name))
    (questions, n_questions), (contexts, n_contexts) = (plain_texts(column, name) for column in columns)
    return QuestionColumns(questions, contexts, names, n_questions + n_contexts)


def _no_two_columns(table: Table, name: str) -> str:
    """The message for a table whose question and context cannot be told apart from other columns."""
    n_columns = len(table.columns)
    message = f"{name} has {table.described}, where question and context are expected."
    if n_columns == 0:
        return f"Found array with 0 feature(s) (shape={table.shape}) while a minimum of 2 is required. {message}"
    if n_columns == 1:
        values = table.columns[0].values
        if isinstance(values[0], Mapping):
            return f"{message} Make a table of the dicts: pd.DataFrame(list({name}))."
        if not table.labels and len(values) == 2 and all(isinstance(value, str) for value in values):
            return f"{message} If it is one row, put it in a list: [(question, context)]."
    if not table.labels and table.shape[0] == 2 and n_columns > 2:
        return f"{message} Rows go first: list(zip(questions, contexts))."
    return f"{message} Give a DataFrame with columns of these names, or tuples: list(zip(questions, contexts))."
