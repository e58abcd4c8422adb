"""Checkpoints of a training run: written aside and renamed, so that a kill leaves the older one or the newer one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from kbert.errors import WeightsMismatchError

# The newest and the one before it, should the newest turn out to be damaged.
_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{9})")


def write_checkpoint(folder: Path, step: int, arrays: list[np.ndarray], facts: dict[str, Any]) -> Path:
    """Write arrays and facts as the checkpoint of a step, and remove older ones."""
    target = folder / f"checkpoint-{step:09d}"
    aside = folder / f"{target.name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with open(aside / "state.npz", "wb") as file:
        np.savez(file, *arrays)
        file.flush()
        os.fsync(file.fileno())
    (aside / "facts.json").write_text(json.dumps(facts, indent=1))
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    for old in _checkpoints(folder)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def read_checkpoint(folder: Path) -> tuple[list[np.ndarray], dict[str, Any]] | None:
    """The arrays and facts of the newest checkpoint; None where there is none."""
    found = _checkpoints(folder)
    if not found:
        return None
    path = found[-1]
    try:
        facts = json.loads((path / "facts.json").read_text())
        with np.load(path / "state.npz", allow_pickle=False) as state:
            return [state[f"arr_{i}"] for i in range(len(state.files))], facts
    except Exception as error:  # whatever zipfile, NumPy and json say about a damaged file
        raise WeightsMismatchError(
            f"{path} is damaged ({error}). Remove it, and training goes on from the one before."
        ) from error


def _checkpoints(folder: Path) -> list[Path]:
    """Finished ones, oldest first."""
    return sorted(path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name))
