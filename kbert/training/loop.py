"""Fine-tuning: epochs of updates, with evaluation, callbacks and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbert.data.batches import TrainingBatches
from kbert.model.setup import keras
from kbert.training.callbacks import WeightsBefore, optimizer_for_callbacks
from kbert.training.distribution import agreed, process_number, trainer_on
from kbert.training.early_stopping import Evaluation
from kbert.training.fit_checkpoints import EpochHistory, FitCheckpoints, Standing
from kbert.training.frozen import frozen_part
from kbert.training.host_copies import as_numbers
from kbert.training.hyperparameters import HyperparameterFactory
from kbert.training.interruption import Interruption
from kbert.training.labelled_batches import Counts, TrainingData, labelled_batches
from kbert.training.memory import memory_kept
from kbert.training.non_finite import NonFiniteGuard
from kbert.training.progress import Progress
from kbert.training.schedule import LinearSchedule
from kbert.training.segments import check_segments
from kbert.training.step import Loss, StepBatch
from kbert.training.trimmed_vocabulary import TrimmedModel, trimmed_model
from kbert.training.updater import Updater


@dataclass
class TrainingOptions:
    """How to train. The names are those of the estimators' parameters.

    ``layer_rates`` holds a factor on the learning rate for each trainable variable, as
    `kbert.training.hyperparameters.layer_rates` gives them. ``distribution`` is one of `kbert.training.distribution`
    or None: the rows of a batch are a multiple of its number of devices. ``checkpoints`` say where to go on from and
    where to write, or are None.
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
    checkpoints: FitCheckpoints | None = None


def train(
    model: keras.Model,
    loss: Loss,
    batches: TrainingBatches,
    data: TrainingData,
    options: TrainingOptions,
    evaluation: Evaluation | None = None,
) -> EpochHistory:
    """Train a model in place.

    Parameters
    ----------
    model : keras.Model
        Takes `Batch.inputs`.
    loss : callable
        One of `kbert.training.losses`.
    batches : TrainingBatches
        Of the data's sequences.
    data : TrainingData
        The loss gets the targets of a batch, (B, K, ...) or (B, T, ...), with 0 in empty slots; of "position", they are
        positions in the row. The loss of a step is the weighted sum over those of its batch that have a weight, divided
        by their number.
    options : TrainingOptions
    evaluation : Evaluation, optional
        Called after each epoch; what it finds is added to the logs, and it may end the training.

    Returns
    -------
    dict of list
        One value an epoch: the mean ``loss``, what the evaluation found, and the list ``update_loss`` of the mean loss
        of each of the epoch's updates, NaN for those that were skipped.

    Raises
    ------
    ValueError
        If there are pairs, and the model has one segment; or a callback changed weights, or which of them are trained.
    DivergedError
        If five steps in a row gave a loss or gradients that are not finite; such a step changes nothing.
    """
    check_segments(model, data.sequences.first_length < data.sequences.lengths)
    # What the steps train: the model; or a copy without tokens that do not occur; or, of a model whose embeddings are
    # frozen, the part above the frozen layers.
    trimmed = trimmed_model(model, data.sequences)
    part = trimmed or frozen_part(model, data.sequences)
    names = [tensor.name for tensor in model.inputs]
    inputs_of = part.inputs_of if part is not None else lambda batch: batch.inputs_of(names)
    updater = _updater(model, model if part is None else part.model, loss, batches.steps_per_epoch, options)
    checkpoints, is_alone = options.checkpoints, process_number()[1] == 1
    standing = Standing() if checkpoints is None else checkpoints.restore(updater, trimmed, evaluation)
    model.stop_training = standing.stopped

    def write_back() -> None:
        """Give the model its trained weights."""
        updater.trainer.write_back()
        if trimmed is not None:
            trimmed.write_back()

    def watched() -> WeightsBefore | None:
        """The model's weights, if a callback might change them and this process has them all."""
        return WeightsBefore(model) if options.callbacks and is_alone else None

    callbacks = keras.callbacks.CallbackList(
        [*_before_files_of_batches(options.callbacks, write_back), *options.callbacks],
        model=model,
        epochs=options.epochs,
        steps=batches.steps_per_epoch,
        verbose=0,
    )

    with (
        optimizer_for_callbacks(model, updater),
        memory_kept(),
        Progress(data.sequences.n_rows, len(data.sequences), options.epochs, options.verbose) as progress,
        Interruption(checkpoints is not None) as interruption,
    ):

        def after_update() -> None:
            """Write a checkpoint where it is time for that."""
            if checkpoints is not None and agreed(
                interruption.came or checkpoints.is_due(), updater.n_updates, options.distribution
            ):
                checkpoints.write(standing, updater, trimmed, evaluation)
                interruption.pass_on()

        progress.update(standing.texts, [])
        if standing.stopped or standing.epoch == options.epochs:
            write_back()
        trainable, before = _trainable(model), watched()
        callbacks.on_train_begin()
        while standing.epoch < options.epochs and not model.stop_training:
            epoch = standing.epoch
            callbacks.on_epoch_begin(epoch)
            if _trainable(model) != trainable:
                raise ValueError(
                    "A callback changed which layers are trainable, after what is trained was settled. Give the fit "
                    "freeze=n, the number of lower layers that are not trained."
                )
            if before is not None and before.differ_from(model):
                raise ValueError(
                    "A callback changed the weights of the model between two epochs, which the training would undo: it "
                    "goes on from its own. Change them after the fit, or give the weights to start from."
                )
            before = None  # the copy is not needed while the epoch runs
            steps = labelled_batches(batches.epoch(epoch, len(standing.losses)), data, inputs_of)
            mean_loss, of_updates = _train_epoch(
                model, updater, steps, standing, trimmed, callbacks, progress, after_update
            )
            logs = {"loss": mean_loss}
            # The model needs its trained weights where somebody looks at them now, and at the end.
            if evaluation is not None or options.callbacks or epoch == options.epochs - 1:
                write_back()
            if evaluation is not None:
                logs.update(evaluation(epoch))
            before = watched() if epoch + 1 < options.epochs else None
            callbacks.on_epoch_end(epoch, logs)
            progress.end_epoch(epoch, logs)
            for name, value in logs.items():
                standing.history.setdefault(name, []).append(float(value))
            standing.history.setdefault("update_loss", []).append(of_updates)
            standing = Standing(
                epoch + 1, texts=standing.texts, history=standing.history, stopped=bool(model.stop_training)
            )
            if checkpoints is not None:
                checkpoints.write(standing, updater, trimmed, evaluation)
                interruption.pass_on()
        callbacks.on_train_end()
    return standing.history


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


def _before_files_of_batches(
    callbacks: Sequence[keras.callbacks.Callback], write_back: Callable[[], None]
) -> list[keras.callbacks.Callback]:
    """A callback that writes the weights back after each batch, if one saves the model between epochs; else none."""
    saves = any(isinstance(one, keras.callbacks.ModelCheckpoint) and one.save_freq != "epoch" for one in callbacks)
    return [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: write_back())] if saves else []


def _train_epoch(
    model: keras.Model,
    updater: Updater,
    steps: Iterator[tuple[Counts, StepBatch]],
    standing: Standing,
    trimmed: TrimmedModel | None,
    callbacks: keras.callbacks.CallbackList,
    progress: Progress,
    after_update: Callable[[], None],
) -> tuple[float, list[float]]:
    """Train on what is left of an epoch, or until a callback sets ``stop_training``.

    The mean loss of all that has a weight, without batches that were skipped; and the mean loss of each update.
    """
    # Closed at once, also after an error: its traceback would keep the thread that prepares batches.
    with closing(updater.updates(steps, callbacks, weight_of=lambda count: count.weighted)) as updates:
        for update in updates:
            n_texts = sum(count.texts for count in update.notes)
            standing.losses += update.losses
            standing.weighted += [count.weighted for count in update.notes]
            standing.texts += n_texts
            updater.guard.record(update.number, update.losses[-1])
            if trimmed is not None:
                trimmed.note_update(update.hyper, update.losses[-1])
            progress.update(n_texts, standing.losses)
            after_update()
            if model.stop_training:
                updates.close()  # there are no further ones
    updater.guard.read_all()
    values, weighted = as_numbers(standing.losses), np.array(standing.weighted)
    finite = np.isfinite(values)
    mean = float(np.average(values[finite], weights=weighted[finite])) if finite.any() else float("nan")
    return mean, _by_update(values, weighted, updater.accumulation)


def _trainable(model: keras.Model) -> list[bool]:
    return [variable.trainable for variable in model.weights]


def _by_update(losses: np.ndarray, weighted: np.ndarray, accumulation: int) -> list[float]:
    """The mean loss of each update, over all of its batches; NaN where one is NaN, or where nothing has a weight."""
    update = np.arange(len(losses)) // accumulation
    in_update = np.bincount(update, weighted)[update]
    shares = np.divide(weighted, in_update, out=np.full(len(losses), np.nan), where=in_update > 0)
    means: list[float] = np.bincount(update, shares * losses).tolist()
    return means
