"""AdamW in PyTorch's form, LAMB, and the linear schedule with warm-up."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from keras import ops

# Devlin et al. (2018), appendix A.2, and the original code's optimization.py.
BETA_1, BETA_2, EPSILON, CLIP_NORM = 0.9, 0.999, 1e-6, 1.0


class Hyper(NamedTuple):
    """What a step of the optimiser needs besides gradients: arguments of the compiled step, so that none compiles anew.

    Attributes
    ----------
    learning_rates, decays : ndarray of float32, shape (n_variables,)
        Of each trainable variable.
    correction_1, correction_2 : float32
        1 - beta ** t, or 1 without bias correction.
    loss_scale : float32
        The loss is multiplied by it before the gradients are taken, and they are divided by it: keeps small float16
        gradients from becoming zero. 1 in every other dtype.
    seed : ndarray of uint32, shape (2,)
        Of the step's dropout.
    """

    learning_rates: np.ndarray
    decays: np.ndarray
    correction_1: np.float32
    correction_2: np.float32
    loss_scale: np.float32
    seed: np.ndarray


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up to the learning rate, then linear decay to zero at the last step.

    Parameters
    ----------
    learning_rate : float
    n_steps : int
        Updates in all.
    warmup : float or int
        A float is a share of the steps, an int a number of steps.
    """

    learning_rate: float
    n_steps: int
    warmup: float | int = 0.1

    def __call__(self, step: int) -> float:
        """The rate of update ``step``, counted from 0."""
        n_warmup = round(self.warmup * self.n_steps) if isinstance(self.warmup, float) else self.warmup
        # The first update is not wasted at rate zero, and neither is the last.
        if step < n_warmup:
            return self.learning_rate * (step + 1) / n_warmup
        return self.learning_rate * max(0.0, (self.n_steps - step) / max(1, self.n_steps - n_warmup))


def decays_of(model, weight_decay: float) -> list[float]:
    """The decay of each trainable variable: none on biases and LayerNorm, which are vectors; tables are decayed."""
    return [weight_decay if len(variable.shape) > 1 else 0.0 for variable in model.trainable_variables]


def clip_factor(gradients, loss_scale):
    """What the scaled gradients are to be multiplied by, and whether all of them are finite.

    Their global norm is cut to `CLIP_NORM`.
    """
    squares = sum(ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in gradients)
    norm = ops.sqrt(squares) / loss_scale
    return ops.minimum(1.0, CLIP_NORM / (norm + 1e-6)) / loss_scale, ops.isfinite(norm)


def moments(gradient, m, v):
    """Adam's two moments after a step, without bias correction."""
    return BETA_1 * m + (1 - BETA_1) * gradient, BETA_2 * v + (1 - BETA_2) * gradient * gradient


def adamw(value, m, v, learning_rate, decay, hyper: Hyper):
    """One variable after a step, in the form of `torch.optim.AdamW`, from the moments that the step has changed.

    Epsilon is added to the bias-corrected root; Keras adds it before the correction, which at the first step makes it
    32 times as large. Decay is decoupled (Loshchilov and Hutter, 2019).
    """
    return value * (1 - learning_rate * decay) - learning_rate * _direction(m, v, hyper)


def lamb(value, m, v, learning_rate, decay, hyper: Hyper):
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


def _direction(m, v, hyper: Hyper):
    return (m / hyper.correction_1) / (ops.sqrt(v / hyper.correction_2) + EPSILON)
