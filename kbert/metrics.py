"""Scores that scikit-learn and scipy lack: entity F1, and SQuAD's exact match and F1. NumPy alone.

All are shares from 0 to 1; SQuAD's and CoNLL's own scripts print them times 100.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

# --- Entities


class EntityScores(NamedTuple):
    """Precision, recall and F1 of entities, and how many there are in the truth (of weight 1 each, unless weighted)."""

    precision: float
    recall: float
    f1: float
    support: float


def is_bio_tag(tag: Any) -> bool:
    """Whether a tag is O, B-..., I-..., or a bare B or I."""
    return isinstance(tag, str) and (tag == "O" or (tag[:1] in ("B", "I") and tag[1:2] in ("", "-")))


def is_bio(tags: Iterable[Sequence[str]]) -> bool:
    """Whether all tags are BIO tags (O, B-..., I-..., or a bare B or I), so that they mark entities.

    Parameters
    ----------
    tags : iterable of sequences of str
        A list of tags for each row.

    Returns
    -------
    bool
        False as well where a tag is not a str.
    """
    return all(is_bio_tag(tag) for row in tags for tag in row)


def bio_spans(tags: Sequence[str], *, strict: bool = False) -> list[tuple[int, int, str]]:
    """The entities that a row of BIO (IOB2) tags marks.

    An entity is a B- with the I- of the same type that follow it at once. An I- that continues nothing, after O or
    after another type, starts an entity too, as in conlleval and in seqeval's default mode, which read IOB1 so.

    Parameters
    ----------
    tags : sequence of str
        Each O, B-type or I-type, or a bare B or I, whose type is "".
    strict : bool
        Whether an I- that continues nothing marks nothing, as in seqeval's strict mode for IOB2.

    Returns
    -------
    list of (int, int, str)
        Start, end (exclusive) and type of each, in order.

    Raises
    ------
    ValueError
        If a tag is not BIO; the message names its position.

    Examples
    --------
    >>> bio_spans(["B-PER", "I-PER", "O", "I-LOC"])
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    """
    spans: list[tuple[int, int, str]] = []
    start, kind = -1, ""
    for i, tag in enumerate([*tags, "O"]):
        if not is_bio_tag(tag):
            raise ValueError(f"tag {i} is {tag!r}, not O, B-... or I-... .")
        goes_on = tag[0] == "I" and start >= 0 and tag[2:] == kind
        if start >= 0 and not goes_on:
            spans.append((start, i, kind))
            start = -1
        if tag[0] == "B" or (tag[0] == "I" and not goes_on and not strict):
            start, kind = i, tag[2:]
    return spans


def entity_scores(
    y_true: Iterable[Sequence[str]],
    y_pred: Iterable[Sequence[str]],
    *,
    by_label: bool = False,
    strict: bool = False,
    sample_weight: Any = None,
) -> EntityScores | dict[str, EntityScores]:
    """Precision, recall and F1 of the entities that BIO tags mark.

    An entity is right if its first word, its last word and its type are. Micro-averaged, as CoNLL-2003 scores: the
    counts of all rows and types are added up before dividing (Tjong Kim Sang and De Meulder, 2003; conlleval).

    Parameters
    ----------
    y_true, y_pred : iterable of sequences of str
        A list of BIO tags for each row; see ``bio_spans``.
    by_label : bool
        Whether to score each type alone.
    strict : bool
        See ``bio_spans``.
    sample_weight : array-like of shape (n_rows,), optional
        What each entity of a row counts.

    Returns
    -------
    EntityScores, or dict of str to EntityScores
        ``precision`` is the share of predicted entities that are right, ``recall`` the share of true entities that are
        found, ``f1`` their harmonic mean, and ``support`` the number of true entities. A share of nothing is 0. With
        ``by_label`` one for each type in either, in alphabetical order.

    Raises
    ------
    ValueError
        If rows differ in number or length, or a tag is not BIO; the message names the row.

    Examples
    --------
    >>> truth = [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> entity_scores(truth, [["B-PER", "I-PER", "O", "O"]])
    EntityScores(precision=1.0, recall=0.5, f1=0.6666666666666666, support=2)
    """
    y_true, y_pred = list(y_true), list(y_pred)
    weights = _weights(sample_weight, y_true, y_pred).tolist()
    right, found, wanted = Counter(), Counter(), Counter()
    for row, (true, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        spans = []
        for name, tags in (("y_true", true), ("y_pred", predicted)):
            if isinstance(tags, str):
                raise ValueError(f"{name}, row {row} is a str ({tags!r}). Give a list of tags for each row.")
            try:
                spans.append(set(bio_spans(tags, strict=strict)))
            except ValueError as error:
                raise ValueError(f"{name}, row {row}: {error} Score tags of other kinds by their accuracy.") from None
        if len(true) != len(predicted):
            raise ValueError(f"Row {row} has {len(true)} tags in y_true and {len(predicted)} in y_pred.")
        for counter, some in ((right, spans[0] & spans[1]), (found, spans[1]), (wanted, spans[0])):
            for _, _, kind in some:
                counter[kind] += weights[row]
    if by_label:
        return {kind: _entity_scores(right[kind], found[kind], wanted[kind]) for kind in sorted({*found, *wanted})}
    return _entity_scores(right.total(), found.total(), wanted.total())


def entity_f1(
    y_true: Iterable[Sequence[str]], y_pred: Iterable[Sequence[str]], *, strict: bool = False, sample_weight: Any = None
) -> float:
    """The F1 of ``entity_scores``.

    Parameters
    ----------
    y_true, y_pred, strict, sample_weight
        As in ``entity_scores``.

    Returns
    -------
    float
        From 0 to 1.
    """
    return entity_scores(y_true, y_pred, strict=strict, sample_weight=sample_weight).f1


def _entity_scores(right: float, found: float, wanted: float) -> EntityScores:
    f1 = 2 * right / (found + wanted) if right else 0.0
    return EntityScores(right / found if found else 0.0, right / wanted if wanted else 0.0, f1, wanted)


# --- Answers


class NullThreshold(NamedTuple):
    """A threshold of the null score, and the mean score that it gives."""

    threshold: float
    score: float


_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """An answer as SQuAD compares it: small letters, no ASCII punctuation, no "a", "an" and "the", single spaces.

    In this order, so that "a.m." becomes "am" and stays. From the official evaluation scripts of SQuAD 1.1 and 2.0.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> normalize_answer("The  U.S. Army, an army")
    'us army army'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_scores(y_true: Iterable[str | Sequence[str]], y_pred: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """SQuAD's exact match and F1 of each question.

    Exact match: the normalised texts are equal. F1: 2PR/(P+R), where P and R are the shares of the predicted and of the
    right answer's words, with their multiplicity, that the other one has too (Rajpurkar et al., 2016). Of several right
    answers the one that gives most counts. As in the official script of 2.0 (Rajpurkar, Jia and Liang, 2018): right
    answers of which normalising leaves nothing do not count if there are others, and where there are none, an empty
    prediction has 1 and any other 0, in both.

    Parameters
    ----------
    y_true : iterable of str or sequences of str, of length n_questions
        The right answer, or several of them; "" or an empty sequence for an unanswerable question.
    y_pred : iterable of str, of length n_questions
        The predicted answers; "" says that there is none.

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
    The script of 1.1 differs in one case: where a right answer is nothing but punctuation, as "." is three times in its
    dev part, it gives an F1 of 0 to the same prediction.
    """
    answers, y_pred = _answers(y_true), list(y_pred)
    _weights(None, answers, y_pred)
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
    """SQuAD's exact match and F1, over all questions and over the answerable and unanswerable ones.

    Parameters
    ----------
    y_true, y_pred
        As in ``answer_scores``.
    null_scores : array-like of shape (n_questions,), optional
        How much speaks for there being no answer: a probability, or the null answer's score minus the best one's.
    threshold : float, optional
        With ``null_scores``: a question whose null score is above it counts as predicted to be unanswerable.
    sample_weight : array-like of shape (n_questions,), optional

    Returns
    -------
    dict
        ``exact``, ``f1`` and ``n``, the number of questions; if some are unanswerable also ``answerable_exact``,
        ``answerable_f1`` and ``answerable_n``, and ``unanswerable_exact`` and so on: the official script's HasAns and
        NoAns. Shares from 0 to 1.
    """
    answers, y_pred = _answers(y_true), list(y_pred)
    weights = _weights(sample_weight, answers, y_pred)
    if not weights.sum():
        raise ValueError("There are no questions, or none with a weight above 0. Give at least one.")
    if (null_scores is None) != (threshold is None):
        raise ValueError("null_scores and threshold go together: give both or none.")
    exact, f1 = answer_scores(answers, y_pred)
    answerable = _answerable(answers)
    if null_scores is not None:
        silent = _null_scores(null_scores, len(y_pred)) > threshold
        exact, f1 = (np.where(silent, ~answerable, score).astype(float) for score in (exact, f1))
    scores = _means("", np.ones(len(y_pred), bool), exact, f1, weights)
    if not answerable.all():
        for prefix, rows in (("answerable_", answerable), ("unanswerable_", ~answerable)):
            if rows.any():
                scores |= _means(prefix, rows, exact, f1, weights)
    return scores


def best_null_threshold(
    y_true: Iterable[str | Sequence[str]],
    y_pred: Iterable[str],
    null_scores: Any,
    *,
    metric: str = "f1",
    sample_weight: Any = None,
) -> NullThreshold:
    """The threshold of the null score above which answering "" gives the best score, as in SQuAD 2.0's evaluation.

    Parameters
    ----------
    y_true, y_pred, null_scores, sample_weight
        As in ``squad_scores``; ``y_pred`` are the best answers before any threshold, so hardly ever "".
    metric : {"f1", "exact"}
        Which mean to maximise.

    Returns
    -------
    NullThreshold
        ``threshold``, one of the null scores: answer "" where the null score is above it; minus infinity where it is
        best never to answer. Of several equally good ones the lowest. ``score``: the mean that ``squad_scores`` gives
        with it.

    Notes
    -----
    This is the script's find_best_thresh, but for three corners: that one begins with 0 for "never answer", since it
    expects probabilities; may stop between questions of equal null scores, at a mean that no threshold reaches; and
    takes an answer such as "the", of which normalising leaves nothing, for a wrong one to an unanswerable question.
    """
    if metric not in ("f1", "exact"):
        raise ValueError(f"metric={metric!r} is not known. Use 'f1' or 'exact'.")
    answers, y_pred = _answers(y_true), list(y_pred)
    weights = _weights(sample_weight, answers, y_pred)
    if not weights.sum():
        raise ValueError("There are no questions, or none with a weight above 0. Give at least one.")
    exact, f1 = answer_scores(answers, y_pred)
    null_scores = _null_scores(null_scores, len(y_pred))
    silent = (~_answerable(answers)).astype(float)
    # Raising the threshold past a question changes its score from that of "" to that of its prediction.
    gain = ((f1 if metric == "f1" else exact) - silent) * weights
    order = np.argsort(null_scores, kind="stable")
    ordered = null_scores[order]
    sums = (silent * weights).sum() + np.concatenate([[0.0], np.cumsum(gain[order])])
    # Only between different null scores is there room for a threshold.
    possible = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])
    best = int(np.argmax(np.where(possible, sums, -np.inf)))
    threshold = float(ordered[best - 1]) if best else -np.inf
    return NullThreshold(threshold, float(sums[best] / weights.sum()))


def _answers(y_true: Iterable) -> list[list[str]]:
    """The right answers of each question as lists."""
    answers = []
    for row, value in enumerate(y_true):
        some = [value] if isinstance(value, str) else value
        if not isinstance(some, list | tuple | np.ndarray) or not all(isinstance(text, str) for text in some):
            raise TypeError(f"y_true, row {row} is {value!r}, not a text or a list of texts. Unanswerable is ''.")
        answers.append(list(some))
    return answers


def _answerable(answers: list[list[str]]) -> np.ndarray:
    return np.array([any(row) for row in answers], bool)


def _word_f1(right: list[str], predicted: list[str]) -> float:
    if not right or not predicted:
        return float(right == predicted)
    common = (Counter(right) & Counter(predicted)).total()
    return 2 * common / (len(right) + len(predicted))


def _null_scores(values: Any, n_rows: int) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.shape != (n_rows,) or not np.isfinite(values).all():
        raise ValueError(f"null_scores has shape {values.shape}; give a finite number for each of {n_rows} questions.")
    return values


def _means(prefix: str, rows: np.ndarray, exact: np.ndarray, f1: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    return {
        f"{prefix}exact": float(np.average(exact[rows], weights=weights[rows])),
        f"{prefix}f1": float(np.average(f1[rows], weights=weights[rows])),
        f"{prefix}n": int(rows.sum()),
    }


# --- Both


def _weights(sample_weight: Any, y_true: list, y_pred: list) -> np.ndarray:
    """A weight for each row, ones by default; checks the lengths."""
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} rows and y_pred {len(y_pred)}. Give as many predictions as rows.")
    if sample_weight is None:
        return np.ones(len(y_true), dtype=int)
    weights = np.asarray(sample_weight, dtype=float)
    if weights.shape != (len(y_true),) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"sample_weight has shape {weights.shape}; give a weight of 0 or more for each of {len(y_true)} rows."
        )
    return weights
