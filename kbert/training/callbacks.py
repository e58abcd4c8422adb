"""What Keras's callbacks find on the model that is trained: an optimiser with a learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kbert.model.base import Tensor, to_numpy
from kbert.model.setup import keras, ops
from kbert.training.updater import Updater


class LearningRate(float):
    """A number that answers as Keras's scalar variable does; trackers such as W&B's ask it for ``numpy()``."""

    shape = ()
    _assign: Callable[[float], None]

    @classmethod
    def of(cls, updater: Updater) -> LearningRate:
        """The rate of the next update, which may be set."""
        rate = cls(updater.learning_rate)
        rate._assign = updater.set_learning_rate
        return rate

    def numpy(self) -> np.float64:
        """The number as a scalar of NumPy's."""
        return np.float64(self)

    def assign(self, value: float) -> None:
        """Set the rate of all further updates."""
        self._assign(float(to_numpy(value)))

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """A copy, or what is stored, is a plain number, which opens without kbert."""
        return float, (float(self),)


class Iterations(int):
    """A number of updates that answers as Keras's scalar variable does."""

    shape = ()

    def numpy(self) -> np.int64:
        """The number as a scalar of NumPy's."""
        return np.int64(self)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """As that of `LearningRate`."""
        return int, (int(self),)


class CallbackOptimizer:
    """Stands for the optimiser in ``model.optimizer`` while a model is trained.

    Attributes
    ----------
    learning_rate : LearningRate
        Of the next update. It follows the schedule until it is set; then it stays as it was set.
    iterations : Iterations
        Updates so far.
    """

    def __init__(self, updater: Updater):
        self._updater = updater

    @property
    def learning_rate(self) -> LearningRate:
        """The rate of the next update."""
        return LearningRate.of(self._updater)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._updater.set_learning_rate(float(to_numpy(value)))

    @property
    def iterations(self) -> Iterations:
        """Updates so far."""
        return Iterations(self._updater.n_updates)

    def get_config(self) -> dict[str, Any]:
        """What trackers log of an optimiser."""
        return {"name": "adamw", "learning_rate": float(self.learning_rate)}


class WeightsBefore:
    """The weights of a model at one moment, to tell later whether a callback has changed them.

    Parameters
    ----------
    model : keras.Model
    """

    def __init__(self, model: keras.Model):
        # What is in an array of JAX never changes. A callback assigns another one.
        is_constant = keras.backend.backend() == "jax"
        values = [variable.value for variable in model.weights]
        self._values = values if is_constant else [ops.copy(ops.stop_gradient(value)) for value in values]

    def differ_from(self, model: keras.Model) -> bool:
        """Whether the model has other weights now."""
        pairs = zip(self._values, (variable.value for variable in model.weights), strict=True)
        return any(now is not before and not _are_equal(now, before) for before, now in pairs)


def _are_equal(now: Tensor, before: Tensor) -> bool:
    """Whether two arrays have the same numbers, or NaN in the same places. One that JAX has given away has none."""
    if any(array.is_deleted() for array in (now, before) if hasattr(array, "is_deleted")):
        return False
    both_nan = ops.logical_and(ops.not_equal(now, now), ops.not_equal(before, before))
    return bool(ops.all(ops.logical_or(ops.equal(now, before), both_nan)))


@contextmanager
def optimizer_for_callbacks(model: keras.Model, updater: Updater) -> Iterator[None]:
    """Let ``model.optimizer`` be that of a run, inside."""
    model.optimizer = CallbackOptimizer(updater)
    try:
        yield
    finally:
        del model.optimizer
