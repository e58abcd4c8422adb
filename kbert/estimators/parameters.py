"""Checks of the estimators' parameters, made in fit: type, range, and what to write instead."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from functools import cache
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from kbert.config import CLASSIFIER_POOLINGS, BertConfig
from kbert.model import LAYER_CHOICES, POOLINGS
from kbert.model.names import LARGEST_SEED
from kbert.sizes import named_size
from kbert.tasks.task import plain
from kbert.training.distribution import is_distribution, of_all_processes
from kbert.training.precision import DTYPES
from kbert.values.number_rules import MASK_RATE, OVER_0, PHASES, WARMUP, WEIGHT_DECAY, is_real, is_whole, whole
from kbert.values.saved import Rule

if TYPE_CHECKING:
    import keras


_FLAG: Rule = (lambda value: isinstance(value, (bool, np.bool_))), "True or False"


def _is_path_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, (str, os.PathLike)) and str(value) != "")


# The parameters that say what a fit starts from.
OF_START = ("size", "weights", "revision")
# By the name of the parameter. One whose default is "auto" may be "auto" too.
RULES: dict[str, Rule] = {
    "size": (lambda v: isinstance(v, (str, BertConfig)), 'the name of a size, such as "base", or a BertConfig'),
    "weights": (_is_path_or_none, "None (random start), a folder or a hub name"),
    "revision": (lambda v: v is None or isinstance(v, str), "None, or a branch, tag or commit of a hub repository"),
    "max_length": whole(5),
    "long_text": (lambda v: isinstance(v, str) and v in ("truncate", "window"), '"truncate" or "window"'),
    "stride": (lambda v: v is None or is_whole(v, 1), "None, or a whole number of at least 1"),
    "epochs": whole(1),
    "batch_size": whole(1),
    "learning_rate": (lambda v: v == "paper" if isinstance(v, str) else OVER_0[0](v), f'"paper" or {OVER_0[1]}'),
    "warmup": WARMUP,
    "weight_decay": WEIGHT_DECAY,
    "layer_decay": (lambda v: is_real(v) and 0 < v <= 1, "a number over 0 and up to 1"),
    "freeze": whole(0),
    "classifier_pooling": (
        lambda v: isinstance(v, str) and v in CLASSIFIER_POOLINGS,
        f"one of {', '.join(CLASSIFIER_POOLINGS)}",
    ),
    "head_start": (lambda v: isinstance(v, str) and v in ("probe", "random"), '"probe" or "random"'),
    "few_labels": _FLAG,
    "dropout": (lambda v: v is None or (is_real(v) and 0 <= v < 1), "None, or a rate of at least 0 and under 1"),
    "bias_correction": _FLAG,
    "gradient_accumulation": whole(1),
    "early_stopping": _FLAG,
    "validation_fraction": (lambda v: is_real(v) and 0 < v < 1, "a share of the rows, over 0 and under 1"),
    "n_iter_no_change": whole(1),
    "class_weight": (
        lambda v: v is None or isinstance(v, dict) or (isinstance(v, str) and v == "balanced"),
        'None, "balanced" or a dict',
    ),
    "calibrate": (lambda v: v is None or (isinstance(v, str) and v == "temperature"), 'None or "temperature"'),
    "tune_thresholds": _FLAG,
    "n_restarts": whole(0),
    "warm_start": _FLAG,
    "decoding": (lambda v: isinstance(v, str) and v in ("argmax", "bio"), '"argmax" or "bio"'),
    "level": (lambda v: isinstance(v, str) and v in ("text", "word"), '"text" or "word"'),
    "vocab_size": whole(7),
    "new_words": (
        lambda v: v is None or is_whole(v, 1) or (isinstance(v, (list, tuple)) and all(isinstance(w, str) for w in v)),
        "None, a whole number of at least 1, or a list of words",
    ),
    "split": (lambda v: isinstance(v, str) and v in ("sentences", "lines"), '"sentences" or "lines"'),
    "nsp": _FLAG,
    "mask_rate": MASK_RATE,
    "whole_word": _FLAG,
    "max_steps": (lambda v: v is None or is_whole(v, 1), "None, or a whole number of at least 1"),
    "max_seconds": (lambda v: v is None or OVER_0[0](v), f"None, or {OVER_0[1]}"),
    "null_threshold": (lambda v: v == "tune" if isinstance(v, str) else is_real(v), '"tune" or a number'),
    "n_best": whole(1),
    "max_answer_length": whole(1),
    "layers": (lambda v: isinstance(v, str) and v in LAYER_CHOICES, f"one of {', '.join(LAYER_CHOICES)}"),
    "pooling": (lambda v: isinstance(v, str) and v in POOLINGS, f"one of {', '.join(POOLINGS)}"),
    "normalize": _FLAG,
    "checkpoint": (_is_path_or_none, "None, or a folder of this fit alone"),
    "distribution": (
        lambda v: v is None or is_distribution(v),
        "None, a keras.distribution.DataParallel or ModelParallel (JAX) or a tf.distribute.MirroredStrategy "
        "(TensorFlow)",
    ),
    "dtype": (lambda v: isinstance(v, str) and v in DTYPES, f"one of {', '.join(DTYPES)}"),
    "verbose": (lambda v: isinstance(v, (bool, np.bool_)) or is_whole(v, 0), "a whole number of at least 0"),
}


# The rule of a parameter that a user's subclass has added.
_ANYTHING: Rule = (lambda value: True), "anything"

_NAMES = {*RULES, "random_state"}

# The lengths of `BertPretrainer`.
LENGTHS_OF_PHASES: Rule = (
    lambda v: is_whole(v, 5) or PHASES[0](v),
    "a whole number of at least 5, or pairs of such a number and a share of the budget",
)

# Those that predicting reads too, and that may have been set since the fit.
READ_AFTER_FIT = ("max_length", "long_text", "stride", "decoding", "n_best", "max_answer_length")


class Parameters(SimpleNamespace):
    """An estimator's parameters by name, found to be usable, NumPy's scalars as plain Python numbers."""


def checked_parameters(estimator: Any) -> Parameters:
    """Check all parameters of an estimator.

    Raises
    ------
    TypeError, ValueError
        With the parameter's name, what it was and what is wanted. TypeError where the kind of value is wrong,
        ValueError where its range is.
    """
    name = type(estimator).__name__
    # A subclass need not list the parameters that it leaves as they are.
    inherited = {parameter: value for parameter, value in vars(estimator).items() if parameter in _NAMES}
    values = {**inherited, **estimator.get_params(deep=False)}
    for parameter, value in values.items():
        if parameter == "random_state":
            try:
                check_random_state(value)
            except ValueError:
                raise ValueError(
                    f"{name}: random_state must be None, a whole number from 0 to 2**32 - 1 or a NumPy RandomState, "
                    f"got {value!r}."
                ) from None
            continue
        _check(estimator, parameter, value)
    if isinstance(estimator.size, str) and estimator.weights in ("auto", None):
        named_size(estimator.size)
    return Parameters(**{parameter: plain(value) for parameter, value in values.items()})


def check_parameters_read_after_fit(estimator: Any) -> None:
    """Check those parameters of a fitted estimator that predicting reads. Raises what `checked_parameters` does."""
    values = vars(estimator)
    for parameter in READ_AFTER_FIT:
        if parameter in values:
            _check(estimator, parameter, values[parameter])


@cache
def _has_auto(kind: type, parameter: str) -> bool:
    """Whether the default of a parameter is "auto". Kept, since looking takes longer than a short text's tokens do."""
    constructors = (vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base))
    declared = (signature(constructor).parameters.get(parameter) for constructor in constructors)
    default = next((found.default for found in declared if found is not None), None)
    return isinstance(default, str) and default == "auto"


def _check(estimator: Any, parameter: str, value: Any) -> None:
    has_auto = _has_auto(type(estimator), parameter)  # type: ignore[arg-type]  # classes are hashable
    if has_auto and isinstance(value, str) and value == "auto":
        return
    test, wanted = getattr(estimator, "_own_rules", {}).get(parameter) or RULES.get(parameter, _ANYTHING)
    if not test(value):
        if has_auto:
            wanted = f'"auto"{"," if wanted.startswith(chr(34)) else " or"} {wanted}'
        kind = ValueError if isinstance(value, (numbers.Number, str)) else TypeError
        raise kind(f"{type(estimator).__name__}: {parameter} must be {wanted}, got {value!r}.")


# Keras's callbacks that need more of Keras's own training than there is, and what does the same here.
_REFUSED_CALLBACKS: dict[str, str] = {
    "BackupAndRestore": "the parameter checkpoint=folder lets a fit go on that was killed",
    "OrbaxCheckpoint": "keras.callbacks.ModelCheckpoint(path, save_weights_only=True) keeps the weights of each epoch",
    "SwapEMAWeights": "there are no moving averages of the weights; early_stopping=True keeps those of the best epoch",
}


def checked_callbacks(callbacks: Any) -> list[keras.callbacks.Callback]:
    """The callbacks of a fit as a list.

    Raises
    ------
    TypeError
        For what is no callback of Keras.
    ValueError
        For one that does not work with kbert's training.
    """
    from kbert.model.setup import keras

    listed = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] * (callbacks is not None)
    for callback in listed:
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"callbacks must be a keras.callbacks.Callback or a list of them, got {callback!r} of type "
                f"{type(callback).__name__}. keras.callbacks.LambdaCallback makes one of a function."
            )
        for name, instead in _REFUSED_CALLBACKS.items():
            if isinstance(callback, getattr(keras.callbacks, name, ())):
                raise ValueError(f"callbacks: {name} does not work with kbert's training: {instead}.")
    return listed


def checkpoint_folder(parameters: Parameters) -> Path | None:
    """The folder of ``checkpoint``, if one is given."""
    return None if parameters.checkpoint is None else Path(parameters.checkpoint).expanduser()


def fit_seed(parameters: Parameters, saved_seed: Callable[[Path], int | None]) -> int:
    """The seed of a fit; without a ``random_state`` that of the checkpoint that it goes on from, if there is one.

    Of several processes that fit together it is the first one's.
    """
    folder = checkpoint_folder(parameters)
    saved = saved_seed(folder) if folder is not None and parameters.random_state is None else None
    seed = draw_seed(parameters.random_state) if saved is None else saved
    alone = parameters.random_state is not None or parameters.distribution is None
    return seed if alone else of_all_processes(seed)[0]


def draw_seed(random_state: Any) -> int:
    """A seed from a `random_state`; the global random state is left alone where it is None."""
    if random_state is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    elif isinstance(random_state, numbers.Integral):
        seed = int(random_state)
    else:
        seed = int(check_random_state(random_state).randint(2**31 - 1))
    return seed % LARGEST_SEED
