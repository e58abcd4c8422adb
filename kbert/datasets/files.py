"""Where a data set's file is, and its text, whatever it is packed in."""

import gzip
import lzma
import os
import sys
import warnings
import zlib
from pathlib import Path

from kbert.errors import DatasetNotFoundError, DatasetWarning

VARIABLE = "KBERT_DATA"
PACKED = ("", ".gz", ".xz")
_OPENERS = {".gz": gzip.open, ".xz": lzma.open}
# What the usual download scripts call the folder that holds GLUE's nine.
_GLUE_FOLDERS = ("glue", "gluedata")


def read_text(path: str | Path) -> str:
    """The whole text of a file in UTF-8, unpacked, without a byte order mark, its line ends as they are."""
    path = Path(path).expanduser()
    try:
        with _OPENERS.get(path.suffix, open)(path, "rb") as file:
            raw = file.read()
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise ValueError(
            f"{path} is no whole {path.suffix} file ({error}). Download it again, or rename it if it is not packed."
        ) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: is not UTF-8 ({error.reason}). Convert the file to UTF-8.") from error


def read_lines(path: str | Path) -> list[str]:
    """The lines of a file; entry 0 is line 1.

    Only "\\n" and "\\r\\n" end a line. ``str.splitlines`` would also cut at U+0085, U+2028 and others, which occur
    within texts.
    """
    return [line.removesuffix("\r") for line in read_text(path).split("\n")]


def is_blank(line: str) -> bool:
    """Whether a line has nothing but spaces and tabs, so that a column of one no-break space still counts."""
    return not line.strip(" \t\r")


def data_root(folder: str | Path | None) -> Path | None:
    """The folder of the data sets: the one given, else that of the environment variable; None where neither is set."""
    given = folder if folder is not None else os.environ.get(VARIABLE) or None
    if given is None:
        return None
    root = Path(given).expanduser()
    if not root.is_dir():
        source = "" if folder is not None else f" ({VARIABLE})"
        raise DatasetNotFoundError(f"{root}{source} is no folder. Give the folder that holds the data sets.")
    return root


def folders_named(root: Path, names: tuple[str, ...]) -> list[Path]:
    """Folders in which to look for a data set: those of that name, however it is spelled ("SST-2").

    The root itself may be one. A folder of another name does not count, because the files of many data sets are called
    train and dev.
    """
    children = _folders(root)
    found = [child for child in children if _plain(child.name) in names]
    for parent in children:
        if _plain(parent.name) in _GLUE_FOLDERS:
            found += [child for child in _folders(parent) if _plain(child.name) in names]
    return [*found, root] if _plain(root.resolve().name) in names else found


def find_file(folders: list[Path], stems: tuple[str, ...], endings: tuple[str, ...]) -> Path | None:
    """The first file of one of these names, plain or packed; else one that says that it is a part; else None."""
    for folder in folders:
        for stem in stems:
            for ending in endings:
                for packed in PACKED:
                    path = folder / f"{stem}{ending}{packed}"
                    if path.is_file():
                        return path
    for folder in folders:
        for stem in stems:
            for ending in endings:
                for path in sorted(folder.glob(f"{stem}_*partial{ending}*")):
                    if path.name.endswith(tuple(ending + packed for packed in PACKED)):
                        warn(f"{path} holds only some of the rows of {stem!r}, as its name says.")
                        return path
    return None


def not_found(what: str, root: Path, folders: list[Path], names: tuple[str, ...], files: list[str]) -> str:
    """The message for a file that is nowhere."""
    if not folders:
        return f"{what} is not there: {root} has no folder named {' or '.join(names)}."
    places = ", ".join(str(folder) for folder in folders)
    return f"{what} is not there: looked for {' or '.join(files)} (also .gz, .xz) in {places}."


def warn(message: str) -> None:
    """A DatasetWarning at the line that called into this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("kbert.datasets"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DatasetWarning, stacklevel=level)


def numbers(lines: list[int]) -> str:
    """The first few of some line numbers."""
    shown = ", ".join(str(line) for line in lines[:5])
    return shown if len(lines) <= 5 else f"{shown} and {len(lines) - 5} more"


def _folders(parent: Path) -> list[Path]:
    return sorted(child for child in parent.iterdir() if child.is_dir())


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")
