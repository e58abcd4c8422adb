"""Hugging Face folders as NumPy arrays: safetensors and PyTorch's own files are read, safetensors are written."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import write_json
from kbert.files.permissions import usual_permissions
from kbert.hub.weight_files import INDEX_ENDING, PICKLED, SAFETENSORS, hugging_face_weights, shards_of_index
from kbert.weights.array_files import read_pickled, read_safetensors

# The file by which the folder of an exported model is recognised.
EXPORT_FILE = "export.json"
# The files of a tokenizer that kbert writes beside a model.
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
_READERS = {SAFETENSORS: read_safetensors, PICKLED: read_pickled}


def is_exported(folder: str | Path) -> bool:
    """Whether an estimator's ``export`` wrote this folder."""
    return (Path(folder) / EXPORT_FILE).is_file()


def refuse_exported(folder: str | Path) -> None:
    """Raise a WeightsNotFoundError for the folder of an exported model: it holds no weights that kbert reads."""
    if is_exported(folder):
        raise WeightsNotFoundError(
            f"{folder} holds an exported model, which predicts, and is no start for training. Give the folder "
            "that `save` wrote."
        )


def read_folder(folder: str | Path) -> dict[str, np.ndarray]:
    """Read all arrays of a folder in the Hugging Face layout.

    Returns
    -------
    dict of ndarray
        By their names in the file, and in the types that they have there, which may be bfloat16.

    Raises
    ------
    WeightsNotFoundError
        When the folder holds no weights file, or lacks a shard.
    WeightsMismatchError
        When a file is damaged, or shards do not hold what their index says.
    """
    folder = Path(folder)
    refuse_exported(folder)
    for path in hugging_face_weights(folder):
        read = _READERS[path.name.removesuffix(INDEX_ENDING)]
        return _read_shards(path, read) if path.name.endswith(INDEX_ENDING) else read(path)
    raise WeightsNotFoundError(
        f"There is no {SAFETENSORS} in {folder}, nor a TensorFlow checkpoint (bert_model.ckpt.index). Save the model "
        "there again (transformers: model.save_pretrained(folder))."
    )


def _read_shards(index: Path, read: Callable[[Path], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Read the arrays of all shards, and check that each shard holds those that the index lists for it."""
    shards = shards_of_index(index)
    missing = sorted(file for file in shards if not (index.parent / file).is_file())
    if missing:
        raise WeightsNotFoundError(
            f"{index} lists {len(shards)} files, and the folder lacks {', '.join(missing[:5])}. Copy or download the "
            "folder again."
        )
    arrays: dict[str, np.ndarray] = {}
    for file, listed in shards.items():
        part = read(index.parent / file)
        if part.keys() != listed:
            name = min(part.keys() ^ listed)
            fault = f"lacks {name}, which" if name in listed else f"holds {name}, which not"
            raise WeightsMismatchError(
                f"{index.parent / file} {fault} {index.name} lists for it. The two belong to different models, or one "
                "is damaged: copy or download the folder again."
            )
        arrays |= part
    return arrays


def write_folder(folder: str | Path, config: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write ``config.json`` and ``model.safetensors`` into a folder. It is made if it does not exist.

    Files that exist keep their permissions.

    Raises
    ------
    OSError
        When a file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    folder = Path(os.path.expanduser(folder))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    # transformers reads the "format" key, and refuses a file without one.
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        with usual_permissions(folder / SAFETENSORS):
            save_file(arrays, folder / SAFETENSORS, {"format": "pt"})
    except SafetensorError as error:  # the library raises it for a full disk too
        number = re.search(r"\(os error (\d+)\)|\bOs { code: (\d+)", str(error))  # the second is safetensors 0.5's
        if os.name == "posix" and number:
            code = int(number[1] or number[2])
            raise OSError(code, os.strerror(code), str(folder / SAFETENSORS)) from error
        raise OSError(f"{folder / SAFETENSORS} cannot be written ({error}).") from error
