"""Whole numbers that functions are given."""

from operator import index
from typing import Any

import numpy as np


def whole_number(value: Any, name: str, least: int = 1, what_for: str = "") -> int:
    """A whole number as Python's own. NumPy's are taken too; a bool is none.

    Parameters
    ----------
    value : int
    name : str
        What the message calls it.
    least : int, default=1
    what_for : str, default=""
        What the message says of ``least``, with a space before it.

    Raises
    ------
    ValueError
        If it is no whole number, or less than ``least``.
    """
    try:
        number = least - 1 if isinstance(value, bool | np.bool_) else index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}{what_for}, got {value!r}.")
    return number
