"""What an estimator is worth on rows with labels, and which of these to look at."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, check_cv, cross_val_predict

from kbert.data.frames import data_frame, indexed_lines, readable_again, require_y
from kbert.data.labels import check_n_labels, label_column
from kbert.data.mistakes import warn_of_other_order
from kbert.data.tags import WordColumn
from kbert.errors import KbertWarning
from kbert.estimators.lengths import lengths_of_rows
from kbert.plots.attributions import AttributionDisplay
from kbert.reports.baselines import TrainingRows, baselines, texts_of
from kbert.reports.calibration import calibration
from kbert.reports.doubts import Doubts, doubts
from kbert.reports.given import Found, Given, found_by, kind_of, read_given, read_truth
from kbert.reports.main_score import MainScore, main_score
from kbert.reports.page import OWN_NAMES, Report
from kbert.reports.scores import scores
from kbert.tasks.row_lengths import RowLengths
from kbert.values.number_rules import whole_number
from kbert.weights.runtimes import ExportedModel

# Rows are put into so many groups of the same size by their lengths.
_GROUPS = 4
# What the texts of a row are called where X has no names for them.
_NAMES = {
    "tags": ["text"], "answers": ["question", "context"], "choices": ["context", "question", "options"],
}  # fmt: skip


def report(
    estimator: Any, X: Any, y: Any, *, train: tuple[Any, Any] | None, cv: Any, max_rows: int, explain: bool
) -> Report:
    """Judge an estimator; its method ``report`` documents the parameters."""
    max_rows = whole_number(max_rows, "max_rows")
    kind, is_fitted = kind_of(estimator), estimator.__sklearn_is_fitted__()
    X, y = readable_again(X), readable_again(y)
    warn_of_other_order(X, y)
    fitted = estimator._of_one_fit() if cv is None or is_fitted else estimator
    is_explainable = is_fitted and not isinstance(fitted.model_, ExportedModel)
    _check(kind, estimator, train, cv)
    lengths, max_length = lengths_of_rows(fitted, X)
    columns = fitted._row_reader().read(X)
    # Before the rows are predicted, which may take long.
    if y is not None:
        check_n_labels((y.shape[0] if hasattr(y, "shape") else len(y),), columns.n_rows, "y")
    found, splits = (
        (found_by(kind, fitted, X), None) if cv is None else _out_of_sample(kind, estimator, X, columns, y, cv)
    )
    # With cv, y is read as that of a fit of its own, whose columns may have another order than those of an earlier fit.
    given = read_given(kind, fitted if cv is None else estimator._without_fit(), columns, y, found)
    score, found_scores = main_score(given), scores(given)
    doubted = doubts(given)
    doubtful = _doubtful(kind, doubted, fitted, columns, X)
    values = {
        "estimator": repr(estimator),
        "evaluated_by": "predict" if cv is None else "cross-validation",
        "rows": _rows(columns, lengths, max_length),
        "score": {"name": score.name, **score.of()},
        "baselines": _baselines(given, fitted, columns, train, splits),
        "scores": {name: value for name, value in found_scores.values.items() if name not in ("rows", score.name)},
        **found_scores.tables(),
        "by_length": _by_length(score, lengths, max_length),
        "calibration": _calibration(given, estimator, cv is not None),
    }
    why = _why(kind, fitted, columns, doubted, doubtful.row[:max_rows]) if explain and is_explainable else None
    return Report(kind, values, doubtful, why, max_rows)


def _check(kind: str, estimator: Any, train: Any, cv: Any) -> None:
    if train is not None and cv is not None:
        raise ValueError("Give train=(X, y) or cv, not both: with cv the baselines learn from these rows too.")
    if cv is not None and kind not in ("labels", "numbers"):
        raise ValueError(
            f"cv is for one label or number a row, and this estimator predicts {kind}: fit it, and give rows that it "
            "was not fitted to."
        )
    if cv is not None and estimator.checkpoint is not None:
        raise ValueError(
            f"All fits of a cross-validation would share checkpoint={str(estimator.checkpoint)!r}, and each needs a "
            "folder of its own. Set checkpoint=None for it."
        )
    if train is not None and (not isinstance(train, tuple | list) or len(train) != 2):
        raise ValueError("train must be a pair: (X, y).")


def _out_of_sample(kind: str, estimator: Any, X: Any, columns: Any, y: Any, cv: Any) -> tuple[Found, Any]:
    """What clones find that were fitted without the row, and the splits by which they were."""
    n_folds = int(cv) if isinstance(cv, Integral) else None
    if kind == "numbers":
        require_y(y, f"one number for each of the {columns.n_rows} rows")
        folds = check_cv(cv) if n_folds is None else KFold(n_folds, shuffle=True, random_state=0)
        splits = _splits(folds, np.zeros(len(y)), np.asarray(y))
        _require_partition(splits, columns.n_rows)
        return Found(cross_val_predict(estimator, X, y, cv=splits)), splits
    labels = label_column(y, columns.n_rows)
    # Shuffled: a table is often sorted.
    folds = check_cv(cv) if n_folds is None else StratifiedKFold(n_folds, shuffle=True, random_state=0)
    splits = _splits(folds, np.zeros(len(labels)), labels)
    _require_partition(splits, len(labels))
    classes = np.unique(labels)
    probabilities = np.zeros((len(labels), len(classes)))
    # Not by `cross_val_predict`, which numbers the labels anew: class_weight names them as they are.
    for training, rest in splits:
        fold = clone(estimator).fit(_selected(columns, training.tolist()), labels[training])
        at = np.searchsorted(classes, fold.classes_)
        probabilities[np.ix_(rest, at)] = fold.predict_proba(_selected(columns, rest.tolist()))
    return Found(classes[probabilities.argmax(axis=1)], probabilities, classes), splits


def _splits(folds: Any, *arrays: Any) -> list[Any]:
    try:
        return list(folds.split(*arrays))
    except ValueError as error:
        if "groups" not in str(error):
            raise
        raise ValueError(
            f"cv={folds} splits by groups, which a report is not given. Give the splits themselves, such as "
            "cv=list(GroupKFold(5).split(X, y, groups))."
        ) from None


def _require_partition(splits: list[Any], n_rows: int) -> None:
    """Raise unless each row is in the test part of one split, before anything is fitted."""
    if not splits:
        raise ValueError("cv has no splits. Give a number of folds, a splitter such as KFold, or splits.")
    times = np.bincount(np.concatenate([rest for _, rest in splits]), minlength=n_rows)
    if (times != 1).any():
        raise ValueError(
            f"cv tests row {int(np.argmax(times != 1))} {int(times[times != 1][0])} times. A report needs each row "
            "once: give a number of folds, a splitter such as KFold or StratifiedKFold, or the splits themselves, such "
            "as list(GroupKFold(5).split(X, y, groups))."
        )


def _rows(columns: Any, lengths: RowLengths, max_length: int) -> dict[str, int]:
    """How many rows there are, how many have an empty text, and how many are longer than ``max_length``."""
    longer = int((lengths.whole > max_length).sum())
    return {
        "rows": columns.n_rows,
        "empty": len(columns.missing_rows()),
        "cut": 0 if lengths.in_windows else longer,
        "in_windows": longer if lengths.in_windows else 0,
        "max_length": max_length,
    }


def _baselines(given: Given, estimator: Any, columns: Any, train: Any, splits: Any) -> dict[str, Any]:
    learned = None
    if train is not None:
        X, y = map(readable_again, train)
        read = estimator._row_reader().read(X, "the X of train")
        estimator._check_columns(read, columns, "the X of train")
        truth = read_truth(given.kind, estimator, read, y, given.found.classes, "the y of train")
        learned = TrainingRows(texts_of(given.kind, read, estimator), truth)
    return baselines(given, texts_of(given.kind, columns, estimator), learned, splits)


def _by_length(score: MainScore, lengths: RowLengths, max_length: int) -> list[dict[str, Any]]:
    """The score of the shortest rows, and of longer ones; those that are cut are a group of their own."""
    tokens = lengths.whole
    is_cut = np.zeros(len(tokens), bool) if lengths.in_windows else tokens > max_length
    groups = []
    for some, name in ((~is_cut, "whole"), (is_cut, "cut")):
        if some.any():
            bounds = np.unique(np.quantile(tokens[some], np.linspace(0, 1, _GROUPS + 1)[1:], method="higher"))
            bounds = bounds if name == "whole" else bounds[-1:]
            number = np.searchsorted(bounds, tokens)
            groups += [(np.flatnonzero(some & (number == i)), name) for i in range(len(bounds))]
    return [
        {
            "from": int(tokens[rows].min()),
            "to": int(tokens[rows].max()),
            "cut": name == "cut",
            "rows": len(rows),
            **score.of(rows),
        }
        for rows, name in groups
    ]


def _calibration(given: Given, estimator: Any, is_crossed: bool) -> dict[str, Any]:
    if given.kind not in ("labels", "several labels"):
        return {}
    if not is_crossed:
        return {"learned": estimator.temperature_ != 1.0, **calibration(given, estimator.temperature_)}
    # Each clone has learned a temperature of its own, if any.
    return {"learned": estimator.calibrate is not None, **calibration(given, None if estimator.calibrate else 1.0)}


def _doubtful(kind: str, found: Doubts, estimator: Any, columns: Any, X: Any) -> pd.DataFrame:
    """The rows whose prediction is not what is given, the most surely wrong first."""
    order = np.argsort(-found.doubt, kind="stable")
    order = order[found.doubt[order] > 0].tolist()
    names = ["row", "given", "predicted", "doubt"]
    values: list[Any] = [order, *([x[i] for i in order] for x in (found.given, found.predicted))]
    values.append(found.doubt[order].tolist())
    if found.probabilities is not None:
        names += ["probability_given", "probability"]
        values += found.probabilities[order].T.tolist()
    if kind == "several labels":
        names.append("label")
        values.append([found.explain["labels"][i] for i in order])
    if kind == "tags":
        names += ["word", "position"]
        words = columns.split(estimator.tokenizer_.split_words).words
        positions = [found.explain["word"][i] for i in order]
        values += [[words[i][position] for i, position in zip(order, positions, strict=True)], positions]
    texts = _texts(columns)
    names += [f"{name}_of_X" if name in OWN_NAMES else name for name in _text_names(kind, columns, len(texts))]
    values += [[column[i] for i in order] for column in texts]
    numbers = {"row": int, "position": int} | dict.fromkeys(("doubt", "probability_given", "probability"), float)
    return indexed_lines(list(zip(*values, strict=True)), {name: numbers.get(name, object) for name in names}, X)


def _texts(columns: Any) -> list[Any]:
    """The columns of texts."""
    return [list(columns.texts())] if isinstance(columns, WordColumn) else list(columns.columns)


def _text_names(kind: str, columns: Any, n: int) -> list[str]:
    if columns.names is not None and len(columns.names) == n:
        return list(columns.names)
    if kind == "choices" and n == 2:
        return ["context", "options"]
    return _NAMES.get(kind, ["text"] if n == 1 else ["text_1", "text_2"])


def _why(kind: str, estimator: Any, columns: Any, found: Doubts, rows: pd.Series) -> AttributionDisplay | None:
    """What the words of some rows speak for, of what is predicted."""
    numbers = rows.tolist()
    if not numbers:
        return None
    how = {name: [values[i] for i in numbers] for name, values in found.explain.items()}
    unknown: list[int] = []
    if "labels" in how:
        # For a label that the estimator does not know there is nothing to explain: another one stands in until then.
        known = estimator.classes_.tolist()
        unknown = [row for row, label in enumerate(how["labels"]) if label not in known]
        how["labels"] = [label if label in known else known[0] for label in how["labels"]]
    some = _selected(columns, numbers)
    with warnings.catch_warnings():
        # Shades need no scores that add up to the last digit; what there is to say of the texts was said of all rows.
        warnings.simplefilter("ignore", KbertWarning)
        why = estimator.explain(some, **how)
    why = why[~why.row.isin(unknown)]
    if kind == "answers":
        # The score of an answer is the sum of both logits.
        keys = ["row", "column", "word", "start", "end"]
        why = why.groupby(keys, sort=False, as_index=False).score.sum().assign(label="answer")
    return AttributionDisplay.from_predictions(why, some)


def _selected(columns: Any, rows: list[int]) -> Any:
    """Some rows, as X may hold them."""
    if isinstance(columns, WordColumn):
        source: Any = columns.words if columns.raw_texts is None else columns.raw_texts
        return [source[i] for i in rows]
    values = [[column[i] for i in rows] for column in columns.columns]
    if columns.names is not None and len(columns.names) == len(values):
        return data_frame(dict(zip(columns.names, values, strict=True)))
    return values[0] if len(values) == 1 else list(zip(*values, strict=True))
