"""Results as JSON lines: each is on the disk before the next is measured, and what is there is not measured again."""

from __future__ import annotations

import datetime
import json
import os
import traceback
from pathlib import Path
from typing import Any

# Lines of a traceback that are kept: where it happened, and some of the way there.
_LINES = 12


def error_of(error: BaseException) -> dict[str, str]:
    """What is written of a cell that failed: type, message, and the last lines of the traceback."""
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return {"type": type(error).__name__, "message": str(error)[:2000], "traceback": "\n".join(lines[-_LINES:])}


class Results:
    """The file ``results.jsonl`` of a folder: a line for each cell that was measured, has failed or is absent.

    Parameters
    ----------
    folder : Path
        It is made if it is not there.
    stage, backend : str
    miniature : bool
        Toys and real measurements do not count for each other.
    """

    FILE = "results.jsonl"

    def __init__(self, folder: Path, stage: str, backend: str, miniature: bool):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / self.FILE
        self.key = {"stage": stage, "backend": backend, "miniature": miniature}

    def lines(self, stage: str | None = None, backend: str | None = None) -> list[dict[str, Any]]:
        """The lines of a stage and a backend, by default one's own. What is no whole line of JSON is left out."""
        key = self.key | ({"stage": stage} if stage else {}) | ({"backend": backend} if backend else {})
        return [line for line in _lines_of(self.path) if key.items() <= line.items()]

    def is_done(self, cell: str) -> bool:
        """Whether a cell was measured. One that failed, is absent or is not finished is tried again."""
        return any(line["cell"] == cell and _is_measured(line) for line in self.lines())

    def write(self, cell: str, values: dict[str, Any]) -> dict[str, Any]:
        """Add a line, and wait until it is on the disk. The same absence is written once."""
        line = {**self.key, "cell": cell, **values, "date": datetime.datetime.now().isoformat(timespec="seconds")}
        if "absent" in values and any(
            (old["cell"], old.get("absent")) == (cell, values["absent"]) for old in self.lines()
        ):
            return line
        _append(self.path, [line])
        return line

    @classmethod
    def take_over(cls, earlier: Path, folder: Path) -> None:
        """Add the lines of an earlier file of results to those of a folder, but of cells that were measured there."""
        there = _lines_of(folder / cls.FILE)
        measured = {_cell_of(line) for line in there if _is_measured(line)}
        if new := [line for line in _lines_of(earlier) if _cell_of(line) not in measured and line not in there]:
            _append(folder / cls.FILE, new)


def _cell_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("stage", "backend", "miniature", "cell"))


def _is_measured(line: dict[str, Any]) -> bool:
    return not {"error", "absent", "unfinished"} & line.keys()


def _lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results that are whole."""
    if not path.exists():
        return []
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # the process was ended while it wrote
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def _append(path: Path, lines: list[dict[str, Any]]) -> None:
    """Add lines, and wait until they are on the disk."""
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a line that was torn
                file.write(b"\n")
        file.write("".join(json.dumps(line, default=plain) + "\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and paths, as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
