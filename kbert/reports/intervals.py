"""95% intervals of scores that are made of sums over rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

_LEVEL = 0.95
_RESAMPLES = 1000

# From sums over rows, shape (..., k), to scores, shape (...).
ScoreOf = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def share_interval(right: int, n_rows: int) -> tuple[float, float]:
    """Wilson's interval of a share of rows (Wilson, 1927), which is not empty where all rows are right."""
    found = binomtest(right, n_rows).proportion_ci(_LEVEL, method="wilson")
    return float(found.low), float(found.high)


def bootstrap_interval(sums: NDArray[np.float64], score_of: ScoreOf, seed: int = 0) -> tuple[float, float]:
    """The percentiles of the score over samples of the rows with replacement (Efron, 1979).

    Parameters
    ----------
    sums : ndarray of shape (n_rows, k)
        What each row adds to the k sums that the score is made of.
    score_of : callable
    seed : int, default=0
        The same rows have the same interval.
    """
    n_rows, rng = len(sums), np.random.default_rng(seed)
    samples = [
        np.bincount(rng.integers(n_rows, size=n_rows), minlength=n_rows).astype("float64") @ sums
        for _ in range(_RESAMPLES)
    ]
    scores = score_of(np.array(samples))
    if not np.isfinite(scores).any():
        return np.nan, np.nan
    low, high = np.nanpercentile(scores, [50 * (1 - _LEVEL), 50 * (1 + _LEVEL)])
    return float(low), float(high)
