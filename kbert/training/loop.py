"""Fine-tuning: epochs of updates, with evaluation, callbacks and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from kbert.data.batches import TrainingBatches
from kbert.training.callbacks import optimizer_for_callbacks
from kbert.training.distribution import trainer_on
from kbert.training.frozen import frozen_part
from kbert.training.hyperparameters import HyperparameterFactory, layer_rates
from kbert.training.labelled_batches import Counts, Labels, Level, labelled_batches
from kbert.training.memory import memory_kept
from kbert.training.non_finite import NonFiniteGuard
from kbert.training.progress import Progress
from kbert.training.schedule import LinearSchedule
from kbert.training.segments import check_segments
from kbert.training.step import Loss, StepBatch, Tensor
from kbert.training.trimmed_vocabulary import TrimmedModel, trimmed_model
from kbert.training.updater import Updater

__all__ = ["TrainingOptions", "layer_rates", "train"]


@dataclass
class TrainingOptions:
    """How to train. The names and defaults are those of the estimators' parameters.

    ``layer_rates`` holds a factor on the learning rate for each trainable variable (`layer_rates`); ``distribution`` is
    one of `kbert.training.distribution`, whose number of devices the rows of the batches are a multiple of.
    """

    epochs: int = 3
    learning_rate: float = 5e-5
    warmup: float | int = 0.1
    weight_decay: float = 0.01
    bias_correction: bool = True
    gradient_accumulation: int = 1
    layer_rates: list[float] | None = None
    seed: int = 0
    verbose: int = 0
    callbacks: list[keras.callbacks.Callback] = field(default_factory=list)
    distribution: Any = None


def train(
    model: keras.Model,
    loss: Loss,
    batches: TrainingBatches,
    targets: np.ndarray,
    weights: np.ndarray,
    options: TrainingOptions,
    on_epoch_end: Callable[[int, dict[str, float]], dict[str, float] | None] | None = None,
    level: Level = "text",
) -> dict[str, list[float]]:
    """Train a model in place.

    Parameters
    ----------
    model : keras.Model
        Takes `Batch.inputs`.
    loss : callable
        One of `kbert.training.losses`.
    batches : TrainingBatches
    targets : ndarray, shape (n, ...)
        Of each text, or of each token of all sequences (``level``). The loss gets those of a batch, (B, K, ...) or
        (B, T, ...), with 0 in empty slots. Of "position", they are tokens of the text, counted from its first; the
        loss gets their positions in the row.
    weights : ndarray of float32, shape (n,)
        Of each in the loss. The loss of a step is the weighted sum over those of its batch that have a weight, divided
        by their number.
    options : TrainingOptions
    on_epoch_end : callable, optional
        ``on_epoch_end(epoch, logs)`` is called with the trained weights in the model; what it returns is added to the
        logs. It stops the training by setting ``model.stop_training``.
    level : {"text", "token", "position"}
        What has targets and weights: with "position" again each text.

    Returns
    -------
    dict of list of float
        The mean loss and whatever ``on_epoch_end`` added, one value an epoch.

    Raises
    ------
    ValueError
        If there are pairs, and the model has one segment.
    DivergedError
        If five steps in a row gave a loss or gradients that are not finite; such a step changes nothing.
    """
    check_segments(model, batches.sequences.first_length < batches.sequences.lengths)
    # What the steps train: the model; or a copy without tokens that do not occur; or, of a model whose embeddings are
    # frozen, the part above the frozen layers.
    trimmed = trimmed_model(model, batches.sequences, batches.pad_id)
    part = trimmed or frozen_part(model, batches.sequences, batches.pad_id)
    names = [tensor.name for tensor in model.inputs]
    inputs_of = part.inputs_of if part is not None else lambda batch: batch.inputs_of(names)
    updater = _updater(model, model if part is None else part.model, loss, batches.steps_per_epoch, options)
    labels = Labels(targets, weights, level)
    history: dict[str, list[float]] = {}
    callbacks = keras.callbacks.CallbackList(
        options.callbacks, model=model, epochs=options.epochs, steps=batches.steps_per_epoch, verbose=0
    )
    model.stop_training = False
    with (
        optimizer_for_callbacks(model, updater),
        memory_kept(),
        Progress(batches.sequences.n_rows, len(batches.sequences), options.epochs, options.verbose) as progress,
    ):
        callbacks.on_train_begin()
        for epoch in range(options.epochs):
            callbacks.on_epoch_begin(epoch)
            steps = labelled_batches(batches.epoch(epoch), labels, inputs_of)
            logs = {"loss": _train_epoch(updater, steps, trimmed, callbacks, progress)}
            # The model needs its trained weights where somebody looks at them now, and at the end.
            if on_epoch_end is not None or options.callbacks or epoch == options.epochs - 1:
                updater.trainer.write_back()
                if trimmed is not None:
                    trimmed.write_back()
            if on_epoch_end is not None:
                logs.update(on_epoch_end(epoch, logs) or {})
            callbacks.on_epoch_end(epoch, logs)
            progress.end_epoch(epoch, logs)
            for name, value in logs.items():
                history.setdefault(name, []).append(float(value))
            if model.stop_training:
                break
        callbacks.on_train_end()
    return history


def _updater(
    model: keras.Model, trained: keras.Model, loss: Loss, steps_per_epoch: int, options: TrainingOptions
) -> Updater:
    n_updates = -(-steps_per_epoch // options.gradient_accumulation) * options.epochs
    return Updater(
        trainer_on(options.distribution, trained, loss, "adamw"),
        LinearSchedule(options.learning_rate, n_updates, options.warmup),
        HyperparameterFactory(model, options.weight_decay, options.layer_rates, options.bias_correction, options.seed),
        NonFiniteGuard(model.compute_dtype == "float16", "a lower learning_rate, or dtype='float32'"),
        options.gradient_accumulation,
    )


def _train_epoch(
    updater: Updater,
    steps: Iterator[tuple[Counts, StepBatch]],
    trimmed: TrimmedModel | None,
    callbacks: keras.callbacks.CallbackList,
    progress: Progress,
) -> float:
    """Train on the batches of one epoch; the mean loss of all that has a weight, without batches that were skipped."""
    losses: list[Tensor] = []
    counts: list[Counts] = []
    for update in updater.updates(steps, callbacks):
        losses += update.losses
        counts += update.notes
        updater.guard.record(update.number, update.losses[-1])
        if trimmed is not None:
            trimmed.note_update(update.hyper, update.losses[-1])
        progress.update(sum(count.texts for count in update.notes), losses)
    updater.guard.read_all()
    values = np.array([float(loss) for loss in losses])
    weighted = np.array([count.weighted for count in counts])
    finite = np.isfinite(values)
    return float(np.average(values[finite], weights=weighted[finite])) if finite.any() else float("nan")
