"""What "auto" stands for: epochs, batch size, learning rate and lengths that suit the rows of a fit and the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbert.config import BertConfig
from kbert.estimators.parameters import Parameters
from kbert.learning_rates import default_learning_rate, factor_if_narrow, factor_if_tiny, is_narrow
from kbert.sizes import named_size
from kbert.tasks.task import Recipe

# The parameters that may be "auto". What one stood for in a fit is kept under its name and an underscore.
SETTLED = ("max_length", "long_text", "epochs", "batch_size", "learning_rate", "head_start", "mask_rate", "nsp")

# Attention takes time and memory with the square of the length. docs/benchmarks/defaults.md has what windows of this
# length give beside linear models.
_WINDOW = 256


def settle_lengths(parameters: Parameters, reader: Any, config: BertConfig) -> None:
    """Replace "auto" in ``max_length`` and ``long_text``.

    Parameters
    ----------
    parameters : Parameters
        Changed in place.
    reader : Task, TextReader or WordReader
        What reads the rows with these parameters. It is changed too.
    config : BertConfig
    """
    if hasattr(parameters, "long_text"):
        reader.long_text = parameters.long_text = "window" if parameters.long_text == "auto" else parameters.long_text
    if parameters.max_length == "auto":
        parameters.max_length = automatic_length(config, getattr(parameters, "long_text", None) == "window")
    reader.max_length = parameters.max_length


def settle_head(parameters: Parameters, task: Any, config: BertConfig) -> None:
    """Replace "auto" in ``head_start`` and ``classifier_pooling``, where the model alone tells.

    A head that alone is trained is the probe. Else the task's probe tells. ``parameters`` and the task are changed in
    place.
    """
    if getattr(parameters, "head_start", None) == "auto" and parameters.freeze == config.num_hidden_layers:
        task.head_start = parameters.head_start = "probe"
    narrow_pooling = task.recipe.narrow_pooling
    if narrow_pooling is not None and parameters.classifier_pooling == "auto":
        task.classifier_pooling = parameters.classifier_pooling = narrow_pooling if is_narrow(config) else "cls"


def automatic_length(config: BertConfig, in_windows: bool) -> int:
    """What ``max_length="auto"`` stands for: tokens of a window, or of a row, of which the rest is cut off.

    Batches are as long as their rows, so that a large limit costs short rows nothing.
    """
    return min(_WINDOW, config.trained_positions) if in_windows else config.max_position_embeddings


def settle_training(parameters: Parameters, recipe: Recipe, config: BertConfig, n_rows: int) -> None:
    """Replace "auto" in ``epochs``, ``batch_size`` and ``learning_rate``, which may be "paper" too.

    Parameters
    ----------
    parameters : Parameters
        Changed in place.
    recipe : Recipe
        The task's.
    config : BertConfig
    n_rows : int
        What a batch counts: rows to train on, or windows of them.
    """
    if parameters.batch_size == "auto":
        parameters.batch_size = max(recipe.least_batch, 16 if n_rows < recipe.rows_of_large_batches else 32)
    if parameters.epochs == "auto":
        parameters.epochs = automatic_epochs(parameters, recipe, n_rows)
    if parameters.learning_rate == "auto":
        factor = recipe.rate_factor * factor_if_tiny(config)
        if n_rows <= recipe.most_rows_of_narrow_rate:
            factor *= factor_if_narrow(config, recipe.narrow_rate_factor)
        # Rounded, so that 3 times 1e-4 is shown as 0.0003.
        parameters.learning_rate = float(f"{factor * _rate_of_size(parameters, config):.3g}")
    elif parameters.learning_rate == "paper":
        parameters.learning_rate = _rate_of_size(parameters, config)


def automatic_epochs(parameters: Parameters, recipe: Recipe, n_rows: int) -> int:
    """What ``epochs="auto"`` stands for, once the batch size is settled."""
    updates_per_epoch = -(-n_rows // (parameters.batch_size * parameters.gradient_accumulation))
    enough = max(recipe.epochs, -(-recipe.updates // updates_per_epoch))
    return min(enough, max(1, recipe.most_updates // updates_per_epoch))


def _rate_of_size(parameters: Parameters, config: BertConfig) -> float:
    """The peak of the schedule: by the named size, or by the width of the model."""
    if isinstance(parameters.size, str) and parameters.weights in ("auto", None):
        return named_size(parameters.size).learning_rate
    return default_learning_rate(config)


def remember_settled(estimator: Any, parameters: Parameters) -> None:
    """Keep what the parameters of a fit were in the estimator's fitted attributes."""
    for name in SETTLED:
        if getattr(parameters, name, "auto") != "auto":
            setattr(estimator, f"{name}_", getattr(parameters, name))


def settled_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """An estimator's values, ``vars(estimator)``, with what "auto" stood for in its fit."""
    names = [name for name in SETTLED if name != "head_start"]  # which fit reads, and predict never does
    stood_for = {name: values[f"{name}_"] for name in names if values.get(name) == "auto" and f"{name}_" in values}
    return {**values, **stood_for}
