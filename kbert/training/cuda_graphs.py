"""A training step on PyTorch on a GPU as one CUDA graph, which the host starts by a single call.

PyTorch runs one operation at a time: a step of BERT-base is some two thousand kernels, and the host takes longer to
start them than a GPU takes to run them, unless the batch is large. A CUDA graph holds all of them. It is recorded once
for each shape of batches, and replayed with new numbers in the same places of memory.

What is recorded may not wait for the device, so nothing in it reads a number: neither a loss nor the optimiser
(`kbert.training.optimizer_torch.adamw_on_device`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from kbert.model.setup import keras
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.optimizer_torch import Groups, Numbers, groups_of, host_numbers, numbers_in
from kbert.warn import warn_user

# Shapes that are recorded; steps of others are run one operation at a time. All batches of a fit but the last of an
# epoch have one shape (`kbert.data.batches.DealtTexts`), and pre-training has one for each phase.
_MOST = 8


# Of a batch on the device and the numbers: the losses.
Step = Callable[[Any, Groups, Numbers], torch.Tensor]


class RecordedSteps:
    """Runs the steps of a training, from the second step of a shape on as a recorded graph.

    Parameters
    ----------
    step : callable
        ``step(batch, groups, numbers)`` trains on a batch of tensors and gives its losses, without waiting for the
        device.
    device : torch.device
    """

    def __init__(self, step: Step, device: torch.device):
        self.step, self.device = step, device
        self.groups: Groups | None = None
        self._graphs: dict[Any, _Graph | None] = {}
        self._pool: Any = None
        self._may_record = os.environ.get("KBERT_CUDA_GRAPHS") != "0"

    def __call__(self, batch: Any, hyper: Hyperparameters) -> torch.Tensor:
        """Train on a batch, a tree of NumPy arrays. The generator of the device must be seeded."""
        groups = groups_of(hyper)
        if groups != self.groups:  # what was recorded has the groups in it
            self.groups = groups
            self._graphs.clear()
        arrays = [*keras.tree.flatten(batch), host_numbers(hyper, groups)]
        shape = tuple((array.shape, array.dtype.str) for array in arrays)
        graph = self._graphs.get(shape)
        if graph is None and shape in self._graphs and self._may_record:
            graph = self._graphs[shape] = self._recorded(batch, arrays)
        if graph is not None:
            return graph.replay(arrays)
        if len(self._graphs) < _MOST:
            self._graphs[shape] = None  # recorded when the shape comes again
        tensors = [on_device(array, self.device) for array in arrays]
        return self._run(batch, tensors)

    def _run(self, batch: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
        assert self.groups is not None
        *parts, numbers = tensors
        return self.step(keras.tree.pack_sequence_as(batch, parts), self.groups, numbers_in(numbers))

    def _recorded(self, batch: Any, arrays: list[np.ndarray]) -> _Graph | None:
        held = [on_device(array, self.device) for array in arrays]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                losses = self._run(batch, held)
        except RuntimeError as error:
            self._may_record = False
            reason = str(error).partition("\n")[0]
            warn_user(
                f"PyTorch could not record the training step as a CUDA graph ({reason}), so training goes on one "
                "operation at a time, which is slower. KBERT_CUDA_GRAPHS=0 does the same without this warning."
            )
            return None
        self._pool = self._pool or graph.pool()
        return _Graph(graph, held, losses)


class _Graph(NamedTuple):
    """A recorded step, where it reads its batch and its numbers, and where it leaves its losses."""

    graph: torch.cuda.CUDAGraph
    held: list[torch.Tensor]
    losses: torch.Tensor

    def replay(self, arrays: list[np.ndarray]) -> torch.Tensor:
        """Run it on a batch."""
        for held, array in zip(self.held, arrays, strict=True):
            held.copy_(pinned(array), non_blocking=True)
        self.graph.replay()
        return self.losses.clone()  # the next replay writes there


def on_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy on the device, for which the host does not wait."""
    return pinned(array).to(device, non_blocking=True)


def pinned(array: np.ndarray) -> torch.Tensor:
    """A copy in memory that the device reads itself; PyTorch does not use it for anything else before that is done."""
    return torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
