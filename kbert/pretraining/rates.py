"""The arithmetic of pre-training, and how much of it this machine can do in a second."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np

from kbert.config import BertConfig
from kbert.model.base import to_numpy
from kbert.model.products import product
from kbert.model.setup import keras
from kbert.training.step import Tensor

# A backward pass takes each product of the forward pass twice: for the gradient of its input and of its weights.
_FORWARD_AND_BACKWARD = 3
# Sides of the matrices: large enough to keep a GPU busy, and 200 MB in all at most.
_SIDES = (512, 1024, 2048, 4096)
# Products one after the other in a measurement, which hide what starting one costs.
_CHAIN = 4
# Measurements of each side, at least and at most, and the seconds after which there are enough.
_REPEATS, _ENOUGH = (3, 20), 0.2
# Seconds that a measurement may be expected to take.
_PATIENCE = 0.3


def flops_per_token(config: BertConfig, length: int, masked_share: float, nsp: bool) -> float:
    """Floating-point operations of training on one token of a row: forward and backward.

    The products of matrices are counted, each multiplication and each addition as one operation, as in Hoffmann et al.
    (2022, "Training Compute-Optimal Large Language Models", appendix F). With D hidden, I intermediate, V vocabulary, L
    layers and T tokens in a row, the forward pass takes for each token

    * in each layer ``8 D²`` for query, key, value and output, ``4 D T`` for the scores and for the mean of the values
      under them, and ``4 D I`` for the feed-forward layer;
    * if it is one to predict ``2 D² + 2 D V``: the transform and the product with the word embeddings;
    * for the next sentence a share ``1 / T`` (a text is about as long as a row) of ``2 D² + 4 D``: pooler and head.

    The backward pass takes twice as much (Kaplan et al., 2020, "Scaling Laws for Neural Language Models", section 2.1).
    Look-ups, LayerNorm, softmax, activations, dropout and the optimiser are left out: they are few operations, though
    they take time.

    Parameters
    ----------
    config : BertConfig
    length : int
        Tokens of a row.
    masked_share : float
        Share of the tokens that are to be predicted.
    nsp : bool
        Whether the next sentence is learned too.

    Examples
    --------
    >>> from kbert import BertConfig
    >>> from kbert.pretraining.rates import flops_per_token
    >>> config = BertConfig.from_size("base")
    >>> round(flops_per_token(config, 128, masked_share=0.15, nsp=True) / 1e6)
    545
    """
    D, T = config.hidden_size, length
    layer = 8 * D**2 + 4 * D * T + 4 * D * config.intermediate_size
    forward = config.num_hidden_layers * layer + masked_share * (2 * D**2 + 2 * D * config.vocab_size)
    if nsp:
        forward += (2 * D**2 + 4 * D) / T
    return _FORWARD_AND_BACKWARD * forward


@functools.cache
def matrix_peak(dtype: str) -> float:
    """The greatest rate of a large matrix product on one device of this backend, in operations a second.

    It is measured, on squares of growing size, and takes about a second. Makers' figures are for chips alone; what they
    do under this power limit, this library and in this number of threads can be less than half of that.

    Parameters
    ----------
    dtype : str
        Of the matrices, such as "bfloat16".

    Examples
    --------
    >>> from kbert.pretraining.rates import matrix_peak
    >>> matrix_peak("float32") > 1e8  # it depends on the machine
    True
    """
    products = _compiled(_chain)
    best, seconds = 0.0, 0.0
    for side in _SIDES:
        # Twice the side is eight times the work.
        if 8 * seconds > _PATIENCE:
            break
        matrix = (np.random.default_rng(0).random((side, side), "float32") - 0.5) * np.float32((12 / side) ** 0.5)
        matrix = keras.ops.cast(keras.ops.convert_to_tensor(matrix), dtype)
        seconds = _seconds_of(products, matrix)
        best = max(best, _CHAIN * 2 * side**3 / seconds)
    return best


def _seconds_of(products: Callable[[Tensor], Tensor], matrix: Tensor) -> float:
    """The shortest of several measurements: what else the machine does only makes them longer."""
    _wait_for(products(matrix))  # compiles
    found: list[float] = []
    while len(found) < _REPEATS[0] or (len(found) < _REPEATS[1] and sum(found) < _ENOUGH):
        began = time.perf_counter()
        _wait_for(products(matrix))
        found.append(time.perf_counter() - began)
    return min(found)


def _chain(matrix: Tensor) -> Tensor:
    """Products of which each needs the one before, so that no compiler leaves any out.

    Entries of variance 1 / side keep their size.
    """
    result = matrix
    for _ in range(_CHAIN):
        result = product(result, matrix)
    return result


def _compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        function = jax.jit(function)
    if backend == "tensorflow":
        import tensorflow as tf

        function = tf.function(function)
    return function


def _wait_for(result: Tensor) -> None:
    to_numpy(keras.ops.cast(result[0, 0], "float32"))
