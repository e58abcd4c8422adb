"""Which backend's training step is in use."""

from __future__ import annotations

import keras

from kbert.training.step import BackendStep


def backend_step() -> BackendStep:
    """The step of the backend in use."""
    name = keras.backend.backend()
    if name == "jax":
        from kbert.training import step_jax

        return step_jax
    if name == "tensorflow":
        from kbert.training import step_tensorflow

        return step_tensorflow
    from kbert.training import step_torch

    return step_torch
