"""What the displays share that matplotlib draws: its import, the axes, and smoothed curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kbert.values.number_rules import whole_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# By default, lines are averaged over this share of all updates, and over this number of updates at least.
_SMOOTHED, _LEAST_SMOOTHED = 0.02, 10


def axes_of(ax: Axes | None, display: object) -> Axes:
    """The axes to draw on: the given ones, or those of a new figure.

    Raises
    ------
    ImportError
        If matplotlib is not installed. The message names the class of ``display``.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{type(display).__name__} needs matplotlib ({error}). Install it with: pip install matplotlib"
        ) from None
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def history_of(estimator: Any) -> dict[str, Any]:
    """``history_`` of a fitted estimator; empty where another program has fitted it.

    Raises
    ------
    TypeError
        If it is no estimator of kbert.
    """
    from sklearn.utils.validation import check_is_fitted

    from kbert.estimators.base import BertEstimator

    if not isinstance(estimator, BertEstimator):
        raise TypeError(
            f"A fitted estimator of kbert is needed, got {type(estimator).__name__}. A search holds one as "
            "search.best_estimator_, a pipeline as pipeline[-1]."
        )
    check_is_fitted(estimator)
    history: dict[str, Any] = getattr(estimator, "history_", {})
    return history


def legend_above(ax: Axes, handles: list[Any]) -> None:
    """A legend that covers nothing, whatever is drawn."""
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def smoothed(values: np.ndarray, smoothing: int | None) -> np.ndarray:
    """The mean of each value and those before it. NaN, for skipped updates, is left out.

    Parameters
    ----------
    values : ndarray of shape (n_updates,)
    smoothing : int or None
        How many values are averaged. None is one fiftieth of all, and at least 10.

    Raises
    ------
    ValueError
        If it is no whole number from 1 on.
    """
    if smoothing is None:
        width = max(_LEAST_SMOOTHED, round(_SMOOTHED * len(values)))
    else:
        width = whole_number(smoothing, "smoothing")
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    n = counts[ends] - counts[starts]
    return np.where(n > 0, (sums[ends] - sums[starts]) / np.maximum(n, 1), np.nan)


def plot_known(ax: Axes, x: np.ndarray, y: np.ndarray, **kwargs: Any) -> Any:
    """Draw a line through the points whose value is known, and give it."""
    known = np.isfinite(y)
    (line,) = ax.plot(x[known], y[known], **kwargs)
    return line
