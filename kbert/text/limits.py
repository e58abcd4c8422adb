"""What a tokenizer's files may ask for: limits far above any BERT's, below which nothing takes long or much memory."""

from __future__ import annotations

import base64
import re
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbert.errors import WeightsMismatchError

# The largest vocabularies of BERTs have 500,000 pieces. An id takes a row in tables, whether or not there is a piece.
MOST_PIECES = 2_000_000
# Bytes of a vocab.txt, and of a tokenizer.json, which has more than the pieces.
MOST_BYTES_OF_LINES = 20 * MOST_PIECES
MOST_BYTES_OF_JSON = 30 * MOST_PIECES
# Values in a tokenizer.json: a piece is one, and so is a setting.
MOST_VALUES = 3_000_000
# The time for a word grows with the square of its length. Models have 100 or 200.
_LONGEST_WORD = 1000
# Steps of a normalizer, and how many characters may become of one in all of them.
_MOST_PARTS = 1000
_MOST_GROWTH = 1000

# The keys of a tokenizer.json that change texts, and where a sequence of them has its parts.
_CHANGING = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
# How many characters a step makes of one at most. In Unicode, the compatibility forms have a character that becomes 18
# (U+FDFA), the canonical ones have some that become 4 or 3, and lower case has one that becomes 2.
_GROWTH = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 2, "BertNormalizer": 8}
_GROWTH |= {"ByteLevel": 4, "Metaspace": 2}
# What lets a regular expression match no character, and a literal character that looks like it.
_MAY_BE_EMPTY = re.compile(r"[(|*?^$]|\{[0,]|\\[bBAZzGKyY]")
_LITERAL = re.compile(r"\\[^\w\s]|\[\^")


def check_limits(spec: dict[str, Any], path: Path, remedy: str) -> None:
    """Check the content of a ``tokenizer.json`` that has a vocabulary, before it is given to the library.

    What is not of the type that the library wants is left to the library, but for ``added_tokens``.

    Raises
    ------
    WeightsMismatchError
        With the file and the key.
    """

    def refuse(message: str) -> WeightsMismatchError:
        return WeightsMismatchError(f"{path}: {message}. {remedy}")

    added = spec.get("added_tokens")
    if added is not None and not (isinstance(added, list) and all(isinstance(token, dict) for token in added)):
        raise refuse("added_tokens must be a list of objects")
    model = spec["model"]
    ids = {"model.vocab": model["vocab"].items()}
    ids["added_tokens"] = [(token.get("content"), token.get("id")) for token in added or []]
    for key, pairs in ids.items():
        for piece, id_ in pairs:
            if type(id_) is int and id_ >= MOST_PIECES:
                raise refuse(f"{key} gives {reprlib.repr(piece)} the id {id_}, and ids are below {MOST_PIECES:,}")
    longest = model.get("max_input_chars_per_word")
    if type(longest) is int and longest > _LONGEST_WORD:
        raise refuse(f"model.max_input_chars_per_word is {longest}, and at most {_LONGEST_WORD:,} can be")
    for key, inner in _CHANGING.items():
        growth = 1.0
        for n, part in enumerate(_parts(spec.get(key), inner), 1):
            growth *= _growth(part)
            if n > _MOST_PARTS:
                raise refuse(f"{key} has more than {_MOST_PARTS:,} steps")
            if growth > _MOST_GROWTH:
                raise refuse(f"{key} could make more than {_MOST_GROWTH:,} characters of one")


def _parts(spec: Any, inner: str) -> Iterator[dict[str, Any]]:
    """The steps of a sequence, which may hold sequences."""
    waiting = [spec]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield part
        if isinstance(part.get(inner), list):
            waiting += reversed(part[inner])


def _growth(part: dict[str, Any]) -> float:
    """How many characters a step may make of one."""
    kind = part.get("type")
    if kind == "Prepend":
        return 1 + _length(part.get("prepend"))
    if kind == "Replace":
        return _growth_of_replacing(part.get("pattern"), _length(part.get("content")))
    if kind == "Precompiled":
        return _growth_of_precompiled(part.get("precompiled_charsmap"))
    return _GROWTH.get(kind, 1) if isinstance(kind, str) else 1


def _growth_of_replacing(pattern: Any, length: int) -> float:
    if isinstance(pattern, dict):
        text, regex = pattern.get("String"), pattern.get("Regex")
        if isinstance(text, str) and text:
            return max(1, length / len(text))
        if isinstance(regex, str) and regex and not _MAY_BE_EMPTY.search(_LITERAL.sub("_", regex)):
            return max(1, length)
    # Between any two characters something may be put in.
    return 1 + length


def _growth_of_precompiled(charsmap: Any) -> float:
    """Of SentencePiece's rules: the size of a table in four bytes, the table, and replacements with NUL between."""
    try:
        content = base64.b64decode(charsmap)
    except (TypeError, ValueError):  # which the library tells
        return 1
    start = 4 + int.from_bytes(content[:4], "little")
    return max(map(len, content[start:].split(b"\0")), default=0) or 1


def _length(text: Any) -> int:
    return len(text) if isinstance(text, str) else 0
