"""What is given and what was predicted, in one form for each kind of task."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.data.answers import answer_texts
from kbert.data.choices import option_indices
from kbert.data.label_sets import LabelSets
from kbert.data.labels import label_column, require_same_type
from kbert.data.tags import tag_lists
from kbert.metrics import is_bio


def kind_of(estimator: Any) -> str:
    """What an estimator predicts, by its task: "labels", "several labels", "numbers", "tags", "answers" or "choices".

    Raises
    ------
    TypeError
        If it is none of these.
    """
    kind = getattr(getattr(estimator, "_task_type", None), "kind", None)
    if kind is None:
        raise TypeError(f"{type(estimator).__name__} predicts nothing that could be compared with y here.")
    return str(kind)


class Found(NamedTuple):
    """What an estimator found for some rows.

    Attributes
    ----------
    answers : array-like
        What ``predict`` gives.
    probabilities : ndarray or list of ndarray, or None
        What ``predict_proba`` gives; of questions, the probability of each answer.
    classes : ndarray or None
        The labels that the columns of ``probabilities`` stand for.
    """

    answers: Any
    probabilities: Any = None
    classes: Any = None


class Given(NamedTuple):
    """What is given for some rows, and what an estimator found.

    Attributes
    ----------
    kind : str
        As `kind_of` has it; it says what the others are.
    truth : array-like
        "labels": ndarray of shape (n_rows,). "several labels": ndarray of 0 and 1, shape (n_rows, n_classes).
        "numbers": ndarray of shape (n_rows, n_columns). "tags": for each row, a tag for each word. "answers": for each
        row a list of the right ones. "choices": ndarray of int, shape (n_rows,).
    found : Found
        Its answers have the same form, but that a question has one answer.
    """

    kind: str
    truth: Any
    found: Found

    @property
    def of_entities(self) -> bool:
        """Of tags: whether entities are scored, as by ``score``. Rows of "O" alone do not tell."""
        classes = [] if self.found.classes is None else list(self.found.classes)
        return is_bio([classes]) and is_bio(self.truth) and is_bio(self.found.answers)


def found_by(kind: str, estimator: Any, X: Any) -> Found:
    """What a fitted estimator finds for the rows of X."""
    if kind in ("labels", "several labels"):
        logits, task = estimator._outputs(X).astype("float64"), estimator._task()
        return Found(task.decode(logits), task.probabilities(logits), estimator.classes_)
    if kind == "numbers":
        return Found(estimator.predict(X))
    if kind == "tags":
        return Found(estimator.predict(X), estimator.predict_proba(X), estimator.classes_)
    if kind == "answers":
        best = estimator.answers(X, 1)
        return Found(best.answer.to_numpy(object), best.probability.to_numpy())
    probabilities = estimator.predict_proba(X)
    return Found(np.nanargmax(probabilities, axis=1), probabilities)


def read_given(kind: str, estimator: Any, columns: Any, y: Any, found: Found) -> Given:
    """Read y, and bring what was found into the same form.

    Parameters
    ----------
    kind : str
    estimator : FineTunedEstimator
    columns : Columns
        X as it was read.
    y : array-like
        As for the estimator's ``score``.
    found : Found

    Raises
    ------
    ValueError, TypeError
        If y is not usable, or not of these rows.
    """
    if kind == "labels":
        found = found._replace(answers=np.asarray(found.answers))
    elif kind == "several labels":
        found = _with_unknown_labels(found, estimator._task().read_sets(y, columns.n_rows))
    elif kind == "numbers":
        found = found._replace(answers=np.asarray(found.answers, "float64").reshape(columns.n_rows, -1))
    elif kind == "tags":
        found = found._replace(answers=_tags(estimator, columns, found.answers, "predict(X)"))
    return Given(kind, read_truth(kind, estimator, columns, y, found.classes), found)


def read_truth(kind: str, estimator: Any, columns: Any, y: Any, classes: Any, name: str = "y") -> Any:
    """Read y into the form that `Given` has; ``classes`` are those of its columns where a row has several labels."""
    if kind == "labels":
        labels = label_column(y, columns.n_rows, name)
        require_same_type(labels, classes, name)
        return labels
    if kind == "several labels":
        return estimator._task().read_sets(y, columns.n_rows, name).under(classes, name).astype("int64")
    if kind == "numbers":
        return estimator._task().read_labels(y, columns, name)
    if kind == "tags":
        return _tags(estimator, columns, y, name)
    if kind == "answers":
        return answer_texts(y, columns.n_rows, name)
    return option_indices(y, columns.n_options, name)


def _tags(estimator: Any, columns: Any, y: Any, name: str) -> list[list[str]]:
    """A tag for each word. That some spans were widened was told in fit."""
    return tag_lists(y, columns.split(estimator.tokenizer_.split_words), name, bio=estimator._task().is_bio)


def class_numbers(labels: list[Any], classes: list[Any]) -> NDArray[np.int64]:
    """The number of each label; -1 for one that is no class."""
    number = {label: i for i, label in enumerate(classes)}
    return np.array([number.get(label, -1) for label in labels], np.int64)


def _with_unknown_labels(found: Found, sets: LabelSets) -> Found:
    """Labels that the classifier does not know have a column too, and are found in no row."""
    classes = np.asarray(found.classes).tolist()
    known = set(classes)
    unknown = [label for label in sets.classes[sets.indicator.any(axis=0)].tolist() if label not in known]
    answers = indicator_of(found.answers, found.classes)
    none = np.zeros((len(answers), len(unknown)), "int64")
    return Found(
        np.hstack([answers, none]), np.hstack([found.probabilities, none]), np.array([*classes, *unknown], object)
    )


def indicator_of(labels: Any, classes: Any) -> NDArray[np.int64]:
    """Several labels a row, which are lists or an indicator matrix already, as an indicator matrix."""
    if getattr(labels, "ndim", 1) == 2:
        return np.asarray(labels, "int64")
    rows = [set(row) for row in labels]
    return np.array([[label in row for label in classes] for row in rows], "int64")
