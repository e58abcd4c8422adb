"""The Hugging Face hub: its cache on this machine, and downloads. huggingface_hub is imported when it is needed."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.hub import packages
from kbert.hub.weight_files import INDEX_ENDING, PICKLED, SAFETENSORS, has_weights, is_licence
from kbert.sizes import SIZES, is_of_another_model

# Seconds to wait for the hub's first answer. A machine without a network should learn so at once.
HUB_TIMEOUT = 5.0

_CONFIG = "config.json"
_logger = logging.getLogger("kbert")
# A disk that has no room, and files that may not be written.
_FULL, _NOT_ALLOWED = (errno.ENOSPC, errno.EDQUOT), (errno.EACCES, errno.EPERM, errno.EROFS)
# What kbert reads of a repository besides config.json and the weights, as far as it is there.
_SMALL_FILES = (
    "tokenizer.json", "vocab.txt", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json",
    "kbert.json",
)  # fmt: skip


def find_in_cache(name: str, revision: str | None) -> Path | None:
    """Return the folder of a name in the hub's cache, if it has a config.json and complete weights.

    ``snapshot_download(local_files_only=True)`` would not do: depending on its version it returns an incomplete
    snapshot, or refuses one that lacks files which kbert does not read.
    """
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, _CONFIG, revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if has_weights(folder) else None


def download(name: str, revision: str | None) -> Path:
    """Download the files that kbert reads into the hub's cache.

    Returns
    -------
    Path
        The folder in the cache.

    Raises
    ------
    WeightsNotFoundError
        If the hub cannot be reached, refuses, or has no such model, revision or files. The message says what to do.
    WeightsMismatchError
        If a file did not arrive as it is on the hub.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        # Asked first because it has a timeout, tells the reasons of a failure apart, and lists the files.
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=HUB_TIMEOUT)
        files = {file.rfilename: file for file in info.siblings or []}
        wanted = _wanted_files(set(files), name)
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted, etag_timeout=HUB_TIMEOUT))
        _check_sums(folder, wanted, files, name)
        # config.json comes last. A folder without it is passed over, so an interrupted download is not used.
        snapshot_download(
            name,
            revision=folder.name,
            allow_patterns=[_CONFIG],
            etag_timeout=HUB_TIMEOUT,
            tqdm_class=_no_progress_bar(),
        )
        _check_sums(folder, [_CONFIG], files, name)
        if not has_weights(folder):
            raise WeightsNotFoundError(
                f"The model {name!r} on the hub is not complete: the shards of its weights are not those that their "
                "index lists. Choose another revision or another model."
            )
        return folder
    except (WeightsNotFoundError, WeightsMismatchError):
        raise
    except GatedRepoError as error:
        raise WeightsNotFoundError(
            f"The hub gives {name!r} only to those who have accepted its conditions. Accept them on its page on the "
            "hub, then log in here with `hf auth login`, or set HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        login = "if the model is private, log in with `hf auth login` or set HF_TOKEN"
        raise WeightsNotFoundError(
            f"The hub has no model {name!r}, and there is no folder of that name in {Path.cwd()}.{_near(name)} Check "
            f"the spelling; {login}.",
            (f"a folder of that name in {Path.cwd()}", f"the hub, which has no such model ({login})"),
        ) from error
    except RevisionNotFoundError as error:
        raise WeightsNotFoundError(
            f"The model {name!r} has no revision {revision or 'main'!r} on the hub. Give one of its branches, tags or "
            "commits, or leave revision out."
        ) from error
    except Exception as error:
        # Which HTTP client raises here, and what, depends on the version of huggingface_hub.
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise WeightsNotFoundError(
                f"The hub refuses {name!r} ({first_line(error)}). A token that is set may be invalid, or may not read "
                "this model: log in again with `hf auth login`, or set or unset HF_TOKEN."
            ) from error
        if isinstance(error, OSError) and (error.errno in _FULL or (error.errno in _NOT_ALLOWED and error.filename)):
            raise OSError(
                error.errno,
                f"{error.strerror}, while the files of {name!r} were written into the hub's cache. Make room there or "
                "get the permission to write; or set HF_HOME to another folder",
                error.filename,
            ) from error
        # Without the errors of three libraries before it: the message says what the cause was.
        raise _unreachable(name, revision, error) from None


def fetch_if_there(name: str, snapshot: Path, file: str) -> None:
    """Download one more file of a commit into its folder in the cache, if the repository has it.

    huggingface_hub notes in its cache that a repository lacks a file, so the hub is asked once. Where it cannot be
    reached, the folder stays as it is.

    Parameters
    ----------
    name : str
        The repository.
    snapshot : Path
        The folder of the commit in the cache, named by the commit.
    file : str
    """
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    if try_to_load_from_cache(name, file, revision=snapshot.name) is not None:  # there, or known not to be
        return
    try:
        # First, since huggingface_hub tries a download again and again where the hub does not answer.
        info = HfApi().model_info(name, revision=snapshot.name, files_metadata=True, timeout=HUB_TIMEOUT)
        hf_hub_download(name, file, revision=snapshot.name, etag_timeout=HUB_TIMEOUT)
    except Exception as error:  # not there, or not reached: which client raises, and what, depends on the version
        _logger.info("%s of %s was not found: %s", file, name, first_line(error))
        return
    _check_sums(snapshot, [file], {sibling.rfilename: sibling for sibling in info.siblings or []}, name)


def _wanted_files(files: set[str], name: str) -> list[str]:
    """Choose the files of a repository to download besides config.json. Of several forms of the weights, take one."""
    weights: list[str] = []
    for whole in (SAFETENSORS, PICKLED):
        stem, ending = os.path.splitext(whole)
        shard = re.compile(rf"{stem}-\d+-of-\d+{re.escape(ending)}")
        if not weights and whole in files:
            weights = [whole]
        elif not weights and whole + INDEX_ENDING in files:
            weights = [whole + INDEX_ENDING, *filter(shard.fullmatch, files)]
    if not weights or _CONFIG not in files:
        lacking = _CONFIG if weights else f"both {SAFETENSORS} and {PICKLED}"
        raise WeightsNotFoundError(
            f"The model {name!r} on the hub lacks {lacking}, without which kbert cannot read it. Choose a model in the "
            "Hugging Face layout."
        )
    return sorted([*weights, *(file for file in files if file in _SMALL_FILES or is_licence(file))])


def _no_progress_bar() -> type:
    """Return a class of progress bars that show nothing."""
    from tqdm import tqdm

    # Some versions of huggingface_hub go through files by the bar; others give it arguments that tqdm does not have.
    start = lambda bar, iterable=None, *_, **__: tqdm.__init__(bar, iterable, disable=True)  # noqa: E731
    return type("NoBar", (tqdm,), {"__init__": start})


def _check_sums(folder: Path, names: list[str], files: dict[str, Any], name: str) -> None:
    """Compare downloaded files with the hub's checksums, and remove one that differs.

    huggingface_hub itself compares the size alone.

    Parameters
    ----------
    folder : Path
        Where they were downloaded to.
    names : list of str
        Which of them to compare.
    files : dict
        What the hub says of each file, as `huggingface_hub.hf_api.RepoSibling`.
    name : str
        The name on the hub, for the message.
    """
    for path in (folder / file for file in names):
        lfs, blob_id = (getattr(files[path.name], key, None) for key in ("lfs", "blob_id"))
        if lfs is None and blob_id is None:
            continue
        with path.open("rb") as content:
            if lfs is not None:
                expected, digest = lfs["sha256"], hashlib.file_digest(content, "sha256").hexdigest()
            else:  # small files are in git, whose checksum includes a header with the size
                header = f"blob {path.stat().st_size}\0".encode()
                expected, digest = blob_id, hashlib.sha1(header + content.read(), usedforsecurity=False).hexdigest()
        if digest != expected:
            path.resolve().unlink()  # in the cache, the path is a link to the file itself
            path.unlink(missing_ok=True)
            (folder / _CONFIG).unlink(missing_ok=True)  # so that the other files are not taken for complete
            raise WeightsMismatchError(
                f"{path.name} of {name!r} did not arrive as it is on the hub: its checksum is {digest}, and should be "
                f"{expected}. The file was removed. Try again; if that does not help, look at what stands between you "
                "and the hub, such as a proxy or a mirror."
            )


def _unreachable(name: str, revision: str | None, error: Exception) -> WeightsNotFoundError:
    """The error of a hub that cannot be reached: where the weights were looked for, and what to do."""
    from huggingface_hub import constants

    in_packages, remedies_of_packages = packages.lookup_report(name, revision)
    looked_for = [
        f"a folder of that name in {Path.cwd()}",
        f"the hub cache {constants.HF_HUB_CACHE}",
        *in_packages,
        f"the hub {constants.ENDPOINT} ({type(error).__name__}: {first_line(error)})",
    ]
    if constants.HF_HUB_OFFLINE:
        connect = "unset HF_HUB_OFFLINE, which forbids downloads, and try again"
    else:
        connect = "connect to the internet and try again; what is downloaded stays in the hub cache"
    remedies = [
        *_sizes_on_this_machine(name),
        connect,
        *remedies_of_packages,
        "give the path of a folder with config.json, model.safetensors and tokenizer.json or vocab.txt",
        "start from random weights with weights=None",
    ]
    sizes = " or ".join(repr(size) for size, known in SIZES.items() if known.hub_name == name)
    lines = [
        f"The weights {name!r}{f' of size {sizes}' if sizes else ''} were not found.{_near(name)}",
        "Looked for:",
        *(f"  - {where}" for where in looked_for),
        "Do one of these:",
        *(f"  - {remedy}" for remedy in remedies),
    ]
    return WeightsNotFoundError("\n".join(lines), tuple(looked_for))


def _sizes_on_this_machine(name: str) -> list[str]:
    """Say which other sizes could be used without a network, and if there are none, how to install one with pip."""
    packaged = {hub_name for hub_name in packages.PACKAGES if packages.has_usable_package(hub_name)}
    others = {size: known.hub_name for size, known in SIZES.items() if known.hub_name != name}
    here = [size for size, other in others.items() if other in packaged or find_in_cache(other, None) is not None]
    if here:
        listed = " or ".join(f"size={size!r}" for size in here)
        return [f"use {listed}, whose weights are on this machine, and leave weights out"]
    return [
        f"run: {packages.pip_command(other)}, and use size={size!r}: its weights come with that package"
        for size, other in others.items()
        if other in packages.PACKAGES
    ]


def first_line(error: Exception) -> str:
    """Return the first line of an error of a hub's library. The others are about its own parameters."""
    return (str(error).strip().splitlines() or [""])[0]


def _near(name: str) -> str:
    """Suggest a name for one without an owner, which is most often a misspelt size or the end of a hub name."""
    if is_of_another_model(name):
        return " By its name it may be no BERT, and kbert reads no other models."
    known = {size: size for size in SIZES}
    known |= {size.hub_name.partition("/")[2].lower(): size.hub_name for size in SIZES.values()}
    # bert-base-chinese is near to bert-base-cased, and another model.
    cutoff = 0.9 if name.lower().startswith("bert-") else 0.75
    near = get_close_matches(name.lower(), known, n=1, cutoff=cutoff) if "/" not in name and name not in known else []
    return f" Did you mean {known[near[0]]!r}?" if near else ""
