"""Memory that one step frees is kept for the next; left alone, glibc would give it back to the system at once."""

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator

from kbert.backend import keeps_process_settings
from kbert.forks import LockOfProcess

# mallopt(3) of glibc: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX; a threshold of -1 is never reached.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER = -1
# glibc raises its thresholds by itself up to DEFAULT_MMAP_THRESHOLD_MAX (64 bits) and twice that. A threshold that was
# set stays fixed, so afterwards both are set to these maxima, and the number of mapped blocks to DEFAULT_MMAP_MAX.
_LARGEST_THRESHOLD, _MOST_MAPPED = 32 * 2**20, 65536

_lock = LockOfProcess()
_users = 0


@contextlib.contextmanager
def memory_kept(trim: bool = True) -> Iterator[None]:
    """While this lasts, memory that the main thread frees stays with the process.

    A training step on a CPU allocates the same hundreds of megabytes as the one before. glibc maps blocks of more than
    32 MB anew each time, and the system clears every page of them when it is first touched
    (docs/project/performance_notes.md has what that costs). Other threads have heaps of 64 MB at most, and gain less.
    Any number of threads may be inside.

    Nothing is done on TensorFlow, without glibc, nor where the user has set its allocator (``GLIBC_TUNABLES``,
    ``MALLOC_...``) or ``KBERT_KEEP_PROCESS_SETTINGS=1``. docs/project/performance_notes.md has what stays changed
    afterwards ("What kbert changes in the process").

    Parameters
    ----------
    trim : bool
        Whether what is free at the end goes back to the system at once, rather than with the next large block.
    """
    global _users
    libc = None if _is_tensorflow_the_backend() else _adjustable()
    if libc is None:
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            libc.mallopt(_MMAP_MAX, 0)
            libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _restore(libc)
                if trim:
                    libc.malloc_trim(0)


def _restore(libc: ctypes.CDLL) -> None:
    libc.mallopt(_MMAP_MAX, _MOST_MAPPED)
    libc.mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
    libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)


def _in_child() -> None:
    """A forked process has none of the threads that were inside."""
    global _users
    if _users:
        _users = 0
        _restore(ctypes.CDLL(None))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _is_tensorflow_the_backend() -> bool:
    """Whether arrays are TensorFlow's, whose freed blocks glibc 2.36 does not use again: each step takes new memory."""
    keras = sys.modules.get("keras")  # exported models are computed without it
    return keras is not None and keras.backend.backend() == "tensorflow"


def _adjustable() -> ctypes.CDLL | None:
    """The C library, if it is glibc, and its allocator may be adjusted."""
    chosen = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    return None if chosen or keeps_process_settings() or platform.libc_ver()[0] != "glibc" else ctypes.CDLL(None)
