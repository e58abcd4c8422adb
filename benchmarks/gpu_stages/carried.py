"""What a run on another machine goes on from, in a few small files beside the results.

A machine that is lent may be gone after each run, and give back a few files of limited size only. Weights are kept in
float16 and the optimiser's moments in bfloat16, so training does not go on bit for bit; it rounds all once.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

# The most bytes of a file.
LARGEST = 15 * 2**20


def write_pieces(folder: Path, name: str, step: int, content: bytes) -> None:
    """Write NAME-STEP.1-of-3 and so on, and remove those of other steps."""
    parts = [content[start : start + LARGEST] for start in range(0, len(content), LARGEST)]
    paths = [folder / f"{name}-{step:09d}.{i}-of-{len(parts)}" for i in range(1, len(parts) + 1)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    remove_pieces(folder, name, paths)


def remove_pieces(folder: Path, name: str, but: list[Path] | None = None) -> None:
    """Remove all pieces of a name but some."""
    for path in _pieces(folder, name):
        if path not in (but or []):
            path.unlink()


def read_pieces(folder: Path, name: str) -> tuple[int, bytes] | None:
    """The newest step of which all pieces are there, and its content; None if there is none."""
    found: dict[tuple[int, int], list[Path]] = {}
    pieces = sorted((step, total, number, path) for path, (step, number, total) in _pieces(folder, name).items())
    for step, total, _, path in pieces:
        found.setdefault((step, total), []).append(path)
    whole = [(step, paths) for (step, total), paths in found.items() if len(paths) == total]
    return (whole[-1][0], b"".join(path.read_bytes() for path in whole[-1][1])) if whole else None


def _pieces(folder: Path, name: str) -> dict[Path, tuple[int, int, int]]:
    """The pieces of a name: step, number, and how many there are."""
    pattern = re.compile(re.escape(name) + r"-(\d{9})\.(\d+)-of-(\d+)")
    matches = {path: pattern.fullmatch(path.name) for path in folder.glob(f"{name}-*")}
    return {path: tuple(map(int, match.groups())) for path, match in matches.items() if match}  # type: ignore[misc]


def packed_checkpoint(checkpoint: Any) -> bytes:
    """A checkpoint of pre-training in two bytes a number."""
    import ml_dtypes

    n = len(checkpoint.arrays) // 3  # weights, then both moments
    members = {f"weight-{i:04d}": array.astype("float16") for i, array in enumerate(checkpoint.arrays[:n])}
    for i, array in enumerate(checkpoint.arrays[n:]):
        members[f"moment-{i:04d}"] = array.astype(ml_dtypes.bfloat16).view("uint16")
    # Whoever writes the checkpoint again adds its checksum.
    facts = {name: value for name, value in checkpoint.facts.items() if name != "checksum"}
    members |= {f"history-{name}": column for name, column in checkpoint.history.items()}
    file = io.BytesIO()
    np.savez_compressed(file, facts=np.array(json.dumps(facts)), **members)
    return file.getvalue()


def unpacked_checkpoint(content: bytes) -> Any:
    """The checkpoint of `packed_checkpoint`."""
    import ml_dtypes

    from kbert.pretraining.checkpoints import Checkpoint

    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        facts = json.loads(str(file["facts"]))
        kinds: dict[str, dict[str, np.ndarray]] = {"weight": {}, "moment": {}, "history": {}}
        for name in file.files:
            kind, _, rest = name.partition("-")
            if kind in kinds:
                kinds[kind][rest] = file[name]
    weights = [array.astype("float32") for _, array in sorted(kinds["weight"].items())]
    moments = [array.view(ml_dtypes.bfloat16).astype("float32") for _, array in sorted(kinds["moment"].items())]
    return Checkpoint([*weights, *moments], kinds["history"], facts)


def zipped(folder: Path) -> bytes:
    """The files of a folder."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, path.name)
    return file.getvalue()
