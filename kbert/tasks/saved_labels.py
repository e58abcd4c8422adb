"""Labels in a folder: with their type in kbert.json, or by the names of a config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kbert.config_json import output_names, read_config_json
from kbert.errors import LabelNamesWarning, WeightsMismatchError
from kbert.values.printable import shown
from kbert.values.saved import SavedValues, is_number, list_of, one_of
from kbert.warn import warn_user


def encode_labels(classes: np.ndarray) -> dict[str, Any]:
    """Labels as JSON can hold them, with their type, so that 1, 1.0, True and "1" stay what they are."""
    return {"dtype": "object" if classes.dtype.kind in "OUT" else str(classes.dtype), "values": classes.tolist()}


# The types that classes may have, and those of their labels in JSON.
_TYPES: dict[str, tuple[type, ...]] = {"object": (str, int), "int64": (int,), "float64": (float,), "bool": (bool,)}


def decode_labels(saved: SavedValues, n_outputs: int, what: str, folder: Path) -> np.ndarray:
    """The labels that `encode_labels` wrote.

    Raises
    ------
    WeightsMismatchError
        When they are not all different and of one type, or not as many as the model's head has outputs. ``what`` is
        what the message calls them.
    """
    dtype = saved.checked("dtype", one_of(*_TYPES))
    values = saved.checked("values", list_of((lambda label: type(label) in _TYPES[dtype], f"a label of type {dtype}")))
    if len(values) != n_outputs:
        raise WeightsMismatchError(f"{folder} holds {len(values)} {what} and a head of {n_outputs} outputs.")
    if len(set(values)) < len(values):
        raise saved.error("values", "must be different from each other")
    if dtype == "float64" and not all(map(is_number, values)):
        raise saved.error("values", "must be finite")
    try:
        return np.array(values, dtype=dtype)
    except OverflowError:
        raise saved.error("values", "must lie in the range of int64") from None


def labels_of_config(folder: Path, n_outputs: int) -> np.ndarray:
    """Labels from the id2label of a config.json; whole numbers where it has no names of its own.

    Warns
    -----
    LabelNamesWarning
        When there are names, but not one for each of the head's outputs: labels are then whole numbers too.
    """
    values = read_config_json(folder)
    id2label = values.get("id2label")
    if not id2label or id2label == {str(i): f"LABEL_{i}" for i in range(len(id2label))}:
        return np.arange(n_outputs)
    names = output_names(values, n_outputs) or []
    if {type(name) for name in names} not in ({str}, {int}) or len(set(names)) < n_outputs:
        warn_user(
            f"id2label in {folder / 'config.json'} does not name the head's {n_outputs} outputs ({shown(id2label)}): "
            f"the labels are the numbers 0 to {n_outputs - 1}. Correct id2label for names.",
            LabelNamesWarning,
        )
        return np.arange(n_outputs)
    return np.array(names, dtype=object)
