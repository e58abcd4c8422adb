"""Spans of a context as answers: their tokens in the windows, and the spans with the best scores. No Keras here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from kbert.data.batches import Batch
from kbert.text import QuestionWindows
from kbert.text.windows import most_context


class Spans(NamedTuple):
    """The best spans of some windows, or of some rows.

    Attributes
    ----------
    null : ndarray of float64, shape (n,)
        The score of no answer: that of the span of [CLS] alone.
    scores : ndarray of float64, shape (n, n_best)
        The sum of the logits of start and end, best first; -inf if there are fewer spans than n_best.
    totals : ndarray of float64, shape (n,)
        The logarithm of the sum of exp(score) over all spans, also those that are not among the best; -inf if there are
        none.
    starts, ends : ndarray of int64, shape (n, n_best)
        The numbers of the first and the last piece of each span, counted in the context.
    """

    null: NDArray[np.float64]
    scores: NDArray[np.float64]
    totals: NDArray[np.float64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def pieces_of(start: int, end: int, offsets: NDArray[Any]) -> tuple[int, int]:
    """The numbers of the first and the last piece that have any of the characters from ``start`` to ``end``.

    If no piece has any of them (an answer of control characters only), both are the next piece, or the last one.

    Parameters
    ----------
    start, end : int
        In characters of the context, the end exclusive.
    offsets : ndarray of int, shape (n_pieces, 2)
        Where each piece of the context begins and ends, in characters, the end exclusive.
    """
    first = int(np.searchsorted(offsets[:, 1], start, "right"))
    last = int(np.searchsorted(offsets[:, 0], end, "left")) - 1
    first = min(first, len(offsets) - 1)
    return first, max(first, last)


def span_targets(
    windows: QuestionWindows, first_pieces: NDArray[np.int64], last_pieces: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The tokens of each window that are the answer of its row: the targets of `span_cross_entropy`.

    Parameters
    ----------
    windows : QuestionWindows
    first_pieces, last_pieces : ndarray of int64, shape (n_rows,)
        The answer's first and last piece in the row's context; -1 if the row has no answer.

    Returns
    -------
    ndarray of int32, shape (n_windows, 4)
        The answer's first and last token, both 0 ([CLS]) if the window does not hold the whole answer (Devlin et al.,
        2018, section 4.3); and the first and last token of the window itself.
    """
    first, last = first_pieces[windows.rows], last_pieces[windows.rows]
    inside = (first >= windows.starts) & (last < windows.starts + windows.kept)
    offset = windows.first_length - windows.starts
    targets = np.zeros((len(windows), 4), np.int32)
    targets[:, 0] = np.where(inside, first + offset, 0)
    targets[:, 1] = np.where(inside, last + offset, 0)
    targets[:, 3] = windows.lengths - 1
    return targets


class SpanReader:
    """Finds the best spans of windows in a model's outputs, batch by batch.

    Parameters
    ----------
    windows : QuestionWindows
        All windows of some rows.
    n_best : int
        Number of spans for each window.
    max_answer_length : int
        Greatest length of a span, in pieces.
    targets : ndarray of int32, shape (n_windows, 4), optional
        `span_targets`. Only if they are given, `losses` are computed.

    Attributes
    ----------
    losses : ndarray of float64, shape (n_windows,)
        `span_cross_entropy` of each window in nats; zeros without targets.
    """

    def __init__(
        self,
        windows: QuestionWindows,
        n_best: int,
        max_answer_length: int,
        targets: NDArray[np.int32] | None = None,
    ):
        # No span is longer than its window, and no window has more than so many spans. So arguments that ask for all
        # spans need no more memory than this.
        most = max(1, int(windows.kept.max(initial=1)))
        self.longest = min(max_answer_length, most)
        self.n_best = n_best = min(n_best, most * self.longest)
        self.windows, self.targets = windows, targets
        n = len(windows)
        self.losses = np.zeros(n)
        self.found = Spans(
            np.zeros(n),
            np.full((n, n_best), -np.inf),
            np.full(n, -np.inf),
            np.zeros((n, n_best), np.int64),
            np.zeros((n, n_best), np.int64),
        )
        # Each start counts in the window that gives it most context; see `most_context`.
        first, end = most_context(windows.rows, windows.starts, windows.kept)
        self.scored = np.stack([first, end], axis=1) - windows.starts[:, None]

    def read(self, batch: Batch, outputs: NDArray[Any]) -> None:
        """Read the outputs (B, T, 2) of a model for a batch of the windows."""
        for row, slot in zip(*np.nonzero(batch.texts >= 0), strict=True):
            window = int(batch.texts[row, slot])
            first = int(batch.inputs["first_positions"][row, slot])
            self._read(window, outputs[row, first : first + self.windows.lengths[window]].astype("float64"))

    def _read(self, window: int, logits: NDArray[np.float64]) -> None:
        null, scores, totals, starts, ends = self.found
        null[window] = logits[0].sum()
        if self.targets is not None:
            right = logits[self.targets[window, :2], [0, 1]]
            self.losses[window] = (logsumexp(logits, axis=0) - right).mean()
        first, kept = self.windows.first_length[window], self.windows.kept[window]
        if not kept:
            return  # an empty context has no span
        starting, ending = logits[first : first + kept].T
        # table[i, d]: the score of the span from piece i to piece i + d.
        ending = np.concatenate([ending, np.full(self.longest - 1, -np.inf)])
        table = starting[:, None] + np.lib.stride_tricks.sliding_window_view(ending, self.longest)
        from_, to = self.scored[window]
        sums = table[from_:to].ravel()
        highest = sums.max()
        totals[window] = highest + np.log(np.exp(sums - highest).sum())
        n = min(self.n_best, len(sums))
        # Of equal scores the first one counts: partition gives the n-th best score, and not which spans have it.
        best = np.flatnonzero(sums >= np.partition(sums, len(sums) - n)[len(sums) - n])
        best = best[np.argsort(-sums[best], kind="stable")][:n]
        scores[window, :n] = sums[best]
        starts[window, :n] = self.windows.starts[window] + from_ + best // self.longest
        ends[window, :n] = starts[window, :n] + best % self.longest

    def of_rows(self) -> Spans:
        """The best spans of each row among those of its windows. Its score of no answer is the lowest of theirs."""
        null, scores, totals, starts, ends = self.found
        bounds = np.searchsorted(self.windows.rows, np.arange(self.windows.n_rows + 1))
        lowest = np.minimum.reduceat(null, bounds[:-1])
        of_row = np.repeat(self.windows.rows, self.n_best)
        # Of equal scores the first one in the context counts.
        order = np.lexsort((ends.ravel(), starts.ravel(), -scores.ravel(), of_row))
        chosen = order[(bounds[:-1] * self.n_best)[:, None] + np.arange(self.n_best)]
        # No span counts in two windows.
        total = np.logaddexp.reduceat(totals, bounds[:-1])
        return Spans(lowest, scores.ravel()[chosen], total, starts.ravel()[chosen], ends.ravel()[chosen])
