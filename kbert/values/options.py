"""Readers of the values of options, for argparse."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any


def path(text: str) -> Path:
    """A path, in which "~" is the home folder."""
    return Path(text).expanduser()


def number(test: Callable[[Any], bool], wanted: str, kind: type = float) -> Callable[[str], Any]:
    """A function that reads a number and checks it."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not test(value):
            raise ArgumentTypeError(f"must be {wanted}, not {text!r}.")
        return value

    return read


def whole(least: int, below: float = inf) -> Callable[[str], int]:
    """A function that reads a whole number."""
    wanted = f"a whole number of at least {least}" + (f" and under {below}" if below < inf else "")
    return number(lambda value: least <= value < below, wanted, int)
