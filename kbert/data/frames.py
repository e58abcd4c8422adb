"""pandas and other containers -> plain columns: lists of str, and arrays of labels and weights. No Keras here.

Whatever the caller hands over is read and never changed; every result is new.
"""

import warnings
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kbert.errors import MissingTextWarning

_NO_SAMPLES = "Found array with 0 sample(s) (shape={}) while a minimum of 1 is required."


@dataclass(frozen=True)
class TextColumns:
    """Texts as plain lists.

    Attributes
    ----------
    columns : tuple of list of str
        One list for each column, all of the same length.
    names : list of str or None
        The column names of a DataFrame, if all of them are strings; what scikit-learn calls ``feature_names_in_``.
    n_missing : int
        How many texts, over all columns, were missing or empty.
    """

    columns: tuple[list[str], ...]
    names: list[str] | None
    n_missing: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0])


class _Column(NamedTuple):
    """One column as it came: its values, its name in a message, how to make it text, its dtype and row labels."""

    values: list
    called: str
    convert: str
    dtype: Any = None
    index: pd.Index | None = None

    def row(self, i: int) -> str:
        """Row i in a message: its position, and its label where that is another one."""
        if self.index is None or (isinstance(self.index, pd.RangeIndex) and self.index[i] == i):
            return f"row {i}"
        return f"row {i} (index {_show(self.index[i])})"


class _Table(NamedTuple):
    """The columns of a container, its shape, and the labels of its columns if it is a DataFrame."""

    columns: list[_Column]
    shape: tuple[int, ...]
    labels: list | None = None


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
        If X is a bare str, is empty, is ragged, or has another number of columns.
    """
    _refuse_what_has_no_rows(X, name)
    table = _read_table(X, name)
    if table.shape[0] == 0:
        raise ValueError(f"{_NO_SAMPLES.format(table.shape)} {name} is empty: give at least one text.")
    if len(table.columns) not in columns:
        raise ValueError(_wrong_number_of_columns(table, columns, name))
    texts, n_missing = [], 0
    for column in table.columns:
        plain, missing = _plain_texts(column, name)
        texts.append(plain)
        n_missing += missing
    named = table.labels is not None and all(isinstance(label, str) for label in table.labels)
    return TextColumns(tuple(texts), list(table.labels) if named else None, n_missing)


def warn_missing(n_missing: int, n_rows: int, stacklevel: int = 3) -> None:
    """Tell about missing texts in one MissingTextWarning; nothing where none is missing.

    The default ``stacklevel`` points at the caller of the caller: the line that calls ``fit`` or ``predict``.
    """
    if n_missing:
        warnings.warn(
            f"{n_missing} of the texts in {n_rows} rows {'are' if n_missing > 1 else 'is'} missing (None, NaN, pd.NA "
            "or '') and read as empty. Every row still gets a result; drop or fill such rows if that is not wanted.",
            MissingTextWarning,
            stacklevel=stacklevel,
        )


def label_column(y: Any, n_rows: int, name: str = "y") -> np.ndarray:
    """Read one label for each row, in a NumPy dtype that keeps their type.

    Parameters
    ----------
    y : array-like
        Strings, whole numbers or booleans: a list, Series (categorical and nullable dtypes too) or array; a table of
        one column serves, with scikit-learn's DataConversionWarning.
    n_rows : int
        How many labels there must be.
    name : str
        What the caller calls y, for messages.

    Returns
    -------
    ndarray of shape (n_rows,)
        Of dtype object (str), int64, bool, or float64 if whole numbers came as floats.

    Raises
    ------
    ValueError
        If the length is wrong, labels are missing, there are several columns, or the numbers are not whole.
    TypeError
        If y is no container of rows, mixes types, or holds something else than str, numbers or booleans.
    """
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None. Give one label for each of the "
            f"{n_rows} rows."
        )
    _refuse_what_has_no_rows(y, name)
    table = _read_table(y, name)
    if len(table.columns) != 1:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape {table.shape} instead. Give one label for each row, "
            "that is one column, such as df['label']."
        )
    if len(table.shape) == 2:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected. Please change the shape of {name} to "
            "(n_samples, ), for example using ravel(), or choose the column of a DataFrame: df['label'].",
            DataConversionWarning,
            stacklevel=3,
        )
    n_labels = table.shape[0]
    if n_labels != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, n_labels]}. X has {n_rows} rows "
            f"and {name} has {n_labels} labels: take both from the same rows."
        )
    if n_labels == 0:
        raise ValueError(f"{_NO_SAMPLES.format(table.shape)} {name} is empty: give at least one label.")
    return _typed_labels(table.columns[0], name)


def sample_weights(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Check the weights of the rows.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,), number or None
        A number counts for every row.
    n_rows : int
        How many weights there must be.

    Returns
    -------
    ndarray of shape (n_rows,) and dtype float32, or None
        None if None was given.

    Raises
    ------
    ValueError
        If a weight is no number, not finite or negative, all are zero, or the shape is wrong.
    """
    if sample_weight is None:
        return None
    try:
        weights = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"sample_weight must be one number for each row, without gaps ({error}). For a Series with missing values "
            "use sample_weight.fillna(0)."
        ) from None
    if weights.ndim > 1:
        raise ValueError(
            f"Sample weights must be 1D array or scalar, got {weights.ndim}D array. Expected either a scalar value or "
            f"a 1D array of length {n_rows}."
        )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected {(n_rows,)}! Give one weight for each row of X, or one "
            "number for all."
        )
    # Checked as they will be used: float32 turns what is very large into infinity, and what is very small into zero.
    with np.errstate(over="ignore", under="ignore"):
        weights = weights.astype(np.float32)
    for wrong, phrase in (
        (np.isnan(weights), "Input sample_weight contains NaN"),
        (np.isinf(weights), "Input sample_weight contains infinity or a value too large for dtype('float32')"),
        (weights < 0, "Negative values in data passed to `sample_weight`"),
    ):
        if wrong.any():
            raise ValueError(f"{phrase}, first in row {int(np.argmax(wrong))}. Give weights of zero or more.")
    if not weights.any():
        raise ValueError(
            "Sample weights must contain at least one non-zero number. Leave sample_weight out for equal weights."
        )
    return weights


# --- Containers -> columns


def _refuse_what_has_no_rows(X: Any, name: str) -> None:
    """Raise for what is no container of rows, or one whose rows have no order or are gone after one reading."""
    if isinstance(X, str):
        raise ValueError(
            f"{name} is a single str ({_show(X)}), where one value for each row is expected. Put it in a list: "
            f"[{_show(X)}]."
        )
    if isinstance(X, bytes | bytearray):
        raise TypeError(f"{name} is {type(X).__name__}. Decode it, and put it in a list: [{name}.decode('utf-8')].")
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
    if hasattr(X, "tocsr") and hasattr(X, "toarray"):
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required. Give a list, a Series, a DataFrame or an "
            "array."
        )
    is_container = (
        hasattr(X, "to_pandas") or hasattr(X, "__array__") or (hasattr(X, "__len__") and hasattr(X, "__iter__"))
    )
    if not is_container or np.isscalar(X) or isinstance(X, type):
        raise TypeError(_not_array_like(X, name))


def _not_array_like(X: Any, name: str) -> str:
    return (
        f"Expected array-like (array or non-string sequence), got {_show(X)} as {name}. Give a list, a Series, a "
        "DataFrame or an array."
    )


def _read_table(X: Any, name: str) -> _Table:
    """The columns of any container."""
    X = _to_known_container(X)
    if isinstance(X, pd.DataFrame):
        labels = list(X.columns)
        columns = []
        for j, label in enumerate(labels):
            # By position, because two columns may have the same name.
            series = X.iloc[:, j]
            convert = f"df[{_show(label)}].astype(str), or choose another column"
            columns.append(_Column(series.tolist(), f"column {_show(label)}", convert, series.dtype, X.index))
        return _Table(columns, X.shape, labels)
    if isinstance(X, pd.Series | pd.Index):
        called = name if X.name is None else f"column {_show(X.name)}"
        source = name if X.name is None else f"df[{_show(X.name)}]"
        index = X.index if isinstance(X, pd.Series) else None
        return _split_rows(_Column(X.tolist(), called, f"{source}.astype(str)", X.dtype, index), name)
    if isinstance(X, np.ndarray):
        convert = f"{name}.astype(str)"
        if X.ndim == 0:
            raise TypeError(_not_array_like(X, name))
        if X.ndim == 1:
            return _split_rows(_Column(X.tolist(), name, convert, X.dtype), name)
        if X.ndim == 2:
            columns = [_Column(X[:, j].tolist(), f"column {j}", convert, X.dtype) for j in range(X.shape[1])]
            return _Table(columns, X.shape)
        raise ValueError(
            f"Found array with dim {X.ndim}, while dim <= 2 is required. Give {name} the shape (rows, columns)."
        )
    return _split_rows(_Column(list(X), name, f"[str(value) for value in {name}]"), name)


def _to_known_container(X: Any) -> Any:
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


def _split_rows(column: _Column, name: str) -> _Table:
    """A column whose values are rows themselves (pairs, say), as several columns; any other column as it is."""
    rows = column.values
    if not any(issubclass(kind, list | tuple | np.ndarray) for kind in set(map(type, rows))):
        return _Table([column], (len(rows),))
    widths = [len(row) if isinstance(row, list | tuple) or np.ndim(row) else None for row in rows]
    for i, width in enumerate(widths):
        if width != widths[0]:
            first, other = (
                f"{_show(rows[k])} ({'no row' if w is None else f'length {w}'})"
                for k, w in ((0, widths[0]), (i, width))
            )
            raise ValueError(
                f"{name} is ragged: {column.row(0)} is {first} and {column.row(i)} is {other}. Give every row the same "
                "number of values."
            )
    convert = f"[[str(value) for value in row] for row in {name}]"
    columns = [_Column([row[j] for row in rows], f"column {j}", convert, None, column.index) for j in range(widths[0])]
    return _Table(columns, (len(rows), widths[0]))


def _wrong_number_of_columns(table: _Table, columns: tuple[int, ...], name: str) -> str:
    """The message for a container with a number of columns that does not fit."""
    n_found = len(table.columns)
    if n_found == 0:
        return (
            f"Found array with 0 feature(s) (shape={table.shape}) while a minimum of 1 is required. Give a text column."
        )
    labels = [_show(label) for label in table.labels or []]
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


def _plain_texts(column: _Column, name: str) -> tuple[list[str], int]:
    """The texts of a column as plain str, and how many were missing or empty."""
    texts, n_missing = [], 0
    for i, value in enumerate(column.values):
        if type(value) is not str:
            if isinstance(value, str):
                # str() of a subclass may be anything: that of an Enum's member is its name.
                value = str.__str__(value)
            elif _is_missing(value):
                value = ""
            else:
                raise TypeError(_not_a_text(column, i, name))
        if not value:
            n_missing += 1
        texts.append(value)
    return texts, n_missing


def _not_a_text(column: _Column, i: int, name: str) -> str:
    """The message for a value that is no text."""
    value = column.values[i]
    of_column = "" if column.called == name else f" of {column.called}"
    dtype = "" if column.dtype is None else f" (dtype {column.dtype})"
    message = (
        f"{name}: {column.row(i)}{of_column}{dtype} is of type {type(value).__name__}, not a text: {_show(value)}."
    )
    if isinstance(value, bytes | bytearray):
        return f"{message} Decode bytes first, with value.decode('utf-8')."
    if pd.api.types.is_scalar(value):
        return f"{message} Convert with {column.convert}."
    return f"{message} Give one str for each row and column."


def _typed_labels(column: _Column, name: str) -> np.ndarray:
    """The labels of a column in the NumPy dtype of their one type."""
    values = column.values
    types = set(map(type, values))
    if not types <= {str, int, bool}:
        missing = [i for i, value in enumerate(values) if _is_missing(value)]
        if missing:
            raise ValueError(
                f"Input {name} contains NaN: {len(missing)} label{'s are' if len(missing) > 1 else ' is'} missing, at "
                f"{_rows(column, missing)}. Drop these rows from X and {name}, or give them a label of their own."
            )
    kinds = {_label_kind(kind) for kind in types}
    if kinds == {"int", "float"}:
        kinds = {"float"}
    if len(kinds) > 1:
        firsts = {}
        for i, value in enumerate(values):
            firsts.setdefault(_label_kind(type(value)), f"{column.row(i)} is {_show(value)}")
        examples = ", ".join(f"{where} ({kind})" for kind, where in firsts.items())
        raise TypeError(
            f"{name} mixes labels of several types: {examples}. Give all one type, such as {column.convert}."
        )
    kind = kinds.pop()
    if kind == "str":
        labels = np.empty(len(values), dtype=object)
        labels[:] = [str.__str__(value) for value in values]
        return labels
    if kind == "bool":
        return np.array(values, dtype=bool)
    if kind == "int":
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            # Hashes as labels, say. NumPy's own choice would be floats, which merges neighbours.
            return np.array([int(value) for value in values], dtype=object)
    if kind == "float":
        return _whole_floats(column, name)
    if kind in ("bytes", "bytearray"):
        raise TypeError(
            f"{name} holds bytes ({column.row(0)} is {_show(values[0])}). Decode with value.decode('utf-8')."
        )
    raise TypeError(
        f"{name}: labels of type {kind} are not supported ({column.row(0)} is {_show(values[0])}). Give str, whole "
        f"numbers or booleans, for example {column.convert}."
    )


def _whole_floats(column: _Column, name: str) -> np.ndarray:
    """Labels that came as floats."""
    labels = np.array(column.values, dtype=np.float64)
    infinite = np.flatnonzero(np.isinf(labels)).tolist()
    if infinite:
        raise ValueError(
            f"Input {name} contains infinity or a value too large for dtype('float64'), at {_rows(column, infinite)}. "
            "Give every row a finite label."
        )
    broken = np.flatnonzero(labels != np.floor(labels)).tolist()
    if broken:
        raise ValueError(
            "Unknown label type: continuous. Maybe you are trying to fit a classifier, which expects discrete classes "
            f"on a regression target with continuous values. {name} is {labels[broken[0]]} in {column.row(broken[0])}: "
            "use a regressor, or make classes of the numbers, for example with pd.cut and astype(str)."
        )
    return labels


def _label_kind(kind: type) -> str:
    """The name under which labels of a type may stand together."""
    for name, types in (
        ("str", str),
        ("bool", bool | np.bool_),
        ("int", int | np.integer),
        ("float", float | np.floating),
    ):
        if issubclass(kind, types):
            return name
    return kind.__name__


def _is_missing(value: Any) -> bool:
    """Whether one value is None, NaN, pd.NA or NaT."""
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))


def _rows(column: _Column, positions: list[int]) -> str:
    """The first few of some rows."""
    shown = ", ".join(column.row(i) for i in positions[:5])
    return shown if len(positions) <= 5 else f"{shown} and {len(positions) - 5} more"


def _show(value: Any) -> str:
    """A value in a message, cut if it is long."""
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
