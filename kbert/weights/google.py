"""Google's own checkpoints (github.com/google-research/bert): bert_config.json, vocab.txt and bert_model.ckpt.*.

Arrays are read and written under their names in transformers. The names of Google's variables are those in modeling.py,
run_pretraining.py, run_classifier.py and run_squad.py. A kernel is (in, out) there and (out, in) in transformers; the
``output_weights`` of the heads are (out, in) in both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kbert.config import BertConfig
from kbert.errors import KbertWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import write_json
from kbert.values.printable import listed
from kbert.warn import warn_user
from kbert.weights.arrays import BUFFERS, COPIED, Array, canonical_name, is_half, merge_tied
from kbert.weights.tensor_bundle import TensorBundle, write_bundle

PREFIX = "bert_model.ckpt"
CONFIG = "bert_config.json"

# Variables whose names in transformers have the same parts, separated by "." in place of "/". "#" stands for the number
# of a layer.
_DENSE = (
    *(f"bert/encoder/layer_#/attention/self/{part}" for part in ("query", "key", "value")),
    "bert/encoder/layer_#/attention/output/dense",
    "bert/encoder/layer_#/intermediate/dense",
    "bert/encoder/layer_#/output/dense",
    "bert/pooler/dense",
    "cls/predictions/transform/dense",
)
_NORMS = (
    "bert/embeddings/LayerNorm",
    "bert/encoder/layer_#/attention/output/LayerNorm",
    "bert/encoder/layer_#/output/LayerNorm",
    "cls/predictions/transform/LayerNorm",
)
# A classifier of the mean over the tokens, which Google's code does not have.
_OF_MEANS = "mean_classifier."
_OTHERS = {
    **{
        f"bert/embeddings/{kind}_embeddings": f"bert.embeddings.{kind}_embeddings.weight"
        for kind in ("word", "position", "token_type")
    },
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}


def _dotted(name: str) -> str:
    return name.replace("layer_#", "layer.#").replace("/", ".")


_TO_HUGGINGFACE = {
    **{f"{name}/kernel": f"{_dotted(name)}.weight" for name in _DENSE},
    **{f"{name}/bias": f"{_dotted(name)}.bias" for name in _DENSE},
    **{f"{name}/gamma": f"{_dotted(name)}.weight" for name in _NORMS},
    **{f"{name}/beta": f"{_dotted(name)}.bias" for name in _NORMS},
    **_OTHERS,
}
_TO_GOOGLE = {canonical_name(theirs): google for google, theirs in _TO_HUGGINGFACE.items()}

# Variables of an optimizer: that of run_pretraining.py, TensorFlow's own Adam, and LAMB.
_COUNTERS = ("global_step", "beta1_power", "beta2_power")
_SLOTS = re.compile("/(adam_m|adam_v|Adam|Adam_1|lamb_m|lamb_v)$")
_TRANSPOSED = "transposed"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def find_checkpoint(folder: str | Path) -> Path | None:
    """Return the prefix of the only TensorFlow checkpoint in a folder; None where there is none.

    Raises
    ------
    WeightsNotFoundError
        If there are several.
    """
    pattern = re.compile(r"(.+\.ckpt(-\d+)?)\.index")
    found = [match[1] for path in Path(folder).glob("*.index") if (match := pattern.fullmatch(path.name))]
    if len(found) > 1:
        raise WeightsNotFoundError(
            f"{folder} holds several checkpoints: {', '.join(sorted(found))}. Keep one, its .index and .data files, "
            "and move the others elsewhere."
        )
    return Path(folder) / found[0] if found else None


def google_arrays(folder: str | Path) -> Iterator[Array]:
    """Read the arrays of Google's checkpoint in a folder, one after the other.

    Yields
    ------
    Array
        One for each variable. ``name`` and ``array`` are None for a variable of the optimizer.

    Raises
    ------
    WeightsNotFoundError
        If there is no checkpoint in the folder, or more than one, or one of its files is missing.
    WeightsMismatchError
        If the checkpoint is damaged, was written by TensorFlow 2's object saver, or holds a variable that Google's
        BERT does not have.
    """
    prefix = find_checkpoint(folder)
    if prefix is None:
        raise WeightsNotFoundError(f"There is no TensorFlow checkpoint in {folder}, such as {PREFIX}.index.")
    bundle = TensorBundle(prefix)
    _check_names(bundle)
    for source in bundle.entries:
        name = huggingface_name(source)
        if name is None:
            yield Array(source, None, None, "skipped: the optimizer's")
            continue
        array = bundle.read(source)
        if array.dtype.kind != "f" and not is_half(array):
            raise WeightsMismatchError(f"{source} in {prefix} is of {array.dtype}, and weights are floating point.")
        note = _note(source)
        yield Array(source, name, array.T if note == _TRANSPOSED else array, note)


def write_google(folder: str | Path, config: BertConfig | dict[str, Any], arrays: dict[str, np.ndarray]) -> list[Array]:
    """Write ``bert_config.json`` and the checkpoint ``bert_model.ckpt``. The tokenizer is not written.

    Parameters
    ----------
    folder : str or Path
        It is made if it does not exist.
    config : BertConfig or dict
        The keys of a ``config.json``. All of them are written: Google's code ignores those that it does not know.
    arrays : dict of str to ndarray
        By their names in transformers, heads included. They are written as float32, the type of Google's variables.

    Returns
    -------
    list of Array
        What was written: ``source`` is the name of Google's variable, ``name`` the one in transformers without
        ``bert.`` before it, and ``array`` the array as it was given. Last what was skipped: a classifier of means.

    Raises
    ------
    WeightsMismatchError
        If Google's code has no variable for an array, or if two of the arrays have the same name but for ``bert.``.

    Warns
    -----
    KbertWarning
        If Google's code computes something else than the model: its epsilon of LayerNorm is fixed at 1e-12, and it
        knows only the activations "gelu" and "relu".
    """
    folder = Path(folder)
    values = config.to_dict() if isinstance(config, BertConfig) else config
    canonical = {canonical_name(name): array for name, array in arrays.items()}
    if len(canonical) < len(arrays):
        raise WeightsMismatchError(
            f"Of the {len(arrays)} arrays to be written some are the same one of BERT's, with and without bert. before "
            "their names. Leave one of each out."
        )
    merge_tied(canonical, "what is to be written")
    written = [
        Array(google_name(name), name, array, _note(google_name(name)))
        for name, array in canonical.items()
        if name not in BUFFERS and not name.startswith(_OF_MEANS)
    ]
    _warn_of_differences(BertConfig.from_dict(values))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIG, values)
    # Transposed arrays are views. `write_bundle` copies one of them at a time.
    variables = {
        variable: canonical[name].T if note == _TRANSPOSED else canonical[name]
        for variable, name, _, note in written
        if name is not None
    }
    write_bundle(folder / PREFIX, variables, "float32")
    why = "skipped: Google's classifier reads the first token alone"
    return written + [Array("", name, None, why) for name in canonical if name.startswith(_OF_MEANS)]


def huggingface_name(name: str) -> str | None:
    """Return the name in transformers of one of Google's variables; None for a variable of an optimizer.

    Raises
    ------
    KeyError
        If it is neither.
    """
    if name in _COUNTERS:
        return None
    kept, slots = _SLOTS.subn("", name)
    theirs, number = _numbered(_TO_HUGGINGFACE, kept, r"(?<=/layer_)(0|[1-9]\d*)(?=/)")
    return None if slots else theirs.replace("#", number)


def google_name(name: str) -> str:
    """Return the name of Google's variable for a name in transformers.

    Raises
    ------
    WeightsMismatchError
        If there is none.
    """
    try:
        google, number = _numbered(_TO_GOOGLE, canonical_name(name), r"(?<=\.layer\.)(0|[1-9]\d*)(?=\.)")
    except KeyError:
        raise WeightsMismatchError(
            f"Google's BERT has no variable for {name}, so that it cannot be written to its checkpoint. Leave it out."
        ) from None
    return google.replace("#", number)


def _numbered(names: dict[str, str], name: str, pattern: str) -> tuple[str, str]:
    """Look up a name with "#" in place of its layer number. Return what was found, and the number ("" without one)."""
    number = re.search(pattern, name)
    if "#" in name:
        raise KeyError(name)
    return names[re.sub(pattern, "#", name, count=1)], number[0] if number else ""


def _note(google: str) -> str:
    return _TRANSPOSED if google.endswith("/kernel") else COPIED


def _check_names(bundle: TensorBundle) -> None:
    if _OBJECT_GRAPH in bundle.entries:
        example = next((name for name in bundle.entries if name != _OBJECT_GRAPH), _OBJECT_GRAPH)
        raise WeightsMismatchError(
            f"{bundle.prefix} is a checkpoint of TensorFlow 2 (its arrays have names such as {example}), which says "
            "how objects hang together in the program that wrote it. kbert reads the checkpoints of "
            "google-research/bert (names such as bert/embeddings/word_embeddings). Take the original release of the "
            "same model, or its name on the Hugging Face hub, such as google-bert/bert-base-uncased."
        )
    unknown = []
    for name in bundle.entries:
        try:
            huggingface_name(name)
        except KeyError:
            unknown.append(name)
    if unknown:
        raise WeightsMismatchError(
            f"{bundle.prefix} holds {listed(unknown)}, which no BERT of google-research/bert has. If it "
            "is of another model (ALBERT, ELECTRA), kbert cannot read it; if you added variables of your own, save it "
            "without them."
        )


def _warn_of_differences(config: BertConfig) -> None:
    if config.layer_norm_eps != 1e-12:
        warn_user(
            f"Google's code has LayerNorm's epsilon fixed at 1e-12, and this model's is {config.layer_norm_eps}. kbert "
            f"reads it from the {CONFIG} that was written; Google's code will compute something else.",
            KbertWarning,
        )
    if config.hidden_act not in ("gelu", "relu"):
        warn_user(
            f"Google's code knows no activation {config.hidden_act!r} and will stop at it; kbert reads it. For "
            f"Google's code write 'gelu' in {CONFIG}: its last version computes the tanh form by it, its first the "
            "exact one.",
            KbertWarning,
        )
