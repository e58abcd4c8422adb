"""The start of a head: a linear probe on the vectors that the encoder gives before it is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import KFold

from kbert.tasks.linear_head import FitHead, LinearHead

# The most rows, and words in tagging, that a probe looks at: enough to tell the poolings apart, and a fraction of an
# epoch where there are more.
MOST_ROWS, MOST_WORDS = 2048, 8192
# Parts of the cross-validation that chooses what the head reads, and whether it starts from the probe.
_FOLDS = 5
# How the two texts of a pair relate is hardly in the vectors of an encoder that was not trained for it. A head that
# starts from a probe which explains less than this keeps the encoder from learning it: docs/benchmarks/first_fit.md.
LEAST_EXPLAINED = 0.25


class Probe(NamedTuple):
    """A fitted head, and what it reads.

    Attributes
    ----------
    pooling : {"cls", "mean"}
    head : LinearHead
    loss : float
        In a cross-validation.
    explained : float
        The share of a constant predictor's loss that this takes away, 1 at best; less than 0 if it adds to it.
    """

    pooling: str
    head: LinearHead
    loss: float
    explained: float


def rows_to_probe(
    weights: np.ndarray, seed: int, n_words: np.ndarray | None = None, most: int | None = MOST_ROWS
) -> np.ndarray:
    """The numbers of the rows that a probe looks at, ascending: all, or some at random; none of weight 0.

    ``n_words``, shape (n_rows,), is given where each word is an example of its own. ``most`` is a number of rows, or
    None for all.
    """
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(weights > 0))
    if n_words is None:
        return np.sort(rows[:most])
    sizes = n_words[rows]
    return np.sort(rows[np.cumsum(sizes) - sizes < MOST_WORDS])


def best_probe(
    vectors: dict[str, np.ndarray],
    targets: np.ndarray,
    weights: np.ndarray,
    n_outputs: int,
    fit: FitHead,
    mean_loss: Callable[[np.ndarray, Any], float],
) -> Probe:
    """The pooling whose head tells the targets best in a cross-validation, and that head.

    Of few rows a cross-validation tells little. So a pooling has to be better than the first one by more than the
    standard error of the difference.

    Parameters
    ----------
    vectors : dict of str to ndarray, shape (n_rows, n_features)
        By pooling; the first one is preferred.
    targets, weights : ndarray, shape (n_rows, ...)
        What the loss takes.
    n_outputs : int
    fit : callable
        One of `kbert.tasks.linear_head`.
    mean_loss : callable
        ``mean_loss(outputs, rows)``: the loss of outputs for some rows, given by their numbers.
    """

    def losses_of(some_vectors: np.ndarray) -> np.ndarray:
        return _losses_in_cross_validation(some_vectors, targets, weights, n_outputs, fit, mean_loss)

    losses = {pooling: losses_of(of_pooling) for pooling, of_pooling in vectors.items()}
    best = first = next(iter(vectors))
    for pooling, of_pooling in losses.items():
        better = losses[first] - of_pooling
        if len(better) > 1 and better.mean() > better.std(ddof=1) / np.sqrt(len(better)):
            best = pooling
    head = fit(vectors[best], targets, weights, n_outputs)
    if not len(losses[best]):
        return Probe(best, head, np.inf, 0.0)
    loss, constant = float(losses[best].mean()), float(losses_of(np.zeros((len(targets), 1))).mean())
    return Probe(best, head, loss, 1 - loss / constant if constant > 0 else 1.0)


def _losses_in_cross_validation(
    vectors: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    n_outputs: int,
    fit: FitHead,
    mean_loss: Callable[[np.ndarray, Any], float],
) -> np.ndarray:
    """The loss of each part of the rows under a head that was fitted to the others; none for one row."""
    if len(vectors) < 2:
        return np.array([])
    losses = []
    for train, test in KFold(min(_FOLDS, len(vectors)), shuffle=True, random_state=0).split(vectors):
        if (weights[train] > 0).any() and (weights[test] > 0).any():
            outputs = fit(vectors[train], targets[train], weights[train], n_outputs)(vectors[test])
            losses.append(mean_loss(outputs, test))
    return np.array(losses)
