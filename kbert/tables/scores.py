"""The scores of a fitted estimator on a table with labels, and a table of what was taken for what."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
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
from kbert.data.frames import readable_again
from kbert.metrics import answer_scores, entity_scores
from kbert.metrics.entities import EntityScores


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


def scores_of(estimator: Any, X: Any, y: Any) -> Scores:
    """The scores that are usual for the task of a fitted estimator.

    Parameters
    ----------
    estimator : BertEstimator
        With labels: a BertClassifier, BertRegressor, BertTagger, BertQA or BertMultipleChoice.
    X, y
        As for its ``score``.
    """
    kind = type(estimator).__name__
    found = {
        "BertClassifier": _of_classifier,
        "BertRegressor": _of_regressor,
        "BertTagger": _of_tagger,
        "BertQA": _of_answers,
        "BertMultipleChoice": _of_choices,
    }
    if kind not in found:
        raise TypeError(f"{kind} has no labels to compare with.")
    scores: Scores = found[kind](estimator, X, y)
    return scores._replace(values={**scores.values, "rows": float(len(X))})


def _of_classifier(classifier: Any, X: Any, y: Any) -> Scores:
    if classifier.y_type_ != "labels":
        return _of_several_labels(classifier, X, y)
    truth, found = np.asarray(y, object), np.asarray(classifier.predict(X), object)
    labels = sorted({*truth, *found}, key=str)
    true, predicted = ([labels.index(value) for value in values] for values in (truth, found))
    numbers = list(range(len(labels)))
    columns = precision_recall_fscore_support(true, predicted, labels=numbers, zero_division=0)
    by_label = pd.DataFrame(dict(zip(("precision", "recall", "f1", "rows"), columns, strict=True)), index=labels)
    matrix = confusion_matrix(true, predicted, labels=numbers)
    values = {
        "accuracy": float(accuracy_score(true, predicted)),
        "f1_macro": float(f1_score(true, predicted, average="macro", zero_division=0)),
    }
    return Scores(values, by_label, pd.DataFrame(matrix, index=labels, columns=labels))


def _of_several_labels(classifier: Any, X: Any, y: Any) -> Scores:
    classes = classifier.classes_.tolist()
    found, shares = classifier.predict(X), classifier.predict_proba(X)
    if classifier.y_type_ == "lists":
        truth, found = (
            np.array([[label in set(row) for label in classes] for row in rows], int) for rows in (list(y), found)
        )
    else:
        truth, found = np.asarray(y, int), np.asarray(found, int)
    columns = precision_recall_fscore_support(truth, found, zero_division=0)
    by_label = pd.DataFrame(dict(zip(("precision", "recall", "f1", "rows"), columns, strict=True)), index=classes)
    values = {
        "f1_micro": float(f1_score(truth, found, average="micro", zero_division=0)),
        "f1_macro": float(f1_score(truth, found, average="macro", zero_division=0)),
        "average_precision": float(average_precision_score(truth.ravel(), shares.ravel())) if truth.any() else np.nan,
        "rows_all_right": float(accuracy_score(truth, found)),
    }
    return Scores(values, by_label)


def _of_regressor(regressor: Any, X: Any, y: Any) -> Scores:
    truth, found = np.asarray(y, "float64"), regressor.predict(X)
    values = {
        "r2": float(r2_score(truth, found)),
        "rmse": float(root_mean_squared_error(truth, found)),
        "mae": float(mean_absolute_error(truth, found)),
    }
    if truth.ndim == 1 and np.std(truth) > 0 and np.std(found) > 0:
        values |= {"pearson": float(pearsonr(truth, found)[0]), "spearman": float(spearmanr(truth, found)[0])}
    return Scores(values)


def _of_tagger(tagger: Any, X: Any, y: Any) -> Scores:
    truth, found = [list(row) for row in y], tagger.predict(X)
    if not tagger._task().is_bio:
        pairs = [
            (str(a), str(b)) for row, other in zip(truth, found, strict=True) for a, b in zip(row, other, strict=True)
        ]
        true, predicted = zip(*pairs, strict=True)
        labels = sorted({*true, *predicted})
        matrix = confusion_matrix(true, predicted, labels=labels)
        accuracy = {"accuracy": float(np.mean([a == b for a, b in pairs]))}
        return Scores(accuracy, None, pd.DataFrame(matrix, index=labels, columns=labels))
    whole, by_label = entity_scores(truth, found), entity_scores(truth, found, by_label=True)
    assert isinstance(whole, EntityScores) and isinstance(by_label, dict)
    lines = pd.DataFrame([line._asdict() for line in by_label.values()], index=list(by_label))
    values = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall}
    return Scores(values, lines.rename(columns={"support": "entities"}))


def _of_answers(answerer: Any, X: Any, y: Any) -> Scores:
    exact, f1 = answer_scores(answer_texts(readable_again(y), len(X)), answerer.predict(X))
    return Scores({"f1": float(np.mean(f1)), "exact": float(np.mean(exact))})


def _of_choices(chooser: Any, X: Any, y: Any) -> Scores:
    return Scores({"accuracy": float(chooser.score(X, y)), "guessing": float((1 / X["options"].map(len)).mean())})
