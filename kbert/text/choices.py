"""Rows of multiple choice as tokens: one sequence for each option."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.ragged import Ragged
from kbert.text.sequences import TokenSequences, assemble, room_for_texts, truncated_lengths
from kbert.values.surrogates import require_no_surrogates


def build_choices(
    tokenizer: ColumnTokenizer,
    contexts: Sequence[str],
    questions: Sequence[str] | None,
    options: list[list[str]],
    max_length: int = 128,
    first_row: int = 0,
) -> TokenSequences:
    """Tokenise rows of multiple choice into sequences "[CLS] context [SEP] question option [SEP]".

    As for SWAG in the paper, and in transformers' example ``run_swag.py``. Sequences that do not fit are truncated as
    pairs are (`build_sequences`).

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    contexts : list of str
        n_rows of them.
    questions : list of str or None
        As many. With None or "" the second text is the option alone.
    options : list of list of str
        n_rows lists of any length.
    max_length : int, default=128
        Greatest length of a sequence in tokens, special tokens included: at least 5.
    first_row : int, default=0
        The number of the first row in error messages, if the rows are a chunk of a column.

    Returns
    -------
    TokenSequences
        One for each option, in the given order.

    Raises
    ------
    ValueError
        If a text cannot be tokenised or ``max_length`` is too small.
    """
    budget = room_for_texts(max_length, pairs=True)
    rows, first, second = tokenize_choices(tokenizer, contexts, questions, options, first_row)
    lengths = first.lengths[rows]
    kept, kept_second = truncated_lengths(lengths, second.lengths, budget)
    return assemble(
        tokenizer,
        rows,
        kept + kept_second < lengths + second.lengths,
        first.slices(rows, 0, kept),
        kept,
        second.slices(np.arange(len(rows)), 0, kept_second),
        kept_second,
    )


def tokenize_choices(
    tokenizer: ColumnTokenizer,
    contexts: Sequence[str],
    questions: Sequence[str] | None,
    options: list[list[str]],
    first_row: int,
) -> tuple[NDArray[np.int64], Ragged, Ragged]:
    """The row of each option, shape (n_options,); the tokens of each row's context, and of each "question option".

    Raises
    ------
    ValueError
        If a text cannot be tokenised.
    """
    rows = np.repeat(np.arange(len(options)), [len(row) for row in options])
    # Each context is tokenised once, however many options it has.
    first = tokenizer.tokenize_column(contexts, name="contexts", first_row=first_row)
    starts = [""] * len(options) if questions is None else [question and f"{question} " for question in questions]
    try:
        second = tokenizer.tokenize_column([starts[i] + option for i, row in enumerate(options) for option in row])
    except ValueError:
        for i, row in enumerate(options):
            require_no_surrogates(starts[i], f"questions: row {first_row + i}")
            for option in row:
                require_no_surrogates(option, f"options: row {first_row + i}")
        raise
    return rows, first, second
