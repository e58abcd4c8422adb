"""Permissions of the files that kbert writes: those that any new file gets, or those of the file that is replaced.

Libraries that write to a temporary file first leave it to its owner alone (0600), and others could not load it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def set_permissions(folder: Path, replaced: Path | None = None) -> None:
    """Give the files and folders in a folder that was just made the permissions which the umask leaves to new ones.

    Parameters
    ----------
    folder : Path
        Its own permissions, which stay, say what the umask is: it can be asked of the system only by changing it, which
        other threads would notice.
    replaced : Path, optional
        The folder whose place it takes. What has the same name there passes its permissions and its group on.
    """
    usual = stat.S_IMODE(folder.stat().st_mode)
    for path in folder.rglob("*"):
        if path.is_symlink():
            continue
        if replaced is None or not copy_permissions(replaced / path.relative_to(folder), path):
            _change(path, usual if path.is_dir() else usual & 0o666)


def copy_permissions(source: Path, target: Path) -> bool:
    """Give a file or folder the permissions and the group of another one; False where there is no other of its kind."""
    try:
        status = source.lstat()
    except OSError:
        return False
    if stat.S_IFMT(status.st_mode) != stat.S_IFMT(target.stat().st_mode):
        return False
    # A group that the user is not in cannot be given; Windows has none.
    if status.st_gid != target.stat().st_gid and hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(target, -1, status.st_gid)
    _change(target, stat.S_IMODE(status.st_mode))
    return True


@contextmanager
def usual_permissions(path: Path) -> Iterator[None]:
    """Let a library write a file, which then has the permissions that it had before, or those of a new file."""
    is_new = not path.exists()
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        yield
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        raise
    _change(path, mode)


def _change(path: Path, mode: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) != mode:
        # Some file systems, such as those of memory sticks, keep no permissions.
        with suppress(OSError):
            path.chmod(mode)
