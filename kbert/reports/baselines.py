"""What is reached without BERT, on the same rows: by the commonest answer, and by a linear model on counts of words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from kbert.data.texts import TextColumns
from kbert.reports.judging import judged
from kbert.reports.scores import Found, indicator_of


def joined(columns: TextColumns) -> list[str]:
    """Each row as one text."""
    return [" \n ".join(row) for row in zip(*columns.columns, strict=True)]


def baselines(
    estimator: Any, texts: list[str], y: Any, train: tuple[list[str], Any] | None, cv: Any = None, classes: Any = None
) -> dict[str, float]:
    """The main score of the commonest answer and, given rows to learn from, of a linear model on TF-IDF.

    Parameters
    ----------
    estimator : BertClassifier or BertRegressor
    texts : list of str
    y : array-like
    train : tuple of texts and y, optional
        Without them the commonest answer is that of these rows.
    cv : cross-validation generator, optional
        To learn from these rows themselves, part by part.
    classes : ndarray, optional
        The labels, where a row has several.
    """
    is_number = type(estimator).__name__ == "BertRegressor"
    several = classes is not None
    commonest = DummyRegressor() if is_number else DummyClassifier()
    head = Ridge() if is_number else LogisticRegression(max_iter=1000)
    tfidf = make_pipeline(TfidfVectorizer(), OneVsRestClassifier(head) if several else head)

    def target(values: Any) -> Any:
        return indicator_of(values, classes) if several else np.asarray(values)

    def score(model: Any) -> float:
        if cv is not None:
            answers = cross_val_predict(model, texts, target(y), cv=cv)
        else:
            texts_to_learn, y_to_learn = (texts, y) if train is None else train
            answers = model.fit(texts_to_learn, target(y_to_learn)).predict(texts)
        return _score(estimator, answers, target(y), classes)

    found = {"most_frequent" if not is_number else "mean": score(commonest)}
    if train is not None or cv is not None:
        found["tfidf_linear"] = score(tfidf)
    return found


def _score(estimator: Any, answers: Any, y: Any, classes: Any) -> float:
    labels = np.unique(y) if classes is None else classes
    n = len(labels)
    shares = np.zeros((len(answers), n)) if type(estimator).__name__ != "BertRegressor" else None
    found = judged(estimator, Found(answers, shares, labels), y, len(answers))
    return float(found.score_of(found.sums.sum(axis=0)))
