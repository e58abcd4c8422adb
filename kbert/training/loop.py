"""The one training loop: epochs of steps, on any backend, with evaluation, callbacks and a progress bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from kbert.data.batches import TrainingBatches
from kbert.training.bad_steps import BadSteps
from kbert.training.compact import compact
from kbert.training.memory import memory_kept
from kbert.training.optimizer import BETA_1, BETA_2, Hyper, Schedule, decays_of
from kbert.training.prefetch import prefetched
from kbert.training.progress import Progress


@dataclass
class TrainingOptions:
    """How to train. The names and defaults are those of the estimators' parameters.

    ``layer_rates`` holds a factor on the learning rate for each trainable variable (`layer_rates`).
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
    callbacks: list = field(default_factory=list)


def backend_step():
    """The step module of the backend in use."""
    name = keras.backend.backend()
    if name == "jax":
        from kbert.training import step_jax as step
    elif name == "tensorflow":
        from kbert.training import step_tensorflow as step
    else:
        from kbert.training import step_torch as step
    return step


def check_segments(model: keras.Model, in_second: np.ndarray | bool) -> None:
    """Refuse second texts for a model of one segment: looked up in silence, they would get zeros on accelerators.

    Parameters
    ----------
    model : keras.Model
    in_second : ndarray or bool
        What has the segment id 1, where it is not 0.

    Raises
    ------
    ValueError
    """
    if model.config.type_vocab_size < 2 and np.any(in_second):
        raise ValueError(
            "The texts are pairs, whose second text has segment 1, and the model knows segment 0 alone "
            "(type_vocab_size 1 in its config.json). Join the two texts into one, or take weights with two segments."
        )


def train(
    model: keras.Model,
    loss: Callable,
    batches: TrainingBatches,
    targets: np.ndarray,
    weights: np.ndarray,
    options: TrainingOptions,
    on_epoch_end: Callable[[int, dict[str, float]], dict[str, float] | None] | None = None,
    level: str = "text",
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
        (B, T, ...), with 0 in empty places. Of "position", they are tokens of the text, counted from its first; the
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
    copy = compact(model, batches.sequences, batches.pad_id)
    trainer = backend_step().Trainer(model if copy is None else copy.model, loss)
    plan = _Plan(model, batches.steps_per_epoch, options)
    plan.watched = None if copy is None else copy.table
    history: dict[str, list[float]] = {}
    callbacks = keras.callbacks.CallbackList(
        options.callbacks, model=model, epochs=options.epochs, steps=batches.steps_per_epoch, verbose=0
    )
    model.stop_training = False
    callbacks.on_train_begin()
    names = [tensor.name for tensor in model.inputs]
    with memory_kept(), Progress(len(batches.sequences) * options.epochs, options.verbose) as progress:
        for epoch in range(options.epochs):
            callbacks.on_epoch_begin(epoch)
            examples = _with_targets(batches.epoch(epoch), names, targets, weights, level, copy)
            logs = {"loss": _run_epoch(trainer, plan, epoch, batches.steps_per_epoch, examples, callbacks, progress)}
            trainer.write_back()
            if copy is not None:
                copy.write_back(plan.take_decay())
            if on_epoch_end is not None:
                logs.update(on_epoch_end(epoch, logs) or {})
            callbacks.on_epoch_end(epoch, logs)
            for name, value in logs.items():
                history.setdefault(name, []).append(float(value))
            if model.stop_training:
                break
    callbacks.on_train_end()
    return history


class _Plan:
    """The optimiser's numbers, update by update."""

    def __init__(self, model: keras.Model, steps_per_epoch: int, options: TrainingOptions):
        self.every = options.gradient_accumulation
        updates = -(-steps_per_epoch // self.every) * options.epochs
        self.schedule = Schedule(options.learning_rate, updates, options.warmup)
        self.bias_correction = options.bias_correction
        self.decays = np.asarray(decays_of(model, options.weight_decay), "float32")
        rates = options.layer_rates or [1.0] * len(self.decays)
        self.rates = np.asarray(rates, "float32")
        self.seed = options.seed
        self.update = 0
        self.bad_steps = BadSteps(model.compute_dtype == "float16", "a lower learning_rate, or dtype='float32'")
        # Of a variable some rows of which have no gradient: what each update of this epoch multiplies them by, and the
        # loss, which tells whether it was skipped.
        self.watched: int | None = None
        self.factors: list[tuple[np.float32, Any]] = []

    def updated(self, hyper: Hyper, loss) -> None:
        """Note an update."""
        if self.watched is not None:
            rate, decay = hyper.learning_rates[self.watched], hyper.decays[self.watched]
            self.factors.append((np.float32(1) - rate * decay, loss))
        self.update += 1

    def take_decay(self) -> float:
        """What the updates since the last call have multiplied the rows without gradients by."""
        factors = [factor for factor, loss in self.factors if np.isfinite(float(loss))]
        self.factors = []
        return float(np.prod(factors, dtype="float64"))

    def hyper(self, step: int) -> Hyper:
        """For the update under way; ``step`` counts batches, and draws the dropout."""
        t = self.update + 1
        correction = (1 - BETA_1**t, 1 - BETA_2**t) if self.bias_correction else (1.0, 1.0)
        return Hyper(
            np.float32(self.schedule(self.update)) * self.rates,
            self.decays,
            *map(np.float32, correction),
            np.float32(self.bad_steps.loss_scale),
            np.random.SeedSequence([self.seed, step]).generate_state(2, "uint32"),
        )


def _run_epoch(trainer, plan, epoch, steps, examples, callbacks, progress) -> float:
    """One epoch; returns its mean loss over what has a weight."""
    losses, counts, of_updates = [], [], []
    watch = _Watch(plan.bad_steps)
    gradients, pending = None, 0
    for i, ((n_texts, count), inputs, *arrays) in enumerate(prefetched(examples)):
        callbacks.on_train_batch_begin(i)
        hyper = plan.hyper(epoch * steps + i)
        if plan.every == 1:
            loss = trainer.train(inputs, *arrays, hyper)
            plan.updated(hyper, loss)
        else:
            gradients, loss = trainer.accumulate(inputs, *arrays, hyper, gradients)
            pending += 1
            if pending == plan.every or i == steps - 1:
                # The mean over the batches: the scale is divided out in the update.
                loss = loss + trainer.update(
                    gradients, hyper._replace(loss_scale=hyper.loss_scale * np.float32(pending))
                )
                gradients, pending = None, 0
                plan.updated(hyper, loss)
        losses.append(loss)
        counts.append(count)
        if not pending:
            of_updates.append(loss)
            watch(of_updates)
        progress.update(n_texts, losses)
        callbacks.on_train_batch_end(i, {"loss": loss})
    watch(of_updates, all_of_them=True)
    values = np.array([float(loss) for loss in losses])
    finite = np.isfinite(values)
    return float(np.average(values[finite], weights=np.array(counts)[finite])) if finite.any() else float("nan")


def _with_targets(batches, names, targets, weights, level, copy):
    """Of each batch: its number of texts, the inputs, and targets and weights of what has them, over its number."""
    for batch in batches:
        places = batch.tokens if level == "token" else batch.texts
        share = np.where(places >= 0, weights[places], 0).astype("float32")
        count = np.count_nonzero(share)
        inputs = {name: batch.inputs[name] for name in names}
        if copy is not None:
            inputs["token_ids"] = copy.token_ids(inputs["token_ids"])
        chosen = targets[places]
        if level == "position":
            chosen += batch.inputs["first_positions"][..., None]
        chosen[places < 0] = 0
        yield (batch.n_texts, count), inputs, chosen, share / np.float32(max(1, count))


class _Watch:
    """Looks at the losses of an epoch's updates, some steps late, so that the device need not be waited for."""

    def __init__(self, bad_steps: BadSteps):
        self.bad_steps, self.seen = bad_steps, 0

    def __call__(self, losses, all_of_them=False):
        while self.seen < len(losses) - (0 if all_of_them else self.bad_steps.delay):
            self.seen += 1
            self.bad_steps.look_at(self.seen, float(losses[self.seen - 1]), stacklevel=5)


def layer_rates(model: Any, layer_decay: float) -> list[float]:
    """The factor on the learning rate of each trainable variable.

    1 in the head and the pooler, ``layer_decay`` in the last transformer layer, ``layer_decay ** 2`` in the one before
    it, and so on down to the embeddings (Howard and Ruder, 2018; Zhang et al., 2021).
    """
    encoder = model.encoder
    depth = len(encoder.transformer_layers)
    factors = {id(variable): layer_decay ** (depth + 1) for variable in encoder.embeddings.weights}
    for i, layer in enumerate(encoder.transformer_layers):
        factors |= {id(variable): layer_decay ** (depth - i) for variable in layer.weights}
    return [factors.get(id(variable), 1.0) for variable in model.trainable_variables]
