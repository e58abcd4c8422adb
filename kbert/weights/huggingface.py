"""Which array of a Hugging Face file belongs to which variable of a kbert model, and copying in both directions."""

from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from kbert.config import BertConfig
from kbert.errors import WeightsMismatchError
from kbert.model import BertEncoder, BertForPreTraining
from kbert.model.base import to_numpy
from kbert.model.setup import keras
from kbert.values.printable import listed
from kbert.weights.arrays import BUFFERS, HEADS, as_float32, merge_tied
from kbert.weights.folder import write_folder
from kbert.weights.formats import read_arrays


class Slot(NamedTuple):
    """A pair of an array in a file and a variable of a model.

    Attributes
    ----------
    name : str
        The array's name in the file, without ``bert.`` before it.
    variable : keras.Variable, or an array of a kernel with LoRA
    transposed : bool
        Whether the file has the transposed array.
    """

    name: str
    variable: keras.Variable
    transposed: bool = False


def encoder_slots(encoder: BertEncoder) -> list[Slot]:
    """Return the slots of the encoder. The names are those of `transformers.BertModel`."""
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
    """Return the slots of the encoder and both heads. The names are those of `transformers.BertForPreTraining`."""
    head = model.mlm_head
    slots = [
        *encoder_slots(model.encoder),
        Slot("cls.predictions.bias", head.bias),
        *dense_slots("cls.predictions.transform.dense", head.dense),
        *_norm_slots("cls.predictions.transform.LayerNorm", head.norm),
    ]
    return slots + (dense_slots("cls.seq_relationship", model.nsp_head) if model.nsp_head is not None else [])


def dense_slots(name: str, layer: keras.layers.Dense) -> list[Slot]:
    """Return the two slots of a dense layer. Files have PyTorch's kernel, which is (out, in)."""
    return [Slot(f"{name}.weight", layer.kernel, transposed=True), Slot(f"{name}.bias", layer.bias)]


def _norm_slots(name: str, layer: keras.layers.LayerNormalization) -> list[Slot]:
    return [Slot(f"{name}.weight", layer.gamma), Slot(f"{name}.bias", layer.beta)]


def check_sizes(config: BertConfig, arrays: dict[str, np.ndarray], folder: str | Path) -> None:
    """Check that the arrays have the sizes in config.json, before memory is allocated for the model.

    Raises
    ------
    WeightsMismatchError
    """
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
    """Copy a folder's arrays into the variables of a model.

    Parameters
    ----------
    slots : list of Slot
        The slots of the model.
    folder : str or Path
    optional : tuple of str
        Prefixes of arrays that may be missing. Of each prefix the file may lack either all arrays or none. The
        variables of those that it lacks keep their values.
    arrays : dict of ndarray, optional
        The arrays of the folder, if `read_arrays` has read them already. Those that are copied are removed from it.

    Returns
    -------
    list of str
        The names of the optional arrays that the file lacks.

    Raises
    ------
    WeightsMismatchError
        When an array is missing, unknown, or of another shape; when it holds whole numbers, NaN or infinity; when two
        tied arrays differ.
    """
    arrays = read_arrays(folder) if arrays is None else arrays
    wanted = {slot.name for slot in slots}
    if "cls.predictions.bias" in wanted:
        merge_tied(arrays, folder)
    unknown = sorted(
        name for name in arrays if name not in wanted and name not in BUFFERS and not name.startswith(HEADS)
    )
    missing = sorted(name for name in wanted if name not in arrays)
    # A file that has some arrays of a prefix, and not all of them, is damaged.
    absent = tuple(prefix for prefix in optional if not any(name.startswith(prefix) for name in arrays))
    fatal = [name for name in missing if not name.startswith(absent)]
    if unknown or fatal:
        lacks, holds = [f"lacks {listed(fatal)}"], [f"holds {listed(unknown)}, which no BERT has"]
        raise _misfit(folder, lacks * bool(fatal) + holds * bool(unknown))
    for slot in slots:
        if slot.name in arrays:
            # Removed, so that its memory is free once it is copied.
            _assign(slot, arrays.pop(slot.name), folder)
    return missing


def _misfit(folder: str | Path, faults: list[str]) -> WeightsMismatchError:
    return WeightsMismatchError(
        f"The weights in {folder} are not those of the architecture in its config.json: "
        f"the file {' and '.join(faults)}."
    )


def _wrong_shape(
    name: str, folder: str | Path, shape: tuple[int, ...], expected: tuple[int, ...]
) -> WeightsMismatchError:
    return WeightsMismatchError(
        f"{name} in {folder} has shape {shape}, and the model of its config.json needs {expected}."
    )


def _assign(slot: Slot, array: np.ndarray, folder: str | Path) -> None:
    shape = tuple(slot.variable.shape)
    expected = shape[::-1] if slot.transposed else shape
    if array.shape != expected:
        raise _wrong_shape(slot.name, folder, array.shape, expected)
    array = as_float32(array, slot.name, folder)
    slot.variable.assign(array.T if slot.transposed else array)


def save_slots(
    folder: str | Path,
    config: BertConfig,
    slots: list[Slot],
    prefix: str = "",
    extra: dict[str, Any] | None = None,
    dtype: str = "float32",
) -> None:
    """Write the variables of a model as a Hugging Face folder.

    Parameters
    ----------
    folder : str or Path
    config : BertConfig
    slots : list of Slot
        The slots of the model.
    prefix : str
        Comes before the names of all arrays but those of heads: "bert." for a model with a head.
    extra : dict, optional
        Further keys of config.json, such as ``architectures``.
    dtype : {"float32", "float16", "bfloat16"}
        The type of the arrays in the file.

    Raises
    ------
    ValueError
        When ``dtype`` is another one, or an array has values that it cannot represent.
    """
    arrays = {}
    for slot in slots:
        name = slot.name if slot.name.startswith(HEADS) else prefix + slot.name
        # A kernel with adapters of Keras's LoRA is an array: its variable, with what they add.
        value = slot.variable.value if isinstance(slot.variable, keras.Variable) else slot.variable
        array = np.asarray(to_numpy(value), "float32")
        arrays[name] = _narrowed(array.T if slot.transposed else array, dtype, name)
    write_folder(folder, {"model_type": "bert", **config.to_dict(), "dtype": dtype, **(extra or {})}, arrays)


def _narrowed(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    """Round an array to the type of the file."""
    if dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"dtype must be 'float32', 'float16' or 'bfloat16', got {dtype!r}.")
    if dtype == "bfloat16":
        return array.astype(ml_dtypes.bfloat16)
    if np.abs(array).max(initial=0) > np.finfo(dtype).max:
        raise ValueError(f"{name} has values beyond those of {dtype}. Save in bfloat16 or float32.")
    return array.astype(dtype)
