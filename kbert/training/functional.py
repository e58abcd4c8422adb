"""The training step as a function without side effects, as JAX and TensorFlow compile it."""

import keras
from keras import ops

from kbert.training.optimizer import OPTIMIZERS, Hyper, clip_factor


def state_values(model: keras.Model, seed, frozen):
    """Values of the model's non-trainable variables.

    Parameters
    ----------
    model : keras.Model
    seed : tensor, shape (2,)
        Each dropout gets a stream of its own under it.
    frozen : list of tensor
        The weights that are not trained.
    """
    frozen = iter(frozen)
    weights = {id(variable) for variable in model.non_trainable_weights}
    values, n_seeds = [], 0
    for variable in model.non_trainable_variables:
        if id(variable) in weights:
            values.append(next(frozen))
        else:
            stream = ops.stack([seed[0] + ops.cast(n_seeds, seed.dtype), seed[1]])
            values.append(ops.cast(stream, variable.dtype))
            n_seeds += 1
    return values


def updated(trainable, moments_1, moments_2, gradients, hyper: Hyper, optimizer: str = "adamw"):
    """One update of all variables by one of `OPTIMIZERS`.

    Returns
    -------
    values, moments_1, moments_2 : list of tensor
        As they were, where a gradient is not finite.
    flaw : tensor, a scalar
        0, or NaN where a gradient is not finite: added to the loss, it tells.
    """
    factor, finite = clip_factor(gradients, hyper.loss_scale)
    values, ms, vs = [], [], []
    for i, (value, m, v, gradient) in enumerate(zip(trainable, moments_1, moments_2, gradients, strict=True)):
        gradient = ops.cast(gradient, "float32") * factor
        new = OPTIMIZERS[optimizer](value, gradient, m, v, hyper.learning_rates[i], hyper.decays[i], hyper)
        kept = [ops.where(finite, after, before) for after, before in zip(new, (value, m, v), strict=True)]
        values.append(ops.cast(kept[0], value.dtype))
        ms.append(kept[1])
        vs.append(kept[2])
    return values, ms, vs, ops.where(finite, 0.0, float("nan"))
