"""Whether probabilities are what they say: of 100 labels that are given a probability of 0.8, 80 should be right."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logit

from kbert.reports.given import Given, class_numbers
from kbert.tasks.calibration import best_temperature

_BINS = 10
# So many times rows are drawn anew to tell what chance makes of true probabilities.
_DRAWS = 200
_LEAST = np.finfo(float).tiny


def calibration(given: Given, temperature: float | None) -> dict[str, Any]:
    """Reliability of a classifier's probabilities, before calibration and after it.

    Parameters
    ----------
    given : Given
        Of "labels" or "several labels".
    temperature : float or None
        What the classifier's logits are divided by already; 1.0 where it was fitted without ``calibrate``. None: it
        differs between the rows, so that it cannot be undone.

    Returns
    -------
    dict
        ``before`` and ``after``, each with ``error``, the expected calibration error (Guo et al., 2017),
        ``error_by_chance``, what it would be on average if these probabilities were true, and ``bins``: their bounds
        ``from`` and ``to``, ``rows``, mean ``probability`` and share that is ``right``. Of a classifier without
        ``calibrate``, ``after`` is what it would give: each half of the rows has the temperature that is best for the
        other half. With None as temperature there is no ``before``. Empty for fewer than two rows.
    """
    logits, truth = _logits_and_truth(given)
    if len(truth) < 2:
        return {}
    if temperature is None:
        return {"after": _reliability(logits, truth)}
    if temperature != 1.0:
        before, after = logits * temperature, logits
    else:
        before, after = logits, logits.copy()
        half = np.random.default_rng(0).permutation(len(truth)) % 2 == 0
        for some, others in ((half, ~half), (~half, half)):
            loss = partial(_loss, logits[others], truth[others])
            after[some] = logits[some] / best_temperature(loss, truth[others].size)
    return {"before": _reliability(before, truth), "after": _reliability(after, truth)}


def _logits_and_truth(given: Given) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Of the rows and labels that the classifier knows; the truth is class numbers, or of several labels 0 and 1."""
    probabilities = np.asarray(given.found.probabilities, "float64")
    if given.kind == "several labels":
        known = probabilities.any(axis=0)
        return logit(np.clip(probabilities[:, known], _LEAST, 1 - np.finfo(float).epsneg)), given.truth[:, known]
    truth = class_numbers(given.truth.tolist(), np.asarray(given.found.classes).tolist())
    return np.log(np.maximum(probabilities[truth >= 0], _LEAST)), truth[truth >= 0]


def _loss(logits: NDArray[np.float64], truth: NDArray[np.int64], temperature: float) -> float:
    logits = logits / temperature
    if truth.ndim == 2:
        return float(np.logaddexp(0, np.where(truth, -logits, logits)).mean())
    return float(-log_softmax(logits, axis=1)[np.arange(len(truth)), truth].mean())


def _reliability(logits: NDArray[np.float64], truth: NDArray[np.int64]) -> dict[str, Any]:
    """Of the most probable class of each row; of several labels, of every label."""
    if truth.ndim == 2:
        said, right = expit(logits).ravel(), truth.ravel().astype(bool)
    else:
        said, right = np.exp(log_softmax(logits, axis=1)).max(axis=1), logits.argmax(axis=1) == truth
    number = np.minimum((said * _BINS).astype(int), _BINS - 1)
    rows, sums, n_right = (np.bincount(number, values, _BINS) for values in (None, said, right))

    def error(n_right: NDArray[Any]) -> float:
        return float(np.abs(sums - n_right).sum() / len(said))

    rng = np.random.default_rng(0)
    by_chance = [error(np.bincount(number, rng.random(len(said)) < said, _BINS)) for _ in range(_DRAWS)]
    bins = [
        {
            "from": i / _BINS,
            "to": (i + 1) / _BINS,
            "rows": int(rows[i]),
            "probability": float(sums[i] / rows[i]),
            "right": float(n_right[i] / rows[i]),
        }
        for i in np.flatnonzero(rows).tolist()
    ]
    return {"error": error(n_right), "error_by_chance": float(np.mean(by_chance)), "bins": bins}
