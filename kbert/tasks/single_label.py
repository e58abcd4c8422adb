"""One label for each row: a softmax over the classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import log_softmax, softmax

from kbert.data.labels import label_column, require_same_type
from kbert.data.mistakes import check_labels, warn_of_unknown_labels
from kbert.data.texts import TextColumns
from kbert.errors import WeightsMismatchError
from kbert.tasks.calibration import divide_by_temperature
from kbert.tasks.class_weight import checked_class_weight, weights_of_classes
from kbert.tasks.linear_head import softmax_head
from kbert.tasks.ranking import class_ranking
from kbert.tasks.saved_labels import decode_labels, encode_labels, labels_of_config
from kbert.tasks.task import Contrast, Recipe, entropy_of_classes, nothing_learned, shares_of_classes
from kbert.tasks.texts import TextExamples, TextTask
from kbert.training.labelled_batches import TrainingData
from kbert.training.losses import softmax_cross_entropy, supervised_contrast
from kbert.values.printable import shown
from kbert.values.saved import POSITIVE, SavedValues

if TYPE_CHECKING:
    import keras

# Of more classes, 16 rows hold hardly two of one, and contrast learns only from those (docs/benchmarks/defaults.md).
_MANY_CLASSES = 8


@dataclass(kw_only=True)
class SingleLabel(TextTask):
    """One label for each row.

    Labels of examples are the numbers of their classes, int32; outputs are logits.

    Parameters
    ----------
    max_length, long_text, stride, few_labels, class_weight, calibrate, tune_thresholds
        As in `kbert.BertClassifier`.
    classes_, temperature_, y_type_
        What is learned: see there.
    """

    few_labels: bool = False
    class_weight: str | dict[Any, float] | None = None
    calibrate: str | None = None
    tune_thresholds: bool = False
    classes_: np.ndarray = field(default_factory=nothing_learned)
    temperature_: float = 1.0
    y_type_: str = "labels"
    _weights_of_classes: np.ndarray | None = field(default=None, init=False, repr=False)

    loss = staticmethod(softmax_cross_entropy)
    fit_head = staticmethod(softmax_head)
    kind: ClassVar[str | None] = "labels"
    baseline: ClassVar[str] = "how often each label occurs"
    problem_type: ClassVar[str | None] = "single_label_classification"

    # --- y to labels

    def read_labels(self, y: Any, columns: TextColumns, name: str = "y") -> np.ndarray:
        """The number of each row's class; labels that are no classes raise."""
        labels = label_column(y, columns.n_rows, name)
        if self.tune_thresholds:
            raise ValueError(
                "tune_thresholds is for several labels a row, and y holds one. For two classes, see scikit-learn's "
                "TunedThresholdClassifierCV."
            )
        if not len(self.classes_):
            check_labels(labels, y)
            return self._learn(labels)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str)
        if unknown:
            raise ValueError(f"{name} holds labels that y of fit did not: {unknown[:5]}.")
        # Those of a config.json are in the order of the head, not sorted.
        order = np.argsort(self.classes_)
        return order[np.searchsorted(self.classes_, labels, sorter=order)].astype("int32")

    def _learn(self, labels: np.ndarray) -> np.ndarray:
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"BertClassifier needs at least two classes to tell apart, and y holds one class only: {classes[0]!r}. "
                "Is it the right column, or a filtered one?"
            )
        if isinstance(self.class_weight, dict):
            checked_class_weight(self.class_weight, classes, zero_allowed=True)
        self.classes_ = classes
        return numbers.astype("int32")

    def right_rows(self, y: Any, answers: Any) -> np.ndarray:
        """Which rows of y have the label that ``predict`` gave them. Labels that are no classes are wrong.

        Raises
        ------
        TypeError
            Where y holds numbers and y of fit held strings, or the other way round.
        """
        labels = label_column(y, len(answers))
        require_same_type(labels, self.classes_)
        warn_of_unknown_labels(labels, self.classes_)
        return np.array([label == answer for label, answer in zip(labels.tolist(), answers, strict=True)])

    def learn(self, labels: np.ndarray, weights: np.ndarray) -> None:
        """The weight of each class, float64, with ``class_weight``. A class that a dict does not name counts 1."""
        if isinstance(self.class_weight, dict):
            self._weights_of_classes = weights_of_classes(self.class_weight, self.classes_, zero_allowed=True)
        elif self.class_weight == "balanced":
            # As scikit-learn's compute_class_weight, whose older versions know no sample_weight.
            masses = np.bincount(labels, weights, len(self.classes_))
            present = masses > 0
            mean, ones = masses.sum() / max(1, present.sum()), np.ones(len(masses))
            self._weights_of_classes = np.divide(mean, masses, out=ones, where=present)

    def row_weights(self, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Rows of a class of weight 0 are as good as absent."""
        if self._weights_of_classes is None:
            return weights
        counted = np.where(self._weights_of_classes[labels] > 0, weights, 0)
        if not counted.any():
            raise ValueError("All rows have weight 0 after class_weight: nothing could be learned.")
        return counted

    def require_learnable(self, labels: np.ndarray, weights: np.ndarray) -> None:
        """Rows of two classes at least."""
        present = np.unique(labels[weights > 0])
        if len(present) == 1:
            raise ValueError(
                f"All rows whose weight is not 0 are of one class, {shown(self.classes_[present[0]])}, and "
                "BertClassifier needs two to tell apart. Look at sample_weight and class_weight."
            )

    # --- Training

    @property
    def contrast(self) -> Contrast | None:
        """Rows of one class near each other, in few updates at a high rate."""
        if not self.few_labels:
            return None
        many = len(self.classes_) > _MANY_CLASSES
        return Contrast(
            supervised_contrast, Recipe(updates=16, epochs=1, least_batch=64 if many else 16, rate_factor=4.0)
        )

    @property
    def most_probed(self) -> int | None:
        """All with ``few_labels``, whose head is fitted to vectors and not trained after that."""
        return None if self.few_labels else super().most_probed

    @property
    def n_outputs(self) -> int:
        """One for each class."""
        return len(self.classes_)

    @property
    def output_labels(self) -> list[Any]:
        """The classes."""
        return self.classes_.tolist()

    def strata(self, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The classes."""
        return labels

    def label_shares(self, numbers: list[tuple[Any, ...]]) -> dict[Any, float]:
        """Of the rows."""
        return shares_of_classes(self.classes_, numbers, len(numbers))

    def needs_validation(self, labels: np.ndarray, weights: np.ndarray) -> str | None:
        """The temperature is taken from rows that were not trained on."""
        return "calibrate" if self.calibrate else None

    def training_data(self, examples: TextExamples) -> TrainingData:
        """The weight of a row is multiplied by that of its class."""
        return self._training_data(examples, examples.labels, self._weighted(examples))

    def _weighted(self, examples: TextExamples) -> np.ndarray:
        """The weights of rows, multiplied by those of their classes."""
        if self._weights_of_classes is None:
            return examples.weights
        return examples.weights.astype("float64") * self._weights_of_classes[examples.labels]

    def after_training(self, model: keras.Model, examples: TextExamples, validation: TextExamples | None) -> None:
        """The temperature, if it was asked for."""
        self.temperature_ = divide_by_temperature(self, model, validation) if self.calibrate else 1.0

    # --- Outputs

    def mean_loss(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Cross-entropy in nats."""
        losses = -log_softmax(outputs, axis=1)[np.arange(examples.n_rows), examples.labels]
        return float(np.average(losses, weights=examples.weights))

    def score(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Accuracy."""
        return float(np.average(outputs.argmax(axis=1) == examples.labels, weights=examples.weights))

    def baseline_loss(self, data: TrainingData) -> float:
        """The entropy of the labels."""
        return entropy_of_classes(data)

    def training_loss(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """With ``class_weight``."""
        return self.mean_loss(outputs, examples._replace(weights=self._weighted(examples)))

    def ranking(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Of each class against the rest."""
        return class_ranking(log_softmax(outputs, axis=1), examples.labels)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Probability of each class; they add up to 1."""
        return softmax(outputs, axis=1)

    def log_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Natural logarithms of `probabilities`."""
        return log_softmax(outputs, axis=1)

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        """The most probable label of each row."""
        return self.classes_[outputs.argmax(axis=1)]

    # --- Folders

    def learned_to_json(self) -> dict[str, Any]:
        """Classes with their type, and the temperature."""
        return {
            "classes": encode_labels(self.classes_),
            "y_type": self.y_type_,
            "thresholds": None,
            "temperature": self.temperature_,
        }

    def learn_from_json(self, values: SavedValues, model: keras.Model, folder: Path) -> None:
        """As many classes as the head has outputs."""
        self.classes_ = decode_labels(values.inner("classes"), model.num_labels, "labels", folder)
        self.temperature_ = values.checked("temperature", POSITIVE)

    def learn_from_config(self, values: dict[str, Any], model: keras.Model, folder: Path) -> None:
        """The classes of id2label."""
        if values.get("problem_type") == self.problem_type and model.num_labels == 1:
            raise WeightsMismatchError(
                f"{folder} holds a model with one output and problem_type={self.problem_type!r}, which can give but "
                'one label. Write "regression" into its config.json where the output is a number, or '
                '"multi_label_classification" where it says whether a text has the label.'
            )
        if values.get("problem_type") == "regression" or model.num_labels == 1:
            raise WeightsMismatchError(
                f"{folder} holds a model with {model.num_labels} outputs and "
                f"problem_type={values.get('problem_type')!r}, which gives numbers, not one of several labels; load it "
                "with kbert.BertRegressor.load."
            )
        self.classes_ = labels_of_config(folder, model.num_labels)
