"""The choice of Keras's backend, made before Keras is imported. No Keras here."""

import json
import multiprocessing
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from kbert.errors import BackendNotInstalledError

# In the order of preference where the user has not chosen: by the time of a first fit and its predictions on a CPU
# (docs/benchmarks/performance.md).
BACKENDS = ("torch", "jax", "tensorflow")

# Keras's own choice where nobody makes one.
KERAS_DEFAULT = "tensorflow"

# The keras.json that Keras writes when it is imported for the first time, whatever KERAS_BACKEND is.
_KERAS_JSON = {"floatx": "float32", "epsilon": 1e-07, "backend": KERAS_DEFAULT, "image_data_format": "channels_last"}

# The environment variable that says whether dtype="auto" may be bfloat16 on a CPU: "0" or "1". Without it, this is
# measured, or left to the runtime of an exported model.
CPU_BFLOAT16 = "KBERT_CPU_BFLOAT16"

# Set beside KERAS_BACKEND where kbert has set that, so that a process that is started says why, too.
_SELECTED = "KBERT_SELECTED_BACKEND"
# And where Keras was imported before kbert.
_FOLLOWED = "KBERT_FOLLOWED_BACKEND"


def installed_backends() -> list[str]:
    """Return the names of the installed backends, in the order of preference."""
    return [name for name in BACKENDS if find_spec(name) is not None]


def select_backend() -> None:
    """Set ``KERAS_BACKEND`` to the first installed backend of `BACKENDS`, unless the user has chosen one.

    The user's own choice is kept: the environment variable, or a ``keras.json`` that names an installed backend. The
    ``keras.json`` that Keras itself writes is no choice. If Keras has been imported already, the variable is set to its
    backend, so that processes which are started take the same one.
    """
    if os.environ.get("KERAS_BACKEND"):
        return
    if keras := sys.modules.get("keras"):
        os.environ["KERAS_BACKEND"] = os.environ[_FOLLOWED] = keras.backend.backend()
        return
    installed = installed_backends()
    if _backend_of_keras_json() not in installed and installed:
        os.environ["KERAS_BACKEND"] = os.environ[_SELECTED] = installed[0]


def keeps_process_settings() -> bool:
    """Whether the user asked kbert to leave settings of the whole process alone: ``KBERT_KEEP_PROCESS_SETTINGS=1``.

    These settings make training and predicting quicker or quieter and change no result: JAX's asynchronous dispatch on
    a CPU (`kbert.model.dispatch`), how the C library returns memory (`kbert.training.memory`), how much of an
    accelerator's memory a worker process takes (`share_accelerator`), and what TensorFlow's runtime says when it starts
    (`kbert.startup_messages`).
    """
    return os.environ.get("KBERT_KEEP_PROCESS_SETTINGS", "0") not in ("", "0")


def share_accelerator() -> None:
    """In a worker process, such as joblib's, let JAX and TensorFlow allocate GPU memory as they need it.

    By default JAX allocates three quarters of it at the start and TensorFlow all of it, so that the second worker of
    ``GridSearchCV(n_jobs=2)`` would find none. Environment variables that the user has set are kept. Nothing happens in
    the main process, nor under ``KBERT_KEEP_PROCESS_SETTINGS=1``.
    """
    if multiprocessing.current_process().name == "MainProcess" or keeps_process_settings():
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def require_backend() -> None:
    """Check that the backend which Keras is going to use is installed. If Keras has been imported, it is.

    Raises
    ------
    BackendNotInstalledError
        If it or Keras is not, or if kbert does not run on it. The message has the pip command, or the name of a backend
        that is installed.
    """
    if "keras" in sys.modules:
        return
    wanted = chosen_backend()
    if wanted not in BACKENDS:
        raise BackendNotInstalledError(
            f"KERAS_BACKEND is {wanted!r}, and kbert runs on {', '.join(BACKENDS)}. Set KERAS_BACKEND to one of these."
        )
    if find_spec("keras") is None:
        raise BackendNotInstalledError(
            "Keras is not installed, with which kbert makes and trains models. Run: pip install 'kbert-learn[torch]' "
            "(or [jax], or [tensorflow]). Without it, kbert predicts with the folders that `export` wrote."
        )
    if find_spec(wanted) is None:
        others = installed_backends()
        if not others and not os.environ.get("KERAS_BACKEND"):
            raise BackendNotInstalledError(
                f"None of Keras's backends is installed ({', '.join(BACKENDS)}). Run: pip install 'kbert-learn[torch]' "
                "(or [jax], or [tensorflow])."
            )
        remedy = f", or set KERAS_BACKEND={others[0]}, which is installed" if others else ""
        raise BackendNotInstalledError(
            f"The Keras backend {wanted!r} is not installed. Run: pip install {wanted}{remedy}."
        )


def chosen_backend() -> str:
    """The backend that Keras is going to use, installed or not."""
    return os.environ.get("KERAS_BACKEND") or _backend_of_keras_json() or KERAS_DEFAULT


def reason_of_backend(backend: str) -> str:
    """Why this backend is in use."""
    if os.environ.get("KERAS_BACKEND") != backend:
        return "by keras.json" if _backend_of_keras_json() == backend else "Keras's own choice"
    if os.environ.get(_FOLLOWED) == backend:
        return "Keras was imported before kbert"
    if os.environ.get(_SELECTED) != backend:
        return "by KERAS_BACKEND"
    installed = installed_backends()
    return "the only one that is installed" if len(installed) == 1 else f"the first of {', '.join(installed)}"


def _backend_of_keras_json() -> str | None:
    """Return the backend in the user's keras.json, which is looked for where Keras does; None if nobody chose one."""
    user = os.path.expanduser("~")  # "~" itself for a user without a home folder, where Path.home would raise
    home = Path(os.environ.get("KERAS_HOME") or Path(user if os.access(user, os.W_OK) else "/tmp", ".keras"))
    try:
        settings = json.loads((home / "keras.json").read_text(encoding="utf-8"))
        backend: str | None = settings.get("backend")
    except (OSError, ValueError, AttributeError):
        return None
    return None if settings == _KERAS_JSON else backend
