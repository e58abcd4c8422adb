"""Reading kbert's models from Keras's own files, ``.keras`` and ``.weights.h5``. Keras itself is not needed."""

from __future__ import annotations

import zipfile
from collections.abc import Container
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from kbert.config import BertConfig
from kbert.config_json import read_config_json
from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import MOST_BYTES, parsed_object
from kbert.weights.arrays import Array, array_shapes, check_layers
from kbert.weights.h5 import Entry, dense, is_state, match, norm, numbered, read_datasets

ARCHIVE = ".keras"
_H5_IN_ARCHIVE = "model.weights.h5"

# kbert's classes of models, and their names in transformers.
_ARCHITECTURES = {
    "BertEncoder": "BertModel",
    "BertForFeatures": "BertModel",
    "BertForPreTraining": "BertForPreTraining",
    "BertForSequenceClassification": "BertForSequenceClassification",
    "BertForTokenClassification": "BertForTokenClassification",
    "BertForQuestionAnswering": "BertForQuestionAnswering",
}
# The prefix of the arrays of a head that is one dense layer.
_DENSE_HEADS = {
    "BertForPreTraining": "cls.seq_relationship",
    "BertForSequenceClassification": "classifier",
    "BertForMultipleChoice": "classifier",
    "BertForTokenClassification": "classifier",
    "BertForQuestionAnswering": "qa_outputs",
}


def _entries(architecture: str, n_layers: int, found: Container[str], pooling: str) -> list[Entry]:
    """Return the entries of all arrays of a model. ``found`` are the paths that its file has."""
    root = "layers/" if architecture == "BertModel" else "layers/bert_encoder/layers/"
    entries = [
        Entry(f"{root}bert_embeddings/vars/{i}", f"embeddings.{part}_embeddings.weight")
        for i, part in enumerate(("word", "position", "token_type"))
    ] + norm(f"{root}bert_embeddings/norm", "embeddings.LayerNorm")
    for i in range(n_layers):
        path, name = f"{root}{numbered('transformer_layer', i)}", f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            entries += dense(f"{path}/attention/{part}", f"{name}.attention.self.{part}")
        entries += dense(f"{path}/attention/output_dense", f"{name}.attention.output.dense")
        entries += norm(f"{path}/attention_norm", f"{name}.attention.output.LayerNorm")
        entries += dense(f"{path}/intermediate", f"{name}.intermediate.dense")
        entries += dense(f"{path}/output_dense", f"{name}.output.dense")
        entries += norm(f"{path}/output_norm", f"{name}.output.LayerNorm")
    entries += dense(f"{root}pooler/dense", "pooler.dense")
    # Layers that `BertForFeatures` does not use, such as the pooler, are in the file as layers of its encoder.
    entries = [e._replace(path=f"encoder/{e.path}") if f"encoder/{e.path}" in found else e for e in entries]
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        entries += [
            Entry("layers/masked_language_head/vars/0", "cls.predictions.bias"),
            *dense("layers/masked_language_head/dense", "cls.predictions.transform.dense"),
            *norm("layers/masked_language_head/norm", "cls.predictions.transform.LayerNorm"),
        ]
    head = _DENSE_HEADS.get(architecture)
    if head == "classifier" and pooling == "mean":
        head = "mean_classifier"
    return entries + (dense("layers/dense", head) if head else [])


def config_of_keras(path: Path) -> dict[str, Any]:
    """Return the keys of a Hugging Face config.json for a Keras file.

    A ``.keras`` file contains them. For a ``.weights.h5`` file, the config.json beside it is read. The class that a
    file names is not imported: its name is compared with kbert's classes.

    Raises
    ------
    WeightsNotFoundError
        If there is no config.json beside a ``.weights.h5``.
    WeightsMismatchError
        If the file is damaged, or is not one of kbert's models.
    """
    if not path.name.endswith(ARCHIVE):
        if not (path.parent / "config.json").is_file():
            raise WeightsNotFoundError(
                f"{path} holds arrays and no config. Put the config.json of the model beside it (BertConfig's keys, "
                "and architectures for a head), or save the whole model: model.save('model.keras')."
            )
        return read_config_json(path.parent)
    try:
        values = parsed_object(_member(path, "config.json", MOST_BYTES), f"config.json in {path}", WeightsMismatchError)
        package, _, name = str(values.get("registered_name")).partition(">")
        inner = values["config"]
        if package != "kbert" or name not in _ARCHITECTURES:
            raise WeightsMismatchError(
                f"{path} holds a {values.get('class_name')}, which is no model of kbert. Where kbert's encoder is a "
                "part of a model of your own, open it with keras.saving.load_model and call save_pretrained on it."
            )
        architecture = _ARCHITECTURES[name]
        if name == "BertForPreTraining" and not inner.get("nsp", True):
            architecture = "BertForMaskedLM"
        labels = {"num_labels": inner["num_labels"]} if "num_labels" in inner else {}
        return {"model_type": "bert", **inner["config"], "architectures": [architecture], **labels}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, WeightsMismatchError):
            raise
        raise WeightsMismatchError(f"{path} is damaged ({error!r}). Save the model again.") from None


def read_keras(path: Path) -> list[Array]:
    """Read the arrays of one of kbert's models that Keras saved.

    Returns
    -------
    list of Array
        By their Hugging Face names; those of an optimizer or a random generator are skipped.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        As `config_of_keras`; also if an array is missing, unknown, or of another shape than the config says.
    """
    values = config_of_keras(path)
    config, architecture = BertConfig.from_dict(values), (values.get("architectures") or ["BertModel"])[0]
    file: Path | BytesIO = path
    if path.name.endswith(ARCHIVE):
        file = BytesIO(_member(path, _H5_IN_ARCHIVE))
    found = read_datasets(file, path, is_state)
    labels = values.get("num_labels") or len(values.get("id2label") or ()) or _number_of_labels(found)
    check_layers(config, len(found), path)
    shapes = array_shapes(config, labels)
    entries = _entries(architecture, config.num_hidden_layers, found, config.classifier_pooling)
    arrays = match(found, entries, shapes, config.num_attention_heads, path)
    return arrays + [
        Array(source, None, None, "skipped: the optimizer's or a random generator's")
        for source, array in found.items()
        if array is None
    ]


def _number_of_labels(found: dict[str, np.ndarray | None]) -> int:
    bias = found.get("layers/dense/vars/1")
    return 1 if bias is None else bias.size


def _member(path: Path, name: str, most_bytes: int | None = None) -> bytes:
    """Read a file of the archive. Keras stores files uncompressed, so none is larger than the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(name)
            if info.file_size > min(path.stat().st_size, most_bytes or info.file_size):
                raise WeightsMismatchError(
                    f"{name} in {path} claims {info.file_size:,} bytes, more than it can have. Save the model again."
                )
            return archive.read(info)
    except (zipfile.BadZipFile, KeyError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, WeightsMismatchError):
            raise
        raise WeightsMismatchError(
            f"{path} cannot be read ({error}). It is truncated or damaged: copy it again, or save the model again."
        ) from None
