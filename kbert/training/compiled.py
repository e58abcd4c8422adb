"""Compiled functions, kept from one fit to the next, so that a grid search compiles once."""

import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import keras

# Each holds the code of one shape, some megabytes, and no weights.
_MOST = 64

_cache: OrderedDict[Hashable, Callable] = OrderedDict()
_lock = threading.RLock()


def compiled(key: Hashable, compile: Callable[[], Callable]) -> Callable:
    """The function compiled under ``key``, by calling ``compile`` where there is none yet."""
    with _lock:
        if key not in _cache:
            _cache[key] = compile()
            if len(_cache) > _MOST:
                _cache.popitem(last=False)
        _cache.move_to_end(key)
        return _cache[key]


def model_key(model: keras.Model) -> str:
    """What a model's compiled code depends on: its class, architecture, dtypes and which variables are trained.

    Not its ``get_config``: to write down a dtype policy, Keras imports TensorFlow wherever that is installed, which
    takes seconds, and half a gigabyte, under the other backends.
    """
    weights = [(tuple(variable.shape), variable.dtype, variable.trainable) for variable in model.weights]
    choices = getattr(model, "choices", {})
    parts = [type(model).__name__, model.config.to_dict(), choices, model.dtype_policy.name, weights]
    return json.dumps(parts, sort_keys=True)


class ModelParts(NamedTuple):
    """A model's trainable variables, its other ones, and its `model_key`."""

    trainable: list
    others: list
    key: str


_parts: weakref.WeakKeyDictionary[keras.Model, ModelParts] = weakref.WeakKeyDictionary()


def parts_of(model: keras.Model) -> ModelParts:
    """The parts of a model, looked for once: that takes as long as a short text does.

    They are looked for anew where a variable was frozen or thawed since, as Keras's LoRA does with those it adds to.
    """
    parts = _parts.get(model)
    if (
        parts is None
        or not all(variable.trainable for variable in parts.trainable)
        or any(variable.trainable for variable in parts.others)
    ):
        parts = ModelParts(model.trainable_variables, model.non_trainable_variables, model_key(model))
        _parts[model] = parts
    return parts


def shapes_key(arrays: dict) -> tuple:
    """The shapes of a dict of arrays."""
    return tuple((name, tuple(array.shape)) for name, array in sorted(arrays.items()))
