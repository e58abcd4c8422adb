"""SQuAD's scores of answers: exact match, F1, and the threshold for no answer."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.metrics.row_weights import row_weights


class NullThreshold(NamedTuple):
    """A threshold of the null score, and the mean score that it gives.

    Attributes
    ----------
    threshold : float
        The prediction is "" for questions whose null score is above it.
    score : float
        From 0 to 1.

    Examples
    --------
    >>> from kbert.metrics import best_null_threshold
    >>> best = best_null_threshold(["Oslo", ""], ["Oslo", "1048"], [-3.0, 2.0])
    >>> best.threshold, best.score
    (-3.0, 1.0)
    """

    threshold: float
    score: float


_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """An answer as SQuAD compares it: lower case, no ASCII punctuation, no "a", "an" and "the", single spaces.

    The steps are in this order, so that "a.m." becomes "am", which is kept. From the official evaluation scripts of
    SQuAD 1.1 and 2.0.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> from kbert.metrics import normalize_answer
    >>> normalize_answer("The  U.S. Army, an army")
    'us army army'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_scores(y_true: Iterable[str | Sequence[str]], y_pred: Iterable[str]) -> tuple[NDArray[Any], np.ndarray]:
    """SQuAD's exact match and F1 of each question.

    Exact match is 1 if the normalised texts are equal, else 0. F1 is 2PR/(P+R): precision P is the share of the
    predicted answer's words that the right answer has too, and recall R the share of the right answer's words that the
    predicted one has too, both with multiplicity (Rajpurkar et al., 2016). If there are several right answers, the one
    with the highest score counts. As in the official script of SQuAD 2.0 (Rajpurkar, Jia and Liang, 2018), right
    answers that are empty once they are normalised do not count if there are others. If there are no others, both
    scores are 1 for a prediction that is empty too, and 0 for any other.

    Parameters
    ----------
    y_true : iterable of str or sequences of str, of length n_questions
        The right answer, or several of them; "" or an empty sequence for an unanswerable question.
    y_pred : iterable of str, of length n_questions
        The predicted answers; "" for no answer.

    Returns
    -------
    exact, f1 : ndarray of shape (n_questions,)
        From 0 to 1.

    Raises
    ------
    ValueError, TypeError
        If the lengths differ, or a value is no text; the message names the row.

    Notes
    -----
    The script of SQuAD 1.1 differs in one case: if a right answer is nothing but punctuation, such as "." three times
    in its dev set, it gives an F1 of 0 to the same prediction.

    Examples
    --------
    >>> from kbert.metrics import answer_scores
    >>> exact, f1 = answer_scores(["Oslo", ["1048", "in 1048"]], ["city of Oslo", "1048"])
    >>> exact
    array([0., 1.])
    >>> f1
    array([0.5, 1. ])
    """
    answers, y_pred = _answers(y_true), _list_of(y_pred, "y_pred")
    row_weights(None, answers, y_pred)
    exact, f1 = np.zeros(len(y_pred)), np.zeros(len(y_pred))
    for row, (right, predicted) in enumerate(zip(answers, y_pred, strict=True)):
        if not isinstance(predicted, str):
            raise TypeError(f"y_pred, row {row} is {predicted!r}, not a text. An empty answer is ''.")
        normal = normalize_answer(predicted)
        golds = [gold for gold in map(normalize_answer, right) if gold] or [""]
        exact[row] = float(normal in golds)
        f1[row] = max(_word_f1(gold.split(), normal.split()) for gold in golds)
    return exact, f1


def squad_scores(
    y_true: Iterable[str | Sequence[str]],
    y_pred: Iterable[str],
    *,
    null_scores: Any = None,
    threshold: float | None = None,
    sample_weight: Any = None,
) -> dict[str, float]:
    """SQuAD's exact match and F1: means over all questions, and over the answerable and the unanswerable ones.

    Parameters
    ----------
    y_true, y_pred
        As in ``answer_scores``.
    null_scores : array-like of shape (n_questions,), optional
        How likely it is that there is no answer: a probability, or the score of no answer minus that of the best
        answer.
    threshold : float, optional
        With ``null_scores``: the prediction for a question whose null score is above it is "", whatever ``y_pred`` is.
    sample_weight : array-like of shape (n_questions,), optional
        The weight of each question in the means; 1 by default.

    Returns
    -------
    dict
        ``exact`` and ``f1``, from 0 to 1, and ``n``, the number of questions. If some questions are unanswerable, also
        ``answerable_exact``, ``answerable_f1``, ``answerable_n``, ``unanswerable_exact`` and so on: HasAns and NoAns of
        the official script.

    Raises
    ------
    ValueError, TypeError
        If the lengths differ, there is no question, a value is no text, or of ``null_scores`` and ``threshold`` only
        one is given, or ``threshold`` is NaN.

    Examples
    --------
    >>> from kbert.metrics import squad_scores
    >>> squad_scores(["Oslo", "the fjord"], ["Oslo", "the lake"])
    {'exact': 0.5, 'f1': 0.5, 'n': 2}
    """
    answers, y_pred = _answers(y_true), _list_of(y_pred, "y_pred")
    weights = row_weights(sample_weight, answers, y_pred)
    if not weights.sum():
        raise ValueError("There are no questions, or none with a weight above 0. Give at least one.")
    if (null_scores is None) != (threshold is None):
        raise ValueError("null_scores and threshold go together: give both or none.")
    if threshold is not None and np.isnan(threshold):
        raise ValueError("threshold is NaN. It is a number, or infinite.")
    exact, f1 = answer_scores(answers, y_pred)
    answerable = _answerable(answers)
    if null_scores is not None and threshold is not None:
        silent = _null_scores(null_scores, len(y_pred)) > threshold
        exact, f1 = (np.where(silent, ~answerable, score).astype(float) for score in (exact, f1))
    scores = _means("", np.ones(len(y_pred), bool), exact, f1, weights)
    if not answerable.all():
        for prefix, rows in (("answerable_", answerable), ("unanswerable_", ~answerable)):
            if weights[rows].any():
                scores |= _means(prefix, rows, exact, f1, weights)
    return scores


def sums_by_threshold(
    null_scores: NDArray[np.float64],
    silent: NDArray[np.float64],
    spoken: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The null scores in ascending order, and the weighted sums of scores where the first k of them get an answer.

    Parameters
    ----------
    null_scores, silent, spoken, weights : ndarray of shape (n_questions,)
        ``silent`` and ``spoken`` are the score of each question with "" and with its prediction.

    Returns
    -------
    ordered : ndarray of shape (n_questions,)
    sums : ndarray of shape (n_questions + 1,)
        For k from 0.
    """
    order = np.argsort(null_scores, kind="stable")
    # Raising the threshold past a question changes its score from that of "" to that of its prediction.
    gain = (spoken - silent) * weights
    return null_scores[order], (silent * weights).sum() + np.concatenate([[0.0], np.cumsum(gain[order])])


def best_null_threshold(
    y_true: Iterable[str | Sequence[str]],
    y_pred: Iterable[str],
    null_scores: Any,
    *,
    metric: str = "f1",
    sample_weight: Any = None,
) -> NullThreshold:
    """The threshold of the null score with the best mean score, as in the evaluation of SQuAD 2.0.

    For a question whose null score is above the threshold, the prediction becomes "": no answer.

    Parameters
    ----------
    y_true, y_pred, null_scores, sample_weight
        As in ``squad_scores``; ``y_pred`` are the best answers before any threshold is applied, so hardly ever "".
    metric : {"f1", "exact"}, default="f1"
        The score whose mean is maximised.

    Returns
    -------
    NullThreshold
        ``threshold`` is one of the null scores; it is minus infinity if it is best to answer no question. Of several
        thresholds that are equally good it is the lowest. ``score`` is the mean that ``squad_scores`` gives with it.

    Raises
    ------
    ValueError, TypeError
        If the lengths differ, there is no question, a value is no text, or ``metric`` is not known.

    Notes
    -----
    This is find_best_thresh of the official script, with three differences. The script's lowest threshold is 0, since
    it expects probabilities. It may choose a point between questions of equal null scores, with a mean that no
    threshold reaches. And an answer such as "the", which is empty once it is normalised, is wrong there for an
    unanswerable question.

    Examples
    --------
    >>> from kbert.metrics import best_null_threshold
    >>> best_null_threshold(["Oslo", "", ""], ["Oslo", "1048", "Bergen"], [-3.0, 2.0, 0.5])
    NullThreshold(threshold=-3.0, score=1.0)
    """
    if metric not in ("f1", "exact"):
        raise ValueError(f"metric={metric!r} is not known. Use 'f1' or 'exact'.")
    answers, y_pred = _answers(y_true), _list_of(y_pred, "y_pred")
    weights = row_weights(sample_weight, answers, y_pred)
    if not weights.sum():
        raise ValueError("There are no questions, or none with a weight above 0. Give at least one.")
    exact, f1 = answer_scores(answers, y_pred)
    null_scores = _null_scores(null_scores, len(y_pred))
    silent = (~_answerable(answers)).astype(float)
    ordered, sums = sums_by_threshold(null_scores, silent, f1 if metric == "f1" else exact, weights)
    # A threshold can lie between different null scores only.
    possible = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
    best = int(np.argmax(np.where(possible, sums, -np.inf)))
    threshold = float(ordered[best - 1]) if best else -np.inf
    return NullThreshold(threshold, float(sums[best] / weights.sum()))


def _list_of(values: Iterable[Any], name: str) -> list[Any]:
    if isinstance(values, str):
        raise ValueError(f"{name} is a single text, {values!r:.100}. Give a list, with a value for each question.")
    return list(values)


def _answers(y_true: Iterable[str | Sequence[str]]) -> list[list[str]]:
    """The right answers of each question as a list."""
    answers = []
    for row, value in enumerate(_list_of(y_true, "y_true")):
        some = [value] if isinstance(value, str) else value
        if not isinstance(some, list | tuple | np.ndarray) or not all(isinstance(text, str) for text in some):
            raise TypeError(f"y_true, row {row} is {value!r}, not a text or a list of texts. Unanswerable is ''.")
        answers.append(list(some))
    return answers


def _answerable(answers: list[list[str]]) -> NDArray[Any]:
    return np.array([any(row) for row in answers], bool)


def _word_f1(right: list[str], predicted: list[str]) -> float:
    if not right or not predicted:
        return float(right == predicted)
    common = (Counter(right) & Counter(predicted)).total()
    return 2 * common / (len(right) + len(predicted))


def _null_scores(values: Any, n_rows: int) -> NDArray[np.float64]:
    scores = np.asarray(values, dtype=np.float64)
    if scores.shape != (n_rows,) or not np.isfinite(scores).all():
        raise ValueError(f"null_scores has shape {scores.shape}; give a finite number for each of {n_rows} questions.")
    return scores


def _means(
    prefix: str, rows: NDArray[np.bool_], exact: NDArray[np.float64], f1: NDArray[np.float64], weights: NDArray[Any]
) -> dict[str, float]:
    return {
        f"{prefix}exact": float(np.average(exact[rows], weights=weights[rows])),
        f"{prefix}f1": float(np.average(f1[rows], weights=weights[rows])),
        f"{prefix}n": int(rows.sum()),
    }
