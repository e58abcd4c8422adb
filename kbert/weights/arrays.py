"""BERT's arrays under their Hugging Face names: which names, types and shapes there are. No Keras here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from kbert.config import BertConfig
from kbert.errors import WeightsMismatchError
from kbert.values.printable import listed

COPIED = "copied"


class Array(NamedTuple):
    """One array of a weights file, and which of BERT's arrays it is.

    Attributes
    ----------
    source : str
        Its name in that file.
    name : str or None
        Its name in a Hugging Face file, without ``bert.`` before it; None where it is not one of BERT's.
    array : numpy.ndarray or None
        The array in the shape that it has in a Hugging Face file, and in the type that it has in its own file; None
        where it was skipped.
    note : str
        What was done with it, or why it was skipped.
    """

    source: str
    name: str | None
    array: np.ndarray | None
    note: str = COPIED


# The parts that a weights file may lack, each as a whole: the prefix of their arrays, and what messages call them.
PARTS = {
    "pooler.": "pooler",
    "cls.predictions.": "masked-LM head",
    "cls.seq_relationship.": "next-sentence head",
    "classifier.": "classifier",
    "mean_classifier.": "classifier of mean vectors",
    "qa_outputs.": "span head",
}
# Of a classifier of texts or tokens, and of one of mean vectors: as long as there are labels.
CLASSIFIER_BIASES = ("classifier.bias", "mean_classifier.bias")
HEADS = tuple(prefix for prefix in PARTS if prefix != "pooler.")

# Arrays in Hugging Face files that are not weights.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

# Arrays of the masked-LM head that are tied: equal to another array. A file may hold both, or one of them.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def canonical_name(name: str) -> str:
    """Return the canonical name of an array in a Hugging Face file.

    Prefixes are removed: ``bert.``, and ``module.`` and ``_orig_mod.``, which PyTorch's wrappers and compiler add. The
    ``gamma`` and ``beta`` of older files become ``weight`` and ``bias``.
    """
    name = re.sub(r"^(module\.|_orig_mod\.)*(bert\.)?", "", name)
    return re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))


def merge_tied(arrays: dict[str, np.ndarray], path: str | Path) -> None:
    """Keep one of each pair of tied arrays, under the name that kbert uses. ``arrays`` is changed.

    Raises
    ------
    WeightsMismatchError
        If the two differ.
    """
    for name, kept in TIED.items():
        if name in arrays and not np.array_equal(arrays[name], arrays.setdefault(kept, arrays[name]), equal_nan=True):
            raise WeightsMismatchError(
                f"{name} and {kept} in {path} differ, and in BERT's masked-LM head they are one array. Tie them in "
                "transformers (model.config.tie_word_embeddings = True; model.tie_weights()) and save the model again, "
                "or read the encoder alone with BertEncoder.from_pretrained."
            )
        arrays.pop(name, None)


def is_half(array: np.ndarray) -> bool:
    """Whether an array is of float16 or bfloat16. All their numbers can be represented in float32."""
    return array.dtype in ("float16", ml_dtypes.bfloat16)


def as_float32(array: np.ndarray, name: str, path: str | Path) -> np.ndarray:
    """Convert weights to float32; those of float64 are rounded.

    Parameters
    ----------
    array : numpy.ndarray
    name : str
        What messages call the array.
    path : str or Path
        What messages call its file or folder.

    Raises
    ------
    WeightsMismatchError
        If they are whole numbers or otherwise quantised, or not finite in float32.
    """
    if array.dtype.kind != "f" and not is_half(array):
        raise WeightsMismatchError(
            f"{name} in {path} holds {array.dtype}, in which weights are quantised. Save the model again in float32, "
            "float16 or bfloat16, as it was before."
        )
    with np.errstate(over="ignore"):  # an overflow raises below
        rounded = array.astype("float32", copy=False)
    if not np.isfinite(rounded).all():
        if np.isfinite(array).all():
            raise WeightsMismatchError(f"{name} in {path} holds numbers above 3.4e38, for which float32 has no room.")
        raise WeightsMismatchError(f"{name} in {path} holds NaN or infinite values. Copy or download it again.")
    return rounded


def array_shapes(config: BertConfig, num_labels: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays that a BERT can have, by name. Dense kernels are (out, in), as in PyTorch.

    Parameters
    ----------
    config : BertConfig
    num_labels : int
        Outputs of a classifier.
    """
    D, V, F = config.hidden_size, config.vocab_size, config.intermediate_size

    def dense(name: str, n_out: int, n_in: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (D,), f"{name}.bias": (D,)}

    shapes: dict[str, tuple[int, ...]] = {
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
        # Another name, so that transformers, whose classes for texts all read the pooler's vector, does not take it.
        **dense("mean_classifier", num_labels, D),
        **dense("qa_outputs", 2, D),
    }


def check_layers(config: BertConfig, n_arrays: int, path: str | Path) -> None:
    """Refuse a config with more layers than the file has arrays, before any work is done for each layer.

    Raises
    ------
    WeightsMismatchError
    """
    if config.num_hidden_layers > n_arrays:
        raise WeightsMismatchError(
            f"{path} holds {n_arrays} arrays, and its config asks for {config.num_hidden_layers} layers. It is not "
            "complete, or belongs to another config."
        )


def check_arrays(arrays: dict[str, np.ndarray], config: BertConfig, path: str | Path) -> None:
    """Check that these are the arrays of a BERT of this architecture.

    Raises
    ------
    WeightsMismatchError
        If one is missing, unknown, or of another shape. The pooler and each head may be missing as a whole.
    """
    check_layers(config, len(arrays), path)
    bias = next((arrays[name] for name in CLASSIFIER_BIASES if name in arrays), None)
    shapes = array_shapes(config, len(bias) if bias is not None and bias.ndim else 1)
    absent = tuple(prefix for prefix in PARTS if not any(name.startswith(prefix) for name in arrays))
    missing = [name for name in shapes if name not in arrays and not name.startswith(absent)]
    unknown = [name for name in arrays if name not in shapes]
    for what, names in (("lacks", missing), ("holds, besides those of a BERT,", unknown)):
        if names:
            raise WeightsMismatchError(
                f"The weights in {path} are not those of the architecture in its config.json: the file {what} "
                f"{listed(names)}."
            )
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise WeightsMismatchError(
                f"{name} in {path} has shape {array.shape}, and its config.json asks for {shapes[name]}."
            )


def parts_of(names: Iterable[str]) -> list[str]:
    """Return what messages call the pooler and the heads that have arrays among these names."""
    names = list(names)
    return [part for prefix, part in PARTS.items() if any(name.startswith(prefix) for name in names)]


def of_its_head(config: BertConfig, names: Collection[str]) -> BertConfig:
    """A config that reads what the head among some arrays was trained on, by their names.

    transformers keeps ``classifier_pooling`` in the config.json of a model with a new head, which reads [CLS].
    """
    if any(name.startswith("mean_classifier.") for name in names):
        return config
    reads_first = any(name.startswith("classifier.") for name in names)
    return replace(config, classifier_pooling="cls") if reads_first else config
