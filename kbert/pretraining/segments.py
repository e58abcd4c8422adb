"""Texts to segments, such as sentences, and segments to documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kbert.errors import KbertWarning
from kbert.text.sentences import sentence_splitter
from kbert.warn import warn_user


@dataclass(frozen=True)
class Rules:
    """How texts become documents; `kbert.pretraining.corpus.Corpus` describes the fields."""

    split: str = "sentences"
    language: str = "en"
    column: str = "text"
    max_segments: int = 10_000
    errors: str = "strict"


class Segmenter:
    """Cuts texts into segments by some rules, and counts the characters that it had to replace.

    Parameters
    ----------
    rules : Rules
    """

    def __init__(self, rules: Rules):
        self.rules = rules
        self._n_replaced = 0
        self._first_replaced = ""

    @cached_property
    def line(self) -> Callable[[str], Iterable[str]]:
        """A function that gives the segments of a line."""
        # Made when it is needed: documents that are in segments already need no sentence splitter.
        return sentence_splitter(self.rules.language) if self.rules.split == "sentences" else _whole

    def segments(self, document: object, location: Callable[[], str]) -> Iterator[str]:
        """The segments of one document: of the lines of a str, or the items of a list; none if the document is missing.

        ``location()`` says where the document is from, for messages.
        """
        if isinstance(document, str):
            for line in self._characters(document, location).split("\n"):
                yield from self.line(line)
        elif isinstance(document, list | tuple | np.ndarray):
            for i, segment in enumerate(document):
                if not isinstance(segment, str):
                    raise TypeError(f"{location()}: segment {i} is of type {type(segment).__name__}, not a str.")
                yield self._characters(segment, location)
        elif not _is_missing(document):
            raise TypeError(
                f"{location()} is of type {type(document).__name__}. A document is a str, or a list of str, which are "
                "its segments. (Files go in a list of their own.)"
            )

    def decode(self, raw: bytes, location: Callable[[int], str]) -> str:
        """The text of bytes in UTF-8. ``location(i)`` says where byte i is from, for messages."""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if self.rules.errors == "strict":
                raise ValueError(
                    f"{location(error.start)}: is not UTF-8 ({error.reason}, 0x{raw[error.start]:02x}). Convert it to "
                    'UTF-8, or have such bytes replaced with Corpus(..., errors="replace") (--errors replace on the '
                    "command line)."
                ) from None
            text = raw.decode(errors="replace")
            self._count(text.count("\ufffd") - raw.count("\ufffd".encode()), location(error.start))
            return text

    def _characters(self, text: str, location: Callable[[], str]) -> str:
        """A text without halves of surrogate pairs, which are no characters and have no UTF-8."""
        text = str.__str__(text)  # that of a subclass may be anything
        if text.isascii():
            return text
        try:
            text.encode()
            return text
        except UnicodeEncodeError as error:
            if self.rules.errors == "strict":
                raise ValueError(
                    f"{location()} holds a lone surrogate, {text[error.start]!r} at character {error.start}, which is "
                    "no character. Repair the text, or have such characters replaced with Corpus(..., "
                    'errors="replace") (--errors replace on the command line).'
                ) from None
            repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            self._count(repaired.count("\ufffd") - text.count("\ufffd"), location())
            return repaired

    def _count(self, n: int, location: str) -> None:
        self._first_replaced = self._first_replaced or location
        self._n_replaced += n

    @property
    def replaced(self) -> tuple[str, int]:
        """Where text was replaced for the first time, and how often in all."""
        return self._first_replaced, self._n_replaced


def warn_of_replaced(of_units: Iterable[tuple[str, int]]) -> None:
    """Warn once of how much was replaced in some units, by `Segmenter.replaced`, if anything was."""
    found = [(first, n) for first, n in of_units if n]
    if found:
        warn_user(
            f"{found[0][0]}: text that is not UTF-8 was replaced by U+FFFD, here for the first time, "
            f"{sum(n for _, n in found)} times in all.",
            KbertWarning,
        )


def documents(segments: Iterable[str | None], max_segments: int) -> Iterator[list[str]]:
    """Group a stream of segments, in which None ends a document. Empty segments and documents are left out."""
    document: list[str] = []
    for segment in segments:
        if document and (segment is None or len(document) == max_segments):
            yield document
            document = []
        if segment is not None and (segment := segment.strip()):
            document.append(segment)
    if document:
        yield document


def _whole(line: str) -> tuple[str]:
    return (line,)


def _is_missing(value: object) -> bool:
    if value is None:
        return True
    from kbert.data.frames import is_missing  # brings pandas, which a corpus of files does not need

    return is_missing(value)
