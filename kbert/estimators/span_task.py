"""What it means to answer by a span of the context: rows, losses and scores, as `fitting` takes them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np

from kbert.data.questions import Answers, QuestionColumns
from kbert.data.spans import SpanReader, Spans, pieces_of, span_targets
from kbert.estimators.base import parts_of
from kbert.estimators.fitting import mean_one
from kbert.metrics import NullThreshold, answer_scores, best_null_threshold
from kbert.text import QuestionWindows, WordPieceTokenizer, build_question_windows
from kbert.training.losses import span_cross_entropy
from kbert.training.predict import predict_spans


class Reading(NamedTuple):
    """How questions and contexts are read: the estimator's tokenizer and parameters."""

    tokenizer: WordPieceTokenizer
    max_length: int
    stride: int | None
    n_best: int
    max_answer_length: int

    def parts(self, columns: QuestionColumns) -> Iterator[tuple[slice, QuestionWindows, np.ndarray]]:
        """Some rows at a time: which ones, their windows, and where each piece of a context stands in it."""
        for rows in parts_of(columns.n_characters):
            some = columns.rows(rows)
            yield (
                rows,
                *build_question_windows(
                    self.tokenizer, some.questions, some.contexts, self.max_length, self.stride, first_row=rows.start
                ),
            )


class Found(NamedTuple):
    """The best spans of some rows.

    Attributes
    ----------
    rows : slice
    spans : Spans
        Here ``starts`` and ``ends`` are characters of the context, the end exclusive.
    texts : list of list of str
        The spans' texts, best first; fewer than ``n_best`` in a short context, none in an empty one.
    losses : ndarray of float64, shape (n_rows,)
        The mean over the row's windows, where the answers are known.
    truncated : int
        How many questions were cut.
    """

    rows: slice
    spans: Spans
    texts: list[list[str]]
    losses: np.ndarray
    truncated: int


def find_spans(
    model: keras.Model, columns: QuestionColumns, reading: Reading, answers: Answers | None = None
) -> Iterator[Found]:
    """The best spans of each row by the model at present, some rows at a time."""
    for rows, windows, offsets in reading.parts(columns):
        targets = None if answers is None else answer_targets(windows, offsets, answers.take(rows))
        reader = SpanReader(windows, reading.n_best, reading.max_answer_length, targets)
        predict_spans(model, reader, reading.tokenizer.pad_id)
        spans = reader.of_rows()
        there = np.isfinite(spans.scores)
        first_piece = np.broadcast_to(windows.contexts.splits[windows.context_of][:, None], there.shape)
        starts, ends = np.zeros(there.shape, np.int64), np.zeros(there.shape, np.int64)
        starts[there] = offsets[(first_piece + spans.starts)[there], 0]
        ends[there] = offsets[(first_piece + spans.ends)[there], 1]
        _with_marks(columns.contexts[rows], ends, there)
        texts = [
            [context[start:end] for start, end in zip(of_row[0][:n], of_row[1][:n], strict=True)]
            for context, n, *of_row in zip(
                columns.contexts[rows], there.sum(axis=1).tolist(), starts.tolist(), ends.tolist(), strict=True
            )
        ]
        windows_of_row = np.bincount(windows.rows)
        losses = np.bincount(windows.rows, reader.losses) / windows_of_row
        yield Found(rows, spans._replace(starts=starts, ends=ends), texts, losses, int(windows.truncated_rows.sum()))


def _with_marks(contexts: list[str], ends: np.ndarray, there: np.ndarray) -> None:
    """Move the ends of spans past accents: uncased models drop combining marks, which then belong to no piece."""
    for row, context in enumerate(contexts):
        if context.isascii():
            continue
        for k in np.flatnonzero(there[row]):
            end = int(ends[row, k])
            while end < len(context) and unicodedata.category(context[end]).startswith("M"):
                end += 1
            ends[row, k] = end


def answer_targets(windows: QuestionWindows, offsets: np.ndarray, answers: Answers) -> np.ndarray:
    """The targets of `span_cross_entropy` for the first right answer of each row."""
    pieces = np.full((windows.n_rows, 2), -1, np.int64)
    splits = windows.contexts.splits
    for row, (texts, starts) in enumerate(zip(answers.texts, answers.starts, strict=True)):
        context = windows.context_of[row]
        of_context = offsets[splits[context] : splits[context + 1]]
        if texts and len(of_context):
            pieces[row] = pieces_of(starts[0], starts[0] + len(texts[0]), of_context)
    return span_targets(windows, *pieces.T)


class Answered(NamedTuple):
    """What is found for each of some rows whose answers are known.

    Attributes
    ----------
    texts : list of str
        The best span, "" in an empty context.
    null_scores : ndarray of float64, shape (n_rows,)
        The score of there being no answer, less that of the best span; 0 in an empty context.
    losses : ndarray of float64, shape (n_rows,)
    """

    texts: list[str]
    null_scores: np.ndarray
    losses: np.ndarray


class SpanRows:
    """Questions to train on or to watch, as `fitting.Rows` are rows of texts.

    Parameters
    ----------
    columns : QuestionColumns
    answers : Answers
    weights : ndarray of float32, shape (n_rows,)
    reading : Reading
    threshold : float, optional
        Of the null score, for `score`; the best one where it is not given.
    windows, targets : QuestionWindows and ndarray of int32, shape (n_windows, 4), optional
        For rows to train on. Those that are only watched are tokenised again each time, so that they take no memory.
    """

    whole_rows = False  # the windows of a row may be in several steps

    def __init__(
        self,
        columns: QuestionColumns,
        answers: Answers,
        weights: np.ndarray,
        reading: Reading,
        threshold: float | None = None,
        windows: QuestionWindows | None = None,
        targets: np.ndarray | None = None,
    ):
        self.columns, self.answers, self.weights, self.reading = columns, answers, weights, reading
        self.threshold = threshold
        self.sequences, self.targets = windows, targets

    @classmethod
    def to_train_on(
        cls,
        columns: QuestionColumns,
        answers: Answers,
        weights: np.ndarray,
        reading: Reading,
        threshold: float | None = None,
    ) -> SpanRows:
        """Rows with their windows."""
        windows, targets = [], []
        for rows, part, offsets in reading.parts(columns):
            windows.append(part)
            targets.append(answer_targets(part, offsets, answers.take(rows)))
        return cls(
            columns, answers, weights, reading, threshold, QuestionWindows.concatenate(windows), np.concatenate(targets)
        )

    @property
    def n_rows(self) -> int:
        """How many."""
        return self.columns.n_rows

    def take(self, rows: np.ndarray) -> SpanRows:
        """Some rows, given in ascending order."""
        columns = self.columns.take(rows)
        windows = targets = None
        if self.sequences is not None:
            kept = np.zeros(self.n_rows, bool)
            kept[rows] = True
            windows, targets = self.sequences.of_rows(rows), self.targets[kept[self.sequences.rows]]
        return SpanRows(
            columns, self.answers.take(rows), self.weights[rows], self.reading, self.threshold, windows, targets
        )

    def only_watched(self) -> SpanRows:
        """The same, without the windows."""
        return SpanRows(self.columns, self.answers, self.weights, self.reading, self.threshold)

    def logits(self, model: keras.Model, pad_id: int) -> Answered:
        """What the model finds at present."""
        texts, null_scores, losses = [], [], []
        for found in find_spans(model, self.columns, self.reading._replace(n_best=1), self.answers):
            texts += [row[0] if row else "" for row in found.texts]
            best = found.spans.scores[:, 0]
            null_scores.append(np.where(np.isfinite(best), found.spans.null - best, 0))
            losses.append(found.losses)
        return Answered(texts, np.concatenate(null_scores), np.concatenate(losses))

    def examples(self) -> dict[str, np.ndarray | str]:
        """What `train` is to know of them. Each window is an example, as in the paper's code."""
        return {"targets": self.targets, "weights": self.window_weights(), "level": "position"}

    def window_weights(self) -> np.ndarray:
        """Of each window in the loss."""
        return mean_one(self.weights[self.sequences.rows])

    def n_answers_lost(self) -> int:
        """How many rows have an answer that is whole in none of their windows."""
        found = np.bincount(self.sequences.rows, self.targets[:, 0] > 0)
        return int((self.answers.answerable & (found == 0)).sum())

    def best_threshold(self, answered: Answered) -> NullThreshold:
        """The threshold of the null score that gives the best F1, and this F1."""
        weights = self.weights.astype("float64")
        found = best_null_threshold(self.answers.texts, answered.texts, answered.null_scores, sample_weight=weights)
        # Below all of them, and finite, so that probabilities stay finite.
        return found._replace(threshold=max(found.threshold, float(answered.null_scores.min()) - 1))

    def score(self, task, answered: Answered) -> float:
        """F1 of the answers' words; where some questions have no answer, at the best threshold or the given one."""
        if self.threshold is None and not self.answers.answerable.all():
            return self.best_threshold(answered).score
        threshold = np.inf if self.threshold is None else self.threshold
        silent = answered.null_scores > threshold
        texts = ["" if no else text for no, text in zip(silent, answered.texts, strict=True)]
        _, f1 = answer_scores(self.answers.texts, texts)
        return float(np.average(f1, weights=self.weights))


class SpanTask:
    """An answer's first and last token. The methods are those of `label_tasks` that a fit uses.

    Parameters
    ----------
    window_weights : ndarray of float32, shape (n_windows,)
        Of the rows to train on.
    """

    loss = staticmethod(span_cross_entropy)
    prior_knowledge = "how often a window holds no answer"

    def __init__(self, window_weights: np.ndarray):
        self.window_weights = window_weights

    def losses(self, answered: Answered, targets: np.ndarray | None) -> np.ndarray:
        """Cross-entropy in nats of each row, the mean over its windows."""
        return answered.losses

    def prior_loss(self, targets: np.ndarray, weights: np.ndarray) -> float:
        """Loss of knowing how often a window holds no answer, and nothing of where it is in the others."""
        tokens, none = targets[:, 3] + 1, targets[:, 0] == 0
        share = np.clip(np.average(none, weights=self.window_weights), 1e-6, 1 - 1e-6)
        losses = np.where(none, -np.log(share), np.log(tokens / (1 - share)))
        return float(np.average(losses, weights=self.window_weights))

    def decides_alike(self, answered: Answered) -> bool:
        """True: a run whose loss is that of the line above has learned nothing of where answers are."""
        return True

    def unfold(self, model: keras.Model) -> None:
        """Nothing: logits are logits (see `RegressionTask`)."""
