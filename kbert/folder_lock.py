"""One process, or thread, at a time in a folder, where the system has such locks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def alone_in(folder: Path, otherwise: str | None = None) -> Iterator[None]:
    """Be the only one that uses a folder, which exists. A lock ends with its process, however that ends.

    Parameters
    ----------
    folder : Path
    otherwise : str, optional
        What to raise if it is in use. Without it, wait until it is free.

    Raises
    ------
    ValueError
        With the message ``otherwise``.
    """
    with ExitStack() as stack:
        try:
            import fcntl

            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX if otherwise is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If the process was forked meanwhile, the child still holds the handle: closing ours would not unlock.
            stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)
        except BlockingIOError:
            raise ValueError(otherwise) from None
        except (ImportError, OSError):  # Windows, or a file system without locks
            pass
        yield
