"""What a run of pre-training goes on from: its checkpoint, read and checked, in a folder of its own."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.files.folder_lock import alone_in
from kbert.pretraining.instances import DocumentSource
from kbert.pretraining.objective import REPORTED
from kbert.training.checkpoint_folders import (
    check_facts,
    damage,
    in_order,
    newest_sound,
    numbered,
    read_arrays,
    read_facts,
)
from kbert.training.precision import dtype_policy
from kbert.training.updater import Updater
from kbert.values.saved import TEXT, SavedValues, list_of, none_or, whole

_FACTS = {"settings", "tokens", "longest", "held_out", "cursors", "updater", "checksum"}


def only_run_in(folder: Path) -> AbstractContextManager[None]:
    """Be the only run with checkpoints in a folder, which is made if there is none.

    Raises
    ------
    ValueError
        If there is another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return alone_in(folder, f"Another run is writing its checkpoints to {folder}. Give each run a folder of its own.")


class Checkpoint(NamedTuple):
    """What a run goes on from.

    Attributes
    ----------
    arrays : list of ndarray
        Weights and moments.
    history : dict of ndarray
        Its columns.
    facts : dict
        Settings and counts, as JSON has them.
    """

    arrays: list[np.ndarray]
    history: dict[str, np.ndarray]
    facts: dict[str, Any]

    def files(self) -> dict[str, dict[str, np.ndarray]]:
        """The arrays of each file."""
        return {"state": numbered(self.arrays), "history": self.history}


def read_checkpoint(folder: Path, rename: bool = True) -> Checkpoint | None:
    """The newest checkpoint that is not damaged; None where there is none.

    Damaged ones are told of in a warning, and renamed if ``rename`` says so.
    """
    return newest_sound(folder, _read, rename)


def saved_seed(folder: Path) -> int | None:
    """The seed of the run whose checkpoint is in a folder; None where there is none."""
    facts = newest_sound(folder, _facts, rename=False)
    return None if facts is None else facts.inner("settings").checked("seed", whole(0))


def dtype_of_run(dtype: Any, folder: Path | None) -> str:
    """The policy to train with: "auto" stands for what it stood for in the run whose checkpoint is in the folder."""
    facts = newest_sound(folder, _facts, rename=False) if folder is not None and dtype == "auto" else None
    saved: str | None = None if facts is None else facts.inner("settings").checked("dtype", none_or(TEXT))
    return saved or dtype_policy(dtype)


def _read(path: Path) -> Checkpoint:
    facts = _facts(path)
    try:
        arrays, columns = in_order(read_arrays(path, "state")), read_arrays(path, "history")
        _check_arrays(arrays, facts["settings"].get("shapes"))
        _check_columns(columns, facts["updater"]["updates"])
    except MemoryError:
        raise
    except Exception as error:  # whatever zipfile and NumPy say about a damaged file
        raise damage(path, error) from error
    return Checkpoint(arrays, columns, facts)


def digest_of_text(source: DocumentSource) -> str:
    """A name for a text, which changes with any of its tokens."""
    found = hashlib.blake2b(digest_size=16)
    for element in map(source.__getitem__, range(len(source))):
        for array in (element.tokens, element.segments, element.documents):
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _facts(path: Path) -> SavedValues:
    """The facts of a checkpoint, checked."""
    facts = read_facts(path)
    if not facts.keys() <= _FACTS:
        raise ValueError(f"{path} is of a fit, or was written by another version of kbert. Give another folder.")
    facts.inner("settings")
    facts.checked("tokens", whole(0))
    if "longest" in facts:  # which earlier versions did not write
        facts.checked("longest", whole(1))
    facts.checked("cursors", list_of(list_of(whole(0), 4)))
    Updater.check_state(facts.inner("updater"))
    check_facts(path, facts)
    return facts


def _check_arrays(arrays: list[np.ndarray], shapes: Any) -> None:
    """Refuse weights and moments that are not those of a model of these shapes, or not finite."""
    if [list(array.shape) for array in arrays] != 3 * list(shapes):
        raise ValueError("state.npz does not hold the weights and two moments of the shapes in facts.json")
    if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in arrays):
        raise ValueError("state.npz holds what is no finite number")


def _check_columns(columns: dict[str, np.ndarray], n_updates: int) -> None:
    """Refuse a history that is not a column of numbers for each name, with a line for each update."""
    if missing := {"step", "learning_rate", "tokens", "seconds", *REPORTED} - columns.keys():
        raise ValueError(f"history.npz lacks {min(missing)}")
    if any(column.shape != (n_updates,) or column.dtype.kind not in "if" for column in columns.values()):
        raise ValueError(f"history.npz does not hold {n_updates} lines of numbers")
