"""KerasHub presets of BERT, read and written without KerasHub.

The layout is that of ``keras_hub.models.BertBackbone.save_to_preset`` in keras-hub 0.32: config.json and
model.weights.h5, and task.json and task.weights.h5 for a head. The JSON files are read in `kbert.kerashub_json`.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from kbert.config import GELU, BertConfig
from kbert.config_json import read_config_json
from kbert.errors import InexactWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import json_object
from kbert.kerashub_json import (
    CONFIG_KEYS,
    HARD_CODED,
    KBERT_KEY,
    TASK,
    TASK_WEIGHTS,
    TOKENIZER,
    VOCABULARY,
    WEIGHTS,
    WEIGHTS_INDEX,
    PresetHead,
    shards_of,
    task_of_preset,
)
from kbert.text import WordPieceTokenizer
from kbert.warn import warn_user
from kbert.weights.arrays import PARTS, Array, array_shapes, check_layers
from kbert.weights.h5 import (
    SPLIT_BIAS,
    SPLIT_KERNEL,
    SPLIT_OUTPUT,
    Entry,
    dense,
    is_state,
    match,
    norm,
    numbered,
    read_datasets,
    to_keras,
    write_datasets,
)

# Why a head is not written, by the prefix of its arrays. Of the heads not listed here, KerasHub has no counterpart.
_WHY_NOT = {
    "classifier.": "KerasHub has no classifier of tokens or options",
    "mean_classifier.": "KerasHub's classifier reads the first token alone",
    "cls.predictions.": "a preset has one head, and it is the classifier",
}
# The version of keras-hub whose layout is written.
_LAYOUT = "0.32.0"


def _encoder_entries(n_layers: int) -> list[Entry]:
    """Return the entries of ``model.weights.h5``."""
    entries = [
        Entry("layers/reversible_embedding/vars/0", "embeddings.word_embeddings.weight"),
        Entry("layers/position_embedding/vars/0", "embeddings.position_embeddings.weight"),
        Entry("layers/embedding/vars/0", "embeddings.token_type_embeddings.weight"),
        *norm("layers/layer_normalization", "embeddings.LayerNorm"),
    ]
    for i in range(n_layers):
        path, name = f"layers/{numbered('transformer_encoder', i)}/_", f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            dense_path = f"{path}self_attention_layer/{part}_dense"
            entries += dense(dense_path, f"{name}.attention.self.{part}", SPLIT_KERNEL, SPLIT_BIAS)
        entries += dense(f"{path}self_attention_layer/output_dense", f"{name}.attention.output.dense", SPLIT_OUTPUT)
        entries += norm(f"{path}self_attention_layer_norm", f"{name}.attention.output.LayerNorm")
        entries += dense(f"{path}feedforward_intermediate_dense", f"{name}.intermediate.dense")
        entries += dense(f"{path}feedforward_output_dense", f"{name}.output.dense")
        entries += norm(f"{path}feedforward_layer_norm", f"{name}.output.LayerNorm")
    return entries + _pooler_entries()


def _pooler_entries() -> list[Entry]:
    return dense("layers/dense", "pooler.dense")


# The entries of ``task.weights.h5``, by the class in task.json.
_HEAD_ENTRIES = {
    "BertTextClassifier": dense("layers/dense", "classifier"),
    "BertMaskedLM": [
        Entry("layers/masked_lm_head/vars/0", "cls.predictions.bias"),
        *dense("layers/masked_lm_head/_intermediate_dense", "cls.predictions.transform.dense"),
        *norm("layers/masked_lm_head/_intermediate_layer_norm", "cls.predictions.transform.LayerNorm"),
    ],
}


# === Reading ===


def read_kerashub(folder: str | Path) -> list[Array]:
    """Read the arrays of a preset and its head.

    A pooler of zeros is skipped: `write_kerashub` writes one for a model without a pooler. The arrays of a head for
    which kbert has no model are skipped too.

    Returns
    -------
    list of Array
        By their Hugging Face names.

    Raises
    ------
    WeightsNotFoundError
        If there is no weights file.
    WeightsMismatchError
        If one is damaged, or an array is missing, unknown, or not of the shape that the config asks for.
    """
    folder = Path(folder)
    config = BertConfig.from_dict(read_config_json(folder))
    found: dict[str, np.ndarray | None] = {}
    for path in _weights_files(folder):
        more = read_datasets(path, path, is_state)
        if twice := sorted(found.keys() & more.keys()):
            raise WeightsMismatchError(f"{path} holds {twice[0]}, which another file of {folder} has too.")
        found |= more
    task = task_of_preset(folder)
    check_layers(config, len(found), folder)
    shapes = array_shapes(config, task.num_labels or 1)
    heads = config.num_attention_heads
    arrays = match(found, _encoder_entries(config.num_hidden_layers), shapes, heads, folder / WEIGHTS)
    pooler = {entry.path for entry in _pooler_entries()}
    if all(array.array is None or not array.array.any() for array in arrays if array.source in pooler):
        why = "zeros in place of a pooler, which the model does not have"
        arrays = [_skipped(array.source, why) if array.source in pooler else array for array in arrays]
    states = [_skipped(path, "no weight of the model") for path, array in found.items() if array is None]
    return [*arrays, *states, *_read_head(folder, task, shapes, heads)]


def _weights_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / WEIGHTS_INDEX).is_file():
        raise WeightsNotFoundError(f"There is no {WEIGHTS} in {folder}. Copy or download the preset again.")
    paths = [folder / file for file in shards_of(folder / WEIGHTS_INDEX)]
    for path in paths:
        if not path.is_file():
            raise WeightsNotFoundError(f"There is no {path.name} in {folder}, which {WEIGHTS_INDEX} lists.")
    return paths


def _read_head(folder: Path, task: PresetHead, shapes: dict[str, tuple[int, ...]], heads: int) -> list[Array]:
    path = folder / TASK_WEIGHTS
    if not path.is_file():
        if task.architecture is not None:
            raise WeightsNotFoundError(
                f"There is no {TASK_WEIGHTS} in {folder}, and its {TASK} describes the head of a {task.name}. Copy or "
                f"download it, or remove {TASK} to use the encoder alone."
            )
        return []
    if task.architecture is None or task.name is None:
        with_activation = "" if task.activation is None else f" with the activation {task.activation!r}"
        why = f"a head of {task.name}{with_activation}, which kbert does not have"
        return [_skipped(f"{TASK_WEIGHTS}: {source}", why) for source in read_datasets(path, path, lambda _: True)]
    found = read_datasets(path, path, is_state)
    if task.name == "BertMaskedLM" and KBERT_KEY not in json_object(folder / "config.json"):
        warn_user(
            f"The masked-LM head in {folder} was trained with the exact form of GELU and a LayerNorm whose epsilon is "
            "1e-5, as KerasHub has it. kbert computes it as BERT does: logits differ a little.",
            InexactWarning,
        )
    arrays = [
        a._replace(source=f"{TASK_WEIGHTS}: {a.source}")
        for a in match(found, _HEAD_ENTRIES[task.name], shapes, heads, path)
    ]
    return arrays + [
        _skipped(f"{TASK_WEIGHTS}: {source}", "no weight of the model") for source, a in found.items() if a is None
    ]


def _skipped(source: str, why: str) -> Array:
    return Array(source, None, None, f"skipped: {why}")


# === Writing ===


def write_kerashub(
    folder: str | Path,
    values: dict[str, Any],
    arrays: dict[str, np.ndarray],
    tokenizer: WordPieceTokenizer | None = None,
) -> list[Array]:
    """Write a preset that ``keras_hub.models.BertBackbone.from_preset`` opens, or the KerasHub class of its head.

    Parameters
    ----------
    folder : str or Path
    values : dict
        The keys of a Hugging Face config.json. They are stored in the preset's config.json too, where KerasHub ignores
        them.
    arrays : dict of str to numpy.ndarray
        By Hugging Face names without ``bert.``: the encoder, and the heads. A classifier of texts is written for
        ``BertTextClassifier``, and without one a masked-LM head for ``BertMaskedLM``. Other heads are skipped.
    tokenizer : WordPieceTokenizer, optional

    Returns
    -------
    list of Array
        Where each array is in the preset, or why it was skipped.

    Raises
    ------
    WeightsMismatchError
        If ``hidden_act`` is "relu": KerasHub's BERT always computes GELU.

    Warns
    -----
    InexactWarning
        If KerasHub computes something slightly different from what the config says, or lacks a part.
    """
    folder, config = Path(folder), BertConfig.from_dict(values)
    _warn_of_differences(config, arrays)
    head = _head_of(values, arrays)
    tokenizer_json = None if tokenizer is None else _tokenizer_json(tokenizer)
    D = config.hidden_size
    zeros = {"pooler.dense.weight": np.zeros((D, D), "float32"), "pooler.dense.bias": np.zeros(D, "float32")}
    entries = _encoder_entries(config.num_hidden_layers)
    folder.mkdir(parents=True, exist_ok=True)
    written = _write_h5(folder / WEIGHTS, entries, {**zeros, **arrays}, config, _layer_names(config))
    n_weights = sum(array.array.size for array in written if array.array is not None)
    written = [a if a.name in arrays else a._replace(name=None, note="zeros: the model has no pooler") for a in written]

    backbone = _serialized("BertBackbone", "bert_backbone", _backbone_config(config))
    _write_json(folder / "config.json", {**backbone, KBERT_KEY: values})
    _write_json(folder / "metadata.json", _metadata(n_weights))
    if head is not None:
        names, num_labels = _HEAD_LAYER_NAMES[head], len(arrays.get("classifier.bias", ()))
        written += [
            a._replace(source=f"{TASK_WEIGHTS}: {a.source}")
            for a in _write_h5(folder / TASK_WEIGHTS, _HEAD_ENTRIES[head], arrays, config, names)
        ]
        _write_json(folder / TASK, _task_json(head, backbone, tokenizer_json, config, num_labels))
    if tokenizer is not None and tokenizer_json is not None:
        _write_json(folder / TOKENIZER, tokenizer_json)
        (folder / VOCABULARY).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{piece}\n" for piece in tokenizer.vocab)
        (folder / VOCABULARY).write_text(text, encoding="utf-8", newline="\n")
    done = {array.name for array in written}
    return written + [
        Array("", name, None, f"skipped: {_WHY_NOT.get(prefix, f'KerasHub has no {part}')}")
        for prefix, part in PARTS.items()
        for name in arrays
        if name.startswith(prefix) and name not in done
    ]


def _warn_of_differences(config: BertConfig, arrays: dict[str, np.ndarray]) -> None:
    if config.hidden_act not in GELU:
        raise WeightsMismatchError(
            f"KerasHub's BERT computes the tanh form of GELU, and this model has hidden_act {config.hidden_act!r}: "
            "there it would predict something else. Nothing was written."
        )
    differences = []
    if config.hidden_act == "gelu":
        differences.append(
            "KerasHub computes the tanh form of GELU, and this model the exact one: they differ by up to 4.7e-4 in "
            'every activation. kbert keeps hidden_act "gelu" in the preset and reads it again'
        )
    if config.layer_norm_eps != HARD_CODED["layer_norm_eps"]:
        differences.append(f"KerasHub's LayerNorm has an epsilon of 1e-12, and this model's {config.layer_norm_eps}")
    if "cls.predictions.bias" in arrays:
        differences.append(
            "the masked-LM head of KerasHub computes the exact form of GELU, and its LayerNorm has an epsilon of 1e-5"
        )
    if not any(name.startswith("pooler.") for name in arrays):
        differences.append("the model has no pooler: KerasHub's pooled_output will be 0 for every text")
    if any(name.startswith("mean_classifier.") for name in arrays):
        differences.append(
            "the classifier is left out, since it reads the mean over the tokens, and KerasHub's the first token: fit "
            'with classifier_pooling="cls" to take it along'
        )
    if differences:
        warn_user(f"Not the same in KerasHub: {'; '.join(differences)}.", InexactWarning)


def _head_of(values: dict[str, Any], arrays: dict[str, np.ndarray]) -> str | None:
    """Return the class of KerasHub that has the head of this model; None if there is none."""
    architecture = (values.get("architectures") or [None])[0]
    # The classifiers of tokens and of options have arrays of the same name.
    if "classifier.weight" in arrays and architecture in (None, "BertForSequenceClassification"):
        return "BertTextClassifier"
    return "BertMaskedLM" if "cls.predictions.bias" in arrays else None


def _write_h5(
    path: Path, entries: list[Entry], arrays: dict[str, np.ndarray], config: BertConfig, names: dict[str, str]
) -> list[Array]:
    """Write a weights file of KerasHub. ``names`` are those of its layers, as for `write_datasets`."""
    heads = config.num_attention_heads
    changed = {e.path: to_keras(e.change, arrays[e.name], heads) for e in entries}
    write_datasets(path, changed, names)
    return [Array(e.path, e.name, changed[e.path], e.change) for e in entries]


def _layer_names(config: BertConfig) -> dict[str, str]:
    """Return the names of the layers by their paths, as Keras stores them. KerasHub itself finds layers by path."""
    names = {
        "": "bert_backbone", "layers/reversible_embedding": "token_embedding",
        "layers/position_embedding": "position_embedding", "layers/embedding": "segment_embedding",
        "layers/layer_normalization": "embeddings_layer_norm", "layers/dense": "pooled_dense",
    }  # fmt: skip
    layers = range(config.num_hidden_layers)
    return names | {f"layers/{numbered('transformer_encoder', i)}": f"transformer_layer_{i}" for i in layers}


_HEAD_LAYER_NAMES = {
    "BertTextClassifier": {"": "bert_text_classifier", "layers/dense": "logits"},
    "BertMaskedLM": {"": "bert_masked_lm", "layers/masked_lm_head": "mlm_head"},
}


def _backbone_config(config: BertConfig) -> dict[str, Any]:
    values = config.to_dict()
    return {argument: values[key] for argument, key in CONFIG_KEYS.items()}


def _tokenizer_json(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    spec = tokenizer.spec
    normalizer = spec["normalizer"]
    accents = normalizer["strip_accents"]
    settings = {
        "config_file": TOKENIZER,
        "vocabulary": None,
        "sequence_length": None,
        "lowercase": normalizer["lowercase"],
        "strip_accents": normalizer["lowercase"] if accents is None else accents,
        "split": True,
        "split_on_cjk": normalizer["handle_chinese_chars"],
        "suffix_indicator": "##",
        "oov_token": spec["model"]["unk_token"],
        "special_tokens": None,
        "special_tokens_in_strings": False,
    }
    return _serialized("BertTokenizer", "bert_tokenizer", settings, dtype="int32")


def _task_json(
    head: str, backbone: dict[str, Any], tokenizer: dict[str, Any] | None, config: BertConfig, num_labels: int
) -> dict[str, Any]:
    preprocessor = None
    if tokenizer is not None:
        settings = {
            "tokenizer": tokenizer,
            "config_file": "preprocessor.json",
            "sequence_length": config.max_position_embeddings,
            "truncate": "round_robin",
        }
        preprocessor = _serialized(f"{head}Preprocessor", f"{_module(head)}_preprocessor", settings)
    values: dict[str, Any] = {"backbone": backbone, "preprocessor": preprocessor, "name": _module(head)}
    if head == "BertTextClassifier":
        values |= {"num_classes": num_labels, "activation": "linear", "dropout": config.head_dropout}
    return {**_serialized(head, _module(head), {}), "config": values}


def _module(name: str) -> str:
    return {"BertTextClassifier": "bert_text_classifier", "BertMaskedLM": "bert_masked_lm"}[name]


def _serialized(class_name: str, module: str, values: dict[str, Any], dtype: str = "float32") -> dict[str, Any]:
    """Serialise an object of KerasHub as Keras does."""
    policy = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": dtype}, "registered_name": None}
    return {
        "module": f"keras_hub.src.models.bert.{module}",
        "class_name": class_name,
        "config": {"name": module, "trainable": True, "dtype": policy, **values},
        "registered_name": f"keras_hub>{class_name}",
    }


def _metadata(n_weights: int) -> dict[str, Any]:
    try:
        keras_version = version("keras")
    except PackageNotFoundError:
        keras_version = None
    return {"keras_version": keras_version, "keras_hub_version": _LAYOUT, "parameter_count": n_weights}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=4) + "\n", encoding="utf-8")
