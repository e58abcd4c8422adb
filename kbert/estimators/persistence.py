"""Estimators in folders: the Hugging Face layout, and kbert.json beside it."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from kbert.config import BertConfig, read_config_json
from kbert.errors import WeightsMismatchError

FILE = "kbert.json"
FORMAT = 1
# What a saved estimator consists of, or did when another version or library saved it.
_OURS = {
    FILE, "config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt", "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json",
}  # fmt: skip
_KEYS = ("parameters", "learned", "n_features_in", "feature_names_in", "history", "golden")


def encode_value(value: Any) -> Any:
    """A parameter as JSON can hold it. A random generator is not kept: it becomes None."""
    if isinstance(value, BertConfig):
        return {"BertConfig": value.to_dict()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(value, dict):
        # JSON's keys are strings, and class labels may be numbers.
        return {"dict": [[encode_value(key), encode_value(item)] for key, item in value.items()]}
    return value


def decode_value(value: Any) -> Any:
    """The parameter that `encode_value` wrote."""
    if isinstance(value, dict) and "BertConfig" in value:
        return BertConfig(**value["BertConfig"])
    if isinstance(value, dict) and "dict" in value:
        return {decode_value(key): decode_value(item) for key, item in value["dict"]}
    return value


def encode_labels(classes: np.ndarray) -> dict:
    """Labels with their type, so that 1, 1.0, True and "1" stay what they are."""
    return {"dtype": "object" if classes.dtype.kind in "OUT" else str(classes.dtype), "values": classes.tolist()}


def decode_labels(encoded: dict) -> np.ndarray:
    """The labels that `encode_labels` wrote."""
    return np.array(encoded["values"], dtype=encoded["dtype"])


def labels_of_config(folder: str | Path, n_labels: int) -> np.ndarray:
    """Labels from the id2label of a config.json; whole numbers where it has no names of its own."""
    names = {int(key): value for key, value in (read_config_json(folder).get("id2label") or {}).items()}
    default = {i: f"LABEL_{i}" for i in range(n_labels)}
    if not names or names == default:
        return np.arange(n_labels)
    if sorted(names) != list(range(n_labels)):
        raise WeightsMismatchError(
            f"id2label in {folder}/config.json names the labels {sorted(names)}, and the head has {n_labels} outputs."
        )
    return np.array([names[i] for i in range(n_labels)], dtype=object)


def read_kbert_json(folder: str | Path, estimator: str) -> dict | None:
    """The contents of kbert.json, or None where the folder was not saved by kbert."""
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        saved_format, saved_by = values["format"], values["estimator"]
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsMismatchError(f"{path} is damaged ({error!r}). Save the estimator again.") from None
    if not isinstance(saved_format, int):
        raise WeightsMismatchError(f"{path} is damaged (format {saved_format!r}). Save the estimator again.")
    if saved_format > FORMAT:
        raise WeightsMismatchError(
            f"{path} was written by a newer kbert (format {saved_format}). Update: pip install -U kbert."
        )
    if saved_by != estimator:
        raise WeightsMismatchError(f"{folder} holds a {saved_by}; load it with kbert.{saved_by}.load.")
    missing = [key for key in _KEYS if key not in values]
    if missing:
        raise WeightsMismatchError(f"{path} is damaged (it lacks {', '.join(missing)}). Save the estimator again.")
    return values


def replace_folder(folder: Path, write) -> None:
    """Let ``write(path)`` fill a new folder aside, and put it in the place of ``folder`` when it is complete.

    Other files in a folder that is replaced, such as a README.md, are kept. If something fails, the old folder stays.

    Raises
    ------
    FileExistsError
        Where ``folder`` holds something else than a saved estimator, which is left as it is.
    """
    folder = Path(folder).resolve()
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file. Give the name of a folder, existing or not.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / FILE).is_file():
        raise FileExistsError(
            f"{folder} exists and holds no saved estimator: nothing was written. Choose another folder."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    new, old = aside / "new", aside / "old"
    try:
        write(new)
        if folder.is_dir():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        if old.is_dir() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if old.is_dir():
        for path in old.iterdir():
            if path.name not in _OURS:
                path.rename(folder / path.name)
    shutil.rmtree(aside, ignore_errors=True)


def write_kbert_json(folder: Path, values: dict) -> None:
    """Write kbert.json into a folder."""
    (Path(folder) / FILE).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
