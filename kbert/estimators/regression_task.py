"""What numbers as targets mean: the same attributes and methods as the tasks of `label_tasks`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.metrics import r2_score

from kbert.data.frames import columns_by_name
from kbert.data.numbers import number_columns
from kbert.training.losses import squared_error

# Standard deviations that the mean of y may be away from 0; float32 has about 1.7e7 steps.
_MOST_MEAN = 1e5


class RegressionTask:
    """One or several numbers for each row.

    Trained on numbers with mean 0 and variance 1, as which any unit is learned at the same rate. Afterwards the head's
    weights are changed so that it gives the numbers in their own unit, and the saved model needs nothing else.

    Parameters
    ----------
    n_outputs : int
        Columns of numbers.
    flat : bool
        Whether y had one dimension, as answers then have.
    column_names : list of str or int, or None
    mean, scale : ndarray of shape (n_outputs,), optional
        Of the training rows; taken from the first rows that are weighted, where they are not given.
    """

    loss = staticmethod(squared_error)
    problem_type = "regression"
    prior_knowledge = "the mean of y"

    def __init__(self, n_outputs: int, flat: bool, column_names: list | None, mean=None, scale=None):
        self.n_outputs, self.flat, self.column_names, self.mean, self.scale = n_outputs, flat, column_names, mean, scale

    @classmethod
    def read(cls, y: Any, n_rows: int) -> tuple[RegressionTask, np.ndarray]:
        """The task of a first fit, and its numbers."""
        numbers, names, flat = number_columns(y, n_rows)
        return cls(numbers.shape[1], flat, names), numbers

    @property
    def names(self) -> dict[int, str]:
        """The ``id2label`` of a config.json."""
        return {i: str(self.column_names[i]) if self.column_names else f"LABEL_{i}" for i in range(self.n_outputs)}

    def fold(self, model) -> None:
        """Let the head give numbers in their own unit."""
        self._change_head(model, self.scale, self.mean)

    def unfold(self, model) -> None:
        """Let a head that gives numbers in their own unit give them with mean 0 and variance 1."""
        self._change_head(model, 1 / self.scale, -self.mean / self.scale)

    @staticmethod
    def _change_head(model, factor: np.ndarray, offset: np.ndarray) -> None:
        kernel, bias = model.classifier.kernel, model.classifier.bias
        kernel.assign(keras.ops.convert_to_numpy(kernel.value) * factor)
        bias.assign(keras.ops.convert_to_numpy(bias.value) * factor + offset)

    # --- Numbers -> targets

    def encode(self, y: Any, n_rows: int, name: str) -> np.ndarray:
        """The numbers, columns in the order of fit; another number of columns, or other names, raise."""
        numbers, names, _ = number_columns(y, n_rows, name)
        if numbers.shape[1] != self.n_outputs:
            raise ValueError(f"{name} has {numbers.shape[1]} columns of numbers, and y of fit had {self.n_outputs}.")
        if names and self.column_names:
            numbers = numbers[:, columns_by_name(names, self.column_names, name)]
        return numbers

    def weighted(self, numbers: np.ndarray, weights: np.ndarray, class_weight: None) -> tuple[np.ndarray, np.ndarray]:
        """Targets, and the weights of the rows."""
        if self.mean is None:
            self.mean = np.average(numbers, axis=0, weights=weights)
            scale = np.sqrt(np.average((numbers - self.mean) ** 2, axis=0, weights=weights))
            # Not scale > 0: the mean of equal numbers may be off by its last digit.
            varies = np.ptp(numbers[weights > 0], axis=0) > 0
            self.scale = np.where(varies, scale, 1.0)
            self._refuse_what_float32_cannot_tell_apart(varies)
        return ((numbers - self.mean) / self.scale).astype("float32"), weights.astype("float32")

    def _refuse_what_float32_cannot_tell_apart(self, varies: np.ndarray) -> None:
        for i in np.flatnonzero(varies & (np.abs(self.mean) > _MOST_MEAN * self.scale)).tolist():
            of_column = "" if self.flat else f" of column {self.column_names[i] if self.column_names else i!r}"
            raise ValueError(
                f"The mean of y{of_column} is {self.mean[i]:.6g}, and its standard deviation {self.scale[i]:.3g}: the "
                "model gives float32, seven digits, which can not tell such numbers apart. Subtract a constant from y; "
                "or sklearn.compose.TransformedTargetRegressor(BertRegressor(), transformer=StandardScaler()), which "
                "adds it again when predicting."
            )

    def strata(self, targets: np.ndarray) -> None:
        """Nothing to stratify a split by."""
        return None

    # --- Outputs -> losses and scores

    def losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Mean squared error of each row."""
        return ((outputs - targets) ** 2).mean(axis=1)

    def score(self, outputs: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """R², the mean over the columns."""
        return float(r2_score(targets, outputs, sample_weight=weights)) if len(targets) > 1 else float("nan")

    def prior_loss(self, targets: np.ndarray, weights: np.ndarray) -> float:
        """The lowest mean loss of outputs that are the same for all rows: the variance."""
        mean = np.average(targets, axis=0, weights=weights)
        return float(np.average(((targets - mean) ** 2).mean(axis=1), weights=weights))

    def decides_alike(self, outputs: np.ndarray) -> bool:
        """Whether all rows get nearly the same numbers."""
        return bool((outputs.std(axis=0) < 0.05).all())
