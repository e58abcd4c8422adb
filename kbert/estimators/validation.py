"""The validation set of a fit: given as ``eval_set``, or split off."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kbert.data.frames import readable_again
from kbert.data.mistakes import warn_of_other_order
from kbert.tasks.row_notices import RowsRead
from kbert.tasks.task import C, E, L, O, Task
from kbert.text import WordPieceTokenizer


def read_eval_set(
    eval_set: Any,
    estimator: Any,
    task: Task[C, L, E, O],
    training: C,
    tokenizer: WordPieceTokenizer,
) -> tuple[E, RowsRead[C]]:
    """The examples of an ``eval_set``, whose columns are to be those of the training rows, and what X was read into.

    All rows weigh the same.
    """
    X, y = _pair(eval_set)
    warn_of_other_order(X, y, of="eval_set's ")
    columns = task.read(X, "eval_set's X")
    estimator._check_columns(columns, training, "eval_set's X")
    labels = task.read_labels(y, columns, "eval_set's y")
    examples = task.examples(columns, labels, np.ones(columns.n_rows, "float32"), tokenizer)
    return examples, RowsRead(X, columns, examples.cut_rows, "eval_set's X")


def _pair(eval_set: Any) -> tuple[Any, Any]:
    """X and y of an eval_set."""
    if isinstance(eval_set, list) and eval_set and all(map(_is_pair_of_columns, eval_set)):
        raise ValueError(
            f"eval_set must be a pair (X, y), got a list with {len(eval_set)} such. Give the one for validation: "
            "eval_set=(X, y)."
        )
    if not isinstance(eval_set, (tuple, list)) or len(eval_set) != 2:
        raise ValueError("eval_set must be a pair (X, y).")
    return readable_again(eval_set[0]), readable_again(eval_set[1])


def _is_pair_of_columns(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and not any(map(np.isscalar, value))


def split_rows(
    strata: np.ndarray | None, weights: np.ndarray, fraction: float, seed: int, asking: str
) -> tuple[np.ndarray, np.ndarray]:
    """The rows to train on and the rows of the validation set, ascending, with the same shares of the strata.

    Each stratum keeps a row to train on. Otherwise each row has the same chance to be in the validation set, so a
    stratum of which 0.3 rows belong there has one with a probability of 0.3.

    Parameters
    ----------
    strata : ndarray, shape (n_rows,), or None
        None splits at random.
    weights : ndarray, shape (n_rows,)
        Rows of weight 0 are in neither.
    fraction : float
        Share of the rows that goes into the validation set.
    seed : int
    asking : str
        The parameter that asks for a validation set, for the message.
    """
    rng = np.random.default_rng(seed)
    rows = rng.permutation(np.flatnonzero(weights > 0))
    of_each = "" if strata is None else ", one of each class"
    strata = np.zeros(len(weights)) if strata is None else strata
    _, stratum, sizes = np.unique(strata[rows], return_inverse=True, return_counts=True)
    # The rows of a stratum lie evenly between 0 and 1, from a random offset on: up to any point there is the same share
    # of each.
    number = np.empty(len(rows), int)
    number[np.argsort(stratum, kind="stable")] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = (number + rng.random(len(sizes))[stratum]) / sizes[stratum]
    places[number == sizes[stratum] - 1] = np.inf
    first = np.argsort(places)[: math.ceil(fraction * len(rows))]
    validation = rows[first[np.isfinite(places[first])]]
    if not len(validation):
        raise ValueError(
            f"{asking} splits validation_fraction={fraction} of {len(rows)} rows off as a validation set, and none can "
            f"be spared: a row is kept to train on{of_each}. Give an eval_set, or more rows."
        )
    return np.setdiff1d(rows, validation), np.sort(validation)
