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

    def __init__(self, folder: Path, stage: str, backend: str, miniature: bool):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "results.jsonl"
        self.key = {"stage": stage, "backend": backend, "miniature": miniature}

    def lines(self, stage: str | None = None, backend: str | None = None) -> list[dict[str, Any]]:
        """The lines of a stage and a backend, by default one's own. What is no whole line of JSON is left out."""
        key = self.key | ({"stage": stage} if stage else {}) | ({"backend": backend} if backend else {})
        if not self.path.exists():
            return []
        found = []
        for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # the process was ended while it wrote
                continue
            if isinstance(line, dict) and key.items() <= line.items():
                found.append(line)
        return found

    def is_done(self, cell: str) -> bool:
        """Whether a cell was measured. One that failed, is absent or is not finished is tried again."""
        return any(
            line["cell"] == cell and not {"error", "absent", "unfinished"} & line.keys() for line in self.lines()
        )

    def write(self, cell: str, values: dict[str, Any]) -> dict[str, Any]:
        """Add a line, and wait until it is on the disk. The same absence is written once."""
        line = {**self.key, "cell": cell, **values, "date": datetime.datetime.now().isoformat(timespec="seconds")}
        if "absent" in values and any(
            (old["cell"], old.get("absent")) == (cell, values["absent"]) for old in self.lines()
        ):
            return line
        with open(self.path, "ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line that was torn
                    file.write(b"\n")
            file.write((json.dumps(line, default=plain) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        return line


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and paths, as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
