"""Spans of text as answers: where one is among the tokens of a window, and which ones score best. NumPy, no Keras."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from kbert.data.batches import Batch
from kbert.text import QuestionWindows
from kbert.text.windows import most_context


class Spans(NamedTuple):
    """The best spans of each of some windows or rows; fewer than there is room for leave scores of -inf.

    Attributes
    ----------
    null : ndarray of float64, shape (n,)
        The score of there being no answer: that of the span of [CLS] alone.
    scores : ndarray of float64, shape (n, n_best)
        The start's logit and the end's, added; best first.
    starts, ends : ndarray of int64, shape (n, n_best)
        The first and the last piece of each span, by their numbers in the context.
    """

    null: np.ndarray
    scores: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def pieces_of(start: int, end: int, offsets: np.ndarray) -> tuple[int, int]:
    """The first and the last piece that have something of the characters from ``start`` to ``end``, exclusive.

    Where no piece has (an answer of control characters only), both are the piece after them, or the last one.

    Parameters
    ----------
    start, end : int
    offsets : ndarray of int, shape (n_pieces, 2)
        Where each piece of the context begins and ends.
    """
    first = int(np.searchsorted(offsets[:, 1], start, "right"))
    last = int(np.searchsorted(offsets[:, 0], end, "left")) - 1
    first = min(first, len(offsets) - 1)
    return first, max(first, last)


def span_targets(windows: QuestionWindows, first_pieces: np.ndarray, last_pieces: np.ndarray) -> np.ndarray:
    """Where each window has its row's answer.

    Parameters
    ----------
    windows : QuestionWindows
    first_pieces, last_pieces : ndarray of int64, shape (n_rows,)
        The answer's pieces in the row's context; -1 where there is no answer.

    Returns
    -------
    ndarray of int32, shape (n_windows, 4)
        The answer's first and last token, both 0 ([CLS]) where the window does not hold all of it (Devlin et al.,
        2018, section 4.3), and the window's own first and last token: the targets of `span_cross_entropy`.
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
    """Reads the best spans of windows off a model's outputs, batch by batch.

    Parameters
    ----------
    windows : QuestionWindows
        All windows of some rows.
    n_best, max_answer_length : int
        How many spans for each window, and of how many pieces at most.
    targets : ndarray of int32, shape (n_windows, 4), optional
        `span_targets`, for `losses`.

    Attributes
    ----------
    losses : ndarray of float64, shape (n_windows,)
        `span_cross_entropy` of each window.
    """

    def __init__(
        self, windows: QuestionWindows, n_best: int, max_answer_length: int, targets: np.ndarray | None = None
    ):
        # No span is longer than a window, and no window has more spans than that: "all of them" costs no more.
        most = max(1, int(windows.kept.max(initial=1)))
        self.longest = min(max_answer_length, most)
        self.n_best = n_best = min(n_best, most * self.longest)
        self.windows, self.targets = windows, targets
        n = len(windows)
        self.losses = np.zeros(n)
        self.found = Spans(
            np.zeros(n),
            np.full((n, n_best), -np.inf),
            np.zeros((n, n_best), np.int64),
            np.zeros((n, n_best), np.int64),
        )
        # A start is scored in the window that gives it most context; see `most_context`.
        first, end = most_context(windows.rows, windows.starts, windows.kept)
        self.scored = np.stack([first, end], axis=1) - windows.starts[:, None]

    def read(self, batch: Batch, outputs: np.ndarray) -> None:
        """Take in the outputs (B, T, 2) of a batch of the windows."""
        for row, slot in zip(*np.nonzero(batch.texts >= 0), strict=True):
            window = batch.texts[row, slot]
            at = batch.inputs["first_positions"][row, slot]
            self._read(window, outputs[row, at : at + self.windows.lengths[window]].astype("float64"))

    def _read(self, window: int, logits: np.ndarray) -> None:
        null, scores, starts, ends = self.found
        null[window] = logits[0].sum()
        if self.targets is not None:
            right = logits[self.targets[window, :2], [0, 1]]
            self.losses[window] = (logsumexp(logits, axis=0) - right).mean()
        first, kept = self.windows.first_length[window], self.windows.kept[window]
        if not kept:
            return  # an empty context has no span
        starting, ending = logits[first : first + kept].T
        # sums[i, d]: the span from piece i to piece i + d.
        ending = np.concatenate([ending, np.full(self.longest - 1, -np.inf)])
        sums = starting[:, None] + np.lib.stride_tricks.sliding_window_view(ending, self.longest)
        from_, to = self.scored[window]
        sums = sums[from_:to].ravel()
        n = min(self.n_best, len(sums))
        # Of equal scores the one that stands first: partition gives the n-th best score, not which have it.
        best = np.flatnonzero(sums >= np.partition(sums, len(sums) - n)[len(sums) - n])
        best = best[np.argsort(-sums[best], kind="stable")][:n]
        scores[window, :n] = sums[best]
        starts[window, :n] = self.windows.starts[window] + from_ + best // self.longest
        ends[window, :n] = starts[window, :n] + best % self.longest

    def of_rows(self) -> Spans:
        """The best spans of each row: of its windows, with the lowest of their scores of no answer."""
        null, scores, starts, ends = self.found
        bounds = np.searchsorted(self.windows.rows, np.arange(self.windows.n_rows + 1))
        lowest = np.minimum.reduceat(null, bounds[:-1])
        of_row = np.repeat(self.windows.rows, self.n_best)
        # Of equal scores the one that stands first in the context.
        order = np.lexsort((ends.ravel(), starts.ravel(), -scores.ravel(), of_row))
        chosen = order[(bounds[:-1] * self.n_best)[:, None] + np.arange(self.n_best)]
        return Spans(lowest, scores.ravel()[chosen], starts.ravel()[chosen], ends.ravel()[chosen])
