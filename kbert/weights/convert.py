"""Weights from one format into another, array by array, with an account of each: ``kbert convert``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.config_json import output_names
from kbert.errors import InexactWarning, LabelNamesWarning, WeightsNotFoundError
from kbert.files.atomic_folder import check_new_or_empty, fill_folder
from kbert.text import WordPieceTokenizer
from kbert.text.files import SPECIAL_TOKENS, check_vocabulary, is_plain_bert
from kbert.warn import warn_user
from kbert.weights.arrays import CLASSIFIER_BIASES, COPIED, HEADS, TIED, Array
from kbert.weights.formats import FORMATS
from kbert.weights.source import Source, read_source

TARGETS = tuple(name for name, known in FORMATS.items() if known.write is not None)


class Row(NamedTuple):
    """A row of the account: what was done with an array, the tokenizer, the label names or a file.

    Attributes
    ----------
    source, target : str
        Its name in each of the two; "" where one of them does not have it.
    shape : tuple of int or None
        The shape of an array in a Hugging Face file.
    done : str
        What was done with it, or why it was skipped.
    """

    source: str
    target: str
    shape: tuple[int, ...] | None
    done: str


def convert(source: str | Path, target: str | Path, to: str) -> list[Row]:
    """Write the weights of a folder or file into a new folder of another format.

    Arrays are written as float32. The numbers stay the same bit for bit, but those of float64 are rounded, which the
    account says. The new folder appears when it is complete.

    Parameters
    ----------
    source : str or Path
        A weights folder of any format, a name of weights as `kbert.hub.resolve_folder` takes it, or a ``.keras`` or
        ``.weights.h5`` file of one of kbert's models.
    target : str or Path
        A folder that does not exist or is empty.
    to : str
        One of `TARGETS`: "hf", "kerashub", "google".

    Returns
    -------
    list of Row
        One row for each array of the source and of the target, then those of the tokenizer and the label names.

    Raises
    ------
    ValueError
        If there is no such format.
    FileExistsError
        If the target holds anything.
    WeightsNotFoundError, WeightsMismatchError
        If the source is incomplete or damaged, or the other format cannot represent it. Nothing is written then.

    Warns
    -----
    InexactWarning
        If the other library computes something slightly different from the same weights or texts.
    LabelNamesWarning
        If the label names of the source do not fit its head.
    """
    if to not in TARGETS:
        raise ValueError(f"to must be one of {', '.join(TARGETS)}, got {to!r}.")
    new_format, folder = FORMATS[to], Path(os.path.expanduser(target)).resolve()
    check_new_or_empty(folder)
    weights = read_source(source)
    tokenizer, tokenizer_row = _tokenizer(weights, to)
    if tokenizer is not None:
        check_vocabulary(tokenizer.vocab_size, weights.config.vocab_size, weights.folder, warn=False)
    config = _config(weights)
    written: list[Array] = []

    def write(path: Path) -> None:
        assert new_format.write is not None  # TARGETS has no others
        written.extend(new_format.write(path, config, weights.arrays, tokenizer))
        if tokenizer is not None and not new_format.writes_tokenizer:
            tokenizer.save(path)
        for licence in weights.licence_files():
            shutil.copy2(licence, path)

    fill_folder(folder, write, last="config.json")
    return [*_array_rows(weights, written), tokenizer_row, *_label_rows(weights, config, written, to)]


# The models of transformers, and the prefixes of the arrays of their heads. A model without a name is the first one
# whose heads the source has.
_HEADS_OF: dict[str, set[str]] = {
    "BertForPreTraining": {"cls.predictions.", "cls.seq_relationship."},
    "BertForMaskedLM": {"cls.predictions."},
    "BertForNextSentencePrediction": {"cls.seq_relationship."},
    "BertForSequenceClassification": {"classifier."},
    "BertForTokenClassification": {"classifier."},
    "BertForMultipleChoice": {"classifier."},
    "BertForQuestionAnswering": {"qa_outputs."},
    "BertModel": set(),
}


def _config(source: Source) -> dict[str, Any]:
    """Make the config.json of the same model with these arrays in float32."""
    values, arrays = source.values, source.arrays
    heads_of = dict(_HEADS_OF)
    if source.config.classifier_pooling == "mean":
        heads_of |= dict.fromkeys(("BertForSequenceClassification", "BertForMultipleChoice"), {"mean_classifier."})
    has = {prefix for prefix in HEADS if any(name.startswith(prefix) for name in arrays)}
    named = next(iter(values.get("architectures") or ()), None)
    classifiers = has & {"classifier.", "mean_classifier."} & set().union(*heads_of.values())
    possible = [name for name, heads in heads_of.items() if heads <= has and (heads & classifiers or not classifiers)]
    # The named architecture counts if its heads are there. The arrays alone do not tell the classifiers apart.
    architecture = named if named in possible else possible[0]
    classifier = next(iter(heads_of[architecture] & classifiers), None)
    has_labels = classifier is not None and architecture != "BertForMultipleChoice"
    replaced = {"torch_dtype", "id2label", "label2id", "num_labels"}
    if not has_labels:
        replaced.add("problem_type")
    labels: dict[str, Any] = {}
    if has_labels:
        n = len(arrays[f"{classifier}bias"])
        if misfit := _label_misfit(values, n):
            warn_user(
                f"id2label in the config of {source.path} has {misfit}: they become LABEL_0 to LABEL_{n - 1}. Correct "
                "id2label for names.",
                LabelNamesWarning,
            )
        # transformers takes the number of outputs from the number of names.
        names = output_names(values, n) or [f"LABEL_{i}" for i in range(n)]
        labels = {
            "id2label": {str(i): name for i, name in enumerate(names)},
            "label2id": {str(name): i for i, name in enumerate(names)},
        }
    return {
        **{key: value for key, value in values.items() if key not in replaced},
        **source.config.to_dict(),
        **labels,
        **{"model_type": "bert", "architectures": [architecture], "dtype": "float32"},
    }


def _label_misfit(values: dict[str, Any], n_outputs: int) -> str:
    """Say how the label names of a config differ from the outputs of the head; "" if they agree or there are none."""
    if not values.get("id2label") or output_names(values, n_outputs):
        return ""
    return f"{len(values['id2label'])} names that are not those of {n_outputs} outputs"


# === The account ===


def _array_rows(source: Source, written: list[Array]) -> list[Row]:
    """Return the rows of the arrays: those of the source in its order, then those that only the target has."""
    not_listed = {array.name: array for array in written if array.name is not None}
    rows = []
    for array in source.read:
        if array.source in source.skipped or array.array is None:
            shape = None if array.array is None else array.array.shape
            rows.append(Row(array.source, "", shape, source.skipped[array.source]))
            continue
        # The target has a tied array under the name that kbert uses.
        new = not_listed.pop(array.name or "", None) or not_listed.pop(TIED[array.name or ""])
        notes = [note for note in (_cast(array.array), array.note, new.note) if note != COPIED]
        rows.append(Row(array.source, new.source, array.array.shape, "; ".join(notes) or COPIED))
    rest = [array for array in written if array.name is None] + list(not_listed.values())
    return rows + [Row("", a.source, None if a.array is None else a.array.shape, a.note) for a in rest]


def _cast(array: np.ndarray) -> str:
    """Say what became of the numbers. All formats are written in float32."""
    if array.dtype == "float64":
        return "float64 rounded to float32"
    return COPIED if array.dtype == "float32" else f"{array.dtype} to float32"


def _tokenizer(source: Source, to: str) -> tuple[WordPieceTokenizer | None, Row]:
    """Read the tokenizer of the source. It is None where there is none, or where the target cannot have the same."""
    try:
        tokenizer = WordPieceTokenizer.from_pretrained(source.folder)
    except WeightsNotFoundError:
        return None, Row("tokenizer", "", None, "there is none beside the weights: copy one there")
    casing = "uncased" if tokenizer.lowercase else "cased"
    done = f"{tokenizer.vocab_size:,} pieces, {casing}"
    difference = "" if to == "hf" else _difference_from_bert(tokenizer)
    if difference and to == "kerashub":
        warn_user(f"The tokenizer is left out: KerasHub's cannot do the same ({difference}).", InexactWarning)
        return None, Row("tokenizer", "", None, f"skipped: KerasHub's cannot do the same ({difference})")
    if difference:
        warn_user(
            f"Google's code, which reads vocab.txt alone, does not split texts as this tokenizer does ({difference}). "
            "kbert reads the other files that are written, and splits them as before.",
            InexactWarning,
        )
        done += f"; Google's code does not do the same ({difference})"
    return tokenizer, Row("tokenizer", "tokenizer", None, done)


def _difference_from_bert(tokenizer: WordPieceTokenizer) -> str:
    """Say how a tokenizer differs from BERT's own, which Google's code and KerasHub have; "" if it does not."""
    spec, vocab = tokenizer.spec, tokenizer.vocab
    if not is_plain_bert(spec):
        return "its rules are not BERT's own"
    if any(vocab.get(name) is None for name in SPECIAL_TOKENS.values()):
        return f"its special tokens are not {', '.join(SPECIAL_TOKENS.values())}"
    if list(vocab.values()) != list(range(len(vocab))) or any(piece != piece.rstrip() or not piece for piece in vocab):
        return "its vocabulary cannot be written a piece a line"
    return ""


def _label_rows(source: Source, config: dict[str, Any], written: list[Array], to: str) -> list[Row]:
    """Return the rows of the label names, and of what only kbert's own files say."""
    rows = []
    names = config.get("id2label")
    if names and (misfit := _label_misfit(source.values, len(names))):
        rows.append(Row("id2label", "", None, f"skipped: {misfit}"))
    if names and source.path.is_file():
        rows.append(Row("", "", None, "a Keras file tells neither label names nor problem_type: see config.json"))
    if names and not any(array.name in CLASSIFIER_BIASES and array.source for array in written):
        rows.append(Row("id2label", "", None, "skipped: names of the outputs of a classifier that is skipped"))
    elif names:
        file = {"google": "bert_config.json", "kerashub": "config.json: kbert"}.get(to, "config.json")
        rows.append(Row("id2label", file, None, ", ".join(map(str, names.values()))))
    if (source.path / "kbert.json").is_file():
        done = "skipped: types of labels, thresholds and parameters of the estimator; they are kbert's own"
        rows.append(Row("kbert.json", "", None, done))
    return rows
