"""The training step as a function without side effects, as JAX and TensorFlow compile it."""

from collections.abc import Sequence

from kbert.model.setup import keras, ops
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.optimizer import OPTIMIZERS, clip_factor, moments
from kbert.training.step import Tensor


def state_values(model: keras.Model, seed: Tensor, frozen: Sequence[Tensor]) -> list[Tensor]:
    """Values of the model's non-trainable variables.

    Parameters
    ----------
    model : keras.Model
    seed : tensor, shape (2,)
        Each dropout gets a stream of its own under it.
    frozen : sequence of tensor
        The weights that are not trained.
    """
    values_of_frozen = iter(frozen)
    weights = {id(variable) for variable in model.non_trainable_weights}
    values, n_seeds = [], 0
    for variable in model.non_trainable_variables:
        if id(variable) in weights:
            values.append(next(values_of_frozen))
        else:
            stream = ops.stack([seed[0] + ops.cast(n_seeds, seed.dtype), seed[1]])
            values.append(ops.cast(stream, variable.dtype))
            n_seeds += 1
    return values


def updated(
    trainable: Sequence[Tensor],
    moments_1: Sequence[Tensor],
    moments_2: Sequence[Tensor],
    gradients: Sequence[Tensor],
    hyper: Hyperparameters,
    optimizer: str = "adamw",
) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
    """One update of all variables by one of `OPTIMIZERS`.

    Returns
    -------
    values, moments_1, moments_2 : list of tensor
        As they were, where a gradient is not finite.
    found_inf : tensor, a scalar
        0, or NaN where a gradient is not finite: added to a loss, it marks the loss of a skipped update.
    """
    factor, finite = clip_factor(gradients, hyper.loss_scale)
    # At rate 0 no value changes; nor do the moments.
    rates = ops.where(finite, hyper.learning_rates, 0.0)
    values, ms, vs = [], [], []
    for i, (value, m, v, gradient) in enumerate(zip(trainable, moments_1, moments_2, gradients, strict=True)):
        new = moments(ops.cast(gradient, "float32") * factor, m, v)
        m, v = _computed(*(ops.where(finite, after, before) for after, before in zip(new, (m, v), strict=True)))
        value = OPTIMIZERS[optimizer](value, m, v, rates[i], hyper.decays[i], hyper)
        values.append(ops.cast(value, trainable[i].dtype))
        ms.append(m)
        vs.append(v)
    return values, ms, vs, ops.where(finite, 0.0, float("nan"))


def _computed(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The same moments; on a CPU under JAX, they are computed before what depends on them.

    XLA would compute the moments a second time inside the value's update, and for that copy the old ones, whose memory
    the new ones take: a fifth of a step (docs/project/performance_notes.md). A GPU's update is one kernel, which this
    would cut up.
    """
    if keras.backend.backend() == "jax":
        import jax

        if jax.default_backend() == "cpu":
            m, v = jax.lax.optimization_barrier((m, v))
    return m, v
