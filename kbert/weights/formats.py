"""The formats of weights that kbert knows: which one a folder or file has, how it is read, and how it is written.

A further format is one more entry in the list at the end. What is particular to one is imported when it is met.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbert.config_json import read_config_json
from kbert.errors import WeightsMismatchError
from kbert.hub.weight_files import KERAS_FILES, files_of_weights, hugging_face_weights
from kbert.json_files import json_object
from kbert.presets import is_preset
from kbert.text import WordPieceTokenizer
from kbert.weights.arrays import HEADS, TIED, Array, canonical_name, is_half
from kbert.weights.folder import read_folder, write_folder


class Format(NamedTuple):
    """One format.

    Attributes
    ----------
    name : str
        As in ``kbert convert --to``.
    title : str
        As `kbert info` calls it.
    found : callable
        Path -> whether what is there has this format.
    read : callable
        Path -> list of Array.
    config : callable
        Path -> the keys of a Hugging Face config.json.
    write : callable or None
        (folder, config, arrays by Hugging Face name, tokenizer or None) -> list of Array, saying where each array is
        in the new folder; None where it is not written. The tokenizer's files in the Hugging Face layout, which some
        formats share, are written by the caller if ``writes_tokenizer`` is False.
    weights : callable
        Path -> the files that hold the arrays.
    """

    name: str
    title: str
    found: Callable[[Path], bool]
    read: Callable[[Path], list[Array]]
    config: Callable[[Path], dict]
    weights: Callable[[Path], list[Path]]
    write: Callable[[Path, dict, dict[str, np.ndarray], WordPieceTokenizer | None], list[Array]] | None = None
    writes_tokenizer: bool = False


def format_of(place: str | Path) -> Format:
    """The format of a folder, or of a file of Keras's; Hugging Face's where it is no other's."""
    place = Path(place)
    return next(known for known in FORMATS.values() if known.found(place))


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """All arrays of a weights folder of any format by their names in a Hugging Face file, without ``bert.`` before it.

    Those of float16 and bfloat16 come as float32, which holds the same numbers, the others as they are in the file.

    Raises
    ------
    WeightsNotFoundError
        When the folder holds no weights file.
    WeightsMismatchError
        When the file is damaged, or two arrays in it have one name but for what older files call otherwise.
    """
    found: dict[str, np.ndarray] = {}
    for array in format_of(folder).read(Path(folder)):
        if array.name in found:
            raise WeightsMismatchError(
                f"{folder} holds {array.name} twice, under names of different forms of BERT's files. Remove one from "
                "the file."
            )
        if array.name is not None:
            found[array.name] = array.array.astype("float32") if is_half(array.array) else array.array
    for name, kept in TIED.items():
        if name in found:
            found.setdefault(kept, found[name])
    return found


def _glob(*patterns: str) -> Callable[[Path], list[Path]]:
    return lambda folder: sorted({path for pattern in patterns for path in folder.glob(pattern)})


# === KerasHub ===


def _is_kerashub(place: Path) -> bool:
    path = place / "config.json"
    try:
        return path.is_file() and is_preset(json_object(path))
    except ValueError:  # told by whoever reads it
        return False


def _read_kerashub(folder: Path) -> list[Array]:
    from kbert.weights.kerashub import read_kerashub

    return read_kerashub(folder)


def _write_kerashub(folder, config, arrays, tokenizer) -> list[Array]:
    from kbert.weights.kerashub import write_kerashub

    return write_kerashub(folder, config, arrays, tokenizer)


# === Keras ===


def _is_keras(place: Path) -> bool:
    return place.name.endswith(KERAS_FILES) and not place.is_dir()


def _read_keras(path: Path) -> list[Array]:
    from kbert.weights.keras_files import read_keras

    return read_keras(path)


def _config_of_keras(path: Path) -> dict:
    from kbert.weights.keras_files import config_of_keras

    return config_of_keras(path)


# === Google ===


def _is_google(place: Path) -> bool:
    from kbert.weights.google import find_checkpoint

    return not hugging_face_weights(place) and find_checkpoint(place) is not None


def _read_google(folder: Path) -> list[Array]:
    from kbert.weights.google import google_arrays

    return [a if a.name is None else a._replace(name=canonical_name(a.name)) for a in google_arrays(folder)]


def _write_google(folder, config, arrays, tokenizer) -> list[Array]:
    from kbert.weights.google import write_google

    return write_google(folder, config, arrays)


# === Hugging Face ===


def _read_hugging_face(folder: Path) -> list[Array]:
    return [Array(name, canonical_name(name), array) for name, array in read_folder(folder).items()]


def _write_hugging_face(folder, config, arrays, tokenizer) -> list[Array]:
    # transformers puts the encoder's arrays under bert. where there is a head beside it.
    prefix = "bert." if any(name.startswith(HEADS) for name in arrays) else ""
    named = {name if name.startswith(HEADS) else prefix + name: array for name, array in arrays.items()}
    write_folder(folder, config, named)
    return [Array(there, name, arrays[name]) for there, name in zip(named, arrays, strict=True)]


# In this order: the last takes what is no other's, and its errors say what a weights folder has to hold.
FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        Format("keras", "Keras", _is_keras, _read_keras, _config_of_keras, lambda path: [path]),
        Format(
            "kerashub", "KerasHub preset", _is_kerashub, _read_kerashub, read_config_json,
            _glob("model*.weights.h5", "task.weights.h5"), _write_kerashub, writes_tokenizer=True,
        ),
        Format(
            "google", "Google TensorFlow checkpoint", _is_google, _read_google, read_config_json,
            _glob("*.ckpt*.data-*"), _write_google,
        ),
        Format(
            "hf", "Hugging Face", lambda place: True, _read_hugging_face, read_config_json,
            lambda folder: files_of_weights(hugging_face_weights(folder)[0]), _write_hugging_face,
        ),
    )
}  # fmt: skip
