"""pandas and other containers -> plain columns of texts. No Keras here.

Whatever the caller hands over is read and never changed; every result is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kbert.data.arrow_texts import ArrowTexts
from kbert.errors import MissingTextWarning
from kbert.text.vocabulary import require_no_surrogates
from kbert.warn import warn_user

NO_SAMPLES = "Found array with 0 sample(s) (shape={}) while a minimum of 1 is required."


@dataclass(frozen=True)
class TextColumns:
    """Texts as plain lists.

    Attributes
    ----------
    columns : tuple of list of str or of ArrowTexts
        One list for each column, all of the same length; a slice of it is a list.
    names : list of str or None
        The column names of a DataFrame, if all of them are strings; what scikit-learn calls ``feature_names_in_``.
    n_missing : int
        How many texts, over all columns, were missing or empty; 0 in `rows`.
    """

    columns: tuple[list[str] | ArrowTexts, ...]
    names: list[str] | None = None
    n_missing: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0])

    @property
    def n_characters(self) -> np.ndarray:
        """Characters of each row, int64, shape (n_rows,)."""
        return sum(np.fromiter(map(len, column), np.int64, self.n_rows) for column in self.columns)

    def texts(self) -> Iterator[str]:
        """All texts, column by column."""
        return chain(*self.columns)

    def rows(self, rows: slice) -> TextColumns:
        """Some neighbouring rows."""
        return TextColumns(tuple(column[rows] for column in self.columns), self.names, 0)


class Column(NamedTuple):
    """One column as it came: values, its name in a message, how to make it text, dtype, row labels and label."""

    values: list | ArrowTexts
    called: str
    convert: str
    dtype: Any = None
    index: pd.Index | None = None
    label: str | None = None

    def row(self, i: int) -> str:
        """Row i in a message: its position, and its label where that is another one."""
        if self.index is None or (isinstance(self.index, pd.RangeIndex) and self.index[i] == i):
            return f"row {i}"
        return f"row {i} (index {shown(self.index[i])})"


class Table(NamedTuple):
    """The columns of a container, its shape, and the labels of its columns if it is a DataFrame."""

    columns: list[Column]
    shape: tuple[int, ...]
    labels: list | None = None

    @property
    def names(self) -> list[str] | None:
        """The labels if all of them are strings."""
        named = bool(self.labels) and all(isinstance(label, str) for label in self.labels)
        return list(self.labels) if named else None

    @property
    def target_names(self) -> list[str | int] | None:
        """The labels if they are strings or whole numbers, each another one: what columns of y are known by."""
        labels = self.labels or []
        named = all(isinstance(label, str | int | np.integer) and not isinstance(label, bool) for label in labels)
        if not labels or not named or len(set(labels)) < len(labels):
            return None
        return [label if isinstance(label, str) else int(label) for label in labels]


def text_columns(X: Any, *, columns: tuple[int, ...] = (1, 2), name: str = "X") -> TextColumns:
    """Read one or more columns of texts out of any usual container.

    Parameters
    ----------
    X : array-like
        For one column: a list or tuple of str, a Series, an Index, a 1-D array, or anything with one column. For
        several: a DataFrame, a 2-D array, or a list of rows, such as pairs of str. Containers of other libraries are
        read through their ``to_pandas`` or ``__array__``. A missing text (None, NaN, pd.NA, NaT) becomes "".
    columns : tuple of int
        The numbers of columns that are allowed.
    name : str
        What the caller calls X, for messages.

    Returns
    -------
    TextColumns
        Row i of X is entry i of each column.

    Raises
    ------
    TypeError
        If X is no container of rows (a dict, an iterator, a sparse matrix), or a value is not a text.
    ValueError
        If X is a bare str, is empty, is ragged, has another number of columns, or a text holds a lone surrogate.
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
        require_whole_characters(column, plain, name)
        texts.append(plain)
        n_missing += missing
    return TextColumns(tuple(texts), table.names, n_missing)


def warn_missing(n_missing: int, n_rows: int) -> None:
    """Issue one MissingTextWarning that counts the missing texts, if there are any."""
    if n_missing:
        warn_user(
            f"{n_missing} of the texts in {n_rows} rows {'are' if n_missing > 1 else 'is'} missing (None, NaN, pd.NA "
            "or '') and read as empty. Every row still gets a result; drop or fill such rows if that is not wanted.",
            MissingTextWarning,
        )


# --- Containers -> columns


def refuse_what_has_no_rows(X: Any, name: str) -> None:
    """Raise for what is no container of rows, or one whose rows have no order or are gone after one reading."""
    if isinstance(X, str):
        raise ValueError(
            f"{name} is a single str ({shown(X)}), where one value for each row is expected. Put it in a list: "
            f"[{shown(X)}]."
        )
    if isinstance(X, bytes | bytearray):
        raise TypeError(f"{name} is {type(X).__name__}. Decode it, and put it in a list: [{name}.decode('utf-8')].")
    # Before mappings, since scipy's dictionary of keys is one.
    if hasattr(X, "tocsr") and hasattr(X, "toarray"):
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required. Give a list, a Series, a DataFrame or an "
            "array."
        )
    if isinstance(X, Mapping):
        raise TypeError(
            f"{name} is a {type(X).__name__}. Make it a table: pd.DataFrame({name}), and choose its columns."
        )
    if isinstance(X, Iterator):
        raise TypeError(
            f"{name} is a {type(X).__name__}, which can be read only once. Wrap it in a list: list({name})."
        )
    if isinstance(X, Set):
        raise TypeError(f"{name} is a {type(X).__name__}, whose rows have no order. Make it a list: sorted({name}).")
    is_container = (
        hasattr(X, "to_pandas") or hasattr(X, "__array__") or (hasattr(X, "__len__") and hasattr(X, "__iter__"))
    )
    if not is_container or np.isscalar(X) or isinstance(X, type):
        raise TypeError(_not_array_like(X, name))


def _not_array_like(X: Any, name: str) -> str:
    return (
        f"Expected array-like (array or non-string sequence), got {shown(X)} as {name}. Give a list, a Series, a "
        "DataFrame or an array."
    )


def read_table(X: Any, name: str, of_texts: bool = False) -> Table:
    """The columns of any container; with ``of_texts``, texts that pyarrow holds are left there until they are read."""

    def values_of(X: pd.Series | pd.Index) -> list | ArrowTexts:
        return ArrowTexts(X.array) if of_texts and _held_by_arrow(X.dtype) else X.tolist()

    X = to_known_container(X)
    if isinstance(X, pd.DataFrame):
        labels = list(X.columns)
        columns = []
        for j, label in enumerate(labels):
            if isinstance(label, str):
                require_no_surrogates(label, f"{name}: the name of column {j}")
            # By position, because two columns may have the same name.
            series = X.iloc[:, j]
            convert = f"df[{shown(label)}].astype(str), or choose another column"
            columns.append(Column(values_of(series), f"column {shown(label)}", convert, series.dtype, X.index))
        return Table(columns, X.shape, labels)
    if isinstance(X, pd.Series | pd.Index):
        called = name if X.name is None else f"column {shown(X.name)}"
        source = name if X.name is None else f"df[{shown(X.name)}]"
        index = X.index if isinstance(X, pd.Series) else None
        return _split_rows(Column(values_of(X), called, f"{source}.astype(str)", X.dtype, index), name)
    if isinstance(X, np.ndarray):
        convert = f"{name}.astype(str)"
        if X.ndim == 0:
            raise TypeError(_not_array_like(X, name))
        if X.ndim == 1:
            return _split_rows(Column(X.tolist(), name, convert, X.dtype), name)
        if X.ndim == 2:
            columns = [Column(X[:, j].tolist(), f"column {j}", convert, X.dtype) for j in range(X.shape[1])]
            return Table(columns, X.shape)
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required. Give {name} the shape (rows, columns)."
        )
    return _split_rows(Column(list(X), name, f"[str(value) for value in {name}]"), name)


def _held_by_arrow(dtype: Any) -> bool:
    """Whether the strings of a pandas column are no Python objects."""
    if isinstance(dtype, pd.StringDtype):
        return dtype.storage == "pyarrow"
    return isinstance(dtype, pd.ArrowDtype) and dtype.type is str


def read_column(X: Any, name: str) -> Column:
    """The one column of a container, whose values may be lists themselves, as they are.

    Raises
    ------
    TypeError, ValueError
        If it is no container of rows, or has several columns.
    """
    refuse_what_has_no_rows(X, name)
    X = to_known_container(X)
    if isinstance(X, pd.DataFrame):
        if X.shape[1] != 1:
            raise ValueError(f"{name} has {X.shape[1]} columns, where 1 is expected: choose it, as in df['words'].")
        label = X.columns[0]
        if isinstance(label, str):
            require_no_surrogates(label, f"{name}: the name of its column")
        X = X.iloc[:, 0]
        return Column(X.tolist(), name, "", X.dtype, X.index, label if isinstance(label, str) else None)
    if isinstance(X, pd.Series):
        return Column(X.tolist(), name, "", X.dtype, X.index)
    return Column(list(X), name, "")


def named_columns(
    table: Table, names: tuple[str, ...], required: tuple[str, ...], wanted: str, name: str
) -> dict[str, Column]:
    """The columns that have one of some names, by name and in the order of ``names``; empty if none has.

    Parameters
    ----------
    table : Table
    names, required : tuple of str
        What is looked for, and what must be there as soon as one of them is.
    wanted : str
        The names in words, for messages.
    name : str
        What the caller calls the table, for messages.

    Raises
    ------
    ValueError
        If a required one is missing and another is there, or two columns have the same name.
    """
    labels = table.labels or []
    found = [label for label in names if label in labels]
    for label in required if found else ():
        if label not in labels:
            raise ValueError(
                f"{name} has a column {shown(found[0])} and none named {label!r}; its columns are "
                f"{listed_labels(labels)}. Name the columns {wanted}: {name}.rename(columns={{...}})."
            )
    for label in found:
        if labels.count(label) > 1:
            raise ValueError(f"{name} has {labels.count(label)} columns named {label!r}. Choose one of them.")
    return {label: table.columns[labels.index(label)] for label in found}


def listed_labels(labels: list, most: int = 10) -> str:
    """The first few labels of columns."""
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(map(shown, labels[:most])) + more


def columns_by_name(labels: list[str | int], wanted: list[str | int], name: str) -> list[int]:
    """The place of each wanted column of a table of as many.

    Columns that are numbered as pandas numbers those without names count by their place.

    Raises
    ------
    ValueError
        If the names are others.
    """
    if set(labels) == set(wanted):
        return [labels.index(label) for label in wanted]
    if labels == list(range(len(wanted))):
        return labels
    raise ValueError(
        f"{name} has the columns {listed_labels(labels)}, and y of fit had {listed_labels(wanted)}. Select these, or "
        "rename them."
    )


def refuse_one_row(X: Any, names: tuple[str, ...], name: str) -> None:
    """Raise for one row of a table with these columns: a dict of single values, or a Series labelled by them."""
    if isinstance(X, pd.Series) and all(label in X.index for label in names):
        raise ValueError(
            f"{name} is one row of a DataFrame, a Series with the labels {listed_labels(list(X.index))}. Keep it a "
            f"DataFrame: df.iloc[[i]], or {name}.to_frame().T."
        )
    is_sparse = hasattr(X, "tocsr")  # a dictionary of keys is a mapping too
    if isinstance(X, Mapping) and not is_sparse and X and all(map(pd.api.types.is_scalar, X.values())):
        raise TypeError(
            f"{name} is one row, a {type(X).__name__} of single values. Make it a table: pd.DataFrame([{name}])."
        )


def to_known_container(X: Any) -> Any:
    """X as a DataFrame, Series, Index, array or sequence, whichever library it comes from."""
    if isinstance(X, pd.DataFrame | pd.Series | pd.Index | np.ndarray | list | tuple):
        return X
    if hasattr(X, "to_pandas"):
        try:
            return X.to_pandas()
        except ImportError:
            # polars needs pyarrow for this; without it, the names of the columns are lost.
            pass
    return np.asarray(X) if hasattr(X, "__array__") else X


def _split_rows(column: Column, name: str) -> Table:
    """A column whose values are rows themselves (pairs, say), as several columns; any other column as it is."""
    rows = column.values
    if isinstance(rows, ArrowTexts) or not any(
        issubclass(kind, list | tuple | np.ndarray) for kind in set(map(type, rows))
    ):
        return Table([column], (len(rows),))
    widths = [len(row) if isinstance(row, list | tuple) or np.ndim(row) else None for row in rows]
    for i, width in enumerate(widths):
        if width != widths[0]:
            first, other = (
                f"{shown(rows[k])} ({'no row' if w is None else f'length {w}'})"
                for k, w in ((0, widths[0]), (i, width))
            )
            raise ValueError(
                f"{name} is ragged: {column.row(0)} is {first} and {column.row(i)} is {other}. Give every row the same "
                "number of values."
            )
    convert = f"[[str(value) for value in row] for row in {name}]"
    columns = [Column([row[j] for row in rows], f"column {j}", convert, None, column.index) for j in range(widths[0])]
    return Table(columns, (len(rows), widths[0]))


def _wrong_number_of_columns(table: Table, columns: tuple[int, ...], name: str) -> str:
    """The message for a container with a number of columns that does not fit."""
    n_found = len(table.columns)
    if n_found == 0:
        return (
            f"Found array with 0 feature(s) (shape={table.shape}) while a minimum of 1 is required. Give a text column."
        )
    labels = [shown(label) for label in table.labels or []]
    listed = f" ({', '.join(labels)})" if labels else ""
    expected = " or ".join(map(str, columns))
    message = f"{name} has {n_found} column{'s' if n_found > 1 else ''}{listed}, where {expected} are expected."
    if n_found < min(columns):
        return f"{message} Give the missing columns too."
    if labels:
        most = max(n for n in columns if n < n_found)
        choice = labels[0] if most == 1 else f"[{', '.join(labels[:most])}]"
        return f"{message} Choose those that hold the texts, for example df[{choice}]."
    return f"{message} Rows go first: give one tuple for each row, as in list(zip(first_texts, second_texts))."


# --- Columns -> plain values


def plain_texts(column: Column, name: str) -> tuple[list[str] | ArrowTexts, int]:
    """The texts of a column as plain str, and how many were missing or empty."""
    if isinstance(column.values, ArrowTexts):
        filled = column.values.filled()
        return filled, sum(not text for text in filled)
    texts, n_missing = [], 0
    for i, value in enumerate(column.values):
        if type(value) is not str:
            if isinstance(value, str):
                # str() of a subclass may be anything: that of an Enum's member is its name.
                value = str.__str__(value)
            elif is_missing(value):
                value = ""
            else:
                raise TypeError(_not_a_text(column, i, name))
        if not value:
            n_missing += 1
        texts.append(value)
    return texts, n_missing


def require_whole_characters(column: Column, texts: list[str] | ArrowTexts, name: str) -> None:
    """Raise where a text has a lone surrogate, which pyarrow's UTF-8 cannot have."""
    if isinstance(texts, ArrowTexts):
        return
    of_column = "" if column.called == name else f" of {column.called}"
    for i, text in enumerate(texts):
        if not text.isascii():
            require_no_surrogates(text, f"{name}: {column.row(i)}{of_column}")


def _not_a_text(column: Column, i: int, name: str) -> str:
    """The message for a value that is no text."""
    value = column.values[i]
    of_column = "" if column.called == name else f" of {column.called}"
    dtype = "" if column.dtype is None else f" (dtype {column.dtype})"
    message = (
        f"{name}: {column.row(i)}{of_column}{dtype} is of type {type(value).__name__}, not a text: {shown(value)}."
    )
    if isinstance(value, bytes | bytearray):
        return f"{message} Decode bytes first, with value.decode('utf-8')."
    if pd.api.types.is_scalar(value):
        return f"{message} Convert with {column.convert}."
    return f"{message} Give one str for each row and column."


def is_missing(value: Any) -> bool:
    """Whether one value is None, NaN, pd.NA or NaT."""
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))


def data_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """New columns as a DataFrame, its rows numbered from 0."""
    return pd.DataFrame(dict(columns))


def listed_rows(column: Column, positions: list[int]) -> str:
    """The first few of some rows."""
    shown = ", ".join(column.row(i) for i in positions[:5])
    return shown if len(positions) <= 5 else f"{shown} and {len(positions) - 5} more"


def shown(value: Any) -> str:
    """A value in a message, cut if it is long."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
