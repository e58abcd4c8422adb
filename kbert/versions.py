"""What kbert runs on: for a bug report, and to see what was chosen. Keras is imported when it is asked for."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from kbert.backend import installed_backends, reason_of_backend, require_backend
from kbert.errors import BackendNotInstalledError

# Names of distributions: what kbert needs, and what is often used beside it.
PACKAGES = ("kbert-learn", "keras", "numpy", "pandas", "scikit-learn", "tokenizers", "safetensors", "huggingface-hub")
OTHERS = ("transformers", "onnxruntime", "openvino", "keras-hub")


def versions() -> dict[str, str]:
    """The facts that `show_versions` prints, by name. Without Keras or its backend, "backend" tells what is missing.

    Returns
    -------
    dict of str to str
    """
    installed = [*PACKAGES, *installed_backends(), *OTHERS]
    facts = {"Python": sys.version.split()[0], "platform": platform.platform(), "cores": str(os.cpu_count())}
    facts |= {name: found for name in installed if (found := _version(name)) is not None}
    try:
        require_backend()
    except BackendNotInstalledError as error:
        return facts | {"backend": f"none. {error}"}
    import keras

    from kbert.training.precision import dtype_policy, why_auto

    backend = keras.backend.backend()
    facts["backend"] = f"{backend} ({reason_of_backend(backend)})"
    facts["devices"] = _devices(backend)
    facts['dtype="auto"'] = f"{dtype_policy('auto').removeprefix('mixed_')}, {why_auto()}"
    return facts


def show_versions() -> None:
    """Print the versions of what kbert runs on, the backend in use and why, the devices, and what dtype="auto" means.

    Examples
    --------
    >>> import kbert
    >>> kbert.show_versions()
    Python        3...
    ...
    backend       ...
    devices       ...
    dtype="auto"  ...
    """
    facts = versions()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {value}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # not installed, or, as tensorflow-cpu, under another name
        return None


def _devices(backend: str) -> str:
    if backend == "jax":
        import jax

        names = [f"{device.device_kind} ({device.platform}:{device.id})" for device in jax.devices()]
    elif backend == "tensorflow":
        import tensorflow as tf

        names = [device.name.removeprefix("/device:").lower() for device in tf.config.list_logical_devices()]
    else:
        import torch

        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())] or ["cpu"]
    return ", ".join(names)
