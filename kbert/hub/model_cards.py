"""A model card, README.md: its metadata, and how the next save knows whether somebody has edited it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

FILE = "README.md"

# The last line of a card. The checksum is that of all lines before it.
_MARK = re.compile(rb"\n<!-- kbert wrote this card[^>]* sha256: ([0-9a-f]{64}) -->\s*\Z")


def written_card(metadata: Mapping[str, Any], text: str) -> bytes:
    """Return the content of a card: the metadata in the hub's format, the text, and the mark of `is_unedited`.

    Parameters
    ----------
    metadata : mapping of str to object
        The arguments of `huggingface_hub.ModelCardData`. What is None is left out.
    text : str
        The card in Markdown.
    """
    from huggingface_hub import ModelCardData

    front = ModelCardData(**metadata).to_yaml(line_break="\n")
    # Lone surrogates, for which UTF-8 has no bytes, become escapes, as in the JSON files. The line ends of a text that
    # was written on Windows become those of the rest, by which `is_unedited` reckons too.
    content = _unix(f"---\n{front}\n---\n\n{text}".encode("utf-8", errors="backslashreplace"))
    mark = (
        f"\n<!-- kbert wrote this card, and the next save replaces it unless it was edited. sha256: {_sum(content)} -->"
    )
    return content + mark.encode() + b"\n"


def is_written_by_kbert(content: bytes) -> bool:
    """Whether a card is one of `written_card`, edited or not."""
    return _MARK.search(_unix(content)) is not None


def is_unedited(content: bytes) -> bool:
    """Whether a card is as `written_card` gave it. Other line ends, which git may have made, are no edit."""
    content = _unix(content)
    mark = _MARK.search(content)
    return mark is not None and mark[1].decode() == _sum(content[: mark.start()])


def _unix(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n")


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
