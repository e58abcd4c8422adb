"""Combining marks: accents and vowel signs, which uncased models drop, so that no piece has them."""

from __future__ import annotations

import unicodedata


def past_marks(text: str, end: int) -> int:
    """The end of a span in a text, moved past the combining marks that follow it.

    Examples
    --------
    >>> past_marks("Jose\\u0301 sat", 4)  # an e, and an accent of its own
    5
    """
    while end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return end
