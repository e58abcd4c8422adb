"""Makes the updates of a training run: accumulates batches, makes hyperparameters, counts updates and time.

Fine-tuning and pre-training both train through `Updater`. What they do between two updates is their own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbert.model.setup import keras
from kbert.training.hyperparameters import HyperparameterFactory, Hyperparameters
from kbert.training.non_finite import NonFiniteGuard
from kbert.training.prefetch import prefetched
from kbert.training.schedule import LinearSchedule
from kbert.training.step import StepBatch, Tensor, Trainer
from kbert.values.saved import NUMBER, SavedValues, list_of, none_or, whole

Note = TypeVar("Note")


class Update(NamedTuple, Generic[Note]):
    """An update that was made, or skipped.

    Attributes
    ----------
    number : int
        Counted from 1.
    learning_rate : float
        That of the schedule, or what a callback has set.
    hyper : Hyperparameters
        With which the update changed the weights.
    losses : list of tensor
        Of each batch, which the device may still compute. The last one is NaN where the update was skipped.
    notes : list
        What the caller gave along with each batch.
    """

    number: int
    learning_rate: float
    hyper: Hyperparameters
    losses: list[Tensor]
    notes: list[Note]


class Updater:
    """Makes the updates of a training run.

    Parameters
    ----------
    trainer : Trainer
        The step of the backend, with the weights and the moments.
    schedule : LinearSchedule
    hyperparameters : HyperparameterFactory
    guard : NonFiniteGuard
        Gives the loss scale. The caller records the losses in it.
    accumulation : int, default=1
        Batches whose gradients are averaged into one update.

    Attributes
    ----------
    n_updates, n_batches : int
        How many were made, and seen, so far.
    seconds : float
        Time that the run had taken when the newest update was made. The clock starts with the first one.
    """

    def __init__(
        self,
        trainer: Trainer,
        schedule: LinearSchedule,
        hyperparameters: HyperparameterFactory,
        guard: NonFiniteGuard,
        accumulation: int = 1,
    ):
        self.trainer, self.schedule, self.guard = trainer, schedule, guard
        self.accumulation = accumulation
        self.n_updates, self.n_batches, self.seconds = 0, 0, 0.0
        self._hyperparameters = hyperparameters
        self._clock_start: float | None = None
        self._set_rate: float | None = None

    def stop_clock(self) -> None:
        """Leave the time up to the next update out of `seconds`."""
        self._clock_start = None

    @property
    def share(self) -> float:
        """How much of the budget is used, from 0 to 1."""
        return self.schedule.share(self.n_updates, self.seconds)

    @property
    def learning_rate(self) -> float:
        """That of the next update: the schedule's, unless it was set."""
        return self.schedule(self.n_updates, self.seconds) if self._set_rate is None else self._set_rate

    def set_learning_rate(self, value: float) -> None:
        """Leave the schedule: all further updates have this rate, until it is set again."""
        if not 0 <= value < math.inf:
            raise ValueError(f"A callback set the learning rate to {value}. It must be a number of at least 0.")
        self._set_rate = value

    def updates(
        self,
        batches: Iterable[tuple[Note, StepBatch]],
        callbacks: keras.callbacks.CallbackList | None = None,
        weight_of: Callable[[Note], float] = lambda note: 1.0,
    ) -> Generator[Update[Note], None, None]:
        """Train on batches, and give each update once it is under way.

        Parameters
        ----------
        batches : iterable of (note, StepBatch)
            They are made ahead, in another thread. What is left of them at the end, fewer than ``accumulation``, makes
            an update too. A note is anything; the update hands it back.
        callbacks : keras.callbacks.CallbackList, optional
            Its ``on_train_batch_begin`` and ``on_train_batch_end`` are called, if one of the callbacks has them: Keras
            waits for the loss of the batch before the latter.
        weight_of : callable, optional
            From a note to how much its batch counts among those of an update, such as the number of its texts, if the
            loss of a batch is a mean over them: the update is then that of one large batch. By default all count alike.

        Yields
        ------
        Update
            The next one is made when it is asked for.
        """
        if self._clock_start is None:
            self._clock_start = time.perf_counter() - self.seconds
        n_seen = 0
        at_begin, at_end = (_if_they_listen(callbacks, when) for when in ("begin", "end"))
        with closing(prefetched(batches)) as stream:
            for group in batched(stream, self.accumulation):
                gradients, losses = None, []
                shares = _shares([weight_of(note) for note, _ in group]) if self.accumulation > 1 else None
                for i, (_, batch) in enumerate(group):
                    if at_begin is not None:
                        at_begin.on_train_batch_begin(n_seen)
                    learning_rate = self.learning_rate  # which the callbacks may have set
                    hyper = self._hyperparameters(learning_rate, self.n_updates, self.n_batches, self.guard.loss_scale)
                    if shares is None:
                        loss = self.trainer.train(batch, hyper)
                    else:
                        of_batch = hyper._replace(loss_scale=hyper.loss_scale * shares[i])
                        gradients, loss = self.trainer.accumulate(batch, of_batch, gradients)
                        if i == len(group) - 1:
                            # The mean over the batches: the loss scale is divided out, and their number with it.
                            hyper = hyper._replace(loss_scale=hyper.loss_scale * np.float32(len(group)))
                            loss = loss + self.trainer.update(gradients, hyper)
                    losses.append(loss)
                    self.n_batches += 1
                    if at_end is not None:
                        at_end.on_train_batch_end(n_seen, {"loss": loss})
                    n_seen += 1
                self.n_updates += 1
                self.seconds = time.perf_counter() - self._clock_start
                yield Update(self.n_updates, learning_rate, hyper, losses, [note for note, _ in group])

    def state(self) -> dict[str, Any]:
        """Where the run stands, for a checkpoint beside the trainer's arrays. All losses must have been read."""
        return {
            "updates": self.n_updates, "batches": self.n_batches, "seconds": self.seconds, "set_rate": self._set_rate,
            "guard": self.guard.state(),
        }  # fmt: skip

    @staticmethod
    def check_state(values: SavedValues) -> None:
        """Check the types of what `state` gave, as they were read from a file."""
        for name in ("updates", "batches"):
            values.checked(name, whole(0))
        values.checked("seconds", NUMBER)
        values.checked("set_rate", none_or(NUMBER))
        guard = values.inner("guard")
        guard.checked("in_a_row", whole(0))
        guard.checked("scaler", none_or(list_of(NUMBER, 2)))

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.n_updates, self.n_batches, self.seconds = state["updates"], state["batches"], state["seconds"]
        self._set_rate = state["set_rate"]
        self.guard.restore(state["guard"])
        self.stop_clock()


def _shares(weights: list[float]) -> NDArray[np.float32]:
    """How much each batch of an update counts: 1 in the mean; 0 where none counts."""
    of_each = np.array(weights, "float32")
    return of_each / of_each.mean() if of_each.any() else of_each


def _if_they_listen(callbacks: keras.callbacks.CallbackList | None, when: str) -> keras.callbacks.CallbackList | None:
    """Callbacks of which one does something at the "begin" or at the "end" of a batch; None where none does."""
    does_something = callbacks is not None and any(
        getattr(getattr(callback, name), "__func__", None) is not getattr(keras.callbacks.Callback, name)
        for callback in callbacks.callbacks
        for name in (f"on_train_batch_{when}", f"on_batch_{when}")
    )
    return callbacks if does_something else None


Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of so many items one after the other; the last list may have fewer."""
    group: list[Item] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
