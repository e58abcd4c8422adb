"""The start of a head: a linear probe on the vectors that the encoder gives before it is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from sklearn.model_selection import KFold

from kbert.data.batches import TrainingBatches
from kbert.tasks.linear_head import FitHead, LinearHead
from kbert.text.sequences import Sequences
from kbert.training.predict import outputs_of_batches

# The most rows, or words, that a probe looks at: enough to tell the poolings apart, and a fraction of an epoch.
PROBE_ROWS = 2048
# Parts of the cross-validation that chooses what the head reads.
_FOLDS = 5
# Texts in a batch.
_BATCH_SIZE = 32


class Probe(NamedTuple):
    """A fitted head, and what it reads.

    Attributes
    ----------
    pooling : {"cls", "mean"}
    head : LinearHead
    """

    pooling: str
    head: LinearHead


def rows_to_probe(weights: np.ndarray, seed: int) -> np.ndarray:
    """The numbers of the rows that a probe looks at, ascending. Those of weight 0 teach nothing."""
    rows = np.flatnonzero(weights > 0)
    if len(rows) <= PROBE_ROWS:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, PROBE_ROWS, replace=False))


def text_vectors(model: keras.Model, sequences: Sequences, pad_id: int) -> np.ndarray:
    """The model's output for each row, the mean over its sequences: float64, shape (n_rows, n_features).

    The batches are those of training, which all have one shape: XLA compiles once.
    """
    shares = 1 / np.bincount(sequences.rows)
    vectors = np.zeros((sequences.n_rows, model.output_shape[-1]))
    batches = TrainingBatches(sequences, _BATCH_SIZE, 0, pad_id)
    for batch, outputs in outputs_of_batches(model, ((batch, batch.inputs) for batch in batches.epoch(0))):
        slots = batch.texts >= 0
        rows = sequences.rows[batch.texts[slots]]
        np.add.at(vectors, rows, outputs[slots] * shares[rows, None])
    return vectors


def best_probe(
    vectors: dict[str, np.ndarray],
    targets: np.ndarray,
    weights: np.ndarray,
    n_outputs: int,
    fit: FitHead,
    mean_loss: Callable[[np.ndarray, Any], float],
) -> Probe:
    """The pooling whose head has the lowest loss in a cross-validation, and that head.

    Parameters
    ----------
    vectors : dict of str to ndarray, shape (n_rows, n_features)
        By pooling. One alone is taken as it is.
    targets, weights : ndarray, shape (n_rows, ...)
        What the loss takes.
    n_outputs : int
    fit : callable
        One of `kbert.tasks.linear_head`.
    mean_loss : callable
        ``mean_loss(outputs, rows)``: the loss of outputs for some rows, given by their numbers.
    """
    best = next(iter(vectors))
    if len(vectors) > 1:

        def loss(pooling: str) -> float:
            return _loss_in_cross_validation(vectors[pooling], targets, weights, n_outputs, fit, mean_loss)

        best = min(vectors, key=loss)
    return Probe(best, fit(vectors[best], targets, weights, n_outputs))


def _loss_in_cross_validation(
    vectors: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    n_outputs: int,
    fit: FitHead,
    mean_loss: Callable[[np.ndarray, Any], float],
) -> float:
    losses = []
    for train, test in KFold(min(_FOLDS, len(vectors)), shuffle=True, random_state=0).split(vectors):
        if (weights[train] > 0).any() and (weights[test] > 0).any():
            outputs = fit(vectors[train], targets[train], weights[train], n_outputs)(vectors[test])
            losses.append(mean_loss(outputs, test))
    return float(np.mean(losses)) if losses else 0.0
