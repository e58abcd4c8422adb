"""One training step and one prediction on PyTorch: eager, on the model's own parameters."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import increment_version
from torch.optim.adamw import adamw

from kbert.forks import LockOfProcess
from kbert.model.setup import keras
from kbert.training.compiled import model_variables
from kbert.training.fused_layers import FusedLayers
from kbert.training.hyperparameters import BETA_1, BETA_2, CLIP_NORM, EPSILON, Hyperparameters
from kbert.training.step import Arrays, Differentiator, Gradients, Loss, Predictor, Tensor

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

    def __init__(self, model: keras.Model, loss: Loss, optimizer: str = "adamw"):
        self.model, self.loss = model, loss
        self.update_all = {"adamw": adamw_all, "lamb": lamb_all}[optimizer]
        self.parameters = [variable.value for variable in model.trainable_variables]
        FusedLayers.forget(model)
        self.layers = FusedLayers(model)
        self.moments_1 = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.moments_2 = [torch.zeros_like(parameter) for parameter in self.parameters]

    def train(self, inputs: dict[str, np.ndarray], targets: Arrays, weights: Arrays, hyper: Hyperparameters) -> Tensor:
        """Update on one batch; returns its loss, NaN where the update was skipped."""
        gradients, loss = self._gradients(inputs, targets, weights, hyper)
        return loss + self.update(gradients, hyper)

    def accumulate(
        self,
        inputs: dict[str, np.ndarray],
        targets: Arrays,
        weights: Arrays,
        hyper: Hyperparameters,
        gradients: Gradients | None = None,
    ) -> tuple[Gradients, Tensor]:
        """Add one batch's gradients to ``gradients``; returns them and the batch's loss."""
        new, loss = self._gradients(inputs, targets, weights, hyper)
        if gradients is None:
            return new, loss
        torch._foreach_add_(gradients, new)
        return gradients, loss

    @torch.no_grad()
    def update(self, gradients: Gradients, hyper: Hyperparameters) -> Tensor:
        """Update with gradients, which it may overwrite; returns 0, or NaN where one is not finite."""
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

    def _gradients(
        self, inputs: dict[str, np.ndarray], targets: Arrays, weights: Arrays, hyper: Hyperparameters
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        inputs, targets, weights = _on_device((inputs, targets, weights))
        with _seeded(hyper.seed, self.parameters[0].device):
            self.layers.cast()
            with self.layers.in_use():
                outputs = self.model(inputs, training=True)
            losses = self.loss(outputs, targets, weights)
        scaled = losses.ravel()[0] * float(hyper.loss_scale)
        return self.layers.gradients(scaled, self.parameters), losses.detach()


def adamw_all(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    moments_1: list[torch.Tensor],
    moments_2: list[torch.Tensor],
    hyper: Hyperparameters,
) -> float:
    """Clip and update in place and return 0; where a gradient is not finite, change nothing and return NaN.

    The formulas of `clip_factor` and `adamw` in `kbert.training.optimizer`, in PyTorch's own kernel, which goes through
    the memory of all variables once.
    """
    factor = _clip_factor(gradients, hyper)
    if factor is None:
        return math.nan
    if factor != 1:
        torch._foreach_mul_(gradients, factor)  # not by the kernel's grad_scale, which Apple's devices pass over
    # The kernel corrects the bias by the number of steps before, which the correction tells.
    left = 1 - float(hyper.correction_2)
    before = math.log(left) / math.log(BETA_2) - 1 if left > 0 else math.inf
    step = torch.tensor(before, dtype=torch.float32, device=parameters[0].device)
    together: dict[tuple[float, float], list[int]] = {}
    for i, pair in enumerate(zip(hyper.learning_rates.tolist(), hyper.decays.tolist(), strict=True)):
        together.setdefault(pair, []).append(i)
    for (rate, decay), members in together.items():
        adamw(
            [parameters[i] for i in members],
            [_laid_out_as(parameters[i], gradients[i]) for i in members],
            [moments_1[i] for i in members],
            [moments_2[i] for i in members],
            [],
            [step.clone() for _ in members],  # counted up in each
            fused=True,
            amsgrad=False,
            beta1=BETA_1,
            beta2=BETA_2,
            lr=rate,
            weight_decay=decay,
            eps=EPSILON,
            maximize=False,
        )
    for parameter in parameters:
        increment_version(parameter)  # which the kernel does not do: `FusedLayers.for_predicting` goes by it
    return 0.0


def _laid_out_as(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient in the order in memory that its parameter has, in which the kernel goes through both."""
    return gradient if gradient.stride() == parameter.stride() else torch.empty_like(parameter).copy_(gradient)


def lamb_all(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    moments_1: list[torch.Tensor],
    moments_2: list[torch.Tensor],
    hyper: Hyperparameters,
) -> float:
    """The same with `lamb` for `adamw`."""
    factor = _clip_factor(gradients, hyper)
    if factor is None:
        return math.nan
    torch._foreach_mul_(gradients, factor)
    torch._foreach_lerp_(moments_1, gradients, 1 - BETA_1)
    torch._foreach_mul_(moments_2, BETA_2)
    torch._foreach_addcmul_(moments_2, gradients, gradients, 1 - BETA_2)
    roots = torch._foreach_div(moments_2, float(hyper.correction_2))
    torch._foreach_sqrt_(roots)
    torch._foreach_add_(roots, EPSILON)
    steps = torch._foreach_div(torch._foreach_div(moments_1, roots), float(hyper.correction_1))
    torch._foreach_add_(steps, torch._foreach_mul(parameters, hyper.decays.tolist()))
    lengths, step_lengths = torch._foreach_norm(parameters), torch._foreach_norm(steps)
    for value, step, length, step_length, rate in zip(
        parameters, steps, lengths, step_lengths, hyper.learning_rates.tolist(), strict=True
    ):
        ratio = length / step_length if value.dim() > 1 and length > 0 and step_length > 0 else 1.0
        value.sub_(rate * ratio * step)
    return 0.0


def _clip_factor(gradients: list[torch.Tensor], hyper: Hyperparameters) -> float | None:
    """What the scaled gradients are to be multiplied by; None where one is not finite."""
    scale = float(hyper.loss_scale)
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))) / scale
    return min(1.0, CLIP_NORM / (norm + 1e-6)) / scale if math.isfinite(norm) else None


def predictor(model: keras.Model, devices: Sequence[Any] = ()) -> Predictor:
    """A function from a batch's inputs to the model's outputs. Any number of threads may call it.

    It computes where the model is, which is one device: ``devices`` are none here.
    """
    layers = FusedLayers.for_predicting(model)

    def predict(inputs: dict[str, np.ndarray]) -> Any:
        with torch.no_grad(), layers.in_use():
            return model(_on_device(inputs), training=False)

    return predict


def differentiator(model: keras.Model, name: str) -> Differentiator:
    """The derivative of a model's outputs by one of its inputs; threads as for `predictor`."""
    parts = model_variables(model)
    # Without their own derivatives: `kbert.model.products_torch` would compute these too, a third of the time.
    weights = [[variable.value.detach() for variable in part] for part in (parts.trainable, parts.others)]

    def differentiate(inputs: dict[str, np.ndarray], chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        # Also where PyTorch was told to record no gradients, which a user may do around all that only predicts.
        with torch.inference_mode(False), torch.enable_grad():
            given, chosen = _on_device((inputs, chosen))
            given[name] = given[name].detach().requires_grad_()
            sums = (model.stateless_call(*weights, given, training=False)[0] * chosen).sum(-1)
            (gradient,) = torch.autograd.grad(sums.sum(), [given[name]])
        return sums.detach(), gradient

    return differentiate


def _on_device(arrays: Any) -> Any:
    return keras.tree.map_structure(keras.ops.convert_to_tensor, arrays)


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
