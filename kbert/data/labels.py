"""One label for each row, and the weights of the rows, from any container to NumPy arrays. No Keras here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.frames import (
    NO_SAMPLES,
    Column,
    is_missing,
    listed_rows,
    read_table,
    refuse_what_has_no_rows,
    require_y,
)
from kbert.values.printable import shown
from kbert.values.surrogates import require_no_surrogates
from kbert.warn import warn_user


def label_column(y: Any, n_rows: int, name: str = "y") -> NDArray[Any]:
    """Read one label for each row into a NumPy array that keeps the type of the labels.

    Parameters
    ----------
    y : array-like
        Strings, whole numbers or booleans: a list, Series (categorical and nullable dtypes too) or array; or a table of
        one column.
    n_rows : int
        Number of labels that y must have.
    name : str, default="y"
        What messages call y.

    Returns
    -------
    ndarray of shape (n_rows,)
        Of dtype object (str), int64, bool, or float64 if y has whole numbers as floats. Whole numbers beyond int64 are
        of dtype object (int).

    Raises
    ------
    ValueError
        If the length is wrong, labels are missing, there are several columns, the numbers are not whole, or a label
        holds a lone surrogate, which cannot be saved.
    TypeError
        If y is no container of rows, mixes types, or holds other types than str, numbers or booleans.

    Warns
    -----
    sklearn.exceptions.DataConversionWarning
        If y is a table of one column.
    """
    require_y(y, f"one label for each of the {n_rows} rows")
    refuse_what_has_no_rows(y, name)
    table = read_table(y, name)
    if len(table.columns) != 1:
        raise ValueError(
            f"{name} should be a 1d array, got an array of shape {table.shape} instead. Give one label for each row, "
            "that is one column, such as df['label']."
        )
    if len(table.shape) == 2:
        from sklearn.exceptions import DataConversionWarning

        warn_user(
            f"A column-vector {name} was passed when a 1d array was expected. Please change the shape of {name} to "
            '(n_samples, ), for example using ravel(), or choose the column of a DataFrame: df["label"].',
            DataConversionWarning,
        )
    check_n_labels(table.shape, n_rows, name)
    return typed_labels(table.columns[0], name)


def require_same_type(labels: NDArray[Any], classes: NDArray[Any], name: str = "y") -> None:
    """Raise a TypeError if labels are texts and those of fit were not, or the other way round."""
    if isinstance(labels[0], str) != isinstance(classes[0], str):
        raise TypeError(f"{name} holds {shown(labels[0])}, and y of fit held {shown(classes[0])}: give one type.")


def check_n_labels(shape: tuple[int, ...], n_rows: int, name: str) -> None:
    """Raise a ValueError if y has another number of rows than X, or none."""
    n_labels = shape[0]
    if n_labels != n_rows:
        of_x = f"{name.removesuffix('y')}X"
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {[n_rows, n_labels]}. {of_x} has {n_rows} "
            f"rows and {name} has {n_labels} labels: take both from the same rows."
        )
    if n_labels == 0:
        raise ValueError(f"{NO_SAMPLES.format(shape)} {name} is empty: give at least one label.")


def sample_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float32] | None:
    """Check the weights of the rows.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,), number or None
        A number is the weight of every row.
    n_rows : int
        Number of weights that there must be.

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
    # Checked as float32, as they are used: it turns very large numbers into infinity, and very small ones into zero.
    with np.errstate(over="ignore", under="ignore"):
        checked = weights.astype(np.float32)
    for wrong, phrase in (
        (np.isnan(checked), "Input sample_weight contains NaN"),
        (np.isinf(checked), "Input sample_weight contains infinity or a value too large for dtype('float32')"),
        (checked < 0, "Negative values in data passed to `sample_weight`"),
    ):
        if wrong.any():
            column = Column([], "", "", index=sample_weight.index if hasattr(sample_weight, "iloc") else None)
            raise ValueError(f"{phrase}, first in {column.row(int(np.argmax(wrong)))}. Give weights of zero or more.")
    if not checked.any():
        raise ValueError(
            "Sample weights must contain at least one non-zero number. Leave sample_weight out for equal weights."
        )
    return checked


def typed_labels(column: Column, name: str) -> NDArray[Any]:
    """The labels of a column as an array; see `label_column`. Raises if they are not of one type."""
    values = column.values
    types = set(map(type, values))
    if not types <= {str, int, bool}:
        missing = [i for i, value in enumerate(values) if is_missing(value)]
        if missing:
            raise ValueError(
                f"Input {name} contains NaN: {len(missing)} label{'s are' if len(missing) > 1 else ' is'} missing, at "
                f"{listed_rows(column, missing)}. Drop these rows from X and {name}, or give them a label of their own."
            )
    kinds = {_label_kind(kind) for kind in types}
    if kinds == {"int", "float"}:
        _refuse_what_floats_round(column, name)
        kinds = {"float"}
    if len(kinds) > 1:
        firsts: dict[str, str] = {}
        for i, value in enumerate(values):
            firsts.setdefault(_label_kind(type(value)), f"{column.row(i)} is {shown(value)}")
        examples = ", ".join(f"{where} ({kind})" for kind, where in firsts.items())
        raise TypeError(
            f"{name} mixes labels of several types: {examples}. Give all one type, such as {column.convert}."
        )
    kind = kinds.pop()
    if kind == "str":
        labels = np.empty(len(values), dtype=object)
        labels[:] = [str.__str__(value) for value in values]
        for i, label in enumerate(labels):
            if not label.isascii():
                require_no_surrogates(label, f"{name}: {column.row(i)}")
        return labels
    if kind == "bool":
        return np.array(values, dtype=bool)
    if kind == "int":
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            # Hashes as labels, for instance. NumPy would choose floats, in which different labels become equal.
            return np.array([int(value) for value in values], dtype=object)
    if kind == "float":
        return _whole_floats(column, name)
    if kind in ("bytes", "bytearray"):
        raise TypeError(
            f"{name} holds bytes ({column.row(0)} is {shown(values[0])}). Decode with value.decode('utf-8')."
        )
    raise TypeError(
        f"{name}: labels of type {kind} are not supported ({column.row(0)} is {shown(values[0])}). Give str, whole "
        f"numbers or booleans, for example {column.convert}."
    )


def _refuse_what_floats_round(column: Column, name: str) -> None:
    """Refuse whole numbers that would become other ones among floats."""
    for i, value in enumerate(column.values):
        if isinstance(value, int | np.integer) and int(float(value)) != int(value):
            raise ValueError(
                f"{name} holds floats and whole numbers, of which a float cannot hold {value} in {column.row(i)}: "
                "different labels would become one. Give all as whole numbers, or as texts."
            )


def _whole_floats(column: Column, name: str) -> NDArray[np.float64]:
    """Labels that are floats with whole values."""
    labels = np.array(column.values, dtype=np.float64)
    infinite = np.flatnonzero(np.isinf(labels)).tolist()
    if infinite:
        raise ValueError(
            f"Input {name} contains infinity or a value too large for dtype('float64'), at "
            f"{listed_rows(column, infinite)}. Give every row a finite label."
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
    """The name of a type of labels; types with the same name may be mixed."""
    if issubclass(kind, np.timedelta64):  # an integer to NumPy
        return kind.__name__
    for name, types in (
        ("str", str),
        ("bool", bool | np.bool_),
        ("int", int | np.integer),
        ("float", float | np.floating),
    ):
        if issubclass(kind, types):
            return name
    return kind.__name__
