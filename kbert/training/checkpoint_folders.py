"""Folders of checkpoints. Each is renamed once it is complete, so that a kill leaves the one before."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# A checkpoint is written when the last one is so many seconds old, beside those at the end of an epoch or the like.
SECONDS_BETWEEN = 300.0
# The newest and the one before it, should the newest turn out to be damaged.
_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{9})")
_FACTS = "facts.json"


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
            json.dump(facts, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
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


def facts_file(checkpoint: Path) -> Path:
    """The file of a checkpoint's facts."""
    return checkpoint / _FACTS


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
