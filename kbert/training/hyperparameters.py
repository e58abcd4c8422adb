"""The numbers that a training step needs besides the batch: learning rates, decays, corrections, loss scale, seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import keras

# Devlin et al. (2018), appendix A.2, and the original code's optimization.py.
BETA_1, BETA_2, EPSILON, CLIP_NORM = 0.9, 0.999, 1e-6, 1.0


class Hyperparameters(NamedTuple):
    """What one step needs besides its batch.

    They are arguments of the compiled step, so that new values need no new compilation.

    Attributes
    ----------
    learning_rates, decays : ndarray of float32, shape (n_variables,)
        Of each trainable variable.
    correction_1, correction_2 : float32
        1 - beta ** t at update t, or 1 without bias correction.
    loss_scale : float32
        The loss is multiplied by it before the gradients are taken, and they are divided by it: this keeps small
        float16 gradients from becoming zero. 1 under every other dtype.
    seed : ndarray of uint32, shape (2,)
        Of the dropout of this batch.
    """

    learning_rates: np.ndarray
    decays: np.ndarray
    correction_1: np.float32
    correction_2: np.float32
    loss_scale: np.float32
    seed: np.ndarray


class HyperparameterFactory:
    """Makes the hyperparameters of each step of a run.

    Parameters
    ----------
    model : keras.Model
        The model that is trained.
    weight_decay : float
        Decay of matrices and tables (`decays_of`).
    layer_rates : sequence of float, optional
        A factor on the learning rate of each trainable variable (`layer_rates`); 1 by default.
    bias_correction : bool, default=True
        Whether Adam's moments are corrected for their start at zero.
    seed : int, default=0
        Of the dropout of all steps.
    """

    def __init__(
        self,
        model: keras.Model,
        weight_decay: float,
        layer_rates: Sequence[float] | None = None,
        bias_correction: bool = True,
        seed: int = 0,
    ):
        self.decays = np.asarray(decays_of(model, weight_decay), "float32")
        self.layer_rates = np.asarray(layer_rates or [1.0] * len(self.decays), "float32")
        self.bias_correction, self.seed = bias_correction, seed

    def __call__(self, learning_rate: float, update: int, batch: int, loss_scale: float) -> Hyperparameters:
        """Those of one step.

        Parameters
        ----------
        learning_rate : float
            Of the schedule.
        update, batch : int
            How many updates were made and how many batches were seen before. With gradient accumulation these differ.
        loss_scale : float
        """
        t = update + 1
        correction_1, correction_2 = (1 - BETA_1**t, 1 - BETA_2**t) if self.bias_correction else (1.0, 1.0)
        return Hyperparameters(
            np.float32(learning_rate) * self.layer_rates,
            self.decays,
            np.float32(correction_1),
            np.float32(correction_2),
            np.float32(loss_scale),
            np.random.SeedSequence([self.seed, batch]).generate_state(2, "uint32"),
        )


def decays_of(model: keras.Model, weight_decay: float) -> list[float]:
    """The decay of each trainable variable: none on biases and LayerNorm, which are vectors; tables are decayed."""
    return [weight_decay if len(variable.shape) > 1 else 0.0 for variable in model.trainable_variables]


def layer_rates(model: keras.Model, layer_decay: float) -> list[float]:
    """The factor on the learning rate of each trainable variable.

    1 in the head and the pooler, ``layer_decay`` in the last transformer layer, ``layer_decay ** 2`` in the one before
    it, and so on down to the embeddings (Howard and Ruder, 2018; Zhang et al., 2021).
    """
    encoder = model.encoder
    depth = len(encoder.transformer_layers)
    factors = {id(variable): layer_decay ** (depth + 1) for variable in encoder.embeddings.weights}
    for i, layer in enumerate(encoder.transformer_layers):
        factors |= {id(variable): layer_decay ** (depth - i) for variable in layer.weights}
    return [factors.get(id(variable), 1.0) for variable in model.trainable_variables]
