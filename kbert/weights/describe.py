"""The facts about weights that ``kbert info`` prints."""

from __future__ import annotations

from pathlib import Path

from kbert.config_json import output_names
from kbert.errors import WeightsNotFoundError
from kbert.files.checksums import sha256_of
from kbert.text import WordPieceTokenizer
from kbert.weights.arrays import CLASSIFIER_BIASES, parts_of
from kbert.weights.source import Source, read_source


def describe(name: str | Path) -> dict[str, str]:
    """Describe weights: their format, architecture, parts, vocabulary, labels, licence and checksums.

    All arrays are read and checked.

    Parameters
    ----------
    name : str or Path
        A weights folder, a name of weights, or one of Keras's files; see `read_source`.

    Returns
    -------
    dict of str
        The lines that ``kbert info`` prints: titles and texts.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        If the weights are incomplete or damaged.
    """
    source = read_source(name)
    config, arrays = source.config, source.arrays
    trained = "" if config.num_trained_positions is None else f" ({config.num_trained_positions} of them trained)"
    facts = {
        "format": source.format.title,
        "architecture": f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{config.num_attention_heads} heads, feed-forward {config.intermediate_size}, "
        f"{config.max_position_embeddings} positions{trained}, {config.hidden_act}",
        "parameters": f"{sum(array.size for array in arrays.values()):,}",
        "parts": ", ".join(["encoder", *parts_of(arrays)]),
        **_tokenizer_facts(source),
    }
    for name in CLASSIFIER_BIASES:
        if name in arrays:
            facts["labels"] = _labels(source, len(arrays[name]))
    facts["licence"] = ", ".join(path.name for path in source.licence_files()) or "no licence file"
    facts["sha256"] = ", ".join(f"{sha256_of(path)} {path.name}" for path in source.format.weights(source.path))
    return facts


def _tokenizer_facts(source: Source) -> dict[str, str]:
    rows = source.config.vocab_size
    try:
        tokenizer = WordPieceTokenizer.from_pretrained(source.folder)
    except WeightsNotFoundError:
        return {"vocabulary": f"{rows:,} rows of the table, and no tokenizer"}
    pieces = f"{tokenizer.vocab_size:,} pieces"
    if tokenizer.vocab_size != rows:
        pieces += f", {rows:,} rows of the table"
    return {"vocabulary": pieces, "casing": "uncased" if tokenizer.lowercase else "cased"}


def _labels(source: Source, n_outputs: int) -> str:
    names = output_names(source.values, n_outputs)
    if names is not None:
        return ", ".join(map(str, names))
    id2label = source.values.get("id2label")
    return f"{n_outputs}, without names" + (f": id2label has {len(id2label)}" if id2label else "")
