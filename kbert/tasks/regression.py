"""One or several numbers for each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.metrics import r2_score

from kbert.data.frames import columns_by_name
from kbert.data.mistakes import warn_of_far_number
from kbert.data.numbers import number_columns
from kbert.data.texts import TextColumns
from kbert.errors import WeightsMismatchError
from kbert.tasks.linear_head import ridge_head
from kbert.tasks.ranking import number_ranking
from kbert.tasks.task import Recipe, nothing_learned
from kbert.tasks.texts import TextExamples, TextTask
from kbert.text import WordPieceTokenizer
from kbert.training.labelled_batches import TrainingData
from kbert.training.losses import squared_error
from kbert.values.saved import NUMBER, POSITIVE, SavedValues, list_of, none_or, whole

if TYPE_CHECKING:
    import keras

# How many standard deviations the mean of y may be away from 0: float32 has about 1.7e7 steps.
_LARGEST_MEAN = 1e5


@dataclass(kw_only=True)
class Regression(TextTask):
    """One or several numbers for each row.

    The model is trained on numbers with mean 0 and variance 1, so that any unit is learned at the same rate. After
    training the head's weights are changed so that it gives numbers in the unit of y; the saved model needs nothing
    else. Labels of examples are the standardised numbers, float32, shape (n_rows, n_columns).

    Parameters
    ----------
    max_length, long_text, stride
        As in `kbert.BertRegressor`.
    y_mean_, y_scale_, y_columns_, y_ndim_
        What is learned: see there.
    """

    y_mean_: np.ndarray = field(default_factory=nothing_learned)
    y_scale_: np.ndarray = field(default_factory=nothing_learned)
    y_columns_: list[str | int] | None = None
    y_ndim_: int = 0

    loss = staticmethod(squared_error)
    fit_head = staticmethod(ridge_head)
    recipe: ClassVar[Recipe] = Recipe(narrow_rate_factor=2.0)  # docs/benchmarks/defaults.md, "Numbers"
    kind: ClassVar[str | None] = "numbers"
    baseline: ClassVar[str] = "the mean of y"
    rows_of_cls: ClassVar[float] = 2000
    rate_factor_of_pairs: ClassVar[float] = 1.0  # as that of single texts, which is high
    problem_type: ClassVar[str | None] = "regression"

    # --- y to labels

    def read_labels(self, y: Any, columns: TextColumns, name: str = "y") -> np.ndarray:
        """The numbers in their own unit, float64; another number of columns than in fit, or other names, raise."""
        numbers, names, flat = number_columns(y, columns.n_rows, name)
        if not self.y_ndim_:
            self.y_columns_, self.y_ndim_ = names, 1 if flat else 2
        elif len(self.y_mean_) and numbers.shape[1] != len(self.y_mean_):
            of_fit = f", {self.y_columns_[:20]}" if self.y_columns_ else ""
            raise ValueError(
                f"{name} has {numbers.shape[1]} columns of numbers, and y of fit had {len(self.y_mean_)}{of_fit}."
            )
        elif names and self.y_columns_:
            numbers = numbers[:, columns_by_name(names, self.y_columns_, name)]
        return numbers

    def examples(
        self, columns: TextColumns, labels: np.ndarray, weights: np.ndarray, tokenizer: WordPieceTokenizer
    ) -> TextExamples:
        """Rows as tokens, and the standardised numbers."""
        # Numbers of rows without weight may be anything, and infinity times 0 is no number.
        of_rows = np.where(weights[:, None] > 0, labels - self.y_mean_, 0.0)
        standardised = (of_rows / self.y_scale_).astype("float32")
        return super().examples(columns, standardised, weights, tokenizer)

    def learn(self, labels: np.ndarray, weights: np.ndarray) -> None:
        """Mean and scale of y, but for a warm start, which keeps those of the fit before."""
        if len(self.y_mean_):
            return
        mean = np.average(labels, axis=0, weights=weights)
        scale = np.sqrt(np.average((labels - mean) ** 2, axis=0, weights=weights))
        for i, column in enumerate(labels[weights > 0].T):
            of_column = "" if self.y_ndim_ == 1 else f", column {self.y_columns_[i] if self.y_columns_ else i!r},"
            warn_of_far_number(column, f"y{of_column}")
        # Not scale > 0: the mean of equal numbers may be off by its last digit.
        varies = np.ptp(labels[weights > 0], axis=0) > 0
        scale = np.where(varies, scale, 1.0)
        for i in np.flatnonzero(varies & (np.abs(mean) > _LARGEST_MEAN * scale)).tolist():
            of_column = "" if self.y_ndim_ == 1 else f" of column {self.y_columns_[i] if self.y_columns_ else i!r}"
            raise ValueError(
                f"The mean of y{of_column} is {mean[i]:.6g}, and its standard deviation {scale[i]:.3g}: the "
                "model gives float32, seven digits, which can not tell such numbers apart. Subtract a constant from y; "
                "or sklearn.compose.TransformedTargetRegressor(BertRegressor(), transformer=StandardScaler()), which "
                "adds it again when predicting."
            )
        self.y_mean_, self.y_scale_ = mean, scale

    # --- Training

    @property
    def n_outputs(self) -> int:
        """One for each column of y."""
        return len(self.y_mean_)

    @property
    def output_names(self) -> dict[int, str]:
        """The columns of y."""
        return {i: str(self.y_columns_[i]) if self.y_columns_ else f"LABEL_{i}" for i in range(self.n_outputs)}

    @property
    def output_labels(self) -> list[Any]:
        """The columns of y, or their numbers where they have no names."""
        return list(self.y_columns_ or range(self.n_outputs))

    def before_training(self, model: keras.Model) -> None:
        """Let the head, which gives numbers in the unit of y, give standardised ones."""
        self._change_head(model, 1 / self.y_scale_, -self.y_mean_ / self.y_scale_)

    def after_training(self, model: keras.Model, examples: TextExamples, validation: TextExamples | None) -> None:
        """Let the head give numbers in the unit of y."""
        self._change_head(model, self.y_scale_, self.y_mean_)

    @staticmethod
    def _change_head(model: keras.Model, factor: np.ndarray, offset: np.ndarray) -> None:
        """Let the head give ``outputs * factor + offset``."""
        from kbert.model.base import to_numpy

        kernel, bias = model.classifier.kernel, model.classifier.bias
        kernel.assign(to_numpy(kernel.value) * factor)
        bias.assign(to_numpy(bias.value) * factor + offset)

    # --- Outputs

    def mean_loss(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Mean squared error, in units of the variance of y."""
        losses = ((outputs - examples.labels) ** 2).mean(axis=1)
        return float(np.average(losses, weights=examples.weights))

    def score(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """R², the mean over the columns; NaN for a single row, which has none."""
        if examples.n_rows < 2:
            return float("nan")
        return float(r2_score(examples.labels, outputs, sample_weight=examples.weights))

    def baseline_loss(self, data: TrainingData) -> float:
        """The variance."""
        mean = np.average(data.targets, axis=0, weights=data.weights)
        return float(np.average(((data.targets - mean) ** 2).mean(axis=1), weights=data.weights))

    def ranking(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """The correlation of the outputs with y."""
        return number_ranking(outputs, examples.labels)

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        """Numbers of as many dimensions as y of fit had."""
        return outputs[:, 0] if self.y_ndim_ == 1 else outputs

    # --- Folders

    def learned_to_json(self) -> dict[str, Any]:
        """Mean, scale, columns and dimensions of y."""
        return {
            "mean": self.y_mean_.tolist(),
            "scale": self.y_scale_.tolist(),
            "columns": self.y_columns_,
            "ndim": self.y_ndim_,
        }

    def learn_from_json(self, values: SavedValues, model: keras.Model, folder: Path) -> None:
        """As many columns as the head has outputs."""
        mean, n_outputs = values.checked("mean", list_of(NUMBER)), model.num_labels
        if len(mean) != n_outputs:
            raise WeightsMismatchError(
                f"{folder} holds {len(mean)} columns of numbers and a head of {n_outputs} outputs."
            )
        self.y_mean_ = np.array(mean, "float64")
        self.y_scale_ = np.array(values.checked("scale", list_of(POSITIVE, n_outputs)), "float64")
        name = (lambda column: type(column) in (str, int), "a text or a whole number")
        self.y_columns_ = values.checked("columns", none_or(list_of(name, n_outputs)))
        self.y_ndim_ = values.checked("ndim", whole(1 if n_outputs == 1 else 2, 2))

    def learn_from_config(self, values: dict[str, Any], model: keras.Model, folder: Path) -> None:
        """Outputs in the unit of y, whatever that is."""
        problem_type, n_outputs = values.get("problem_type"), model.num_labels
        if problem_type not in (None, "regression") or (problem_type is None and n_outputs > 1):
            raise WeightsMismatchError(
                f"{folder} holds a model with {n_outputs} outputs and problem_type={problem_type!r}, which is no "
                "regression; load it with kbert.BertClassifier.load."
            )
        self.y_mean_, self.y_scale_ = np.zeros(n_outputs), np.ones(n_outputs)
        self.y_columns_, self.y_ndim_ = None, 1 if n_outputs == 1 else 2
