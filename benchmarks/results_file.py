"""Files of results: every run is appended as it ends, and a run that is there is not made again."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd


class ResultsFile:
    """A CSV of results.

    Parameters
    ----------
    path : Path
        The folder is made at once, and not after an hour of measuring.
    *key : str
        The columns by which runs are told apart: what was asked for, not what was found.
    """

    def __init__(self, path: Path, *key: str):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.key = path, key
        done = self._texts()[list(key)] if path.exists() else pd.DataFrame(columns=key)
        self._done = set(done.itertuples(index=False, name=None))

    def __contains__(self, run: Mapping[str, Any]) -> bool:
        """Whether the file has a run with the same key. ``run`` may have more than the key."""
        return self._key_of(run) in self._done

    def append(self, *lines: Mapping[str, Any]) -> None:
        """Add lines. Columns that the file does not have yet are added to it, and stay empty in the lines before."""
        new = pd.DataFrame([{name: _written(value) for name, value in line.items()} for line in lines])
        if self.path.exists():
            before = self._texts()
            added = new.columns.difference(before.columns, sort=False)
            if len(added):
                before.reindex(columns=[*before.columns, *added], fill_value="").to_csv(self.path, index=False)
            new = new.reindex(columns=[*before.columns, *added], fill_value="")
        new.to_csv(self.path, mode="a", header=not self.path.exists(), index=False, lineterminator="\n")
        self._done.update(map(self._key_of, lines))

    def read(self) -> pd.DataFrame:
        """All runs."""
        return pd.read_csv(self.path)

    def _texts(self) -> pd.DataFrame:
        """All cells as they stand in the file."""
        return pd.read_csv(self.path, dtype=str, keep_default_na=False)

    def _key_of(self, run: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(_written(run[name]) for name in self.key)


def _written(value: Any) -> str:
    return "" if value is None or value != value else str(value)


def made_with() -> dict[str, str]:
    """The backend in use, the date and the versions, for the last columns of a run."""
    import keras

    backend = keras.backend.backend()
    return {
        "backend": backend, "date": datetime.date.today().isoformat(), "kbert": version("kbert-learn"),
        "keras": version("keras"), "backend_version": version(backend),
    }  # fmt: skip
