"""Weights from one format into another, array by array, with an account of each; and facts about a weights folder."""

from __future__ import annotations

import hashlib
import shutil
import uuid
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kbert.config import BertConfig
from kbert.errors import InexactWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.text import WordPieceTokenizer
from kbert.text.files import SPECIAL_TOKENS, is_plain_bert
from kbert.weights.arrays import COPIED, HEADS, Array, check_arrays, parts_of
from kbert.weights.formats import FORMATS, format_of

TARGETS = tuple(name for name, known in FORMATS.items() if known.write is not None)


class Row(NamedTuple):
    """What became of one array, or of a file beside the arrays: "" where it is in one of the two only."""

    source: str
    target: str
    shape: tuple[int, ...] | None
    done: str


def convert(source: str | Path, target: str | Path, to: str) -> list[Row]:
    """Write the weights of a folder or file into a new folder of another format.

    Arrays are written as float32, bit for bit. The new folder is made aside, and put in its place when it is complete.

    Parameters
    ----------
    source : str or Path
        A weights folder of any format, or a ``.keras`` or ``.weights.h5`` file of a model of kbert.
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
    FileExistsError
        If the target holds anything.
    WeightsNotFoundError, WeightsMismatchError
        If the source is not complete, is damaged, or cannot be said in the other format. Nothing is written then.
    """
    source, target = Path(source), Path(target).expanduser().resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists already, and is left as it is. Give a new folder.")
    form, new_form = format_of(source), FORMATS[to]
    values = form.config(source)
    read = form.read(source)
    arrays, skipped = checked(read, BertConfig.from_dict(values), source)
    tokenizer, tokenizer_row = _tokenizer(source, to)
    config = _config(values, arrays)

    aside = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}"
    try:
        aside.mkdir(parents=True)
        written = new_form.write(aside, config, arrays, tokenizer)
        if tokenizer is not None and not new_form.writes_tokenizer:
            tokenizer.save(aside)
        for licence in licence_files(source):
            shutil.copy2(licence, aside)
        if target.is_dir():
            target.rmdir()
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return _rows(read, skipped, written) + [tokenizer_row, *_label_rows(config, source, to)]


def checked(read: list[Array], config: BertConfig, place: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays that BERT has, as float32 by name, and why the others are passed over.

    Raises
    ------
    WeightsMismatchError
        If one is missing, unknown, of another shape or not finite; if two differ that BERT has as one.
    """
    from kbert.weights.huggingface import _TIED, BUFFERS, untwin

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
    for name, kept in _TIED.items():
        if name in found and kept in found:
            skipped[found[name].source] = f"skipped: {kept} once more"
    arrays = {name: np.asarray(array, "float32") for name, array in arrays.items()}
    check_arrays(arrays, config, place)
    return arrays, skipped


def _config(values: dict, arrays: dict[str, np.ndarray]) -> dict:
    """The config.json of the same model with these arrays in float32."""
    architecture = (values.get("architectures") or [None])[0]
    if architecture is None:
        has = {prefix for prefix in HEADS if any(name.startswith(prefix) for name in arrays)}
        architecture = (
            "BertForPreTraining" if {"cls.predictions.", "cls.seq_relationship."} <= has
            else "BertForMaskedLM" if "cls.predictions." in has
            else "BertForNextSentencePrediction" if "cls.seq_relationship." in has
            else "BertForSequenceClassification" if "classifier." in has
            else "BertForQuestionAnswering" if "qa_outputs." in has
            else "BertModel"
        )  # fmt: skip
    others = {key: value for key, value in values.items() if key != "torch_dtype"}
    known = BertConfig.from_dict(values).to_dict()
    labels = {}
    if "classifier.bias" in arrays and not values.get("id2label") and architecture != "BertForMultipleChoice":
        # transformers knows the number of outputs from the names alone.
        names = {str(i): f"LABEL_{i}" for i in range(len(arrays["classifier.bias"]))}
        labels = {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}
    fixed = {"model_type": "bert", "architectures": [architecture], "dtype": "float32"}
    return {**others, **known, **labels, **fixed}


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
        new = there.pop(array.name, None) or there.pop(_kept_name(array.name), None)
        notes = [note for note in (array.note, new.note) if note != COPIED]
        rows.append(Row(array.source, new.source, array.array.shape, "; ".join(notes) or COPIED))
    rows += [Row("", a.source, a.array.shape, a.note) for a in written if a.name is None]
    return rows + [Row("", a.source, a.array.shape, a.note) for a in there.values()]


def _kept_name(name: str) -> str:
    from kbert.weights.huggingface import _TIED

    return _TIED.get(name, name)


# === Beside the arrays ===


def _tokenizer(source: Path, to: str) -> tuple[WordPieceTokenizer | None, Row]:
    folder = source if source.is_dir() else source.parent
    try:
        tokenizer = WordPieceTokenizer.from_pretrained(folder)
    except WeightsNotFoundError:
        return None, Row("tokenizer", "", None, "there is none beside the weights: copy one there")
    if to == "kerashub" and (why := _not_in_kerashub(tokenizer)):
        warnings.warn(
            f"The tokenizer is left out: KerasHub's cannot do the same ({why}).", InexactWarning, stacklevel=3
        )
        return None, Row("tokenizer", "", None, f"skipped: KerasHub's cannot do the same ({why})")
    casing = "uncased" if tokenizer.lowercase else "cased"
    return tokenizer, Row("tokenizer", "tokenizer", None, f"{tokenizer.vocab_size:,} pieces, {casing}")


def _not_in_kerashub(tokenizer: WordPieceTokenizer) -> str:
    """Why ``keras_hub.models.BertTokenizer`` cannot do the same; nothing if it can."""
    spec, vocab = tokenizer.spec, tokenizer.vocab
    if not is_plain_bert(spec):
        return "its rules are not BERT's own"
    if any(vocab.get(name) is None for name in SPECIAL_TOKENS.values()):
        return f"its special tokens are not {', '.join(SPECIAL_TOKENS.values())}"
    if list(vocab.values()) != list(range(len(vocab))) or any(piece != piece.rstrip() or not piece for piece in vocab):
        return "its vocabulary cannot be written a piece a line"
    return ""


def _label_rows(config: dict, source: Path, to: str) -> list[Row]:
    rows = []
    names = config.get("id2label")
    if names:
        where = {"google": "bert_config.json", "kerashub": "config.json: kbert"}.get(to, "config.json")
        rows.append(Row("id2label", where, None, ", ".join(map(str, names.values()))))
    if source.is_dir() and (source / "kbert.json").is_file():
        why = "skipped: types of labels, thresholds and parameters of the estimator; they are kbert's own"
        rows.append(Row("kbert.json", "", None, why))
    return rows


def licence_files(place: Path) -> list[Path]:
    """The licence files of a weights folder."""
    if not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if path.is_file() and path.stem.upper() in ("LICENSE", "LICENCE"))


# === What is told of weights ===


def describe(place: str | Path) -> dict[str, str]:
    """What `kbert info` says of a weights folder or a file of Keras's: titles and texts.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        If it is not complete, or is damaged.
    """
    place = Path(place)
    form = format_of(place)
    values = form.config(place)
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
    names = values.get("id2label")
    if "classifier.bias" in arrays:
        n = len(arrays["classifier.bias"])
        facts["labels"] = ", ".join(map(str, names.values())) if names else f"{n}, without names"
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
