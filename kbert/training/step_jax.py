"""One training step and one prediction on JAX: pure functions, compiled ahead for each shape."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from kbert.model.setup import keras
from kbert.training.compiled import compiled, model_key, model_variables, shapes_key
from kbert.training.functional import state_values, updated
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import Differentiator, Gradients, Loss, Predictor, StepBatch, Tensor

# Weights and both moments of all trainable variables.
State = tuple[list[Tensor], list[Tensor], list[Tensor]]


class Trainer:
    """Holds a model's weights and moments while it is trained. The methods are those of `kbert.training.step.Trainer`.

    Parameters
    ----------
    model : keras.Model
    loss : callable
        ``loss(outputs, targets, weights)``: a scalar, or a vector whose first number is minimised and all of which are
        given back.
    optimizer : {"adamw", "lamb"}
    distribution : keras.distribution.DataParallel or keras.distribution.ModelParallel, optional
        Its devices have a copy of the weights each, or the parts of them that a LayoutMap gives to each; and a part of
        every batch. XLA adds up what has to be added up. Where the devices belong to several processes, every process
        is given the same whole batches, and computes its part.
    """

    def __init__(
        self,
        model: keras.Model,
        loss: Loss,
        optimizer: str = "adamw",
        distribution: keras.distribution.DataParallel | keras.distribution.ModelParallel | None = None,
    ):
        self.model, self.loss, self.optimizer, self.distribution = model, loss, optimizer, distribution
        self.replicated = None
        if distribution is not None:
            self.replicated = keras.distribution.TensorLayout([], distribution.device_mesh).backend_layout
        # Of each trainable variable.
        self.shardings = [self._sharding(variable) for variable in model.trainable_variables]
        self.key = ("jax", model_key(model), loss, optimizer, self.replicated, *self.shardings)
        trained, frozen = _values(model.trainable_variables), _values(model.non_trainable_weights)
        if distribution is None:
            trained, frozen = _on_one_device(trained, frozen)
        # Copies: the step gives the memory of its arguments to its results, and the model's own must outlive it.
        self.values = self._placed(map(jnp.copy, trained))
        self.moments_1, self.moments_2 = self._zeros(), self._zeros()
        # Weights that are not trained; the dropout seeds among the non-trainable variables come with each step.
        self.frozen = list(map(self._on_devices, frozen, map(self._sharding, model.non_trainable_weights)))

    def train(self, batch: StepBatch, hyper: Hyperparameters) -> Tensor:
        """Update on one batch; returns its loss, which may still be under way, NaN where the update was skipped."""
        state = (self.values, self.moments_1, self.moments_2)
        batch = self._sharded(batch)
        out = (self.shardings, self.shardings, self.shardings, self.replicated)
        run = self._compiled("train", self._train, out, batch.inputs, (state, self.frozen, batch, hyper))
        *state, loss = run(state, self.frozen, batch, hyper)
        self.values, self.moments_1, self.moments_2 = state
        return loss

    def accumulate(
        self, batch: StepBatch, hyper: Hyperparameters, gradients: Gradients | None = None
    ) -> tuple[Gradients, Tensor]:
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        batch = self._sharded(batch)
        if gradients is None:
            gradients = self._zeros()
        arguments = (gradients, self.values, self.frozen, batch, hyper)
        out = (self.shardings, self.replicated)
        gradients, loss = self._compiled("accumulate", self._accumulate, out, batch.inputs, arguments)(*arguments)
        return gradients, loss

    def update(self, gradients: Gradients, hyper: Hyperparameters) -> Tensor:
        """Update with gradients that were accumulated; returns 0, or NaN where one is not finite."""
        state = (self.values, self.moments_1, self.moments_2)
        out = (self.shardings, self.shardings, self.shardings, self.replicated)
        run = self._compiled("update", self._update, out, {}, (state, gradients, hyper))
        self.values, self.moments_1, self.moments_2, found_inf = run(state, gradients, hyper)
        return found_inf

    def write_back(self) -> None:
        """Give the model its trained weights."""
        for variable, value in zip(self.model.trainable_variables, self.values, strict=True):
            variable.assign(jnp.copy(self._local(value)))

    def state(self) -> list[np.ndarray]:
        """Weights and moments, for a checkpoint."""
        parts = (self.values, self.moments_1, self.moments_2)
        return [np.array(self._local(value)) for part in parts for value in part]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        n = len(self.values)
        # Copies: their memory is given away.
        self.values, self.moments_1, self.moments_2 = (
            self._placed(jnp.array(array) for array in arrays[i * n : (i + 1) * n]) for i in range(3)
        )

    # --- Several devices -----------------------------------------------------------------------------------------

    def _sharding(self, variable: keras.Variable) -> Any:
        """Where a weight lies: as a LayoutMap has it, else a copy on every device."""
        if self.distribution is None:
            return None
        layout = self.distribution.get_tensor_layout(variable.path)
        if layout is None:
            return self.replicated
        try:
            layout.backend_layout.shard_shape(tuple(variable.shape))
        except (ValueError, IndexError) as error:  # IndexError of JAX 0.5: more axes than the weight has
            raise ValueError(
                f"distribution: {variable.path} of shape {tuple(variable.shape)} cannot be divided by {layout.axes}, "
                "as the LayoutMap has it. Divide another axis, or among fewer devices."
            ) from error
        return layout.backend_layout

    def _placed(self, values: Iterable[Tensor]) -> list[Tensor]:
        """Values of the trainable variables, on the devices."""
        return list(map(self._on_devices, values, self.shardings))

    def _zeros(self) -> list[Tensor]:
        """A 0 for each number of the trainable variables, on the devices."""
        return self._placed(jnp.zeros(variable.shape, "float32") for variable in self.model.trainable_variables)

    def _on_devices(self, value: Tensor, sharding: Any) -> Tensor:
        if sharding is None:
            return value
        # Not `device_put`, which would send it to the devices of other processes too, and these have it.
        return jax.make_array_from_callback(value.shape, sharding, np.asarray(value).__getitem__)

    def _local(self, value: Tensor) -> Tensor:
        """The whole of it, on this process's first device."""
        if self.distribution is None:
            return value
        return jax.device_put(value, self.replicated).addressable_data(0)

    def _sharded(self, batch: StepBatch) -> StepBatch:
        """Shard a batch: every device gets the same number of rows."""
        if (distribution := self.distribution) is None:
            return batch

        def split(array: np.ndarray) -> Tensor:
            layout = distribution.get_data_layout(array.shape).backend_layout
            return jax.make_array_from_callback(array.shape, layout, array.__getitem__)

        sharded: StepBatch = jax.tree.map(split, batch)
        return sharded

    # --- The functions that are compiled -------------------------------------------------------------------------

    def _compiled(
        self,
        name: str,
        function: Callable[..., Any],
        out_shardings: tuple[Any, ...],
        inputs: dict[str, np.ndarray],
        arguments: tuple[Any, ...],
    ) -> Callable[..., Any]:
        def compile() -> Any:
            # Weights stay where they are, and every device has the loss: XLA might divide results in another way.
            shardings = {} if self.distribution is None else {"out_shardings": out_shardings}
            # Compiled at once and kept without the function, which would keep this trainer and its weights alive.
            return jax.jit(function, donate_argnums=0, **shardings).lower(*arguments).compile()

        return compiled((*self.key, name, shapes_key(inputs)), compile)

    def _gradients(
        self, values: list[Tensor], frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters
    ) -> tuple[list[Tensor], Tensor]:
        inputs, targets, weights = batch

        def scaled_loss(values: list[Tensor]) -> tuple[Tensor, Tensor]:
            outputs, _ = self.model.stateless_call(
                values, state_values(self.model, hyper.seed, frozen), inputs, training=True
            )
            losses = self.loss(outputs, targets, weights)
            return jnp.ravel(losses)[0] * hyper.loss_scale, losses

        (_, losses), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(values)
        return gradients, losses

    def _train(
        self, state: State, frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
        gradients, loss = self._gradients(state[0], frozen, batch, hyper)
        *new_state, found_inf = updated(*state, gradients, hyper, self.optimizer)
        return *new_state, loss + found_inf

    def _accumulate(
        self, total: list[Tensor], values: list[Tensor], frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters
    ) -> tuple[list[Tensor], Tensor]:
        gradients, loss = self._gradients(values, frozen, batch, hyper)
        return [a + g.astype("float32") for a, g in zip(total, gradients, strict=True)], loss

    def _update(
        self, state: State, gradients: list[Tensor], hyper: Hyperparameters
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
        return updated(*state, gradients, hyper, self.optimizer)


def _values(variables: list[keras.Variable]) -> list[Tensor]:
    return [variable.value for variable in variables]


def _on_one_device(trainable: list[Tensor], others: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """A model's weights on one device. Of a model that was made while a distribution was in force these are copies."""
    devices = (trainable or others)[0].sharding.addressable_devices
    if len(devices) == 1:
        return trainable, others
    weights: tuple[list[Tensor], list[Tensor]]
    weights = jax.device_put((trainable, others), min(devices, key=lambda device: device.id))
    return weights


def predictor(model: keras.Model, devices: Sequence[Any] = ()) -> Predictor:
    """A function from a batch's inputs to the model's outputs, which may still be under way.

    It is for one call of an estimator: the weights are those that the model has now. Any number of threads may call it.
    Its calls take ``devices`` in turns, each of which gets the weights when its turn first comes.
    """
    parts = model_variables(model)
    weights = _on_one_device(_values(parts.trainable), _values(parts.others))
    key, turns, copies = ("jax", parts.key, "predict"), itertools.count(), dict[Any, Any]()

    def function(weights: tuple[list[Tensor], list[Tensor]], inputs: dict[str, np.ndarray]) -> Any:
        return model.stateless_call(*weights, inputs, training=False)[0]

    def predict(inputs: dict[str, np.ndarray]) -> Any:
        device, held = None, weights
        if devices:
            device = devices[next(turns) % len(devices)]
            if device not in copies:
                copies[device] = jax.device_put(weights, device)
            held = copies[device]
        run = compiled((*key, str(device), shapes_key(inputs)), lambda: jax.jit(function).lower(held, inputs).compile())
        return run(held, inputs)

    return predict


def differentiator(model: keras.Model, name: str) -> Differentiator:
    """The derivative of a model's outputs by one of its inputs; threads and weights as for `predictor`."""
    parts = model_variables(model)
    weights = _on_one_device(_values(parts.trainable), _values(parts.others))
    key = ("jax", parts.key, "differentiate", name)

    def function(
        weights: tuple[list[Tensor], list[Tensor]], inputs: dict[str, np.ndarray], chosen: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        def total(given: Tensor) -> tuple[Tensor, Tensor]:
            outputs = model.stateless_call(*weights, {**inputs, name: given}, training=False)[0]
            sums = jnp.sum(outputs * chosen, axis=-1)
            return jnp.sum(sums), sums

        gradient, sums = jax.grad(total, has_aux=True)(inputs[name])
        return sums, gradient

    def differentiate(inputs: dict[str, np.ndarray], chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        arguments = (weights, inputs, chosen)
        run = compiled((*key, shapes_key(inputs)), lambda: jax.jit(function).lower(*arguments).compile())
        return run(*arguments)

    return differentiate
