"""What a run of pre-training notes, update by update: as columns, as a CSV file, and for TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import numpy as np

from kbert.data.frames import data_frame

HISTORY = "history.csv"


def columns(records: list[dict[str, float]]) -> dict[str, list[float]]:
    """A list for each name that any update has; NaN where one has it not."""
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name, np.nan) for record in records] for name in names}


def write_history(folder: Path, records: list[dict[str, float]]) -> None:
    """Write ``history.csv``, a line for each update; a kill leaves the older one or the newer one."""
    path = folder / HISTORY
    aside = path.with_suffix(".csv.part")
    data_frame(columns(records)).to_csv(aside, index=False)
    aside.replace(path)


class TensorBoard:
    """Writes records for TensorBoard; nothing at all where ``folder`` is None.

    Parameters
    ----------
    folder : str, Path or None
        ``tensorboard --logdir folder`` shows it.
    records : list of dict
        Those that an earlier part of the same run wrote. TensorBoard is told to forget what came after them.

    Raises
    ------
    ImportError
        If tensorboard is not installed.
    """

    def __init__(self, folder: str | os.PathLike | None, records: list[dict[str, float]]):
        self._file, self._written = None, len(records)
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
                "install 'kbert[tensorboard]'"
            ) from None
        self._event, self._summary = Event, Summary
        folder = Path(folder).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard looks for this name, and reads the files of a folder in the order of the time in it.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(folder / name, "wb")
        self._writer = RecordWriter(self._file)
        self._add(Event(file_version="brain.Event:2"))
        if records:
            self._add(Event(step=int(records[-1]["step"]) + 1, session_log=SessionLog(status=SessionLog.START)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._file is not None:
            self._file.close()

    def write(self, records: list[dict[str, float]]) -> None:
        """Write those of a growing list that were not written before."""
        if self._file is None or len(records) == self._written:
            return
        for record in records[self._written :]:
            values = [
                self._summary.Value(tag=name, simple_value=value) for name, value in record.items() if name != "step"
            ]
            self._add(self._event(step=int(record["step"]), summary=self._summary(value=values)))
        self._written = len(records)
        self._file.flush()

    def _add(self, event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
