"""Which rows to look at: those where the prediction contradicts what is given, the most surely wrong first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.metrics import answer_scores
from kbert.reports.given import Given, class_numbers


class Doubts(NamedTuple):
    """What speaks against what is given for each row.

    Attributes
    ----------
    doubt : ndarray of shape (n_rows,)
        The rows with the highest values are the most surely wrong; 0 where prediction and what is given agree.
    given, predicted : list
        Of each row.
    probabilities : ndarray of shape (n_rows, 2) or None
        Of what is given, and of what is predicted. NaN is unknown.
    explain : dict of str to list
        Arguments of the estimator's ``explain``, with a value for each row, so that it explains what is predicted.
    """

    doubt: NDArray[np.float64]
    given: list[Any]
    predicted: list[Any]
    probabilities: NDArray[np.float64] | None
    explain: dict[str, list[Any]]


def doubts(given: Given) -> Doubts:
    """Compare what is given with what was predicted."""
    of_kind = {
        "labels": _labels,
        "several labels": _several_labels,
        "numbers": _numbers,
        "tags": _tags,
        "answers": _answers,
        "choices": _choices,
    }
    return of_kind[given.kind](given)


def _labels(given: Given) -> Doubts:
    classes = np.asarray(given.found.classes).tolist()
    truth, answers = given.truth.tolist(), given.found.answers.tolist()
    numbers = [class_numbers(labels, classes) for labels in (truth, answers)]
    doubt, probabilities = _of_numbers(given.found.probabilities, *numbers)
    return Doubts(doubt, truth, answers, probabilities, {"labels": answers})


def _of_numbers(
    probabilities: Any, given: NDArray[np.int64], predicted: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The doubt in the given ones of several classes, and the probabilities of given and predicted.

    The doubt is 1 minus the self-confidence of confident learning (Northcutt, Jiang and Chuang, 2021, "Confident
    Learning: Estimating Uncertainty in Dataset Labels"), by which cleanlab ranks labels unless it is told otherwise.
    The classifier should not have been trained on the rows. The number of a label that it does not know is -1, and its
    probability 0.
    """
    rows = np.arange(len(given))
    of_given, of_predicted = (np.where(i >= 0, probabilities[rows, i], 0.0) for i in (given, predicted))
    return np.where(given == predicted, 0.0, 1 - of_given), np.stack([of_given, of_predicted], axis=1)


def _several_labels(given: Given) -> Doubts:
    """Each label of a row is a question of its own, of yes or no; the row has the doubt of the most doubtful."""
    truth, answers, shares = given.truth, given.found.answers, given.found.probabilities
    of_each = np.where(truth == answers, 0.0, np.where(truth == 1, 1 - shares, shares))
    worst, rows = of_each.argmax(axis=1), np.arange(len(truth))
    classes = given.found.classes
    wanted, found = ([classes[row.astype(bool)].tolist() for row in values] for values in (truth, answers))
    doubt = of_each[rows, worst]
    probabilities = np.stack([1 - doubt, doubt], axis=1)
    return Doubts(doubt, wanted, found, probabilities, {"labels": classes[worst].tolist()})


def _numbers(given: Given) -> Doubts:
    """The error as a multiple of the root of the mean squared error of its column."""
    truth, answers = given.truth, given.found.answers
    errors = np.abs(truth - answers)
    usual = np.maximum(np.sqrt((errors**2).mean(axis=0)), np.finfo(float).tiny)
    wanted, found = (values[:, 0].tolist() if values.shape[1] == 1 else values.tolist() for values in (truth, answers))
    return Doubts((errors / usual).max(axis=1), wanted, found, None, {})


def _tags(given: Given) -> Doubts:
    """The most doubtful word of each row."""
    classes = np.asarray(given.found.classes).tolist()
    n_rows = len(given.truth)
    doubt, words, probabilities = np.zeros(n_rows), np.zeros(n_rows, int), np.zeros((n_rows, 2))
    wanted, found = [""] * n_rows, [""] * n_rows
    for i, tags in enumerate(zip(given.truth, given.found.answers, strict=True)):
        if len(tags[0]):
            of_words, pairs = _of_numbers(given.found.probabilities[i], *(class_numbers(row, classes) for row in tags))
            words[i] = word = int(of_words.argmax())
            doubt[i], probabilities[i] = of_words[word], pairs[word]
            wanted[i], found[i] = tags[0][word], tags[1][word]
    return Doubts(doubt, wanted, found, probabilities, {"word": words.tolist(), "tags": found})


def _answers(given: Given) -> Doubts:
    """The probability of the answer, times how little it has in common with the given ones."""
    _, f1 = answer_scores(given.truth, given.found.answers)
    probabilities = np.asarray(given.found.probabilities, "float64")
    pairs = np.stack([np.full(len(probabilities), np.nan), probabilities], axis=1)
    return Doubts((1 - np.asarray(f1)) * probabilities, given.truth, list(given.found.answers), pairs, {})


def _choices(given: Given) -> Doubts:
    answers = given.found.answers
    doubt, probabilities = _of_numbers(given.found.probabilities, given.truth, answers)
    return Doubts(doubt, given.truth.tolist(), answers.tolist(), probabilities, {"option": answers.tolist()})
