"""A plan of a fit: what it would do and take, without making it."""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.config import BertConfig
from kbert.data.batches import DealtTexts
from kbert.data.columns import Columns
from kbert.estimators.fit_plan import FitPlan, RowFacts, RunFacts, median_and_95
from kbert.estimators.parameters import Parameters, checked_parameters, draw_seed
from kbert.estimators.preparing import HasTask, find_start, held_out, read_rows, settle
from kbert.model import BertEncoder
from kbert.tasks.row_lengths import RowLengths, row_lengths
from kbert.tasks.task import Task
from kbert.training.backends import able_to_train
from kbert.training.cost import (
    Forward,
    backend_cost,
    measure_forward,
    memory_of_training,
    step_seconds,
    trained_numbers,
)
from kbert.training.precision import dtype_policy, has_accelerator
from kbert.training.schedule import warn_of_high_rate

# Characters of the rows whose tokens are counted: half a second's work.
_CHARACTERS = 2_000_000
_USUAL_LENGTHS = (64, 128, 256, 512)
# Tokenising takes so many times as long in a fit, which makes sequences of the tokens, as in a plan, which counts them.
_SEQUENCES = 1.5
# The linear probe: how often a head is fitted (five folds of two poolings, and the best one), and the seconds of it for
# each number of its vectors and output.
_HEADS, _HEAD = 11, 1e-7
# Bytes of weights that are read in a second.
_READING = 1e9


@able_to_train()
def plan(estimator: HasTask[Any, Any, Any, Any], X: Any, y: Any, sample_weight: Any) -> FitPlan:
    """Plan a fit of an estimator, whose ``plan`` documents the arguments. The estimator stays as it is."""
    began = time.perf_counter()
    parameters = checked_parameters(estimator)
    warn_of_high_rate(parameters.learning_rate)
    seed = draw_seed(deepcopy(parameters.random_state))
    read = read_rows(estimator, parameters, X, y, sample_weight)
    task, columns, n_rows = read.task, read.columns, read.columns.n_rows
    chosen = _chosen_rows(columns)
    some = columns if chosen is None else columns.take(chosen)
    share = some.n_rows / n_rows

    reading, began = time.perf_counter() - began, time.perf_counter()
    start = find_start(estimator, parameters, task, some)
    config = start.config
    starting, began = time.perf_counter() - began, time.perf_counter()
    if parameters.weights is None:  # a vocabulary is learned from the texts
        starting /= share
    lengths = row_lengths(task, some, start.tokenizer)
    tokenizing = time.perf_counter() - began
    numbers = task.label_numbers(columns, read.labels, start.tokenizer)
    row_facts = RowFacts.of(task, columns, numbers)

    # What is trained on: exactly, or as the rows that were tokenised tell.
    weights = read.weights
    if chosen is None:  # a row of no words is not trained on
        weights = np.where(np.isin(np.arange(n_rows), lengths.rows), weights, 0).astype("float32")
    split = held_out(task, parameters, read.labels, weights, seed)
    trained, n_validation = (np.flatnonzero(weights > 0), 0) if split is None else (split[0], len(split[1]))
    of_sequences = np.isin(lengths.rows, trained) if chosen is None else np.ones(len(lengths.rows), bool)
    sequences = lengths.sequences[of_sequences]
    n_sequences = len(sequences) if chosen is None else round(len(sequences) * len(trained) / some.n_rows)
    settle(parameters, task, config, len(trained) if task.whole_rows else n_sequences)
    policy = dtype_policy(parameters.dtype)
    rows = np.unique(lengths.rows[of_sequences], return_inverse=True)[1] if task.whole_rows else None
    dealt = DealtTexts(sequences, rows, parameters.batch_size, seed)
    whole = lengths.whole[trained] if chosen is None else lengths.whole
    n_long = round(float(np.mean(whole > parameters.max_length)) * len(trained))
    run = RunFacts.of(
        parameters,
        None if task.splits_words else row_facts,
        n_rows=len(trained),
        n_sequences=n_sequences,
        n_cut=0 if lengths.in_windows else n_long,
        n_in_windows=n_long if lengths.in_windows else 0,
        lengths=sequences,
        whole_rows=task.whole_rows,
        policy=policy,
    )

    # Seconds, in passes over a batch.
    forward = measure_forward(
        lambda config: task.new_model(config, BertEncoder(config, dtype=policy)), config, dealt.layout
    )
    passes_of_row = dealt.steps_per_epoch / (len(trained) if chosen is None else some.n_rows)
    n_probed = 0 if start.model is not None else task.n_probed(numbers)  # a warm start has its head
    seconds = _seconds_of_fit(task, parameters, config, forward, run, numbers, n_probed, passes_of_row, n_validation)
    seconds = {"read": reading + starting + tokenizing * _SEQUENCES / share, **seconds}
    predicting = 1000 * (tokenizing / some.n_rows + passes_of_row * forward.seconds)
    median, long = median_and_95(lengths.whole)
    return FitPlan(
        n_rows=n_rows,
        n_validation_rows=n_validation,
        n_missing=columns.n_missing,
        n_duplicates=row_facts.n_duplicates,
        n_contradictions=row_facts.n_contradictions,
        classes=row_facts.classes,
        n_rows_tokenized=some.n_rows,
        tokens_median=median,
        tokens_95=long,
        tokens_max=int(lengths.whole.max()),
        share_longer=_share_longer(lengths, parameters.max_length),
        reads_windows=lengths.in_windows,
        n_parameters=trained_numbers(config),
        seconds_predict=predicting,
        seconds_forward=forward.seconds,
        seconds=seconds,
        memory_bytes=memory_of_training(config, dealt.layout, policy, parameters.freeze),
        rests_on=_rests_on(forward, some.n_rows, n_rows),
        run=run,
    )


def _chosen_rows(columns: Columns) -> NDArray[np.int64] | None:
    """The numbers of the rows to tokenise, ascending; None for all."""
    n_characters = columns.n_characters
    if n_characters.sum() <= _CHARACTERS:
        return None
    order = np.random.default_rng(0).permutation(columns.n_rows)
    return np.sort(order[: int(np.searchsorted(np.cumsum(n_characters[order]), _CHARACTERS)) + 1])


def _share_longer(lengths: RowLengths, max_length: int) -> dict[int, float]:
    return {length: float(np.mean(lengths.whole > length)) for length in sorted({max_length, *_USUAL_LENGTHS})}


def _seconds_of_fit(
    task: Task[Any, Any, Any, Any],
    parameters: Parameters,
    config: BertConfig,
    forward: Forward,
    run: RunFacts,
    numbers: list[tuple[Any, ...]],
    n_probed: int,
    passes_of_row: float,
    n_validation: int,
) -> dict[str, float]:
    """Seconds of the parts of a fit. Rows are counted in passes over a batch, which ``forward`` is."""
    cost, freeze, layers = backend_cost(forward.policy), parameters.freeze, config.num_hidden_layers
    frozen = run.n_rows * passes_of_row * forward.seconds * freeze / layers  # computed once
    updating = run.n_updates * trained_numbers(config, freeze) * cost.optimizer
    n_numbers = n_probed * config.hidden_size * max(1, len(task.label_shares(numbers)))
    return {
        "models": forward.seconds_to_build + 4 * trained_numbers(config) / _READING,
        "probe": n_probed * passes_of_row * forward.seconds + n_numbers * _HEADS * _HEAD,
        "compile": (layers - freeze) * cost.compile_step + (1 + (n_probed > 0)) * layers * cost.compile_forward,
        "train": frozen + run.n_batches * step_seconds(forward, freeze, cost) + updating,
        "evaluate": run.settings["epochs"] * n_validation * passes_of_row * forward.seconds,
    }


def _rests_on(forward: Forward, n_tokenized: int, n_rows: int) -> tuple[str, ...]:
    """What seconds and memory were taken from."""
    cost, layout = backend_cost(forward.policy), forward.layout
    device = "an accelerator" if has_accelerator() else "a CPU"
    tokenized = "all rows" if n_tokenized == n_rows else f"{n_tokenized:,} of {n_rows:,} rows"
    return (
        f"{tokenized} tokenised",
        f"a forward pass of {forward.measured_layers} of {forward.config.num_hidden_layers} layers on "
        f"{forward.measured_rows} of {layout.rows} rows of {layout.length} tokens, "
        f"{forward.seconds * 1000:.0f} ms for the whole model and batch",
        f"a step of {step_seconds(forward, 0, cost) / forward.seconds:.1f} forward passes, as others on {device} were",
        "compiling by the layers, as other models took" if cost.compile_step else "no compiling",
        "memory by a formula",
    )
