"""Finding the file of a data set, and reading its text, compressed or not."""

import lzma
import os
import zlib
from pathlib import Path

from kbert.errors import DatasetNotFoundError, DatasetWarning
from kbert.files.inputs import OPENERS
from kbert.warn import warn_user

# The environment variable with the folder of the data sets.
VARIABLE = "KBERT_DATA"
COMPRESSIONS = tuple(OPENERS)
# For messages.
PACKED = ".gz, .bz2 or .xz"
# The names that the usual download scripts give to the folder of GLUE's nine tasks.
_GLUE_FOLDERS = ("glue", "gluedata")


def read_text(path: str | Path) -> str:
    """Read the whole text of a UTF-8 file, decompressed and without a byte order mark. Line ends stay as they are.

    Raises
    ------
    ValueError
        If the file is truncated, damaged, or not UTF-8.
    """
    path = Path(path).expanduser()
    try:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            raw: bytes = file.read()
    except (OSError, lzma.LZMAError, zlib.error, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the packed data
            raise
        raise ValueError(
            f"{path} is no whole {path.suffix} file ({error}). Download it again, or rename it if it is not packed."
        ) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: is not UTF-8 ({error.reason}). Convert the file to UTF-8.") from error


def read_lines(path: str | Path) -> list[str]:
    """Read the lines of a file; entry 0 is line 1.

    Only "\\n" and "\\r\\n" end a line. ``str.splitlines`` would also cut at U+0085, U+2028 and others, which occur
    within texts.

    Raises
    ------
    ValueError
        If only "\\r" ends the lines.
    """
    text = read_text(path)
    if "\n" not in text and "\r" in text[:-1]:
        raise ValueError(
            f"{path} has line ends of old Macs (\\r alone). Convert it: read it, and write it with newline='\\n'."
        )
    return [line.removesuffix("\r") for line in text.split("\n")]


def is_blank(line: str) -> bool:
    """Whether a line holds spaces and tabs only. A no-break space is not blank: it may be a word."""
    return not line.strip(" \t\r")


def data_root(folder: str | Path | None) -> Path | None:
    """Return the folder of the data sets: ``folder``, or that of the environment variable; None where neither is set.

    Raises
    ------
    DatasetNotFoundError
        If there is no such folder.
    """
    given = folder if folder is not None else os.environ.get(VARIABLE) or None
    if given is None:
        return None
    root = Path(given).expanduser()
    if not root.is_dir():
        source = "" if folder is not None else f" ({VARIABLE})"
        raise DatasetNotFoundError(f"{root}{source} is no folder. Give the folder that holds the data sets.")
    return root


def folders_named(root: Path, names: tuple[str, ...]) -> list[Path]:
    """Return the folders to look for a data set in: those of one of the names, in any spelling ("SST-2" for "sst2").

    The root itself may be one of them. A folder of another name does not count, because the files of many data sets
    have the same names, train and dev.
    """
    children = _folders(root)
    found = [child for child in children if _plain(child.name) in names]
    for parent in children:
        if _plain(parent.name) in _GLUE_FOLDERS:
            found += [child for child in _folders(parent) if _plain(child.name) in names]
    return [*found, root] if _plain(root.resolve().name) in names else found


def find_file(folders: list[Path], stems: tuple[str, ...], endings: tuple[str, ...]) -> Path | None:
    """Find the first file of one of these names, compressed or not.

    Without one, a file whose name says that it holds some of the rows ("train_20000_partial.tsv") is returned, with a
    DatasetWarning; without that, None.
    """
    for folder in folders:
        for stem in stems:
            for ending in endings:
                for compression in COMPRESSIONS:
                    path = folder / f"{stem}{ending}{compression}"
                    if path.is_file():
                        return path
    for folder in folders:
        for stem in stems:
            for ending in endings:
                for path in sorted(folder.glob(f"{stem}_*partial{ending}*")):
                    if path.name.endswith(tuple(ending + compression for compression in COMPRESSIONS)):
                        warn_user(f"{path} holds only some of the rows of {stem!r}, as its name says.", DatasetWarning)
                        return path
    return None


def not_found(what: str, root: Path, folders: list[Path], names: tuple[str, ...], files: list[str]) -> str:
    """Write the message for a file that was not found."""
    if not folders:
        return f"{what} is not there: {root} has no folder named {' or '.join(names)}."
    listed = ", ".join(str(folder) for folder in folders)
    return f"{what} is not there: looked for {' or '.join(files)} (also {PACKED}) in {listed}."


def _folders(parent: Path) -> list[Path]:
    return sorted(child for child in parent.iterdir() if child.is_dir())


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(".", "")
