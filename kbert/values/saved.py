"""The values of a JSON file that kbert wrote, checked when they are read: type, range and length."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from kbert.errors import WeightsMismatchError

# A test, and what the message says is wanted.
Rule: TypeAlias = tuple[Callable[[Any], bool], str]


class SavedValues(dict[str, Any]):
    """The object of a JSON file, or one inside of it.

    A key that it lacks, and a value that breaks its rule, raise a WeightsMismatchError with the file and the key.

    Parameters
    ----------
    values : dict
        What was read.
    path : Path
        The file, for messages.
    name : str
        What comes before a key in messages: "" for the whole file, "learned." for the object at its key "learned".
    remedy : str
        What messages advise; "" where who catches the error does.
    """

    def __init__(self, values: dict[str, Any], path: Path, name: str = "", remedy: str = "Save the estimator again."):
        super().__init__(values)
        self._path, self._name, self._remedy = path, name, remedy

    def __missing__(self, key: str) -> Any:
        raise WeightsMismatchError(f"{self._path} is damaged (it lacks {self._name}{key}). {self._remedy}".rstrip())

    def checked(self, key: str, rule: Rule) -> Any:
        """The value of a key, found to follow a rule."""
        value, (test, wanted) = self[key], rule
        if not test(value):
            raise self.error(key, f"must be {wanted}, got {reprlib.repr(value)}")
        return value

    def inner(self, key: str) -> SavedValues:
        """The object at a key."""
        values = self.checked(key, (lambda value: isinstance(value, dict), "an object"))
        return SavedValues(values, self._path, f"{self._name}{key}.", self._remedy)

    def error(self, key: str, fault: str) -> WeightsMismatchError:
        """The error for a key's value."""
        return WeightsMismatchError(f"{self._path} is damaged ({self._name}{key} {fault}). {self._remedy}".rstrip())


def is_number(value: Any) -> bool:
    """Whether a value is a finite number of JSON."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int of more than 308 digits
        return False


def whole(least: int, most: int | None = None) -> Rule:
    """A whole number."""
    wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
    return (
        lambda value: type(value) is int and least <= value and (most is None or value <= most),
        f"a whole number {wanted}",
    )


def one_of(*values: Any) -> Rule:
    """One of a few values."""
    return (
        lambda value: any(type(value) is type(known) and value == known for known in values),
        f"one of {', '.join(map(repr, values))}",
    )


def none_or(rule: Rule) -> Rule:
    """What follows a rule, or null."""
    test, wanted = rule
    return (lambda value: value is None or test(value)), f"null, or {wanted}"


def encode_infinity(value: float) -> float | str:
    """A number as JSON has it, which has no infinity; `float` reads both."""
    return value if math.isfinite(value) else str(value)


def list_of(rule: Rule, length: int | None = None) -> Rule:
    """A list whose items follow a rule."""
    test, wanted = rule
    return (
        lambda value: isinstance(value, list) and (length is None or len(value) == length) and all(map(test, value)),
        f"a list of {'' if length is None else f'{length} items, each '}{wanted}",
    )


TEXT: Rule = (lambda value: isinstance(value, str), "a text")
NUMBER: Rule = (is_number, "a finite number")
# As `encode_infinity` writes it.
NUMBER_OR_INFINITY: Rule = (
    lambda value: is_number(value) or value in ("inf", "-inf"), 'a finite number, "inf" or "-inf"'
)  # fmt: skip
POSITIVE: Rule = (lambda value: is_number(value) and value > 0, "a finite number over 0")
SHARE: Rule = (lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
