"""Labels in a folder: with their type in kbert.json, or by the names of a config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kbert.config_json import output_names, read_config_json
from kbert.data.frames import shown
from kbert.errors import LabelNamesWarning, WeightsMismatchError
from kbert.warn import warn_user


def encode_labels(classes: np.ndarray) -> dict[str, Any]:
    """Labels as JSON can hold them, with their type, so that 1, 1.0, True and "1" stay what they are."""
    return {"dtype": "object" if classes.dtype.kind in "OUT" else str(classes.dtype), "values": classes.tolist()}


def decode_labels(encoded: dict[str, Any], n_outputs: int, what: str, folder: Path) -> np.ndarray:
    """The labels that `encode_labels` wrote.

    Raises
    ------
    WeightsMismatchError
        When there are not as many as the model's head has outputs. ``what`` is what the message calls them.
    """
    classes = np.array(encoded["values"], dtype=encoded["dtype"])
    if len(classes) != n_outputs:
        raise WeightsMismatchError(f"{folder} holds {len(classes)} {what} and a head of {n_outputs} outputs.")
    return classes


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
