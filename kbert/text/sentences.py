"""Texts to sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

# Characters of a line that the sentence splitter gets at a time. Its time for a line grows with the square of the
# length, and a quotation mark that nobody closes hides all ends of sentences behind it.
_WINDOW = 4000
# sentencex 1.0 takes every white space for one byte after an initial, as in "J.\u3000B.", and panics where it is not.
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")


def sentence_splitter(language: str) -> Callable[[str], Iterable[str]]:
    """A function that gives the sentences of a line, white space included."""
    # Beside nupunkt, which needs no download either, sentencex (MIT, kept by the Wikimedia Foundation) is ten times as
    # fast, knows other languages than English and scripts without spaces, and splits "no space.The next". On English
    # Wikipedia the two disagree in one paragraph of fifteen and err about as often; sentencex leaves a quotation of
    # several sentences in one piece.
    from sentencex import segment  # here, because documents that are in segments already do without it

    def split(line: str) -> Iterator[str]:
        plain = line if line.isascii() else _WIDE_SPACE.sub(" ", line)
        start = 0
        while len(line) - start > _WINDOW:
            stop = plain.rfind(" ", start, start + _WINDOW) + 1 or start + _WINDOW
            # The last sentence goes on behind the window, unless it fills the whole window.
            pieces = segment(language, plain[start:stop])
            for piece in pieces[:-1] or pieces:
                yield line[start : start + len(piece)]
                start += len(piece)
        for piece in segment(language, plain[start:]):
            yield line[start : start + len(piece)]
            start += len(piece)

    return split
