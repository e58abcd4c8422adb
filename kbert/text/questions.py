"""Questions and their contexts as overlapping windows, whose sequences are built only when they are taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.ragged import Ragged, Selection, row_splits
from kbert.text.sequences import TokenSequences, assemble, room_for_texts
from kbert.values.number_rules import whole_number

# Most pieces of a question (Devlin et al., 2018: max_query_length of run_squad.py).
QUESTION_PIECES = 64


@dataclass(frozen=True, eq=False)
class QuestionWindows:
    """Windows "[CLS] question [SEP] some pieces of the context [SEP]".

    Neighbouring windows share most of their pieces, and many questions share a context. So only the pieces are stored,
    those of each context once, and `take` builds the sequences. Batches are made of it as of `TokenSequences`.

    Attributes
    ----------
    tokenizer : WordPieceTokenizer
        Gives the special tokens.
    questions : Ragged
        Pieces of each row's question.
    contexts : Ragged
        Pieces of each different context.
    context_of : ndarray of int64, shape (n_rows,)
        The number of each row's context.
    truncated_rows : ndarray of bool, shape (n_rows,)
        Whether each row's question was truncated.
    rows : ndarray of int64, shape (n_windows,)
        The row that each window belongs to, ascending. Each row has at least one window.
    starts, kept : ndarray of int64, shape (n_windows,)
        The first piece of each window, counted from the start of its context, and how many pieces of the context it
        has.
    """

    tokenizer: ColumnTokenizer
    questions: Ragged
    contexts: Ragged
    context_of: NDArray[np.int64]
    truncated_rows: NDArray[np.bool_]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    kept: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_rows(self) -> int:
        """Number of rows, which is the number of questions."""
        return len(self.context_of)

    @cached_property
    def first_length(self) -> NDArray[np.int64]:
        """How many tokens of each window have segment id 0: "[CLS] question [SEP]"; shape (n_windows,)."""
        return np.asarray(self.questions.lengths[self.rows] + 2)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each window, special ones included, shape (n_windows,)."""
        return np.asarray(self.first_length + self.kept + 1)

    @cached_property
    def splits(self) -> NDArray[np.int64]:
        """Where each window would begin and end if all of them were concatenated, shape (n_windows + 1,)."""
        return row_splits(self.lengths)

    def rows_with(self, token: int) -> NDArray[np.int64]:
        """The numbers of the rows that have a token, in the question or anywhere in the context, ascending."""
        in_context = np.isin(self.context_of, self.contexts.rows_with(token))
        return np.union1d(self.questions.rows_with(token), np.flatnonzero(in_context))

    @classmethod
    def concatenate(cls, chunks: list[QuestionWindows]) -> QuestionWindows:
        """Join consecutive chunks of a column, in each of which rows and contexts are numbered from 0."""
        n_rows = row_splits(np.array([chunk.n_rows for chunk in chunks]))[:-1]
        n_contexts = row_splits(np.array([len(chunk.contexts) for chunk in chunks]))[:-1]

        def ragged(name: str) -> Ragged:
            columns: list[Ragged] = [getattr(chunk, name) for chunk in chunks]
            values = np.concatenate([column.values for column in columns])
            return Ragged(values, row_splits(np.concatenate([column.lengths for column in columns])))

        def flat(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(chunk, name) for chunk in chunks])

        return cls(
            chunks[0].tokenizer,
            ragged("questions"),
            ragged("contexts"),
            np.concatenate([chunk.context_of + n for chunk, n in zip(chunks, n_contexts, strict=True)]),
            flat("truncated_rows"),
            np.concatenate([chunk.rows + n for chunk, n in zip(chunks, n_rows, strict=True)]),
            flat("starts"),
            flat("kept"),
        )

    def take(self, selection: Selection) -> TokenSequences:
        """The sequences of the selected windows, in the order of the selection."""
        rows, starts, kept = self.rows[selection], self.starts[selection], self.kept[selection]
        lengths = self.questions.lengths[rows]
        return assemble(
            self.tokenizer,
            rows,
            self.truncated_rows[rows],
            self.questions.slices(rows, 0, lengths),
            lengths,
            self.contexts.slices(self.context_of[rows], starts, kept),
            kept,
        )

    def of_rows(self, rows: NDArray[Any]) -> QuestionWindows:
        """The windows of some rows, whose numbers are given in ascending order. These rows are numbered from 0.

        All contexts are kept.
        """
        number = np.full(self.n_rows, -1, np.int64)
        number[rows] = np.arange(len(rows))
        windows = np.flatnonzero(number[self.rows] >= 0)
        return replace(
            self,
            questions=self.questions.take(rows),
            context_of=self.context_of[rows],
            truncated_rows=self.truncated_rows[rows],
            rows=number[self.rows[windows]],
            starts=self.starts[windows],
            kept=self.kept[windows],
        )


def build_question_windows(
    tokenizer: ColumnTokenizer,
    questions: Sequence[str],
    contexts: Sequence[str],
    max_length: int = 384,
    stride: int | None = 128,
    first_row: int = 0,
) -> tuple[QuestionWindows, NDArray[np.int32]]:
    """Tokenise questions and contexts into windows of at most ``max_length`` tokens.

    The windows of a context start ``stride`` pieces apart. Only the last one is moved back so that it ends with the
    context. A question keeps its first 64 pieces at most, and never takes more than half of a window.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    questions, contexts : list of str
        n_rows of each; contexts that are the same text are tokenised once.
    max_length : int, default=384
        Greatest length of a window in tokens, special tokens included: at least 5.
    stride : int, optional, default=128
        Pieces of the context from the start of a window to the start of the next one; None is half of ``max_length``.
        A larger number is reduced to half of the pieces that a window holds beside the question, so that every answer
        of up to so many pieces is whole in one window.
    first_row : int, default=0
        The number of the first row in error messages, if the rows are a chunk of a column.

    Returns
    -------
    windows : QuestionWindows
    offsets : ndarray of int32, shape (n_pieces, 2)
        Where each piece of ``windows.contexts`` begins and ends in its context, in characters, the end exclusive.

    Raises
    ------
    ValueError
        If a text cannot be tokenised or ``max_length`` is too small.
    """
    whole = tokenizer.tokenize_column(questions, name="questions", first_row=first_row)
    different, context_of = _different(contexts)
    with _rows_named(tokenizer, contexts, first_row):
        pieces, offsets = tokenizer.tokenize_with_offsets(different, name="contexts", first_row=first_row)
    if tokenizer.vocab_size <= 2**16:
        pieces = Ragged(pieces.values.astype(np.uint16), pieces.splits)

    lengths = pieces.lengths[context_of]
    kept_questions, kept, step, n_windows = question_window_counts(whole.lengths, lengths, max_length, stride)
    truncated = Ragged(whole.slices(slice(None, -1), 0, kept_questions), row_splits(kept_questions))
    rows = np.repeat(np.arange(len(contexts)), n_windows)
    number = np.arange(len(rows)) - row_splits(n_windows)[rows]
    starts = np.minimum(number * step[rows], (lengths - kept)[rows])
    windows = QuestionWindows(
        tokenizer, truncated, pieces, context_of, whole.lengths > kept_questions, rows, starts, kept[rows]
    )
    return windows, offsets


def question_lengths(
    tokenizer: ColumnTokenizer, questions: Sequence[str], contexts: Sequence[str], first_row: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pieces of each question and of each context, before anything is cut; each of shape (n_rows,).

    Raises
    ------
    ValueError
        If a text cannot be tokenised.
    """
    of_questions = tokenizer.tokenize_column(questions, name="questions", first_row=first_row).lengths
    different, context_of = _different(contexts)
    with _rows_named(tokenizer, contexts, first_row):
        return of_questions, tokenizer.tokenize_column(different, name="contexts").lengths[context_of]


def _different(contexts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The different contexts, and the number of each row's among them."""
    numbers: dict[str, int] = {}
    context_of = np.fromiter((numbers.setdefault(text, len(numbers)) for text in contexts), np.int64, len(contexts))
    return list(numbers), context_of


@contextmanager
def _rows_named(tokenizer: ColumnTokenizer, contexts: Sequence[str], first_row: int) -> Iterator[None]:
    """Where a context cannot be tokenised, tell its row, instead of its number among the different ones."""
    try:
        yield
    except ValueError:
        tokenizer.tokenize_column(contexts, name="contexts", first_row=first_row)
        raise


def question_window_counts(
    questions: NDArray[np.int64], contexts: NDArray[np.int64], max_length: int, stride: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """How questions and contexts of these lengths are divided into windows.

    Parameters
    ----------
    questions, contexts : ndarray of int64, shape (n_rows,)
        Their pieces.
    max_length, stride
        As in `build_question_windows`.

    Returns
    -------
    kept_questions, kept, step, n_windows : ndarray of int64, each of shape (n_rows,)
        Pieces of the question and of the context in every window of the row, pieces from the start of a window to that
        of the next, and the number of windows, at least one.

    Raises
    ------
    ValueError
        If ``max_length`` is too small, or ``stride`` no whole number of at least 1.
    """
    budget = room_for_texts(max_length, pairs=True)
    stride = max_length // 2 if stride is None else whole_number(stride, "stride")
    kept_questions = np.minimum(questions, min(QUESTION_PIECES, budget // 2))
    room = budget - kept_questions
    kept = np.minimum(contexts, room)
    step = np.minimum(stride, np.maximum(1, room // 2))
    return kept_questions, kept, step, 1 - (kept - contexts) // step
