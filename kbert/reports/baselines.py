"""What is reached without BERT, on the same rows: by the commonest answer, and by a linear model on counts of words."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from kbert.reports.given import Given
from kbert.reports.main_score import main_score


class TrainingRows(NamedTuple):
    """Rows that the baselines learn from.

    Attributes
    ----------
    texts : list
        What `texts_of` gives for them.
    truth : array-like
        As in `Given`.
    """

    texts: list[Any]
    truth: Any


def texts_of(kind: str, columns: Any, estimator: Any) -> list[Any]:
    """Each row as one text, or as its words; of questions and options None, for no baseline reads these."""
    if kind in ("answers", "choices"):
        return [None] * columns.n_rows
    if kind == "tags":
        return list(columns.split(estimator.tokenizer_.split_words).words)
    return [" \n ".join(row) for row in zip(*columns.columns, strict=True)]


def baselines(given: Given, texts: list[Any], train: TrainingRows | None, splits: Any = None) -> dict[str, Any]:
    """The main score of simple answers, each as `MainScore.of` gives it.

    Parameters
    ----------
    given : Given
    texts : list
        What `texts_of` gives for these rows.
    train : TrainingRows, optional
        Without them the commonest answer is that of these rows.
    splits : list of (train, test), optional
        To learn from these rows themselves, each part from the others.

    Returns
    -------
    dict of str to dict
        "labels", "several labels": ``most_frequent`` and, with rows that it can learn from, ``tfidf_linear``.
        "numbers": ``mean`` and ``tfidf_linear``. "tags": with rows to learn from, ``most_frequent_tag`` of each word.
        "answers": ``no_answer`` for all questions, if a question has none. "choices": the ``most_frequent`` option, by
        its index.
    """
    if given.kind == "tags":
        found = _tags(texts, train)
    elif given.kind == "answers":
        found = _no_answer(given)
    elif given.kind == "choices":
        found = _commonest_option(given, train)
    else:
        found = _linear(given, texts, train, splits)
    own = given.found
    return {name: main_score(given._replace(found=own._replace(answers=answers))).of() for name, answers in found}


def _linear(given: Given, texts: list[str], train: TrainingRows | None, splits: Any) -> Iterator[tuple[str, Any]]:
    is_number = given.kind == "numbers"
    yield (
        "mean" if is_number else "most_frequent",
        _answers(DummyRegressor() if is_number else DummyClassifier(), given, texts, train, splits),
    )
    if train is None and splits is None:
        return
    head = Ridge() if is_number else LogisticRegression(max_iter=1000)
    head = OneVsRestClassifier(head) if given.kind == "several labels" else head
    model = make_pipeline(TfidfVectorizer(), head)
    with suppress(ValueError), warnings.catch_warnings():  # it cannot learn from rows of one class, or without a word
        warnings.filterwarnings("ignore", "Label .* is present in all training examples")
        yield "tfidf_linear", _answers(model, given, texts, train, splits)


def _answers(model: BaseEstimator, given: Given, texts: list[str], train: Any, splits: Any) -> NDArray[Any]:
    if splits is not None:
        found = cross_val_predict(model, texts, given.truth, cv=splits)
    else:
        learned = TrainingRows(texts, given.truth) if train is None else train
        found = model.fit(learned.texts, learned.truth).predict(texts)
    return np.reshape(found, np.shape(given.truth))


def _tags(texts: list[list[str]], train: TrainingRows | None) -> Iterator[tuple[str, Any]]:
    if train is None:
        return
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    of_all: Counter[str] = Counter()
    for words, tags in zip(train.texts, train.truth, strict=True):
        of_all.update(tags)
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
    if not of_all:
        return
    commonest = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    otherwise = of_all.most_common(1)[0][0]
    yield "most_frequent_tag", [[commonest.get(word, otherwise) for word in words] for words in texts]


def _no_answer(given: Given) -> Iterator[tuple[str, Any]]:
    if not all(given.truth):
        yield "no_answer", [""] * len(given.truth)


def _commonest_option(given: Given, train: TrainingRows | None) -> Iterator[tuple[str, Any]]:
    learned = given.truth if train is None else train.truth
    yield "most_frequent", np.full_like(given.truth, np.bincount(learned).argmax())
