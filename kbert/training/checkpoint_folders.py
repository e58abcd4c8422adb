"""Folders of checkpoints. Each is renamed once it is complete, so that a kill leaves the one before."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from kbert.errors import CheckpointWarning, WeightsMismatchError
from kbert.files.atomic_folder import sync
from kbert.files.json_files import json_object
from kbert.values.saved import SavedValues
from kbert.warn import warn_user

# A checkpoint is written when the last one is so many seconds old, beside those at the end of an epoch or the like.
SECONDS_BETWEEN = 300.0
# The newest and the one before it, should the newest turn out to be damaged.
_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{9})")
_FACTS = "facts.json"
# The key of facts.json with the checksum of the others. The arrays have theirs in the .npz files.
_CHECKSUM = "checksum"
# The modules of scikit-learn whose functions fit clones of one estimator to parts of the rows.
_SEARCHES = (
    "sklearn.model_selection._search", "sklearn.model_selection._validation", "sklearn.calibration",
    "sklearn.model_selection._classification_threshold", "sklearn.ensemble._stacking",
)  # fmt: skip

Read = TypeVar("Read")


def refuse_in_search(folder: Any) -> None:
    """Refuse a folder for the fits of scikit-learn's searches and cross-validations, of which each is another fit.

    Called when an estimator is cloned. An error in ``fit`` would come too late: the first of them trains, and searches
    take errors of the others for a score of NaN.

    Raises
    ------
    ValueError
        If such a function is cloning.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_SEARCHES):
            raise ValueError(
                f"checkpoint: all fits of a search or a cross-validation would share {folder}, and each needs a folder "
                "of its own. Set checkpoint=None for it."
            )
        frame = frame.f_back


def write_checkpoint(
    folder: Path, step: int, arrays: Mapping[str, Mapping[str, np.ndarray]], facts: Mapping[str, Any]
) -> Path:
    """Write the checkpoint of a step, and remove older ones.

    Parameters
    ----------
    folder : Path
        Of the run. It is made where it is missing.
    step : int
        Updates so far.
    arrays : dict of dict of ndarray
        The arrays of each ``.npz`` file, by its name without the ending.
    facts : dict
        What goes into facts.json.

    Raises
    ------
    OSError
        If it cannot be written: the folder has the checkpoints that it had.
    """
    target = folder / f"checkpoint-{step:09d}"
    unfinished = folder / f"{target.name}.part"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for name, members in arrays.items():
            with open(unfinished / f"{name}.npz", "wb") as file:
                np.savez(file, **members)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
        with open(unfinished / _FACTS, "w", encoding="utf-8") as file:
            json.dump({**facts, _CHECKSUM: _checksum(facts)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        sync(unfinished)
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
        # Before older ones are removed: after a power cut there may be no other. The run's folder may be new itself.
        sync(folder)
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"no checkpoint could be written there ({reason}). Make room or give another folder; earlier checkpoints "
            "are as they were",
            str(folder),
        ) from error
    for old in checkpoints_in(folder)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def checkpoints_in(folder: Path) -> list[Path]:
    """The finished checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name))


def newest_sound(folder: Path, read: Callable[[Path], Read], rename: bool = True) -> Read | None:
    """What is read from the newest checkpoint that is not damaged; None where there is no checkpoint.

    Newer ones, which are damaged, are told of in a warning.

    Parameters
    ----------
    folder : Path
        Of the run.
    read : callable
        Reads a checkpoint. A WeightsMismatchError of it says that it is damaged; other errors are passed on.
    rename : bool, default=True
        Whether damaged ones are renamed, so that they are out of the way.

    Raises
    ------
    WeightsMismatchError
        If all checkpoints are damaged.
    """
    damaged: list[tuple[Path, WeightsMismatchError]] = []
    for path in reversed(checkpoints_in(folder)):
        try:
            found = read(path)
        except WeightsMismatchError as error:
            damaged.append((path, error))
            continue
        for other, fault in damaged if rename else ():
            aside = other.with_name(f"{other.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            other.rename(aside)
            warn_user(f"{fault} It is kept as {aside.name}, and training goes on from {path.name}.", CheckpointWarning)
        return found
    if damaged:
        raise WeightsMismatchError(
            f"{damaged[0][1]} There is no checkpoint before it to go on from. Remove {folder} to begin anew."
        ) from damaged[0][1]
    return None


def read_facts(checkpoint: Path) -> SavedValues:
    """The facts of a checkpoint. Call `check_facts` when the values were looked at that have rules.

    Raises
    ------
    WeightsMismatchError
        If there are none, or the file is damaged.
    """
    path = checkpoint / _FACTS
    try:
        return SavedValues(json_object(path), path, remedy="")
    except (ValueError, OSError) as error:
        raise damage(checkpoint, error) from error


def check_facts(checkpoint: Path, facts: Mapping[str, Any]) -> None:
    """Compare facts with their checksum. A WeightsMismatchError says that one was changed."""
    found = {name: value for name, value in facts.items() if name != _CHECKSUM}
    if facts.get(_CHECKSUM) != _checksum(found):
        raise damage(checkpoint, f"{_FACTS} was changed: it does not have its checksum")


def damage(checkpoint: Path, fault: object) -> WeightsMismatchError:
    """The error that says that a checkpoint is damaged."""
    return WeightsMismatchError(f"{checkpoint} is damaged ({fault}).")


def _checksum(facts: Mapping[str, Any]) -> int:
    as_read = json.loads(json.dumps(facts))
    return zlib.crc32(json.dumps(as_read, sort_keys=True).encode())


def read_arrays(checkpoint: Path, name: str) -> dict[str, np.ndarray]:
    """The arrays of one ``.npz`` file of a checkpoint."""
    with np.load(checkpoint / f"{name}.npz", allow_pickle=False) as found:
        return dict(found)


def numbered(arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under names that tell their order."""
    return {f"arr_{i}": array for i, array in enumerate(arrays)}


def in_order(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What `numbered` was given."""
    names = [f"arr_{i}" for i in range(len(arrays))]
    if missing := set(names) - arrays.keys():
        raise ValueError(f"there is no array {min(missing)}")
    return [arrays[name] for name in names]
