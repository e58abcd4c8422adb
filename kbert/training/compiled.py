"""Compiled functions, kept from one fit to the next, so that a grid search compiles once."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

import keras

# Each holds the code of one shape, some megabytes, and no weights. Texts of up to 512 tokens, when they are predicted,
# make 74 shapes at most.
_MOST = 128

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


class ModelParts(NamedTuple):
    """A model's trainable variables, its other ones, and its `model_key`."""

    trainable: list
    others: list
    key: str


def model_parts(model: keras.Model) -> ModelParts:
    """The parts of a model as they are now, in one walk through its layers: each takes a while beside a short text."""
    variables = model.variables
    # Not the model's ``get_config``: to write down a dtype policy, Keras imports TensorFlow wherever that is installed,
    # which takes seconds, and half a gigabyte, under the other backends.
    kinds = [(tuple(variable.shape), variable.dtype, variable.trainable) for variable in variables]
    choices = getattr(model, "choices", {})
    facts = [type(model).__name__, model.config.to_dict(), choices, model.dtype_policy.name, kinds]
    return ModelParts(
        [variable for variable in variables if variable.trainable],
        [variable for variable in variables if not variable.trainable],
        json.dumps(facts, sort_keys=True),
    )


def model_key(model: keras.Model) -> str:
    """What a model's compiled code depends on: its class, architecture, dtypes and which variables are trained."""
    return model_parts(model).key


def shapes_key(arrays: dict) -> tuple:
    """The shapes of a dict of arrays."""
    return tuple((name, tuple(array.shape)) for name, array in sorted(arrays.items()))
