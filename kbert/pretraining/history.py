"""The history of a run of pre-training, a line for each update: in memory, as a CSV file, and for TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from kbert.data.frames import data_frame

HISTORY = "history.csv"
_COUNTS = ("step", "tokens")


class History:
    """Numbers by name, a line for each update; NaN where an update has no such number.

    Held as columns of eight bytes a number: as dicts, a million updates would take a gigabyte.

    Parameters
    ----------
    columns : mapping of str to array of float
        Those of an earlier part of the run.
    """

    def __init__(self, columns: Mapping[str, np.ndarray] | None = None):
        self._columns = {name: array("d", values) for name, values in (columns or {}).items()}
        self._n = max(map(len, self._columns.values()), default=0)

    def __len__(self) -> int:
        return self._n

    def append(self, record: Mapping[str, float]) -> None:
        """Add a line."""
        self._n += 1
        self.add(record)

    def add(self, values: Mapping[str, float]) -> None:
        """Add numbers to the newest line."""
        for name in values:
            self._columns.setdefault(name, array("d"))
        for column in self._columns.values():
            column.extend([np.nan] * (self._n - len(column)))
        for name, value in values.items():
            self._columns[name][-1] = value

    def forget(self, prefix: str) -> None:
        """Drop the columns whose names begin so."""
        self._columns = {name: column for name, column in self._columns.items() if not name.startswith(prefix)}

    def record(self, line: int) -> dict[str, float]:
        """The numbers that a line has."""
        values = {name: column[line] for name, column in self._columns.items()}
        return {name: value for name, value in values.items() if not np.isnan(value)}

    def columns(self, first: int = 0) -> dict[str, np.ndarray]:
        """All numbers from a line on; ``step`` and ``tokens`` are whole numbers."""
        # A view of the array's memory would forbid it to grow.
        values = {name: np.array(column[first:]) for name, column in self._columns.items()}
        return {name: column.astype("int64") if name in _COUNTS else column for name, column in values.items()}


class HistoryFile:
    """``history.csv`` in a folder, a line for each update.

    The first time it is written whole, into another file that is then renamed. Later, lines are added, so that a long
    run does not write all of them again and again. A kill may leave a part of a line, or lines that are newer than the
    checkpoint; a run that goes on from there writes the file whole once more.
    """

    def __init__(self, folder: Path):
        self._path = folder / HISTORY
        self._names: list[str] = []
        self._n_written = 0

    def write(self, history: History) -> None:
        """Write the lines that are new."""
        frame = data_frame(history.columns(self._n_written))
        if list(frame) == self._names:
            frame.to_csv(self._path, mode="a", header=False, index=False)
        else:  # it is new, or there is a column more
            unfinished = self._path.with_suffix(".csv.part")
            data_frame(history.columns()).to_csv(unfinished, index=False)
            unfinished.replace(self._path)
        self._names, self._n_written = list(frame), len(history)


class TensorBoard:
    """Writes records for TensorBoard; nothing at all where ``folder`` is None.

    Parameters
    ----------
    folder : str, Path or None
        ``tensorboard --logdir folder`` shows it.
    history : History
        What an earlier part of the same run wrote. TensorBoard is told to forget what came after it.

    Raises
    ------
    ImportError
        If tensorboard is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, history: History):
        self._file, self._written = None, len(history)
        if folder is None:
            return
        # Not tensorboard.summary.Writer, which imports TensorFlow wherever that is installed, under any backend: it
        # does no more than this with the same parts.
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise ImportError(
                f"tensorboard={os.fspath(folder)!r} needs the package tensorboard ({error}). Install it with: pip "
                "install tensorboard"
            ) from None
        self._event, self._summary = Event, Summary
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard looks for this name, and reads the files of a folder in the order of the time in it.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(folder / name, "wb")
        self._writer = RecordWriter(self._file)
        self._add(Event(file_version="brain.Event:2"))
        if len(history):
            self._add(Event(step=int(history.record(-1)["step"]) + 1, session_log=SessionLog(status=SessionLog.START)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, history: History) -> None:
        """Write the lines that are new."""
        if self._file is None or len(history) == self._written:
            return
        for line in range(self._written, len(history)):
            record = history.record(line)
            values = [
                self._summary.Value(tag=name, simple_value=value) for name, value in record.items() if name != "step"
            ]
            self._add(self._event(step=int(record["step"]), summary=self._summary(value=values)))
        self._written = len(history)
        self._file.flush()

    def _add(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
