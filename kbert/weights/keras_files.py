"""Models of kbert in Keras's own files, ``.keras`` and ``.weights.h5``, as arrays. Keras is not needed to read them."""

from __future__ import annotations

import zipfile
from collections.abc import Container
from io import BytesIO
from pathlib import Path

from kbert.config import BertConfig
from kbert.config_json import read_config_json
from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.json_files import MOST_BYTES, parsed_object
from kbert.weights.arrays import Array, array_shapes, check_layers
from kbert.weights.h5 import Entry, dense, is_no_weight, match, norm, numbered, read_datasets

ARCHIVE = ".keras"
_H5_IN_ARCHIVE = "model.weights.h5"

# kbert's models by their class, as transformers calls them, and the one dense layer of those that have such a head.
_ARCHITECTURES = {
    "BertEncoder": "BertModel",
    "BertForFeatures": "BertModel",
    "BertForPreTraining": "BertForPreTraining",
    "BertForSequenceClassification": "BertForSequenceClassification",
    "BertForTokenClassification": "BertForTokenClassification",
    "BertForQuestionAnswering": "BertForQuestionAnswering",
}
_DENSE_HEADS = {
    "BertForPreTraining": "cls.seq_relationship",
    "BertForSequenceClassification": "classifier",
    "BertForMultipleChoice": "classifier",
    "BertForTokenClassification": "classifier",
    "BertForQuestionAnswering": "qa_outputs",
}


def _entries(architecture: str, n_layers: int, found: Container[str]) -> list[Entry]:
    """Every array of a model's file, in which these paths are."""
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
    # What `BertForFeatures` makes no use of, such as the pooler, is not among its layers but its encoder's.
    entries = [e._replace(path=f"encoder/{e.path}") if f"encoder/{e.path}" in found else e for e in entries]
    if architecture in ("BertForPreTraining", "BertForMaskedLM"):
        entries += [
            Entry("layers/masked_language_head/vars/0", "cls.predictions.bias"),
            *dense("layers/masked_language_head/dense", "cls.predictions.transform.dense"),
            *norm("layers/masked_language_head/norm", "cls.predictions.transform.LayerNorm"),
        ]
    head = _DENSE_HEADS.get(architecture)
    return entries + (dense("layers/dense", head) if head else [])


def config_of_keras(path: Path) -> dict:
    """The keys of a Hugging Face config.json for a Keras file: those inside it, or of the config.json beside it.

    Raises
    ------
    WeightsNotFoundError
        If there is no config.json beside a ``.weights.h5``.
    WeightsMismatchError
        If the file is damaged, or is not of a model of kbert. Classes are compared by name, and never imported.
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
    """The arrays of a model of kbert that Keras saved, under their Hugging Face names.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        As `config_of_keras`; also if an array is missing, unknown, or of another shape than the config says.
    """
    values = config_of_keras(path)
    config, architecture = BertConfig.from_dict(values), (values.get("architectures") or ["BertModel"])[0]
    file = BytesIO(_member(path, _H5_IN_ARCHIVE)) if path.name.endswith(ARCHIVE) else path
    found = read_datasets(file, path, is_no_weight)
    labels = values.get("num_labels") or len(values.get("id2label") or ()) or _number_of_labels(found)
    check_layers(config, len(found), path)
    shapes = array_shapes(config, labels)
    entries = _entries(architecture, config.num_hidden_layers, found)
    arrays = match(found, entries, shapes, config.num_attention_heads, path)
    return arrays + [
        Array(source, None, None, "skipped: the optimizer's or a random generator's")
        for source, array in found.items()
        if array is None
    ]


def _number_of_labels(found: dict) -> int:
    bias = found.get("layers/dense/vars/1")
    return 1 if bias is None else bias.size


def _member(path: Path, name: str, most_bytes: int | None = None) -> bytes:
    """The content of a file in the archive, which Keras stores without packing it."""
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
