"""AdamW in PyTorch's form, and LAMB: what they make of one variable, its moments and its gradient."""

from collections.abc import Sequence

from kbert.model.setup import ops
from kbert.training.hyperparameters import BETA_1, BETA_2, CLIP_NORM, EPSILON, Hyperparameters
from kbert.training.step import Tensor


def clip_factor(gradients: Sequence[Tensor], loss_scale: Tensor) -> tuple[Tensor, Tensor]:
    """What the scaled gradients are to be multiplied by, and whether all of them are finite.

    Their global norm is cut to `CLIP_NORM`.
    """
    squares = sum(ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in gradients)
    norm = ops.sqrt(squares) / loss_scale
    return ops.minimum(1.0, CLIP_NORM / (norm + 1e-6)) / loss_scale, ops.isfinite(norm)


def moments(gradient: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Adam's two moments after a step, without bias correction."""
    return BETA_1 * m + (1 - BETA_1) * gradient, BETA_2 * v + (1 - BETA_2) * gradient * gradient


def adamw(value: Tensor, m: Tensor, v: Tensor, learning_rate: Tensor, decay: Tensor, hyper: Hyperparameters) -> Tensor:
    """One variable after a step, in the form of `torch.optim.AdamW`, from the moments that the step has changed.

    Epsilon is added to the bias-corrected root; Keras adds it before the correction, which at the first step makes it
    32 times as large. Decay is decoupled (Loshchilov and Hutter, 2019).
    """
    return value * (1 - learning_rate * decay) - learning_rate * _direction(m, v, hyper)


def lamb(value: Tensor, m: Tensor, v: Tensor, learning_rate: Tensor, decay: Tensor, hyper: Hyperparameters) -> Tensor:
    """One variable after a step by LAMB, for large batches, from the moments that the step has changed.

    AdamW's step, decay included, made as long as the variable itself (You et al., 2020, algorithm 2, phi being the
    identity), but for biases and LayerNorm, as in the authors' code.
    """
    step = _direction(m, v, hyper) + decay * value
    if len(value.shape) > 1:
        length, step_length = ops.sqrt(ops.sum(ops.square(value))), ops.sqrt(ops.sum(ops.square(step)))
        usable = ops.logical_and(length > 0, step_length > 0)
        step = step * ops.where(usable, length / ops.where(usable, step_length, 1.0), 1.0)
    return value - learning_rate * step


OPTIMIZERS = {"adamw": adamw, "lamb": lamb}


def _direction(m: Tensor, v: Tensor, hyper: Hyperparameters) -> Tensor:
    return (m / hyper.correction_1) / (ops.sqrt(v / hyper.correction_2) + EPSILON)
