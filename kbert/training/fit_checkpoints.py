"""Checkpoints of a fit: what it goes on from when it was killed, and ends as if it had not been."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from kbert.errors import CheckpointWarning
from kbert.files.folder_lock import alone_in
from kbert.model.base import to_numpy
from kbert.model.setup import keras
from kbert.text.sequences import Sequences, some_at_a_time
from kbert.training import checkpoint_folders
from kbert.training.checkpoint_folders import (
    check_facts,
    checkpoints_in,
    damage,
    in_order,
    newest_sound,
    numbered,
    read_arrays,
    read_facts,
    write_checkpoint,
)
from kbert.training.distribution import process_number
from kbert.training.early_stopping import Evaluation
from kbert.training.precision import DTYPES
from kbert.training.step import Tensor
from kbert.training.trimmed_vocabulary import TrimmedModel
from kbert.training.updater import Updater
from kbert.values.saved import SavedValues, one_of, whole
from kbert.warn import warn_user

# Goes up when the contents change.
_FORMAT = 2
# The one setting that may be another than in the checkpoint.
_DEVICES = "devices"
# The values of these settings are digests, so an error names the setting alone.
_DIGESTS = ("the texts of X", "y or sample_weight", "the validation set", "the weights that training starts from")

# One value an epoch under each name; that of "update_loss" is a list.
EpochHistory: TypeAlias = dict[str, list[Any]]


@dataclass
class Standing:
    """How far a run is.

    Attributes
    ----------
    epoch : int
        The one that is under way, counted from 0.
    losses : list of tensor
        Of its batches so far.
    weighted : list of int
        How many of each batch's targets have a weight.
    texts : int
        Texts that were trained on, in all epochs.
    history : EpochHistory
        Of the epochs before it.
    stopped : bool
        Whether there is no further epoch.
    """

    epoch: int = 0
    losses: list[Tensor] = field(default_factory=list)
    weighted: list[int] = field(default_factory=list)
    texts: int = 0
    history: EpochHistory = field(default_factory=dict)
    stopped: bool = False


class FitCheckpoints:
    """The checkpoints of a fit, in a folder that no other fit uses meanwhile.

    Parameters
    ----------
    folder : Path
        Of this fit alone. It is made where it is missing.

    Raises
    ------
    ValueError
        If another fit is using the folder.
    OSError
        If the folder cannot be made.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._stack = ExitStack()
        self._settings: dict[str, Any] = {}
        self._run, self._fit_seed = 0, 0
        self._written = time.perf_counter()

    def __enter__(self) -> Self:
        if self.folder.exists() and not self.folder.is_dir():
            raise FileExistsError(f"checkpoint: {self.folder} is a file. Give the name of a folder, existing or not.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"checkpoint: the folder cannot be made ({error.strerror}). Give another one"
            raise type(error)(error.errno, reason, str(self.folder)) from error
        if process_number()[0] == 0:  # of several that train together, the first locks
            self._stack.enter_context(
                alone_in(
                    self.folder,
                    f"checkpoint: another fit is using {self.folder}. Give each fit a folder of its own; in a search "
                    "or a cross-validation leave checkpoint=None.",
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def first_run(self) -> int:
        """The run of the newest checkpoint, among those of a fit that starts again where a run fails; else 0."""
        facts = _newest_facts(self.folder)
        return 0 if facts is None else int(facts["run"])

    def dtype_policy(self) -> str | None:
        """The Keras dtype policy of the newest checkpoint; None where there is none."""
        facts = _newest_facts(self.folder)
        return None if facts is None else facts.inner("settings").checked("dtype", one_of(*DTYPES.values()))

    def begin(self, run: int, fit_seed: int, settings: dict[str, Any]) -> None:
        """Say which run comes now.

        Parameters
        ----------
        run : int
        fit_seed : int
            What the seeds of all runs are made of.
        settings : dict
            What a checkpoint must agree in; values are as JSON has them. Errors tell the names of those that differ.
        """
        if run > self.first_run():  # what failed is not gone back to
            for failed in checkpoints_in(self.folder):
                shutil.rmtree(failed, ignore_errors=True)
        self._settings, self._run, self._fit_seed = settings, run, fit_seed
        self._written = time.perf_counter()

    def restore(self, updater: Updater, trimmed: TrimmedModel | None, evaluation: Evaluation | None) -> Standing:
        """Go on from the newest checkpoint that is not damaged; begin where there is no checkpoint.

        Raises
        ------
        ValueError
            If it is of another fit, with what differs.
        WeightsMismatchError
            If there are checkpoints, and all of them are damaged.
        """
        shapes = [array.shape for array in updater.trainer.state()]

        def read(path: Path) -> _Checkpoint:
            facts = _facts(path)
            self._check_same_fit(facts["settings"])
            return _Checkpoint.read(path, facts, shapes, trimmed is not None, evaluation is not None)

        newest = newest_sound(self.folder, read, rename=process_number()[0] == 0)
        if newest is None:
            return Standing()
        before, now = newest.facts["settings"].get(_DEVICES), self._settings.get(_DEVICES)
        if before != now:
            warn_user(
                f"checkpoint: the run in {self.folder} began on other devices (was {before}, is {now}). It goes on, "
                "but no longer ends at the same weights bit for bit.",
                CheckpointWarning,
            )
        return newest.restored(updater, trimmed, evaluation)

    def _check_same_fit(self, saved: dict[str, Any]) -> None:
        differences = [
            f"{name}" if name in _DIGESTS else f"{name} (was {saved.get(name)!r}, is {value!r})"
            for name, value in self._settings.items()
            if name != _DEVICES and (name not in saved or saved[name] != value)
        ]
        if differences:
            raise ValueError(
                f"checkpoint: {self.folder} is of another fit, which differs in {', '.join(differences)}. Give the "
                "same data and parameters to go on with it, or each fit a folder of its own. In a search or a "
                "cross-validation leave checkpoint=None."
            )

    def is_due(self) -> bool:
        """Whether the last checkpoint is old enough for another one within the epoch."""
        return time.perf_counter() - self._written >= checkpoint_folders.SECONDS_BETWEEN

    def write(
        self, standing: Standing, updater: Updater, trimmed: TrimmedModel | None, evaluation: Evaluation | None
    ) -> None:
        """Write a checkpoint, unless the weights are not finite: there is nothing to go on from with these."""
        updater.guard.read_all()
        arrays = updater.trainer.state()
        self._written = time.perf_counter()
        if process_number()[0] > 0 or not all(np.isfinite(array).all() for array in arrays):
            return
        history = dict(standing.history)
        of_updates = history.pop("update_loss", [])
        facts = {
            "fit": _FORMAT, "settings": self._settings, "seed": self._fit_seed, "run": self._run,
            "epoch": standing.epoch, "texts": standing.texts, "history": history,
            "stopped": standing.stopped, "updater": updater.state(),
        }  # fmt: skip
        losses = np.array([float(loss) for loss in standing.losses], "float64")
        files = {
            "state": numbered(arrays),
            "epoch": {"losses": losses, "weighted": np.array(standing.weighted, "int64")},
            # A long fit has too many updates for a file of JSON.
            "updates": numbered([np.array(values, "float64") for values in of_updates]),
        }
        if trimmed is not None:
            files["decays"] = trimmed.state()
        if evaluation is not None:
            facts["best"], files["best"] = evaluation.state()
        write_checkpoint(self.folder, updater.n_updates, files, facts)


@dataclass(frozen=True)
class _Checkpoint:
    """A checkpoint that was read: its facts, and the arrays of each file."""

    facts: SavedValues
    arrays: list[np.ndarray]
    epoch: dict[str, np.ndarray]
    updates: list[np.ndarray]
    decays: dict[str, np.ndarray]
    best: dict[str, np.ndarray]

    @classmethod
    def read(
        cls, path: Path, facts: SavedValues, shapes: list[tuple[int, ...]], has_decays: bool, has_best: bool
    ) -> _Checkpoint:
        """Read all of it, before any part of a fit gets its state."""
        try:
            found = cls(
                facts,
                in_order(read_arrays(path, "state")),
                read_arrays(path, "epoch"),
                in_order(read_arrays(path, "updates")),
                read_arrays(path, "decays") if has_decays else {},
                read_arrays(path, "best") if has_best else {},
            )
        except MemoryError:
            raise
        except Exception as error:  # whatever zipfile and NumPy say about a damaged file
            raise damage(path, error) from error
        if [array.shape for array in found.arrays] != shapes:
            raise damage(path, "state.npz does not hold the weights and moments of this model")
        return found

    def restored(self, updater: Updater, trimmed: TrimmedModel | None, evaluation: Evaluation | None) -> Standing:
        """Give each part its state, and say how far the run is."""
        facts = self.facts
        updater.trainer.restore(self.arrays)
        updater.restore(facts["updater"])
        if trimmed is not None:
            trimmed.restore(self.decays)
        if evaluation is not None:
            evaluation.restore(facts["best"], self.best)
        losses, weighted = self.epoch["losses"].tolist(), self.epoch["weighted"].tolist()
        history: EpochHistory = {name: list(values) for name, values in facts["history"].items()}
        if self.updates:
            history["update_loss"] = [values.tolist() for values in self.updates]
        return Standing(facts["epoch"], losses, weighted, facts["texts"], history, facts["stopped"])


def _facts(path: Path) -> SavedValues:
    """The facts of a checkpoint, checked."""
    facts = read_facts(path)
    if facts.get("fit") != _FORMAT:
        raise ValueError(
            f"checkpoint: {path.parent} holds checkpoints of a pre-training, or of another version of kbert. Give "
            "another folder."
        )
    for name in ("run", "epoch", "texts", "seed"):
        facts.checked(name, whole(0))
    facts.inner("settings")
    facts.inner("history")
    Updater.check_state(facts.inner("updater"))
    check_facts(path, facts)
    return facts


def _newest_facts(folder: Path) -> SavedValues | None:
    """Those of the newest checkpoint in a folder whose facts are not damaged. `restore` tells of others."""
    return newest_sound(folder, _facts, rename=False)


def saved_seed(folder: Path) -> int | None:
    """The seed of the fit whose checkpoint is in a folder; None where there is none."""
    facts = _newest_facts(folder)
    return None if facts is None else int(facts["seed"])


def facts_of_data(
    start: keras.Layer,
    data: tuple[np.ndarray | Sequences, ...],
    targets: tuple[np.ndarray, ...],
    validation: tuple[np.ndarray | Sequences, ...],
) -> dict[str, str]:
    """Settings that tell the data of a fit, and the weights that it starts from, from those of another."""
    digests = [*map(digest, (data, targets, validation)), digest_of_weights(start)]
    return dict(zip(_DIGESTS, digests, strict=True))


def digest_of_weights(layer: keras.Layer) -> str:
    """A name for the weights of a layer or a model."""
    return digest(to_numpy(variable.value) for variable in layer.weights)


def digest(values: Iterable[np.ndarray | Sequences]) -> str:
    """A name for arrays and sequences, which changes with any of their numbers."""
    found = hashlib.blake2b(digest_size=16)
    for value in values:
        if isinstance(value, np.ndarray):
            found.update(repr((value.shape, value.dtype.str)).encode())
            found.update(np.ascontiguousarray(value).tobytes())
            continue
        for some in some_at_a_time(value):
            for array in (some.tokens.values, some.tokens.splits, some.first_length):
                found.update(np.ascontiguousarray(array, "int64").tobytes())
        found.update(np.ascontiguousarray(value.rows, "int64").tobytes())
    return found.hexdigest()
