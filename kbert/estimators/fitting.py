"""The fit of every estimator that is fine-tuned."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from kbert.config import BertConfig
from kbert.data.batches import TrainingBatches
from kbert.data.columns import Columns
from kbert.errors import DivergedError
from kbert.estimators.fit_plan import RowFacts, RunFacts
from kbert.estimators.outcome import Kind, outcome_of, warn_of_outcome
from kbert.estimators.parameters import (
    Parameters,
    checked_callbacks,
    checked_parameters,
    checkpoint_folder,
    draw_seed,
    fit_seed,
    warn_of_high_rate,
)
from kbert.estimators.persistence import encode_value
from kbert.estimators.preparing import HasTask, find_start, has_few_labels, held_out, read_rows, settle
from kbert.estimators.recipe import automatic_epochs
from kbert.estimators.validation import read_eval_set
from kbert.model import BertForFeatures
from kbert.model.setup import keras
from kbert.tasks.row_notices import RowShares, RowsRead, tell_cut, tell_missing, tell_unknown
from kbert.tasks.task import Examples, Probed, Task, TrainingData, some_rows
from kbert.text import WordPieceTokenizer
from kbert.training.backends import able_to_train
from kbert.training.distribution import (
    check_layout,
    description,
    for_fine_tuning,
    n_parts,
    process_number,
    same_everywhere,
)
from kbert.training.early_stopping import Evaluation
from kbert.training.finite_outputs import may_overflow
from kbert.training.fit_checkpoints import FitCheckpoints, History, digest, facts_of_data, saved_seed
from kbert.training.hyperparameters import layer_rates
from kbert.training.loop import TrainingOptions, train
from kbert.training.precision import dtype_policy
from kbert.training.progress import say
from kbert.training.step import Loss
from kbert.weights import load_encoder_weights
from kbert.weights.start import Start

# What a task has: its columns, labels, examples and outputs.
C = TypeVar("C", bound=Columns)
L = TypeVar("L")
E = TypeVar("E", bound=Examples)
O = TypeVar("O")  # noqa: E741


# Rows up to which verbose tells of repeated ones: that takes some 200 bytes a row.
_ROWS_COMPARED = 1_000_000


class Run(NamedTuple):
    """One of the runs of a fit, which starts again where a run fails.

    Attributes
    ----------
    number : int
        Counted from 0.
    seed, fit_seed : int
        Its own, and the one that those of all runs are made of.
    callbacks : list of keras.callbacks.Callback
    checkpoints : FitCheckpoints or None
    """

    number: int
    seed: int
    fit_seed: int
    callbacks: list[Any]
    checkpoints: FitCheckpoints | None


class Fittable(HasTask[C, L, E, O], Protocol[C, L, E, O]):
    """What `fit` asks of an estimator besides: to become the fitted one."""

    def _remember(
        self,
        task: Task[C, L, E, O],
        parameters: Parameters,
        columns: C,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        history: History,
        n_truncated: int,
        shares: RowShares,
    ) -> None: ...


@able_to_train()
def fit(estimator: Fittable[C, L, E, O], X: Any, y: Any, sample_weight: Any, eval_set: Any, callbacks: Any) -> None:
    """Fine-tune an estimator; its own ``fit`` documents the arguments. A fit that fails leaves it as it was."""
    # Check the parameters.
    parameters = checked_parameters(estimator)
    warn_of_high_rate(parameters)
    callbacks = checked_callbacks(callbacks)
    seed = fit_seed(parameters, saved_seed)

    # Read X and y.
    X, task, columns, labels, weights = read_rows(estimator, parameters, X, y, sample_weight)

    # Find the start: architecture, tokenizer and weights. Then rows become tokens.
    start = find_start(estimator, parameters, task, columns)
    pad_id = start.tokenizer.pad_id
    examples = task.examples(columns, labels, weights, start.tokenizer)

    # Read the validation set, if one is given, and tell of rows that were cut or are empty, of both at once.
    read, validation = [RowsRead(X, columns, examples.cut_rows)], None
    if eval_set is not None:
        validation, read_for_validation = read_eval_set(eval_set, estimator, task, columns, start.tokenizer)
        read.append(read_for_validation)
    shares = RowShares(tell_cut(task, read), tell_missing(task, read))
    if hasattr(examples, "sequences"):  # which those of long contexts are not: they are built when they are taken
        tell_unknown(X, columns, examples.sequences, start.tokenizer)
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
        model, history = _train_with_restarts(
            task, start, row_facts, examples, validation, parameters, seed, callbacks, checkpoints
        )
    task.after_training(model, examples, validation, pad_id)

    estimator._remember(task, parameters, columns, model, start.tokenizer, history, n_truncated, shares)


def _train_with_restarts(
    task: Task[C, L, E, O],
    start: Start,
    row_facts: RowFacts | None,
    examples: E,
    validation: E | None,
    parameters: Parameters,
    seed: int,
    callbacks: list[Any],
    checkpoints: FitCheckpoints | None,
) -> tuple[keras.Model, History]:
    """The model and the history of the first of up to ``n_restarts + 1`` runs that does not fail, or of the last."""
    data, pad_id = task.training_data(examples), start.tokenizer.pad_id
    n_rows = examples.n_rows if data.whole_rows else len(data.sequences)  # what a batch counts
    few_labels = has_few_labels(parameters)
    # `settle` replaces "auto" by numbers; what the probe tells is decided in each run.
    head_start_was_auto, rate_was_auto = (
        getattr(parameters, name, None) == "auto" for name in ("head_start", "learning_rate")
    )
    recipe = settle(parameters, task, start.config, n_rows)
    rate = parameters.learning_rate
    parameters.distribution = for_fine_tuning(parameters.distribution, data.whole_rows or few_labels)
    if parameters.distribution is not None and process_number()[0] > 0:
        parameters.verbose = 0  # the first of those that train together tells for all
    enough_epochs = automatic_epochs(parameters, recipe, n_rows)
    # What "auto" stood for in the run that is gone on with may be another one by now.
    before = checkpoints.dtype_policy() if checkpoints is not None and parameters.dtype == "auto" else None
    policy = before or dtype_policy(parameters.dtype)
    first_run = 0 if checkpoints is None else min(checkpoints.first_run(), parameters.n_restarts)
    for restart in range(first_run, parameters.n_restarts + 1):
        run_seed = seed if restart == 0 else draw_seed(np.random.RandomState([seed, restart]))
        run = Run(restart, run_seed, seed, callbacks, checkpoints)
        if few_labels:
            model, history = _tuned_by_contrast(
                task, start, row_facts, examples, data, validation, parameters, policy, run
            )
            loss, linear_loss = np.inf, None  # the contrast's loss is another one
        else:
            model, probed = _new_model(task, start, examples, policy, run)
            linear_loss = None if probed is None else probed.loss
            if probed is not None and head_start_was_auto:
                parameters.head_start = "random" if probed.head is None else "probe"
            if probed is not None and rate_was_auto:
                parameters.learning_rate = rate * probed.further_rate_factor
            _say(parameters, model.config, row_facts, examples, data, policy)
            history = _train(task, start, model, task.loss, data, validation, parameters, run)
            loss = history["loss"][-1]
        n_epochs = len(history["loss"])
        _require_finite_outputs(task, model, examples, loss, pad_id)
        stopped_early = parameters.early_stopping and n_epochs < parameters.epochs
        few_updates = n_epochs < enough_epochs and not stopped_early
        outcome = outcome_of(task, model, data, examples, loss, linear_loss, few_updates, pad_id)
        warn_of_outcome(outcome, task.baseline, n_epochs, enough_epochs, restart + 1, parameters.n_restarts)
        if outcome.kind is not Kind.NOTHING:
            break
    return model, history


def _tuned_by_contrast(
    task: Task[C, L, E, O],
    start: Start,
    row_facts: RowFacts | None,
    examples: E,
    data: TrainingData,
    validation: E | None,
    parameters: Parameters,
    policy: str,
    run: Run,
) -> tuple[keras.Model, History]:
    """A model whose encoder is tuned by contrast, and whose head is then fitted to its vectors; and the history.

    The history has the contrast's losses, and of a validation set what the whole model gives, at the last epoch.
    """
    assert task.contrast is not None  # `_check_few_labels`
    config = replace(start.config, classifier_pooling=parameters.classifier_pooling)
    _say(parameters, config, row_facts, examples, data, policy)
    features = partial(BertForFeatures, config, "last", config.classifier_pooling, dtype=policy, seed=run.seed)
    reads_pooler = config.classifier_pooling == "cls"  # the head does, which is fitted afterwards
    tuned = start.new_model(features, partial(_load, tell=reads_pooler and run.number == 0))
    history = _train(task, start, tuned, task.contrast.loss, data, None, parameters, run)
    model, _ = _new_model(task, replace(start, config=config, encoder=tuned.encoder), examples, policy, run)
    if validation is not None:
        not_known = [np.nan] * (len(history["loss"]) - 1)
        at_the_end = _evaluate(task, model, validation, start.tokenizer.pad_id)
        history |= {name: [*not_known, value] for name, value in at_the_end.items()}
        if parameters.verbose:
            say("fitted head: " + ", ".join(f"{name} {value:.3f}" for name, value in at_the_end.items()))
    return model, history


def _say(
    parameters: Parameters,
    config: BertConfig,
    row_facts: RowFacts | None,
    examples: Examples,
    data: TrainingData,
    policy: str,
) -> None:
    """With ``verbose``, say what a run goes by, with what "auto" stood for."""
    if not parameters.verbose:
        return
    if hasattr(parameters, "classifier_pooling"):  # which the probe has chosen
        parameters = Parameters(**{**vars(parameters), "classifier_pooling": config.classifier_pooling})
    facts = RunFacts.of(
        parameters,
        row_facts,
        n_rows=examples.n_rows,
        n_sequences=len(data.sequences),
        n_cut=len(examples.cut_rows),
        n_in_windows=0 if data.whole_rows else int((np.bincount(data.sequences.rows) > 1).sum()),
        lengths=data.sequences.lengths,
        whole_rows=data.whole_rows,
        policy=policy,
    )
    for line in facts.lines():
        say(line)


def _new_model(
    task: Task[C, L, E, O], start: Start, examples: E, dtype: str, run: Run
) -> tuple[keras.Model, Probed | None]:
    """The model to train, and where its head starts; or the model of the fit before, and None."""

    def to_probe(model_class: Callable[..., keras.Model], config: BertConfig) -> keras.Model:
        return start.new_model(partial(model_class, config, dtype=dtype, seed=run.seed), _load)

    def to_train(config: BertConfig) -> keras.Model:
        make = partial(task.new_model, config, dtype=dtype, seed=run.seed)
        return start.new_model(make, _load if run.number else _load_and_tell)

    if start.model is not None:
        model = to_train(start.config)
        task.before_training(model)
        return model, None
    probed = task.probe(start.config, to_probe, examples, run.seed, start.tokenizer.pad_id)
    model = to_train(probed.config)
    if probed.head is not None:
        probed.head.assign_to(model.classifier)
    return model, probed


def _load(model: keras.Model, folder: Path, arrays: dict[str, np.ndarray] | None, tell: bool = False) -> None:
    load_encoder_weights(model.encoder, folder, arrays, tell=tell)


def _load_and_tell(model: keras.Model, folder: Path, arrays: dict[str, np.ndarray] | None) -> None:
    # A head that does not read the pooler has taken it out of the training.
    _load(model, folder, arrays, tell=model.encoder.pooler.trainable)


def _train(
    task: Task[C, L, E, O],
    start: Start,
    model: keras.Model,
    loss: Loss,
    data: TrainingData,
    validation: E | None,
    parameters: Parameters,
    run: Run,
) -> History:
    """Train a model in place, with early stopping if it was asked for; gives the history."""
    check_layout(parameters.distribution, model)
    if parameters.distribution is not None and process_number()[1] > 1:
        rows = digest((data.sequences, data.targets, data.weights))
        if not same_everywhere(int(rows[:7], 16)):  # 28 bits
            raise ValueError("The processes that fit together were given different rows. All must make the same call.")
    if parameters.freeze:
        for layer in (model.encoder.embeddings, *model.encoder.transformer_layers[: parameters.freeze]):
            layer.trainable = False
    options = TrainingOptions(
        epochs=parameters.epochs,
        learning_rate=parameters.learning_rate,
        warmup=parameters.warmup,
        weight_decay=parameters.weight_decay,
        bias_correction=parameters.bias_correction,
        gradient_accumulation=parameters.gradient_accumulation,
        layer_rates=layer_rates(model, parameters.layer_decay),
        seed=run.seed,
        verbose=int(parameters.verbose),
        callbacks=run.callbacks,
        distribution=parameters.distribution,
        checkpoints=run.checkpoints,
    )
    if run.checkpoints is not None:
        settings = _settings_of_run(task, start, model, data, validation, parameters, run)
        run.checkpoints.begin(run.number, run.fit_seed, settings)

    pad_id, evaluation = start.tokenizer.pad_id, None
    if validation is not None:
        patience = parameters.n_iter_no_change if parameters.early_stopping else None
        evaluation = Evaluation(model, partial(_evaluate, task, model, validation, pad_id), patience)
    batches = TrainingBatches(
        data.sequences, parameters.batch_size, run.seed, pad_id, data.whole_rows, n_parts(parameters.distribution)
    )
    history = train(model, loss, batches, data.targets, data.weights, options, evaluation, data.level)
    if evaluation is not None:
        evaluation.restore_best()
    return history


# Parameters that a run may go on without, or whose meaning the start and the other settings hold.
_NOT_SETTINGS = {
    "checkpoint", "verbose", "random_state", "size", "weights", "revision", "warm_start", "distribution",
    "dtype",
}  # fmt: skip


def _settings_of_run(
    task: Task[C, L, E, O],
    start: Start,
    model: keras.Model,
    data: TrainingData,
    validation: E | None,
    parameters: Parameters,
    run: Run,
) -> dict[str, Any]:
    """What a run must have in common with the one whose checkpoint it goes on from."""
    held_out = () if validation is None else task.training_data(validation)[:3]
    own = {name: value for name, value in vars(parameters).items() if name not in _NOT_SETTINGS}
    settings = {
        "backend": keras.backend.backend(), "dtype": model.dtype_policy.name, "random_state": run.seed,
        "devices": description(parameters.distribution), **own,
    }  # fmt: skip
    written = json.loads(json.dumps({name: encode_value(value) for name, value in settings.items()}))
    # A new head is made of the seed, or of data and encoder: on another processor its last digits may differ.
    digested = model.encoder if start.model is None else model
    return written | facts_of_data(digested, (data.sequences,), (data.targets, data.weights), held_out)


def _evaluate(task: Task[C, L, E, O], model: keras.Model, validation: E, pad_id: int) -> dict[str, float]:
    try:
        outputs = task.outputs(model, validation, pad_id)
    except DivergedError:  # an earlier epoch may be the best one; the last word is `_require_finite_outputs`'s
        return {"val_loss": np.nan, "val_score": np.nan}
    return {"val_loss": task.mean_loss(outputs, validation), "val_score": task.score(outputs, validation)}


def _require_finite_outputs(task: Task[C, L, E, O], model: keras.Model, examples: E, loss: float, pad_id: int) -> None:
    """Refuse a model that training has destroyed. The last update may have done that, of which no loss tells.

    Raises
    ------
    DivergedError
    """
    if np.isnan(loss):
        raise DivergedError(
            "The losses or gradients of all updates in the last epoch were not finite, so that none was made. Try a "
            "lower learning_rate, or dtype='float32'."
        )
    if may_overflow(model):
        task.outputs(model, examples.take(some_rows(examples)), pad_id)
