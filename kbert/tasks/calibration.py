"""Temperature scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar

from kbert.data.texts import TextColumns
from kbert.tasks.task import Task
from kbert.tasks.texts import TextExamples

if TYPE_CHECKING:
    import keras


def divide_by_temperature(
    task: Task[TextColumns, np.ndarray, TextExamples, np.ndarray],
    model: keras.Model,
    validation: TextExamples | None,
) -> float:
    """Divide a model's logits by the number that gives the validation set the lowest loss.

    One number for all classes (Guo et al., 2017, "On Calibration of Modern Neural Networks"). The head's weights are
    divided by it, so that saved and exported models have it too.

    Returns
    -------
    float
        The temperature, between 0.05 and 20.
    """
    assert validation is not None  # since `needs_validation` of the task names the parameter
    logits = task.outputs(model, validation)
    temperature = best_temperature(lambda temperature: task.mean_loss(logits / temperature, validation))
    for variable in model.classifier.weights:
        variable.assign(variable.value / temperature)
    return temperature


def best_temperature(loss: Callable[[float], float]) -> float:
    """The temperature, between 0.05 and 20, with the lowest loss."""
    found = minimize_scalar(lambda log: loss(np.exp(log)), bounds=np.log([0.05, 20]), method="bounded")
    return float(np.exp(found.x))
