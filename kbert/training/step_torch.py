"""One training step and one prediction on PyTorch, on the model's own parameters.

On a GPU the steps of AdamW on one batch are recorded (`kbert.training.cuda_graphs`).
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from kbert.forks import LockOfProcess
from kbert.model.attention_torch import text_bounds, texts_at
from kbert.model.layers import outer
from kbert.model.setup import keras
from kbert.training.compiled import model_variables
from kbert.training.cuda_graphs import RecordedSteps, on_device
from kbert.training.fused_layers import FusedLayers
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.optimizer_torch import (
    Groups,
    Numbers,
    adamw_all,
    adamw_on_device,
    groups_of,
    host_numbers,
    lamb_all,
    note_change,
    numbers_in,
)
from kbert.training.step import Differentiator, Gradients, Loss, Predictor, StepBatch, Tensor

_generator_lock = LockOfProcess()


class Trainer:
    """Holds a model's moments while it is trained. The methods are those of `kbert.training.step.Trainer`.

    Parameters
    ----------
    model : keras.Model
    loss : callable
        ``loss(outputs, targets, weights)``: a scalar, or a vector whose first number is minimised and all of which are
        given back.
    optimizer : {"adamw", "lamb"}
    """

    # Whether a CUDA graph can hold a step: not where other processes take part in it.
    can_be_recorded = True

    def __init__(self, model: keras.Model, loss: Loss, optimizer: str = "adamw"):
        self.model, self.loss = model, loss
        self.update_all = {"adamw": adamw_all, "lamb": lamb_all}[optimizer]
        self.parameters = [variable.value for variable in model.trainable_variables]
        self.device = self.parameters[0].device
        self.never_waits = self.device.type == "cuda" and optimizer == "adamw"
        self.recorded = RecordedSteps(self.device) if self.never_waits and self.can_be_recorded else None
        FusedLayers.forget(model)
        self.layers = FusedLayers(model)
        self.moments_1 = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.moments_2 = [torch.zeros_like(parameter) for parameter in self.parameters]

    def train(self, batch: StepBatch, hyper: Hyperparameters) -> Tensor:
        """Update on one batch; returns its loss, NaN where the update was skipped."""
        if self.recorded is not None:
            with_bounds = (batch, *_bounds_of(batch.inputs))
            with _current(self.device), _seeded(hyper.seed, self.device):
                losses = self.recorded(self._step, with_bounds, hyper)
            note_change(self.parameters)
            return losses
        gradients, loss = self._gradients(batch, hyper)
        return loss + self.update(gradients, hyper)

    def accumulate(
        self, batch: StepBatch, hyper: Hyperparameters, gradients: Gradients | None = None
    ) -> tuple[Gradients, Tensor]:
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        new, loss = self._gradients(batch, hyper)
        if gradients is None:
            return new, loss
        torch._foreach_add_(gradients, new)
        return gradients, loss

    @torch.no_grad()
    def update(self, gradients: Gradients, hyper: Hyperparameters) -> Tensor:
        """Update with gradients, which it may overwrite; returns 0, or NaN where one is not finite."""
        if self.never_waits:
            groups = groups_of(hyper)
            numbers = numbers_in(on_device(host_numbers(hyper, groups), self.device))
            skipped = self._updated(gradients, groups, numbers)
            note_change(self.parameters)
            return skipped
        return self.update_all(self.parameters, list(gradients), self.moments_1, self.moments_2, hyper)

    def write_back(self) -> None:
        """Nothing to do: the model's own parameters were trained."""

    def state(self) -> list[np.ndarray]:
        """Weights and moments, for a checkpoint."""
        parts = (self.parameters, self.moments_1, self.moments_2)
        return [value.detach().cpu().numpy().copy() for part in parts for value in part]

    @torch.no_grad()
    def restore(self, arrays: list[np.ndarray]) -> None:
        """Take back what `state` gave."""
        for value, array in zip([*self.parameters, *self.moments_1, *self.moments_2], arrays, strict=True):
            value.copy_(torch.from_numpy(array))

    def _step(self, batch: tuple[Any, ...], groups: Groups, numbers: Numbers) -> torch.Tensor:
        """`train` on a GPU, reading no number back. A `StepBatch` and perhaps `text_bounds` are there already."""
        with texts_at(*batch[1:]):
            gradients, losses = self._derivatives(batch[0], numbers.loss_scale)
        return losses + self._updated(gradients, groups, numbers)

    def _updated(self, gradients: Gradients, groups: Groups, numbers: Numbers) -> torch.Tensor:
        return adamw_on_device(self.parameters, list(gradients), self.moments_1, self.moments_2, groups, numbers)

    def _gradients(self, batch: StepBatch, hyper: Hyperparameters) -> tuple[list[torch.Tensor], torch.Tensor]:
        bounds = _bounds_on(self.device, batch.inputs)
        with _current(self.device), _seeded(hyper.seed, self.device), texts_at(*bounds):
            return self._derivatives(_on_device(batch, self.device), float(hyper.loss_scale))

    def _derivatives(
        self, batch: StepBatch, loss_scale: float | torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The gradients of the loss on a batch of tensors, times the loss scale; and the losses."""
        self.layers.cast()
        with self.layers.in_use():
            outputs = self.model(batch.inputs, training=True)
        losses = self.loss(outputs, batch.targets, batch.weights)
        return self.layers.gradients(losses.ravel()[0] * loss_scale, self.parameters), losses.detach()


def predictor(model: keras.Model, devices: Sequence[Any] = ()) -> Predictor:
    """A function from a batch's inputs to the model's outputs. Any number of threads may call it.

    It computes where the model is, which is one device: ``devices`` are none here.
    """
    layers = FusedLayers.for_predicting(model)
    device = device_of(model)

    def predict(inputs: dict[str, np.ndarray]) -> Any:
        with _current(device), torch.no_grad(), layers.in_use(), texts_at(*_bounds_on(device, inputs)):
            return outer(model, _on_device(inputs, device), training=False)

    return predict


def differentiator(model: keras.Model, name: str) -> Differentiator:
    """The derivative of a model's outputs by one of its inputs; threads as for `predictor`."""
    parts = model_variables(model)
    # Without their own derivatives: `kbert.model.products_torch` would compute these too, a third of the time.
    weights = [[variable.value.detach() for variable in part] for part in (parts.trainable, parts.others)]

    def differentiate(inputs: dict[str, np.ndarray], chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        # Also where PyTorch was told to record no gradients, which a user may do around all that only predicts.
        with torch.inference_mode(False), torch.enable_grad():
            given, chosen = _on_device((inputs, chosen), device_of(model))
            given[name] = given[name].detach().requires_grad_()
            sums = (model.stateless_call(*weights, given, training=False)[0] * chosen).sum(-1)
            (gradient,) = torch.autograd.grad(sums.sum(), [given[name]])
        return sums.detach(), gradient

    return differentiate


def device_of(model: keras.Model) -> torch.device:
    """Where a model is. Not by ``model.weights``, which goes through all layers."""
    return next(model.parameters()).device


def _bounds_of(inputs: dict[str, Any]) -> list[np.ndarray]:
    """`text_bounds` of a batch; none where its texts are not told, or not by the host."""
    text_ids = inputs.get("text_ids")
    return [text_bounds(text_ids)] if isinstance(text_ids, np.ndarray) else []


def _bounds_on(device: torch.device, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """`_bounds_of`, on a GPU; none on other devices, which do not read them."""
    return [on_device(bounds, device) for bounds in _bounds_of(inputs)] if device.type == "cuda" else []


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Within this, a GPU is the current one: graphs and Triton's kernels go there, wherever their arrays are."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _on_device(arrays: Any, device: torch.device) -> Any:
    """Arrays as tensors on the device of the model; a GPU goes on with what it was asked for before."""

    def moved(array: Any) -> torch.Tensor:
        if device.type == "cuda" and isinstance(array, np.ndarray) and array.dtype != np.uint32:
            return on_device(array, device)
        tensor: torch.Tensor = keras.ops.convert_to_tensor(array)
        return tensor

    return keras.tree.map_structure(moved, arrays)


@contextlib.contextmanager
def _seeded(seed: np.ndarray, device: torch.device) -> Iterator[None]:
    """Seed the generator of a device, which PyTorch's dropout draws from, and leave it afterwards as it was.

    One fit at a time, where several threads fit: the generator is the process's. `torch.manual_seed` would seed those
    of all kinds of devices, and keep a call with its stack for each kind that was not used yet.
    """
    number = int(seed[0]) << 32 | int(seed[1])
    with _generator_lock, torch.random.fork_rng([device] if device.type == "cuda" else []):
        if device.type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(number)
        elif device.type == "cpu":
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)
        yield
