"""What comes before the training, in a fit and in a plan of it: rows are read, and what is "auto" is settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from kbert.config import BertConfig
from kbert.data.columns import Columns
from kbert.data.frames import readable_again
from kbert.data.labels import sample_weights
from kbert.data.mistakes import warn_of_other_order
from kbert.estimators.parameters import Parameters
from kbert.estimators.recipe import settle_head, settle_lengths, settle_training
from kbert.estimators.validation import split_rows
from kbert.tasks.task import C, E, L, O, Recipe, Task
from kbert.weights.start import Start


class HasTask(Protocol[C, L, E, O]):
    """What reading and fitting call of an estimator. A protocol, since `kbert.estimators.fine_tuned` imports this."""

    def _is_warm_start(self) -> bool: ...

    def _task(self) -> Task[C, L, E, O]: ...

    def _new_task(self, parameters: Parameters, y: Any) -> Task[C, L, E, O]: ...

    def _check_columns(self, columns: Columns) -> None: ...

    def _start(self, parameters: Parameters, texts: Iterable[str]) -> Start: ...


class RowsOfFit(NamedTuple, Generic[C, L, E, O]):
    """The rows of a fit as they were read.

    Attributes
    ----------
    X : array-like
        As it was given, readable more than once.
    task : Task
        It has learned what labels there are.
    columns : Columns
        What X was read into.
    labels
        What y was read into.
    weights : ndarray of float32, shape (n_rows,)
    """

    X: Any
    task: Task[C, L, E, O]
    columns: C
    labels: L
    weights: NDArray[np.float32]


def read_rows(
    estimator: HasTask[C, L, E, O], parameters: Parameters, X: Any, y: Any, sample_weight: Any
) -> RowsOfFit[C, L, E, O]:
    """Read X and y, and refuse what nothing can be learned from. ``parameters`` may be changed."""
    X, y = readable_again(X), readable_again(y)
    is_warm_start, few_labels = estimator._is_warm_start(), getattr(parameters, "few_labels", False)
    if few_labels and parameters.classifier_pooling == "auto":
        parameters.classifier_pooling = "mean"  # what is tuned is what the head reads
    if few_labels and parameters.head_start == "auto":
        parameters.head_start = "probe"
    task = estimator._task() if is_warm_start else estimator._new_task(parameters, y)
    warn_of_other_order(X, y)
    warn_of_other_order(X, sample_weight, "sample_weight")
    task.check(X, y, "clf.fit" if is_classifier(estimator) else "estimator.fit")
    columns = task.read(X)
    if is_warm_start:
        estimator._check_columns(columns)
    labels = task.read_labels(y, columns)
    weights = sample_weights(sample_weight, columns.n_rows)
    weights = np.ones(columns.n_rows, "float32") if weights is None else weights
    task.learn(labels, weights)
    weights = task.row_weights(labels, weights)
    if not is_warm_start:
        task.require_learnable(labels, weights)
    if few_labels:
        _check_few_labels(parameters, task, is_warm_start)
    return RowsOfFit(X, task, columns, labels, weights)


def find_start(estimator: HasTask[C, L, E, O], parameters: Parameters, task: Task[C, L, E, O], columns: C) -> Start:
    """Architecture, its dropout included, tokenizer and weights.

    ``parameters`` and the task get the lengths that "auto" stands for.
    """
    start = estimator._start(parameters, columns.texts())
    if parameters.freeze > start.config.num_hidden_layers:
        raise ValueError(
            f"{type(estimator).__name__}: freeze must be at most {start.config.num_hidden_layers}, the layers of this "
            f"model, got {parameters.freeze}."
        )
    if task.contrast is not None and parameters.freeze == start.config.num_hidden_layers:
        raise ValueError(
            f"BertClassifier: few_labels=True tunes the encoder, and freeze={parameters.freeze} leaves no layer of it "
            "to be tuned. Set a smaller freeze; or few_labels=False, which trains the head alone."
        )
    settle_lengths(parameters, task, start.config)
    if not estimator._is_warm_start():
        settle_head(parameters, task, start.config)
    return replace(start, config=start.config.with_dropout(parameters.dropout))


def held_out(
    task: Task[C, L, E, O], parameters: Parameters, labels: L, weights: NDArray[np.float32], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The rows to train on, and those to split off as a validation set; None if no parameter asks for one."""
    asking = "early_stopping" if parameters.early_stopping else task.needs_validation(labels, weights)
    if asking is None:
        return None
    return split_rows(task.strata(labels, weights), weights, parameters.validation_fraction, seed, asking)


def settle(parameters: Parameters, task: Task[C, L, E, O], config: BertConfig, n_rows: int) -> Recipe:
    """Replace "auto" in what the training takes, and give the recipe. ``n_rows`` is what a batch counts."""
    recipe = task.recipe if task.contrast is None else task.contrast.recipe
    settle_training(parameters, recipe, config, n_rows)
    return recipe


def _check_few_labels(parameters: Parameters, task: Task[Any, Any, Any, Any], is_warm_start: bool) -> None:
    """Refuse what does not go with ``few_labels``."""
    reasons = {
        "y has several labels a row: it takes one": task.contrast is None,
        "set early_stopping=False: it makes few updates, and all of them": parameters.early_stopping,
        'set head_start="probe": the head is fitted to the tuned vectors': parameters.head_start != "probe",
        "set warm_start=False: it starts from weights, not from an earlier fit": is_warm_start,
        "set gradient_accumulation=1: texts are compared within a batch, so give a larger batch_size": (
            parameters.gradient_accumulation > 1
        ),
        "set batch_size to 3 or more: texts are compared within a batch": (
            not isinstance(parameters.batch_size, str) and parameters.batch_size < 3
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"BertClassifier: few_labels=True does not go with these parameters or y. {reason}.")
