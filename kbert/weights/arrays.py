"""BERT's arrays under their Hugging Face names: names, types and shapes, and what is told of one. No Keras here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from kbert.config import BertConfig
from kbert.errors import WeightsMismatchError

COPIED = "copied"


class Array(NamedTuple):
    """One array of a file, and which of BERT's it is.

    Attributes
    ----------
    source : str
        Where it is in the file.
    name : str or None
        Its name in a Hugging Face file, without ``bert.`` before it; None where it is none of BERT's.
    array : numpy.ndarray or None
        As a Hugging Face file has it, of the type in the file it is from; None where it was skipped.
    note : str
        What was done with it, or why it was skipped.
    """

    source: str
    name: str | None
    array: np.ndarray | None
    note: str = COPIED


# Parts of a file that it may lack, each as a whole: the prefix of their names, and what a reader calls them.
PARTS = {
    "pooler.": "pooler",
    "cls.predictions.": "masked-LM head",
    "cls.seq_relationship.": "next-sentence head",
    "classifier.": "classifier",
    "qa_outputs.": "span head",
}
HEADS = tuple(prefix for prefix in PARTS if prefix != "pooler.")

# Arrays that are no weights.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# Arrays of the masked-LM head that are another array once more. A file may hold both, or either.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def canonical_name(name: str) -> str:
    """A file's name for an array without what older files, wrappers and compilers of PyTorch add or call otherwise.

    That is a ``module.``, ``_orig_mod.`` or ``bert.`` prefix, and ``gamma`` and ``beta`` for LayerNorm's arrays.
    """
    name = re.sub(r"^(module\.|_orig_mod\.)*(bert\.)?", "", name)
    return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))


def untwin(arrays: dict[str, np.ndarray], place: str | Path) -> None:
    """Keep one of two arrays that are to be equal, under the canonical name that kbert uses."""
    for name, kept in TIED.items():
        if name in arrays and not np.array_equal(arrays[name], arrays.setdefault(kept, arrays[name])):
            raise WeightsMismatchError(
                f"{name} and {kept} in {place} differ, and in BERT's masked-LM head they are one array. Tie them in "
                "transformers (model.config.tie_word_embeddings = True; model.tie_weights()) and save the model again, "
                "or read the encoder alone with BertEncoder.from_pretrained."
            )
        arrays.pop(name, None)


def is_half(array: np.ndarray) -> bool:
    """Whether an array is of float16 or bfloat16, all whose numbers float32 has too."""
    return array.dtype in ("float16", ml_dtypes.bfloat16)


def as_float32(array: np.ndarray, name: str, place: str | Path) -> np.ndarray:
    """The weights in float32; those of float64 are rounded to the nearest that it has.

    Raises
    ------
    WeightsMismatchError
        If they are whole numbers, or of another type in which weights are quantised, or not finite in float32.
    """
    if array.dtype.kind != "f" and not is_half(array):
        raise WeightsMismatchError(
            f"{name} in {place} holds {array.dtype}, in which weights are quantised. Save the model again in float32, "
            "float16 or bfloat16, as it was before."
        )
    with np.errstate(over="ignore"):  # which is refused below
        rounded = array.astype("float32", copy=False)
    if not np.isfinite(rounded).all():
        if np.isfinite(array).all():
            raise WeightsMismatchError(f"{name} in {place} holds numbers above 3.4e38, for which float32 has no room.")
        raise WeightsMismatchError(f"{name} in {place} holds NaN or infinite values. Copy or download it again.")
    return rounded


def array_shapes(config: BertConfig, num_labels: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays that a BERT can have, by name; dense kernels are (out, in), as PyTorch has them."""
    D, V, F = config.hidden_size, config.vocab_size, config.intermediate_size

    def dense(name, n_out, n_in):
        return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}

    def norm(name):
        return {f"{name}.weight": (D,), f"{name}.bias": (D,)}

    shapes = {
        "embeddings.word_embeddings.weight": (V, D),
        "embeddings.position_embeddings.weight": (config.max_position_embeddings, D),
        "embeddings.token_type_embeddings.weight": (config.type_vocab_size, D),
        **norm("embeddings.LayerNorm"),
    }
    for i in range(config.num_hidden_layers):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            shapes |= dense(f"{layer}.attention.self.{part}", D, D)
        shapes |= dense(f"{layer}.attention.output.dense", D, D) | norm(f"{layer}.attention.output.LayerNorm")
        shapes |= dense(f"{layer}.intermediate.dense", F, D)
        shapes |= dense(f"{layer}.output.dense", D, F) | norm(f"{layer}.output.LayerNorm")
    return {
        **shapes,
        **dense("pooler.dense", D, D),
        "cls.predictions.bias": (V,),
        **dense("cls.predictions.transform.dense", D, D),
        **norm("cls.predictions.transform.LayerNorm"),
        **dense("cls.seq_relationship", 2, D),
        **dense("classifier", num_labels, D),
        **dense("qa_outputs", 2, D),
    }


def check_layers(config: BertConfig, n_arrays: int, place: str | Path) -> None:
    """Refuse a config that speaks of more layers than so many arrays can make, before they are counted up."""
    if config.num_hidden_layers > n_arrays:
        raise WeightsMismatchError(
            f"{place} holds {n_arrays} arrays, and its config asks for {config.num_hidden_layers} layers. It is not "
            "complete, or belongs to another config."
        )


def check_arrays(arrays: dict[str, np.ndarray], config: BertConfig, place: str | Path) -> None:
    """Refuse arrays that are not those of a BERT of this architecture.

    Raises
    ------
    WeightsMismatchError
        If one is missing, unknown, or of another shape. The pooler and each head may be missing as a whole.
    """
    check_layers(config, len(arrays), place)
    bias = arrays.get("classifier.bias")
    shapes = array_shapes(config, len(bias) if bias is not None and bias.ndim else 1)
    absent = tuple(prefix for prefix in PARTS if not any(name.startswith(prefix) for name in arrays))
    missing = [name for name in shapes if name not in arrays and not name.startswith(absent)]
    unknown = [name for name in arrays if name not in shapes]
    for what, names in (("lacks", missing), ("holds, besides those of a BERT,", unknown)):
        if names:
            raise WeightsMismatchError(
                f"The weights in {place} are not those of the architecture in its config.json: the file {what} "
                f"{listed(names)}."
            )
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise WeightsMismatchError(
                f"{name} in {place} has shape {array.shape}, and its config.json asks for {shapes[name]}."
            )


def listed(names: list[str], most: int = 5) -> str:
    """The first of some names, and how many more there are, for an error."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def parts_of(names) -> list[str]:
    """What readers call the pooler and the heads that are among these names."""
    names = list(names)
    return [part for prefix, part in PARTS.items() if any(name.startswith(prefix) for name in names)]
