"""KerasHub presets: their JSON files in the words of a Hugging Face folder, and their download. No Keras here.

A preset names Python classes. None is ever imported: the names are compared with those of KerasHub's BERT.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from kbert.config import json_object
from kbert.errors import WeightsMismatchError, WeightsNotFoundError

TASK = "task.json"
TOKENIZER = "tokenizer.json"
VOCABULARY = "assets/tokenizer/vocabulary.txt"
WEIGHTS = "model.weights.h5"
WEIGHTS_INDEX = "model.weights.json"
TASK_WEIGHTS = "task.weights.h5"
# The key of a preset's config.json that KerasHub passes over, where kbert keeps a Hugging Face config.json whole.
KBERT_KEY = "kbert"

# KerasHub, and what it was called up to 2024: as classes are registered, and as packages that know presets by name.
_NAMESPACES = PACKAGES = ("keras_hub", "keras_nlp")
_PRESET_NAMES = ("src/models/bert/bert_presets.py", "models/bert/bert_presets.py")
_REMEDY = "Copy or download the preset again."

# Keys of keras_hub.models.BertBackbone, and of BertConfig.
CONFIG_KEYS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# What BertBackbone computes, whatever a config says (keras_hub/src/models/bert/bert_backbone.py).
HARD_CODED = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
# The classes of task.json whose heads kbert has too.
TASKS = {"BertTextClassifier": "BertForSequenceClassification", "BertMaskedLM": "BertForMaskedLM"}
# Of BertTextClassifier: one class for a text, or any number of them.
_ACTIVATIONS = (None, "linear", "softmax", "sigmoid")


def is_preset(values: dict) -> bool:
    """Whether the object in a ``config.json`` or ``tokenizer.json`` is one that Keras serialised."""
    return "registered_name" in values


def class_of(values: dict, path: Path) -> str:
    """The name of the class in a preset's file, without the package."""
    package, _, name = str(values.get("registered_name")).partition(">")
    if package not in _NAMESPACES or not isinstance(values.get("config"), dict):
        raise WeightsMismatchError(
            f"{path} describes {values.get('registered_name')!r}, which is no class of KerasHub. kbert reads the "
            "presets of keras_hub.models.BertBackbone and its tasks."
        )
    return name


def config_of_preset(values: dict, folder: Path) -> dict:
    """A preset's ``config.json`` as one of Hugging Face, with the head that its ``task.json`` describes.

    KerasHub's BERT computes the tanh form of GELU, so ``hidden_act`` is "gelu_new" unless kbert wrote the preset from a
    model with another one.

    Raises
    ------
    WeightsMismatchError
        If it is not the preset of a BERT.
    """
    path = folder / "config.json"
    name, inner = class_of(values, path), values["config"]
    if name != "BertBackbone":
        raise WeightsMismatchError(f"{path} describes a {name}; kbert reads the presets of BertBackbone only.")
    ours = values.get(KBERT_KEY, {})
    if not isinstance(ours, dict):
        raise WeightsMismatchError(f"{path}: {KBERT_KEY!r} is no JSON object. {_REMEDY}")
    theirs = {name: inner[key] for key, name in CONFIG_KEYS.items() if key in inner}
    # What KerasHub says itself is not said for it.
    ours = {key: value for key, value in ours.items() if key not in CONFIG_KEYS.values()}
    dropout = {"attention_probs_dropout_prob": theirs["hidden_dropout_prob"]} if "hidden_dropout_prob" in theirs else {}
    task = task_of_preset(folder)
    config = {"model_type": "bert", **HARD_CODED, **dropout, **ours, **theirs}
    config["architectures"] = [task.architecture or "BertModel"]
    # Names of a head that is not there, or was trained anew in KerasHub, which has no names.
    names = config.get("id2label")
    if task.num_labels is None or (isinstance(names, dict) and len(names) != task.num_labels):
        config = {key: value for key, value in config.items() if key not in ("id2label", "label2id", "num_labels")}
    if task.num_labels is None:
        config.pop("problem_type", None)
    else:
        config["num_labels"] = task.num_labels
        config.setdefault("classifier_dropout", task.dropout)
        if task.activation == "sigmoid":
            config["problem_type"] = "multi_label_classification"
    return config


class Task(NamedTuple):
    """What a ``task.json`` says of a head."""

    name: str | None = None
    architecture: str | None = None  # as transformers calls it; None where it is no head that kbert has
    num_labels: int | None = None
    dropout: float | None = None
    activation: Any = None


def task_of_preset(folder: Path) -> Task:
    """What the ``task.json`` of a preset says, if there is one."""
    path = folder / TASK
    if not path.is_file():
        return Task()
    values = json_object(path, WeightsMismatchError, f" {_REMEDY}")
    name, inner = class_of(values, path), values["config"]
    if name != "BertTextClassifier":
        return Task(name, TASKS.get(name))
    activation = inner.get("activation")
    if isinstance(activation, dict):
        activation = activation.get("config")
    if activation not in _ACTIVATIONS:
        return Task(name, activation=activation)
    number = inner.get("num_classes")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise WeightsMismatchError(f"{path}: num_classes is {number!r}, which is no number of classes. {_REMEDY}")
    return Task(name, TASKS[name], number, inner.get("dropout", 0.1), activation)


class TokenizerSettings(NamedTuple):
    """What the ``tokenizer.json`` of a preset says."""

    path: Path  # of the vocabulary, a piece a line
    lowercase: bool
    strip_accents: bool
    split_on_cjk: bool
    oov_token: str


def tokenizer_of_preset(values: dict, folder: Path) -> TokenizerSettings:
    """The settings of a preset's tokenizer, whose ``tokenizer.json`` holds ``values``.

    Raises
    ------
    WeightsNotFoundError
        If the vocabulary is missing.
    WeightsMismatchError
        If it is not BERT's tokenizer.
    """
    path, vocabulary = folder / TOKENIZER, folder / VOCABULARY
    name, inner = class_of(values, path), values["config"]
    if name != "BertTokenizer":
        raise WeightsMismatchError(f"{path} describes a {name}, and BERT's is a BertTokenizer.")
    settings = {"lowercase": False, "strip_accents": False, "split_on_cjk": True, "oov_token": "[UNK]"}
    settings = {key: inner.get(key, default) for key, default in settings.items()}
    wrong = [key for key in settings if type(settings[key]) is not (str if key == "oov_token" else bool)]
    if wrong or inner.get("split", True) is not True or inner.get("suffix_indicator", "##") != "##":
        what = wrong[0] if wrong else "split or suffix_indicator"
        raise WeightsMismatchError(f"{path}: {what} is not as BERT's tokenizer has it. {_REMEDY}")
    if not vocabulary.is_file():
        raise WeightsNotFoundError(f"There is no {VOCABULARY} in {folder}, whose tokenizer.json asks for it. {_REMEDY}")
    return TokenizerSettings(vocabulary, **settings)


# === Downloads ===


def fetch_preset(name: str) -> Path:
    """The local folder of a preset that KerasHub publishes on Kaggle, downloaded if need be.

    kagglehub downloads, file by file and into the cache that KerasHub uses too, so that what either has fetched is
    there for both. It is found there without a network too if the handle ends in a version, as those behind KerasHub's
    names do. KerasHub is asked for what stands behind the name and is not imported, since it brings Keras and
    TensorFlow.

    Parameters
    ----------
    name : str
        A name such as "bert_base_en_uncased", or a Kaggle handle, "kaggle://owner/model/keras/variation".

    Raises
    ------
    WeightsNotFoundError
        If KerasHub is not installed or has no such BERT, or if Kaggle does not give a file although the preset has, or
        may have, one of that name.
    """
    place = f"kerashub://{name}"
    handle = name.removeprefix("kaggle://") if "/" in name else _handle(name).removeprefix("kaggle://")
    if handle.count("/") not in (3, 4):
        raise WeightsNotFoundError(
            f"{place!r} is no name of a preset. Write kerashub://NAME, such as 'kerashub://bert_base_en_uncased', or "
            "kerashub://OWNER/MODEL/keras/VARIATION; a folder is given by its path alone."
        )
    try:
        import kagglehub
    except ImportError:
        raise _not_installed(place, "kagglehub") from None

    def fetch(file: str) -> Path:
        return Path(kagglehub.model_download(handle, path=file))

    def fetch_if_there(file: str) -> bool:
        try:
            fetch(file)
            return True
        except Exception as error:
            # Most presets have no head. Without a network, what lies in the cache has to do.
            if _is_not_there(error) or (file in (TASK, TASK_WEIGHTS) and _is_no_answer(error)):
                return False
            raise

    try:
        folder = fetch("config.json").parent
        if not fetch_if_there(WEIGHTS):
            for shard in shards_of(fetch(WEIGHTS_INDEX)):
                fetch(shard)
        for file in (TOKENIZER, VOCABULARY, TASK, TASK_WEIGHTS):
            fetch_if_there(file)
        return folder
    except WeightsMismatchError:
        raise
    except Exception as error:
        # kagglehub has no base of its errors.
        reason = (str(error).strip().splitlines() or [""])[0]
        raise WeightsNotFoundError(
            f"The preset {place!r} was not found: Kaggle, where KerasHub has its weights ({handle}), gave "
            f"{type(error).__name__}: {reason} Connect to the internet and try again; what is downloaded stays in "
            "kagglehub's cache. Or give the folder that keras_hub.models.BertBackbone.save_to_preset wrote."
        ) from error


def _is_not_there(error: Exception) -> bool:
    """Whether Kaggle says that there is no such file."""
    return getattr(getattr(error, "response", None), "status_code", None) == 404 or isinstance(error, FileNotFoundError)


def _is_no_answer(error: Exception) -> bool:
    """Whether Kaggle could not be reached. Which HTTP client raises this is kagglehub's own affair."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"ConnectionError", "Timeout", "TimeoutError"})


def shards_of(index: Path) -> list[str]:
    """The names of the files among which the ``model.weights.json`` of a preset says that the arrays are."""
    weight_map = json_object(index, WeightsMismatchError, f" {_REMEDY}").get("weight_map")
    if not isinstance(weight_map, dict):
        raise WeightsMismatchError(f"{index} has no weight_map. {_REMEDY}")
    files: set[str] = set()
    for named in weight_map.values():
        for file in named if isinstance(named, list) else [named]:
            # A name, never a path: a file elsewhere is none of the preset's.
            if not isinstance(file, str) or Path(file).name != file or "\\" in file or not file.endswith(".weights.h5"):
                raise WeightsMismatchError(
                    f"{index} names {file!r} as a file of weights, which it cannot be. {_REMEDY}"
                )
            files.add(file)
    return sorted(files)


def _handle(name: str) -> str:
    """The Kaggle handle behind the name of a preset, as the installed KerasHub knows it."""
    place = f"kerashub://{name}"
    for package in PACKAGES:
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec is not None else []:
            path = next((Path(root) / file for file in _PRESET_NAMES if (Path(root) / file).is_file()), None)
            if path is not None:
                known = _assigned(path, "backbone_presets")
                if name in known:
                    return known[name]["kaggle_handle"]
                raise WeightsNotFoundError(
                    f"{place!r}: the installed {package} has no BERT preset of that name. It has {', '.join(known)}."
                )
    raise _not_installed(place, "keras-hub")


def _assigned(path: Path, name: str) -> dict:
    """A dict that a Python file writes out, without running the file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", None) == name for target in node.targets):
            return ast.literal_eval(node.value)
    return {}


def _not_installed(place: str, package: str) -> WeightsNotFoundError:
    return WeightsNotFoundError(
        f"{place!r} is downloaded with KerasHub's help, and {package} is not installed. Run: pip install 'kbert[hub]' "
        f"(or pip install {package}), or give the folder of a preset, which is read without it."
    )
