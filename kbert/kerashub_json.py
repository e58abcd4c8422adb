"""The JSON files of a KerasHub preset, translated into the keys of a Hugging Face folder. No Keras here.

A preset names Python classes. None of them is imported: their names are compared with those of KerasHub's BERT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import json_object

TASK = "task.json"
TOKENIZER = "tokenizer.json"
VOCABULARY = "assets/tokenizer/vocabulary.txt"
WEIGHTS = "model.weights.h5"
WEIGHTS_INDEX = "model.weights.json"
TASK_WEIGHTS = "task.weights.h5"
# The key of a preset's config.json under which kbert stores the whole Hugging Face config.json. KerasHub ignores it.
KBERT_KEY = "kbert"

# The packages under whose names classes are registered: KerasHub, and its name up to 2024.
_REGISTERED_PACKAGES = ("keras_hub", "keras_nlp")
_REMEDY = "Copy or download the preset again."

# The arguments of keras_hub.models.BertBackbone, and the keys of BertConfig that they correspond to.
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
# Values that are fixed in the code of BertBackbone (keras_hub/src/models/bert/bert_backbone.py).
HARD_CODED = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12}
# The classes in a task.json whose heads kbert has too, and their names in transformers.
TASKS = {"BertTextClassifier": "BertForSequenceClassification", "BertMaskedLM": "BertForMaskedLM"}
# The activations of a BertTextClassifier that kbert reads: one label a text (the first three), or several (sigmoid).
_ACTIVATIONS = (None, "linear", "softmax", "sigmoid")


def is_preset(values: dict[str, Any]) -> bool:
    """Whether the object in a ``config.json`` or ``tokenizer.json`` is one that Keras serialised."""
    return "registered_name" in values


def class_of(values: dict[str, Any], path: Path) -> str:
    """Return the name of the class that a preset's file describes, without the package.

    Raises
    ------
    WeightsMismatchError
        If the class is not one of KerasHub's.
    """
    package, _, name = str(values.get("registered_name")).partition(">")
    if package not in _REGISTERED_PACKAGES or not isinstance(values.get("config"), dict):
        raise WeightsMismatchError(
            f"{path} describes {values.get('registered_name')!r}, which is no class of KerasHub. kbert reads the "
            "presets of keras_hub.models.BertBackbone and its tasks."
        )
    return name


def config_of_preset(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Translate a preset's ``config.json`` into a Hugging Face one, with the head that its ``task.json`` describes.

    KerasHub's BERT computes the tanh form of GELU, so ``hidden_act`` is "gelu_new" unless kbert wrote the preset from a
    model with another one.

    Parameters
    ----------
    values : dict
        The content of the preset's config.json.
    folder : Path
        The preset.

    Returns
    -------
    dict
        The keys of a Hugging Face config.json.

    Raises
    ------
    WeightsMismatchError
        If it is not the preset of a BERT.
    """
    path = folder / "config.json"
    name, inner = class_of(values, path), values["config"]
    if name != "BertBackbone":
        raise WeightsMismatchError(f"{path} describes a {name}; kbert reads the presets of BertBackbone only.")
    stored = values.get(KBERT_KEY, {})
    if not isinstance(stored, dict):
        raise WeightsMismatchError(f"{path}: {KBERT_KEY!r} is no JSON object. {_REMEDY}")
    keras_hub = {key: inner[argument] for argument, key in CONFIG_KEYS.items() if argument in inner}
    # For the keys that KerasHub has itself, its own values hold.
    stored = {key: value for key, value in stored.items() if key not in CONFIG_KEYS.values()}
    dropout: dict[str, Any] = {}
    if "hidden_dropout_prob" in keras_hub:
        dropout = {"attention_probs_dropout_prob": keras_hub["hidden_dropout_prob"]}
    task = task_of_preset(folder)
    config: dict[str, Any] = {"model_type": "bert", **HARD_CODED, **dropout, **stored, **keras_hub}
    config["architectures"] = [task.architecture or "BertModel"]
    # The stored label names are dropped where there is no head, or where KerasHub has trained another one since.
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


class PresetHead(NamedTuple):
    """The head of a preset, as its ``task.json`` describes it.

    Attributes
    ----------
    name : str or None
        KerasHub's class, such as "BertTextClassifier"; None where there is no task.json.
    architecture : str or None
        The same in transformers, such as "BertForSequenceClassification"; None where kbert has no such head.
    num_labels : int or None
        Outputs of a classifier.
    dropout : float or None
        Dropout rate before a classifier.
    activation : object
        What follows the logits of a classifier, as KerasHub serialises it.
    """

    name: str | None = None
    architecture: str | None = None
    num_labels: int | None = None
    dropout: float | None = None
    activation: Any = None


def task_of_preset(folder: Path) -> PresetHead:
    """Read the ``task.json`` of a preset; without one, all values are None."""
    path = folder / TASK
    if not path.is_file():
        return PresetHead()
    values = json_object(path, WeightsMismatchError, f" {_REMEDY}")
    name, inner = class_of(values, path), values["config"]
    if name != "BertTextClassifier":
        return PresetHead(name, TASKS.get(name))
    activation = inner.get("activation")
    if isinstance(activation, dict):
        activation = activation.get("config")
    if activation not in _ACTIVATIONS:
        return PresetHead(name, activation=activation)
    num_labels = inner.get("num_classes")
    if not isinstance(num_labels, int) or isinstance(num_labels, bool) or num_labels < 1:
        raise WeightsMismatchError(f"{path}: num_classes is {num_labels!r}, which is no number of classes. {_REMEDY}")
    return PresetHead(name, TASKS[name], num_labels, inner.get("dropout", 0.1), activation)


class TokenizerSettings(NamedTuple):
    """The settings in the ``tokenizer.json`` of a preset. ``path`` is the vocabulary, with one piece a line."""

    path: Path
    lowercase: bool
    strip_accents: bool
    split_on_cjk: bool
    oov_token: str


def tokenizer_of_preset(values: dict[str, Any], folder: Path) -> TokenizerSettings:
    """Return the settings of a preset's tokenizer.

    Parameters
    ----------
    values : dict
        The content of the preset's tokenizer.json.
    folder : Path
        The preset.

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
    defaults = {"lowercase": False, "strip_accents": False, "split_on_cjk": True, "oov_token": "[UNK]"}
    settings = {key: inner.get(key, default) for key, default in defaults.items()}
    wrong = [key for key in settings if type(settings[key]) is not (str if key == "oov_token" else bool)]
    if wrong or inner.get("split", True) is not True or inner.get("suffix_indicator", "##") != "##":
        what = wrong[0] if wrong else "split or suffix_indicator"
        raise WeightsMismatchError(f"{path}: {what} is not as BERT's tokenizer has it. {_REMEDY}")
    if not vocabulary.is_file():
        raise WeightsNotFoundError(f"There is no {VOCABULARY} in {folder}, whose tokenizer.json asks for it. {_REMEDY}")
    return TokenizerSettings(vocabulary, **settings)


def shards_of(index: Path) -> list[str]:
    """Return the names of the weights files that a preset's ``model.weights.json`` lists.

    Raises
    ------
    WeightsMismatchError
        If it has no ``weight_map``, or one that names anything but a weights file in the same folder.
    """
    weight_map = json_object(index, WeightsMismatchError, f" {_REMEDY}").get("weight_map")
    if not isinstance(weight_map, dict):
        raise WeightsMismatchError(f"{index} has no weight_map. {_REMEDY}")
    files: set[str] = set()
    for named in weight_map.values():
        for file in named if isinstance(named, list) else [named]:
            # A path could lead out of the preset's folder.
            if not isinstance(file, str) or Path(file).name != file or "\\" in file or not file.endswith(".weights.h5"):
                raise WeightsMismatchError(
                    f"{index} names {file!r} as a file of weights, which it cannot be. {_REMEDY}"
                )
            files.add(file)
    return sorted(files)
