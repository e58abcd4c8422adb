"""Compiled functions, kept from one fit to the next, so that a grid search compiles once."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

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
    """What a model's compiled code depends on: its class, architecture, dtype and which variables are trained."""
    config = {key: value for key, value in model.get_config().items() if key not in ("name", "seed")}
    trainable = "".join("1" if variable.trainable else "0" for variable in model.weights)
    return json.dumps([type(model).__name__, config, trainable], sort_keys=True)


def shapes_key(arrays: dict) -> tuple:
    """The shapes of a dict of arrays."""
    return tuple((name, tuple(array.shape)) for name, array in sorted(arrays.items()))
