"""One training step and one prediction on TensorFlow: functions that XLA compiles for each shape."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kbert.model.setup import keras
from kbert.startup_messages import start_compiler
from kbert.training.compiled import compiled, model_key, model_variables, shapes_key
from kbert.training.functional import state_values, updated
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import Differentiator, Gradients, Loss, Predictor, StepBatch, Tensor

# Weights and both moments of all trainable variables.
State = tuple[list[tf.Variable], list[tf.Variable], list[tf.Variable]]


class Trainer:
    """Holds a model's weights and moments while it is trained. The methods are those of `kbert.training.step.Trainer`.

    Parameters
    ----------
    model : keras.Model
    loss : callable
        ``loss(outputs, targets, weights)``: a scalar, or a vector whose first number is minimised and all of which are
        given back.
    optimizer : {"adamw", "lamb"}
    """

    def __init__(self, model: keras.Model, loss: Loss, optimizer: str = "adamw"):
        self.model, self.loss, self.optimizer = model, loss, optimizer
        self.key = ("tensorflow", model_key(model), loss, optimizer)
        self.values = [_variable(variable.value) for variable in model.trainable_variables]
        self.moments_1, self.moments_2 = ([_variable(tf.zeros(value.shape)) for value in self.values] for _ in range(2))

    def train(self, batch: StepBatch, hyper: Hyperparameters) -> Tensor:
        """Update on one batch; returns its loss, NaN where the update was skipped."""
        return self._run("train", self._train, self._state(), (self._frozen(), batch, hyper), batch.inputs)

    def accumulate(
        self, batch: StepBatch, hyper: Hyperparameters, gradients: Gradients | None = None
    ) -> tuple[Gradients, Tensor]:
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        if gradients is None:
            gradients = [_variable(tf.zeros(value.shape)) for value in self.values]
        arguments = (self._frozen(), batch, hyper)
        return gradients, self._run("accumulate", self._accumulate, (gradients, self.values), arguments, batch.inputs)

    def update(self, gradients: Gradients, hyper: Hyperparameters) -> Tensor:
        """Update with gradients that were accumulated; returns 0, or NaN where one is not finite."""
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return self._run("update", self._update, self._state(), (gradients, hyper), {})

    def write_back(self) -> None:
        """Give the model its trained weights."""
        for variable, value in zip(self.model.trainable_variables, self.values, strict=True):
            variable.assign(value)

    def state(self) -> list[np.ndarray]:
        """Weights and moments, for a checkpoint."""
        return [np.array(value) for part in self._state() for value in part]

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        for value, array in zip(sum(self._state(), []), arrays, strict=True):
            value.assign(array)

    def _state(self) -> State:
        return self.values, self.moments_1, self.moments_2

    def _frozen(self) -> list[Tensor]:
        return [tf.convert_to_tensor(variable.value) for variable in self.model.non_trainable_weights]

    def _run(
        self,
        name: str,
        function: Callable[..., Tensor],
        variables: Any,
        arguments: tuple[Any, ...],
        inputs: dict[str, np.ndarray],
    ) -> Tensor:
        key = (*self.key, name, shapes_key(inputs))
        return _call(compiled(key, lambda: _compile(function, variables, arguments)), variables, arguments)

    def _gradients(
        self, values: list[Tensor], frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters
    ) -> tuple[list[Tensor], Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs, _ = self.model.stateless_call(
                values, state_values(self.model, hyper.seed, frozen), batch.inputs, training=True
            )
            losses = self.loss(outputs, batch.targets, batch.weights)
            scaled = tf.reshape(losses, [-1])[0] * hyper.loss_scale
        gradients = tape.gradient(scaled, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(gradient) for gradient in gradients], losses

    def _train(self, state: State, frozen: list[Tensor], batch: StepBatch, hyper: Hyperparameters) -> Tensor:
        values = [tf.convert_to_tensor(value) for value in state[0]]
        gradients, loss = self._gradients(values, frozen, batch, hyper)
        return loss + self._update(state, gradients, hyper)

    def _accumulate(
        self,
        state: tuple[list[tf.Variable], list[tf.Variable]],
        frozen: list[Tensor],
        batch: StepBatch,
        hyper: Hyperparameters,
    ) -> Tensor:
        total, values = state
        values = [tf.convert_to_tensor(value) for value in values]
        gradients, loss = self._gradients(values, frozen, batch, hyper)
        for a, g in zip(total, gradients, strict=True):
            a.assign_add(tf.cast(g, "float32"))
        return loss

    def _update(self, state: State, gradients: list[Tensor], hyper: Hyperparameters) -> Tensor:
        before = [[tf.convert_to_tensor(value) for value in part] for part in state]
        values, moments_1, moments_2 = before
        *after, found_inf = updated(values, moments_1, moments_2, gradients, hyper, self.optimizer)
        for variables, new_values in zip(state, after, strict=True):
            for variable, value in zip(variables, new_values, strict=True):
                variable.assign(value)
        return found_inf


def predictor(model: keras.Model, devices: Sequence[Any] = ()) -> Predictor:
    """A function from a batch's inputs to the model's outputs.

    It is for one call of an estimator. Any number of threads may call it. Its calls take ``devices`` in turns, each of
    which gets the weights when its turn first comes.
    """
    parts = model_variables(model)
    variables = [[_on_first(variable.value) for variable in part] for part in (parts.trainable, parts.others)]
    key, turns, copies = ("tensorflow", parts.key, "predict"), itertools.count(), dict[Any, Any]()

    def function(variables: list[list[tf.Variable]], inputs: dict[str, Tensor]) -> Any:
        weights = [[tf.convert_to_tensor(variable) for variable in part] for part in variables]
        return model.stateless_call(*weights, inputs, training=False)[0]

    def predict(inputs: dict[str, np.ndarray]) -> Any:
        run = compiled((*key, shapes_key(inputs)), lambda: _compile(function, variables, (inputs,)))
        if not devices:
            return _call(run, variables, (inputs,))
        device = devices[next(turns) % len(devices)]
        with tf.device(device):
            if device not in copies:
                copies[device] = tf.nest.map_structure(_variable, variables)
            return _call(run, copies[device], (inputs,))

    return predict


def differentiator(model: keras.Model, name: str) -> Differentiator:
    """The derivative of a model's outputs by one of its inputs; threads as for `predictor`."""
    parts = model_variables(model)
    variables = [[_on_first(variable.value) for variable in part] for part in (parts.trainable, parts.others)]
    key = ("tensorflow", parts.key, "differentiate", name)

    def function(
        variables: list[list[tf.Variable]], inputs: dict[str, Tensor], chosen: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = [[tf.convert_to_tensor(variable) for variable in part] for part in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(inputs[name])
            sums = tf.reduce_sum(model.stateless_call(*weights, inputs, training=False)[0] * chosen, axis=-1)
        return sums, tape.gradient(sums, inputs[name])

    def differentiate(inputs: dict[str, np.ndarray], chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        arguments = (inputs, chosen)
        run = compiled((*key, shapes_key(inputs)), lambda: _compile(function, variables, arguments))
        return _call(run, variables, arguments)

    return differentiate


def _variable(value: Tensor) -> tf.Variable:
    # The step writes into it, so that there is one copy of the weights and of each moment.
    return _on_first(tf.Variable(value, trainable=False))


def _on_first(variable: Any) -> Any:
    """The variable itself; where it was made in the scope of a strategy, which has it on each device, the first one.

    A compiled function takes variables of one kind: the scope may end before it is called again, or begin.
    """
    if not isinstance(variable, tf.distribute.DistributedValues):
        return variable
    return variable.distribute_strategy.experimental_local_results(variable)[0]


def _compile(function: Callable[..., Any], variables: Any, arguments: tuple[Any, ...]) -> Any:
    """A concrete function of the flat variables and arguments.

    Unlike a tf.function, it keeps neither ``function`` nor its model, nor the variables, and works on any others of
    their shapes.
    """

    def specification(value: Any) -> tf.TensorSpec:
        value = np.asarray(value) if isinstance(value, np.generic) else value
        return tf.TensorSpec(value.shape, value.dtype)

    structure = tf.nest.map_structure(specification, arguments)
    n = len(tf.nest.flatten(variables))

    def flat(*values: Tensor) -> Any:
        return function(
            tf.nest.pack_sequence_as(variables, values[:n]), *tf.nest.pack_sequence_as(structure, values[n:])
        )

    start_compiler()
    # There is no control flow to convert, and AutoGraph would write Python files into the temporary folder.
    compiled = tf.function(flat, jit_compile=True, autograph=False)
    return compiled.get_concrete_function(*tf.nest.flatten(variables), *tf.nest.flatten(structure))


def _call(concrete: Callable[..., Any], variables: Any, arguments: tuple[Any, ...]) -> Any:
    tensors = (tf.convert_to_tensor(value) for value in tf.nest.flatten(arguments))
    return concrete(*tf.nest.flatten(variables), *tensors)
