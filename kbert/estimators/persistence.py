"""Estimators in folders: the Hugging Face layout, and kbert.json beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.config import BertConfig, output_names, read_config_json
from kbert.data.frames import shown
from kbert.errors import LabelNamesWarning, WeightsMismatchError
from kbert.weights.folder import refuse_exported

FILE = "kbert.json"
FORMAT = 1
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class Kind(NamedTuple):
    """A kind of folder: the file that it is known by, all that it may consist of, and what it is called."""

    marker: str
    files: frozenset[str]
    name: str


# What a saved estimator consists of, or did when another version or library saved it.
SAVED = Kind(
    FILE,
    frozenset({FILE, "config.json", "model.safetensors", "pytorch_model.bin", *TOKENIZER_FILES}),
    "saved estimator",
)
# What a save has aside, and the seconds after which it is taken for that of a killed process.
_ASIDE = ("new", "old")
_LEFTOVER_AGE = 3600
_KEYS = ("parameters", "learned", "n_features_in", "feature_names_in", "history", "golden")


def encode_value(value: Any) -> Any:
    """A parameter as JSON can hold it. A random generator is not kept: it becomes None."""
    if isinstance(value, BertConfig):
        return {"BertConfig": value.to_dict()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(value, dict):
        # JSON's keys are strings, and class labels may be numbers.
        return {"dict": [[encode_value(key), encode_value(item)] for key, item in value.items()]}
    return value


def decode_value(value: Any) -> Any:
    """The parameter that `encode_value` wrote."""
    if isinstance(value, dict) and "BertConfig" in value:
        return BertConfig(**value["BertConfig"])
    if isinstance(value, dict) and "dict" in value:
        return {decode_value(key): decode_value(item) for key, item in value["dict"]}
    return value


def encode_labels(classes: np.ndarray) -> dict:
    """Labels with their type, so that 1, 1.0, True and "1" stay what they are."""
    return {"dtype": "object" if classes.dtype.kind in "OUT" else str(classes.dtype), "values": classes.tolist()}


def decode_labels(encoded: dict) -> np.ndarray:
    """The labels that `encode_labels` wrote."""
    return np.array(encoded["values"], dtype=encoded["dtype"])


def labels_of_config(folder: str | Path, n_labels: int) -> np.ndarray:
    """Labels from the id2label of a config.json; whole numbers where it has no names of its own.

    Warns
    -----
    LabelNamesWarning
        When there are names, but not one for each of the head's outputs: labels are then whole numbers too.
    """
    values = read_config_json(folder)
    id2label = values.get("id2label")
    if not id2label or id2label == {str(i): f"LABEL_{i}" for i in range(len(id2label))}:
        return np.arange(n_labels)
    names = output_names(values, n_labels) or []
    if {type(name) for name in names} not in ({str}, {int}) or len(set(names)) < n_labels:
        warnings.warn(
            f"id2label in {Path(folder) / 'config.json'} does not name the head's {n_labels} outputs "
            f"({shown(id2label)}): the labels are the numbers 0 to {n_labels - 1}. Correct id2label for names.",
            LabelNamesWarning,
            stacklevel=4,
        )
        return np.arange(n_labels)
    return np.array(names, dtype=object)


def check_architecture(folder: str | Path, architecture: str, estimator: str) -> None:
    """Refuse a folder of transformers whose config.json names the model of another task: its arrays may fit."""
    BertConfig.from_folder(folder)  # what is no BERT at all gets another word
    named = read_config_json(folder).get("architectures")
    if named and named not in ([architecture], architecture):
        named = ", ".join(map(str, named)) if isinstance(named, list) else str(named)
        raise WeightsMismatchError(
            f"{folder} holds a {named}, and {estimator} opens what transformers saved as {architecture}. Load it with "
            f"the estimator of its task, or fine-tune from it: {estimator}(weights=folder). If it is the same model "
            'under another name, correct "architectures" in its config.json.'
        )


def read_kbert_json(folder: str | Path, estimator: str) -> dict | None:
    """The contents of kbert.json, or None where the folder was not saved by kbert."""
    path = Path(folder) / FILE
    refuse_exported(folder)
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        saved_format, saved_by = values["format"], values["estimator"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WeightsMismatchError(f"{path} is damaged ({error!r}). Save the estimator again.") from None
    if not isinstance(saved_format, int):
        raise WeightsMismatchError(f"{path} is damaged (format {saved_format!r}). Save the estimator again.")
    if saved_format > FORMAT:
        raise WeightsMismatchError(
            f"{path} was written by a newer kbert (format {saved_format}). Update: pip install -U kbert."
        )
    if saved_by != estimator:
        raise WeightsMismatchError(f"{folder} holds a {saved_by}; load it with kbert.{saved_by}.load.")
    missing = [key for key in _KEYS if key not in values]
    if missing:
        raise WeightsMismatchError(f"{path} is damaged (it lacks {', '.join(missing)}). Save the estimator again.")
    return values


def replace_folder(folder: Path, write, kind: Kind = SAVED) -> None:
    """Let ``write(path)`` fill a new folder aside, and put it in the place of ``folder`` when it is complete.

    Other files in a folder that is replaced, such as a README.md, are kept. If something fails, the old folder stays.
    Where the process is killed, the old folder or the new one is there: the new one is made in ``.name.xxxxxxxx/new``,
    and when it is complete, ``folder`` is moved to ``.name.xxxxxxxx/old``, and ``new`` to ``folder``.
    `complete_interrupted_save` makes up for a kill between these two.

    Raises
    ------
    FileExistsError
        Where ``folder`` holds something else than that kind of folder, which is left as it is.
    """
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder.parent):
        _complete(folder)
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file. Give the name of a folder, existing or not.")
        if folder.is_dir() and any(folder.iterdir()) and not (folder / kind.marker).is_file():
            raise FileExistsError(
                f"{folder} exists and holds no {kind.name}: nothing was written. Choose another folder."
            )
    aside = folder.parent / f".{folder.name}.{uuid.uuid4().hex[:8]}"
    new, old = (aside / name for name in _ASIDE)
    here = _working_folder()
    try:
        write(new)
        with _one_at_a_time(folder.parent):
            _complete(folder)
            if folder.is_dir():
                _keep_other_files(folder, new, kind)
                # From here on the new one counts as complete.
                folder.rename(old)
            _put_in_place(aside, folder)
    except BaseException:
        if old.is_dir() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if here is not None and here.is_relative_to(folder):
        with suppress(OSError):
            os.chdir(here)  # the folder of that name now, no longer the removed one
    _remove_leftovers(folder)


def complete_interrupted_save(folder: str | os.PathLike) -> None:
    """Finish the swap where a killed save left no folder, but the complete new one beside it.

    Nothing happens where there is a folder, nor for a name that is no folder's.
    """
    try:
        folder = Path(os.path.expanduser(folder)).resolve()
        interrupted = not folder.exists() and _asides(folder)
    except (OSError, ValueError, RuntimeError, TypeError):
        return
    if interrupted:
        with _one_at_a_time(folder.parent):
            _complete(folder)


def _complete(folder: Path) -> None:
    """Where there is no folder, put in its place what an interrupted swap left."""
    for aside in _asides(folder):
        # Without an old one beside it, a new one may be half a folder.
        if not folder.exists() and (aside / "new").is_dir() and (aside / "old").is_dir():
            _put_in_place(aside, folder)


def _put_in_place(aside: Path, folder: Path) -> None:
    """The last step of a swap, and the clean-up. Without locks, another process may take it first: that is as good."""
    try:
        (aside / "new").rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    shutil.rmtree(aside, ignore_errors=True)


def _working_folder() -> Path | None:
    """The folder that the process is in; None where it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


@contextmanager
def _one_at_a_time(parent: Path) -> Iterator[None]:
    """Wait until no other process swaps folders in here. A lock ends with its process; some systems have none."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            handle = os.open(parent, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Closing is not enough where the process has been forked meanwhile.
            stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)
        yield


def _keep_other_files(folder: Path, new: Path, kind: Kind) -> None:
    """Have everything in ``folder`` that kbert did not write in ``new`` too."""
    try:
        for path in folder.iterdir():
            if path.name in kind.files or os.path.lexists(new / path.name):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, new / path.name, symlinks=True, copy_function=_link_or_copy)
            else:
                _link_or_copy(path, new / path.name)
    except OSError as error:
        raise OSError(
            f"{folder} was left as it is, because other files in it could not be taken over ({error}). Save again, "
            "or into another folder."
        ) from error


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    """The same file under a second name, so that not even one that is being written to loses anything."""
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


def _asides(folder: Path) -> list[Path]:
    """The folders beside ``folder`` in which it is being saved, or was when a process was killed."""
    pattern = re.compile(re.escape(f".{folder.name}.") + "[0-9a-f]{8}")
    try:
        return [folder.parent / name for name in os.listdir(folder.parent) if pattern.fullmatch(name)]
    except OSError:  # there is no parent, or one that may not be listed
        return []


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed saves of the same folder left; younger ones may be those of processes that still run."""
    for aside in _asides(folder):
        with suppress(OSError):
            if set(os.listdir(aside)) <= set(_ASIDE) and time.time() - aside.stat().st_mtime > _LEFTOVER_AGE:
                shutil.rmtree(aside, ignore_errors=True)


def write_kbert_json(folder: Path, values: dict) -> None:
    """Write kbert.json into a folder."""
    (Path(folder) / FILE).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
