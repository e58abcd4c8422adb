"""One training step on TensorFlow's `tf.distribute.MirroredStrategy`: every device has the weights, and some rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kbert.model.setup import keras
from kbert.startup_messages import start_compiler
from kbert.training.functional import updated
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import DROPOUT_STREAMS, Gradients, Loss, StepBatch, Tensor, rows_of_part
from kbert.training.step_tensorflow import Trainer


class MirroredTrainer(Trainer):
    """The trainer of `kbert.training.step_tensorflow` on several devices.

    Gradients are computed by XLA on each device, added up by the strategy, and each device makes the same update.

    Parameters
    ----------
    model, loss, optimizer
        As there.
    strategy : tf.distribute.MirroredStrategy
    """

    def __init__(self, model: keras.Model, loss: Loss, optimizer: str, strategy: tf.distribute.MirroredStrategy):
        super().__init__(model, loss, optimizer)
        self.strategy = strategy
        self.values, self.moments_1, self.moments_2 = (
            self._replicated(part) for part in (self.values, self.moments_1, self.moments_2)
        )
        self.frozen = self._replicated(self._frozen())
        start_compiler()
        self._gradients_of_part = tf.function(self._gradients, jit_compile=True, autograph=False)
        self._updated = tf.function(updated, jit_compile=True, autograph=False)
        self._steps = {
            name: tf.function(lambda *args, f=f: strategy.run(f, args), autograph=False)
            for name, f in [("train", self._train_part), ("gradients", self._part), ("update", self._update_part)]
        }

    def train(self, batch: StepBatch, hyper: Hyperparameters) -> Tensor:
        """Update on one batch; returns its loss, NaN where the update was skipped."""
        state = (self.values, self.moments_1, self.moments_2)
        self.values, self.moments_1, self.moments_2, loss = self._steps["train"](
            *state, self.frozen, self._sharded(batch), self._replicated(hyper)
        )
        return self._local(loss)

    def accumulate(
        self, batch: StepBatch, hyper: Hyperparameters, gradients: Gradients | None = None
    ) -> tuple[Gradients, Tensor]:
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        if gradients is None:
            gradients = self._replicated([tf.zeros(self._local(value).shape) for value in self.values])
        gradients, loss = self._steps["gradients"](
            gradients, self.values, self.frozen, self._sharded(batch), self._replicated(hyper)
        )
        return gradients, self._local(loss)

    def update(self, gradients: Gradients, hyper: Hyperparameters) -> Tensor:
        """Update with gradients that were accumulated; returns 0, or NaN where one is not finite."""
        state = (self.values, self.moments_1, self.moments_2)
        self.values, self.moments_1, self.moments_2, found_inf = self._steps["update"](
            *state, gradients, self._replicated(hyper)
        )
        return self._local(found_inf)

    def write_back(self) -> None:
        """Give the model its trained weights."""
        for variable, value in zip(self.model.trainable_variables, self.values, strict=True):
            variable.assign(self._local(value))

    def state(self) -> list[np.ndarray]:
        """Weights and moments, for a checkpoint."""
        parts = (self.values, self.moments_1, self.moments_2)
        return [np.array(self._local(value)) for part in parts for value in part]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        n = len(self.values)
        self.values, self.moments_1, self.moments_2 = (self._replicated(arrays[i * n : (i + 1) * n]) for i in range(3))

    # --- What each device does -----------------------------------------------------------------------------------

    def _train_part(
        self,
        values: list[Tensor],
        moments_1: list[Tensor],
        moments_2: list[Tensor],
        frozen: list[Tensor],
        batch: StepBatch,
        hyper: Hyperparameters,
    ) -> tuple[Any, ...]:
        gradients, losses = self._part_of_batch(values, frozen, batch, hyper)
        gradients, losses = _summed((gradients, losses))
        *state, found_inf = self._updated(values, moments_1, moments_2, gradients, hyper, self.optimizer)
        return *state, losses + found_inf

    def _part(
        self, total: list[Tensor], values: list[Tensor], frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters
    ) -> tuple[list[Tensor], Tensor]:
        gradients, losses = self._part_of_batch(values, frozen, batch, hyper)
        return [a + tf.cast(g, "float32") for a, g in zip(total, gradients, strict=True)], _summed(losses)

    def _update_part(
        self,
        values: list[Tensor],
        moments_1: list[Tensor],
        moments_2: list[Tensor],
        gradients: list[Tensor],
        hyper: Hyperparameters,
    ) -> Any:
        return self._updated(values, moments_1, moments_2, _summed(gradients), hyper, self.optimizer)

    def _part_of_batch(
        self, values: list[Tensor], frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters
    ) -> Any:
        number = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, "uint32")
        seed = tf.stack([hyper.seed[0], hyper.seed[1] + number * DROPOUT_STREAMS])
        return self._gradients_of_part(values, frozen, batch, hyper._replace(seed=seed))

    # --- Arrays to and from the devices --------------------------------------------------------------------------

    def _replicated(self, arrays: Any) -> Any:
        """The same arrays on every device."""
        return self._distributed(arrays, lambda array, _: array)

    def _sharded(self, batch: StepBatch) -> Any:
        """Shard a batch: every device gets the same number of rows."""
        n = self.strategy.num_replicas_in_sync
        return self._distributed(batch, lambda array, number: rows_of_part(array, number, n))

    def _distributed(self, arrays: Any, part: Callable[[Any, int], Any]) -> Any:
        def on_devices(array: Any) -> Any:
            return self.strategy.experimental_distribute_values_from_function(
                lambda context: tf.convert_to_tensor(part(array, context.replica_id_in_sync_group))
            )

        return tf.nest.map_structure(on_devices, arrays)

    def _local(self, value: Any) -> Tensor:
        """The copy on the first device."""
        return self.strategy.experimental_local_results(value)[0]


def _summed(tensors: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensors)
