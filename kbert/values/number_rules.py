"""Which numbers are taken, and what messages say is wanted. NumPy's numbers are taken too, and booleans are none."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from kbert.values.saved import Rule


def is_real(value: Any) -> bool:
    """Whether a value is a finite number, and no boolean."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int of more than 308 digits
        return False


def is_whole(value: Any, least: int | None = None) -> bool:
    """Whether a value is a whole number, of at least ``least`` if that is given, and no boolean."""
    is_number = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    return is_number and (least is None or int(value) >= least)


def whole_number(value: Any, name: str, least: int = 1, what_for: str = "") -> int:
    """A whole number that a function was given, as Python's own.

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
    if not is_whole(value, least):
        raise ValueError(f"{name} must be a whole number of at least {least}{what_for}, got {value!r}.")
    return int(value)


def whole(least: int) -> Rule:
    """A whole number."""
    return (lambda value: is_whole(value, least)), f"a whole number of at least {least}"


# Learning rates that are numbers, and seconds.
OVER_0: Rule = (lambda v: is_real(v) and v > 0), "a number over 0"
WARMUP: Rule = (
    lambda v: is_whole(v, 0) or (is_real(v) and not isinstance(v, numbers.Integral) and 0 <= v <= 1),
    "a share of the steps between 0.0 and 1.0, or a whole number of steps",
)
WEIGHT_DECAY: Rule = (lambda v: is_real(v) and v >= 0), "a number of at least 0"
MASK_RATE: Rule = (lambda v: is_real(v) and 0 < v < 1), "a share of the tokens, over 0 and under 1"


def is_phase(value: Any) -> bool:
    """Whether a value is a pair: a length in tokens and a share of a budget."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    length, share = value
    return is_whole(length, 5) and is_real(share) and share > 0


PHASES: Rule = (
    lambda v: isinstance(v, list | tuple) and len(v) > 0 and all(map(is_phase, v)),
    "pairs of a whole number of at least 5 and a share of the budget",
)
