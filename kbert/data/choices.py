"""Rows of multiple choice, a context, a question and options each, from any container. No Keras here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.columns import is_empty, rows_with_empty, taken
from kbert.data.frames import (
    NO_SAMPLES,
    Column,
    Table,
    is_missing,
    is_sparse,
    listed_rows,
    named_columns,
    read_table,
    refuse_one_row,
    refuse_what_has_no_rows,
    require_y,
)
from kbert.data.labels import check_n_labels
from kbert.data.mistakes import hint_for_list_as_text
from kbert.data.texts import plain_texts
from kbert.values.printable import shown
from kbert.values.surrogates import require_no_surrogates

NAMES = ("context", "question", "options")


@dataclass(frozen=True)
class ChoiceColumns:
    """Rows of multiple choice as plain lists. It is one kind of `kbert.data.columns.Columns`.

    Attributes
    ----------
    contexts : list of str
    questions : list of str or None
        None if X has no questions.
    options : list of list of str
        At least two for each row.
    names : list of str or None
        The names of the columns that were read, in the order of `NAMES`, if X is a DataFrame that names them all.
    n_missing : int
        How many contexts and questions were missing or empty; 0 in `rows`.
    """

    contexts: Sequence[str]
    questions: Sequence[str] | None
    options: list[list[str]]
    names: list[str] | None = None
    n_missing: int = 0

    @property
    def columns(self) -> tuple[Sequence[Any], ...]:
        """Contexts and options, or contexts, questions and options."""
        return (
            (self.contexts, self.options) if self.questions is None else (self.contexts, self.questions, self.options)
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.contexts)

    @property
    def n_options(self) -> NDArray[np.int64]:
        """Number of options of each row, int64, shape (n_rows,)."""
        return np.fromiter(map(len, self.options), np.int64, self.n_rows)

    @property
    def n_characters(self) -> NDArray[np.int64]:
        """Characters of each row; context and question are counted once for each option. int64, shape (n_rows,)."""
        common = np.fromiter(map(len, self.contexts), np.int64, self.n_rows)
        if self.questions is not None:
            common += np.fromiter(map(len, self.questions), np.int64, self.n_rows)
        own = np.fromiter((sum(map(len, options)) for options in self.options), np.int64, self.n_rows)
        return self.n_options * common + own

    def missing_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows with a missing or empty context or question."""
        return rows_with_empty([self.contexts] if self.questions is None else [self.contexts, self.questions])

    def texts(self) -> Iterator[str]:
        """All texts: the contexts, the questions, then the options."""
        return chain(self.contexts, self.questions or [], *self.options)

    def rows(self, rows: slice) -> ChoiceColumns:
        """Some neighbouring rows."""
        questions = None if self.questions is None else self.questions[rows]
        return ChoiceColumns(self.contexts[rows], questions, self.options[rows], self.names)

    def take(self, rows: NDArray[Any]) -> ChoiceColumns:
        """Some rows, by their numbers."""
        questions = None if self.questions is None else taken(self.questions, rows)
        return ChoiceColumns(taken(self.contexts, rows), questions, list(taken(self.options, rows)), self.names)

    def keys(self) -> Iterator[Hashable]:
        """The context, the question and the options of each row."""
        return zip(*self.columns[:-1], map(tuple, self.options), strict=True)


def choice_columns(X: Any, name: str = "X") -> ChoiceColumns:
    """Read multiple choice out of any usual container.

    Parameters
    ----------
    X : array-like
        A DataFrame with columns named context, options and, if there are questions, question, among any others; or two
        columns (contexts, options) or three (contexts, questions, options) in a DataFrame without these names, an array
        or a list of tuples. The options of a row are a list, a tuple or an array of str. A missing context or question
        becomes "".
    name : str, default="X"
        What messages call X.

    Returns
    -------
    ChoiceColumns

    Raises
    ------
    TypeError
        If X is no container of rows, a context or question is no text, or options are no list of texts.
    ValueError
        If X is empty or has other columns, a row has fewer than two options or an empty one, or a text has a lone
        surrogate.
    """
    _refuse_one_row(X, name)
    refuse_what_has_no_rows(X, name)
    table = read_table(X, name)
    if table.shape[0] == 0:
        raise ValueError(f"{NO_SAMPLES.format(table.shape)} {name} is empty: give at least one row.")
    columns, names = _chosen(table, name)
    *text_columns, option_column = columns
    read = [plain_texts(column, name) for column in text_columns]
    texts = [plain for plain, _ in read]
    n_missing = sum(missing for _, missing in read)
    options = [_options(option_column, i, name) for i in range(table.shape[0])]
    for i, of_row in enumerate(options):
        for j, option in enumerate(of_row):
            if not option.isascii():
                require_no_surrogates(option, f"{option_column.where(i, name)}: option {j}")
    return ChoiceColumns(texts[0], texts[1] if len(texts) > 1 else None, options, names, n_missing)


def _refuse_one_row(X: Any, name: str) -> None:
    """Raise for the context and the options of one row alone."""
    refuse_one_row(X, ("context", "options"), name)
    if isinstance(X, Mapping) and not is_sparse(X) and isinstance(X.get("context"), str):
        raise TypeError(f"{name} is one row, a {type(X).__name__}. Make it a table: pd.DataFrame([{name}]).")
    if isinstance(X, list | tuple) and len(X) in (2, 3) and isinstance(X[-1], list | tuple):
        if all(isinstance(text, str) for text in X[:-1]):
            raise TypeError(f"{name} is one row, a {type(X).__name__}. Put it in a list: [{name}].")


def _chosen(table: Table, name: str) -> tuple[list[Column], list[str] | None]:
    """The columns in the order of `NAMES`, and their names."""
    wanted = "context, options and, if there are questions, question"
    found = named_columns(table, NAMES, ("context", "options"), wanted, name)
    if found:
        return list(found.values()), list(found)
    if not table.columns:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={table.shape}) while a minimum of 2 is required. Give contexts and "
            "options."
        )
    if len(table.columns) not in (2, 3):
        raise ValueError(
            f"{name} has {table.described}, where context and options, or context, question and options are expected. "
            "Give a DataFrame with columns of these names, or a list of tuples, the options of a row in one list."
        )
    return table.columns, table.names


def _options(column: Column, i: int, name: str) -> list[str]:
    """The options of one row as plain str."""
    value = column.values[i]
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if (
        isinstance(value, list)
        and len(value) > 1
        and all(type(option) is str and not is_empty(option) for option in value)
    ):
        return list(value)
    where = column.where(i, name)
    if not isinstance(value, list | tuple):
        if is_missing(value):
            raise ValueError(f"{where} has no options, but {shown(value)}. Drop the row, or give it two or more.")
        raise TypeError(
            f"{where} is no list of options but of type {type(value).__name__}: {shown(value)}.{_hint(value)}"
        )
    if len(value) < 2:
        raise ValueError(
            f"{where} has {'one option' if value else 'no options'}, {shown(value)}, and at least two are needed to "
            "choose from. Drop the row, or give it more."
        )
    return [_option(option, j, where) for j, option in enumerate(value)]


def _option(option: Any, j: int, where: str) -> str:
    if is_missing(option) or (isinstance(option, str) and is_empty(option)):
        raise ValueError(
            f"{where} has an empty option: option {j} is {shown(option)}. Drop it, or say what it stands for."
        )
    if not isinstance(option, str):
        raise TypeError(
            f"{where}: option {j} is of type {type(option).__name__}, not a text: {shown(option)}. Make it a str."
        )
    return str.__str__(option)  # not str(option), which of a subclass may be anything


def _is_list_of_texts(value: Any) -> bool:
    is_list = isinstance(value, list | tuple) or isinstance(value, np.ndarray) and value.ndim == 1
    return is_list and len(value) > 1 and all(isinstance(text, str) for text in value)


def _hint(value: Any) -> str:
    """What to do about options that are no list, for a message."""
    if isinstance(value, str):
        return hint_for_list_as_text(value) or " Give a list of at least two texts."
    if isinstance(value, dict):
        lists = {key: len("".join(texts)) for key, texts in value.items() if _is_list_of_texts(texts)}
        if lists:  # the longer texts are the options: others are their letters
            longest = max(lists, key=lambda key: lists[key])
            return f" Take the list of texts out of it: df['options'].str[{longest!r}], for example."
        return " Take the texts out of it: df['options'].map(lambda options: list(options.values()))."
    return " Give a list, a tuple or a one-dimensional array of at least two texts."


def option_indices(y: Any, n_options: NDArray[np.int64], name: str = "y") -> NDArray[np.int64]:
    """Read the index of the right option of each row.

    Parameters
    ----------
    y : array-like of int, shape (n_rows,)
        A list, Series or array of indices from 0; they may be floats with whole values.
    n_options : ndarray of int, shape (n_rows,)
        Number of options of each row.
    name : str, default="y"
        What messages call y.

    Returns
    -------
    ndarray of int64, shape (n_rows,)

    Raises
    ------
    TypeError
        If a value is no number.
    ValueError
        If the length is wrong, or a number is missing, not whole or not among the row's options.
    """
    n_rows = len(n_options)
    require_y(y, f"the index of the right option, from 0, for each of the {n_rows} rows")
    refuse_what_has_no_rows(y, name)
    table = read_table(y, name)
    if len(table.columns) != 1:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape {table.shape} instead. Give one index for each row."
        )
    check_n_labels(table.shape, n_rows, name)
    column = table.columns[0]
    missing = [i for i, value in enumerate(column.values) if is_missing(value)]
    if missing:
        raise ValueError(
            f"Input {name} contains NaN: {len(missing)} missing, at {listed_rows(column, missing)}. Drop these rows "
            f"from X and {name}."
        )
    return np.array([_index(column, i, n, name) for i, n in enumerate(n_options.tolist())], np.int64)


def _index(column: Column, i: int, n_options: int, name: str) -> int:
    value = column.values[i]
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(
            f"{name} must be the index of the right option, a whole number from 0: {column.row(i)} is {shown(value)}, "
            f"of type {type(value).__name__}. For the option's text, take options.index(text)."
        )
    if value != np.floor(value):
        raise ValueError(f"{name} is {shown(value)} in {column.row(i)}, and the index of an option is a whole number.")
    if not 0 <= value < n_options:
        raise ValueError(
            f"{name} is {shown(value)} in {column.row(i)}, which has {n_options} options: 0 to {n_options - 1}. "
            "Indices count from 0; leave out rows whose right option is not known."
        )
    return int(value)
