"""What each estimator predicts for a table: columns of Arrow's types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kbert.estimators import (
    BertClassifier,
    BertMultipleChoice,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
)
from kbert.estimators.base import of_one_fit
from kbert.tables.reading import X_of_fit, json_list, keep_texts, meant_as_lists
from kbert.values.printable import printable, shown

# The columns that a task reads under these names, where no others are given.
_NAMED = {BertQA: ("question", "context"), BertMultipleChoice: ("context", "question", "options")}
_MAY_LACK = {"question"}
# What pandas calls an index without a name in a Parquet file.
_INDEX = re.compile(r"__index_level_\d+__")


def columns_read(estimator: Any, names: Sequence[str], given: Sequence[str] | None) -> list[str]:
    """The columns of a table that an estimator reads.

    Parameters
    ----------
    estimator : BertEstimator
    names : sequence of str
        Of the table's columns.
    given : sequence of str or None
        What the caller asks for; None for the names of the fit, or those of the task, or "text", or the only one.

    Raises
    ------
    ValueError
        If the table lacks one, one is named twice, or it is not clear which is meant.
    """
    wanted = list(given) if given is not None else known_columns(estimator, names)
    missing = [name for name in wanted if name not in names]
    if missing or not wanted:
        which = (
            f"has no column {missing[0]!r}"
            if missing
            else f"does not say which column {type(estimator).__name__} reads"
        )
        raise ValueError(
            f"the table {which}. It has {printable(', '.join(names))}. Name them: columns (--text on the command line)."
        )
    twice = next((name for name in wanted if wanted.count(name) > 1), None)
    if twice is not None:
        where = "columns (--text on the command line)" if given is not None else "the columns of the fit"
        raise ValueError(f"the column {twice!r} is named twice in {where}. Name it once.")
    n_features = getattr(estimator, "n_features_in_", None)
    if given is not None and n_features is not None and len(wanted) != n_features:
        raise ValueError(
            f"{len(wanted)} columns are named, and {type(estimator).__name__} reads {n_features}, as in its fit. Name "
            "these: columns (--text on the command line)."
        )
    return wanted


def known_columns(estimator: Any, names: Sequence[str]) -> list[str]:
    """The columns of a table that are those of the fit, or else have the names of the task; empty if none is known."""
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and set(fitted) <= set(names):
        return list(fitted)
    for kind, columns in _NAMED.items():
        if isinstance(estimator, kind):
            optional = _MAY_LACK if kind is BertMultipleChoice else set()
            return [name for name in columns if name in names or name not in optional]
    if fitted is not None:
        return list(fitted)
    if getattr(estimator, "n_features_in_", 1) == 1:
        # The index of a DataFrame is a column of its file.
        named = [name for name in names if not _INDEX.fullmatch(name)]
        # One name that holds a separator is that of several columns, in a file with another separator.
        is_one = len(named) == 1 and not any(separator in named[0] for separator in ";\t,")
        return ["text"] if "text" in names else named if is_one else []
    return []


def kind_of_values(kind: Any) -> str:
    """What a column of one of Arrow's types holds, as far as it makes a difference to an estimator."""
    name = str(kind)
    if name.startswith(("list<", "large_list<", "fixed_size_list<")):
        return "lists"
    return "texts" if "string" in name else name


def columns_of_lists(estimator: Any, table: Any) -> frozenset[str]:
    """The columns of texts that are JSON lists, as CSV has them: by a table's first rows, of what takes lists."""
    of_words = isinstance(estimator, BertVectorizer) and estimator._is_of_words
    if not of_words and not isinstance(estimator, BertTagger | BertMultipleChoice):
        return frozenset()
    first = _frame(table.slice(0, 1000))
    return frozenset(name for name in first if meant_as_lists(first[name]) and _has_texts(first[name]))


def _has_texts(column: pd.Series) -> bool:
    """Whether a list is one of texts, or empty: the "[1]" that a text begins with is not."""
    lists = map(json_list, column)
    return any(found is not None and all(isinstance(item, str) for item in found) for found in lists)


def as_X(estimator: Any, table: Any, columns: Sequence[str], lists: frozenset[str], first_row: int) -> Any:
    """The columns as the estimator takes them, a Series of one, else a DataFrame, indexed by the rows of the file.

    Raises
    ------
    ValueError
        If a value of a column of lists is none.
    """
    frame = _frame(table.select(columns))
    frame.index = pd.RangeIndex(first_row, first_row + len(frame))
    for name in lists.intersection(columns):
        frame[name] = [_as_list(value, name, row) for row, value in frame[name].items()]
    return X_of_fit(estimator, frame, columns)


def _as_list(text: Any, name: str, row: Any) -> list[Any]:
    found = json_list(text)
    if found is None:
        raise ValueError(f"row {row} of column {name!r} is no JSON list, as in the first rows: {shown(text)}.")
    return found


def _frame(table: Any) -> pd.DataFrame:
    """A table as pandas has it, but that its columns stay columns, also one that was pandas' index.

    Texts stay Arrow's, which are read without making Python's, and those of a categorical column are texts. So is a
    column without any value, which has no type of its own.
    """
    import pyarrow as pa

    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and keep_texts(field.type.value_type):
            table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
        elif pa.types.is_null(field.type) or str(field.type) == "string_view":
            table = table.set_column(i, field.name, table.column(i).cast(pa.string()))
    frame: pd.DataFrame = table.to_pandas(types_mapper=keep_texts, ignore_metadata=True)
    return frame


def predicted_names(estimator: Any, of_lists: bool, probabilities: bool) -> list[str]:
    """The names of `predicted_columns`, before anything is predicted.

    Parameters
    ----------
    estimator : BertEstimator
        Fitted.
    of_lists : bool
        Whether the rows are lists of words, which makes a difference to a tagger.
    probabilities : bool
    """
    match estimator:
        case BertClassifier():
            each = [f"probability_{label}" for label in estimator.classes_.tolist()] if probabilities else []
            return ["prediction", *["probability"] * (estimator.y_type_ == "labels"), *each]
        case BertRegressor():
            numbers = range(np.size(estimator.y_mean_))
            return ["prediction"] if estimator.y_ndim_ == 1 else [f"prediction_{i}" for i in numbers]
        case BertTagger():
            return ["prediction"] if of_lists else ["entities" if estimator._task().is_bio else "spans"]
        case BertQA():
            return ["prediction", "start", "end", "probability"]
        case BertMultipleChoice():
            return ["prediction", "probability", *["probabilities"] * probabilities]
        case BertVectorizer():
            return ["vectors" if estimator._is_of_words else "vector"]
    return []


def predicted_columns(estimator: Any, X: Any, probabilities: bool) -> dict[str, Any]:
    """The columns that an estimator predicts, by their names.

    Parameters
    ----------
    estimator : BertEstimator
        Fitted.
    X : Series or DataFrame
    probabilities : bool
        Whether a classifier gives a column for each label too.

    Returns
    -------
    dict of pyarrow.Array
    """
    for kind, columns in _COLUMNS.items():
        if isinstance(estimator, kind):
            return of_one_fit(columns)(estimator, X, probabilities)
    raise TypeError(f"{type(estimator).__name__} has no predictions to write.")


def _of_classifier(classifier: BertClassifier, X: Any, probabilities: bool) -> dict[str, Any]:
    import pyarrow as pa

    task, outputs = classifier._task(), classifier._outputs(X).astype("float64")
    shares, answers = task.probabilities(outputs), task.decode(outputs)
    columns: dict[str, Any] = {}
    if classifier.y_type_ == "labels":
        columns["prediction"] = pa.array(np.asarray(answers).tolist())
        columns["probability"] = pa.array(shares.max(axis=1), pa.float32())
    else:
        labels = classifier.classes_
        rows = (
            [labels[np.asarray(row, bool)].tolist() for row in answers]
            if classifier.y_type_ == "indicator"
            else answers
        )
        columns["prediction"] = pa.array([list(row) for row in rows], pa.list_(pa.array(labels.tolist()).type))
    if probabilities:
        for i, label in enumerate(classifier.classes_.tolist()):
            columns[f"probability_{label}"] = pa.array(shares[:, i], pa.float32())
    return columns


def _of_regressor(regressor: BertRegressor, X: Any, probabilities: bool) -> dict[str, Any]:
    import pyarrow as pa

    numbers = regressor.predict(X)
    if numbers.ndim == 1:
        return {"prediction": pa.array(numbers, pa.float64())}
    return {f"prediction_{i}": pa.array(numbers[:, i], pa.float64()) for i in range(numbers.shape[1])}


def _of_tagger(tagger: BertTagger, X: Any, probabilities: bool) -> dict[str, Any]:
    import pyarrow as pa

    column = X if isinstance(X, pd.Series) else X.iloc[:, 0]
    if not isinstance(column.dtype, pd.ArrowDtype):
        return {"prediction": pa.array(tagger.predict(X), pa.list_(pa.string()))}
    span = [("start", pa.int32()), ("end", pa.int32()), ("label", pa.string())]
    rows: list[list[dict[str, Any]]] = [[] for _ in range(len(X))]
    if not tagger._task().is_bio:
        for row, spans in zip(rows, tagger.predict(X), strict=True):
            row += [dict(zip(("start", "end", "label"), one, strict=True)) for one in spans]
        return {"spans": pa.array(rows, pa.list_(pa.struct(span)))}
    names = ("start", "end", "label", "text", "score")
    lines = tagger.entities(X)
    for number, values in zip(lines["row"], zip(*(lines[name] for name in names), strict=True), strict=True):
        rows[number].append(dict(zip(names, values, strict=True)))
    return {"entities": pa.array(rows, pa.list_(pa.struct([*span, ("text", pa.string()), ("score", pa.float32())])))}


def _of_qa(answerer: BertQA, X: Any, probabilities: bool) -> dict[str, Any]:
    import pyarrow as pa

    best = answerer.answers(X, n_best=1)
    columns = {"prediction": pa.array(best.answer.tolist(), pa.string())}
    kinds = {"start": pa.int32(), "end": pa.int32(), "probability": pa.float32()}
    return columns | {name: pa.array(best[name].to_numpy(), kind) for name, kind in kinds.items()}


def _of_chooser(chooser: BertMultipleChoice, X: Any, probabilities: bool) -> dict[str, Any]:
    import pyarrow as pa

    shares = chooser.predict_proba(X)
    columns = {
        "prediction": pa.array(np.nanargmax(shares, axis=1), pa.int32()),
        "probability": pa.array(np.nanmax(shares, axis=1), pa.float32()),
    }
    if probabilities:
        kept = [row[~np.isnan(row)] for row in shares]
        columns["probabilities"] = pa.array(kept, pa.list_(pa.float32()))
    return columns


def _of_vectorizer(vectorizer: BertVectorizer, X: Any, probabilities: bool) -> dict[str, Any]:
    import pyarrow as pa

    vectors = vectorizer.transform(X)
    if isinstance(vectors, list):
        kind = pa.list_(pa.list_(pa.float32()))
        return {"vectors": pa.array([list(rows) for rows in vectors], kind)}
    values = np.ascontiguousarray(vectors, "float32")
    return {"vector": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])}


_COLUMNS: dict[type[Any], Any] = {
    BertClassifier: _of_classifier,
    BertRegressor: _of_regressor,
    BertTagger: _of_tagger,
    BertQA: _of_qa,
    BertMultipleChoice: _of_chooser,
    BertVectorizer: _of_vectorizer,
}
