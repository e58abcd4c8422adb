"""Which backend's training step is in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbert.forks import require_usable_process
from kbert.training.step import BackendStep
from kbert.weights.runtimes import ExportedModel

if TYPE_CHECKING:
    import keras

# What a GPU needs to be busy for longer than the host takes to start the operations of a batch.
_TOKENS_AT_ONCE = 32_768


def backend_name() -> str:
    """The backend that Keras uses."""
    from kbert.model.setup import keras

    return str(keras.backend.backend())


def takes_any_shape() -> bool:
    """Whether batches of a new shape cost nothing: PyTorch compiles none, but on Apple's GPUs."""
    if backend_name() != "torch":
        return False
    import torch

    return not torch.backends.mps.is_available()


def tokens_at_once(model: keras.Model | ExportedModel) -> int | None:
    """Tokens of a batch in prediction on a GPU or TPU; None elsewhere, for which `kbert.data.batches` has them."""
    if isinstance(model, ExportedModel):  # which needs no Keras
        return None
    from kbert.training.precision import has_accelerator

    if backend_name() == "torch":  # where the model is, which may be a CPU beside a GPU
        from kbert.training.step_torch import device_of

        return _TOKENS_AT_ONCE if device_of(model).type == "cuda" else None
    return _TOKENS_AT_ONCE if has_accelerator() else None


def backend_step() -> BackendStep:
    """The step of the backend in use. An error in a forked process that would wait without end."""
    require_usable_process()
    name = backend_name()
    if name == "jax":
        from kbert.training import step_jax

        return step_jax
    if name == "tensorflow":
        from kbert.training import step_tensorflow

        return step_tensorflow
    from kbert.training import step_torch

    return step_torch


@contextmanager
def able_to_train() -> Iterator[None]:
    """Make and train models: refused in a forked process, done where PyTorch was told to record no gradients.

    ``torch.no_grad`` and ``torch.inference_mode`` hold for all of a thread; tensors that are made in the latter can
    never be trained.
    """
    require_usable_process()
    if backend_name() != "torch":
        yield
        return
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        yield
