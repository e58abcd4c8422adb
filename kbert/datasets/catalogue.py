"""Data sets by name: from a local folder, else through the Hugging Face ``datasets`` library."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kbert.datasets.choices import read_choices
from kbert.datasets.conll import read_conll
from kbert.datasets.files import VARIABLE, data_root, find_file, folders_named, not_found
from kbert.datasets.glue import GLUE, glue_part, read_glue
from kbert.datasets.hub import HUB, library_is_installed, load_from_hub
from kbert.datasets.squad import read_squad
from kbert.errors import DatasetNotFoundError


@dataclass(frozen=True)
class Files:
    """The files of a data set.

    Attributes
    ----------
    parts : dict
        For each part, the names that its file may have, without their ending.
    endings : tuple of str
        The endings of the names.
    read : callable
        The reader of a file.
    folders : tuple of str
        The names of the data set's folder, in lower case without hyphens.
    """

    parts: dict[str, tuple[str, ...]]
    endings: tuple[str, ...]
    read: Callable[[Path], pd.DataFrame]
    folders: tuple[str, ...]


FILES: dict[str, Files] = {
    "squad": Files(
        {"train": ("train-v1.1",), "dev": ("dev-v1.1",)}, (".json",), read_squad, ("squad", "squad1", "squad11")
    ),
    "squad_v2": Files(
        {"train": ("train-v2.0",), "dev": ("dev-v2.0",)},
        (".json",),
        read_squad,
        ("squad", "squad2", "squadv2", "squad20"),
    ),
    "conll2003": Files(
        {"train": ("train", "eng.train"), "dev": ("dev", "valid", "eng.testa"), "test": ("test", "eng.testb")},
        (".txt", ".conll", ""),
        read_conll,
        ("conll2003", "conll03"),
    ),
    "swag": Files({"train": ("train",), "dev": ("val", "dev"), "test": ("test",)}, (".csv",), read_choices, ("swag",)),
    "dream": Files({"train": ("train",), "dev": ("dev",), "test": ("test",)}, (".jsonl",), read_choices, ("dream",)),
}

NAMES: tuple[str, ...] = (*GLUE, *FILES)


def load(name: str, part: str, folder: str | Path | None = None) -> pd.DataFrame:
    """Load one part of a data set by its name.

    It is looked for in a local folder, and then, if the Hugging Face library ``datasets`` is installed, in that
    library's cache and on the hub.

    Parameters
    ----------
    name : str
        One of ``NAMES``: GLUE's "cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli" and "ax"; "squad"
        (version 1.1), "squad_v2" (2.0), "conll2003", "swag", "dream".
    part : str
        "train", "dev" or "test", if the data set has such a part. For MNLI also "dev_matched", "dev_mismatched",
        "test_matched" and "test_mismatched"; "dev" and "test" are the matched ones.
    folder : str or Path, optional
        The folder that holds a folder for each data set; by default that of the environment variable KBERT_DATA.

    Returns
    -------
    DataFrame
        The columns of ``read_glue``, ``read_squad``, ``read_conll`` or ``read_choices``, also for a data set from the
        hub.

    Raises
    ------
    DatasetNotFoundError
        If it is found neither in the folder nor on the hub. The message says where it was looked for and what to do.
    ValueError
        If there is no such data set or part, or a file is damaged.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kbert import datasets
    >>> Path("data/conll2003").mkdir(parents=True)
    >>> with open("data/conll2003/train.txt", "w") as file:
    ...     print("Ada NNP B-NP B-PER", "left VBD B-VP O", sep="\\n", file=file)
    >>> datasets.load("conll2003", "train", "data")
             words        tags  document
    0  [Ada, left]  [B-PER, O]         0
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r} is not known. The names are {', '.join(NAMES)}.")
    if name in GLUE:
        part = glue_part(name, part)
    elif part not in FILES[name].parts:
        raise ValueError(f"part={part!r} is no part of {name}. Its parts are {', '.join(FILES[name].parts)}.")
    try:
        return _load_local(name, part, folder)
    except DatasetNotFoundError as error:
        # A given folder that does not exist is a mistake, and no reason to download.
        if folder is not None and not Path(folder).expanduser().is_dir():
            raise
        missing = error
    if name in HUB and library_is_installed():
        try:
            return load_from_hub(name, part)
        except DatasetNotFoundError as error:
            raise DatasetNotFoundError(f"{missing} {error}") from error
    raise DatasetNotFoundError(f"{missing} {_remedy(name)}") from None


def _load_local(name: str, part: str, folder: str | Path | None) -> pd.DataFrame:
    root = data_root(folder)
    if root is None:
        raise DatasetNotFoundError(f"No folder was given for {name}, and {VARIABLE} is not set.")
    if name in GLUE:
        return read_glue(name, part, root)
    files = FILES[name]
    folders = folders_named(root, files.folders)
    path = find_file(folders, files.parts[part], files.endings)
    if path is None:
        expected = [stem + ending for stem in files.parts[part] for ending in files.endings[:1]]
        raise DatasetNotFoundError(not_found(f"The {part} part of {name}", root, folders, files.folders, expected))
    return files.read(path)


def _remedy(name: str) -> str:
    local = f"Put the file there, or give folder=... or {VARIABLE} the folder that holds it"
    if name not in HUB:
        return f"{local}."
    return f"{local}; or let the Hugging Face library download it: pip install datasets"
