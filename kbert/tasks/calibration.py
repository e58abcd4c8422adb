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

# What is expected of the temperature before any row is looked at: its logarithm has this mean and standard deviation.
# A fine-tuned BERT is too sure. The best temperature was 1.9 in the geometric mean of 40 fits to 40 to 400 rows, from
# 0.9 to 4 (benchmarks/temperatures.py), and 1.5 to 1.6 with 10,000 rows (benchmarks/calibration.py).
_USUAL, _SPREAD = np.log(1.5), 0.5


def divide_by_temperature(
    task: Task[TextColumns, np.ndarray, TextExamples, np.ndarray],
    model: keras.Model,
    validation: TextExamples | None,
) -> float:
    """Divide a model's logits by the number that suits the validation set: `best_temperature`.

    One number for all classes (Guo et al., 2017, "On Calibration of Modern Neural Networks"). The head's weights are
    divided by it, so that saved and exported models have it too.

    Returns
    -------
    float
        The temperature, between 0.05 and 20.
    """
    assert validation is not None  # since `needs_validation` of the task names the parameter
    logits, weights = task.outputs(model, validation), validation.weights.astype("float64")
    n_rows = weights.sum() ** 2 / np.square(weights).sum()  # Kish, 1965: as many rows of equal weight tell as much
    n_answers = n_rows * task.n_answers
    temperature = best_temperature(lambda temperature: task.mean_loss(logits / temperature, validation), n_answers)
    for variable in model.classifier.weights:
        variable.assign(variable.value / temperature)
    return temperature


def best_temperature(loss: Callable[[float], float], n_answers: float) -> float:
    """The temperature, between 0.05 and 20, that is most probable after the rows that were looked at.

    With many rows it is that of the lowest loss. A few rows, all of them right, would have it at 0.05, and every answer
    certain: so what is usual counts too, as a normal distribution of its logarithm.

    Parameters
    ----------
    loss : callable
        The mean loss of the answers in nats, by temperature.
    n_answers : float
        How many these are: one for each row; with several labels a row, one for each row and label.
    """

    def surprise(logarithm: float) -> float:
        return n_answers * loss(np.exp(logarithm)) + ((logarithm - _USUAL) / _SPREAD) ** 2 / 2

    found = minimize_scalar(surprise, bounds=np.log([0.05, 20]), method="bounded")
    return float(np.exp(found.x))
