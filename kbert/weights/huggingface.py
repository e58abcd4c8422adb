"""Which array of a Hugging Face BERT belongs to which variable of a kbert model, and copying in both directions."""

import re
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from kbert.config import BertConfig, read_config_json
from kbert.errors import WeightsMismatchError
from kbert.model import BertEncoder, BertForPreTraining
from kbert.weights.folder import read_arrays, write_folder


class Slot(NamedTuple):
    """One array: its name in the file, the variable, and whether the file holds it transposed."""

    name: str
    variable: keras.Variable
    transposed: bool = False


# Arrays that are no weights, and heads of tasks that the model at hand may not have.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_HEADS = ("cls.", "classifier.", "qa_outputs.")

# Arrays of the masked-LM head that are another array once more. A file may hold both, or either.
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def encoder_slots(encoder: BertEncoder) -> list[Slot]:
    """Every array of the encoder, named as in `transformers.BertModel`."""
    embeddings = encoder.embeddings
    slots = [
        Slot("embeddings.word_embeddings.weight", embeddings.word),
        Slot("embeddings.position_embeddings.weight", embeddings.position),
        Slot("embeddings.token_type_embeddings.weight", embeddings.segment),
        *_norm_slots("embeddings.LayerNorm", embeddings.norm),
    ]
    for i, layer in enumerate(encoder.transformer_layers):
        prefix = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            slots += dense_slots(f"{prefix}attention.self.{part}", getattr(layer.attention, part))
        slots += dense_slots(f"{prefix}attention.output.dense", layer.attention.output_dense)
        slots += _norm_slots(f"{prefix}attention.output.LayerNorm", layer.attention_norm)
        slots += dense_slots(f"{prefix}intermediate.dense", layer.intermediate)
        slots += dense_slots(f"{prefix}output.dense", layer.output_dense)
        slots += _norm_slots(f"{prefix}output.LayerNorm", layer.output_norm)
    return slots + dense_slots("pooler.dense", encoder.pooler.dense)


def pretraining_slots(model: BertForPreTraining) -> list[Slot]:
    """Every array of the encoder and the heads, named as in `transformers.BertForPreTraining`."""
    head = model.mlm_head
    slots = [
        *encoder_slots(model.encoder),
        Slot("cls.predictions.bias", head.bias),
        *dense_slots("cls.predictions.transform.dense", head.dense),
        *_norm_slots("cls.predictions.transform.LayerNorm", head.norm),
    ]
    return slots + (dense_slots("cls.seq_relationship", model.nsp_head) if model.nsp_head is not None else [])


def dense_slots(name: str, layer: keras.layers.Dense) -> list[Slot]:
    """The two arrays of a dense layer; PyTorch keeps the kernel as (out, in)."""
    return [Slot(f"{name}.weight", layer.kernel, transposed=True), Slot(f"{name}.bias", layer.bias)]


def _norm_slots(name: str, layer: keras.layers.LayerNormalization) -> list[Slot]:
    return [Slot(f"{name}.weight", layer.gamma), Slot(f"{name}.bias", layer.beta)]


def canonical_name(name: str) -> str:
    """A file's name for an array without the variations of older files: a ``bert.`` prefix, ``gamma`` and ``beta``."""
    name = re.sub(r"^(module\.)?(bert\.)?", "", name)
    return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))


def load_slots(slots: list[Slot], folder: str | Path, optional: tuple[str, ...] = ()) -> list[str]:
    """Copy a folder's arrays into variables and return the names of the optional ones that the file lacks.

    Parameters
    ----------
    slots : list of Slot
        What the model needs.
    folder : str or Path
    optional : tuple of str
        Prefixes of the arrays that may be missing, all those of a prefix, which then keep their random start.

    Raises
    ------
    WeightsMismatchError
        When an array is missing, has another shape, holds NaN or infinity, or is one that kbert does not know; when
        two arrays differ that the model has as one.
    """
    arrays = {canonical_name(name): array for name, array in read_arrays(folder).items()}
    wanted = {slot.name for slot in slots}
    if "cls.predictions.bias" in wanted:
        untwin(arrays, folder)
    unknown = sorted(
        name for name in arrays if name not in wanted and name not in BUFFERS and not name.startswith(_HEADS)
    )
    missing = sorted(name for name in wanted if name not in arrays)
    # Of what may be missing, a part alone says that the file is damaged.
    absent = tuple(prefix for prefix in optional if not any(name.startswith(prefix) for name in arrays))
    fatal = [name for name in missing if not name.startswith(absent)]
    if unknown or fatal:
        lines = [f"lacks {_listed(fatal)}"] * bool(fatal) + [f"holds {_listed(unknown)}, which no BERT has"] * bool(
            unknown
        )
        raise WeightsMismatchError(
            f"The weights in {folder} are not those of the architecture in its config.json: "
            f"the file {' and '.join(lines)}."
        )
    for slot in slots:
        if slot.name in arrays:
            _assign(slot, arrays[slot.name], folder)
    return missing


def untwin(arrays: dict[str, np.ndarray], folder) -> None:
    """Keep one of two arrays that are to be equal, under the canonical name that kbert uses."""
    for name, kept in _TIED.items():
        if name in arrays and not np.array_equal(arrays[name], arrays.setdefault(kept, arrays[name])):
            raise WeightsMismatchError(
                f"{name} and {kept} in {folder} differ, and in BERT's masked-LM head they are one array. Tie them in "
                "transformers (model.config.tie_word_embeddings = True; model.tie_weights()) and save the model again, "
                "or read the encoder alone with BertEncoder.from_pretrained."
            )
        arrays.pop(name, None)


def _assign(slot: Slot, array: np.ndarray, folder) -> None:
    array = array.T if slot.transposed else array
    if array.shape != tuple(slot.variable.shape):
        raise WeightsMismatchError(
            f"{slot.name} in {folder} has shape {array.shape}, and its config.json asks for "
            f"{tuple(slot.variable.shape)}."
        )
    array = np.asarray(array, "float32")
    if not np.isfinite(array).all():
        raise WeightsMismatchError(f"{slot.name} in {folder} holds NaN or infinite values. Copy or download it again.")
    slot.variable.assign(array)


def _listed(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def save_slots(folder: str | Path, config: BertConfig, slots: list[Slot], prefix: str = "", extra: dict | None = None):
    """Write the arrays and a config.json, ``extra`` keys included, as transformers lays them out."""
    arrays = {}
    for slot in slots:
        array = np.asarray(keras.ops.convert_to_numpy(slot.variable.value), "float32")
        name = slot.name if slot.name.startswith(_HEADS) else prefix + slot.name
        arrays[name] = array.T if slot.transposed else array
    write_folder(folder, {"model_type": "bert", **config.to_dict(), "dtype": "float32", **(extra or {})}, arrays)


def number_of_labels(folder: str | Path) -> int:
    """Outputs of the classification head in a folder, by its config.json."""
    values = read_config_json(folder)
    return len(values["id2label"]) if values.get("id2label") else int(values.get("num_labels", 2))
