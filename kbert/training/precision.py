"""The numbers that a model computes with: which ``dtype`` means which policy of Keras, imported when it is needed."""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING

from kbert.backend import CPU_BFLOAT16
from kbert.processor import instructions

if TYPE_CHECKING:
    import keras

# Weights are float32 under all of them.
DTYPES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}

# Instructions that multiply bfloat16: of Intel and AMD, and of ARM.
_INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "bf16"}
# A product in bfloat16 takes half the time of one in float32 where there are such instructions. Less than this is not
# worth the digits.
LEAST_GAIN = 1.25
# Rows and columns of the product that is timed: that of 64 tokens with the wide layer of a small model.
_ROWS, _INNER, _COLUMNS, _TIMES = 64, 384, 1536, 10


def dtype_policy(dtype: str) -> str:
    """The Keras dtype policy of a ``dtype`` parameter.

    Parameters
    ----------
    dtype : {"auto", "float32", "bfloat16", "float16"}
        "auto" is bfloat16 on a GPU or TPU, and on a CPU where that is faster (`cpu_gains_by_bfloat16`), else float32.
    """
    if dtype == "auto":
        dtype = "bfloat16" if has_accelerator() or cpu_gains_by_bfloat16() else "float32"
    return DTYPES[dtype]


def in_float32(model: keras.Model) -> keras.Model:
    """The model, or a copy that computes in float32 where it does not; the weights are float32 under every policy."""
    if model.dtype_policy.name == "float32":
        return model
    from kbert.model.encoder import skip_initialisation

    with skip_initialisation():
        copy = type(model).from_config({**model.get_config(), "dtype": "float32"})
    for variable, original in zip(copy.weights, model.weights, strict=True):
        variable.assign(original.value)
    return copy


def why_auto() -> str:
    """Why "auto" is what it is, for people."""
    if has_accelerator():
        return "on a GPU or TPU"
    by_variable = bool(os.environ.get(CPU_BFLOAT16))
    if not by_variable and not _has_instructions():
        return "on a CPU that has no instructions for bfloat16"
    from kbert.model.setup import keras

    if keras.backend.backend() != "torch":
        return f"on a CPU, where {keras.backend.backend()} does not use its instructions for bfloat16"
    if by_variable:
        return f"on a CPU, by {CPU_BFLOAT16}"
    return f"on a CPU, whose bfloat16 is {bfloat16_gain():.1f} times as fast"


def cpu_gains_by_bfloat16() -> bool:
    """Whether the backend computes faster in bfloat16 than in float32 on this CPU.

    On PyTorch that is found out once in a process: from the CPU's instructions, and where it has those for bfloat16, by
    timing a product. Products of JAX and TensorFlow are no faster in bfloat16 on CPUs
    (docs/project/performance_notes.md). The environment variable KBERT_CPU_BFLOAT16 (0 or 1) goes before.
    """
    from kbert.model.setup import keras

    if keras.backend.backend() != "torch":
        return False
    chosen = os.environ.get(CPU_BFLOAT16)
    if chosen:
        return chosen != "0"
    return _has_instructions() and bfloat16_gain() > LEAST_GAIN


def _has_instructions() -> bool:
    """Whether the CPU multiplies bfloat16, as far as the system tells."""
    return bool(instructions() & _INSTRUCTIONS)


@functools.cache
def bfloat16_gain() -> float:
    """How many times as fast as in float32 PyTorch multiplies in bfloat16 here: the best of a few tries of each.

    One thread computes. Several would wait for each other, and where other processes keep the CPU busy, that takes
    longer than the product: the same machine would find another answer from one process to the next.
    """
    import torch
    from threadpoolctl import threadpool_limits

    from kbert.model.products_torch import product_without_grad

    def seconds(dtype: torch.dtype) -> float:
        x, kernel = torch.ones((_ROWS, _INNER), dtype=dtype), torch.ones((_INNER, _COLUMNS), dtype=dtype)
        found = []
        for _ in range(1 + _TIMES):  # the first one prepares
            start = time.perf_counter()
            product_without_grad(x, kernel)
            found.append(time.perf_counter() - start)
        return min(found[1:])

    with torch.no_grad(), threadpool_limits(1, user_api="openmp"):
        return seconds(torch.float32) / seconds(torch.bfloat16)


def has_accelerator() -> bool:
    """Whether the backend computes on a GPU or TPU by default."""
    from kbert.model.setup import keras

    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return bool(jax.default_backend() != "cpu")
    if backend == "torch":
        import torch

        return bool(torch.cuda.is_available())
    import tensorflow as tf

    return any(device.device_type in ("GPU", "TPU") for device in tf.config.list_logical_devices())
