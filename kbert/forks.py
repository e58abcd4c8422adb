"""Processes that were forked from one in which the backend had computed. No Keras here.

A forked process has none of the threads of its parent, and the backends do not notice: they wait for theirs without
end. What a backend cannot do there is refused.
"""

import os
import sys
import threading
import weakref
from typing import Any

from kbert.errors import ForkedProcessError

_used = _forked_after_use = False


class LockOfProcess:
    """A lock that is free in a process that was forked while a thread held it: that thread is not there to free it.

    Parameters
    ----------
    reentrant : bool, default=False
        Whether a thread that holds it may take it again.
    """

    def __init__(self, reentrant: bool = False):
        self._make: Any = threading.RLock if reentrant else threading.Lock
        self.renew()
        _locks.add(self)

    def renew(self) -> None:
        """Be a lock that nobody holds."""
        self._lock = self._make()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[LockOfProcess] = weakref.WeakSet()


def note_use() -> None:
    """Remember that this process has models, and so perhaps threads of a backend."""
    global _used
    _used = True


def is_usable_process() -> bool:
    """Whether this process can predict and train.

    One that was forked from a process that had models cannot, unless PyTorch computes on the CPU by one thread. (JAX
    predicts there too, but only what it has compiled already.)
    """
    if not _forked_after_use:
        return True
    if sys.modules["keras"].backend.backend() != "torch":  # a model was made
        return False
    torch = sys.modules["torch"]
    return bool(torch.get_num_threads() == 1 and not torch.cuda.is_initialized())


def require_usable_process() -> None:
    """Check that this process can predict and train.

    Raises
    ------
    ForkedProcessError
        If it was forked from a process that had models, and would wait without end.
    """
    if is_usable_process():
        return
    raise forked_process_error(sys.modules["keras"].backend.backend())


def forked_process_error(backend: str) -> ForkedProcessError:
    """The error for a forked process that would need threads of its parent's."""
    return ForkedProcessError(
        f"This process was forked from one that had used kbert, so it lacks the threads of {backend}, and would wait "
        'for them without end. Start processes by multiprocessing.get_context("spawn") or "forkserver", or by "loky", '
        "joblib's default; or fork before the first model is made."
    )


def _in_child() -> None:
    global _forked_after_use
    _forked_after_use = _forked_after_use or _used
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
