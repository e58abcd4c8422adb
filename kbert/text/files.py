"""The files of a tokenizer: tokenizer.json, vocab.txt and the settings beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kbert.errors import VocabularyWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import json_object, json_text, replace_texts, unique_keys
from kbert.kerashub_json import is_preset, tokenizer_of_preset
from kbert.text.limits import MOST_BYTES_OF_JSON, MOST_BYTES_OF_LINES, MOST_PIECES, MOST_VALUES, check_limits
from kbert.warn import warn_user

# The content of a tokenizer.json, as `json.load` gives it.
TokenizerSpec: TypeAlias = dict[str, Any]
# The names of the special tokens, with the keys of SPECIAL_TOKENS. The mask alone may be None.
SpecialTokens: TypeAlias = Mapping[str, str | None]

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
# Longer words are [UNK], in characters. This is the Hugging Face default; Google's own code has 200.
LONGEST_WORD = 100
# Tokenizer classes of transformers that a vocabulary and three settings determine.
_CLASSES_OF_SETTINGS = (
    *("BertTokenizer", "BertTokenizerFast"),
    *("DistilBertTokenizer", "DistilBertTokenizerFast", "ElectraTokenizer", "ElectraTokenizerFast"),
)
# Those that may have a vocab.txt alone. Others, such as the Japanese ones, find words in their own way.
_PLAIN_CLASSES = (
    *_CLASSES_OF_SETTINGS,
    *("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"),
)
# Keys of tokenizer_config.json, and the same settings in a tokenizer.json.
_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# A marker in a vocabulary: no word of a text.
_MARKER = re.compile(r"<\w+>|\[\w+\]")
_REMEDY = "Copy or download the folder again, or save the tokenizer anew."


class TokenizerFiles(NamedTuple):
    """The content of a tokenizer's files.

    Attributes
    ----------
    path : Path
        The file with the vocabulary, for messages.
    spec : dict
        The content of a ``tokenizer.json``.
    special_tokens : dict of str
        The names of the special tokens, with the keys of `SPECIAL_TOKENS`.
    model_max_length : int or None
        The longest sequence of the model in tokens, if it is known.
    """

    path: Path
    spec: TokenizerSpec
    special_tokens: SpecialTokens
    model_max_length: int | None


def read_tokenizer(folder: Path) -> TokenizerFiles:
    """Read ``tokenizer.json``, that of a KerasHub preset too, or ``vocab.txt`` where there is none.

    Raises
    ------
    WeightsNotFoundError
        If the folder has neither.
    WeightsMismatchError
        If a file is malformed.
    """
    config = _read_settings(folder)
    names = _read_json(folder / "special_tokens_map.json") | config
    special_tokens: dict[str, str] = {
        role: _name(names.get(f"{role}_token")) or name for role, name in SPECIAL_TOKENS.items()
    }
    # transformers writes 1e30 if there is no limit.
    limit = config.get("model_max_length")
    limit = int(limit) if isinstance(limit, int | float) and 0 < limit < 1e9 else None

    path = folder / "tokenizer.json"
    spec = _read_json(path)
    if is_preset(spec):
        settings = tokenizer_of_preset(spec, folder)
        path, special_tokens["unk"] = settings.path, settings.oov_token
        vocab = _read_vocab(path, special_tokens)
        spec = bert_spec(vocab, settings.oov_token, settings.lowercase, settings.strip_accents, settings.split_on_cjk)
    elif path.is_file():
        vocab = _wordpiece_vocab(spec, path)
        check_limits(spec, path, _REMEDY)
        _apply_settings(spec, config)
        special_tokens["unk"] = spec["model"].get("unk_token", "[UNK]")
    elif (path := folder / "vocab.txt").is_file():
        vocab = _read_vocab(path, special_tokens)
        _refuse_other_classes(config, folder)
        lowercase = config.get("do_lower_case")
        if lowercase is None:
            specials = set(special_tokens.values())
            # Not isupper: Google's uncased vocabulary has U+211D, the capital R of the real numbers, which has no lower
            # case. Its Chinese one, which is of lower case, has the markers <S> and <T>.
            pieces = (piece for piece in vocab if piece not in specials and not _MARKER.fullmatch(piece))
            lowercase = all(piece == piece.lower() for piece in pieces)
        chinese = config.get("tokenize_chinese_chars")
        spec = bert_spec(
            vocab, special_tokens["unk"], bool(lowercase), config.get("strip_accents"), chinese is None or bool(chinese)
        )
        spec["added_tokens"] = _tokens_beside(folder, names, vocab, set(special_tokens.values()))
    else:
        raise WeightsNotFoundError(
            f"There is neither a tokenizer.json nor a vocab.txt in {folder}. Copy one of them there from where the "
            "weights come from, or give another folder."
        )
    return TokenizerFiles(path, spec, _checked_special_tokens(special_tokens, spec, vocab, path), limit)


def write_tokenizer(
    folder: Path, spec: TokenizerSpec, special_tokens: SpecialTokens, lowercase: bool, model_max_length: int | None
) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and, if it can hold the vocabulary, ``vocab.txt``.

    All are written before any takes the place of an earlier one, so that a full disk leaves the earlier ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # One piece in each line. Not by ``indent``, with which json takes a tenth of a second for 30,000 pieces.
    lines = json.dumps(spec, ensure_ascii=False, separators=(",\n", ": "))
    texts = {"tokenizer.json": lines + "\n"}

    normalizer = spec["normalizer"] or {}
    config = {
        # transformers 5 builds its BertTokenizer from the vocabulary and the settings below. It reads the rest of
        # tokenizer.json for the general class only.
        "tokenizer_class": "BertTokenizer" if is_plain_bert(spec) else "PreTrainedTokenizerFast",
        "do_lower_case": lowercase,
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", False),
        # Without this the general class gives no segment ids.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **{f"{role}_token": name for role, name in special_tokens.items() if name is not None},
    }
    if model_max_length is not None:
        config["model_max_length"] = model_max_length
    texts["tokenizer_config.json"] = json_text(config)

    pieces = list(spec["model"]["vocab"])  # in the order of their ids
    text = "".join(f"{piece}\n" for piece in pieces)
    if list(spec["model"]["vocab"].values()) == list(range(len(pieces))) and text.splitlines() == pieces:
        texts["vocab.txt"] = text
    replace_texts(folder, texts)
    if "vocab.txt" not in texts:
        (folder / "vocab.txt").unlink(missing_ok=True)  # of an earlier save, it would contradict tokenizer.json


def bert_spec(
    vocab: dict[str, int], unk_token: str, lowercase: bool, strip_accents: bool | None, tokenize_chinese_chars: bool
) -> TokenizerSpec:
    """The ``tokenizer.json`` of BERT's own tokenizer with a given vocabulary."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenize_chinese_chars,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unk_token,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": vocab,
        },
    }


def is_plain_bert(spec: TokenizerSpec) -> bool:
    """Whether a ``tokenizer.json`` has nothing but a vocabulary and the settings of ``tokenizer_config.json``."""
    model, normalizer = spec["model"], spec["normalizer"] or {}
    plain = bert_spec(
        model["vocab"],
        model["unk_token"],
        normalizer.get("lowercase", True),
        normalizer.get("strip_accents"),
        normalizer.get("handle_chinese_chars", True),
    )
    return all(spec[part] == plain[part] for part in ("normalizer", "pre_tokenizer", "model")) and all(
        token["content"] in model["vocab"] for token in spec["added_tokens"]
    )


def check_vocabulary(n_pieces: int, n_rows: int, folder: str | Path, warn: bool = True) -> None:
    """Check that a tokenizer fits an embedding table.

    It must not have ids beyond the table, for which accelerators give no error. It may have fewer entries than the
    table has rows where the table was padded to a multiple of 8, 64 or 128.

    Parameters
    ----------
    n_pieces : int
        The tokenizer's ``vocab_size``.
    n_rows : int
        Rows of the embedding table: the config's ``vocab_size``.
    folder : str or Path
        Where the tokenizer comes from.
    warn : bool
        False where nothing is tokenised.

    Raises
    ------
    WeightsMismatchError
        If it has more entries than the table; or fewer, in a folder that has a vocab.txt alone: it may have been cut,
        and words would then be split into other pieces.

    Warns
    -----
    VocabularyWarning
        If it has fewer entries in a tokenizer.json, which cannot be cut unnoticed: some models have rows to spare. Of a
        vocab.txt, if the table has the next multiple of 8, 64 or 128: it may be padded to that. Of a KerasHub preset,
        whatever the table has: a preset may have been made of a model with rows to spare.
    """
    padded = any(n_rows == -(-n_pieces // multiple) * multiple for multiple in (8, 64, 128))
    spec = _read_json(Path(folder) / "tokenizer.json") if n_pieces < n_rows else {}
    if n_pieces < n_rows and (not padded or not spec or is_preset(spec)):
        counts = (
            f"The vocabulary in {folder} has {n_pieces} entries, and the embedding table of its config.json has "
            f"{n_rows} rows."
        )
        if not spec and not padded:
            raise WeightsMismatchError(
                f"{counts} The file was cut, or belongs to another model: copy or download it again. If the model has "
                "rows to spare, give each a line in vocab.txt: [unused0], [unused1] and so on."
            )
        if warn:
            warn_user(
                f"{counts} If the model has no rows to spare, the tokenizer belongs to another model, or its file was "
                "cut: copy or download the right one.",
                VocabularyWarning,
            )
    if n_pieces > n_rows:
        raise WeightsMismatchError(
            f"The vocabulary in {folder} has {n_pieces} entries, and the embedding table of its config.json has "
            f"{n_rows} rows. The tokenizer belongs to another model: put the right tokenizer.json or vocab.txt there."
        )


def _wordpiece_vocab(spec: TokenizerSpec, path: Path) -> dict[str, int]:
    """The vocabulary of a ``tokenizer.json``. Raises WeightsMismatchError if this is no WordPiece tokenizer."""
    model = spec.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise WeightsMismatchError(f"{path} holds no tokenizer: it has no model with a vocabulary. {_REMEDY}")
    if not isinstance(unknown := model.get("unk_token", "[UNK]"), str):
        raise WeightsMismatchError(f"{path}: model.unk_token is {unknown!r:.40}, and it must be a string. {_REMEDY}")
    # Old files do not name the type.
    kind = model.get("type") or ("WordPiece" if "max_input_chars_per_word" in model else "BPE")
    if kind != "WordPiece" or not isinstance(model["vocab"], dict):
        raise WeightsMismatchError(
            f"{path} holds a tokenizer of type {kind}, and BERT's is WordPiece. Give the folder of a BERT model."
        )
    model["type"] = kind
    vocab: dict[str, int] = model["vocab"]
    return vocab


def _tokens_beside(
    folder: Path, settings: dict[str, Any], vocab: dict[str, int], special_tokens: set[str]
) -> list[dict[str, Any]]:
    """The tokens that were added to a ``vocab.txt``, as a ``tokenizer.json`` lists them.

    transformers has them in added_tokens.json, name -> id, and since 4.34 in the added_tokens_decoder of
    tokenizer_config.json, id -> token. A special one is found before a text is made lower case, others after it.
    """
    extra = settings.get("additional_special_tokens")
    special = set(map(_name, extra if isinstance(extra, list) else []))
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    tokens: dict[str, dict[str, Any]] = {}
    for name, id_ in _read_json(folder / "added_tokens.json").items():
        tokens[name] = plain | {"id": id_, "normalized": name not in special, "special": name in special}
    decoder = settings.get("added_tokens_decoder")
    for key, token in decoder.items() if isinstance(decoder, dict) else []:
        content = _name(token) if isinstance(token, dict) else None
        if content is not None and re.fullmatch(r"[0-9]{1,9}", key):
            tokens[content] = {flag: bool(token.get(flag, value)) for flag, value in plain.items()} | {"id": int(key)}

    found = [{"content": name, **token} for name, token in tokens.items() if name not in special_tokens & vocab.keys()]
    new = [token["id"] for token in found if token["content"] not in vocab]
    if any(type(id_) is not int for id_ in new) or sorted(new) != list(range(len(vocab), len(vocab) + len(new))):
        raise WeightsMismatchError(
            f"{folder} has added tokens whose ids do not go on where its vocab.txt ends, at {len(vocab)}. The two "
            f"belong to different models, or one was cut. {_REMEDY}"
        )
    for token in found:
        if (id_ := vocab.get(token["content"], token["id"])) != token["id"]:
            raise WeightsMismatchError(
                f"{folder}: the added token {token['content']!r} has the id {token['id']!r:.40}, and the id {id_} in "
                f"vocab.txt. {_REMEDY}"
            )
    return sorted(found, key=lambda token: int(token["id"]))


def _apply_settings(spec: TokenizerSpec, config: dict[str, Any]) -> None:
    """Let the settings that tokenizer_config.json names override those of tokenizer.json, for BERT's classes."""
    normalizer = spec.get("normalizer")
    if config.get("tokenizer_class") not in (None, *_CLASSES_OF_SETTINGS) or not isinstance(normalizer, dict):
        return
    if normalizer.get("type") == "BertNormalizer":
        # A null says of accents that they are stripped where texts are made lower case, and of the others nothing.
        normalizer |= {
            name: config[key]
            for key, name in _SETTINGS.items()
            if key in config and (config[key] is not None or key == "strip_accents")
        }


def _read_settings(folder: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json. Raises where a setting is not true or false."""
    path = folder / "tokenizer_config.json"
    config = _read_json(path)
    for key in _SETTINGS:
        if not isinstance(config.get(key), bool | None):
            raise WeightsMismatchError(f"{path}: {key} is {config[key]!r:.40}, and should be true or false. {_REMEDY}")
    return config


def _refuse_other_classes(config: dict[str, Any], folder: Path) -> None:
    """Raise if a vocab.txt belongs to a tokenizer that splits texts into words in another way than BERT's."""
    kind = config.get("tokenizer_class") or _read_json(folder / "config.json").get("tokenizer_class")
    words = config.get("word_tokenizer_type") or "basic"
    if (isinstance(kind, str) and kind not in _PLAIN_CLASSES) or words != "basic":
        raise WeightsMismatchError(
            f"The vocab.txt in {folder} is that of a {kind or words}, which finds words in "
            "another way than BERT's tokenizer, and there is no tokenizer.json that says how. If the two are alike, "
            'give tokenizer_config.json the tokenizer_class "BertTokenizer".'
        )


def _checked_special_tokens(
    special_tokens: dict[str, str], spec: TokenizerSpec, vocab: dict[str, int], path: Path
) -> SpecialTokens:
    """The special tokens. Raises unless each of them has one id of its own; only the mask may be missing: None."""
    added = [token for token in spec.get("added_tokens") or [] if isinstance(token, dict)]
    owners: dict[Any, str] = {}
    checked: dict[str, str | None] = dict(special_tokens)
    for role, name in special_tokens.items():
        found = [token.get("id") for token in added if token.get("content") == name]
        if name in vocab:
            found.append(vocab[name])
        ids: set[Any] = {number if type(number) is int else repr(number) for number in found}
        if role == "mask" and not ids:
            checked["mask"] = None
        elif not ids or (role == "unk" and name not in vocab):
            raise WeightsMismatchError(
                f"{path} lacks the special token {name!r} ({role}). If the vocabulary calls it otherwise, name it as "
                f'"{role}_token" in tokenizer_config.json in the same folder.'
            )
        elif len(ids) > 1 or owners.setdefault(min(ids, key=str), name) != name:
            raise WeightsMismatchError(
                f"{path}: the special token {name!r} has no id of its own ({', '.join(sorted(map(str, ids)))}, "
                f"{owners.get(min(ids, key=str), name)!r}). {_REMEDY}"
            )
    return checked


def _read_vocab(path: Path, special_tokens: dict[str, str]) -> dict[str, int]:
    """The pieces of a ``vocab.txt`` and their line numbers; of equal lines the last one, as in the original code."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES_OF_LINES + 1)
    if len(content) > MOST_BYTES_OF_LINES:
        raise WeightsMismatchError(
            f"{path} has {path.stat().st_size:,} bytes, and a vocabulary has at most {MOST_BYTES_OF_LINES:,}. {_REMEDY}"
        )
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if (n_lines := content.count(b"\n")) > MOST_PIECES:
        raise WeightsMismatchError(
            f"{path} has {n_lines:,} lines, and a vocabulary has at most {MOST_PIECES:,} pieces. {_REMEDY}"
        )
    try:
        # Not by splitlines, which also splits at characters that can be pieces, such as U+0085.
        pieces = content.decode("utf-8-sig").rstrip("\n").split("\n")
    except ValueError as error:
        raise WeightsMismatchError(f"{path} is not UTF-8 text ({error}). {_REMEDY}") from None
    for name in special_tokens.values():
        if pieces.count(name) > 1:
            raise WeightsMismatchError(f"{path} has the special token {name!r} in more than one line. {_REMEDY}")
    return {piece: i for i, piece in enumerate(pieces)}


def _name(token: Any) -> str | None:
    """The name of a special token, which the files give as a str or as a dict."""
    name = token.get("content") if isinstance(token, dict) else token
    return name if isinstance(name, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty dict if there is no file."""
    if not path.is_file():
        return {}
    return json_object(path, WeightsMismatchError, f" {_REMEDY}", unique_keys, MOST_BYTES_OF_JSON, MOST_VALUES)
