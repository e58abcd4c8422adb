"""What a fit does once texts are tokens and y is targets: train, watch held-out rows, start again, calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from scipy.optimize import minimize_scalar

from kbert.data.batches import TrainingBatches
from kbert.errors import CollapsedWarning
from kbert.estimators.parameters import draw_seed
from kbert.text import TokenSequences
from kbert.training.early_stopping import Evaluation
from kbert.training.loop import TrainingOptions, train
from kbert.training.predict import predict_logits

# A run whose loss is at least this share of that of the best constant answer has learned nothing,
_NOTHING_LEARNED = 0.98
# unless labels are so uneven (97 to 3 or more, of two) that the best answer may well be a constant one.
_LEAST_PRIOR_LOSS = 0.13
# Training rows on which is looked whether all get the same label.
_LOOKED_AT = 256


class Rows(NamedTuple):
    """Rows to train on or to watch.

    Attributes
    ----------
    sequences : TokenSequences
        One or several for each row.
    targets : ndarray, shape (n_rows, ...)
    weights : ndarray of float32, shape (n_rows,)
        Only the ratios count.
    """

    sequences: TokenSequences
    targets: np.ndarray
    weights: np.ndarray

    # Whether the sequences of a row are to stay in one step, which then has ``batch_size`` rows.
    whole_rows = False

    def take(self, rows: np.ndarray) -> Rows:
        """Some rows, given in ascending order."""
        return self._replace(
            sequences=self.sequences.of_rows(rows), targets=self.targets[rows], weights=self.weights[rows]
        )

    @property
    def n_rows(self) -> int:
        """How many."""
        return len(self.targets)

    def logits(self, model: keras.Model, pad_id: int) -> np.ndarray:
        """The model's present output for each row, in float64."""
        return predict_logits(model, [self.sequences], self.n_rows, pad_id).astype("float64")

    def examples(self) -> dict[str, np.ndarray | str]:
        """What `train` is to know of them."""
        # A row counts as much in several windows as it would in one.
        of_row = self.sequences.rows
        weights = (self.weights / np.bincount(of_row))[of_row]
        return {"targets": self.targets[of_row], "weights": mean_one(weights), "level": "text"}

    def score(self, task, logits: np.ndarray) -> float:
        """The task's score of these logits."""
        return task.score(logits, self.targets, self.weights)


def mean_one(weights: np.ndarray) -> np.ndarray:
    """Weights whose mean is 1, those of 0 aside."""
    return (weights / weights[weights > 0].mean()).astype("float32")


def fine_tune(
    model: keras.Model,
    task,
    rows: Rows,
    held_out: Rows | None,
    batches: tuple[int, int],
    options: TrainingOptions,
    patience: int | None,
) -> dict[str, list[float]]:
    """Train a model in place; with ``patience``, stop early and restore the best weights.

    Parameters
    ----------
    model : keras.Model
    task : SingleLabel or MultiLabel
        Gives the loss and the score.
    rows, held_out : Rows
    batches : tuple of int
        Texts a step, and the token id of the padding.
    options : TrainingOptions
    patience : int or None
        Epochs without a better score on ``held_out`` after which training stops; None runs all.

    Returns
    -------
    dict of list of float
        The history.
    """
    batch_size, pad_id = batches
    evaluation = None
    if held_out is not None:

        def evaluate() -> dict[str, float]:
            logits = held_out.logits(model, pad_id)
            return {
                "val_loss": float(np.average(task.losses(logits, held_out.targets), weights=held_out.weights)),
                "val_score": held_out.score(task, logits),
            }

        evaluation = Evaluation(model, evaluate, patience)
    steps = TrainingBatches(rows.sequences, batch_size, options.seed, pad_id, rows.whole_rows)
    history = train(model, task.loss, steps, options=options, on_epoch_end=evaluation, **rows.examples())
    if evaluation:
        evaluation.restore_best()
    return history


def with_restarts(
    attempt: Callable[[int], tuple[keras.Model, dict[str, list[float]]]],
    task,
    rows: Rows,
    pad_id: int,
    seed: int,
    n_restarts: int,
) -> tuple[keras.Model, dict[str, list[float]]]:
    """The first of up to ``n_restarts + 1`` runs that did not collapse, or the last one; each collapse is warned of.

    Parameters
    ----------
    attempt : callable
        Trains under a seed and gives the model and its history.
    task : SingleLabel or MultiLabel
    rows : Rows
        Those that were trained on.
    pad_id, seed, n_restarts : int

    Returns
    -------
    model, history
    """
    for restart in range(n_restarts + 1):
        model, history = attempt(seed if restart == 0 else draw_seed(np.random.RandomState([seed, restart])))
        loss, prior = history["loss"][-1], task.prior_loss(rows.targets, rows.weights)
        if not _collapsed(model, task, rows, pad_id, loss, prior):
            break
        what_now = (
            f"It is started again with another seed ({restart + 1} of n_restarts={n_restarts})."
            if restart < n_restarts
            else "Try n_restarts=3, more epochs, or another learning_rate; or the texts may not tell y."
        )
        warnings.warn(
            f"The run collapsed: at its end, after epoch {len(history['loss'])}, the training loss is {loss:.3f}, and "
            f"{task.prior_knowledge} alone gives {prior:.3f}. Nothing was learned. {what_now}",
            CollapsedWarning,
            stacklevel=4,
        )
    return model, history


def _collapsed(model, task, rows: Rows, pad_id: int, loss: float, prior: float) -> bool:
    if prior < _LEAST_PRIOR_LOSS or not loss >= _NOTHING_LEARNED * prior:
        return False
    some = np.linspace(0, rows.n_rows - 1, min(rows.n_rows, _LOOKED_AT)).astype(int)
    return task.decides_alike(rows.take(some).logits(model, pad_id))


def divide_by_temperature(model: keras.Model, task, held_out: Rows, pad_id: int) -> float:
    """Divide the logits of a model, by way of its head's weights, by the number that is best for held-out rows.

    Temperature scaling (Guo et al., 2017, "On Calibration of Modern Neural Networks"): one number for all classes, by
    the lowest loss on rows that were not trained on.

    Returns
    -------
    float
        The temperature, between 0.05 and 20.
    """
    logits = held_out.logits(model, pad_id)

    def loss(log_temperature: float) -> float:
        losses = task.losses(logits / np.exp(log_temperature), held_out.targets)
        return float(np.average(losses, weights=held_out.weights))

    temperature = float(np.exp(minimize_scalar(loss, bounds=np.log([0.05, 20]), method="bounded").x))
    for variable in model.classifier.weights:
        variable.assign(variable.value / temperature)
    return temperature
