"""What all stages share: where things lie, whether the shapes are toys, and what a cell is. Imports no backend."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")

# Of peers, packages that differ in name from what is imported.
PIP_NAMES = {"sentence_transformers": "sentence-transformers", "flash_attn": "flash-attn"}


class Absent(Exception):
    """A cell cannot be measured on this machine, and that is no fault: the message is the reason."""


def examples_can_be_imported() -> None:
    """Let the examples be imported: they read the data sets, and score as their tasks do."""
    folder = str(Path(__file__).resolve().parents[2] / "examples")
    if folder not in sys.path:
        sys.path.append(folder)


@dataclass(frozen=True)
class Setting:
    """How a stage is run.

    Attributes
    ----------
    backend : {"jax", "torch"}
        Of Keras.
    out : Path
        Where the results are written.
    state : Path
        Where weights, token shards and checkpoints are kept, from which a later run goes on. They may be large.
    data : Path or None
        The folder of public data sets, KBERT_DATA; texts are made up for what is not in it.
    weights : Path or None
        A folder with minilm-l6. Without it, that size has random weights too.
    miniature : bool
        Toy shapes, for a CPU.
    minutes : float
        The training time of kbert-mini, in all pieces together.
    vocabulary : Path or None
        A folder with the vocabulary of kbert-mini. Without it, that is learned from the text.
    """

    backend: str
    out: Path
    state: Path
    data: Path | None = None
    weights: Path | None = None
    miniature: bool = False
    minutes: float = 20.0
    vocabulary: Path | None = None

    def pick(self, full: Value, toy: Value) -> Value:
        """One of two values: that of a GPU, or that of a CPU in miniature."""
        return toy if self.miniature else full

    @property
    def sst2(self) -> Path | None:
        """The folder of SST-2, if it is there."""
        folder = None if self.data is None else self.data / "sst2"
        return folder if folder is not None and folder.is_dir() else None


@dataclass(frozen=True)
class Cell:
    """One thing to measure, which makes one line of the results.

    Attributes
    ----------
    name : str
        No two cells of a stage have the same.
    options : dict
        What the stage's ``measure`` takes.
    seconds : float
        About how long it takes on a GPU. It is not begun when less is left of the stage's time, and ended after four
        times as long.
    needs : tuple of str
        Packages that must be installed.
    absent : str
        Why it cannot be measured at all, where that is known without trying.
    alone : bool
        Whether it needs a new process: for the most memory that was used, which JAX counts from the start of a process.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 30.0
    needs: tuple[str, ...] = ()
    absent: str = ""
    alone: bool = False

    def reason_to_leave_out(self) -> str:
        """Why it cannot be measured here, or an empty string."""
        if self.absent:
            return self.absent
        missing = [PIP_NAMES.get(name, name) for name in self.needs if find_spec(name) is None]
        return f"not installed: {', '.join(missing)}" if missing else ""
