"""The fit of every estimator that is fine-tuned."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Generic, NamedTuple

import numpy as np

from kbert.estimators.fit_plan import RowFacts
from kbert.estimators.parameters import (
    Parameters,
    checked_callbacks,
    checked_parameters,
    checkpoint_folder,
    fit_seed,
)
from kbert.estimators.preparing import HasTask, find_start, held_out, read_rows
from kbert.estimators.runs import Runs
from kbert.estimators.validation import read_eval_set
from kbert.model.setup import keras
from kbert.tasks.row_notices import (
    RowShares,
    RowsRead,
    tell_cut,
    tell_missing,
    tell_unknown,
    tell_untrained,
    tell_written_missing,
)
from kbert.tasks.task import C, E, L, O, Task
from kbert.text import WordPieceTokenizer
from kbert.training.backends import able_to_train
from kbert.training.fit_checkpoints import EpochHistory, FitCheckpoints, saved_seed
from kbert.training.schedule import warn_of_high_rate

# With verbose, repeated rows are counted only up to so many rows: that takes some 200 bytes a row.
_ROWS_COMPARED = 1_000_000


class Fitted(NamedTuple, Generic[C, L, E, O]):
    """What a fit gives.

    Attributes
    ----------
    task : Task
        It has learned what it learns before and after training.
    parameters : Parameters
        With what "auto" stood for.
    columns : Columns
        What X was read into.
    model : keras.Model
    tokenizer : WordPieceTokenizer
    history : dict
    n_truncated : int
        Rows of X that were cut.
    shares : RowShares
    """

    task: Task[C, L, E, O]
    parameters: Parameters
    columns: C
    model: keras.Model
    tokenizer: WordPieceTokenizer
    history: EpochHistory
    n_truncated: int
    shares: RowShares


@able_to_train()
def fit(
    estimator: HasTask[C, L, E, O], X: Any, y: Any, sample_weight: Any, eval_set: Any, callbacks: Any
) -> Fitted[C, L, E, O]:
    """Fine-tune: what an estimator becomes by a fit, which leaves it as it was. Its own ``fit`` has the arguments."""
    # Check the parameters.
    parameters = checked_parameters(estimator)
    warn_of_high_rate(parameters.learning_rate)
    callbacks = checked_callbacks(callbacks)
    seed = fit_seed(parameters, saved_seed)

    # Read X and y.
    X, task, columns, labels, weights = read_rows(estimator, parameters, X, y, sample_weight)

    # Find the start: architecture, tokenizer and weights. Then rows become tokens.
    start = find_start(estimator, parameters, task, columns)
    examples = task.examples(columns, labels, weights, start.tokenizer)

    # Read the validation set, if one is given, and tell of rows that were cut or are empty, of both at once.
    read, validation = [RowsRead(X, columns, examples.cut_rows)], None
    if eval_set is not None:
        validation, read_for_validation = read_eval_set(eval_set, estimator, task, columns, start.tokenizer)
        read.append(read_for_validation)
    shares = RowShares(tell_cut(task, read), tell_missing(task, read))
    tell_written_missing(X, columns)
    tell_unknown(X, columns, examples.sequences, start.tokenizer)
    if start.model is None:  # else the fits before have trained them
        tell_untrained(start.config, examples.sequences.lengths)
    n_truncated = len(examples.cut_rows)

    # Split off a validation set, if none is given and a parameter asks for one.
    split = held_out(task, parameters, labels, examples.weights, seed) if eval_set is None else None
    if split is not None:
        examples, validation = map(examples.take, split)
    if not (examples.weights > 0).all():  # else a batch, and a number of updates, would count rows that teach nothing
        examples = examples.take(np.flatnonzero(examples.weights > 0))

    # With verbose, the first line tells of repeated rows and of labels.
    row_facts = None
    if parameters.verbose and not task.splits_words and columns.n_rows <= _ROWS_COMPARED:
        row_facts = RowFacts.of(task, columns, task.label_numbers(columns, labels, start.tokenizer))

    # Train, again with another seed where a run fails, and learn what the outputs of the trained model tell.
    folder = checkpoint_folder(parameters)
    with nullcontext() if folder is None else FitCheckpoints(folder) as checkpoints:
        model, history = Runs(
            task=task,
            start=start,
            parameters=parameters,
            examples=examples,
            validation=validation,
            row_facts=row_facts,
            seed=seed,
            callbacks=callbacks,
            checkpoints=checkpoints,
        ).train()
    task.after_training(model, examples, validation)
    return Fitted(task, parameters, columns, model, start.tokenizer, history, n_truncated, shares)
