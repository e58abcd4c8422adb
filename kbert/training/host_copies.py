"""What the device computed, brought to the host without waiting for what it was asked for since.

On JAX the host waits for an array alone. On PyTorch a copy from a GPU takes its turn after all that the GPU was asked
for before the copy. So copies of what is read later are asked for at once, into memory that the GPU writes itself, and
only the reading waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kbert.model.base import to_numpy
from kbert.model.setup import keras

# Bytes of the largest copy that is asked for at once: PyTorch never gives such memory back to the system.
_LARGEST = 8 << 20


def host_copy(tensor: Any) -> Callable[[], np.ndarray]:
    """Ask for a copy of a tensor. What is given returns it, and waits for nothing else, unless the tensor is large."""
    if not _is_on_gpu(tensor) or tensor.nbytes > _LARGEST:
        return partial(to_numpy, tensor)
    import torch

    with torch.cuda.device(tensor.device):
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor.detach(), non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()

    def read() -> np.ndarray:
        copied.synchronize()
        return to_numpy(copy)

    return read


def as_numbers(scalars: Sequence[Any]) -> np.ndarray:
    """Scalars of the backend, or numbers, in an array of float64: those on a GPU of PyTorch's by one copy."""
    on_gpu = [i for i, scalar in enumerate(scalars) if _is_on_gpu(scalar)]
    values: dict[int, Any] = dict(enumerate(scalars))
    if on_gpu:
        import torch

        values |= zip(on_gpu, to_numpy(torch.stack([scalars[i].detach().float() for i in on_gpu])), strict=True)
    return np.array([float(value) for value in values.values()], "float64")


def _is_on_gpu(tensor: Any) -> bool:
    return keras.backend.backend() == "torch" and bool(getattr(tensor, "is_cuda", False))
