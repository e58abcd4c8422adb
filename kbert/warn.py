"""Warnings that point at the user's own line."""

import sys
import warnings
from types import FrameType

from kbert.values.printable import printable_lines

# Packages whose frames lie between the user's line and the place where kbert notices something: joblib runs the fits of
# scikit-learn's searches, contextlib the functions that a context manager decorates.
_BETWEEN = frozenset({"kbert", "keras", "sklearn", "joblib", "contextlib"})


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the innermost line outside of kbert, Keras, scikit-learn and joblib.

    Parameters
    ----------
    message : str
        What happened, and what to do about it. Names from files in it cannot steer a terminal: see `printable`.
    category : type of Warning, default=UserWarning
        One of `kbert.errors`, as a rule.

    Notes
    -----
    pandas does the same (``pandas.util._exceptions.find_stack_level``). Where no such line is left, as in a thread of
    joblib's, the warning points at the outermost frame.
    """
    stacklevel, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_between(frame):
        stacklevel, frame = stacklevel + 1, frame.f_back
    warnings.warn(printable_lines(message), category, stacklevel=stacklevel)


def _is_between(frame: FrameType) -> bool:
    """Whether a frame is not the user's. Python drops warnings at code whose ``__name__`` is None, so pass it over."""
    name = frame.f_globals.get("__name__", "")
    return name is None or name.partition(".")[0] in _BETWEEN
