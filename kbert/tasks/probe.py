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
# starts from a probe which explains less than this keeps the encoder from learning it: docs/benchmarks/defaults.md.
LEAST_EXPLAINED = 0.25
# A head on vectors that hardly vary has weights so large that training from it destroys the encoder. The [CLS] of an
# untrained pooler varies 0.001 to 0.06 times as much as the mean (checkpoints of `kbert pretrain` without the next
# sentence), that of released ones 0.18 and 0.26 times (minilm-l6 and a tiny one).
_LEAST_SPREAD = 0.1


class Probe(NamedTuple):
    """A fitted head, and what it reads.

    Attributes
    ----------
    pooling : {"cls", "mean"}
    head : LinearHead
    loss : float
        In a cross-validation.
    """

    pooling: str
    head: LinearHead
    loss: float


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


class Fitting(NamedTuple):
    """What heads are fitted to, and how.

    Attributes
    ----------
    targets, weights : ndarray, shape (n_rows, ...)
        What the loss takes.
    n_outputs : int
    fit : callable
        One of `kbert.tasks.linear_head`.
    mean_loss : callable
        ``mean_loss(outputs, rows)``: the loss of outputs for some rows, given by their numbers.
    """

    targets: np.ndarray
    weights: np.ndarray
    n_outputs: int
    fit: FitHead
    mean_loss: Callable[[np.ndarray, Any], float]

    def head(self, vectors: np.ndarray, rows: Any = slice(None)) -> LinearHead:
        """A head that is fitted to the vectors of some rows."""
        return self.fit(vectors[rows], self.targets[rows], self.weights[rows], self.n_outputs)

    def losses(self, vectors: np.ndarray) -> np.ndarray:
        """The loss of each part of the rows under a head that was fitted to the others; none for one row."""
        if len(vectors) < 2:
            return np.array([])
        losses = []
        for train, test in KFold(min(_FOLDS, len(vectors)), shuffle=True, random_state=0).split(vectors):
            if (self.weights[train] > 0).any() and (self.weights[test] > 0).any():
                losses.append(self.mean_loss(self.head(vectors, train)(vectors[test]), test))
        return np.array(losses)


def best_probe(vectors: dict[str, np.ndarray], fitting: Fitting) -> Probe:
    """The pooling whose head tells the targets best in a cross-validation, and that head.

    Of few rows a cross-validation tells little. So a pooling has to be better than the first one by more than the
    standard error of the difference.

    Parameters
    ----------
    vectors : dict of str to ndarray, shape (n_rows, n_features)
        By pooling; the first one is preferred.
    fitting : Fitting
    """
    losses = {pooling: fitting.losses(of_pooling) for pooling, of_pooling in vectors.items()}
    best = first = next(iter(vectors))
    for pooling, of_pooling in losses.items():
        better = losses[first] - of_pooling
        if len(better) > 1 and better.mean() > better.std(ddof=1) / np.sqrt(len(better)):
            best = pooling
    loss = float(losses[best].mean()) if len(losses[best]) else np.inf
    return Probe(best, fitting.head(vectors[best]), loss)


def varies_little(vectors: np.ndarray, beside: np.ndarray) -> bool:
    """Whether vectors vary so much less than others of the same rows that no training starts well from their probe."""
    return bool(np.sqrt(vectors.var(axis=0).sum()) < _LEAST_SPREAD * np.sqrt(beside.var(axis=0).sum()))


def tells_little(probe: Probe, fitting: Fitting) -> bool:
    """Whether a probe takes less than `LEAST_EXPLAINED` of a constant's loss away."""
    constant = fitting.losses(np.zeros((len(fitting.targets), 1)))  # a head that reads nothing is a constant
    return not len(constant) or 0 < (1 - LEAST_EXPLAINED) * constant.mean() < probe.loss
