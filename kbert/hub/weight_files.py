"""Which files of a folder in the Hugging Face layout are its weights."""

from __future__ import annotations

import re
from pathlib import Path

from kbert.errors import WeightsMismatchError
from kbert.files.json_files import json_object, unique_keys

# The weights are in one of these files, or in shards, which an index beside them lists.
SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
INDEX_ENDING = ".index.json"
# The endings of Keras's own files, which `kbert convert` reads.
KERAS_FILES = (".keras", ".weights.h5")
_REMEDY = " Copy or download the folder again."


def hugging_face_weights(folder: Path) -> list[Path]:
    """Return the weights files and the indexes of shards that a folder has. The first of them is what is read.

    They are in the order of preference of transformers: safetensors before PyTorch's format, and a single file before
    shards.
    """
    names = [f"{name}{ending}" for name in (SAFETENSORS, PICKLED) for ending in ("", INDEX_ENDING)]
    return [folder / name for name in names if (folder / name).is_file()]


def shards_of_index(index: Path) -> dict[str, set[str]]:
    """Read a ``*.index.json``, which lists the shards of the weights.

    Returns
    -------
    dict of str to set of str
        The name of each file, in the same folder as the index, and the names of the arrays in it.

    Raises
    ------
    WeightsMismatchError
        If it is not such an index, or names a file that could lie in another folder.
    """
    weight_map = json_object(index, WeightsMismatchError, _REMEDY, unique_keys).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsMismatchError(f"{index} has no weight_map, which says where each array is.{_REMEDY}")
    ending = Path(index.name.removesuffix(INDEX_ENDING)).suffix
    shards: dict[str, set[str]] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or not re.fullmatch(rf"\w[\w.-]*{re.escape(ending)}", file):
            raise WeightsMismatchError(
                f"{index} puts {name!r} into {file!r}, which is no name of a {ending} file in the same folder.{_REMEDY}"
            )
        shards.setdefault(file, set()).add(name)
    return shards


def files_of_weights(weights: Path) -> list[Path]:
    """Return the files that hold the arrays: the weights file itself, or the shards that an index lists."""
    if not weights.name.endswith(INDEX_ENDING):
        return [weights]
    return sorted(weights.with_name(file) for file in shards_of_index(weights))


def has_weights(folder: Path) -> bool:
    """Whether a folder has a config.json and complete weights: a single file, or all shards."""
    found = hugging_face_weights(folder)
    if not found or not (folder / "config.json").is_file():
        return False
    try:
        return all(path.is_file() for path in files_of_weights(found[0]))
    except WeightsMismatchError:
        return False


def is_licence(file: str) -> bool:
    """Whether a file of a weights folder is its licence, or a notice that the licence requires."""
    return re.fullmatch(r"(LICEN[SC]E|NOTICE)[^/]*", file, re.IGNORECASE) is not None
