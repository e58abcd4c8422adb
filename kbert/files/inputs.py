"""Files that a command or a function is given to read: paths, folders and patterns, plain or packed."""

from __future__ import annotations

import bz2
import csv
import glob
import gzip
import itertools
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kbert.errors import DatasetWarning
from kbert.values.printable import listed
from kbert.warn import warn_user

# How a file is opened, by the ending that says how it is packed.
OPENERS: dict[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}

# Endings of data that may be passed over by mistake in a folder.
_OTHER_DATA = {".zst", ".zip", ".tar", ".7z", ".tsv", ".arrow", ".feather", ".html", ".xml", ".pdf"}

# What separates the values of a row, and what messages call it.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def endings_of(path: Path) -> tuple[str, str]:
    """The ending that says what is in a file, and the one that says how it is packed."""
    packing = path.suffix.lower()
    if packing not in OPENERS:
        return packing, ""
    return Path(path.stem).suffix.lower(), packing


def with_long_fields(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows of a ``csv.reader``, with fields of any length: csv's limit, which is the process's, stays as it was."""
    while True:
        limit = csv.field_size_limit(2**31 - 1)
        try:
            row = next(rows)
        except StopIteration:
            return
        finally:
            csv.field_size_limit(limit)
        yield row


def files_at(
    path: Path, is_known: Callable[[Path], bool], what: str, known: str, is_hidden: Callable[[Path], bool] | None = None
) -> list[Path]:
    """The files that a path, a folder or a pattern leads to, sorted, as absolute paths.

    Of a folder, files that are not known are passed over: beside the data there may be anything, such as a licence, or
    what an editor or a file manager hides. A warning tells of those that may be data in another format. A file to which
    several names or links lead is there once.

    Parameters
    ----------
    path : Path
    is_known : callable
        Whether the name of a file says of a format that is read.
    what, known : str
        For messages: what a folder must hold, and which formats there are.
    is_hidden : callable, optional
        Which files of a folder are passed over in silence, also known ones.

    Raises
    ------
    FileNotFoundError
        If there is none, or a known file of a folder is a link to nothing.
    OSError
        If a folder in the folder cannot be read.
    ValueError
        If the ending of a name says of no known format.

    Warns
    -----
    DatasetWarning
    """
    path = path.expanduser().absolute()  # for processes with another working folder
    if path.is_dir():
        files = [file for file in sorted(_files_in(path)) if is_hidden is None or not is_hidden(file)]
        found = _once([file for file in files if is_known(file)])
        if not found:
            raise FileNotFoundError(f"There is no {what} in the folder {path}. {known}")
        if others := [file for file in files if not is_known(file) and endings_of(file)[0] in _OTHER_DATA]:
            warn_user(
                f"{path}: files that may be data are passed over, since their endings say of no format that is read: "
                f"{listed(others, lambda file: file.name)}. {known}",
                DatasetWarning,
            )
        return found
    if path.exists():
        found = [path]
    else:
        found = _once(sorted(file for name in glob.glob(str(path), recursive=True) if (file := Path(name)).is_file()))
        if not found:
            raise FileNotFoundError(f"There is no file or folder {path}, nor a file that matches it as a pattern.")
    for file in found:
        if not is_known(file):
            raise ValueError(f"{file}: the ending of its name says of no known format. {known}")
    return found


def root_of(path: str | os.PathLike[str]) -> Path:
    """The folder that a path, a folder or a pattern stands for, from which its files have their names."""
    whole = Path(path).expanduser().absolute()
    if whole.is_dir():
        return whole
    if whole.exists():
        return whole.parent
    parts = list(itertools.takewhile(lambda part: not glob.has_magic(part), whole.parts))
    return Path(*parts[: len(whole.parts) - 1])


def _files_in(folder: Path) -> Iterator[Path]:
    """All files in a folder and in those below it, without hidden ones."""

    def refuse(error: OSError) -> None:
        raise error

    seen = set()
    for here, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        place = os.path.realpath(here)
        if place in seen:  # a link leads there too
            folders.clear()
            continue
        seen.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in names if not name.startswith("."))


def _once(files: list[Path]) -> list[Path]:
    """Files without those that an earlier name leads to, and without pipes and the like."""
    found: dict[str, Path] = {}
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f"{file} is a link to a file that is not there. Remove it, or mend it.")
        if file.is_file():
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())
