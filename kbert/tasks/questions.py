"""Questions that are answered by a span of their context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert import model as models
from kbert import weights
from kbert.config import BertConfig
from kbert.data.answers import Answers, answer_columns
from kbert.data.mistakes import refuse_answers_as_questions
from kbert.data.questions import NAMES, QuestionColumns, question_columns
from kbert.data.spans import SpanReader, Spans, pieces_of, span_targets
from kbert.errors import ParameterWarning, TruncationWarning
from kbert.metrics import answer_scores, best_null_threshold
from kbert.metrics.answers import sums_by_threshold
from kbert.tasks.explaining import Explained, Part, ToExplain
from kbert.tasks.row_lengths import PieceCounts, RowLengths
from kbert.tasks.row_notices import MissingTexts
from kbert.tasks.task import Recipe, Task, mean_one
from kbert.tasks.texts import chunks_of
from kbert.text import QuestionWindows, WordPieceTokenizer, build_question_windows
from kbert.text.marks import past_marks
from kbert.text.questions import question_lengths, question_window_counts
from kbert.text.tracing import TracingTokenizer
from kbert.training.attributions import Targets
from kbert.training.labelled_batches import TrainingData
from kbert.training.losses import span_cross_entropy
from kbert.training.predict import predict_spans
from kbert.values.saved import NUMBER_OR_INFINITY, SavedValues, encode_infinity
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras


class QuestionExamples(NamedTuple):
    """Questions and contexts as windows of tokens, with the right answers.

    Attributes
    ----------
    columns : QuestionColumns
    sequences : QuestionWindows
    offsets : ndarray of int32, shape (n_pieces, 2)
        Where each piece of ``sequences.contexts`` begins and ends in its context, in characters.
    answers : Answers
    targets : ndarray of int32, shape (n_windows, 4)
        Where each window has the first right answer, for `span_cross_entropy`.
    weights : ndarray of float32, shape (n_rows,)
    """

    columns: QuestionColumns
    sequences: QuestionWindows
    offsets: np.ndarray
    answers: Answers
    targets: np.ndarray
    weights: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.columns.n_rows

    @property
    def cut_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows whose question was cut."""
        return np.flatnonzero(self.sequences.truncated_rows)

    def take(self, rows: np.ndarray) -> QuestionExamples:
        """Some rows, given by their numbers in ascending order."""
        return QuestionExamples(
            self.columns.take(rows),
            self.sequences.of_rows(rows),
            self.offsets,
            self.answers.take(rows),
            self.targets[np.isin(self.sequences.rows, rows)],
            self.weights[rows],
        )


class FoundSpans(NamedTuple):
    """The best spans of some rows.

    Attributes
    ----------
    first_row : int
        The number of the first of these rows among all.
    spans : Spans
        Here ``starts`` and ``ends`` are characters of the context, the end exclusive.
    texts : list of list of str
        The spans' texts, best first; fewer than ``n_best`` in a short context, none in an empty one.
    losses : ndarray of float64, shape (n_rows,)
        The mean over the row's windows, where the answers are known; else 0.
    """

    first_row: int
    spans: Spans
    texts: list[list[str]]
    losses: np.ndarray


class BestSpans(NamedTuple):
    """The outputs for examples: what the model finds for each row whose answers are known.

    Attributes
    ----------
    texts : list of str
        The best span; "" in an empty context.
    null_scores : ndarray of float64, shape (n_rows,)
        The score of there being no answer, less that of the best span; 0 in an empty context.
    losses : ndarray of float64, shape (n_rows,)
    """

    texts: list[str]
    null_scores: np.ndarray
    losses: np.ndarray


@dataclass(kw_only=True)
class Questions(MissingTexts, Task[QuestionColumns, Answers, QuestionExamples, BestSpans]):
    """An answer's first and last token in a window of the context (Devlin et al., 2018, sections 4.2 and 4.3).

    The model is `BertForQuestionAnswering`. A question without an answer, or whose answer is in another window, has the
    span of [CLS].

    Parameters
    ----------
    max_length, stride, null_threshold, n_best, max_answer_length
        As in `kbert.BertQA`.
    null_threshold_
        What is learned: see there.
    """

    max_length: int = 384
    stride: int | None = 128
    null_threshold: str | float = "tune"
    n_best: int = 20
    max_answer_length: int = 30
    null_threshold_: float = np.inf

    loss = staticmethod(span_cross_entropy)
    recipe: ClassVar[Recipe] = Recipe(updates=200, narrow_rate_factor=4.0)  # defaults.md, "Questions and options"
    kind: ClassVar[str | None] = "answers"
    baseline: ClassVar[str] = "how often a window holds no answer"
    architecture: ClassVar[str] = "BertForQuestionAnswering"

    # --- X and y to examples

    def check(self, X: Any, y: Any, call: str) -> None:
        """Refuse answers as X and questions as y. ``call`` is what messages write."""
        refuse_answers_as_questions(X, y, call)

    def read(self, X: Any, name: str = "X") -> QuestionColumns:
        """Questions and contexts."""
        return question_columns(X, name)

    def read_labels(self, y: Any, columns: QuestionColumns, name: str = "y") -> Answers:
        """The right answers, each of which stands in its context where it should."""
        return answer_columns(y, columns, name)

    def learn(self, labels: Answers, weights: np.ndarray) -> None:
        """Nothing but that some question has an answer."""
        if not labels.answerable[weights > 0].any():
            raise ValueError("No question of y has an answer, so there is nothing to learn. Is it the right column?")

    def examples(
        self, columns: QuestionColumns, labels: Answers, weights: np.ndarray, tokenizer: WordPieceTokenizer
    ) -> QuestionExamples:
        """Rows as tokens."""
        _, windows, offsets = zip(*self._chunks(columns, tokenizer), strict=True)
        joined = QuestionWindows.concatenate(list(windows))
        joined_offsets = np.concatenate(offsets)
        targets = answer_targets(joined, joined_offsets, labels)
        return QuestionExamples(columns, joined, joined_offsets, labels, targets, weights)

    def _chunks(
        self, columns: QuestionColumns, tokenizer: WordPieceTokenizer
    ) -> Iterator[tuple[slice, QuestionWindows, np.ndarray]]:
        """Some rows at a time: which, their windows, and the offsets of the pieces of their contexts."""
        for rows, some in chunks_of(columns):
            windows, offsets = build_question_windows(
                tokenizer, some.questions, some.contexts, self.max_length, self.stride, first_row=rows.start
            )
            yield rows, windows, offsets

    def piece_counts(self, columns: QuestionColumns, tokenizer: WordPieceTokenizer) -> PieceCounts:
        """The word pieces of all questions and contexts."""

        def counted(some: QuestionColumns, first_row: int) -> PieceCounts:
            texts = question_lengths(tokenizer, some.questions, some.contexts, first_row)
            return PieceCounts(list(texts), np.arange(some.n_rows), some.n_rows)

        return PieceCounts.concatenate(counted(some, rows.start) for rows, some in chunks_of(columns))

    def lengths(self, counts: PieceCounts) -> RowLengths:
        """The lengths of the rows."""
        questions, contexts = counts.texts
        kept_questions, kept, _, n_windows = question_window_counts(questions, contexts, self.max_length, self.stride)
        cut = kept_questions + kept + counts.n_specials
        return RowLengths.of(counts, cut, n_windows, in_windows=True)

    def warn_cut(self, n_cut: int, n_rows: int, details: str) -> None:
        """Say that questions were cut."""
        warn_user(
            f"{n_cut} of {n_rows} questions have more than 64 word pieces, or take more than half of "
            f"max_length={self.max_length}, and lost their ends ({details}). Contexts are read whole, so put long "
            "texts there.",
            TruncationWarning,
        )

    def label_numbers(self, columns: QuestionColumns, labels: Answers, tokenizer: Any) -> list[tuple[Any, ...]]:
        """Where the row's answers begin, and what they are."""
        pairs = zip(labels.starts, labels.texts, strict=True)
        return [tuple(sorted(zip(starts, texts, strict=True))) for starts, texts in pairs]

    def label_shares(self, numbers: list[tuple[Any, ...]]) -> dict[Any, float]:
        """Of the rows with and without an answer."""
        share = sum(map(bool, numbers)) / len(numbers)
        return {"answer": share, "no answer": 1 - share}

    def strata(self, labels: Answers, weights: np.ndarray) -> np.ndarray | None:
        """Whether a question has an answer, where the threshold is taken from the validation set."""
        return labels.answerable if self.needs_validation(labels, weights) else None

    def needs_validation(self, labels: Answers, weights: np.ndarray) -> str | None:
        """The threshold is taken from rows that were not trained on, where two questions or more have no answer."""
        on_both_sides = min(np.bincount(labels.answerable[weights > 0], minlength=2)) > 1
        if self.null_threshold != "tune" or not on_both_sides:
            return None
        return "null_threshold='tune' (a number, such as 0.0, needs none)"

    def _tunes(self, answers: Answers, weights: np.ndarray) -> bool:
        return self.null_threshold == "tune" and not answers.answerable[weights > 0].all()

    # --- Training

    def new_model(self, config: BertConfig, encoder: models.BertEncoder) -> models.BertForQuestionAnswering:
        """BERT with two outputs for each token."""
        return models.BertForQuestionAnswering(config, encoder=encoder)

    def warn_unlearnable(self, examples: QuestionExamples) -> None:
        """Answers that are whole in no window."""
        whole_in = np.bincount(examples.sequences.rows, examples.targets[:, 0] > 0)
        n_lost = int((examples.answers.answerable & (whole_in == 0)).sum())
        if n_lost:
            warn_user(
                f"{n_lost} of {examples.n_rows} answers are longer than what two neighbouring windows share, and are "
                "whole in none: they are learned as no answer. A larger max_length than "
                f"{self.max_length} would take them in.",
                TruncationWarning,
            )

    def training_data(self, examples: QuestionExamples) -> TrainingData:
        """Each window is an example of its own, as in the paper's code."""
        weights = mean_one(examples.weights[examples.sequences.rows])
        return TrainingData(examples.sequences, examples.targets, weights, level="position")

    def after_training(
        self, model: keras.Model, examples: QuestionExamples, validation: QuestionExamples | None
    ) -> None:
        """The threshold: the given one, or the best one; where nothing tells, that of the fit before, or 0.

        It takes validation rows with an answer and without one to tell, and two without one in all.
        """
        if self.null_threshold != "tune":
            self.null_threshold_ = float(self.null_threshold)
            return
        silent = ~examples.answers.answerable[examples.weights > 0]
        silent_held_out = np.array([], bool) if validation is None else ~validation.answers.answerable
        n_silent = silent.sum() + silent_held_out.sum()
        if validation is not None and n_silent > 1 and 0 < silent_held_out.sum() < len(silent_held_out):
            self.null_threshold_ = self._best_threshold(self.outputs(model, validation), validation)
        elif n_silent:
            if n_silent > 1 and np.isinf(self.null_threshold_):
                self.null_threshold_ = 0.0
            warn_user(
                'null_threshold="tune" takes a few questions without an answer and a few with one in the validation '
                f"set, and found too few. It is {self.null_threshold_:g}: at 0 the model's own decision counts, at "
                "infinity an empty context alone has no answer. Set a number, or give such questions: in eval_set if "
                "there is one, else in the rows.",
                ParameterWarning,
            )

    # --- Outputs

    def predict(
        self,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        columns: QuestionColumns,
        n_best: int,
        cut: list[NDArray[np.int64]] | None = None,
    ) -> Iterator[FoundSpans]:
        """The best spans of each row, some rows at a time.

        The numbers of the rows whose question was cut are appended to ``cut``.
        """
        for rows, windows, offsets in self._chunks(columns, tokenizer):
            if cut is not None:
                cut.append(rows.start + np.flatnonzero(windows.truncated_rows))
            reader = SpanReader(windows, n_best, self.max_answer_length)
            predict_spans(model, reader, rows.start)
            yield _found(reader, columns.contexts[rows], offsets, rows.start)

    def to_explain(
        self,
        columns: QuestionColumns,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        cut: list[NDArray[np.int64]],
        first_row: int,
    ) -> ToExplain:
        """The logits of the first and the last token of each row's answer, in its window.

        No answer is [CLS] as both, in the window that speaks for it least. The numbers of the rows whose question was
        cut are appended to ``cut``.
        """
        trace = TracingTokenizer(tokenizer)
        (windows, _), (traced, _) = (
            build_question_windows(
                some, columns.questions, columns.contexts, self.max_length, self.stride, first_row=first_row
            )
            for some in (tokenizer, trace)
        )
        cut.append(first_row + np.flatnonzero(windows.truncated_rows))
        reader = SpanReader(windows, 1, self.max_answer_length)
        predict_spans(model, reader, first_row)
        explained, chosen = [], []
        names = columns.names or NAMES
        for row in range(columns.n_rows):
            texts = zip(names, columns.columns, trace.columns, (row, windows.context_of[row]), strict=True)
            parts = [
                Part(name, column[row], slice(*words.splits[i : i + 2].tolist())) for name, column, words, i in texts
            ]
            explained += [Explained(row, label, parts) for label in ("start", "end")]
            chosen.append(self._best_tokens(reader, np.flatnonzero(windows.rows == row)))
        window, first, last = np.array(chosen, np.int64).T
        n = len(explained)
        return ToExplain(
            windows,
            trace.ids_and_words(traced)[1],
            np.concatenate([words.offsets for words in trace.columns]),
            explained,
            np.arange(n),
            Targets(np.repeat(window, 2), np.arange(n) % 2, np.stack([first, last], axis=1).ravel()),
        )

    def _best_tokens(self, reader: SpanReader, windows: NDArray[np.int64]) -> tuple[int, int, int]:
        """Of a row's windows the one with the answer, and the answer's first and last token in it."""
        found = reader.found
        best = int(windows[found.scores[windows, 0].argmax()])
        without = int(windows[found.null[windows].argmin()])
        score = found.scores[best, 0]
        if not (np.isfinite(score) and score >= found.null[without] - self.null_threshold_):
            return without, 0, 0
        before = int(reader.windows.first_length[best] - reader.windows.starts[best])
        return best, before + int(found.starts[best, 0]), before + int(found.ends[best, 0])

    def outputs(self, model: keras.Model, examples: QuestionExamples) -> BestSpans:
        """The best span of each row."""
        reader = SpanReader(examples.sequences, 1, self.max_answer_length, examples.targets)
        predict_spans(model, reader)
        found = _found(reader, examples.columns.contexts[:], examples.offsets)
        best = found.spans.scores[:, 0]
        null_scores = np.where(np.isfinite(best), found.spans.null - best, 0)
        return BestSpans([texts[0] if texts else "" for texts in found.texts], null_scores, found.losses)

    def mean_loss(self, outputs: BestSpans, examples: QuestionExamples) -> float:
        """Cross-entropy in nats, the mean over each row's windows."""
        return float(np.average(outputs.losses, weights=examples.weights))

    def score(self, outputs: BestSpans, examples: QuestionExamples) -> float:
        """F1 of the answers' words; where some questions have no answer, at the best threshold or the given one."""
        if self._tunes(examples.answers, examples.weights):
            weights, right = examples.weights.astype("float64"), examples.answers.texts
            return best_null_threshold(right, outputs.texts, outputs.null_scores, sample_weight=weights).score
        threshold = np.inf if self.null_threshold == "tune" else float(self.null_threshold)
        silent = outputs.null_scores > threshold
        texts = ["" if no else text for no, text in zip(silent, outputs.texts, strict=True)]
        _, f1 = answer_scores(examples.answers.texts, texts)
        return float(np.average(f1, weights=examples.weights))

    def _best_threshold(self, outputs: BestSpans, examples: QuestionExamples) -> float:
        """A threshold of the null score that gives the best F1: 0 if it is one, else one between two questions' scores.

        `best_null_threshold` takes the lowest of them, as the official script does: the score of an answered question.
        Of a few questions that is far too low for others. 0 is where the model itself is undecided.
        """
        weights, (_, f1) = examples.weights.astype("float64"), answer_scores(examples.answers.texts, outputs.texts)
        silent = (~examples.answers.answerable).astype("float64")
        scores, sums = sums_by_threshold(outputs.null_scores.astype("float64"), silent, f1, weights)
        thresholds = np.array([scores[0] - 1, *(scores[1:] + scores[:-1]) / 2, scores[-1] + 1, 0.0])
        means = sums[np.searchsorted(scores, thresholds, "right")] / weights.sum()
        best = thresholds[means >= means.max() - 1e-9]
        return float(best[np.abs(best).argmin()])

    def baseline_loss(self, data: TrainingData) -> float:
        """The loss where the model knows how often a window holds no answer, and takes any token of the others."""
        n_tokens, has_none = data.targets[:, 3] + 1, data.targets[:, 0] == 0
        share = np.clip(np.average(has_none, weights=data.weights), 1e-6, 1 - 1e-6)
        losses = np.where(has_none, -np.log(share), np.log(n_tokens / (1 - share)))
        return float(np.average(losses, weights=data.weights))

    def training_loss(self, outputs: BestSpans, examples: QuestionExamples) -> float:
        """Each window counts as one, as in training, and not each row."""
        n_windows = np.bincount(examples.sequences.rows)
        return float(np.average(outputs.losses, weights=examples.weights * n_windows))

    def ranking(self, outputs: BestSpans, examples: QuestionExamples) -> None:
        """None: a model that ranks the tokens at all has a lower loss than `baseline_loss`, which takes any of them."""
        return

    # --- Folders

    def save_model(self, model: models.BertForQuestionAnswering, folder: Path) -> None:
        """As transformers' BertForQuestionAnswering."""
        weights.save_question_answerer(model, folder)

    @staticmethod
    def load_model(folder: Path, dtype: str) -> models.BertForQuestionAnswering:
        """From a folder of transformers' BertForQuestionAnswering."""
        return weights.load_question_answerer(folder, dtype=dtype)

    def learned_to_json(self) -> dict[str, Any]:
        """The threshold; JSON has no infinity, which is written as a string."""
        threshold = float(self.null_threshold_)
        if np.isnan(threshold):
            raise ValueError('null_threshold_ is NaN. Set it to a number, or to infinity for never answering "".')
        return {"null_threshold": encode_infinity(threshold)}

    def learn_from_json(self, values: SavedValues, model: keras.Model, folder: Path) -> None:
        """The threshold."""
        self.null_threshold_ = float(values.checked("null_threshold", NUMBER_OR_INFINITY))


def answer_targets(windows: QuestionWindows, offsets: np.ndarray, answers: Answers) -> np.ndarray:
    """The targets of `span_cross_entropy` for the first right answer of each row, shape (n_windows, 4)."""
    pieces = np.full((windows.n_rows, 2), -1, np.int64)
    splits = windows.contexts.splits
    for row, (texts, starts) in enumerate(zip(answers.texts, answers.starts, strict=True)):
        context = windows.context_of[row]
        of_context = offsets[splits[context] : splits[context + 1]]
        if texts and len(of_context):
            pieces[row] = pieces_of(starts[0], starts[0] + len(texts[0]), of_context)
    return span_targets(windows, *pieces.T)


def _found(reader: SpanReader, contexts: Sequence[str], offsets: np.ndarray, first_row: int = 0) -> FoundSpans:
    """What a reader found, as characters and texts of the rows' contexts."""
    windows, spans = reader.windows, reader.of_rows()
    there = np.isfinite(spans.scores)
    first_piece = np.broadcast_to(windows.contexts.splits[windows.context_of][:, None], there.shape)
    starts: np.ndarray = np.zeros(there.shape, np.int64)
    ends: np.ndarray = np.zeros(there.shape, np.int64)
    starts[there] = offsets[(first_piece + spans.starts)[there], 0]
    ends[there] = offsets[(first_piece + spans.ends)[there], 1]
    _include_marks(contexts, ends, there)
    texts = []
    for context, found, start, end in zip(contexts, there, starts, ends, strict=True):
        texts.append([context[a:b] for a, b in zip(start[found], end[found], strict=True)])
    losses = np.bincount(windows.rows, reader.losses) / np.bincount(windows.rows)
    return FoundSpans(first_row, spans._replace(starts=starts, ends=ends), texts, losses)


def _include_marks(contexts: Sequence[str], ends: np.ndarray, there: np.ndarray) -> None:
    """Move the ends of spans past accents: uncased models drop combining marks, which then belong to no piece."""
    for row, context in enumerate(contexts):
        if context.isascii():
            continue
        for k in np.flatnonzero(there[row]):
            ends[row, k] = past_marks(context, int(ends[row, k]))
