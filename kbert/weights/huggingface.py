"""Which array of a Hugging Face BERT belongs to which variable of a kbert model, and copying in both directions."""

from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from kbert.config import BertConfig
from kbert.errors import WeightsMismatchError
from kbert.model import BertEncoder, BertForPreTraining
from kbert.weights.arrays import BUFFERS, HEADS, as_float32, listed, untwin
from kbert.weights.folder import write_folder
from kbert.weights.formats import read_arrays


class Slot(NamedTuple):
    """One array: its name in the file, the variable, and whether the file holds it transposed."""

    name: str
    variable: keras.Variable
    transposed: bool = False


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


def check_sizes(config: BertConfig, arrays: dict[str, np.ndarray], folder: str | Path) -> None:
    """Refuse a config.json that asks for a larger model than the arrays make, before memory is taken for it."""
    D, last = config.hidden_size, f"encoder.layer.{config.num_hidden_layers - 1}"
    shapes = {
        "embeddings.word_embeddings.weight": (config.vocab_size, D),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, D),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, D),
        f"{last}.intermediate.dense.weight": (config.intermediate_size, D),
    }
    missing = [name for name in shapes if name not in arrays]
    if missing:
        raise _misfit(folder, [f"lacks {listed(missing)}"])
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise _wrong_shape(name, folder, arrays[name].shape, shape)


def load_slots(
    slots: list[Slot],
    folder: str | Path,
    optional: tuple[str, ...] = (),
    arrays: dict[str, np.ndarray] | None = None,
) -> list[str]:
    """Copy a folder's arrays into variables and return the names of the optional ones that the file lacks.

    Parameters
    ----------
    slots : list of Slot
        What the model needs.
    folder : str or Path
    optional : tuple of str
        Prefixes of the arrays that may be missing, all those of a prefix, which then keep their random start.
    arrays : dict of ndarray, optional
        What `read_arrays` gives of the folder, where they have been read already. What is copied is taken out.

    Raises
    ------
    WeightsMismatchError
        When an array is missing, has another shape, holds whole numbers, NaN or infinity, or is one that kbert does
        not know; when two arrays differ that the model has as one.
    """
    arrays = read_arrays(folder) if arrays is None else arrays
    wanted = {slot.name for slot in slots}
    if "cls.predictions.bias" in wanted:
        untwin(arrays, folder)
    unknown = sorted(
        name for name in arrays if name not in wanted and name not in BUFFERS and not name.startswith(HEADS)
    )
    missing = sorted(name for name in wanted if name not in arrays)
    # Of what may be missing, a part alone says that the file is damaged.
    absent = tuple(prefix for prefix in optional if not any(name.startswith(prefix) for name in arrays))
    fatal = [name for name in missing if not name.startswith(absent)]
    if unknown or fatal:
        lacks, holds = [f"lacks {listed(fatal)}"], [f"holds {listed(unknown)}, which no BERT has"]
        raise _misfit(folder, lacks * bool(fatal) + holds * bool(unknown))
    for slot in slots:
        if slot.name in arrays:
            # Taken out, so that loading does not hold all weights twice to the end.
            _assign(slot, arrays.pop(slot.name), folder)
    return missing


def _misfit(folder, faults: list[str]) -> WeightsMismatchError:
    return WeightsMismatchError(
        f"The weights in {folder} are not those of the architecture in its config.json: "
        f"the file {' and '.join(faults)}."
    )


def _wrong_shape(name: str, folder, shape: tuple, expected: tuple) -> WeightsMismatchError:
    return WeightsMismatchError(
        f"{name} in {folder} has shape {shape}, and the model of its config.json needs {expected}."
    )


def _assign(slot: Slot, array: np.ndarray, folder) -> None:
    expected = tuple(slot.variable.shape)
    if array.shape != (expected[::-1] if slot.transposed else expected):
        raise _wrong_shape(slot.name, folder, array.shape, expected[::-1] if slot.transposed else expected)
    array = as_float32(array, slot.name, folder)
    slot.variable.assign(array.T if slot.transposed else array)


def save_slots(
    folder: str | Path,
    config: BertConfig,
    slots: list[Slot],
    prefix: str = "",
    extra: dict | None = None,
    dtype: str = "float32",
) -> None:
    """Write the arrays and a config.json, ``extra`` keys included, as transformers lays them out.

    Raises
    ------
    ValueError
        When ``dtype`` is not one of float32, float16 and bfloat16, or too narrow for one of the arrays.
    """
    arrays = {}
    for slot in slots:
        name = slot.name if slot.name.startswith(HEADS) else prefix + slot.name
        array = np.asarray(keras.ops.convert_to_numpy(slot.variable.value), "float32")
        arrays[name] = _narrowed(array.T if slot.transposed else array, dtype, name)
    write_folder(folder, {"model_type": "bert", **config.to_dict(), "dtype": dtype, **(extra or {})}, arrays)


def _narrowed(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    """The array in the type of a file, each number rounded to the nearest that it has."""
    if dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"dtype must be 'float32', 'float16' or 'bfloat16', got {dtype!r}.")
    if dtype == "bfloat16":
        from ml_dtypes import bfloat16  # which comes with Keras

        return array.astype(bfloat16)
    if np.abs(array).max(initial=0) > np.finfo(dtype).max:
        raise ValueError(f"{name} has values beyond those of {dtype}. Save in bfloat16 or float32.")
    return array.astype(dtype)
