"""Any number of labels for each row: a yes or no for each label by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit, log_expit, xlogy
from sklearn.metrics import average_precision_score, precision_recall_curve

from kbert.data.frames import columns_by_name
from kbert.data.label_sets import LabelSets, kind_of_labels, label_sets
from kbert.data.labels import require_same_type
from kbert.data.mistakes import warn_of_one_hot, warn_of_untidy_labels
from kbert.data.texts import TextColumns
from kbert.errors import ParameterWarning
from kbert.tasks.calibration import divide_by_temperature
from kbert.tasks.class_weight import checked_class_weight, weights_of_classes
from kbert.tasks.linear_head import sigmoid_head
from kbert.tasks.ranking import label_ranking
from kbert.tasks.saved_labels import decode_labels, encode_labels, labels_of_config
from kbert.tasks.task import nothing_learned, shares_of_classes, some_rows
from kbert.tasks.texts import TextExamples, TextTask
from kbert.training.labelled_batches import TrainingData
from kbert.training.losses import binary_cross_entropy
from kbert.values.printable import shown
from kbert.values.saved import NUMBER_OR_INFINITY, POSITIVE, SavedValues, encode_infinity, list_of, one_of
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras


# The thresholds are lowered where those of 0.5 find less than this share of the labels of the training rows.
_TOO_FEW = 0.5
# A label that so many of the rows have gets a threshold of its own. Rarer labels share one, if together they have so
# many rows.
_ENOUGH_ROWS, _ENOUGH_TOGETHER = 5, 20


@dataclass(kw_only=True)
class SeveralLabels(TextTask):
    """Any number of labels for each row.

    Labels of examples are an indicator matrix, bool, shape (n_rows, n_classes); outputs are logits. A row has the
    labels whose probability reaches their threshold. Where each row of fit had a label, one that reaches none has the
    label that comes nearest. Elsewhere the thresholds are lowered if 0.5 leaves the training rows few of their labels.

    Parameters
    ----------
    max_length, long_text, stride, class_weight, calibrate, tune_thresholds
        As in `kbert.BertClassifier`.
    classes_, thresholds_, temperature_, at_least_one_, y_type_
        What is learned: see there. ``y_type_`` is "indicator" or "lists", as y was given and as answers are given.
    """

    class_weight: str | dict[Any, float] | None = None
    calibrate: str | None = None
    tune_thresholds: bool = False
    classes_: np.ndarray = field(default_factory=nothing_learned)
    thresholds_: np.ndarray = field(default_factory=nothing_learned)
    temperature_: float = 1.0
    at_least_one_: bool = False
    y_type_: str = ""
    _weights_of_labels: tuple[Any, Any] = field(default=(1.0, 1.0), init=False, repr=False)

    loss = staticmethod(binary_cross_entropy)
    fit_head = staticmethod(sigmoid_head)
    kind: ClassVar[str | None] = "several labels"
    baseline: ClassVar[str] = "how often each label occurs"
    score_name: ClassVar[str | None] = "average precision"
    problem_type: ClassVar[str | None] = "multi_label_classification"

    # --- y to labels

    def read_labels(self, y: Any, columns: TextColumns, name: str = "y") -> np.ndarray:
        """The indicator matrix; labels that are no classes, or other columns, raise."""
        if len(self.classes_):
            return self.read_sets(y, columns.n_rows, name).under(self.classes_, name)
        sets = label_sets(y, columns.n_rows)
        if not sets.indicator.any():
            raise ValueError("No row of y has a label: nothing could be learned. Is it the right column?")
        if kind_of_labels(y) == "indicator":
            warn_of_one_hot(sets.indicator, y)
        warn_of_untidy_labels(sets.classes.tolist(), y)
        if isinstance(self.class_weight, dict):
            checked_class_weight(self.class_weight, sets.classes, zero_allowed=False)
        self.classes_, self.y_type_ = sets.classes, kind_of_labels(y)
        self.thresholds_ = np.full(len(sets.classes), 0.5)
        return sets.indicator

    def read_sets(self, y: Any, n_rows: int, name: str = "y") -> LabelSets:
        """The labels of each row, with those of lists that are no classes; a matrix is read as in ``fit``."""
        of_lists = self.y_type_ == "lists"
        kind = kind_of_labels(y, lists=of_lists)
        if self.y_type_ == "indicator" and kind == "labels":
            raise ValueError(
                f"{name} has one label a row, and y of fit was a matrix with a column for each of "
                f"{self.classes_.tolist()[:20]}. Give such a matrix, of 0 and 1."
            )
        sets = label_sets(y, n_rows, name, lists=of_lists)
        if of_lists and kind == "indicator" and sets.columns is None:
            raise TypeError(
                f"{name} is a matrix whose columns have no names, and y of fit had a list of labels in each row. Give "
                f"such lists, or a DataFrame with a column for each of {self.classes_.tolist()[:20]}."
            )
        if of_lists or kind != "indicator":
            if len(sets.classes):
                require_same_type(sets.classes, self.classes_, name)
            occurring = sets.classes[sets.indicator.any(axis=0)]
            if len(occurring) and not np.isin(occurring, self.classes_).any():
                raise ValueError(
                    f"{name} has no label that the model knows: it has {occurring.tolist()[:5]}, and the model "
                    f"{self.classes_.tolist()[:5]}."
                )
            return sets
        if len(sets.classes) != len(self.classes_):
            raise ValueError(
                f"{name} has {len(sets.classes)} columns, and y of fit had {len(self.classes_)}: one for each of "
                f"{self.classes_.tolist()[:20]}."
            )
        if sets.columns is None or (not self.has_names and set(sets.columns) != set(self.classes_.tolist())):
            return LabelSets(sets.indicator, self.classes_)
        positions = columns_by_name(sets.columns, self.classes_.tolist(), name)
        return LabelSets(sets.indicator[:, positions], self.classes_)

    @property
    def has_names(self) -> bool:
        """Whether the labels of a matrix have names: the columns of an array are numbered."""
        return bool(self.classes_.tolist() != list(range(len(self.classes_))))

    def right_rows(self, y: Any, answers: Any) -> np.ndarray:
        """Which rows of y have exactly the labels that ``predict`` gave them."""
        sets = self.read_sets(y, len(answers))
        found = answers if self.y_type_ == "lists" else _labels_of(np.asarray(answers) != 0, self.classes_)
        labels = _labels_of(sets.indicator, sets.classes)
        return np.array([set(row) == set(answer) for row, answer in zip(labels, found, strict=True)])

    def learn(self, labels: np.ndarray, weights: np.ndarray) -> None:
        """Whether each row that is trained on has a label; and the weights of the labels."""
        self.at_least_one_ = bool(labels[weights > 0].any(axis=1).all())
        self._weights_of_labels = self._balance(labels, weights)

    def require_learnable(self, labels: np.ndarray, weights: np.ndarray) -> None:
        """A row with a label at least."""
        if not labels[weights > 0].any():
            raise ValueError("No row of y whose weight is not 0 has a label: nothing could be learned.")

    def _balance(self, labels: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What having each label weighs, and not having it, float64, shapes (n_classes,); in the mean they weigh 1."""
        having, lacking = np.ones((2, len(self.classes_)))
        if isinstance(self.class_weight, dict):
            having = weights_of_classes(self.class_weight, self.classes_, zero_allowed=False)
        elif self.class_weight == "balanced":
            # As for two classes: n / (2 * count), in weights. A label that all rows have, or none, stays as it is.
            with_label, without = (np.average(of_rows, axis=0, weights=weights) for of_rows in (labels, ~labels))
            mixed = (with_label > 0) & (without > 0)
            having, lacking = (
                np.divide(0.5, share, out=np.ones_like(share), where=mixed) for share in (with_label, without)
            )
        mean = np.average(np.where(labels, having, lacking).mean(axis=1), weights=weights)
        return having / mean, lacking / mean

    # --- Training

    @property
    def n_outputs(self) -> int:
        """One for each label."""
        return len(self.classes_)

    @property
    def n_answers(self) -> int:
        """Yes or no to each label."""
        return len(self.classes_)

    @property
    def output_labels(self) -> list[Any]:
        """The classes."""
        return self.classes_.tolist()

    def label_numbers(self, columns: Any, labels: np.ndarray, tokenizer: Any) -> list[tuple[Any, ...]]:
        """The numbers of the labels that a row has."""
        rows, numbers = np.nonzero(labels)
        return list(map(tuple, np.split(numbers, np.searchsorted(rows, np.arange(1, len(labels))))))

    def label_shares(self, numbers: list[tuple[Any, ...]]) -> dict[Any, float]:
        """Of the rows."""
        return shares_of_classes(self.classes_, numbers, len(numbers))

    def strata(self, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Each row's rarest label; -1 for rows without labels, and for those that are alone with theirs."""
        counts = labels[weights > 0].sum(axis=0)
        rarest = np.where(labels, counts, len(labels) + 1).argmin(axis=1)
        rarest[~labels.any(axis=1)] = -1
        sizes = np.bincount(rarest[weights > 0] + 1, minlength=len(counts) + 1)
        return np.where(sizes[rarest + 1] > 1, rarest, -1)

    def needs_validation(self, labels: np.ndarray, weights: np.ndarray) -> str | None:
        """Temperature and thresholds are taken from rows that were not trained on."""
        return next((name for name in ("calibrate", "tune_thresholds") if getattr(self, name)), None)

    def training_data(self, examples: TextExamples) -> TrainingData:
        """Targets hold the weights of the labels: positive where a row has the label, negative where it has not."""
        return self._training_data(examples, self._signed_weights(examples), examples.weights)

    def _signed_weights(self, examples: TextExamples) -> np.ndarray:
        """The targets of rows, float32, shape (n_rows, n_classes)."""
        having, lacking = self._weights_of_labels
        return np.where(examples.labels, having, -lacking).astype("float32")

    def after_training(self, model: keras.Model, examples: TextExamples, validation: TextExamples | None) -> None:
        """Temperature and thresholds, as far as they were asked for or are needed."""
        self.temperature_ = divide_by_temperature(self, model, validation) if self.calibrate else 1.0
        self.thresholds_ = np.full(len(self.classes_), 0.5)
        if self.tune_thresholds:
            assert validation is not None  # since `needs_validation` names the parameter
            self.thresholds_ = self.best_thresholds(self.outputs(model, validation), validation)
            self._warn_of_few(validation)
        elif not self.at_least_one_ and not isinstance(self.class_weight, dict):  # which may ask for few labels
            some = examples.take(some_rows(examples))
            outputs = self.outputs(model, some)
            # A model that learned little from few rows finds hardly any label likelier than not.
            if self._indicator(outputs).sum() < _TOO_FEW * some.labels.sum():
                counts, found = some.labels.sum(axis=0), self.best_thresholds(outputs, some)
                rare = (counts > 0) & (counts < _ENOUGH_ROWS)
                found[rare] = 0.5
                if counts[rare].sum() >= _ENOUGH_TOGETHER:
                    of_rare = np.repeat(some.weights, rare.sum())
                    found[rare] = _best_threshold(
                        some.labels[:, rare].ravel(), expit(outputs[:, rare]).ravel(), of_rare
                    )
                self.thresholds_ = np.minimum(self.thresholds_, found)

    def _warn_of_few(self, validation: TextExamples) -> None:
        """Warn of labels that are tuned on a handful of rows: they may be given to many rows that have them not."""
        counts = validation.labels.sum(axis=0)
        few = self.classes_[counts < _ENOUGH_ROWS].tolist()
        if few:
            warn_user(
                f"tune_thresholds chooses the thresholds of {len(few)} labels by fewer than {_ENOUGH_ROWS} validation "
                f"rows that have them: {shown(few)}. With so few a low threshold looks best, and gives a rare label to "
                "many rows. Give an eval_set, or a larger validation_fraction; or set these thresholds_ yourself.",
                ParameterWarning,
            )

    def best_thresholds(self, outputs: np.ndarray, examples: TextExamples) -> np.ndarray:
        """For each label the threshold on its probability with the highest F1 on these examples.

        Of equally good ones the threshold that is nearest to 0.5; 0.5 for a label that none of the rows has.
        """
        best = np.full(len(self.classes_), 0.5)
        probabilities = expit(outputs)
        for label in np.flatnonzero(examples.labels.any(axis=0)):
            best[label] = _best_threshold(examples.labels[:, label], probabilities[:, label], examples.weights)
        return best

    # --- Outputs

    def mean_loss(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Cross-entropy in nats, the mean over the labels."""
        return _cross_entropy(outputs, np.where(examples.labels, 1.0, -1.0), examples.weights)

    def training_loss(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """With ``class_weight``."""
        return _cross_entropy(outputs, self._signed_weights(examples), examples.weights)

    def score(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Average precision over all pairs of row and label: how well the true ones are ranked, at any threshold."""
        positive = examples.labels
        if not positive.any():
            return float("nan")
        repeated = np.repeat(examples.weights, positive.shape[1])
        return float(average_precision_score(positive.ravel(), outputs.ravel(), sample_weight=repeated))

    def baseline_loss(self, data: TrainingData) -> float:
        """The mean entropy of the labels."""
        masses = np.abs(data.targets) * data.weights[:, None]
        total = masses.sum(axis=0)
        share = np.where(data.targets > 0, masses, 0).sum(axis=0) / total
        entropies = -xlogy(share, share) - xlogy(1 - share, 1 - share)
        return float((entropies * total).mean() / data.weights.sum())

    def ranking(self, outputs: np.ndarray, examples: TextExamples) -> float:
        """Of each label."""
        return label_ranking(outputs, examples.labels)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Probability of each label by itself."""
        return expit(outputs)

    def log_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Natural logarithms of `probabilities`."""
        return log_expit(outputs)

    def decode(self, outputs: np.ndarray) -> np.ndarray | list[list[Any]]:
        """The labels of each row: an indicator matrix of int64, or lists."""
        indicator = self._indicator(outputs)
        return indicator.astype("int64") if self.y_type_ == "indicator" else _labels_of(indicator, self.classes_)

    def _indicator(self, outputs: np.ndarray) -> np.ndarray:
        return self.given(self.probabilities(outputs))

    def given(self, probabilities: np.ndarray) -> np.ndarray:
        """Whether each row gets each label, by its thresholds and `at_least_one_`."""
        thresholds = self._thresholds()
        indicator: np.ndarray = probabilities >= thresholds
        if self.at_least_one_:
            nearest = (probabilities / np.maximum(thresholds, np.finfo(float).tiny)).argmax(axis=1)
            indicator[np.arange(len(indicator)), nearest] |= ~indicator.any(axis=1)
        return indicator

    def _thresholds(self) -> np.ndarray:
        """As an array, which the user may have set to a list, to one number, or to a Series or dict by label.

        Raises
        ------
        ValueError
            If there is not one number for each label.
        """
        given: Any = self.thresholds_
        labels = self.classes_.tolist()
        keys = list(given.keys()) if hasattr(given, "keys") else []
        if set(keys) == set(labels):
            given = [given[label] for label in labels]
        elif keys != list(range(len(keys))):  # no Series in the order of the labels either: some key is misspelt
            given = np.nan
        try:
            thresholds = np.broadcast_to(np.asarray(given, "float64"), len(labels))
        except (TypeError, ValueError):
            thresholds = np.array([np.nan])
        if np.isnan(thresholds).any():
            raise ValueError(
                f"thresholds_ is {self.thresholds_!r}, and should be one number for each of the labels {labels}, in "
                "this order, or a dict or Series with all of them."
            )
        return thresholds

    # --- Folders

    def learned_to_json(self) -> dict[str, Any]:
        """Classes with their type, their thresholds, and the temperature."""
        return {
            "classes": encode_labels(self.classes_),
            "y_type": self.y_type_,
            "thresholds": [encode_infinity(threshold) for threshold in self._thresholds().tolist()],
            "temperature": self.temperature_,
            "at_least_one": self.at_least_one_,
        }

    def learn_from_json(self, values: SavedValues, model: keras.Model, folder: Path) -> None:
        """As many classes as the head has outputs."""
        self.classes_ = decode_labels(values.inner("classes"), model.num_labels, "labels", folder)
        self.temperature_ = values.checked("temperature", POSITIVE)
        self.at_least_one_ = values.checked("at_least_one", one_of(True, False))
        thresholds = values.checked("thresholds", list_of(NUMBER_OR_INFINITY, model.num_labels))
        self.thresholds_ = np.array(list(map(float, thresholds)))

    def learn_from_config(self, values: dict[str, Any], model: keras.Model, folder: Path) -> None:
        """The classes of id2label, with thresholds of 0.5."""
        self.classes_ = labels_of_config(folder, model.num_labels)
        self.y_type_, self.thresholds_ = "indicator", np.full(len(self.classes_), 0.5)


def _cross_entropy(outputs: np.ndarray, signed: np.ndarray, weights: np.ndarray) -> float:
    """The weighted mean over rows and labels; ``signed`` has the labels' weights, negative where a row lacks one."""
    losses = -np.abs(signed) * log_expit(np.sign(signed) * outputs)
    return float(np.average(losses.mean(axis=1), weights=weights))


def _best_threshold(true: np.ndarray, probabilities: np.ndarray, weights: np.ndarray) -> float:
    """The threshold with the highest F1, of equally good ones the nearest to 0.5; arrays of shape (n,).

    It lies between the probabilities of two rows, so that rounding does not change what they get.
    """
    precision, recall, steps = precision_recall_curve(true, probabilities, sample_weight=weights)
    # The last point of the curve has no threshold. All thresholds from just above the step below up to a step give the
    # same labels. Of these 0.5 is taken; where all are higher, the middle; where all are lower, nearly the step.
    f1 = 2 * precision[:-1] * recall[:-1] / np.maximum(precision[:-1] + recall[:-1], 1e-12)
    below = np.concatenate([[0.0], steps[:-1]])
    middle = (below + steps) / 2
    nearest = np.where(steps < 0.5, np.maximum(middle, 0.99 * steps), np.where(below < 0.5, 0.5, middle))
    nearest = nearest[f1 >= f1.max() - 1e-12]
    return float(nearest[np.abs(nearest - 0.5).argmin()])


def _labels_of(indicator: np.ndarray, classes: np.ndarray) -> list[list[Any]]:
    """The labels of each row of a boolean matrix, whose columns are those of ``classes``."""
    return [classes[row].tolist() for row in indicator]
