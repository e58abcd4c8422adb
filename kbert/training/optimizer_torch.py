"""The optimisers on PyTorch: on a CPU, and on a GPU, where the host does not wait for any number.

The formulas are those of `kbert.training.optimizer`, in PyTorch's own kernels, which go through the memory of all
variables once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch.autograd.graph import increment_version
from torch.optim.adamw import adamw

from kbert.training.hyperparameters import BETA_1, BETA_2, CLIP_NORM, EPSILON, Hyperparameters


class Groups(NamedTuple):
    """Parameters that share their learning rate and their decay.

    Attributes
    ----------
    members : list of list of int
        The numbers of each group's parameters.
    decays : list of float
        Of each group.
    """

    members: list[list[int]]
    decays: list[float]


def groups_of(hyper: Hyperparameters) -> Groups:
    """The groups of some hyperparameters."""
    together: dict[tuple[float, float], list[int]] = {}
    for i, pair in enumerate(zip(hyper.learning_rates.tolist(), hyper.decays.tolist(), strict=True)):
        together.setdefault(pair, []).append(i)
    return Groups(list(together.values()), [decay for _, decay in together])


def adamw_all(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    moments_1: list[torch.Tensor],
    moments_2: list[torch.Tensor],
    hyper: Hyperparameters,
) -> float:
    """Clip and update in place and return 0; where a gradient is not finite, change nothing and return NaN.

    The formulas are those of `clip_factor` and `adamw` in `kbert.training.optimizer`.
    """
    factor = _clip_factor(gradients, hyper)
    if factor is None:
        return math.nan
    if factor != 1:
        torch._foreach_mul_(gradients, factor)  # not by the kernel's grad_scale, which Apple's devices pass over
    step = torch.tensor(_updates_before(hyper), dtype=torch.float32, device=parameters[0].device)
    groups = groups_of(hyper)
    for members, decay in zip(groups.members, groups.decays, strict=True):
        some = [[array[i] for i in members] for array in (parameters, gradients, moments_1, moments_2)]
        _kernel([*some, [step.clone() for _ in members]], float(hyper.learning_rates[members[0]]), decay)
    note_change(parameters)
    return 0.0


def _kernel(
    arrays: list[list[torch.Tensor]], rate: float | torch.Tensor, decay: float, **skipping: torch.Tensor
) -> None:
    """PyTorch's kernel on one group: its parameters, gradients, moments, and the updates before, which it counts up."""
    parameters, gradients, moments_1, moments_2, steps = arrays
    adamw(
        parameters,
        list(map(_laid_out_as, parameters, gradients)),
        moments_1,
        moments_2,
        [],
        steps,
        fused=True,
        amsgrad=False,
        beta1=BETA_1,
        beta2=BETA_2,
        lr=rate,
        weight_decay=decay,
        eps=EPSILON,
        maximize=False,
        **skipping,
    )


def note_change(parameters: list[torch.Tensor]) -> None:
    """Count a change of parameters, which PyTorch's kernel does not do: `FusedLayers.for_predicting` goes by it."""
    for parameter in parameters:
        increment_version(parameter)


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
    """The same as `adamw_all` with `lamb` for `adamw`."""
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
        # Not by `if`, for which the host would wait for a GPU once for each matrix.
        ratio = torch.where((length > 0) & (step_length > 0), length / step_length, 1.0) if value.dim() > 1 else 1.0
        value.sub_(rate * ratio * step)
    return 0.0


def _clip_factor(gradients: list[torch.Tensor], hyper: Hyperparameters) -> float | None:
    """What the scaled gradients are to be multiplied by; None where one is not finite."""
    scale = float(hyper.loss_scale)
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))) / scale
    return min(1.0, CLIP_NORM / (norm + 1e-6)) / scale if math.isfinite(norm) else None


# --- On a GPU ---------------------------------------------------------------------------------------------------


class Numbers(NamedTuple):
    """What one step needs besides its batch, on the device.

    Attributes
    ----------
    rates : tensor of float32, shape (n_groups,)
        The learning rate of each of the groups of `groups_of`.
    loss_scale, steps : tensor of float32, scalars
        As in `Hyperparameters`; and the number of updates before, by which AdamW corrects its moments.
    """

    rates: torch.Tensor
    loss_scale: torch.Tensor
    steps: torch.Tensor


def host_numbers(hyper: Hyperparameters, groups: Groups) -> np.ndarray:
    """The numbers of `Numbers` in one array, which one copy takes to the device."""
    rates = [hyper.learning_rates[members[0]] for members in groups.members]
    return np.array([*rates, hyper.loss_scale, _updates_before(hyper)], "float32")


def numbers_in(values: torch.Tensor) -> Numbers:
    """Views of the array that `host_numbers` gave."""
    return Numbers(values[:-2], values[-2], values[-1])


@torch.no_grad()
def adamw_on_device(
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    moments_1: list[torch.Tensor],
    moments_2: list[torch.Tensor],
    groups: Groups,
    numbers: Numbers,
) -> torch.Tensor:
    """Clip and update in place as `adamw_all` does, without waiting for the device. The caller has to `note_change`.

    Returns
    -------
    tensor, scalar
        0; where a gradient is not finite NaN, and nothing was changed.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) / numbers.loss_scale
    finite = torch.isfinite(norm)
    # The kernel divides the gradients by it: 1 / clip_factor.
    divisor = torch.clamp((norm + 1e-6) / CLIP_NORM, min=1.0) * numbers.loss_scale
    found_inf = (~finite).to(torch.float32)
    steps = list(numbers.steps.expand(len(parameters)).clone().unbind())
    for members, rate, decay in zip(groups.members, numbers.rates, groups.decays, strict=True):
        some = [[array[i] for i in members] for array in (parameters, gradients, moments_1, moments_2, steps)]
        _kernel(some, rate, decay, grad_scale=divisor, found_inf=found_inf)
    return torch.zeros_like(norm).masked_fill(~finite, math.nan)


def _updates_before(hyper: Hyperparameters) -> float:
    """How many updates were made before this one, by which PyTorch's kernel corrects the moments; else infinite."""
    left = 1 - float(hyper.correction_2)
    return round(math.log(left) / math.log(BETA_2)) - 1 if left > 0 else math.inf
