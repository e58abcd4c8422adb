"""Questions and their contexts as overlapping windows, whose tokens are put together when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kbert.text.sequences import Ragged, TokenSequences, assemble, room_for_texts, row_splits

if TYPE_CHECKING:
    from kbert.text.wordpiece import WordPieceTokenizer

# Most pieces of a question (Devlin et al., 2018: max_query_length of run_squad.py).
QUESTION_PIECES = 64


@dataclass(frozen=True, eq=False)
class QuestionWindows:
    """Windows "[CLS] question [SEP] some pieces of the context [SEP]".

    Neighbouring windows share most of their pieces, and questions their contexts, so only the pieces are kept, each
    context's once, and `take` makes the sequences. It serves where `TokenSequences` does.

    Attributes
    ----------
    tokenizer : WordPieceTokenizer
    questions : Ragged
        Pieces of each row's question.
    contexts : Ragged
        Pieces of each different context.
    context_of : ndarray of int64, shape (n_rows,)
        The number of each row's context.
    truncated_rows : ndarray of bool, shape (n_rows,)
        Whose question was cut.
    rows : ndarray of int64, shape (n_windows,)
        The row that each window is of, ascending. Each row has at least one.
    starts, kept : ndarray of int64, shape (n_windows,)
        The first piece of each window, counted from the start of its context, and how many it has.
    """

    tokenizer: WordPieceTokenizer
    questions: Ragged
    contexts: Ragged
    context_of: np.ndarray
    truncated_rows: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    kept: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_rows(self) -> int:
        """How many questions."""
        return len(self.context_of)

    @cached_property
    def first_length(self) -> np.ndarray:
        """How many tokens of each window have segment id 0: "[CLS] question [SEP]"."""
        return self.questions.lengths[self.rows] + 2

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each window, special ones included."""
        return self.first_length + self.kept + 1

    @cached_property
    def splits(self) -> np.ndarray:
        """Where the tokens of each window would begin and end if all stood one after the other."""
        return row_splits(self.lengths)

    @property
    def context_lengths(self) -> np.ndarray:
        """Pieces of each row's context."""
        return self.contexts.lengths[self.context_of]

    @classmethod
    def concatenate(cls, parts: list[QuestionWindows]) -> QuestionWindows:
        """Those of consecutive parts of a column, each of whose rows are counted from 0."""
        n_rows = row_splits(np.array([part.n_rows for part in parts]))
        n_contexts = row_splits(np.array([len(part.contexts) for part in parts]))

        def ragged(name: str) -> Ragged:
            columns = [getattr(part, name) for part in parts]
            values = np.concatenate([column.values for column in columns])
            return Ragged(values, row_splits(np.concatenate([column.lengths for column in columns])))

        def flat(name: str, added=None) -> np.ndarray:
            columns = [getattr(part, name) for part in parts]
            return np.concatenate(columns if added is None else [a + n for a, n in zip(columns, added, strict=False)])

        return cls(
            parts[0].tokenizer, ragged("questions"), ragged("contexts"), flat("context_of", n_contexts),
            flat("truncated_rows"), flat("rows", n_rows), flat("starts"), flat("kept"),
        )  # fmt: skip

    def take(self, indices) -> TokenSequences:
        """The windows that an index array, a mask or a slice selects, in its order."""
        rows, starts, kept = self.rows[indices], self.starts[indices], self.kept[indices]
        lengths = self.questions.lengths[rows]
        return assemble(
            self.tokenizer,
            rows,
            self.truncated_rows[rows],
            self.questions.parts(rows, 0, lengths),
            lengths,
            self.contexts.parts(self.context_of[rows], starts, kept),
            kept,
        )

    def of_rows(self, rows: np.ndarray) -> QuestionWindows:
        """Those of some rows, given in ascending order, which are counted anew from 0. All contexts are kept."""
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
    tokenizer: WordPieceTokenizer,
    questions: list[str],
    contexts: list[str],
    max_length: int = 384,
    stride: int | None = 128,
    first_row: int = 0,
) -> tuple[QuestionWindows, np.ndarray]:
    """Tokenise questions and contexts into windows of at most ``max_length`` tokens.

    The windows of a context start ``stride`` pieces apart, but the last is moved back to end with the context. A
    question keeps its first 64 pieces, and never takes more than half of a window.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    questions, contexts : list of str
        n_rows of each; contexts that are the same text are tokenised once.
    max_length : int
        Greatest length of a window, special tokens included: at least 5.
    stride : int, optional
        Pieces from the start of a window to that of the next; half of ``max_length`` by default. At most half of the
        room that a question leaves in its windows, so that every answer of up to so many pieces is whole in one.
    first_row : int
        What error messages call the first row.

    Returns
    -------
    windows : QuestionWindows
    offsets : ndarray of int32, shape (n_pieces, 2)
        Where each piece of ``windows.contexts`` begins and ends in its context, in characters.

    Raises
    ------
    ValueError
        If a text cannot be tokenised or ``max_length`` is too small.
    """
    budget = room_for_texts(max_length, pairs=True)
    whole = tokenizer.tokenize_column(questions, name="questions", first_row=first_row)
    kept_questions = np.minimum(whole.lengths, min(QUESTION_PIECES, budget // 2))
    cut = Ragged(whole.parts(slice(None, -1), 0, kept_questions), row_splits(kept_questions))

    numbers: dict[str, int] = {}
    context_of = np.fromiter((numbers.setdefault(text, len(numbers)) for text in contexts), np.int64, len(contexts))
    try:
        pieces, offsets = tokenizer.tokenize_with_offsets(list(numbers), name="contexts", first_row=first_row)
    except ValueError:
        # So that the message names the row, and not the place among the different contexts.
        tokenizer.tokenize_column(contexts, name="contexts", first_row=first_row)
        raise
    if tokenizer.vocab_size <= 2**16:
        pieces = Ragged(pieces.values.astype(np.uint16), pieces.splits)

    lengths = pieces.lengths[context_of]
    room = budget - kept_questions
    kept = np.minimum(lengths, room)
    step = np.minimum(max_length // 2 if stride is None else stride, np.maximum(1, room // 2))
    n_windows = 1 - (kept - lengths) // step
    rows = np.repeat(np.arange(len(contexts)), n_windows)
    number = np.arange(len(rows)) - row_splits(n_windows)[rows]
    starts = np.minimum(number * step[rows], (lengths - kept)[rows])
    windows = QuestionWindows(
        tokenizer, cut, pieces, context_of, whole.lengths > kept_questions, rows, starts, kept[rows]
    )
    return windows, offsets
