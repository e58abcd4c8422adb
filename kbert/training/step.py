"""What a backend does in training and predicting: the interface that each ``step_*.py`` has.

A new backend is a new file of this shape, and a line in `kbert.training.backends`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from kbert.training.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    import keras

# An array of the backend, which the device may still compute.
Tensor: TypeAlias = Any
# One array, or several by name, such as those of the two tasks of pre-training.
Arrays: TypeAlias = np.ndarray | dict[str, np.ndarray]
# The gradients of all trainable variables, in any form: only the trainer that made them looks inside.
Gradients: TypeAlias = Any
# ``loss(outputs, targets, weights)``: a scalar, or a vector whose first number is minimised and all of which are
# reported. A step is compiled once for each such object, so one with options is best made once for the same options.
Loss: TypeAlias = Callable[[Tensor, Any, Any], Tensor]
# From a batch's inputs to a model's outputs.
Predictor: TypeAlias = Callable[[dict[str, np.ndarray]], Any]
# From a batch's inputs and an array of the outputs' shape: the outputs times this array, summed over the last axis; and
# the derivative of the sum of all of these by one of the inputs.
Differentiator: TypeAlias = Callable[[dict[str, np.ndarray], np.ndarray], tuple[Tensor, Tensor]]


class StepBatch(NamedTuple):
    """The arrays of one step.

    Attributes
    ----------
    inputs : dict of ndarray
        The model's inputs, by their names.
    targets, weights : ndarray or dict of ndarray
        What the loss takes besides the model's outputs.
    """

    inputs: dict[str, np.ndarray]
    targets: Arrays
    weights: Arrays


# Numbers that tell apart the dropout of one device from the others', where each has some rows of a batch.
DROPOUT_STREAMS = 2**16


def rows_of_part(array: np.ndarray, number: int, n: int) -> np.ndarray:
    """The rows of an array that one of n devices has, each as many."""
    size = len(array) // n
    return array[number * size : (number + 1) * size]


class Trainer(Protocol):
    """Holds the weights and the optimiser's moments of a model while it is trained."""

    def train(self, batch: StepBatch, hyper: Hyperparameters) -> Tensor:
        """Make one update with the gradients of one batch.

        Returns
        -------
        tensor
            What the loss function gives for the batch, before the update. It is NaN where the loss or a gradient was
            not finite; then the update is skipped, and nothing changes.
        """
        ...

    def accumulate(
        self, batch: StepBatch, hyper: Hyperparameters, gradients: Gradients | None = None
    ) -> tuple[Gradients, Tensor]:
        """Add one batch's gradients to those of the batches before it, and return the sum and the batch's loss.

        Parameters
        ----------
        gradients
            The sum so far, whose memory may be used again; None before the first batch.
        """
        ...

    def update(self, gradients: Gradients, hyper: Hyperparameters) -> Tensor:
        """Make one update with gradients that were accumulated; their memory may be used again.

        Returns
        -------
        tensor
            0 where all gradients were finite. NaN where one was not, and the update was skipped: added to a loss, it
            marks the loss of a skipped update.
        """
        ...

    def write_back(self) -> None:
        """Give the model its trained weights."""
        ...

    def state(self) -> list[np.ndarray]:
        """The trained weights and the moments, for a checkpoint."""
        ...

    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        ...


class BackendStep(Protocol):
    """A module ``step_*.py``."""

    def Trainer(self, model: keras.Model, loss: Loss, optimizer: str = "adamw") -> Trainer:
        """A trainer of a model's trainable variables by "adamw" or "lamb"."""
        ...

    def predictor(self, model: keras.Model, devices: Sequence[Any] = ()) -> Predictor:
        """A function from a batch's inputs to the model's outputs, for one call of an estimator.

        The weights are those that the model has now. Any number of threads may call the function. Where ``devices`` are
        given, its calls take them in turns.
        """
        ...

    def differentiator(self, model: keras.Model, name: str) -> Differentiator:
        """A function that differentiates chosen outputs of the model by the input ``name``, whose numbers are floats.

        The weights are those that the model has now. Any number of threads may call the function.
        """
        ...
