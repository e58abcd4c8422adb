"""One process, or thread, at a time in a folder, where the system has such locks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

# Seconds that a folder is waited for. Who waits will rename a folder in it, which takes milliseconds. Who holds it for
# longer is a fit that writes checkpoints there, and does not mind.
_PATIENCE = 10.0


@contextmanager
def alone_in(folder: Path, otherwise: str | None = None) -> Iterator[None]:
    """Be the only one that uses a folder, which exists. A lock ends with its process, however that ends.

    Parameters
    ----------
    folder : Path
    otherwise : str, optional
        What to raise if it is in use. Without it, wait until it is free, for 10 seconds at most.

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
            _lock(handle, 0.0 if otherwise is not None else _PATIENCE)
            # If the process was forked meanwhile, the child still holds the handle: closing ours would not unlock.
            stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)
        except BlockingIOError:
            if otherwise is not None:
                raise ValueError(otherwise) from None
        except (ImportError, OSError):  # Windows, or a file system without locks
            pass
        yield


def _lock(handle: int, patience: float) -> None:
    """Lock what a handle stands for, within some seconds.

    Raises
    ------
    BlockingIOError
        If another one has it all the time.
    """
    import fcntl

    end, pause = time.monotonic() + patience, 0.001
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
