"""The scores that are usual for a task, by label too, and a table of what was taken for what."""

from __future__ import annotations

import warnings
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

from kbert.data.frames import readable_again
from kbert.metrics import answer_scores, entity_scores
from kbert.metrics.entities import EntityScores
from kbert.reports.given import Given, found_by, kind_of, read_given


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
        values: dict[str, Any] = {name: value if np.isfinite(value) else None for name, value in self.values.items()}
        return values | {"rows": int(self.values["rows"])} | self.tables()

    def tables(self) -> dict[str, dict[str, dict[str, float]]]:
        """``by_label`` and ``confusion``, as far as there are such, as dicts of their rows."""
        tables = {"by_label": self.by_label, "confusion": self.confusion}
        return {name: _rows_of(table) for name, table in tables.items() if table is not None}


def _rows_of(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    return table.rename(index=str, columns=str).to_dict("index")


def scores_of(estimator: Any, X: Any, y: Any) -> Scores:
    """The scores of a fitted estimator.

    Parameters
    ----------
    estimator : FineTunedEstimator
        A BertClassifier, BertRegressor, BertTagger, BertQA or BertMultipleChoice.
    X, y
        As for its ``score``.
    """
    kind, X = kind_of(estimator), readable_again(X)
    columns = estimator._row_reader().read(X)
    return scores(read_given(kind, estimator, columns, readable_again(y), found_by(kind, estimator, X)))


def scores(given: Given) -> Scores:
    """The scores of what was found for some rows."""
    of_kind = {
        "labels": _of_labels,
        "several labels": _of_several_labels,
        "numbers": _of_numbers,
        "tags": _of_tags,
        "answers": _of_answers,
        "choices": _of_choices,
    }
    found = of_kind[given.kind](given)
    return found._replace(values={**found.values, "rows": float(len(given.truth))})


def _of_labels(given: Given) -> Scores:
    truth, answers = given.truth.tolist(), np.asarray(given.found.answers).tolist()
    labels = _in_order({*truth, *answers})
    number = {label: n for n, label in enumerate(labels)}
    true, predicted = ([number[value] for value in values] for values in (truth, answers))
    numbers = list(number.values())
    columns = precision_recall_fscore_support(true, predicted, labels=numbers, zero_division=0)
    with warnings.catch_warnings():  # it warns of a single label, though told of all
        warnings.filterwarnings("ignore", "A single label was found")
        matrix = confusion_matrix(true, predicted, labels=numbers)
    values = {
        "accuracy": float(accuracy_score(true, predicted)),
        "f1_macro": float(f1_score(true, predicted, average="macro", zero_division=0)),
    }
    return Scores(values, _by_label(columns, labels), pd.DataFrame(matrix, index=labels, columns=labels))


def _in_order(labels: set[Any]) -> list[Any]:
    """Labels that are numbers, or texts of numbers as a CSV file has them, by their size; others as texts."""
    try:
        size = {label: float(label) for label in labels}
    except (TypeError, ValueError):
        size = {}
    by_size = len(size) == len(labels) and np.isfinite(list(size.values())).all()
    return sorted(labels, key=lambda label: (size[label] if by_size else 0.0, str(label)))


def _by_label(columns: Any, labels: Any) -> pd.DataFrame:
    table = pd.DataFrame(dict(zip(("precision", "recall", "f1", "rows"), columns, strict=True)), index=list(labels))
    return table.astype({"rows": int})  # scikit-learn counts in floats where no label was right


def _of_several_labels(given: Given) -> Scores:
    truth, answers = given.truth, given.found.answers
    shares: NDArray[np.float64] = given.found.probabilities.ravel()
    # Of each label by itself: scikit-learn takes a matrix of one column for two classes.
    each = [
        precision_recall_fscore_support(*label, labels=[1], zero_division=0)
        for label in zip(truth.T, answers.T, strict=True)
    ]
    columns = [np.concatenate(of_labels) for of_labels in zip(*each, strict=True)]
    values = {
        "f1_micro": float(f1_score(truth.ravel(), answers.ravel(), zero_division=0)),
        "f1_macro": float(columns[2].mean()),
        "average_precision": float(average_precision_score(truth.ravel(), shares)) if truth.any() else np.nan,
        "rows_all_right": float(accuracy_score(truth, answers)),
    }
    return Scores(values, _by_label(columns, given.found.classes))


def _of_numbers(given: Given) -> Scores:
    truth, answers = given.truth, given.found.answers
    values = {
        "r2": float(r2_score(truth, answers)),
        "rmse": float(root_mean_squared_error(truth, answers)),
        "mae": float(mean_absolute_error(truth, answers)),
    }
    if truth.shape[1] == 1 and np.std(truth) > 0 and np.std(answers) > 0:
        pair = truth[:, 0], answers[:, 0]
        values |= {"pearson": float(pearsonr(*pair)[0]), "spearman": float(spearmanr(*pair)[0])}
    return Scores(values)


def _of_tags(given: Given) -> Scores:
    truth, answers = given.truth, given.found.answers
    if given.of_entities:
        whole, by_label = entity_scores(truth, answers), entity_scores(truth, answers, by_label=True)
        assert isinstance(whole, EntityScores) and isinstance(by_label, dict)
        lines = pd.DataFrame([line._asdict() for line in by_label.values()], index=list(by_label))
        values = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall}
        return Scores(values, lines.rename(columns={"support": "entities"}))
    true, predicted = ([tag for row in rows for tag in row] for rows in (truth, answers))
    if not true:
        return Scores({"accuracy": 0.0})
    labels = sorted({*true, *predicted})
    matrix = confusion_matrix(true, predicted, labels=labels)
    return Scores(
        {"accuracy": float(accuracy_score(true, predicted))}, None, pd.DataFrame(matrix, index=labels, columns=labels)
    )


def _of_answers(given: Given) -> Scores:
    exact, f1 = answer_scores(given.truth, given.found.answers)
    return Scores({"f1": float(np.mean(f1)), "exact": float(np.mean(exact))})


def _of_choices(given: Given) -> Scores:
    n_options = np.isfinite(given.found.probabilities).sum(axis=1)
    right = float(np.mean(given.truth == given.found.answers))
    return Scores({"accuracy": right, "guessing": float(np.mean(1 / n_options))})
