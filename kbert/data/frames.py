"""pandas and other containers -> plain columns: lists of str, and arrays of labels and weights. No Keras here.

Whatever the caller hands over is read and never changed; every result is new.
"""

import math
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
    """One column as it came: its values, its name in a message, how to turn it into strings, and the row labels."""

    values: list
    called: str
    convert: str
    index: pd.Index | None = None

    def row(self, i: int) -> str:
        """Row i in a message: its position, and its label where that is another one."""
        if self.index is None or (isinstance(self.index, pd.RangeIndex) and self.index[i] == i):
            return f"row {i}"
        return f"row {i} (index {_show(self.index[i])})"


def text_columns(X: Any, *, columns: tuple[int, ...] = (1, 2), name: str = "X") -> TextColumns:
    """Read one or more columns of texts out of any usual container.

    Parameters
    ----------
    X : array-like
        For one column: a list or tuple of str, a Series, an Index, a 1-D array, or anything with one column. For several:
        a DataFrame, a 2-D array, or a list of rows, such as pairs of str. Containers of other libraries are read through
        their ``to_pandas`` or ``__array__``. A missing text (None, NaN, pd.NA, NaT) becomes "".
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
    found, names = _split_columns(X, name)
    if found and not found[0].values:
        shape = (0,) if len(found) == 1 and np.ndim(X) < 2 else (0, len(found))
        raise ValueError(f"{_NO_SAMPLES.format(shape)} {name} is empty: give at least one text.")
    if not found:
        shape = np.shape(X)
        raise ValueError(f"Found array with 0 feature(s) (shape={shape}) while a minimum of 1 is required. {name} has no columns.")
    if len(found) not in columns:
        raise ValueError(_wrong_number_of_columns(found, columns, name, isinstance(X, pd.DataFrame) or names is not None))
    texts, n_missing = [], 0
    for column in found:
        cleaned, missing = _clean_texts(column, name)
        texts.append(cleaned)
        n_missing += missing
    return TextColumns(tuple(texts), names, n_missing)


def warn_missing(n_missing: int, n_rows: int, stacklevel: int = 3) -> None:
    """Tell about missing texts in one MissingTextWarning; nothing where none is missing.

    The default ``stacklevel`` points at the caller of the caller: the line that calls ``fit`` or ``predict``.
    """
    if n_missing:
        warnings.warn(
            f"{n_missing} of the texts in {n_rows} rows {'are' if n_missing > 1 else 'is'} missing (None, NaN, pd.NA or '') "
            "and read as empty. Every row still gets a result; drop or fill such rows first if that is not wanted.",
            MissingTextWarning,
            stacklevel=stacklevel,
        )


def label_column(y: Any, n_rows: int, name: str = "y") -> np.ndarray:
    """Read one label for each row, in a NumPy dtype that keeps their type.

    Parameters
    ----------
    y : array-like
        Strings, whole numbers or booleans: a list, Series (categorical and nullable dtypes too) or array; a single column
        serves with scikit-learn's DataConversionWarning.
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
            f"This estimator requires y to be passed, but the target y is None. Give one label for each of the {n_rows} rows."
        )
    _refuse_what_has_no_rows(y, name)
    found, _ = _split_columns(y, name)
    if len(found) != 1:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape ({len(found[0].values) if found else 0}, {len(found)}) "
            f"instead. Give one label for each row, that is one column, such as df['label']."
        )
    column = found[0]
    values = column.values
    if _n_dimensions(y) == 2:
        _warn_column_vector(name)
    if len(values) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, len(values)]}. X has {n_rows} rows and "
            f"{name} has {len(values)} labels: give both from the same rows."
        )
    return _typed_labels(column, name)


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
            f"sample_weight must be one number for each row, without gaps: {error}. For a Series with missing values use "
            "sample_weight.fillna(0)."
        ) from None
    if weights.ndim > 1:
        raise ValueError(
            f"Sample weights must be 1D array or scalar, got {weights.ndim}D array. Expected either a scalar value or a 1D "
            f"array of length {n_rows}."
        )
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected {(n_rows,)}! Give one weight for each row of X, or one number."
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
            raise ValueError(f"{phrase}: row {int(np.argmax(wrong))} and {int(wrong.sum()) - 1} more. Use weights >= 0.")
    if not weights.any():
        raise ValueError("Sample weights must contain at least one non-zero number. Leave sample_weight out for equal weights.")
    return weights


# --- Containers -> columns


def _refuse_what_has_no_rows(X: Any, name: str) -> None:
    """Raise for what is no container of rows, or one whose rows have no order or are gone after one reading."""
    if isinstance(X, str):
        raise ValueError(
            f"{name} is a single str ({_show(X)}), where one text for each row is expected. Put it in a list: [{_show(X)}]."
        )
    if isinstance(X, bytes | bytearray):
        raise TypeError(f"{name} is {type(X).__name__}. Decode it, and put it in a list: [{name}.decode('utf-8')].")
    if isinstance(X, Mapping):
        raise TypeError(f"{name} is a {type(X).__name__}. Make it a table: pd.DataFrame({name}), and choose its columns.")
    if isinstance(X, Iterator):
        raise TypeError(
            f"{name} is a {type(X).__name__}, which can be read only once. Wrap it in a list: list({name})."
        )
    if isinstance(X, Set):
        raise TypeError(f"{name} is a {type(X).__name__}, whose rows have no order. Make it a list: sorted({name}).")
    if hasattr(X, "tocsr") and hasattr(X, "toarray"):
        raise TypeError(
            f"Sparse data was passed for {name}, but dense data is required. Give the texts themselves, not counts of words."
        )
    is_container = hasattr(X, "to_pandas") or hasattr(X, "__array__") or (hasattr(X, "__len__") and hasattr(X, "__iter__"))
    if not is_container or np.isscalar(X) or getattr(X, "shape", None) == ():
        raise TypeError(
            f"Expected array-like (array or non-string sequence), got {_show(X)} as {name}. Give a list, a Series, a DataFrame "
            "or an array."
        )


def _split_columns(X: Any, name: str) -> tuple[list[_Column], list[str] | None]:
    """The columns of a container, and their names if it has any that are strings."""
    X = _to_known_container(X)
    if isinstance(X, pd.DataFrame):
        found = [
            _Column(X.iloc[:, j].tolist(), f"column {_show(label)}", f"df[{_show(label)}].astype(str)", X.index)
            for j, label in enumerate(X.columns)
        ]
        named = len(found) > 0 and all(isinstance(label, str) for label in X.columns)
        return found, [str(label) for label in X.columns] if named else None
    if isinstance(X, pd.Series | pd.Index):
        label = name if X.name is None else f"column {_show(X.name)}"
        convert = f"{name}.astype(str)" if X.name is None else f"df[{_show(X.name)}].astype(str)"
        index = X.index if isinstance(X, pd.Series) else None
        return _split_rows(_Column(X.tolist(), label, convert, index), name), None
    if isinstance(X, np.ndarray):
        if X.ndim > 2:
            raise ValueError(f"Found array with dim {X.ndim}, while dim <= 2 is required. Give {name} the shape (rows, columns).")
        convert = f"{name}.astype(str)"
        if X.ndim == 2:
            return [_Column(X[:, j].tolist(), f"column {j} of {name}", convert) for j in range(X.shape[1])], None
        return _split_rows(_Column(X.tolist(), name, convert), name), None
    return _split_rows(_Column(list(X), name, f"[str(value) for value in {name}]"), name), None


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


def _split_rows(column: _Column, name: str) -> list[_Column]:
    """A column whose values are rows themselves (pairs, say), as several columns; any other column as it is."""
    rows = column.values
    is_row = [isinstance(row, list | tuple | np.ndarray) for row in rows]
    if not any(is_row):
        return [column]
    if not all(is_row):
        first = is_row.index(not is_row[0])
        raise ValueError(
            f"{name} is ragged: row 0 is a {_kind(rows[0])} and {column.row(first)} is a {_kind(rows[first])}. Give every row "
            "the same number of texts."
        )
    width = len(rows[0])
    for i, row in enumerate(rows):
        if len(row) != width:
            raise ValueError(
                f"{name} is ragged: row 0 has {width} values and {column.row(i)} has {len(row)}. Give every row the same number "
                "of texts."
            )
    return [
        _Column([row[j] for row in rows], f"column {j} of {name}", f"[[str(value) for value in row] for row in {name}]", column.index)
        for j in range(width)
    ]


def _wrong_number_of_columns(found: list[_Column], columns: tuple[int, ...], name: str, is_frame: bool) -> str:
    """The message for a container with a number of columns that does not fit."""
    allowed = " or ".join(map(str, columns))
    labels = [column.called.removeprefix("column ") for column in found]
    message = f"{name} has {len(found)} columns{' (' + ', '.join(labels) + ')' if is_frame else ''}, where {allowed} are expected."
    if is_frame:
        wanted = next((n for n in reversed(columns) if n <= len(found)), columns[0])
        choice = f"df[{labels[0]}]" if wanted == 1 else f"df[[{', '.join(labels[:wanted])}]]"
        return f"{message} Choose the columns that hold the texts, for example {choice}."
    return f"{message} Rows go first: for pairs, give one pair for each row, as in list(zip(first_texts, second_texts))."
