"""One or several numbers for each row, from any container to a NumPy array. No Keras here."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.frames import Column, is_missing, listed_rows, read_table, refuse_what_has_no_rows, require_y
from kbert.data.labels import check_n_labels
from kbert.values.printable import shown


def number_columns(y: Any, n_rows: int, name: str = "y") -> tuple[NDArray[np.float64], list[str | int] | None, bool]:
    """Read one or several numbers for each row.

    Parameters
    ----------
    y : array-like of shape (n_rows,) or (n_rows, n_columns)
        A list, Series, DataFrame or array.
    n_rows : int
        Number of rows that y must have.
    name : str, default="y"
        What messages call y.

    Returns
    -------
    numbers : ndarray of float64, shape (n_rows, n_columns)
    names : list of str or int, or None
        The names of a DataFrame's columns, if all of them are strings or whole numbers, and different.
    flat : bool
        Whether y had one dimension.

    Raises
    ------
    ValueError
        If the length is wrong, or a number is missing or infinite.
    TypeError
        If a value is no number.
    """
    require_y(y, f"one number for each of the {n_rows} rows")
    refuse_what_has_no_rows(y, name)
    table = read_table(y, name)
    check_n_labels(table.shape, n_rows, name)
    if not table.columns:
        raise ValueError(f"{name} has no columns. Give one number for each row, or a column for each of several.")
    numbers = np.stack([_numbers(column, name) for column in table.columns], axis=1)
    return numbers, table.target_names, len(table.shape) == 1


def _numbers(column: Column, name: str) -> NDArray[np.float64]:
    missing = [i for i, value in enumerate(column.values) if is_missing(value)]
    if missing:
        raise ValueError(
            f"Input {name} contains NaN: {len(missing)} missing, at {listed_rows(column, missing)}. Drop these rows "
            f"from X and {name}, or fill them."
        )
    for i, value in enumerate(column.values):
        # Durations and complex numbers are numbers to NumPy, and dates and texts have __float__, as all its scalars.
        is_no_number = isinstance(value, np.datetime64 | np.timedelta64 | np.character | np.complexfloating)
        if is_no_number or not (isinstance(value, int | float | np.number | np.bool_) or hasattr(value, "__float__")):
            raise TypeError(
                f"{name} should be numeric: {column.row(i)} is {shown(value)}, of type {type(value).__name__}. "
                f"{_as_numbers(value, name)}, or use BertClassifier for labels."
            )
    numbers = np.array([_as_float(value) for value in column.values])
    infinite = np.flatnonzero(~np.isfinite(numbers)).tolist()
    if infinite:
        raise ValueError(
            f"Input {name} contains infinity or a value too large for dtype('float64'), at "
            f"{listed_rows(column, infinite)}. Give every row a finite number."
        )
    large = np.flatnonzero(np.abs(numbers) > np.finfo("float32").max).tolist()
    if large:
        raise ValueError(
            f"{name} holds numbers over 3.4e38, at {listed_rows(column, large)}, which float32 can not hold, and so no "
            "model can give. Divide them, or train on numbers of another size: sklearn.compose."
            "TransformedTargetRegressor(BertRegressor(), transformer=StandardScaler())."
        )
    return numbers


def _as_numbers(value: Any, name: str) -> str:
    """How values that are no numbers become some, for a message."""
    if isinstance(value, np.datetime64 | datetime.date):
        return f"Count the days: {name} = pd.Series(pd.to_datetime({name})); {name} = ({name} - {name}.min()).dt.days"
    if isinstance(value, np.timedelta64 | datetime.timedelta):
        return f"Convert with pd.Series(pd.to_timedelta({name})).dt.total_seconds()"
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+,\d+\s*", value):
        return f'Convert with pd.Series({name}).str.replace(",", ".").astype(float)'
    return "Convert with pd.to_numeric"


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an int of more than 308 digits
        return np.inf
