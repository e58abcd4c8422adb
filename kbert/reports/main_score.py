"""The main score of a task with its interval: over all rows, or over some."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.metrics import answer_scores, bio_spans
from kbert.reports.given import Given
from kbert.reports.intervals import ScoreOf, bootstrap_interval, share_interval


class MainScore(NamedTuple):
    """A score that is made of sums over rows.

    Attributes
    ----------
    name : str
        As in `kbert.reports.scores.Scores`.
    sums : ndarray of shape (n_rows, k)
        What each row adds.
    score_of : callable
        From the sums, shape (..., k), to the score.
    """

    name: str
    sums: NDArray[np.float64]
    score_of: ScoreOf

    def of(self, rows: NDArray[Any] | slice = slice(None)) -> dict[str, float]:
        """The score of some rows: its value, and the ends ``low`` and ``high`` of its 95% interval.

        The ends are NaN where the rows do not tell: of an F1 of no label or entity at all, and of one row whose score
        is neither 0 nor 1.
        """
        sums = self.sums[rows]
        value = float(self.score_of(sums.sum(axis=0)))
        if (self.score_of is _f1 and not sums.any()) or (len(sums) == 1 and value not in (0, 1)):
            return {"value": value, "low": np.nan, "high": np.nan}
        if self.score_of is _share and (sums[:, 1] == 1).all() and np.isin(sums[:, 0], (0, 1)).all():
            low, high = share_interval(int(sums[:, 0].sum()), len(sums))
        else:
            low, high = bootstrap_interval(sums, self.score_of)
            if low == high == value and value in (0, 1) and self.score_of is not _r2:
                # All is right, or all is wrong, in every sample: as if each row were right or wrong as a whole.
                low, high = share_interval(round(value) * len(sums), len(sums))
        return {"value": value, "low": low, "high": high}


def main_score(given: Given) -> MainScore:
    """The score that the estimator's own ``score`` has; of several labels a row, the F1 over all of them."""
    truth, answers = given.truth, given.found.answers
    if given.kind in ("labels", "choices"):
        right = [a == b for a, b in zip(truth.tolist(), np.asarray(answers).tolist(), strict=True)]
        return MainScore("accuracy", _with_ones(np.array(right)), _share)
    if given.kind == "several labels":
        counts = np.stack([(truth & answers).sum(axis=1), answers.sum(axis=1), truth.sum(axis=1)], axis=1)
        return MainScore("f1_micro", counts.astype("float64"), _f1)
    if given.kind == "numbers":
        # Around their mean, so that large numbers that differ little do not lose their digits.
        centred = truth - truth.mean(axis=0)
        ones = np.ones((len(truth), 1))
        return MainScore("r2", np.concatenate([(truth - answers) ** 2, centred, centred**2, ones], axis=1), _r2)
    if given.kind == "answers":
        _, f1 = answer_scores(truth, answers)
        return MainScore("f1", _with_ones(np.asarray(f1)), _share)
    pairs = list(zip(truth, answers, strict=True))
    if given.of_entities:
        entities = [(set(bio_spans(a)), set(bio_spans(b))) for a, b in pairs]
        return MainScore("f1", np.array([[len(a & b), len(b), len(a)] for a, b in entities], "float64"), _f1)
    words = [[sum(map(str.__eq__, a, b)), len(a)] for a, b in pairs]
    return MainScore("accuracy", np.array(words, "float64"), _share)


def _with_ones(values: NDArray[Any]) -> NDArray[np.float64]:
    """Each row's value, and 1 for the row."""
    return np.stack([values, np.ones(len(values))], axis=1).astype("float64")


def _share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of what is added up, from its sum and how many there are."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1)


def _f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """From the numbers of right, found and wanted labels or entities."""
    return 2 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1)


def _r2(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean R² of the columns, from the sums of squared errors, of numbers and their squares, and of the rows."""
    errors, numbers, squares = np.split(sums[..., :-1], 3, axis=-1)
    spread = squares - numbers**2 / sums[..., -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Equal numbers have a spread of 0, but for the last digits. One such column of several counts as in
        # scikit-learn's r2_score: 1 without an error, else 0.
        of_equal = np.nan if errors.shape[-1] == 1 else (errors == 0).astype("float64")
        scores: NDArray[np.float64] = np.where(spread > 1e-12 * squares, 1 - errors / spread, of_equal).mean(axis=-1)
    return scores
