"""Weights of any format, read and checked: the source of ``kbert convert`` and ``kbert info``."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.config import BertConfig
from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.hub import resolve_folder
from kbert.hub.weight_files import is_licence
from kbert.weights.arrays import (
    BUFFERS,
    HEADS,
    TIED,
    Array,
    array_shapes,
    as_float32,
    check_arrays,
    merge_tied,
    of_its_head,
)
from kbert.weights.formats import FORMATS, Format, format_of


class Source(NamedTuple):
    """Weights that were read and checked.

    Attributes
    ----------
    path : Path
        A folder, or one of Keras's files.
    format : Format
    values : dict
        The keys of a Hugging Face config.json.
    config : BertConfig
    read : list of Array
        All arrays of the file.
    arrays : dict of numpy.ndarray
        Those that are BERT's, as float32, by their Hugging Face names.
    skipped : dict of str
        Why the others are skipped, by their names in the file.
    """

    path: Path
    format: Format
    values: dict[str, Any]
    config: BertConfig
    read: list[Array]
    arrays: dict[str, np.ndarray]
    skipped: dict[str, str]

    @property
    def folder(self) -> Path:
        """The folder, or that of the file, where the tokenizer and the licence are."""
        return self.path if self.path.is_dir() else self.path.parent

    def licence_files(self) -> list[Path]:
        """Return the licence files beside the weights."""
        return sorted(path for path in self.folder.iterdir() if path.is_file() and is_licence(path.name))


def read_source(name: str | Path) -> Source:
    """Read weights of any format, and check every array.

    Parameters
    ----------
    name : str or Path
        A weights folder, a name of weights as `kbert.hub.resolve_folder` takes it, or a ``.keras`` or ``.weights.h5``
        file of one of kbert's models.

    Raises
    ------
    WeightsNotFoundError
        If the weights are not found or incomplete.
    WeightsMismatchError
        If the config is not usable; if an array is missing, unknown, of another shape, quantised or not finite; if two
        tied arrays differ.
    """
    path = _resolved(name)
    weights_format = format_of(path)
    values = _checked_values(weights_format.config(path), path)
    config = BertConfig.from_dict(values)
    read = weights_format.read(path)
    arrays, skipped = _checked_arrays(read, config, path)
    return Source(path, weights_format, values, of_its_head(config, arrays), read, arrays, skipped)


def _resolved(name: str | Path) -> Path:
    """Return the folder of a name, or one of Keras's files as it is."""
    path = Path(os.path.expanduser(name))
    if not FORMATS["keras"].found(path) or not path.is_file():
        return resolve_folder(name)
    if FORMATS["kerashub"].found(path.parent):
        raise WeightsNotFoundError(f"{path} is a file of a KerasHub preset. Give the folder: {str(path.parent)!r}.")
    return path


def _checked_values(values: dict[str, Any], path: Path) -> dict[str, Any]:
    """Check the types of the keys of a config.json that do not describe the architecture."""
    named, labels = values.get("architectures") or [], values.get("id2label") or {}
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise WeightsMismatchError(
            f'architectures in the config of {path} is {named!r}, and should be a list such as ["BertModel"].'
        )
    if not isinstance(labels, dict):
        raise WeightsMismatchError(
            f'id2label in the config of {path} is no JSON object, such as {{"0": "negative", "1": "positive"}}. '
            "Correct it, or leave it out."
        )
    return values


def _checked_arrays(read: list[Array], config: BertConfig, path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return BERT's arrays as float32, by name, and why the others are skipped."""
    found: dict[str, Array] = {}
    skipped: dict[str, str] = {}
    for array in read:
        if array.name is None:
            skipped[array.source] = array.note
        elif array.name in BUFFERS:
            skipped[array.source] = "skipped: counts positions, no weight"
        elif array.name in found:
            raise WeightsMismatchError(f"{path} holds {array.name} twice: {found[array.name].source}, {array.source}.")
        else:
            found[array.name] = array
    arrays = {name: array.array for name, array in found.items() if array.array is not None}
    merge_tied(arrays, path)
    for name, kept in TIED.items():
        if name in found and kept in found:
            skipped[found[name].source] = f"skipped: {kept} once more"
    own = array_shapes(replace(config, num_hidden_layers=1), 1)  # one layer will do for the names of heads
    for name in [name for name in arrays if name.startswith(HEADS) and name not in own]:
        skipped[found[name].source] = "skipped: of a head that BERT does not have"
        del arrays[name]
    check_arrays(arrays, config, path)
    return {name: as_float32(array, name, path) for name, array in arrays.items()}, skipped
