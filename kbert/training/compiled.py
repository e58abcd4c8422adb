"""Compiled functions, kept from one fit to the next, so that a grid search compiles once."""

import json
import operator
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kbert.forks import LockOfProcess
from kbert.model.setup import keras

# Each holds the code of one shape, and no weights: 10 MB on JAX and 40 MB on TensorFlow for six layers
# (docs/project/performance_notes.md). Texts of up to 512 tokens, when they are predicted, make 74 shapes at most.
_MOST = 128

_cache: OrderedDict[Hashable, Callable[..., Any]] = OrderedDict()
_lock = LockOfProcess(reentrant=True)


def compiled(key: Hashable, compile: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The function compiled under ``key``, by calling ``compile`` where there is none yet."""
    with _lock:
        if key not in _cache:
            _cache[key] = compile()
            # TensorFlow keeps what it has compiled as long as the process lives. What is dropped here would be compiled
            # again, and kept twice.
            if len(_cache) > _MOST and keras.backend.backend() != "tensorflow":
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]


class ModelVariables(NamedTuple):
    """A model's trainable variables, its other ones, and its `model_key`."""

    trainable: list[keras.Variable]
    others: list[keras.Variable]
    key: str


class _KnownKey(NamedTuple):
    """A model's key, and the facts it was made from that can change. Shapes and dtypes of variables cannot."""

    variables: list[keras.Variable]
    facts: tuple[str, list[bool]]
    key: str


_known_keys: weakref.WeakKeyDictionary[keras.Model, _KnownKey] = weakref.WeakKeyDictionary()


def model_variables(model: keras.Model) -> ModelVariables:
    """The variables of a model as they are now, and its key.

    Walking through the layers takes long beside predicting a short text, so it is done once.
    """
    variables = model.variables
    trainable = [variable.trainable for variable in variables]
    facts = (model.dtype_policy.name, trainable)
    known = _known_keys.get(model)
    if known is None or known.facts != facts or not _same(known.variables, variables):
        known = _known_keys[model] = _KnownKey(variables, facts, _key(model, variables, trainable))
    return ModelVariables(
        [variable for variable, is_trained in zip(variables, trainable, strict=True) if is_trained],
        [variable for variable, is_trained in zip(variables, trainable, strict=True) if not is_trained],
        known.key,
    )


def _same(ones: list[keras.Variable], others: list[keras.Variable]) -> bool:
    return len(ones) == len(others) and all(map(operator.is_, ones, others))


def _key(model: keras.Model, variables: list[keras.Variable], trainable: list[bool]) -> str:
    # Not the model's ``get_config``: to write down a dtype policy, Keras imports TensorFlow wherever that is installed,
    # which takes seconds, and half a gigabyte, under the other backends.
    kinds = [(tuple(v.shape), v.dtype, is_trained) for v, is_trained in zip(variables, trainable, strict=True)]
    choices = getattr(model, "choices", {})
    config = replace(model.config, num_trained_positions=None).to_dict()  # on which no computation depends
    facts = [type(model).__name__, config, choices, model.dtype_policy.name, kinds, _constants(model)]
    return json.dumps(facts, sort_keys=True)


def _constants(model: keras.Model) -> list[list[Any]]:
    """What layers compute with beside their variables: LoRA's factor."""
    return [
        [layer.name, factor]
        for layer in model._flatten_layers()
        if (factor := getattr(layer, "lora_alpha", None)) is not None
    ]


def model_key(model: keras.Model) -> str:
    """What a model's compiled code depends on: its class, architecture, dtypes and which variables are trained."""
    return model_variables(model).key


def shapes_key(arrays: dict[str, np.ndarray]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The shapes of a dict of arrays."""
    return tuple((name, tuple(array.shape)) for name, array in sorted(arrays.items()))
