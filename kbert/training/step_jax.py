"""One training step and one prediction on JAX: pure functions, compiled ahead for each shape."""

import jax
import keras
import numpy as np
from jax import numpy as jnp

from kbert.training.compiled import compiled, model_key, shapes_key
from kbert.training.functional import state_values, updated


class Trainer:
    """Holds a model's weights and moments while it is trained.

    Parameters
    ----------
    model : keras.Model
    loss : callable
        ``loss(outputs, targets, weights)``: a scalar, or a vector whose first number is minimised and all of which are
        given back.
    optimizer : {"adamw", "lamb"}
    """

    def __init__(self, model: keras.Model, loss, optimizer: str = "adamw"):
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.key = ("jax", model_key(model), loss.__name__, optimizer)
        # Copies: the step gives the memory of its arguments to its results, and the model's own must outlive it.
        self.values = [jnp.copy(variable.value) for variable in model.trainable_variables]
        self.moments_1 = [jnp.zeros(value.shape, "float32") for value in self.values]
        self.moments_2 = [jnp.zeros(value.shape, "float32") for value in self.values]

    def train(self, inputs, targets, weights, hyper):
        """Update on one batch; returns its loss, which may still be under way, NaN where the update was skipped."""
        state = (self.values, self.moments_1, self.moments_2)
        batch = (inputs, targets, weights)
        run = self._compiled("train", self._train, (0,), inputs, (state, self._frozen(), batch, hyper))
        *state, loss = run(state, self._frozen(), batch, hyper)
        self.values, self.moments_1, self.moments_2 = state
        return loss

    def accumulate(self, inputs, targets, weights, hyper, gradients=None):
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        batch = (inputs, targets, weights)
        if gradients is None:
            gradients = [jnp.zeros(value.shape, "float32") for value in self.values]
        arguments = (gradients, self.values, self._frozen(), batch, hyper)
        return self._compiled("accumulate", self._accumulate, (0,), inputs, arguments)(*arguments)

    def update(self, gradients, hyper):
        """Update with gradients that were accumulated; returns 0, or NaN where one is not finite."""
        state = (self.values, self.moments_1, self.moments_2)
        run = self._compiled("update", self._update, (0,), {}, (state, gradients, hyper))
        self.values, self.moments_1, self.moments_2, flaw = run(state, gradients, hyper)
        return flaw

    def write_back(self):
        """Give the model its trained weights."""
        for variable, value in zip(self.model.trainable_variables, self.values, strict=True):
            variable.assign(jnp.copy(value))

    def state(self) -> list[np.ndarray]:
        """Weights and moments, for a checkpoint."""
        return [np.array(value) for part in (self.values, self.moments_1, self.moments_2) for value in part]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        n = len(self.values)
        arrays = [jnp.array(array) for array in arrays]  # copies: their memory is given away
        self.values, self.moments_1, self.moments_2 = arrays[:n], arrays[n : 2 * n], arrays[2 * n :]

    def _frozen(self):
        """Weights that are not trained; the dropout seeds among the non-trainable variables come with each step."""
        return [variable.value for variable in self.model.non_trainable_weights]

    def _compiled(self, name, function, donated, inputs, arguments):
        def compile():
            # Compiled at once and kept without the function, which would keep this trainer and its weights alive.
            return jax.jit(function, donate_argnums=donated).lower(*arguments).compile()

        return compiled((*self.key, name, shapes_key(inputs)), compile)

    def _gradients(self, values, frozen, batch, hyper):
        inputs, targets, weights = batch

        def scaled_loss(values):
            outputs, _ = self.model.stateless_call(
                values, state_values(self.model, hyper.seed, frozen), inputs, training=True
            )
            losses = self.loss(outputs, targets, weights)
            return jnp.ravel(losses)[0] * hyper.loss_scale, losses

        (_, losses), gradients = jax.value_and_grad(scaled_loss, has_aux=True)(values)
        return gradients, losses

    def _train(self, state, frozen, batch, hyper):
        gradients, loss = self._gradients(state[0], frozen, batch, hyper)
        *state, flaw = updated(*state, gradients, hyper, self.optimizer)
        return *state, loss + flaw

    def _accumulate(self, total, values, frozen, batch, hyper):
        gradients, loss = self._gradients(values, frozen, batch, hyper)
        return [a + g.astype("float32") for a, g in zip(total, gradients, strict=True)], loss

    def _update(self, state, gradients, hyper):
        return updated(*state, gradients, hyper, self.optimizer)


def predict(model: keras.Model, inputs: dict[str, np.ndarray]):
    """The model's outputs, which may still be under way. Any number of threads may call it for one model."""
    weights = ([v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables])

    def compile():
        def function(weights, inputs):
            return model.stateless_call(*weights, inputs, training=False)[0]

        return jax.jit(function).lower(weights, inputs).compile()

    return compiled(("jax", model_key(model), "predict", shapes_key(inputs)), compile)(weights, inputs)
