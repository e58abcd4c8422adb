"""BERT's arrays under their Hugging Face names: their shapes, and what is told of one that was read or written."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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
        As a Hugging Face file has it; None where it was skipped.
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


def check_arrays(arrays: dict[str, np.ndarray], config: BertConfig, place: str | Path) -> None:
    """Refuse arrays that are not those of a BERT of this architecture.

    Raises
    ------
    WeightsMismatchError
        If one is missing, unknown, of another shape, or holds NaN or infinity. The pooler and each head may be missing
        as a whole.
    """
    bias = arrays.get("classifier.bias")
    shapes = array_shapes(config, len(bias) if bias is not None and bias.ndim else 1)
    absent = tuple(prefix for prefix in PARTS if not any(name.startswith(prefix) for name in arrays))
    missing = [name for name in shapes if name not in arrays and not name.startswith(absent)]
    unknown = [name for name in arrays if name not in shapes]
    for what, names in (("lacks", missing), ("holds, besides those of a BERT,", unknown)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise WeightsMismatchError(
                f"The weights in {place} are not those of the architecture in its config.json: the file {what} "
                f"{', '.join(names[:5])}{more}."
            )
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise WeightsMismatchError(
                f"{name} in {place} has shape {array.shape}, and its config.json asks for {shapes[name]}."
            )
        if not np.isfinite(array).all():
            raise WeightsMismatchError(f"{name} in {place} holds NaN or infinite values. Copy or download it again.")


def parts_of(names) -> list[str]:
    """What readers call the pooler and the heads that are among these names."""
    names = list(names)
    return [part for prefix, part in PARTS.items() if any(name.startswith(prefix) for name in names)]
