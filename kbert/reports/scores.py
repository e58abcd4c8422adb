"""The scores of an estimator's answers to rows with labels, and a table of what was taken for what."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    confusion_matrix,
    f1_score,
    mean_absolute_error,
    precision_recall_fscore_support,
    r2_score,
    root_mean_squared_error,
)

from kbert.data.answers import answer_texts
from kbert.data.choices import option_indices
from kbert.data.frames import readable_again
from kbert.metrics import answer_scores, entity_scores
from kbert.metrics.entities import EntityScores


class Found(NamedTuple):
    """An estimator's answers to some rows.

    Attributes
    ----------
    answers : array-like
        What ``predict`` gives.
    probabilities : ndarray or list of ndarray, or None
        What ``predict_proba`` gives; of a BertQA, the probability of each answer.
    classes : ndarray or None
        The labels that the columns of ``probabilities`` stand for.
    """

    answers: Any
    probabilities: Any = None
    classes: Any = None


class Scores(NamedTuple):
    """Scores of a table.

    Attributes
    ----------
    values : dict of float
        By name, the most usual one first; ``rows`` is how many rows there were.
    by_label : DataFrame or None
        Precision, recall, F1 and number of rows, or of entities, of each label.
    confusion : DataFrame or None
        How often which label (rows) was taken for which (columns).
    """

    values: dict[str, float]
    by_label: pd.DataFrame | None = None
    confusion: pd.DataFrame | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        found: dict[str, Any] = {name: value if np.isfinite(value) else None for name, value in self.values.items()}
        for name in ("by_label", "confusion"):
            table = getattr(self, name)
            if table is not None:
                found[name] = json_table(table)
        return found


def json_table(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """A table of numbers as a dict of its rows."""
    return {str(label): {str(name): float(value) for name, value in row.items()} for label, row in table.iterrows()}


def found_by(estimator: Any, X: Any) -> Found:
    """The answers of a fitted estimator to the rows of X, which a BertTagger alone reads twice for them."""
    kind = type(estimator).__name__
    if kind == "BertClassifier":
        logits, task = estimator._outputs(X).astype("float64"), estimator._task()
        return Found(task.decode(logits), task.probabilities(logits), estimator.classes_)
    if kind == "BertQA":
        best = estimator.answers(X, 1)
        return Found(best.answer.to_numpy(object), best.probability.to_numpy())
    if kind == "BertMultipleChoice":
        probabilities = estimator.predict_proba(X)
        return Found(np.nanargmax(probabilities, axis=1), probabilities)
    if kind == "BertTagger":
        return Found(estimator.predict(X), estimator.predict_proba(X), estimator.classes_)
    if kind == "BertRegressor":
        return Found(estimator.predict(X))
    raise TypeError(f"{kind} has no labels to compare with.")


def scores_of(estimator: Any, X: Any, y: Any, found: Found | None = None) -> Scores:
    """The scores that are usual for the task of an estimator.

    Parameters
    ----------
    estimator : BertEstimator
        With labels: a BertClassifier, BertRegressor, BertTagger, BertQA or BertMultipleChoice.
    X, y
        As for its ``score``.
    found : Found, optional
        Its answers to X; by default they are computed.
    """
    found = found_by(estimator, X) if found is None else found
    of_kind = {
        "BertClassifier": _of_classifier,
        "BertRegressor": _of_regressor,
        "BertTagger": _of_tagger,
        "BertQA": _of_answers,
        "BertMultipleChoice": _of_choices,
    }
    scores: Scores = of_kind[type(estimator).__name__](estimator, found, X, y)
    return scores._replace(values={**scores.values, "rows": float(len(X))})


def _of_classifier(classifier: Any, found: Found, X: Any, y: Any) -> Scores:
    if getattr(classifier, "y_type_", "labels") != "labels":
        return _of_several_labels(found, y)
    truth, answers = np.asarray(y, object), np.asarray(found.answers, object)
    labels = sorted({*truth, *answers}, key=str)
    true, predicted = ([labels.index(value) for value in values] for values in (truth, answers))
    numbers = list(range(len(labels)))
    columns = precision_recall_fscore_support(true, predicted, labels=numbers, zero_division=0)
    by_label = pd.DataFrame(dict(zip(("precision", "recall", "f1", "rows"), columns, strict=True)), index=labels)
    matrix = confusion_matrix(true, predicted, labels=numbers)
    values = {
        "accuracy": float(accuracy_score(true, predicted)),
        "f1_macro": float(f1_score(true, predicted, average="macro", zero_division=0)),
    }
    return Scores(values, by_label, pd.DataFrame(matrix, index=labels, columns=labels))


def indicator_of(labels: Any, classes: Any) -> NDArray[np.int64]:
    """Several labels a row, which are lists or an indicator matrix already, as an indicator matrix."""
    if getattr(labels, "ndim", 1) == 2:
        return np.asarray(labels, "int64")
    rows = [set(row) for row in labels]
    return np.array([[label in row for label in classes] for row in rows], "int64")


def _of_several_labels(found: Found, y: Any) -> Scores:
    truth, answers = indicator_of(y, found.classes), indicator_of(found.answers, found.classes)
    columns = precision_recall_fscore_support(truth, answers, zero_division=0)
    by_label = pd.DataFrame(dict(zip(("precision", "recall", "f1", "rows"), columns, strict=True)), index=found.classes)
    shares = found.probabilities.ravel()
    values = {
        "f1_micro": float(f1_score(truth, answers, average="micro", zero_division=0)),
        "f1_macro": float(f1_score(truth, answers, average="macro", zero_division=0)),
        "average_precision": float(average_precision_score(truth.ravel(), shares)) if truth.any() else np.nan,
        "rows_all_right": float(accuracy_score(truth, answers)),
    }
    return Scores(values, by_label)


def _of_regressor(regressor: Any, found: Found, X: Any, y: Any) -> Scores:
    truth, answers = np.asarray(y, "float64"), np.asarray(found.answers)
    values = {
        "r2": float(r2_score(truth, answers)),
        "rmse": float(root_mean_squared_error(truth, answers)),
        "mae": float(mean_absolute_error(truth, answers)),
    }
    if truth.ndim == 1 and np.std(truth) > 0 and np.std(answers) > 0:
        values |= {"pearson": float(pearsonr(truth, answers)[0]), "spearman": float(spearmanr(truth, answers)[0])}
    return Scores(values)


def _of_tagger(tagger: Any, found: Found, X: Any, y: Any) -> Scores:
    truth, answers = [list(row) for row in y], found.answers
    if not tagger._task().is_bio:
        pairs = [
            (str(a), str(b)) for row, other in zip(truth, answers, strict=True) for a, b in zip(row, other, strict=True)
        ]
        true, predicted = zip(*pairs, strict=True)
        labels = sorted({*true, *predicted})
        matrix = confusion_matrix(true, predicted, labels=labels)
        accuracy = {"accuracy": float(np.mean([a == b for a, b in pairs]))}
        return Scores(accuracy, None, pd.DataFrame(matrix, index=labels, columns=labels))
    whole, by_label = entity_scores(truth, answers), entity_scores(truth, answers, by_label=True)
    assert isinstance(whole, EntityScores) and isinstance(by_label, dict)
    lines = pd.DataFrame([line._asdict() for line in by_label.values()], index=list(by_label))
    values = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall}
    return Scores(values, lines.rename(columns={"support": "entities"}))


def _of_answers(answerer: Any, found: Found, X: Any, y: Any) -> Scores:
    exact, f1 = answer_scores(answer_texts(readable_again(y), len(X)), found.answers)
    return Scores({"f1": float(np.mean(f1)), "exact": float(np.mean(exact))})


def _of_choices(chooser: Any, found: Found, X: Any, y: Any) -> Scores:
    n_options = np.isfinite(found.probabilities).sum(axis=1)
    right = option_indices(readable_again(y), n_options) == found.answers
    return Scores({"accuracy": float(np.mean(right)), "guessing": float(np.mean(1 / n_options))})
