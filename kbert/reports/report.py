"""What a fitted estimator is worth on rows with labels, and which of these to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import _safe_indexing

from kbert.data.frames import indexed_lines, readable_again
from kbert.data.labels import label_column
from kbert.estimators.parameters import checked_parameters
from kbert.estimators.recipe import settle_lengths
from kbert.plots.attributions import AttributionDisplay
from kbert.plots.page import checked_max_rows
from kbert.reports.baselines import baselines, joined
from kbert.reports.calibration import calibration
from kbert.reports.judging import Judged, judged
from kbert.reports.page import Report
from kbert.reports.scores import Found, found_by, indicator_of, scores_of
from kbert.tasks.row_lengths import RowLengths, row_lengths

# Rows are put into so many groups of the same size by their lengths.
_GROUPS = 4
# What the columns of X are called that have no names.
_NAMES = {
    ("TextColumns", 1): ["text"], ("WordColumn", 1): ["text"], ("QuestionColumns", 2): ["question", "context"],
    ("ChoiceColumns", 2): ["context", "options"], ("ChoiceColumns", 3): ["context", "question", "options"],
}  # fmt: skip


def report(
    estimator: Any, X: Any, y: Any, *, train: tuple[Any, Any] | None = None, cv: Any = None, max_rows: int = 50,
    n_explained: int = 10,
) -> Report:  # fmt: skip
    """Judge an estimator; its own ``report`` documents the arguments."""
    checked_max_rows(max_rows)
    X, y, kind = readable_again(X), readable_again(y), type(estimator).__name__
    if train is not None and cv is not None:
        raise ValueError("Give train=(X, y) or cv, not both: with cv, the baseline learns from these rows too.")
    if cv is not None and kind != "BertClassifier":
        raise ValueError(f"cv is for BertClassifier with one label a row; a {kind} is judged on rows it has not seen.")
    is_fitted = estimator.__sklearn_is_fitted__()
    if cv is None:
        estimator._check_fitted()
        found, splits = found_by(estimator, X), None
    else:
        found, splits = _out_of_sample(estimator, X, y, cv)
        if is_fitted and getattr(estimator, "y_type_", "labels") != "labels":
            raise ValueError("cv is for one label a row, and this BertClassifier was fitted to several.")
    reader, tokenizer = _reader(estimator, X, y, is_fitted)
    columns = reader.read(X)
    judgement = judged(estimator, found, y, columns.n_rows)
    lengths = row_lengths(reader, columns, tokenizer)
    scores = scores_of(estimator, X, y, found)
    values = {
        "estimator": repr(estimator),
        "judged_by": "cross-validation" if cv is not None else "predict",
        "score": {"name": judgement.score_name, **judgement.score()},
        "baselines": _baselines(estimator, columns, found, y, train, splits),
        **scores.as_dict(),
        "rows": _rows(columns, lengths),
        "by_length": _by_length(judgement, lengths.whole),
        "calibration": _calibration(estimator, found, y, cv is None),
    }  # fmt: skip
    values = {name: value for name, value in values.items() if value}
    doubtful = _doubtful(judgement, columns, X)
    shown = doubtful.row.to_numpy()[: n_explained if is_fitted else 0]
    return Report(values, scores, doubtful, _explained(estimator, X, judgement, shown), max_rows)


def _out_of_sample(estimator: Any, X: Any, y: Any, cv: Any) -> tuple[Found, Any]:
    """What clones say that were fitted without the row, and the splits by which they were."""
    labels = label_column(y, len(X))
    splits = check_cv(cv, labels, classifier=True)
    if isinstance(cv, int):
        splits.shuffle, splits.random_state = True, 0  # a table is often sorted by its labels
    splits = list(splits.split(np.zeros(len(labels)), labels))
    probabilities = cross_val_predict(estimator, X, labels, cv=splits, method="predict_proba")
    classes = np.unique(labels)
    return Found(classes[probabilities.argmax(axis=1)], probabilities, classes), splits


def _reader(estimator: Any, X: Any, y: Any, is_fitted: bool) -> tuple[Any, Any]:
    """The task that reads X, and the tokenizer: of the fit, or as a fit would have them."""
    if is_fitted:
        return estimator._task(), estimator.tokenizer_
    parameters = checked_parameters(estimator)
    task = estimator._new_task(parameters, y)
    start = estimator._start(parameters, task.read(X).texts())
    settle_lengths(parameters, task, start.config)
    return task, start.tokenizer


def _baselines(estimator: Any, columns: Any, found: Found, y: Any, train: Any, splits: Any) -> dict[str, float]:
    if type(estimator).__name__ not in ("BertClassifier", "BertRegressor"):
        return {}
    classes = found.classes if getattr(estimator, "y_type_", "labels") != "labels" else None
    learned_from = None
    if train is not None:
        X_train, y_train = map(readable_again, train)
        learned_from = (joined(estimator._task().read(X_train, "the X of train")), y_train)
    return baselines(estimator, joined(columns), y, learned_from, splits, classes)


def _rows(columns: Any, lengths: RowLengths) -> dict[str, int]:
    """How many rows there are, how many have an empty text, and how many the model does not read as a whole."""
    return {
        "rows": columns.n_rows, "empty": len(columns.missing_rows()), "cut": int(lengths.is_cut.sum()),
        "in_windows": int(lengths.in_windows.sum()),
    }  # fmt: skip


def _by_length(judgement: Judged, tokens: np.ndarray) -> list[dict[str, Any]]:
    """The score of rows that are short, and of longer ones."""
    bounds = np.unique(np.quantile(tokens, np.linspace(0, 1, _GROUPS + 1)[1:], method="higher"))
    number = np.searchsorted(bounds, tokens)
    groups = [np.flatnonzero(number == i) for i in range(len(bounds))]
    return [
        {"from": int(tokens[rows].min()), "to": int(tokens[rows].max()), "rows": len(rows), **judgement.score(rows)}
        for rows in groups if len(rows)
    ]  # fmt: skip


def _calibration(estimator: Any, found: Found, y: Any, is_own: bool) -> dict[str, Any]:
    if type(estimator).__name__ != "BertClassifier":
        return {}
    temperature = estimator.temperature_ if is_own else 1.0
    if getattr(estimator, "y_type_", "labels") != "labels":
        return calibration(found.probabilities, indicator_of(y, found.classes), temperature)
    number = {label: i for i, label in enumerate(np.asarray(found.classes).tolist())}
    truth = np.array([number.get(label, -1) for label in np.asarray(y, object).ravel().tolist()])
    return calibration(found.probabilities, truth, temperature)


def _doubtful(judgement: Judged, columns: Any, X: Any) -> pd.DataFrame:
    """The rows whose answer is not what is given, the most surely wrong first."""
    order = np.argsort(-judgement.doubt, kind="stable")
    texts = getattr(columns, "columns", None) or (list(columns.texts()),)
    names = columns.names or _NAMES.get((type(columns).__name__, len(texts)), ["text_1", "text_2"])
    both = ["probability_given", "probability"] if judgement.probabilities is not None else []
    lines = [
        (
            int(row), judgement.given[row], judgement.answers[row], float(judgement.doubt[row]),
            *(judgement.probabilities[row].tolist() if both else ()), *(column[int(row)] for column in texts),
        )
        for row in order if judgement.doubt[row] > 0
    ]  # fmt: skip
    return indexed_lines(lines, ["row", "given", "answer", "doubt", *both, *map(str, names)], X)


def _explained(estimator: Any, X: Any, judgement: Judged, rows: np.ndarray) -> list[str]:
    """The HTML of the first doubtful rows, with their words shaded by what they say for the answer."""
    if not len(rows):
        return []
    some = _safe_indexing(X, rows)
    how = {name: [values[row] for row in rows] for name, values in judgement.explain.items()}
    return list(AttributionDisplay.from_predictions(estimator.explain(some, **how), some)._sections())
