"""Any number of labels for each row: an indicator matrix, or a list of labels in each row. No Keras here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.data.frames import Column, is_missing, is_sparse, may_hold_lists, only_column, read_table, to_known_container
from kbert.data.labels import check_n_labels, typed_labels
from kbert.values.printable import shown

_LISTS = (list, tuple, set, frozenset, np.ndarray)


class LabelSets(NamedTuple):
    """The labels of each row.

    Attributes
    ----------
    indicator : ndarray of bool, shape (n_rows, n_classes)
        Which labels each row has.
    classes : ndarray of shape (n_classes,)
        The labels: sorted, or the columns of a matrix in their order.
    columns : list of str or int, or None
        The names of a matrix's columns, which are then its classes; None if the columns have no names, and their
        numbers are the classes.
    """

    indicator: NDArray[np.bool_]
    classes: NDArray[Any]
    columns: list[str | int] | None = None

    def under(self, classes: NDArray[Any], name: str = "y") -> NDArray[np.bool_]:
        """The indicator matrix with one column for each of ``classes``, in their order.

        Raises
        ------
        ValueError
            If a row has a label that is none of ``classes``.
        """
        number = {label: i for i, label in enumerate(classes.tolist())}
        unknown = [label for label in self.classes[self.indicator.any(axis=0)].tolist() if label not in number]
        if unknown:
            raise ValueError(f"{name} holds labels that y of fit did not: {unknown[:5]}.")
        indicator = np.zeros((len(self.indicator), len(classes)), bool)
        for i, label in enumerate(self.classes.tolist()):
            if label in number:
                indicator[:, number[label]] = self.indicator[:, i]
        return indicator


def kind_of_labels(y: Any, lists: bool = False) -> str:
    """In which form y gives labels: "labels", one for each row; an "indicator" matrix; or "lists" of labels.

    Parameters
    ----------
    y : array-like
    lists : bool, default=False
        Whether lists of equal length, at least two, that have only 0 and 1 are lists of the labels 0 and 1. By default
        they are the rows of an indicator matrix, as in scikit-learn's ``type_of_target``.
    """
    if is_sparse(y):
        return "indicator"
    y = only_column(to_known_container(y))
    if getattr(y, "ndim", 1) == 2:
        return "indicator"
    if not may_hold_lists(y):
        return "labels"
    rows = [row for row in y if _is_list(row)]
    if not rows:
        return "labels"
    lengths = set(map(len, rows))
    numbers = len(rows) == len(y) and len(lengths) == 1 and not any(isinstance(row, set | frozenset) for row in rows)
    if numbers and lengths != {0}:
        values = set(map(type, (value for row in rows for value in row)))
        if not any(issubclass(kind, str) for kind in values):
            if lengths == {1}:
                return "labels"  # a column: one label for each row
            if not lists and all(_is_zero_or_one(value) for row in rows for value in row):
                return "indicator"
    return "lists"


def label_sets(y: Any, n_rows: int, name: str = "y", lists: bool = False) -> LabelSets:
    """Read any number of labels for each row.

    Parameters
    ----------
    y : array-like
        An indicator matrix (DataFrame, array, sparse matrix, list of rows) of 0 and 1 or of booleans, a column for each
        label; or a list, Series or array of lists, tuples or sets of labels.
    n_rows : int
        Number of rows that y must have.
    name : str, default="y"
        What messages call y.
    lists : bool, default=False
        As in `kind_of_labels`.

    Returns
    -------
    LabelSets

    Raises
    ------
    ValueError
        If the length is wrong, a matrix holds other values than 0 and 1, or a row is no list.
    TypeError
        If labels mix types, or are neither str nor whole numbers nor booleans.
    """
    is_indicator = kind_of_labels(y, lists) == "indicator"  # a sparse one may have one column
    if is_sparse(y):
        y = y.toarray()
    read = _read_indicator if is_indicator else _read_lists
    return read(to_known_container(y), n_rows, name)


def _is_zero_or_one(value: Any) -> bool:
    return isinstance(value, int | float | bool | np.generic) and value in (0, 1)


def _read_indicator(y: Any, n_rows: int, name: str) -> LabelSets:
    table = read_table(y, name)
    check_n_labels(table.shape, n_rows, name)
    indicator = np.zeros(table.shape, bool)
    for j, column in enumerate(table.columns):
        numbers = np.asarray(column.values)
        if numbers.dtype.kind in "biuf" and np.isin(numbers, (0, 1)).all():
            indicator[:, j] = numbers
            continue
        for i, value in enumerate(column.values):
            if not _is_zero_or_one(value):
                if is_missing(value):
                    raise ValueError(f"Input {name} contains NaN: {column.called} in {column.row(i)}. Fill it with 0.")
                raise ValueError(
                    f"{name} should be a 1d array, got an array of shape {table.shape} instead, and it is no indicator "
                    f"matrix either: {column.called} is {shown(value)} in {column.row(i)}. Give one label for each "
                    "row, such as df['label']; or for several labels a row a matrix of 0 and 1, or lists of labels."
                )
            indicator[i, j] = value == 1
    names = table.target_names
    if names is None:
        return LabelSets(indicator, np.arange(table.shape[1]))
    small = all(isinstance(label, int) and abs(label) < 2**63 for label in names)
    return LabelSets(indicator, np.array(names, dtype=np.int64 if small else object), names)


def _is_list(row: Any) -> bool:
    return isinstance(row, _LISTS) and not (isinstance(row, np.ndarray) and row.ndim == 0)


def _read_lists(y: Any, n_rows: int, name: str) -> LabelSets:
    y = only_column(y)
    column = Column(list(y), name, "", None, y.index if hasattr(y, "iloc") else None)
    check_n_labels((len(column.values),), n_rows, name)
    for i, row in enumerate(column.values):
        if not _is_list(row):
            what = "missing" if is_missing(row) else f"{shown(row)}, which is no list"
            raise ValueError(f"{name}: {column.row(i)} is {what}. Give a list of labels for each row; [] for none.")
    rows = np.repeat(np.arange(n_rows), [len(row) for row in column.values])
    values = [value.item() if isinstance(value, np.generic) else value for row in column.values for value in row]
    if not values:
        return LabelSets(np.zeros((n_rows, 0), bool), np.array([], dtype=object))
    labels = typed_labels(_Labels(values, name, "[[str(label) for label in row] for row in y]", row_numbers=rows), name)
    classes, number = np.unique(labels, return_inverse=True)
    indicator = np.zeros((n_rows, len(classes)), bool)
    indicator[rows, number] = True
    return LabelSets(indicator, classes)


@dataclass(frozen=True)
class _Labels(Column):
    """The labels of all lists, and the number of the row of each."""

    row_numbers: NDArray[np.int64] | None = None

    def row(self, i: int) -> str:
        assert self.row_numbers is not None
        return f"a label of row {self.row_numbers[i]}"
