"""What y means and what logits say: one label for each row, or any number of them.

Both classes have the same attributes and methods. Targets are what the loss takes; logits have the shape (n_rows,
n_classes), and weights, (n_rows,), are those of the rows. Losses and probabilities are in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax, xlogy
from sklearn.metrics import average_precision_score, precision_recall_curve
from sklearn.utils.class_weight import compute_class_weight

from kbert.data.frames import columns_by_name, shown
from kbert.data.label_sets import LabelSets, kind_of_labels, label_sets
from kbert.data.labels import label_column
from kbert.estimators.parameters import is_real
from kbert.training.losses import binary_cross_entropy, softmax_cross_entropy


def read_labels(y: Any, n_rows: int) -> tuple[SingleLabel | MultiLabel, np.ndarray]:
    """What the labels of a first fit are, and the class number of each row, or the indicator matrix."""
    kind = "labels" if y is None else kind_of_labels(y)
    if kind == "labels":
        classes, numbers = np.unique(label_column(y, n_rows), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"BertClassifier needs at least two classes to tell apart, and y holds one class only: {classes[0]!r}. "
                "Is it the right column, or a filtered one?"
            )
        return SingleLabel(classes), numbers
    sets = label_sets(y, n_rows)
    if not len(sets.classes):
        raise ValueError("No row of y has a label: nothing could be learned. Is it the right column?")
    return MultiLabel(sets.classes, kind), sets.indicator


def label_task(y_type: str, classes: np.ndarray, thresholds: np.ndarray | None = None) -> SingleLabel | MultiLabel:
    """The task of a fitted classifier."""
    return SingleLabel(classes) if y_type == "labels" else MultiLabel(classes, y_type, thresholds)


class LabelTask:
    """What both have in common."""

    classes: np.ndarray
    prior_knowledge = "how often each label occurs"

    @property
    def n_outputs(self) -> int:
        """Outputs of the head."""
        return len(self.classes)

    @property
    def names(self) -> dict[int, str]:
        """The ``id2label`` of a config.json."""
        return {i: str(label) for i, label in enumerate(self.classes)}

    def fold(self, model) -> None:
        """Nothing: logits are logits (see `RegressionTask`)."""

    unfold = fold


class SingleLabel(LabelTask):
    """One label for each row, read off a softmax over the classes."""

    loss = staticmethod(softmax_cross_entropy)
    problem_type = "single_label_classification"
    y_type = "labels"

    def __init__(self, classes: np.ndarray):
        self.classes = classes

    # --- Labels -> targets

    def encode(self, y: Any, n_rows: int, name: str) -> np.ndarray:
        """The class number of each row; labels that are no classes raise."""
        labels = label_column(y, n_rows, name)
        unknown = sorted(set(labels.tolist()) - set(self.classes.tolist()), key=str)
        if unknown:
            raise ValueError(f"{name} holds labels that y of fit did not: {unknown[:5]}.")
        # Those of a config.json are in the order of the head, not sorted.
        order = np.argsort(self.classes)
        return order[np.searchsorted(self.classes, labels, sorter=order)]

    def equal_rows(self, y: Any, answers: np.ndarray) -> np.ndarray:
        """Which rows of y have the label that ``answers`` of `labels` gives them."""
        labels = label_column(y, len(answers))
        if isinstance(labels[0], str) != isinstance(self.classes[0], str):
            raise TypeError(f"y holds {shown(labels[0])}, and y of fit held {shown(self.classes[0])}: give one type.")
        # A label that is no class of this classifier can not be found.
        return np.array([label == answer for label, answer in zip(labels.tolist(), answers.tolist(), strict=True)])

    def weighted(self, numbers: np.ndarray, weights: np.ndarray, class_weight) -> tuple[np.ndarray, np.ndarray]:
        """Targets, and the weights of the rows times those of their classes."""
        if class_weight is not None:
            weights = weights * self._class_weights(numbers, class_weight)[numbers]
            if not weights.sum() > 0:
                raise ValueError("All rows have weight 0 after class_weight: nothing could be learned.")
        return numbers.astype("int32"), weights.astype("float32")

    def _class_weights(self, numbers: np.ndarray, class_weight) -> np.ndarray:
        """The weight of each class. A class that a dict does not name counts 1."""
        if not isinstance(class_weight, dict):
            present, weights = np.unique(numbers), np.ones(len(self.classes))
            weights[present] = compute_class_weight(class_weight, classes=present, y=numbers)
            return weights
        # Not scikit-learn's reading of a dict, which takes the label "1" for the number 1.
        checked = checked_class_weight(class_weight, self.classes, least_is_zero=True)
        return np.array([checked.get(label, 1) for label in self.classes.tolist()], "float64")

    def strata(self, targets: np.ndarray) -> np.ndarray:
        """What to stratify a split of the rows by."""
        return targets

    # --- Logits -> losses and scores

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Cross-entropy of each row in nats."""
        return -log_softmax(logits, axis=1)[np.arange(len(targets)), targets]

    def score(self, logits: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """Accuracy."""
        return float(np.average(logits.argmax(axis=1) == targets, weights=weights))

    def prior_loss(self, targets: np.ndarray, weights: np.ndarray) -> float:
        """The lowest mean loss of logits that are the same for all rows: the entropy of the labels."""
        shares = np.bincount(targets, weights) / weights.sum()
        return float(-xlogy(shares, shares).sum())

    def decides_alike(self, logits: np.ndarray) -> bool:
        """Whether all rows get one label."""
        return len(np.unique(logits.argmax(axis=1))) == 1

    # --- Logits -> answers

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Of each class; they add up to 1."""
        return softmax(logits, axis=1)

    def log_probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The logarithms of `probabilities`."""
        return log_softmax(logits, axis=1)

    def labels(self, logits: np.ndarray) -> np.ndarray:
        """The label of each row."""
        return self.classes[logits.argmax(axis=1)]


class MultiLabel(LabelTask):
    """Any number of labels for each row, each a yes or no of its own.

    ``y_type`` is "indicator" or "lists", as y came and as answers are given; a row has the labels whose probability
    reaches their threshold.
    """

    loss = staticmethod(binary_cross_entropy)
    problem_type = "multi_label_classification"

    def __init__(self, classes: np.ndarray, y_type: str, thresholds: np.ndarray | None = None):
        self.classes, self.y_type = classes, y_type
        self.thresholds = np.full(len(classes), 0.5) if thresholds is None else thresholds

    # --- Labels -> targets

    def encode(self, y: Any, n_rows: int, name: str) -> np.ndarray:
        """The indicator matrix; labels that are no classes, or other columns, raise."""
        return self._sets(y, n_rows, name).under(self.classes, name)

    def _sets(self, y: Any, n_rows: int, name: str) -> LabelSets:
        sets = label_sets(y, n_rows, name, lists=self.y_type == "lists")
        if self.y_type == "lists" or kind_of_labels(y) != "indicator":
            return sets
        if len(sets.classes) != len(self.classes):
            raise ValueError(
                f"{name} has {len(sets.classes)} columns, and y of fit had {len(self.classes)}: one for each of "
                f"{self.classes.tolist()[:20]}."
            )
        if sets.columns is None:
            return LabelSets(sets.indicator, self.classes)
        places = columns_by_name(sets.columns, self.classes.tolist(), name)
        return LabelSets(sets.indicator[:, places], self.classes)

    def equal_rows(self, y: Any, answers: Any) -> np.ndarray:
        """Which rows of y have exactly the labels that ``answers`` of `labels` gives them."""
        found = answers
        if self.y_type == "lists":
            found = label_sets(answers, len(answers), lists=True).under(self.classes)
        sets = self._sets(y, len(answers), "y")
        known = np.isin(sets.classes, self.classes)
        known_sets = LabelSets(sets.indicator[:, known], sets.classes[known])
        # A label that is no class of this classifier can not be found.
        return (known_sets.under(self.classes) == found).all(axis=1) & ~sets.indicator[:, ~known].any(axis=1)

    def weighted(self, indicator: np.ndarray, weights: np.ndarray, class_weight) -> tuple[np.ndarray, np.ndarray]:
        """Targets, which hold the weights of the labels, and the weights of the rows."""
        positive, negative = np.ones((2, len(self.classes)))
        if isinstance(class_weight, dict):
            checked = checked_class_weight(class_weight, self.classes, least_is_zero=False)
            positive = np.array([checked.get(label, 1) for label in self.classes.tolist()], "float64")
        elif class_weight == "balanced":
            # As for two classes: n / (2 * count). A label that all rows have, or none, stays as it is.
            count, n = indicator.sum(axis=0), len(indicator)
            mixed = (count > 0) & (count < n)
            positive = np.where(mixed, n / np.maximum(2 * count, 1), 1)
            negative = np.where(mixed, n / np.maximum(2 * (n - count), 1), 1)
        targets = np.where(indicator, positive, -negative)
        return (targets / np.abs(targets).mean()).astype("float32"), weights.astype("float32")

    def strata(self, targets: np.ndarray) -> np.ndarray:
        """Each row's rarest label; -1 for none, and for labels of one row only."""
        positive = targets > 0
        counts = positive.sum(axis=0)
        rarest = np.where(positive, counts, len(targets) + 1).argmin(axis=1)
        rarest[~positive.any(axis=1)] = -1
        names, inverse, sizes = np.unique(rarest, return_inverse=True, return_counts=True)
        strata = np.where(sizes[inverse] > 1, rarest, -1)
        # What is left over may be a single row again.
        return np.zeros_like(strata) if (strata == -1).sum() == 1 else strata

    # --- Logits -> losses and scores

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Mean cross-entropy of each row's labels in nats."""
        return -(np.abs(targets) * log_expit(np.sign(targets) * logits)).mean(axis=1)

    def score(self, logits: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """Average precision over all pairs of row and label: how well the true ones are ranked, at any threshold."""
        positive = targets > 0
        if not positive.any():
            return float("nan")
        repeated = np.repeat(weights, positive.shape[1])
        return float(average_precision_score(positive.ravel(), logits.ravel(), sample_weight=repeated))

    def prior_loss(self, targets: np.ndarray, weights: np.ndarray) -> float:
        """The lowest mean loss of logits that are the same for all rows: the mean entropy of the labels."""
        masses = np.abs(targets) * weights[:, None]
        total = masses.sum(axis=0)
        share = np.where(targets > 0, masses, 0).sum(axis=0) / total
        entropies = -xlogy(share, share) - xlogy(1 - share, 1 - share)
        return float((entropies * total).mean() / weights.sum())

    def decides_alike(self, logits: np.ndarray) -> bool:
        """Whether all rows get the same labels."""
        return len(np.unique(logits > 0, axis=0)) == 1

    # --- Logits -> answers

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Of each label by itself."""
        return expit(logits)

    def log_probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The logarithms of `probabilities`."""
        return log_expit(logits)

    def labels(self, logits: np.ndarray) -> np.ndarray | list[list]:
        """The labels of each row: an indicator matrix of int64, or lists."""
        indicator = expit(logits) >= self.thresholds
        if self.y_type == "indicator":
            return indicator.astype("int64")
        return [self.classes[row].tolist() for row in indicator]

    def best_thresholds(self, logits: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """For each label the threshold on its probability with the highest F1 on these rows.

        Of those that are as good, 0.5 or one near it; 0.5 for a label that none of the rows has.
        """
        best = np.full(len(self.classes), 0.5)
        probabilities = expit(logits)
        for label in np.flatnonzero((targets > 0).any(axis=0)):
            precision, recall, steps = precision_recall_curve(
                targets[:, label] > 0, probabilities[:, label], sample_weight=weights
            )
            # The last point of the curve has no threshold. All up to a step from the one below give the same labels;
            # the middle is the lowest that a new row is as likely to be on the right side of.
            f1 = 2 * precision[:-1] * recall[:-1] / np.maximum(precision[:-1] + recall[:-1], 1e-12)
            below = np.concatenate([[0.0], steps[:-1]])
            nearest = np.where(steps < 0.5, steps, np.where(below < 0.5, 0.5, (below + steps) / 2))
            nearest = nearest[f1 >= f1.max() - 1e-12]
            best[label] = nearest[np.abs(nearest - 0.5).argmin()]
        return best


def checked_class_weight(class_weight: dict, classes: np.ndarray, least_is_zero: bool) -> dict:
    """A class_weight whose labels are classes, and whose values are weights.

    Labels that are no classes are passed over where all classes are named, as in scikit-learn: a part of the rows, as
    in cross-validation, may lack a rare class.

    Raises
    ------
    ValueError
        With the label.
    """
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown and not all(label in class_weight for label in labels):
        raise ValueError(f"class_weight names {unknown[:5]}, which y does not hold. The classes are {labels[:20]}.")
    for label, weight in class_weight.items():
        if not is_real(weight) or weight < 0 or (weight == 0 and not least_is_zero):
            wanted = "at least 0" if least_is_zero else "more than 0"
            raise ValueError(f"class_weight must be numbers of {wanted}, got {weight!r} for {label!r}.")
    return class_weight
