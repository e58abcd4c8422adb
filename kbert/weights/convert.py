"""Weights from one format into another, array by array, with an account of each; and facts about a weights folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbert.atomic_folder import check_new_or_empty, fill_folder
from kbert.config import BertConfig
from kbert.config_json import output_names
from kbert.errors import InexactWarning, LabelNamesWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.hub import resolve_folder
from kbert.hub.weight_files import is_licence
from kbert.text import WordPieceTokenizer
from kbert.text.files import SPECIAL_TOKENS, check_vocabulary, is_plain_bert
from kbert.weights.arrays import (
    BUFFERS,
    COPIED,
    HEADS,
    TIED,
    Array,
    as_float32,
    check_arrays,
    parts_of,
    untwin,
)
from kbert.weights.formats import FORMATS, Format, format_of

TARGETS = tuple(name for name, known in FORMATS.items() if known.write is not None)


class Row(NamedTuple):
    """What became of one array, or of a file beside the arrays: "" where it is in one of the two only."""

    source: str
    target: str
    shape: tuple[int, ...] | None
    done: str


def convert(source: str | Path, target: str | Path, to: str) -> list[Row]:
    """Write the weights of a folder or file into a new folder of another format.

    Arrays are written as float32, the same numbers bit for bit, but for those of float64, which are rounded and said
    to be. The new folder is made aside, and put in its place when it is complete.

    Parameters
    ----------
    source : str or Path
        A weights folder of any format, a name of weights as `kbert.hub.resolve_folder` takes it, or a ``.keras`` or
        ``.weights.h5`` file of a model of kbert.
    target : str or Path
        A folder that is not there yet, or is empty.
    to : str
        One of `TARGETS`: "hf", "kerashub", "google".

    Returns
    -------
    list of Row
        One for each array of the source and of the target, then those of the tokenizer and the label names.

    Raises
    ------
    ValueError
        If there is no such format.
    FileExistsError
        If the target holds anything.
    WeightsNotFoundError, WeightsMismatchError
        If the source is not complete, is damaged, or cannot be said in the other format. Nothing is written then.
    """
    if to not in TARGETS:
        raise ValueError(f"to must be one of {', '.join(TARGETS)}, got {to!r}.")
    source, target = _resolved(source), Path(os.path.expanduser(target)).resolve()
    check_new_or_empty(target)
    form, new_form = format_of(source), FORMATS[to]
    values = _values(form, source)
    read = form.read(source)
    arrays, skipped = checked(read, BertConfig.from_dict(values), source)
    tokenizer, tokenizer_row = _tokenizer(source, to)
    if tokenizer is not None:
        check_vocabulary(tokenizer.vocab_size, BertConfig.from_dict(values).vocab_size, source)
    config = _config(values, arrays, source)

    written: list[Array] = []

    def write(folder: Path) -> None:
        written.extend(new_form.write(folder, config, arrays, tokenizer))
        if tokenizer is not None and not new_form.writes_tokenizer:
            tokenizer.save(folder)
        for licence in licence_files(source):
            shutil.copy2(licence, folder)

    fill_folder(target, write, last="config.json")
    return _rows(read, skipped, written) + [tokenizer_row, *_label_rows(values, config, written, source, to)]


def _resolved(place: str | Path) -> Path:
    """The folder or the file of Keras's that is meant."""
    path = Path(os.path.expanduser(place))
    if not path.is_file() or not FORMATS["keras"].found(path):
        return resolve_folder(place)
    if FORMATS["kerashub"].found(path.parent):
        raise WeightsNotFoundError(f"{path} is a file of a KerasHub preset. Give the folder: {str(path.parent)!r}.")
    return path


def _values(form: Format, place: Path) -> dict:
    """The keys of a config.json, once those beside the architecture were found to be of the right kind."""
    values = form.config(place)
    named, labels = values.get("architectures") or [], values.get("id2label") or {}
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise WeightsMismatchError(
            f'architectures in the config of {place} is {named!r}, and should be a list such as ["BertModel"].'
        )
    if not isinstance(labels, dict):
        raise WeightsMismatchError(
            f'id2label in the config of {place} is no JSON object, such as {{"0": "negative", "1": "positive"}}. '
            "Correct it, or leave it out."
        )
    return values


def checked(read: list[Array], config: BertConfig, place: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays that BERT has, as float32 by name, and why the others are passed over.

    Raises
    ------
    WeightsMismatchError
        If one is missing, unknown, of another shape, quantised or not finite; if two differ that BERT has as one.
    """
    found: dict[str, Array] = {}
    skipped: dict[str, str] = {}
    for array in read:
        if array.name is None:
            skipped[array.source] = array.note
        elif array.name in BUFFERS:
            skipped[array.source] = "skipped: counts positions, no weight"
        elif array.name in found:
            raise WeightsMismatchError(f"{place} holds {array.name} twice: {found[array.name].source}, {array.source}.")
        else:
            found[array.name] = array
    arrays = {name: array.array for name, array in found.items()}
    untwin(arrays, place)
    for name, kept in TIED.items():
        if name in found and kept in found:
            skipped[found[name].source] = f"skipped: {kept} once more"
    check_arrays(arrays, config, place)
    return {name: as_float32(array, name, place) for name, array in arrays.items()}, skipped


# The models of transformers and their heads. Where none is named, it is the first whose heads are there.
_HEADS_OF = {
    "BertForPreTraining": {"cls.predictions.", "cls.seq_relationship."},
    "BertForMaskedLM": {"cls.predictions."},
    "BertForNextSentencePrediction": {"cls.seq_relationship."},
    "BertForSequenceClassification": {"classifier."},
    "BertForTokenClassification": {"classifier."},
    "BertForMultipleChoice": {"classifier."},
    "BertForQuestionAnswering": {"qa_outputs."},
    "BertModel": set(),
}


def _config(values: dict, arrays: dict[str, np.ndarray], source: Path) -> dict:
    """The config.json of the same model with these arrays in float32."""
    has = {prefix for prefix in HEADS if any(name.startswith(prefix) for name in arrays)}
    named = next(iter(values.get("architectures") or ()), None)
    # What is named is believed where its head is there; a head alone does not tell sentences, tokens and options apart.
    if named in _HEADS_OF and _HEADS_OF[named] <= has:
        architecture = named
    else:
        architecture = next(name for name, heads in _HEADS_OF.items() if heads <= has)
    stale = {"torch_dtype", "id2label", "label2id", "num_labels"}
    has_labels = "classifier." in has and architecture != "BertForMultipleChoice"
    if not has_labels:
        stale.add("problem_type")
    others = {key: value for key, value in values.items() if key not in stale}
    known = BertConfig.from_dict(values).to_dict()
    labels = {}
    if has_labels:
        n = len(arrays["classifier.bias"])
        if why := _misfit(values, n):
            warnings.warn(
                f"id2label in the config of {source} has {why}: they become LABEL_0 to LABEL_{n - 1}. Correct id2label "
                "for names.",
                LabelNamesWarning,
                stacklevel=3,
            )
        # transformers knows the number of outputs from the names alone.
        numbered = dict(enumerate(output_names(values, n) or [f"LABEL_{i}" for i in range(n)]))
        labels = {
            "id2label": {str(i): name for i, name in numbered.items()},
            "label2id": {str(name): i for i, name in numbered.items()},
        }
    fixed = {"model_type": "bert", "architectures": [architecture], "dtype": "float32"}
    return {**others, **known, **labels, **fixed}


def _misfit(values: dict, n_outputs: int) -> str:
    """Why the label names of a config are not those of a head; nothing if they are, or there are none."""
    if not values.get("id2label") or output_names(values, n_outputs):
        return ""
    return f"{len(values['id2label'])} names that are not those of {n_outputs} outputs"


def _rows(read: list[Array], skipped: dict[str, str], written: list[Array]) -> list[Row]:
    """The account of the arrays, in the order of the source, then what the target has besides."""
    there = {array.name: array for array in written if array.name is not None}
    rows = []
    for array in read:
        if array.source in skipped:
            shape = None if array.array is None else array.array.shape
            rows.append(Row(array.source, "", shape, skipped[array.source]))
            continue
        # An array of which the source has two under a name of the other.
        new = there.pop(array.name, None) or there.pop(TIED.get(array.name), None)
        notes = [note for note in (_cast(array.array), array.note, new.note) if note != COPIED]
        rows.append(Row(array.source, new.source, array.array.shape, "; ".join(notes) or COPIED))
    rows += [Row("", a.source, a.array.shape, a.note) for a in written if a.name is None]
    return rows + [Row("", a.source, a.array.shape, a.note) for a in there.values()]


def _cast(array: np.ndarray) -> str:
    """What becomes of the numbers, which all formats are given in float32."""
    if array.dtype == "float64":
        return "float64 rounded to float32"
    return COPIED if array.dtype == "float32" else f"{array.dtype} to float32"


# === Beside the arrays ===


def _tokenizer(source: Path, to: str) -> tuple[WordPieceTokenizer | None, Row]:
    folder = source if source.is_dir() else source.parent
    try:
        tokenizer = WordPieceTokenizer.from_pretrained(folder)
    except WeightsNotFoundError:
        return None, Row("tokenizer", "", None, "there is none beside the weights: copy one there")
    casing = "uncased" if tokenizer.lowercase else "cased"
    written = f"{tokenizer.vocab_size:,} pieces, {casing}"
    why = "" if to == "hf" else _not_elsewhere(tokenizer)
    if why and to == "kerashub":
        warnings.warn(
            f"The tokenizer is left out: KerasHub's cannot do the same ({why}).", InexactWarning, stacklevel=3
        )
        return None, Row("tokenizer", "", None, f"skipped: KerasHub's cannot do the same ({why})")
    if why:
        warnings.warn(
            f"Google's code, which reads vocab.txt alone, does not split texts as this tokenizer does ({why}). kbert "
            "reads the other files that are written, and splits them as before.",
            InexactWarning,
            stacklevel=3,
        )
        written += f"; Google's code does not do the same ({why})"
    return tokenizer, Row("tokenizer", "tokenizer", None, written)


def _not_elsewhere(tokenizer: WordPieceTokenizer) -> str:
    """Why BERT's own tokenizer, as Google's code and KerasHub have it, cannot do the same; nothing if it can."""
    spec, vocab = tokenizer.spec, tokenizer.vocab
    if not is_plain_bert(spec):
        return "its rules are not BERT's own"
    if any(vocab.get(name) is None for name in SPECIAL_TOKENS.values()):
        return f"its special tokens are not {', '.join(SPECIAL_TOKENS.values())}"
    if list(vocab.values()) != list(range(len(vocab))) or any(piece != piece.rstrip() or not piece for piece in vocab):
        return "its vocabulary cannot be written a piece a line"
    return ""


def _label_rows(values: dict, config: dict, written: list[Array], source: Path, to: str) -> list[Row]:
    rows = []
    names = config.get("id2label")
    if names and (why := _misfit(values, len(names))):
        rows.append(Row("id2label", "", None, f"skipped: {why}"))
    if names and source.is_file():
        rows.append(Row("", "", None, "a Keras file tells neither label names nor problem_type: see config.json"))
    if names and not any(array.name == "classifier.bias" and array.source for array in written):
        rows.append(Row("id2label", "", None, "skipped: names of the outputs of a classifier that is skipped"))
    elif names:
        where = {"google": "bert_config.json", "kerashub": "config.json: kbert"}.get(to, "config.json")
        rows.append(Row("id2label", where, None, ", ".join(map(str, names.values()))))
    if source.is_dir() and (source / "kbert.json").is_file():
        why = "skipped: types of labels, thresholds and parameters of the estimator; they are kbert's own"
        rows.append(Row("kbert.json", "", None, why))
    return rows


def licence_files(place: Path) -> list[Path]:
    """The licence files of a weights folder, or beside a file of Keras's."""
    folder = place if place.is_dir() else place.parent
    return sorted(path for path in folder.iterdir() if path.is_file() and is_licence(path.name))


# === What is told of weights ===


def describe(place: str | Path) -> dict[str, str]:
    """What `kbert info` says of a weights folder, a name of weights or a file of Keras's: titles and texts.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        If it is not complete, or is damaged.
    """
    place = _resolved(place)
    form = format_of(place)
    values = _values(form, place)
    config = BertConfig.from_dict(values)
    arrays, _ = checked(form.read(place), config, place)
    facts = {
        "format": form.title,
        "architecture": f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{config.num_attention_heads} heads, feed-forward {config.intermediate_size}, "
        f"{config.max_position_embeddings} positions, {config.hidden_act}",
        "parameters": f"{sum(array.size for array in arrays.values()):,}",
        "parts": ", ".join(["encoder", *parts_of(arrays)]),
        **_tokenizer_facts(place, config),
    }
    if "classifier.bias" in arrays:
        n = len(arrays["classifier.bias"])
        names = output_names(values, n)
        without = "without names" + (f": id2label has {len(values['id2label'])}" if values.get("id2label") else "")
        facts["labels"] = f"{n}, {without}" if names is None else ", ".join(map(str, names))
    facts["licence"] = ", ".join(path.name for path in licence_files(place)) or "no licence file"
    facts["sha256"] = ", ".join(f"{_sha256(path)} {path.name}" for path in form.weights(place))
    return facts


def _tokenizer_facts(place: Path, config: BertConfig) -> dict[str, str]:
    try:
        tokenizer = WordPieceTokenizer.from_pretrained(place if place.is_dir() else place.parent)
    except WeightsNotFoundError:
        return {"vocabulary": f"{config.vocab_size:,} rows of the table, and no tokenizer"}
    n = tokenizer.vocab_size
    rows = "" if n == config.vocab_size else f", {config.vocab_size:,} rows of the table"
    return {"vocabulary": f"{n:,} pieces{rows}", "casing": "uncased" if tokenizer.lowercase else "cased"}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
