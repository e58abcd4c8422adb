"""pandas objects and other containers -> tables of plain Python values. This file alone in data/ knows pandas.

Whatever the caller hands over is read and never changed; every result is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kbert.data.arrow_texts import ArrowTexts
from kbert.values.printable import listed, shown
from kbert.values.surrogates import require_no_surrogates

NO_SAMPLES = "Found array with 0 sample(s) (shape={}) while a minimum of 1 is required."


@dataclass(frozen=True)
class Column:
    """One column of a container, not checked yet.

    Attributes
    ----------
    values : list or ArrowTexts
        One value for each row.
    called : str
        What messages call the column.
    convert : str
        A Python expression that turns the column into texts, for messages.
    dtype : numpy or pandas dtype, optional
        That of the container, if it has one.
    index : sequence, optional
        The labels of the rows of a pandas object.
    label : str, optional
        The name of a DataFrame's column.
    """

    values: Sequence[Any]
    called: str
    convert: str
    dtype: Any = None
    index: Sequence[Any] | pd.Index | None = None
    label: str | None = None

    def row(self, i: int) -> str:
        """What messages call row i: its position, and its label if that is another one."""
        if self.index is None or (isinstance(self.index, pd.RangeIndex) and self.index[i] == i):
            return f"row {i}"
        return f"row {i} (index {shown(self.index[i])})"

    def where(self, i: int, name: str) -> str:
        """What messages call the value of row i in a table called ``name``: with the column, if there are several."""
        return f"{name}: {self.row(i)}" + ("" if self.called == name else f" of {self.called}")


class Table(NamedTuple):
    """A container as columns.

    Attributes
    ----------
    columns : list of Column
    shape : tuple of int
        That of the container: (n_rows,), or (n_rows, n_columns).
    labels : sequence
        The labels of a DataFrame's columns; empty if the container is no DataFrame.
    """

    columns: list[Column]
    shape: tuple[int, ...]
    labels: Sequence[Any] = ()

    @property
    def described(self) -> str:
        """How many columns there are, and their labels, for messages."""
        of_labels = f" ({listed_labels(self.labels)})" if self.labels else ""
        return f"{len(self.columns)} column{'s' if len(self.columns) != 1 else ''}{of_labels}"

    @property
    def names(self) -> list[str] | None:
        """The labels if all of them are strings, and different."""
        named = bool(self.labels) and all(isinstance(label, str) for label in self.labels)
        return list(self.labels) if named and len(set(self.labels)) == len(self.labels) else None

    @property
    def target_names(self) -> list[str | int] | None:
        """The labels if all of them are strings or whole numbers, and different: names for the columns of y."""
        labels = self.labels
        named = all(isinstance(label, str | int | np.integer) and not isinstance(label, bool) for label in labels)
        if not labels or not named or len(set(labels)) < len(labels):
            return None
        return [label if isinstance(label, str) else int(label) for label in labels]


# --- Containers -> columns


def readable_again(X: Any) -> Any:
    """A list of the rows of an iterable that is no container, such as a generator or an open file; else X itself.

    X and y of an estimator are looked at several times: checked, read, named in messages.
    """
    is_container = isinstance(X, type) or any(hasattr(X, name) for name in ("__len__", "__array__", "to_pandas"))
    return list(X) if isinstance(X, Iterable) and not is_container else X


def refuse_what_has_no_rows(X: Any, name: str) -> None:
    """Raise unless X is a container of rows that have an order and can be read more than once.

    Raises
    ------
    TypeError, ValueError
        With what to do instead.
    """
    if isinstance(X, str):
        raise ValueError(
            f"{name} is a single str ({shown(X)}), where one value for each row is expected. Put it in a list: "
            f"[{shown(X)}]. If it is the name of a column, give the column: df[{shown(X)}]."
        )
    if isinstance(X, bytes | bytearray):
        raise TypeError(f"{name} is {type(X).__name__}. Decode it, and put it in a list: [{name}.decode('utf-8')].")
    if is_sparse(X):
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required. Give a list, a Series, a DataFrame or an "
            "array. Texts are given as they are, without a vectorizer before kbert's estimator."
        )
    if isinstance(X, Mapping):
        raise TypeError(
            f"{name} is a {type(X).__name__}. Make it a table: pd.DataFrame({name}), and choose its columns."
        )
    if isinstance(X, Iterator):
        raise TypeError(
            f"{name} is a {type(X).__name__}, which can be read only once. Wrap it in a list: list({name})."
        )
    if isinstance(X, Set) and not isinstance(X, MappingView):  # the keys of a dict have an order
        raise TypeError(f"{name} is a {type(X).__name__}, whose rows have no order. Make it a list: sorted({name}).")
    if hasattr(X, "collect") and not hasattr(X, "__len__"):
        raise TypeError(f"{name} is a {type(X).__name__}, whose rows are not there yet. Give {name}.collect().")
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


def require_y(y: Any, wanted: str) -> None:
    """Raise where there is no y; ``wanted`` says what to give."""
    if y is None:
        raise ValueError(f"This estimator requires y to be passed, but the target y is None. Give {wanted}.")


def is_sparse(X: Any) -> bool:
    """Whether this is one of scipy's sparse containers, of which the dictionary of keys is a mapping too."""
    return hasattr(X, "tocsr") and hasattr(X, "toarray")


def refuse_one_row(X: Any, names: tuple[str, ...], name: str) -> None:
    """Raise for one row of a table with these columns: a dict of single values, or a Series labelled by them."""
    if isinstance(X, pd.Series) and all(label in X.index for label in names):
        raise ValueError(
            f"{name} is one row of a DataFrame, a Series with the labels {listed_labels(list(X.index))}. Keep it a "
            f"DataFrame: df.iloc[[i]], or {name}.to_frame().T."
        )
    if isinstance(X, Mapping) and not is_sparse(X) and X and all(map(is_scalar, X.values())):
        raise TypeError(
            f"{name} is one row, a {type(X).__name__} of single values. Make it a table: pd.DataFrame([{name}])."
        )


def to_known_container(X: Any) -> Any:
    """X as a DataFrame, Series, Index, array or sequence, whichever library it comes from."""
    if isinstance(X, np.matrix):  # whose columns have two dimensions
        return np.asarray(X)
    if isinstance(X, pd.DataFrame | pd.Series | pd.Index | np.ndarray | list | tuple):
        return X
    if hasattr(X, "to_pandas"):
        try:
            return X.to_pandas()
        except ImportError:
            # polars needs pyarrow for this; without it, the names of the columns are lost.
            pass
    return np.asarray(X) if hasattr(X, "__array__") else X


def only_column(y: Any) -> Any:
    """The only column of a DataFrame or an array of two dimensions; else y."""
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
        return y.iloc[:, 0]
    return y[:, 0] if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 else y


def may_hold_lists(y: Any) -> bool:
    """Whether a column may have lists for values: not if its dtype is one of numbers or of texts."""
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return "list" in str(dtype.pyarrow_dtype).partition("<")[0]
    return hasattr(y, "__len__") and dtype in (None, np.dtype(object))


def first_values(X: Any, names: set[Any]) -> list[Any]:
    """The first value of each column: of a DataFrame, of those among ``names``."""
    X = to_known_container(X)
    if isinstance(X, pd.DataFrame):
        return [X[name].iloc[0] for name in X.columns if name in names and len(X)]
    return list(next(iter(X), []))


def read_table(X: Any, name: str, of_texts: bool = False) -> Table:
    """The columns of any container.

    Parameters
    ----------
    X : array-like
    name : str
        What messages call X.
    of_texts : bool, default=False
        Whether the values will be read as texts. Texts in pyarrow's memory are then left there, as `ArrowTexts`.

    Raises
    ------
    TypeError, ValueError
        If X is no container, has more than two dimensions, or has rows of different lengths.
    """

    def values_of(X: pd.Series | pd.Index) -> Sequence[Any]:
        return ArrowTexts(X.array) if of_texts and _in_arrow(X.dtype) else X.tolist()

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
            return _split_rows(Column(_listed(X), name, convert, X.dtype), name)
        if X.ndim == 2:
            columns = [Column(_listed(X[:, j]), f"column {j}", convert, X.dtype) for j in range(X.shape[1])]
            return Table(columns, X.shape)
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required. Give {name} the shape (rows, columns)."
        )
    return _split_rows(Column(list(X), name, f"[str(value) for value in {name}]"), name)


def _in_arrow(dtype: Any) -> bool:
    """Whether a pandas column has its strings in pyarrow's memory, not as Python objects."""
    if isinstance(dtype, pd.StringDtype):
        return bool(dtype.storage == "pyarrow")
    # Not by ``dtype.type``, which fails for string_view: of that, pandas can do little more than give the values.
    return isinstance(dtype, pd.ArrowDtype) and str(dtype.pyarrow_dtype) in ("string", "large_string")


def _split_rows(column: Column, name: str) -> Table:
    """A column whose values are rows themselves (pairs, for instance) as several columns; any other column as it is."""
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
            words = all(isinstance(row, list | tuple) and all(isinstance(word, str) for word in row) for row in rows)
            hint = ' If a row is the words of a text: [" ".join(words) for words in X].'
            join = hint if words and name == "X" else ""
            raise ValueError(
                f"{name} is ragged: {column.row(0)} is {first} and {column.row(i)} is {other}. Give every row the same "
                f"number of values.{join}"
            )
    width = widths[0]
    if width is None:  # arrays without a dimension
        return Table([column], (len(rows),))
    convert = f"[[str(value) for value in row] for row in {name}]"
    columns = [Column([row[j] for row in rows], f"column {j}", convert, None, column.index) for j in range(width)]
    return Table(columns, (len(rows), width))


def _listed(X: np.ndarray) -> list[Any]:
    """The values of an array. Dates and durations stay NumPy's: `tolist` makes whole numbers of nanoseconds."""
    return list(X) if X.dtype.kind in "mM" else X.tolist()


def read_column(X: Any, name: str) -> Column:
    """The one column of a container. Its values may be lists, and are not changed.

    Raises
    ------
    TypeError, ValueError
        If X is no container of rows, or has several columns.
    """
    refuse_what_has_no_rows(X, name)
    X = to_known_container(X)
    if isinstance(X, pd.DataFrame):
        if X.shape[1] != 1:
            example = f", as in df[{X.columns[0]!r}]" if X.shape[1] else ""
            raise ValueError(
                f"{name} has {X.shape[1]} columns ({listed(X.columns.tolist(), shown)}), where 1 is expected: choose "
                f"it{example}."
            )
        label = X.columns[0]
        if isinstance(label, str):
            require_no_surrogates(label, f"{name}: the name of its column")
        X = X.iloc[:, 0]
        return Column(X.tolist(), name, "", X.dtype, X.index, label if isinstance(label, str) else None)
    if isinstance(X, pd.Series):
        return Column(X.tolist(), name, "", X.dtype, X.index)
    return Column(list(X), name, "")


# --- Columns by their names


def named_columns(
    table: Table, names: tuple[str, ...], required: tuple[str, ...], wanted: str, name: str
) -> dict[str, Column]:
    """The columns of a table that have one of some names.

    Parameters
    ----------
    table : Table
    names : tuple of str
        The names to look for.
    required : tuple of str
        Those of them that must be there if any of ``names`` is.
    wanted : str
        The names as messages list them.
    name : str
        What messages call the table.

    Returns
    -------
    dict of Column
        By name, in the order of ``names``; empty if the table has none of them.

    Raises
    ------
    ValueError
        If a required column is missing and another one is there, or two columns have the same name.
    """
    labels = table.labels
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


def columns_by_name(labels: Sequence[str | int], wanted: Sequence[str | int], name: str) -> list[int]:
    """The position of each wanted column in a table of as many columns.

    A table without names, whose columns pandas numbers 0, 1, ..., has them in the wanted order.

    Raises
    ------
    ValueError
        If the names are others.
    """
    if set(labels) == set(wanted):
        return [list(labels).index(label) for label in wanted]
    positions = list(range(len(wanted)))
    if list(labels) == positions:
        return positions
    raise ValueError(
        f"{name} has the columns {listed_labels(labels)}, and y of fit had {listed_labels(wanted)}. Select these, or "
        "rename them."
    )


def data_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """New columns as a DataFrame, its rows numbered from 0."""
    return pd.DataFrame(dict(columns))


def indexed_lines(lines: list[tuple[Any, ...]], columns: Mapping[str, type], X: Any) -> pd.DataFrame:
    """Lines about rows of X, of which the first value is the row's number; each has its row's index, if X has one.

    ``columns`` has the types of the columns, which say what one without lines is of. Others follow from the values.
    """
    index = row_index(X)
    rows = np.array([line[0] for line in lines], np.int64)
    index = None if index is None else index.take(rows)
    if not lines:
        return pd.DataFrame({name: pd.Series(dtype=of, index=index) for name, of in columns.items()})
    return pd.DataFrame(lines, index=index, columns=list(columns))


def row_index(X: Any) -> pd.Index | None:
    """The index of a DataFrame or Series; None for what has no labels of rows."""
    return X.index if isinstance(X, pd.DataFrame | pd.Series) else None


def column_names(X: Any) -> list[Any]:
    """The labels of a DataFrame's columns, or the name of a Series, if it has one; empty for what has no names."""
    X = to_known_container(X)
    if isinstance(X, pd.DataFrame):
        return list(X.columns)
    return [X.name] if isinstance(X, pd.Series) and X.name is not None else []


# --- Single values, and values in messages


def is_missing(value: Any) -> bool:
    """Whether one value is None, NaN, pd.NA or NaT."""
    return is_scalar(value) and bool(pd.isna(value))


def is_scalar(value: Any) -> bool:
    """Whether a value is a single one, such as a number, a str or None, and not a list, dict or array."""
    return bool(pd.api.types.is_scalar(value))


def listed_labels(labels: Sequence[Any]) -> str:
    """The first few labels of columns, for messages."""
    return listed(labels, shown, 10)


def listed_rows(column: Column, positions: list[int]) -> str:
    """The first few of some rows, for messages."""
    return listed(positions, column.row)


def listed_positions(X: Any, positions: NDArray[Any]) -> str:
    """The first few of some rows, for messages: by the labels of a pandas object's index, or else by their numbers.

    Labels that come more than once in the index say nothing, so that numbers stand there too.
    """
    if isinstance(X, pd.DataFrame | pd.Series) and X.index.is_unique:
        return f"index {listed(positions.tolist(), lambda i: shown(X.index[i]))}"
    return f"{'rows' if len(positions) > 1 else 'row'} {listed(positions.tolist())}"
