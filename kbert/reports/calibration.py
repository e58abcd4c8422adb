"""Whether probabilities are what they say: of 100 answers with probability 0.8, 80 should be right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, logit

_BINS = 10
# As in `kbert.tasks.calibration`.
_TEMPERATURES = (0.05, 20.0)
_LEAST = np.finfo(float).tiny


def calibration(probabilities: NDArray[np.float64], truth: NDArray[np.int64], temperature: float) -> dict[str, Any]:
    """Reliability and error of a classifier's probabilities, as they would be without a temperature and with one.

    Parameters
    ----------
    probabilities : ndarray of shape (n_rows, n_classes)
    truth : ndarray of int, shape (n_rows,), or (n_rows, n_classes)
        The number of each row's class, -1 for one that has no column; or which labels each row has.
    temperature : float
        What the classifier's logits are divided by already; 1.0 where it was fitted without ``calibrate``.

    Returns
    -------
    dict
        ``before`` and ``after`` (calibration), each with ``error``, the expected calibration error (Guo et al., 2017),
        and ``bins``: their bounds, number of rows, mean probability and share that is right. Of a classifier without
        ``calibrate``, ``after`` is what it would give: the temperature of each half of the rows is that of the other.
    """
    several = truth.ndim == 2
    known = np.ones(len(truth), bool) if several else truth >= 0
    probabilities, truth = probabilities[known], truth[known]
    if len(truth) < 2:
        return {}
    logits = logit(np.clip(probabilities, _LEAST, 1 - np.finfo(float).epsneg)) if several else np.log(np.maximum(probabilities, _LEAST))
    if temperature != 1.0:
        before, after = logits * temperature, logits
    else:
        before, after = logits, logits.copy()
        halves = np.random.default_rng(0).permutation(len(truth)) % 2 == 0
        for half in (halves, ~halves):
            after[half] = logits[half] / _best_temperature(logits[~half], truth[~half])
    return {name: _reliability(values, truth) for name, values in (("before", before), ("after", after))}


def _loss(logits: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    if truth.ndim == 2:
        return float(np.logaddexp(0, np.where(truth, -logits, logits)).mean())
    return float(-log_softmax(logits, axis=1)[np.arange(len(truth)), truth].mean())


def _best_temperature(logits: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    found = minimize_scalar(
        lambda log_temperature: _loss(logits / np.exp(log_temperature), truth),
        bounds=np.log(_TEMPERATURES),
        method="bounded",
    )
    return float(np.exp(found.x))


def _reliability(logits: NDArray[np.float64], truth: NDArray[np.int64]) -> dict[str, Any]:
    """Of the most probable class of each row; of several labels, of every label."""
    if truth.ndim == 2:
        said, right = expit(logits).ravel(), truth.ravel().astype(bool)
    else:
        said, right = np.exp(log_softmax(logits, axis=1)).max(axis=1), logits.argmax(axis=1) == truth
    number = np.minimum((said * _BINS).astype(int), _BINS - 1)
    bins, error = [], 0.0
    for i in np.unique(number):
        inside = number == i
        mean, rate = float(said[inside].mean()), float(right[inside].mean())
        error += inside.mean() * abs(mean - rate)
        low, high = float(i) / _BINS, float(i + 1) / _BINS
        bins.append({"from": low, "to": high, "rows": int(inside.sum()), "probability": mean, "right": rate})
    return {"error": float(error), "bins": bins}
