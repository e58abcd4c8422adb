"""One process, or thread, at a time in a folder, where the system has such locks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_in(folder: Path, otherwise: str) -> Iterator[None]:
    """Be the only one that uses a folder, which exists. A lock ends with its process, however that ends.

    Raises
    ------
    ValueError
        With the message ``otherwise``, if it is in use.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(otherwise) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
