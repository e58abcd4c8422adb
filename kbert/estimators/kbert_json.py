"""The file kbert.json of a saved estimator: reading, writing, and its parameters as JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kbert.config import BertConfig
from kbert.config_json import read_config_json
from kbert.errors import WeightsMismatchError
from kbert.files.atomic_folder import FolderKind
from kbert.files.json_files import json_object, write_json
from kbert.training.distribution import is_distribution
from kbert.values.saved import TEXT, SavedValues, list_of, none_or, one_of, whole
from kbert.weights.folder import EXPORT_FILE, TOKENIZER_FILES, is_exported

FILE = "kbert.json"
FORMAT = 1

# A saved estimator: the files that `save` writes anew. Its README.md stays if the user has changed it, and what another
# program wrote beside them too.
SAVED_ESTIMATOR = FolderKind(
    FILE, frozenset({FILE, "config.json", "model.safetensors", *TOKENIZER_FILES}), "saved estimator"
)
_REMEDY = "Save the estimator again."
# A larger kbert.json is not parsed. The history of a million updates of pre-training, the paper's, takes 220 MB.
_MOST_BYTES = 500_000_000
_MOST_VALUES = 20_000_000
# The most columns that an X has: context, question and options.
_MOST_COLUMNS = 3


def encode_value(value: Any) -> Any:
    """Turn a parameter into something that JSON can hold. A RandomState cannot be kept: it becomes None."""
    if isinstance(value, BertConfig):
        return {"BertConfig": value.to_dict()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.random.RandomState):
        return None
    if is_distribution(value):  # the devices of this machine
        return "auto"
    if isinstance(value, dict):
        # JSON's keys are strings, and class labels may be numbers.
        return {"dict": [[encode_value(key), encode_value(item)] for key, item in value.items()]}
    return value


def decode_value(value: Any) -> Any:
    """Turn what `encode_value` wrote into the parameter again. A path has become a str."""
    if isinstance(value, dict) and "BertConfig" in value:
        return BertConfig(**value["BertConfig"])
    if isinstance(value, dict) and "dict" in value:
        return {decode_value(key): decode_value(item) for key, item in value["dict"]}
    return value


def _is_history(value: Any) -> bool:
    """Whether a value is what `fit` keeps: a list of numbers by name, which may be NaN; lists of those of updates."""
    if not isinstance(value, dict):
        return False
    of_updates = value.get("update_loss", [])
    of_epochs = [numbers for name, numbers in value.items() if name != "update_loss"]
    return isinstance(of_updates, list) and all(map(_are_numbers, [*of_epochs, *of_updates]))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) in (int, float) for number in value)


def _is_logits(value: Any) -> bool:
    """Whether a value is an array of finite numbers."""
    try:
        logits = np.array(value)
    except ValueError:  # rows of several lengths
        return False
    return isinstance(value, list) and logits.dtype.kind in "if" and bool(np.isfinite(logits).all())


def _check_values(values: SavedValues) -> None:
    """Check all of kbert.json but the parameters and what was learned, whose owners check them."""
    n_features = values.checked("n_features_in", none_or(whole(1, _MOST_COLUMNS)))
    names = values.checked("feature_names_in", list_of(TEXT))
    if names and n_features is not None and len(names) != n_features:
        raise values.error("feature_names_in", f"must name {n_features} columns, and names {len(names)}")
    values.checked("history", none_or((_is_history, "lists of numbers by name")))
    golden = values.inner("golden")
    golden.checked("texts", list_of(TEXT))
    golden.checked("logits", (_is_logits, "an array of finite numbers"))
    golden.checked("dtype", one_of("float32", "mixed_bfloat16", "mixed_float16"))
    if "weights" in golden:  # which earlier versions did not write
        golden.checked("weights", TEXT)


def check_architecture(folder: str | Path, architecture: str, estimator: str) -> None:
    """Refuse a folder that transformers saved for another task. Its arrays may fit all the same.

    Parameters
    ----------
    folder : str or Path
    architecture : str
        The class of transformers for this task, such as "BertForSequenceClassification".
    estimator : str
        The name of the estimator, for the message.

    Raises
    ------
    WeightsMismatchError
        If config.json names another class, or describes another model than BERT.
    """
    BertConfig.from_folder(folder)  # raises for a model other than BERT, with a message of its own
    named = read_config_json(folder).get("architectures")
    if named and named not in ([architecture], architecture):
        shown = ", ".join(map(str, named)) if isinstance(named, list) else str(named)
        raise WeightsMismatchError(
            f"{folder} holds a {shown}, and {estimator} opens what transformers saved as {architecture}. Load it with "
            f"the estimator of its task, or fine-tune from it: {estimator}(weights=folder). If it is the same model "
            'under another name, correct "architectures" in its config.json.'
        )


def read(folder: str | Path, estimator: str) -> SavedValues | None:
    """Read kbert.json; None where the folder was not saved by kbert.

    Raises
    ------
    WeightsMismatchError
        If the file is damaged, was written by a newer kbert, or was saved by another estimator than ``estimator``. The
        parameters and what was learned have yet to be checked.
    """
    values = _read(folder)
    if values is None:
        return None
    if values["estimator"] != estimator:
        saved_by = values["estimator"]
        raise WeightsMismatchError(f"{folder} holds a {saved_by}; load it with kbert.{saved_by}.load.")
    _check_values(values)
    return values


def saved_estimator(folder: str | Path) -> str | None:
    """The class of the estimator that a folder holds; None where it was not saved by kbert."""
    values = _read(folder)
    return None if values is None else str(values["estimator"])


def file_of(folder: str | Path) -> Path:
    """The file of a saved estimator, or of an exported one, which holds the same values and more."""
    return Path(folder) / (EXPORT_FILE if is_exported(folder) else FILE)


def _read(folder: str | Path) -> SavedValues | None:
    """kbert.json, or export.json, of which the format and the name of the estimator are checked."""
    path = file_of(folder)
    if not path.is_file():
        # A folder, or a link to nothing: without its kbert.json it would be another estimator.
        if os.path.lexists(path):
            raise WeightsMismatchError(f"{path} is no file. {_REMEDY}")
        return None
    try:
        values = SavedValues(json_object(path, most_bytes=_MOST_BYTES, most_values=_MOST_VALUES), path, remedy=_REMEDY)
    except ValueError as error:
        raise WeightsMismatchError(f"{path} is damaged ({error}). {_REMEDY}") from None
    saved_format = values.checked("format", whole(1))
    values.checked("estimator", TEXT)
    if saved_format > FORMAT:
        raise WeightsMismatchError(f"{path} was written by a newer kbert (format {saved_format}). Update kbert.")
    return values


def decode_parameters(values: SavedValues) -> dict[str, Any]:
    """Return the parameters in the values of kbert.json, for an estimator's ``__init__``."""
    parameters = values.inner("parameters")
    decoded = {}
    for name, value in parameters.items():
        try:
            decoded[name] = decode_value(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise parameters.error(name, f"is not usable: {error}") from None
    return decoded


def write(folder: Path, values: dict[str, Any]) -> None:
    """Write kbert.json into a folder."""
    write_json(Path(folder) / FILE, values)
