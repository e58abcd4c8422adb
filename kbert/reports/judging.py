"""What an estimator's answers are worth, row by row: how right each is, and how surely wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.data.answers import answer_texts
from kbert.data.choices import option_indices
from kbert.data.frames import readable_again
from kbert.metrics import answer_scores
from kbert.metrics.entities import row_entities
from kbert.reports.intervals import ScoreOf, bootstrap_interval, share_interval
from kbert.reports.scores import Found, indicator_of


class Judged(NamedTuple):
    """The answers to some rows beside what is true.

    Attributes
    ----------
    score_name : str
        The main score.
    sums : ndarray of shape (n_rows, k)
        What each row adds to the sums that the score is made of.
    score_of : callable
        From these sums to the score.
    doubt : ndarray of shape (n_rows,)
        How surely the answer and what is given contradict each other: the rows with the highest values may be given
        wrongly. At most 0 where they agree. The scale is the task's.
    given, answers : list
        Of each row, as a table shows it.
    probabilities : ndarray of shape (n_rows, 2) or None
        Of what is given, and of the answer.
    explain : dict of list
        Arguments of the estimator's ``explain``, a value for each row, which explain the answer.
    """

    score_name: str
    sums: NDArray[np.float64]
    score_of: ScoreOf
    doubt: NDArray[np.float64]
    given: list[Any]
    answers: list[Any]
    probabilities: NDArray[np.float64] | None
    explain: dict[str, list[Any]]

    def score(self, rows: NDArray[np.int64] | slice = slice(None)) -> dict[str, float]:
        """The score of some rows, with the ends of its 95% interval."""
        sums = self.sums[rows]
        value = float(self.score_of(sums.sum(axis=0)))
        if self.score_of is share and np.isin(sums[:, 0], (0, 1)).all():
            low, high = share_interval(int(sums[:, 0].sum()), len(sums))
        else:
            low, high = bootstrap_interval(sums, self.score_of)
        return {"value": value, "low": low, "high": high}


def share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of what is added up, from its sum and the number of rows."""
    return sums[..., 0] / sums[..., 1]


def _f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """From the numbers of right, found and wanted labels or entities."""
    return 2 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)


def _r2(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean R² of numbers, from the sums of their squared errors, of them and of their squares, and of the rows."""
    errors, numbers, squares = np.split(sums[..., :-1], 3, axis=-1)
    spread = squares - numbers**2 / sums[..., -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        scores: NDArray[np.float64] = np.where(spread > 0, 1 - errors / spread, np.nan).mean(axis=-1)
    return scores


def judged(estimator: Any, found: Found, y: Any, n_rows: int) -> Judged:
    """Compare the answers of an estimator with y, which is as for its ``score``."""
    of_kind = {
        "BertClassifier": _of_classifier,
        "BertRegressor": _of_regressor,
        "BertTagger": _of_tagger,
        "BertQA": _of_answers,
        "BertMultipleChoice": _of_choices,
    }
    return of_kind[type(estimator).__name__](estimator, found, readable_again(y), n_rows)


def _of_classifier(classifier: Any, found: Found, y: Any, n_rows: int) -> Judged:
    if getattr(classifier, "y_type_", "labels") != "labels":
        return _of_several_labels(found, y)
    given, answers = np.asarray(y, object).ravel().tolist(), np.asarray(found.answers).tolist()
    number = {label: i for i, label in enumerate(np.asarray(found.classes).tolist())}
    numbers = np.array([number.get(label, -1) for label in given])
    doubt, probabilities = _margins(found.probabilities, numbers)
    right = np.array([a == b for a, b in zip(given, answers, strict=True)], "float64")
    return Judged("accuracy", _with_ones(right), share, doubt, given, answers, probabilities, {"labels": answers})


def _margins(probabilities: Any, given: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much more probable the best other class is than the given one, and the probabilities of given and best.

    The "normalized margin" by which cleanlab ranks labels (Northcutt, Jiang and Chuang, 2021, section 3.2). A given
    class of -1 is none that the model knows: its probability is 0.
    """
    known = np.nan_to_num(np.asarray(probabilities, "float64"), nan=0.0)
    rows = np.arange(len(known))
    of_given = np.where(given >= 0, known[rows, given], 0.0)
    others = known.copy()
    others[rows[given >= 0], given[given >= 0]] = -1.0
    return others.max(axis=1) - of_given, np.stack([of_given, known.max(axis=1)], axis=1)


def _with_ones(values: NDArray[Any]) -> NDArray[np.float64]:
    """Each row's value, and 1 for the row."""
    return np.stack([values, np.ones(len(values))], axis=1)


def _of_several_labels(found: Found, y: Any) -> Judged:
    classes = np.asarray(found.classes)
    truth, answers = indicator_of(y, found.classes), indicator_of(found.answers, found.classes)
    wrong = np.where(truth == answers, -1.0, np.abs(truth - found.probabilities))
    worst, rows = wrong.argmax(axis=1), np.arange(len(truth))
    sums = np.stack([(truth & answers).sum(axis=1), answers.sum(axis=1), truth.sum(axis=1)], axis=1)
    of_answers = found.probabilities[rows, worst]
    given, said = ([classes[row.astype(bool)].tolist() for row in values] for values in (truth, answers))
    probabilities = np.stack([np.where(truth[rows, worst], of_answers, 1 - of_answers), of_answers], axis=1)
    return Judged(
        "f1_micro", sums.astype("float64"), _f1, wrong[rows, worst], given, said, probabilities,
        {"labels": classes[worst].tolist()},
    )  # fmt: skip


def _of_regressor(regressor: Any, found: Found, y: Any, n_rows: int) -> Judged:
    truth, answers = (np.asarray(values, "float64").reshape(n_rows, -1) for values in (y, found.answers))
    errors = np.abs(truth - answers)
    sums = np.concatenate([errors**2, truth, truth**2, np.ones((n_rows, 1))], axis=1)
    doubt = (errors / np.maximum(errors.std(axis=0), np.finfo(float).tiny)).max(axis=1)
    plain = [values[:, 0].tolist() if values.shape[1] == 1 else values.tolist() for values in (truth, answers)]
    return Judged("r2", sums, _r2, doubt, *plain, None, {})


def _of_tagger(tagger: Any, found: Found, y: Any, n_rows: int) -> Judged:
    truth, answers = [list(row) for row in y], found.answers
    are_spans = any(row and not isinstance(row[0], str) for row in (*truth, *answers))
    if not are_spans and not tagger._task().is_bio:
        right = [sum(a == b for a, b in zip(*rows, strict=True)) for rows in zip(truth, answers, strict=True)]
        name, score_of = "accuracy", share
        sums = np.array([[n, len(row)] for n, row in zip(right, truth, strict=True)], "float64")
    else:
        entities = [
            [row_entities(row, name, are_spans) for row in rows] for name, rows in (("y", truth), ("answers", answers))
        ]
        name, score_of = "f1", _f1
        sums = np.array([[len(a & b), len(b), len(a)] for a, b in zip(*entities, strict=True)], "float64")
    if are_spans:  # what is given has no probability: by the number of entities that are not in both
        doubt = sums[:, 1] + sums[:, 2] - 2 * sums[:, 0]
        return Judged(name, sums, score_of, doubt, truth, answers, None, {})
    number = {tag: i for i, tag in enumerate(np.asarray(found.classes).tolist())}
    doubt, words, probabilities = np.full(n_rows, -1.0), np.zeros(n_rows, int), np.zeros((n_rows, 2))
    for i, (tags, shares) in enumerate(zip(truth, found.probabilities, strict=True)):
        if len(tags):
            margins, of_words = _margins(shares, np.array([number.get(tag, -1) for tag in tags]))
            words[i] = margins.argmax()
            doubt[i], probabilities[i] = margins[words[i]], of_words[words[i]]
    return Judged(name, sums, score_of, doubt, truth, answers, probabilities, {"word": words.tolist()})


def _of_answers(answerer: Any, found: Found, y: Any, n_rows: int) -> Judged:
    truth = answer_texts(y, n_rows)
    _, f1 = answer_scores(truth, found.answers)
    probabilities = np.asarray(found.probabilities, "float64")
    pairs = np.stack([np.full(n_rows, np.nan), probabilities], axis=1)
    doubt = (1 - np.asarray(f1)) * probabilities
    return Judged("f1", _with_ones(np.asarray(f1)), share, doubt, list(truth), list(found.answers), pairs, {})


def _of_choices(chooser: Any, found: Found, y: Any, n_rows: int) -> Judged:
    given = option_indices(y, np.isfinite(found.probabilities).sum(axis=1))
    doubt, probabilities = _margins(found.probabilities, given)
    answers = found.answers.tolist()
    right = _with_ones(given == found.answers)
    return Judged("accuracy", right, share, doubt, given.tolist(), answers, probabilities, {"option": answers})
