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


def require_usable_process(training: bool = False) -> None:
    """Check that this process can predict or, with ``training``, train.

    JAX predicts in a forked process, but does not train. PyTorch does both where it uses one thread.

    Raises
    ------
    ForkedProcessError
        If it was forked from a process that had models, and would wait without end.
    """
    if not _forked_after_use:
        return
    backend = sys.modules["keras"].backend.backend()  # a model was made
    if backend == "jax" and not training:
        return
    if backend == "torch" and sys.modules["torch"].get_num_threads() == 1:
        return
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
