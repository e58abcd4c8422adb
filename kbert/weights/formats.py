"""The weights formats that kbert knows: how each is recognised, read and written.

To add a format, add an entry to `FORMATS` at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.config_json import MOST_BYTES, MOST_VALUES, read_config_json
from kbert.errors import WeightsMismatchError
from kbert.files.json_files import json_object
from kbert.hub.weight_files import KERAS_FILES, files_of_weights, hugging_face_weights
from kbert.kerashub_json import is_preset
from kbert.text import WordPieceTokenizer
from kbert.weights.arrays import HEADS, TIED, Array, canonical_name, is_half
from kbert.weights.folder import read_folder, write_folder
from kbert.weights.google import find_checkpoint, google_arrays, write_google
from kbert.weights.keras_files import config_of_keras, read_keras
from kbert.weights.kerashub import read_kerashub, write_kerashub


class Format(NamedTuple):
    """One format.

    Attributes
    ----------
    name : str
        As in ``kbert convert --to``.
    title : str
        As `kbert info` calls it.
    found : callable
        Path -> whether the folder or file has this format.
    read : callable
        Path -> list of Array.
    config : callable
        Path -> the keys of a Hugging Face config.json.
    weights : callable
        Path -> the files that hold the arrays.
    write : callable or None
        (folder, config, arrays by Hugging Face name, tokenizer or None) -> list of Array, which says where each array
        is in the new folder; None where kbert does not write the format.
    writes_tokenizer : bool
        Whether ``write`` writes the tokenizer too. Otherwise the caller writes it in the Hugging Face layout.
    """

    name: str
    title: str
    found: Callable[[Path], bool]
    read: Callable[[Path], list[Array]]
    config: Callable[[Path], dict[str, Any]]
    weights: Callable[[Path], list[Path]]
    write: Callable[[Path, dict[str, Any], dict[str, np.ndarray], WordPieceTokenizer | None], list[Array]] | None = None
    writes_tokenizer: bool = False


def format_of(path: str | Path) -> Format:
    """Return the format of a folder or of one of Keras's files. A folder of no other format is Hugging Face's."""
    path = Path(path)
    return next(known for known in FORMATS.values() if known.found(path))


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of a weights folder of any format.

    Returns
    -------
    dict of ndarray
        By their names in a Hugging Face file, without ``bert.`` before them. Those of float16 and bfloat16 are
        converted to float32, which holds the same numbers; the others have the type of the file.

    Raises
    ------
    WeightsNotFoundError
        When the folder holds no weights file.
    WeightsMismatchError
        When the file is damaged, or holds an array twice, under its name and under one that older files have.
    """
    found: dict[str, np.ndarray] = {}
    for array in format_of(folder).read(Path(folder)):
        if array.name in found:
            raise WeightsMismatchError(
                f"{folder} holds {array.name} twice, under names of different forms of BERT's files. Remove one from "
                "the file."
            )
        if array.name is not None and array.array is not None:
            found[array.name] = array.array.astype("float32") if is_half(array.array) else array.array
    for name, kept in TIED.items():
        if name in found:
            found.setdefault(kept, found[name])
    return found


def _glob(*patterns: str) -> Callable[[Path], list[Path]]:
    return lambda folder: sorted({path for pattern in patterns for path in folder.glob(pattern)})


# === KerasHub ===


def _is_kerashub(folder: Path) -> bool:
    path = folder / "config.json"
    try:
        return path.is_file() and is_preset(json_object(path, most_bytes=MOST_BYTES, most_values=MOST_VALUES))
    except ValueError:  # a damaged config.json: reading the folder raises for it, with a better message
        return False


# === Keras ===


def _is_keras(path: Path) -> bool:
    return path.name.endswith(KERAS_FILES) and not path.is_dir()


# === Google ===


def _is_google(folder: Path) -> bool:
    return not hugging_face_weights(folder) and find_checkpoint(folder) is not None


def _read_google(folder: Path) -> list[Array]:
    return [a if a.name is None else a._replace(name=canonical_name(a.name)) for a in google_arrays(folder)]


def _write_google(
    folder: Path, config: dict[str, Any], arrays: dict[str, np.ndarray], tokenizer: WordPieceTokenizer | None
) -> list[Array]:
    return write_google(folder, config, arrays)


# === Hugging Face ===


def _read_hugging_face(folder: Path) -> list[Array]:
    return [Array(name, canonical_name(name), array) for name, array in read_folder(folder).items()]


def _write_hugging_face(
    folder: Path, config: dict[str, Any], arrays: dict[str, np.ndarray], tokenizer: WordPieceTokenizer | None
) -> list[Array]:
    # In a model with a head, transformers has "bert." before the names of the encoder's arrays.
    prefix = "bert." if any(name.startswith(HEADS) for name in arrays) else ""
    named = {name if name.startswith(HEADS) else prefix + name: array for name, array in arrays.items()}
    write_folder(folder, config, named)
    return [Array(written, name, arrays[name]) for written, name in zip(named, arrays, strict=True)]


# The order matters: the last one takes every folder, and its errors say what a weights folder has to hold.
FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        Format("keras", "Keras", _is_keras, read_keras, config_of_keras, lambda path: [path]),
        Format(
            "kerashub", "KerasHub preset", _is_kerashub, read_kerashub, read_config_json,
            _glob("model*.weights.h5", "task.weights.h5"), write_kerashub, writes_tokenizer=True,
        ),
        Format(
            "google", "Google TensorFlow checkpoint", _is_google, _read_google, read_config_json,
            _glob("*.ckpt*.data-*"), _write_google,
        ),
        Format(
            "hf", "Hugging Face", lambda folder: True, _read_hugging_face, read_config_json,
            lambda folder: files_of_weights(hugging_face_weights(folder)[0]), _write_hugging_face,
        ),
    )
}  # fmt: skip
