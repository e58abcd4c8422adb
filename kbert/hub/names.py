"""A name of weights -> a local folder: which kind of name it is, and in which order it is looked for."""

from __future__ import annotations

import errno
import logging
import os
import re
from pathlib import Path

from kbert.errors import WeightsNotFoundError
from kbert.hub.hugging_face import download, fetch_if_there, find_in_cache
from kbert.hub.kaggle import download_preset
from kbert.hub.packages import find_in_package
from kbert.hub.weight_files import KERAS_FILES, hugging_face_weights
from kbert.sizes import SIZES, find_size
from kbert.values.printable import shown

_CONFIGS = ("config.json", "bert_config.json")
_VOCABULARIES = ("tokenizer.json", "vocab.txt")
# A name with one of these endings is that of a file. Other dots do not count: hub names have them too ("my-bert-v2.1").
_FILE_ENDINGS = tuple(".safetensors .bin .json .txt .h5 .keras .ckpt .index .onnx .pt .pth .zip".split())
# The prefix of a TensorFlow checkpoint: bert_model.ckpt, or model.ckpt-1000 for the one after 1000 steps.
_CHECKPOINT = re.compile(r"\.ckpt(-\d+)?$")
# Says at level INFO where weights came from. Nothing is shown unless the user asks for it.
_logger = logging.getLogger("kbert")


def resolve_folder(name: str | Path, revision: str | None = None) -> Path:
    """Return the local folder of a name of weights. They are downloaded if they are not on this machine.

    A name is looked for in this order: a folder, the local hub cache, an installed package that carries the weights,
    the hub. ``logging.getLogger("kbert")`` says at level INFO where a hub name was found.

    Parameters
    ----------
    name : str or Path
        One of these:

        - a folder; "~" is the home folder. A Path is always a folder. Of a folder with one of Google's
          checkpoints, its prefix may be given too ("uncased_L-12_H-768_A-12/bert_model.ckpt");
        - a name on the Hugging Face hub, such as "google-bert/bert-base-uncased", also with "hf://" before it;
        - a KerasHub preset, such as "kerashub://bert_base_en";
        - the name of a size, such as "base". A folder of the same name takes precedence if it holds a config.json or a
          bert_config.json.
    revision : str, optional
        Branch, tag or commit of a hub name; the main branch by default. An installed package has no revisions, and is
        passed over if one is given.

    Returns
    -------
    Path
        The folder. If the name was a folder, its content has not been checked. Otherwise it has a config.json and
        complete weights.

    Raises
    ------
    WeightsNotFoundError
        If the name cannot be found or reached. The message says where it was looked for, and what to do.
    WeightsMismatchError
        If a downloaded file is not the one on the hub.
    ValueError
        If ``revision`` is given for a folder or a preset.
    TypeError
        If the name is neither a str nor a Path.
    """
    if not isinstance(name, str | Path):
        raise TypeError(f"Weights are named by a str or a pathlib.Path, not by {type(name).__name__} ({name!r}).")
    text = str(name)
    if isinstance(name, str):
        if text.startswith("kerashub://"):
            if revision is not None:
                raise ValueError(f"revision={revision!r} was asked for, and {text!r} has none. Leave revision out.")
            return download_preset(text.removeprefix("kerashub://"))
        if text.startswith("hf://"):
            return _resolve_hub_name(text.removeprefix("hf://"), revision)
        if not text.strip():
            raise WeightsNotFoundError("The name of the weights is empty. Give a size, a folder or a hub name.")
    folder = _existing_folder(name)
    if folder is not None:
        if revision is not None:
            raise ValueError(
                f"revision={revision!r} was asked for, but {folder} is a folder, and only hub names have revisions. "
                "Leave revision out."
            )
        return folder
    known = find_size(text)
    return _resolve_hub_name(text if known is None else known.hub_name, revision)


def resolve_saved(name: str | Path, revision: str | None, marker: str) -> Path:
    """Return the local folder of a saved estimator, or of plain weights, as `resolve_folder` does.

    Of a folder in the hub's cache, which another program may have filled, it makes sure that it holds the file
    ``marker`` if the repository does: without it the estimator would be read as plain weights.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError, ValueError, TypeError
        As `resolve_folder`. If there is nothing of that name, the advice is that for saved estimators.
    """
    try:
        folder = resolve_folder(name, revision)
    except WeightsNotFoundError as error:
        if not error.looked_for:
            raise
        listed = "\n".join(f"  - {where}" for where in error.looked_for)
        raise WeightsNotFoundError(
            f"There is no saved model {str(name)!r}. Looked for:\n{listed}\nGive the folder that an estimator's save, "
            "or `kbert fit --out`, wrote; or the name of one on the hub, owner/name.",
            error.looked_for,
        ) from error
    if isinstance(name, str) and not (folder / marker).is_file():
        hub_name = name.removeprefix("hf://")
        if folder.parts[-3:-1] == (f"models--{hub_name.replace('/', '--')}", "snapshots"):
            fetch_if_there(hub_name, folder, marker)
    return folder


def _existing_folder(name: str | Path) -> Path | None:
    """Return the folder of that name, or None if the name may be one on the hub.

    Raises
    ------
    WeightsNotFoundError
        If the name can only be that of a folder, and there is no such folder.
    """
    text = str(name)
    path = Path(os.path.expanduser(name))  # Path.expanduser would raise for the "~" of an unknown user
    if not _may_be_path(path):
        raise WeightsNotFoundError(f"{shown(text)} is no name of weights: it is too long for a folder or a hub name.")
    if path.is_dir() and (text not in SIZES or isinstance(name, Path) or _has_config(path)):
        return path
    if _CHECKPOINT.search(path.name) and path.with_name(path.name + ".index").is_file():
        return _folder_of_checkpoint(path)
    if path.is_file() and path.name.endswith(KERAS_FILES):
        raise WeightsNotFoundError(
            f"{path} is a file of Keras's. Make a weights folder of it: kbert convert {path} FOLDER --to hf."
        )
    if path.is_file() and _has_config(path.parent):
        raise WeightsNotFoundError(f"{path} is a file. Give the folder that holds it: {str(path.parent)!r}.")
    if path.is_file():
        raise WeightsNotFoundError(f"{path} is a file, and no model. Give a folder.", (f"a folder: {path} is a file.",))
    looks_like_path = (
        isinstance(name, Path)
        or text.startswith((os.sep, ".", "~"))
        or text.endswith(("/", *_FILE_ENDINGS))
        or "\\" in text
        or path.is_absolute()
        or ("://" not in text and text.count("/") > 1)
    )
    if looks_like_path:
        known = next((parent for parent in path.absolute().parents if parent.is_dir()), None)
        hint = " For a name on the hub give a str." if isinstance(name, Path) and len(path.parts) <= 2 else ""
        raise WeightsNotFoundError(
            f"There is no such folder: {text!r}. The path exists as far as {known}. Check its spelling, and that it is "
            f"meant from here ({Path.cwd()}).{hint}",
            (f"the folder {path.absolute()}: the path exists as far as {known}.{hint}",),
        )
    return None


def _may_be_path(path: Path) -> bool:
    """Whether a file system can have such a name: a text that was given by mistake may be too long."""
    try:
        path.exists()
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    return True


def _has_config(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _CONFIGS)


def _folder_of_checkpoint(prefix: Path) -> Path:
    """Return the folder of a TensorFlow checkpoint, given by its prefix.

    Raises
    ------
    WeightsNotFoundError
        If the folder holds other weights too, which would be read in place of the checkpoint.
    """
    others = [path.name for path in hugging_face_weights(prefix.parent)]
    if others:
        raise WeightsNotFoundError(
            f"{prefix.parent} also holds {' and '.join(others)}, which kbert reads in place of the checkpoint "
            f"{prefix.name}. Give the folder for these, or move the checkpoint into a folder of its own."
        )
    return prefix.parent


def _resolve_hub_name(name: str, revision: str | None) -> Path:
    """Look for a name on the Hugging Face hub in the cache, in installed packages, and on the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise WeightsNotFoundError(
            f"{name!r} is neither a folder nor a size ({', '.join(SIZES)}), and cannot be a name on the hub: those are "
            f"written owner/name, such as 'google-bert/bert-base-uncased'. ({error})",
            (f"a folder of that name in {Path.cwd()}",),
        ) from None
    cached = find_in_cache(name, revision)
    # Another program may have downloaded the weights without the vocabulary: the hub still has it.
    if cached is not None and any((cached / vocabulary).is_file() for vocabulary in _VOCABULARIES):
        return _found(name, cached, "the hub's cache")
    packaged = find_in_package(name) if revision is None else None
    if packaged is not None:
        return _found(name, packaged, "an installed package")
    try:
        return _found(name, download(name, revision), "the hub")
    except WeightsNotFoundError:
        if cached is not None:
            return _found(name, cached, "the hub's cache, without a vocabulary")
        raise


def _found(name: str, folder: Path, source: str) -> Path:
    _logger.info("The weights %s are from %s: %s", name, source, folder)
    return folder
