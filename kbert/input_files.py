"""Files that a command or a function is given to read: paths, folders and patterns, plain or packed."""

from __future__ import annotations

import bz2
import glob
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

# How a file is opened, by the ending that says how it is packed.
OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def endings_of(path: Path) -> tuple[str, str]:
    """The ending that says what is in a file, and the one that says how it is packed."""
    packing = path.suffix.lower()
    if packing not in OPENERS:
        return packing, ""
    return Path(path.stem).suffix.lower(), packing


def files_at(
    path: Path, is_known: Callable[[Path], bool], what: str, known: str, is_hidden: Callable[[Path], bool] | None = None
) -> list[Path]:
    """The files that a path, a folder or a pattern leads to, sorted, as absolute paths.

    Of a folder, files that are not known are passed over: beside the data there may be anything, such as a licence, or
    what an editor or a file manager hides.

    Parameters
    ----------
    path : Path
    is_known : callable
        Whether the name of a file says of a format that is read.
    what, known : str
        For messages: what a folder must hold, and which formats there are.
    is_hidden : callable, optional
        Which known files of a folder are passed over too.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If the ending of a name says of no known format.
    """
    path = path.expanduser().absolute()  # for processes with another working folder
    if path.is_dir():
        names = (Path(name) for name in glob.glob(f"{glob.escape(str(path))}/**", recursive=True))
        files = [file for file in names if file.is_file() and is_known(file)]
        found = sorted(file for file in files if is_hidden is None or not is_hidden(file))
        if not found:
            raise FileNotFoundError(f"There is no {what} in the folder {path}. {known}")
        return found
    if path.exists():
        found = [path]
    else:
        found = sorted(file for name in glob.glob(str(path), recursive=True) if (file := Path(name)).is_file())
        if not found:
            raise FileNotFoundError(f"There is no file or folder {path}, nor a file that matches it as a pattern.")
    for file in found:
        if not is_known(file):
            raise ValueError(f"{file}: the ending of its name says of no known format. {known}")
    return found
