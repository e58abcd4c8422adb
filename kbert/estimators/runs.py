"""The runs of a fit: a model is made and trained, and what it has learned is judged; one that failed starts again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple

import numpy as np

from kbert.config import BertConfig
from kbert.data.batches import TrainingBatches
from kbert.errors import DivergedError
from kbert.estimators.fit_plan import RowFacts, RunFacts
from kbert.estimators.kbert_json import encode_value
from kbert.estimators.outcome import Kind, outcome_of, warn_of_outcome
from kbert.estimators.parameters import Parameters, draw_seed
from kbert.estimators.preparing import settle
from kbert.estimators.recipe import automatic_epochs
from kbert.model import BertEncoder, BertForFeatures
from kbert.model.setup import keras
from kbert.tasks.task import C, E, L, O, Probed, Task, some_rows
from kbert.training.distribution import (
    check_layout,
    description,
    for_fine_tuning,
    n_parts,
    process_number,
    same_everywhere,
)
from kbert.training.early_stopping import Evaluation, best_epoch
from kbert.training.finite_outputs import may_overflow
from kbert.training.fit_checkpoints import EpochHistory, FitCheckpoints, digest, facts_of_data
from kbert.training.hyperparameters import layer_rates
from kbert.training.labelled_batches import TrainingData
from kbert.training.loop import TrainingOptions, train
from kbert.training.precision import dtype_policy
from kbert.training.progress import say
from kbert.training.step import Loss
from kbert.weights import load_encoder_weights, tell_of_new
from kbert.weights.start import Start

# Parameters that a run may go on without, or whose meaning the start and the other settings hold: the weights are
# compared by a digest, and "dtype", "devices" and the seed are written as what they stood for.
_NOT_SETTINGS = {
    "checkpoint", "verbose", "random_state", "size", "weights", "revision", "warm_start", "distribution",
    "dtype",
}  # fmt: skip


class Run(NamedTuple):
    """One of the runs of a fit.

    Attributes
    ----------
    number : int
        Counted from 0.
    seed : int
    """

    number: int
    seed: int


@dataclass(kw_only=True)
class Runs(Generic[C, L, E, O]):
    """What the runs of a fit have in common.

    Parameters
    ----------
    task : Task
    start : Start
        Architecture, tokenizer and weights.
    parameters : Parameters
        Of the estimator. What is "auto" in them is replaced by what it stands for.
    examples, validation
        What is trained on, and what is evaluated after each epoch, or None.
    row_facts : RowFacts or None
        What ``verbose`` says of the rows.
    seed : int
        That of the fit, of which those of all runs are made.
    callbacks : list of keras.callbacks.Callback
    checkpoints : FitCheckpoints or None
    """

    task: Task[C, L, E, O]
    start: Start
    parameters: Parameters
    examples: E
    validation: E | None
    row_facts: RowFacts | None
    seed: int
    callbacks: list[Any]
    checkpoints: FitCheckpoints | None
    _data: TrainingData = field(init=False)
    _policy: str = field(init=False)

    def train(self) -> tuple[keras.Model, EpochHistory]:
        """The model and the history of the first of ``n_restarts + 1`` runs that does not fail, or of the last."""
        task, parameters = self.task, self.parameters
        task.warn_unlearnable(self.examples)
        self._data = data = task.training_data(self.examples)
        n_rows = self.examples.n_rows if task.whole_rows else len(data.sequences)  # what a batch counts
        # `settle` replaces "auto" by numbers; what the probe tells is decided in each run.
        head_start_was_auto, rate_was_auto = (
            getattr(parameters, name, None) == "auto" for name in ("head_start", "learning_rate")
        )
        recipe = settle(parameters, task, self.start.config, n_rows)
        rate = parameters.learning_rate
        only_whole_rows = task.whole_rows or task.contrast is not None
        parameters.distribution = for_fine_tuning(parameters.distribution, only_whole_rows)
        if parameters.distribution is not None and process_number()[0] > 0:
            parameters.verbose = 0  # the first of those that train together tells for all
        enough_epochs = automatic_epochs(parameters, recipe, n_rows)
        # dtype="auto" may stand for another one now than in the run that is gone on with, on another machine.
        kept = self.checkpoints.dtype_policy() if self.checkpoints is not None and parameters.dtype == "auto" else None
        self._policy = kept or dtype_policy(parameters.dtype)
        first_run = 0 if self.checkpoints is None else min(self.checkpoints.first_run(), parameters.n_restarts)
        for number in range(first_run, parameters.n_restarts + 1):
            run = Run(number, self.seed if number == 0 else draw_seed(np.random.RandomState([self.seed, number])))
            if task.contrast is not None:
                model, history = self._tuned_by_contrast(task.contrast.loss, run)
                epoch, loss, linear_loss = len(history["loss"]), np.inf, None  # the contrast's loss is another one
            else:
                model, probed = self._new_model(run)
                linear_loss = None if probed is None else probed.loss
                if probed is not None and head_start_was_auto:
                    parameters.head_start = "random" if probed.head is None else "probe"
                if probed is not None and rate_was_auto:
                    parameters.learning_rate = rate * probed.further_rate_factor
                self._say(model.config)
                history = self._train(model, task.loss, self.validation, run)
                epoch = best_epoch(history) if parameters.early_stopping else len(history["loss"])
                loss = history["loss"][epoch - 1]
            self._require_finite_outputs(model, loss)
            outcome = outcome_of(task, model, data, self.examples, loss, linear_loss, epoch < enough_epochs)
            n_epochs = len(history["loss"])
            by_patience = parameters.early_stopping and n_epochs < parameters.epochs
            warn_of_outcome(
                outcome, task.baseline, epoch, n_epochs, enough_epochs, by_patience, number + 1, parameters.n_restarts
            )
            if outcome.kind is not Kind.NOTHING:
                break
        return model, history

    def _tuned_by_contrast(self, loss: Loss, run: Run) -> tuple[keras.Model, EpochHistory]:
        """A model whose encoder is tuned by contrast, and whose head is then fitted to its vectors; and the history.

        The history has the contrast's losses, and of a validation set what the whole model gives, at the last epoch.
        """
        config = replace(self.start.config, classifier_pooling=self.parameters.classifier_pooling)
        self._say(config)
        encoder, lacking = self._new_encoder(run)
        tuned = BertForFeatures(config, "last", config.classifier_pooling, encoder=encoder)
        history = self._train(tuned, loss, None, run)
        encoder.pooler.trainable = True  # nothing has read it so far
        model, _ = self._with_head(encoder, lacking, config, run)
        if self.validation is not None:
            not_known = [np.nan] * (len(history["loss"]) - 1)
            at_the_end = self._evaluate(model, self.validation)
            history |= {name: [*not_known, value] for name, value in at_the_end.items()}
            if self.parameters.verbose:
                say("fitted head: " + ", ".join(f"{name} {value:.3f}" for name, value in at_the_end.items()))
        return model, history

    def _say(self, config: BertConfig) -> None:
        """With ``verbose``, say what a run goes by, with what "auto" stood for."""
        parameters, data = self.parameters, self._data
        if not parameters.verbose:
            return
        if hasattr(parameters, "classifier_pooling"):  # which the probe has chosen
            parameters = Parameters(**{**vars(parameters), "classifier_pooling": config.classifier_pooling})
        facts = RunFacts.of(
            parameters,
            self.row_facts,
            n_rows=self.examples.n_rows,
            n_sequences=len(data.sequences),
            n_cut=len(self.examples.cut_rows),
            n_in_windows=0 if self.task.whole_rows else int((np.bincount(data.sequences.rows) > 1).sum()),
            lengths=data.sequences.lengths,
            whole_rows=self.task.whole_rows,
            policy=self._policy,
        )
        for line in facts.lines():
            say(line)

    def _new_model(self, run: Run) -> tuple[keras.Model, Probed | None]:
        """The model to train, and where its head starts; or the model of the fit before, and None."""
        start, task = self.start, self.task
        if start.model is None:
            return self._with_head(*self._new_encoder(run), start.config, run)
        model = start.new_model(lambda: task.new_model(start.config, self._make_encoder(run)), lambda *_: None)
        task.before_training(model)
        return model, None

    def _make_encoder(self, run: Run) -> BertEncoder:
        """An encoder without the weights that training starts from."""
        return BertEncoder(self.start.config, dtype=self._policy, name="bert", seed=run.seed)

    def _new_encoder(self, run: Run) -> tuple[BertEncoder, list[str]]:
        """The encoder that a run starts from, and what of it the weights lack."""
        lacking: list[str] = []

        def load(encoder: BertEncoder, folder: Path, arrays: dict[str, np.ndarray] | None) -> None:
            lacking.extend(load_encoder_weights(encoder, folder, arrays))

        return self.start.new_model(partial(self._make_encoder, run), load), lacking

    def _with_head(
        self, encoder: BertEncoder, lacking: list[str], config: BertConfig, run: Run
    ) -> tuple[keras.Model, Probed]:
        """An encoder with the task's head, and where that starts."""
        task = self.task
        probed = task.probe(config, encoder, self.examples, run.seed)
        model = task.new_model(probed.config, encoder)
        encoder.config = model.config
        if run.number == 0 and self.start.folder is not None and encoder.pooler.trainable:
            tell_of_new(lacking, self.start.folder)  # the pooler, which the head reads
        if probed.head is not None:
            probed.head.assign_to(model.classifier)
        return model, probed

    def _train(self, model: keras.Model, loss: Loss, validation: E | None, run: Run) -> EpochHistory:
        """Train a model in place, with early stopping if it was asked for; gives the history."""
        parameters, data = self.parameters, self._data
        check_layout(parameters.distribution, model)
        if parameters.distribution is not None and process_number()[1] > 1:
            rows = digest((data.sequences, data.targets, data.weights))
            if not same_everywhere(int(rows[:7], 16)):  # 28 bits
                raise ValueError(
                    "The processes that fit together were given different rows. All must make the same call."
                )
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
            callbacks=self.callbacks,
            distribution=parameters.distribution,
            checkpoints=self.checkpoints,
        )
        if self.checkpoints is not None:
            self.checkpoints.begin(run.number, self.seed, self._settings(model, validation, run))

        evaluation = None
        if validation is not None:
            patience = parameters.n_iter_no_change if parameters.early_stopping else None
            evaluation = Evaluation(model, partial(self._evaluate, model, validation), patience)
        parts = n_parts(parameters.distribution)
        batches = TrainingBatches(data.sequences, parameters.batch_size, run.seed, self.task.whole_rows, parts)
        history = train(model, loss, batches, data, options, evaluation)
        if "loss" not in history:
            raise ValueError("A callback stopped the training before its first epoch began, so nothing was trained.")
        if evaluation is not None:
            evaluation.restore_best()
        return history

    def _settings(self, model: keras.Model, validation: E | None, run: Run) -> dict[str, Any]:
        """What a run must have in common with the one whose checkpoint it goes on from."""
        parameters, data = self.parameters, self._data
        held_out = () if validation is None else self.task.training_data(validation)[:3]
        own = {name: value for name, value in vars(parameters).items() if name not in _NOT_SETTINGS}
        settings = {
            "backend": keras.backend.backend(), "dtype": model.dtype_policy.name, "random_state": run.seed,
            "devices": description(parameters.distribution), **own,
        }  # fmt: skip
        written = json.loads(json.dumps({name: encode_value(value) for name, value in settings.items()}))
        # A new head is made of the seed, or of data and encoder: on another processor its last digits may differ.
        digested = model.encoder if self.start.model is None else model
        return written | facts_of_data(digested, (data.sequences,), (data.targets, data.weights), held_out)

    def _evaluate(self, model: keras.Model, validation: E) -> dict[str, float]:
        try:
            outputs = self.task.outputs(model, validation)
        except DivergedError:  # an earlier epoch may be the best one; the last word is `_require_finite_outputs`'s
            return {"val_loss": np.nan, "val_score": np.nan}
        return {
            "val_loss": self.task.mean_loss(outputs, validation),
            "val_score": self.task.score(outputs, validation),
        }

    def _require_finite_outputs(self, model: keras.Model, loss: float) -> None:
        """Refuse a model that training has destroyed. The last update may have done that, of which no loss tells.

        Raises
        ------
        DivergedError
        """
        if np.isnan(loss):
            raise DivergedError(
                "The losses or gradients of all updates in the last epoch were not finite, so that none was made. Try "
                "a lower learning_rate, or dtype='float32'."
            )
        if may_overflow(model):
            some = self.examples.take(some_rows(self.examples))
            self.task.outputs(model, some)
