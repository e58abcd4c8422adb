"""Several devices: Keras's and TensorFlow's own strategies, and the training step under them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from kbert.errors import KbertWarning
from kbert.training.backends import backend_name, backend_step
from kbert.training.step import Loss, Trainer
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras


def all_devices() -> Any:
    """A distribution over all the devices that the backend sees, of all processes.

    Returns
    -------
    DataParallel, ModelParallel, MirroredStrategy, ProcessGroup or None
        The one in force (``keras.distribution.set_distribution``, ``with strategy.scope()``,
        ``torch.distributed.init_process_group``), else on JAX and TensorFlow a new one; None where there is one device.
        On PyTorch a process has one: a warning tells of others that are left unused.
    """
    backend = backend_name()
    if backend == "jax":
        import jax

        from kbert.model.setup import keras

        if (current := keras.distribution.distribution()) is not None:
            return current
        return keras.distribution.DataParallel() if jax.device_count() > 1 else None
    if backend == "tensorflow":
        import tensorflow as tf

        if tf.distribute.has_strategy():
            return tf.distribute.get_strategy()
        return tf.distribute.MirroredStrategy() if len(tf.config.list_logical_devices("GPU")) > 1 else None
    if (group := _process_group()) is None:
        _tell_unused()
    return group


def _tell_unused() -> None:
    """Warn that this process uses one of several GPUs, and that others take processes of their own."""
    import torch

    if (n := torch.cuda.device_count()) > 1:
        warn_user(
            f"PyTorch sees {n} GPUs, and training uses one of them. To use all, start the script with torchrun "
            f"--nproc-per-node {n}, and call torch.distributed.init_process_group() in it (docs: Several devices). If "
            "one is enough, set distribution=None.",
            KbertWarning,
        )


def _process_group() -> Any:
    """That of PyTorch's processes which train together; None where there is one process, and on other backends."""
    if backend_name() != "torch":
        return None
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.group.WORLD if distributed.get_world_size() > 1 else None


def _of_keras() -> tuple[type, type]:
    """Those of Keras, which JAX takes."""
    from kbert.model.setup import keras

    return keras.distribution.DataParallel, keras.distribution.ModelParallel


def _is_of_keras(value: Any) -> bool:
    # There is none where Keras has not been imported.
    return "keras" in sys.modules and isinstance(value, _of_keras())


def _is_model_parallel(value: Any) -> bool:
    return "keras" in sys.modules and isinstance(value, _of_keras()[1])


def is_distribution(value: Any) -> bool:
    """Whether a value is of a kind of distribution that there is, of any backend."""
    kinds = {kind.__name__ for kind in type(value).__mro__}  # TensorFlow's without importing it
    return _is_of_keras(value) or "MirroredStrategy" in kinds


def for_fine_tuning(distribution: Any, texts_are_compared: bool) -> Any:
    """The distribution of a fit, from the parameter of the estimator.

    Parameters
    ----------
    distribution : "auto", None or a distribution
    texts_are_compared : bool
        Whether the loss compares the texts of a batch. It then needs all of them, which JAX gives it, and a
        MirroredStrategy and PyTorch's processes, which have a part each, do not: "auto" is one device there.

    Raises
    ------
    TypeError, ValueError
        If it cannot be used.
    """
    if texts_are_compared and isinstance(distribution, str) and backend_name() != "jax":
        return None
    found = checked(distribution)
    if found is None or not texts_are_compared or _is_of_keras(found):
        return found
    raise ValueError(
        "The loss of multiple choice and of few_labels=True compares the texts of a batch, which a MirroredStrategy "
        "and processes of PyTorch divide. Set distribution=None, or train on JAX."
    )


def checked(distribution: Any, batch_size: int | None = None) -> Any:
    """The distribution that a parameter means: the backend must support it.

    Parameters
    ----------
    distribution : "auto", None or a distribution
        "auto" means `all_devices`.
    batch_size : int, optional
        Rows of a batch, if these must divide evenly among the devices as they are.

    Raises
    ------
    TypeError
        If it is no ``keras.distribution.DataParallel`` or ``ModelParallel`` (JAX), and no
        ``tf.distribute.MirroredStrategy`` (TensorFlow).
    ValueError
        If the rows of a batch cannot be divided evenly.
    """
    is_automatic = isinstance(distribution, str) and distribution == "auto"
    if is_automatic:
        distribution = all_devices()
    if distribution is None:
        return None
    backend = backend_name()
    if backend == "jax":
        known, wanted = _is_of_keras(distribution), "keras.distribution.DataParallel or ModelParallel"
    elif backend == "tensorflow":
        import tensorflow as tf

        known, wanted = isinstance(distribution, tf.distribute.MirroredStrategy), "tf.distribute.MirroredStrategy"
    else:
        known = distribution is _process_group()
        wanted = '"auto", which takes all processes that torchrun has started, or None'
    if not known:
        scope = ' "auto" took it, as the one in force; None takes one device.' if is_automatic else ""
        raise TypeError(f"distribution is {type(distribution).__name__}; on {backend} it is {wanted}.{scope}")
    n = n_parts(distribution)
    if batch_size is not None and batch_size % n:
        raise ValueError(
            f"batch_size={batch_size} cannot be divided evenly among {n} devices. Take "
            f"{max(n, batch_size // n * n)}, or distribution=None for one device."
        )
    return distribution


def n_devices(distribution: Any) -> int:
    """How many devices there are."""
    return int(distribution.device_mesh.devices.size) if _is_of_keras(distribution) else n_parts(distribution)


def n_parts(distribution: Any) -> int:
    """Into how many parts the rows of a batch are divided."""
    if distribution is None:
        return 1
    if _is_of_keras(distribution):
        mesh = distribution.device_mesh  # `num_model_replicas` came after Keras 3.10
        return int(mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)])
    return int(distribution.size() if backend_name() == "torch" else distribution.num_replicas_in_sync)


def check_layout(distribution: Any, model: keras.Model) -> None:
    """Refuse a LayoutMap that divides no weight of a model: its keys are misspelt, or of other models."""
    if not _is_model_parallel(distribution):
        return
    names = [variable.path for variable in model.weights]
    if not any(map(distribution.get_tensor_layout, names)):
        raise ValueError(
            f"distribution: no key of the LayoutMap is found in the name of a weight. Names are such as "
            f"{', '.join(name for name in names if 'layer_0/' in name and name.endswith('kernel'))}."
        )


def description(distribution: Any) -> Any:
    """What of a distribution the rounding depends on, as JSON has it."""
    if not _is_model_parallel(distribution):
        return n_devices(distribution)
    mesh, layouts = distribution.device_mesh, distribution._layout_map
    return {
        "mesh": dict(zip(mesh.axis_names, mesh.shape, strict=True)), "batch": distribution.batch_dim_name,
        "layouts": {key: list(layout.axes) for key, layout in layouts.items()},
    }  # fmt: skip


# What predictions in this thread may use. A variable, and no argument, since many functions lie between the estimator,
# which has ``distribution``, and the predictor of the backend.
_predicting_on: ContextVar[Any] = ContextVar("_predicting_on", default=None)


@contextmanager
def predicting_on(distribution: Any) -> Iterator[None]:
    """Let predictions inside use the devices of a distribution, as the parameter of an estimator has it."""
    token = _predicting_on.set(distribution)
    try:
        yield
    finally:
        _predicting_on.reset(token)


def prediction_devices() -> list[Any]:
    """The devices of this process that predictions take in turns; none where there is only one, and on PyTorch."""
    chosen, backend = _predicting_on.get(), backend_name()
    if chosen is None or backend not in ("jax", "tensorflow"):
        return []
    distribution = all_devices() if isinstance(chosen, str) else chosen
    if distribution is None:
        return []
    if backend == "jax":
        import jax

        names = set(map(str, distribution.device_mesh.devices.flat))
        found = [device for device in jax.local_devices() if f"{device.platform}:{device.id}" in names]
    else:
        found = list(distribution.extended.worker_devices)
    return found if len(found) > 1 else []


def process_number() -> tuple[int, int]:
    """Which process this is, counted from 0, and how many there are.

    On JAX once ``keras.distribution.initialize`` ran, on PyTorch once ``torch.distributed.init_process_group`` did.
    """
    if backend_name() == "jax":
        import jax

        return jax.process_index(), jax.process_count()
    group = _process_group()
    return (0, 1) if group is None else (group.rank(), group.size())


def of_all_processes(number: int) -> list[int]:
    """This number in each of the processes, all of which must call this: a whole number that int32 holds."""
    n = process_number()[1]
    if n == 1:
        return [number]
    if backend_name() == "jax":
        from jax.experimental import multihost_utils

        found: list[int] = multihost_utils.process_allgather(np.int32(number)).tolist()
        return found
    from torch import distributed

    numbers: list[Any] = [None] * n
    distributed.all_gather_object(numbers, number)
    return numbers


def same_everywhere(number: int) -> bool:
    """Whether this number is the same in all processes. Every process must call this."""
    return len(set(of_all_processes(number))) == 1


# Updates from one time to the next at which processes ask one another what to do: it waits for the devices.
_UPDATES_BETWEEN = 8


def agreed(wanted: bool, n_updates: int, distribution: Any) -> bool:
    """Whether to do now what is wanted in any of the processes that train together, such as to write a checkpoint.

    All of them do it after the same update, since one that stopped at another would leave the others waiting for it.
    Every process must call this after each update, with the number of updates so far.
    """
    if distribution is None or process_number()[1] == 1:
        return wanted
    return n_updates % _UPDATES_BETWEEN == 0 and any(of_all_processes(int(wanted)))


def trainer_on(distribution: Any, model: keras.Model, loss: Loss, optimizer: str) -> Trainer:
    """The backend's trainer of a model, on one device or several."""
    if distribution is None:
        return backend_step().Trainer(model, loss, optimizer)
    if backend_name() == "jax":
        from kbert.training.step_jax import Trainer as JaxTrainer

        return JaxTrainer(model, loss, optimizer, distribution)
    if backend_name() == "torch":
        from kbert.training.step_processes import ProcessesTrainer

        return ProcessesTrainer(model, loss, optimizer, distribution)
    from kbert.training.step_mirrored import MirroredTrainer

    return MirroredTrainer(model, loss, optimizer, distribution)
