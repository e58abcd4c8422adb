"""One training step and one prediction on TensorFlow: pure functions, compiled by XLA for each shape."""

import keras
import numpy as np
import tensorflow as tf

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
        self.key = ("tensorflow", model_key(model), loss.__name__, optimizer)
        self.values = [tf.identity(variable.value) for variable in model.trainable_variables]
        self.moments_1 = [tf.zeros(value.shape) for value in self.values]
        self.moments_2 = [tf.zeros(value.shape) for value in self.values]

    def train(self, inputs, targets, weights, hyper):
        """Update on one batch; returns its loss, NaN where the update was skipped."""
        state = (self.values, self.moments_1, self.moments_2)
        arguments = (*state, self._frozen(), inputs, targets, weights, hyper)
        self.values, self.moments_1, self.moments_2, loss = self._run("train", self._train, inputs, arguments)
        return loss

    def accumulate(self, inputs, targets, weights, hyper, gradients=None):
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        if gradients is None:
            gradients = [tf.zeros(value.shape) for value in self.values]
        arguments = (gradients, self.values, self._frozen(), inputs, targets, weights, hyper)
        return self._run("accumulate", self._accumulate, inputs, arguments)

    def update(self, gradients, hyper):
        """Update with gradients that were accumulated; returns 0, or NaN where one is not finite."""
        arguments = (self.values, self.moments_1, self.moments_2, gradients, hyper)
        self.values, self.moments_1, self.moments_2, flaw = self._run("update", self._update, {}, arguments)
        return flaw

    def write_back(self):
        """Give the model its trained weights."""
        for variable, value in zip(self.model.trainable_variables, self.values, strict=True):
            variable.assign(value)

    def state(self) -> list[np.ndarray]:
        """Weights and moments, for a checkpoint."""
        return [np.array(value) for part in (self.values, self.moments_1, self.moments_2) for value in part]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        n = len(self.values)
        arrays = [tf.convert_to_tensor(array) for array in arrays]
        self.values, self.moments_1, self.moments_2 = arrays[:n], arrays[n : 2 * n], arrays[2 * n :]

    def _frozen(self):
        return [tf.convert_to_tensor(variable.value) for variable in self.model.non_trainable_weights]

    def _run(self, name, function, inputs, arguments):
        return _call(compiled((*self.key, name, shapes_key(inputs)), lambda: _compile(function, arguments)), arguments)

    def _gradients(self, values, frozen, inputs, targets, weights, hyper):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs, _ = self.model.stateless_call(
                values, state_values(self.model, hyper.seed, frozen), inputs, training=True
            )
            losses = self.loss(outputs, targets, weights)
            scaled = tf.reshape(losses, [-1])[0] * hyper.loss_scale
        gradients = tape.gradient(scaled, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], losses

    def _train(self, values, moments_1, moments_2, frozen, inputs, targets, weights, hyper):
        gradients, loss = self._gradients(values, frozen, inputs, targets, weights, hyper)
        *state, flaw = updated(values, moments_1, moments_2, gradients, hyper, self.optimizer)
        return *state, loss + flaw

    def _accumulate(self, total, values, frozen, inputs, targets, weights, hyper):
        gradients, loss = self._gradients(values, frozen, inputs, targets, weights, hyper)
        return [a + tf.cast(g, "float32") for a, g in zip(total, gradients, strict=True)], loss

    def _update(self, values, moments_1, moments_2, gradients, hyper):
        return updated(values, moments_1, moments_2, gradients, hyper, self.optimizer)


def predict(model: keras.Model, inputs: dict[str, np.ndarray]):
    """The model's outputs. Any number of threads may call it for one model."""
    trainable = [tf.convert_to_tensor(variable.value) for variable in model.trainable_variables]
    others = [tf.convert_to_tensor(variable.value) for variable in model.non_trainable_variables]
    arguments = (trainable, others, inputs)

    def function(trainable, others, inputs):
        return model.stateless_call(trainable, others, inputs, training=False)[0]

    key = ("tensorflow", model_key(model), "predict", shapes_key(inputs))
    return _call(compiled(key, lambda: _compile(function, arguments)), arguments)


def _compile(function, arguments):
    """A concrete function of the flat arguments: unlike a tf.function, it keeps neither ``function`` nor its model."""

    def specification(value):
        value = np.asarray(value) if isinstance(value, np.generic) else value
        return tf.TensorSpec(value.shape, value.dtype)

    structure = tf.nest.map_structure(specification, arguments)

    def flat(*values):
        return function(*tf.nest.pack_sequence_as(structure, values))

    # There is no control flow to convert, and AutoGraph would write Python files into the temporary folder.
    return tf.function(flat, jit_compile=True, autograph=False).get_concrete_function(*tf.nest.flatten(structure))


def _call(concrete, arguments):
    return concrete(*(tf.convert_to_tensor(value) for value in tf.nest.flatten(arguments)))
