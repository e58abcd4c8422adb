"""What a run has learned, judged by the trained model on training rows: nothing, less than it could, or enough.

Only runs whose training loss is high are looked at, so that a good fit pays nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kbert.errors import FailedRunWarning, UnderfitWarning
from kbert.tasks.task import C, E, L, O, Task, some_rows
from kbert.training.labelled_batches import TrainingData
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras

# A run is looked at if its last training loss is at least this share of the constant predictor's loss.
_HIGH_SHARE = 0.9
# It may have failed if the loss without dropout is at least this share.
_FAILED_SHARE = 0.98
# No run counts as failed where the constant predictor's loss of a row, summed over all answers to it, is below this
# (two labels, 97 rows to 3): to answer the more frequent one always may then be the best there is.
_LEAST_BASELINE_LOSS = 0.13
# And it has failed if the ranking of the rows is at chance too. Chance gives 0, and varies with the number of rows and
# of rare labels: shuffling the rows tells how much. Three standard deviations are one run in a thousand. An untrained
# head on a trained encoder ranks somewhat better or worse than chance whatever their number. How much is a judgement:
# 0.2, an AUC of 0.6.
_SHUFFLES = 30
_DEVIATIONS = 3.0
_UNTRAINED_RANKING = 0.2
# A linear model's loss is that of rows that it was not fitted to, and a run's that of rows that it was trained on. If
# even so the run's is higher by this share of the constant predictor's loss, it has learned less.
_CLEARLY_HIGHER = 0.02


class Kind(Enum):
    """What a run has learned."""

    ENOUGH = "enough"
    NOTHING = "nothing"
    LESS_THAN_LINEAR = "less than a linear model on the vectors of the encoder that is not trained"
    LITTLE = "little, in few updates"


class Outcome(NamedTuple):
    """What a run has learned, and what tells so.

    Attributes
    ----------
    kind : Kind
    loss : float
        The loss on training rows, without dropout, where they were looked at; else the last training loss.
    reference : float
        What that was compared with: the constant predictor's loss on the same rows, or the linear model's.
    """

    kind: Kind
    loss: float
    reference: float


def outcome_of(
    task: Task[C, L, E, O],
    model: keras.Model,
    data: TrainingData,
    examples: E,
    last_loss: float,
    linear_loss: float | None,
    few_updates: bool,
) -> Outcome:
    """Judge a run.

    Parameters
    ----------
    task : Task
    model : keras.Model
        The trained one.
    data, examples
        What it was trained on.
    last_loss : float
        The training loss of the last epoch, with dropout.
    linear_loss : float or None
        The loss of a linear model on the vectors of the encoder as it was, in a cross-validation, if it is known.
    few_updates : bool
        Whether the run made fewer updates than ``epochs="auto"`` would have made.
    """
    baseline = task.baseline_loss(data)
    if baseline == 0:  # y is constant: there is nothing to learn
        return Outcome(Kind.ENOUGH, last_loss, baseline)
    if last_loss < _HIGH_SHARE * baseline and (linear_loss is None or last_loss < linear_loss):
        return Outcome(Kind.ENOUGH, last_loss, baseline)
    rows = some_rows(examples)
    some = examples.take(rows)
    outputs = task.outputs(model, some)
    loss, baseline = task.training_loss(outputs, some), task.baseline_loss(_of_rows(data, rows))
    may_be_best = baseline * task.n_answers < _LEAST_BASELINE_LOSS
    if not may_be_best and loss >= _FAILED_SHARE * baseline and _ranks_by_chance(task, outputs, some):
        return Outcome(Kind.NOTHING, loss, baseline)
    if linear_loss is not None:
        plain_loss = task.mean_loss(outputs, some)  # without class_weight, as the linear model's
        if plain_loss >= linear_loss + _CLEARLY_HIGHER * baseline:
            return Outcome(Kind.LESS_THAN_LINEAR, plain_loss, linear_loss)
    if few_updates and loss >= _HIGH_SHARE * baseline:
        return Outcome(Kind.LITTLE, loss, baseline)
    return Outcome(Kind.ENOUGH, loss, baseline)


def warn_of_outcome(
    outcome: Outcome,
    baseline: str,
    epoch: int,
    n_epochs: int,
    enough_epochs: int,
    by_patience: bool,
    next_restart: int,
    n_restarts: int,
) -> None:
    """Warn of a run that learned nothing, or less than it could.

    Parameters
    ----------
    outcome : Outcome
    baseline : str
        What the constant predictor knows: `Task.baseline`.
    epoch : int
        The epoch that the model is of: the last one, or that to which early stopping went back.
    n_epochs, enough_epochs : int
        Epochs of the run, and those of ``epochs="auto"``.
    by_patience : bool
        Whether early stopping ended the run.
    next_restart, n_restarts : int
        The number of the restart that follows, and how many are allowed.

    Warns
    -----
    FailedRunWarning, UnderfitWarning
    """
    went_back = epoch < n_epochs
    end = f"after epoch {epoch}, to which early_stopping went back" if went_back else f"at its end, after epoch {epoch}"
    ended = f"{end}, the loss on training rows, without dropout, is {outcome.loss:.3f}"
    if outcome.kind is Kind.NOTHING:
        what_now = (
            f"It is started again with another seed ({next_restart} of n_restarts={n_restarts})."
            if next_restart <= n_restarts
            else "Try n_restarts=3, more epochs, or another learning_rate; or the texts may not tell y."
        )
        warn_user(
            f"The run failed: {ended}, and {baseline} alone gives {outcome.reference:.3f}. Nothing was learned. "
            f"{what_now}",
            FailedRunWarning,
        )
    if outcome.kind is Kind.LESS_THAN_LINEAR:
        warn_user(
            f"The run learned less than a linear model: {ended}, and a linear model on the vectors of the encoder "
            f"before training has {outcome.reference:.3f} on rows that it has not seen. Leave learning_rate and epochs "
            'at "auto", or try a lower learning_rate and more epochs.',
            UnderfitWarning,
        )
    if outcome.kind is Kind.LITTLE:
        what_now = (
            "The validation rows chose this epoch, and few of them may do so by chance: give more "
            "(validation_fraction, eval_set), or leave early_stopping out."
            if went_back and (by_patience or n_epochs >= enough_epochs)
            else f'That was after epochs={n_epochs}, and epochs="auto" would make {enough_epochs} of so few rows. Try '
            "that, or a higher learning_rate; plan(X, y) says how long a fit takes."
        )
        warn_user(
            f"The run learned little: {ended}, and {baseline} alone gives {outcome.reference:.3f}. {what_now}",
            UnderfitWarning,
        )


def _of_rows(data: TrainingData, rows: np.ndarray) -> TrainingData:
    """The targets and weights of some rows, beside all sequences."""
    chosen = np.isin(data.sequences.rows, rows)
    if data.level == "token":
        chosen = np.repeat(chosen, data.sequences.lengths)
    return data._replace(targets=data.targets[chosen], weights=data.weights[chosen])


def _ranks_by_chance(task: Task[Any, Any, E, Any], outputs: Any, examples: E) -> bool:
    """Whether the outputs rank what is true no better than outputs of other rows would."""
    found = task.ranking(outputs, examples)
    if found is None:  # the loss tells
        return True
    rng = np.random.default_rng(0)
    shuffled = [task.ranking(rng.permutation(outputs), examples) for _ in range(_SHUFFLES)]
    return found < max(_UNTRAINED_RANKING, _DEVIATIONS * float(np.std(np.array(shuffled, "float64"))))
