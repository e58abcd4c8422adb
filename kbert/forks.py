"""Processes that were forked from one in which the backend had computed. No Keras here.

A forked process has none of the threads of its parent, and the backends do not notice: they wait for theirs without
end. What a backend cannot do there is refused.
"""

import os
import sys

from kbert.errors import ForkedProcessError

_used = _forked_after_use = False


def note_use() -> None:
    """Remember that this process has models, and so perhaps threads of a backend."""
    global _used
    _used = True


def is_usable_process(training: bool = False) -> bool:
    """Whether this process can predict or, with ``training``, train.

    One that was forked from a process that had models cannot, but for two cases on CPUs: JAX predicts, though it does
    not train, and PyTorch does both where it uses one thread.
    """
    if not _forked_after_use:
        return True
    backend = sys.modules["keras"].backend.backend()  # a model was made
    if backend == "jax":
        return not training and sys.modules["jax"].default_backend() == "cpu"
    if backend == "torch":
        torch = sys.modules["torch"]
        return torch.get_num_threads() == 1 and not torch.cuda.is_initialized()
    return False


def require_usable_process(training: bool = False) -> None:
    """Check that this process can predict or, with ``training``, train.

    Raises
    ------
    ForkedProcessError
        If it was forked from a process that had models, and would wait without end.
    """
    if is_usable_process(training):
        return
    backend = sys.modules["keras"].backend.backend()
    raise ForkedProcessError(
        f"This process was forked from one that had used kbert, so it lacks the threads of {backend}, and would wait "
        'for them without end. Start processes by multiprocessing.get_context("spawn") or "forkserver", or by "loky", '
        "joblib's default; or fork before the first model is made."
    )


def _in_child() -> None:
    global _forked_after_use
    _forked_after_use = _forked_after_use or _used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
