"""Writing a folder so that a reader finds all of it or nothing of it, even where the process is killed.

A folder is first written under a temporary name beside its target, and renamed when it is complete. `replace_folder`
replaces a folder that exists; `fill_folder` writes a new one, or fills an empty one. `read_whole` reads the files of a
folder that may be replaced meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from kbert.files.folder_lock import alone_in
from kbert.files.permissions import copy_permissions, set_permissions

# A replacement happens in a staging folder, .NAME.xxxxxxxx, beside the target. It holds these two folders.
_NEW, _OLD = "new", "old"
# A staging folder that is older than this belongs to a process that was killed, and is removed.
_LEFTOVER_SECONDS = 3600
# A full disk, a quota, the largest file that is allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# How often a folder is read that is replaced each time.
_MOST_READINGS = 20

T = TypeVar("T")


class FolderKind(NamedTuple):
    """A kind of folder that kbert writes, and may therefore replace.

    Attributes
    ----------
    marker : str
        The file by which such a folder is recognised.
    files : frozenset of str
        The names of all files and folders that kbert writes into it. They go when it is replaced; all others stay.
    name : str
        What messages call it, such as "saved estimator".
    """

    marker: str
    files: frozenset[str]
    name: str


def replace_folder(folder: Path, write: Callable[[Path], T], kind: FolderKind) -> T:
    """Write a folder, or replace one of the same kind, in one step.

    If ``write`` fails, the old folder stays as it was. If the process is killed, either the old folder or the new one
    is there. The new one is written to ``.NAME.xxxxxxxx/new``. When it is complete, ``folder`` is renamed to
    ``.NAME.xxxxxxxx/old``, and ``new`` to ``folder``. After a kill between these two renames there is no ``folder``:
    `complete_interrupted_replacement` then does the second one.

    Parameters
    ----------
    folder : Path
        The target. Where it is a symbolic link, the folder that it points to is replaced. One that is empty and cannot
        be renamed, such as a mount point, is filled instead (`fill_folder`).
    write : callable
        ``write(path)`` fills the folder ``path``, which exists and is empty.
    kind : FolderKind
        Only a folder of this kind, or an empty one, is replaced. Files in it that do not belong to the kind, such as a
        README.md, are taken over into the new folder.

    Returns
    -------
    object
        What ``write`` gave.

    Notes
    -----
    Files get the permissions that the umask leaves, however ``write`` makes them. The folder and those of its files
    that exist already keep theirs.

    Raises
    ------
    FileExistsError
        Where ``folder`` is a file, or holds something other than that kind of folder. It is left as it is.
    OSError
        Where the disk is full, or the other files in it cannot be taken over. The folder is left as it is.
    """
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(folder.parent):
        _complete(folder)
        check_replaceable(folder, kind)
    if folder.is_dir() and not _can_be_renamed(folder):
        return fill_folder(folder, write, last=kind.marker)
    staging = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    new, old = staging / _NEW, staging / _OLD
    working_folder = _working_folder()
    try:
        staging.mkdir()
        # What is private stays so meanwhile.
        copy_permissions(folder, staging)
        with _full_disk_named(folder):
            new.mkdir()
            result = write(new)
        with alone_in(folder.parent):
            _complete(folder)
            set_permissions(new, replaced=folder)
            if folder.is_dir():
                _take_over_other_files(folder, new, kind)
                copy_permissions(folder, new)
                # An old folder beside the new one says that the new one is complete.
                folder.rename(old)
            _put_in_place(staging, folder)
    except BaseException:
        if old.is_dir() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(staging, ignore_errors=True)
        raise
    if working_folder is not None and working_folder.is_relative_to(folder):
        with suppress(OSError):
            os.chdir(working_folder)  # into the new folder of that name: the process is still in the removed one
    _remove_leftovers(folder)
    return result


def check_replaceable(folder: Path, kind: FolderKind) -> None:
    """Raise the FileExistsError of `replace_folder`, for callers that have work to do before they write."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file. Give the name of a folder, existing or not.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / kind.marker).is_file():
        raise FileExistsError(f"{folder} exists and holds no {kind.name}: nothing was written. Choose another folder.")
    if not _can_be_renamed(folder):
        raise FileExistsError(
            f"{folder} holds a {kind.name}, and cannot be replaced in one step: it is a mount point, or the folder "
            "around it cannot be written. Give a new folder inside of it, or empty it first."
        )


def _can_be_renamed(folder: Path) -> bool:
    """Whether another folder can take its place."""
    return not os.path.ismount(folder) and os.access(folder.parent, os.W_OK)


def complete_interrupted_replacement(folder: str | os.PathLike[str]) -> None:
    """Put the new folder in its place where `replace_folder` was killed between its two renames.

    Nothing happens where the folder exists, or where the name cannot be that of a folder.

    Parameters
    ----------
    folder : str or Path
        The target of the replacement. "~" is the home folder.
    """
    try:
        folder = Path(os.path.expanduser(folder)).resolve()
        interrupted = not folder.exists() and _staging_folders(folder)
    except (OSError, ValueError, RuntimeError, TypeError):
        return
    if interrupted:
        with alone_in(folder.parent):
            _complete(folder)


def read_whole(folder: str | os.PathLike[str], read: Callable[[], T]) -> T:
    """What ``read`` gives of a folder's files, all of one state of it: `replace_folder` may be at work meanwhile.

    ``read`` is called again where the folder became another one while it read. A replacement that was interrupted is
    completed first.

    Raises
    ------
    OSError
        Where the folder is replaced so often that it is never read as a whole.
    """
    for _ in range(_MOST_READINGS):
        complete_interrupted_replacement(folder)
        before = _state(folder)
        try:
            found = read()
        except Exception:
            if _state(folder) == before:
                raise
        else:
            if _state(folder) == before:
                return found
    raise OSError(f"{os.fspath(folder)} was replaced each time while it was read. Try again when that has ended.")


def _state(folder: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """What differs for a folder and one that takes its place; None where there is none."""
    try:
        found = os.stat(os.path.expanduser(folder))
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns  # the number of a folder that is gone may be given again


def fill_folder(folder: Path, write: Callable[[Path], T], last: str) -> T:
    """Write a new folder, or fill an empty one, and leave nothing of it if that fails.

    A new folder is there as a whole or not at all. An empty one is filled, not replaced: it may be a mount point, or
    the working folder of a shell. Its files are moved into it one after the other. They get the permissions that the
    umask leaves, however ``write`` makes them.

    Parameters
    ----------
    folder : Path
        A folder that does not exist or is empty. Parents that are missing are made.
    write : callable
        ``write(path)`` fills the folder ``path``, which exists and is empty.
    last : str
        The file that is moved last into an empty folder. Readers take a folder without it for incomplete.

    Returns
    -------
    object
        What ``write`` gave.

    Raises
    ------
    FileExistsError
        Where ``folder`` is a file, or holds anything. It is left as it is.
    """
    folder = Path(folder).resolve()
    check_new_or_empty(folder)
    exists = folder.is_dir()
    staging = (folder if exists else folder.parent) / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    missing_parents = [parent for parent in folder.parents if not parent.exists()]
    moved: list[Path] = []
    try:
        with _full_disk_named(folder):
            staging.mkdir(parents=True)
            result = write(staging)
        set_permissions(staging)
        if exists:
            for path in sorted(staging.iterdir(), key=lambda path: path.name == last):
                moved.append(path.rename(folder / path.name))
            staging.rmdir()
        else:
            staging.rename(folder)
    except BaseException:
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(staging, ignore_errors=True)
        for parent in missing_parents:
            with suppress(OSError):
                parent.rmdir()
        raise
    return result


def sync(path: Path) -> None:
    """See that a file, or the names in a folder, are on the disk: what was just renamed there survives a power cut.

    Where the system cannot do that, as Windows with folders, nothing happens.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):  # a disk that fails is told of
            raise
    finally:
        os.close(handle)


def check_new_or_empty(folder: Path) -> None:
    """Raise the FileExistsError of `fill_folder`, for callers that have work to do before they write."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists already, and is left as it is. Give a new folder.")


@contextmanager
def _full_disk_named(folder: Path) -> Iterator[None]:
    """Name the target, and no file of a temporary folder or none at all, in the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        reason = f"it cannot be written ({error.strerror}). Make room; what was there is as it was"
        raise OSError(error.errno, reason, str(folder)) from error


def _complete(folder: Path) -> None:
    """Where there is no folder, put the new one of an interrupted replacement in its place."""
    for staging in _staging_folders(folder):
        # A new folder without an old one beside it may be incomplete.
        if not folder.exists() and (staging / _NEW).is_dir() and (staging / _OLD).is_dir():
            _put_in_place(staging, folder)


def _put_in_place(staging: Path, folder: Path) -> None:
    """Rename the new folder to its target, and remove the staging folder.

    Where the file system has no locks, another process may have done it first, which is as good.
    """
    try:
        (staging / _NEW).rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    shutil.rmtree(staging, ignore_errors=True)


def _working_folder() -> Path | None:
    """The working folder of the process; None where it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _take_over_other_files(folder: Path, new: Path, kind: FolderKind) -> None:
    """Copy everything in ``folder`` that does not belong to its kind into ``new``."""
    try:
        for path in folder.iterdir():
            if path.name in kind.files or os.path.lexists(new / path.name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, new / path.name, symlinks=True, copy_function=_link_or_copy)
            else:
                _link_or_copy(path, new / path.name)
    except OSError as error:
        raise OSError(
            f"{folder} was left as it is, because other files in it could not be taken over ({error}). Save again, "
            "or into another folder."
        ) from error


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give the file a second name. A program that is still writing to it then writes to both."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _staging_folders(folder: Path) -> list[Path]:
    """The staging folders of ``folder``, of processes that still run and of those that were killed."""
    pattern = re.compile(re.escape(f".{folder.name}.") + "[0-9a-f]{8}")
    try:
        return [folder.parent / name for name in os.listdir(folder.parent) if pattern.fullmatch(name)]
    except OSError:  # the parent does not exist, or may not be listed
        return []


def _remove_leftovers(folder: Path) -> None:
    """Remove the staging folders that killed processes left, but none that a running process may be using."""
    for staging in _staging_folders(folder):
        with suppress(OSError):
            too_old = time.time() - staging.stat().st_mtime > _LEFTOVER_SECONDS
            if too_old and set(os.listdir(staging)) <= {_NEW, _OLD}:
                shutil.rmtree(staging, ignore_errors=True)
