"""A training step on PyTorch on a GPU as one CUDA graph, which the host starts by a single call.

PyTorch runs one operation at a time: a step of BERT-base is many hundred kernels, and the host takes longer to
start them than a GPU takes to run them, unless the batch is large. A CUDA graph holds all of them. It is recorded once
for each shape of batches, and replayed with new numbers in the same places of memory.

What is recorded may not wait for the device, so nothing in it reads a number: neither a loss nor the optimiser
(`kbert.training.optimizer_torch.adamw_on_device`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
# The step of a shape that is recorded, counted from 1.
_RECORDED_AT = 3

# Of a batch on the device and the numbers: the losses.
Step = Callable[[Any, Groups, Numbers], torch.Tensor]


class RecordedSteps:
    """Runs the steps of a training, from the third step of a shape on as a recorded graph.

    The last batch of an epoch, which may be smaller, is not worth recording in a fit of few epochs. What is recorded
    stays as it was: a layer's dropout rate, or what is trained, cannot be changed during a fit.

    It does not hold the step, whose trainer holds it: the memory of a cycle would be free only some time after a fit.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.groups: Groups | None = None
        self._graphs: dict[Any, _Graph] = {}
        self._seen: dict[Any, int] = {}
        self._pool: Any = None
        self._may_record = os.environ.get("KBERT_CUDA_GRAPHS") != "0"

    def __call__(self, step: Step, batch: Any, hyper: Hyperparameters) -> torch.Tensor:
        """Train on a batch.

        Parameters
        ----------
        step : callable
            ``step(batch, groups, numbers)`` trains on a batch of tensors and gives its losses, without waiting for the
            device. It is the same at every call.
        batch : tree of ndarray
            Or of tensors on the device.
        hyper : Hyperparameters
            Its seed is not read: the generator of the device must be seeded.
        """
        groups = groups_of(hyper)
        if groups != self.groups:  # what was recorded has the groups in it
            self.groups = groups
            self._graphs.clear()
            self._pool = None
        arrays = [*keras.tree.flatten(batch), host_numbers(hyper, groups)]
        shape = tuple((tuple(array.shape), str(array.dtype)) for array in arrays)
        self._seen[shape] = self._seen.get(shape, 0) + 1
        if shape not in self._graphs and self._seen[shape] >= _RECORDED_AT and len(self._graphs) < _MOST:
            if self._may_record and (graph := self._recorded(step, batch, arrays)) is not None:
                self._graphs[shape] = graph
        if shape in self._graphs:
            return self._graphs[shape].replay(arrays)
        tensors = [on_device(array, self.device) for array in arrays]
        return self._run(step, batch, tensors)

    def _run(self, step: Step, batch: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
        assert self.groups is not None
        *parts, numbers = tensors
        return step(keras.tree.pack_sequence_as(batch, parts), self.groups, numbers_in(numbers))

    def _recorded(self, step: Step, batch: Any, arrays: list[np.ndarray]) -> _Graph | None:
        """The graph of a step; None where the device has not enough memory for it."""
        held = [on_device(array, self.device) for array in arrays]
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                _without_collecting(),
                torch.cuda.stream(torch.cuda.current_stream()),  # which is the one again, whatever happens
                torch.cuda.graph(graph, self._pool, torch.cuda.Stream(self.device), capture_error_mode="thread_local"),
            ):
                losses = self._run(step, batch, held)
        except torch.OutOfMemoryError:
            self._may_record = False
            warn_user(
                "The GPU has not enough memory to record the training step as a CUDA graph, so training goes on one "
                "operation at a time, which is slower. A smaller batch_size may help."
            )
            return None
        except RuntimeError as error:
            # PyTorch may be left in the middle of recording.
            raise RuntimeError(
                "PyTorch could not record the training step as a CUDA graph. Start a new process with the environment "
                "variable KBERT_CUDA_GRAPHS=0, which trains one operation at a time. Something in the step may wait "
                "for the GPU: a loss, a layer or a callback of your own."
            ) from error
        self._pool = self._pool or graph.pool()
        return _Graph(graph, held, losses)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Collect what is to be collected before and not within this context, where no other graph may be destroyed."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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


def on_device(array: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device, for which the host does not wait."""
    return pinned(array).to(device, non_blocking=True, copy=True)


def pinned(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    """A copy in memory that the device reads itself; PyTorch does not use it for anything else before that is done."""
    if isinstance(array, torch.Tensor):  # on the device already
        return array
    return torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
