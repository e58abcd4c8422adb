"""Plain text is tokenised by looking its words up: most of them were met before."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from kbert.text.sequences import Ragged, ranges, row_splits

# In ASCII a word is letters and digits, or one mark of punctuation, and texts are split at spaces, tabs and line ends
# (`BasicTokenizer` of the original tokenization.py). The last kind is what the normaliser takes out: it may stand in
# the middle of a word.
_ASCII = r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
_CONTROL = [chr(i) for i in (*range(9), 11, 12, *range(14, 32), 127)]
_CONTROL_NUMBER = 0
_WORDS = re.compile(_ASCII)
# What has another character is left whole from one space to the next, and looked up as it is.
_WORDS_AND_OTHERS = re.compile(r"[!-~]*+[^\x00-\x7f][^ \t\n\r]*+|" + _ASCII)

# What is kept before it is begun anew, in characters of words: some 60 MB in words of twelve.
_MOST_CHARACTERS = 2**22
# Characters of the texts that are split at once: their words are five times as large while they are looked up.
_CHARACTERS_AT_ONCE = 2**18
# Texts of ever new words (sequences of proteins, numbers) are not worth it: seen after so many words.
_TRIAL = 50_000


class KnownWords:
    """The pieces of words, kept from one text to the next. Any number of threads may use one.

    Parameters
    ----------
    backend : Tokenizer
        Tokenises each word once, and texts with control characters.
    lowercase : bool
        Whether it lower-cases.
    """

    def __init__(self, backend: Tokenizer, lowercase: bool):
        self._backend, self._lowercase = backend, lowercase
        self._words, self._lock = _Words(), threading.Lock()
        self._n_looked_up = self._n_new = 0

    @staticmethod
    def suit(spec: dict) -> bool:
        """Whether the tokenizer of a ``tokenizer.json`` splits texts as it is done here, by the original's rules."""
        kinds = [(spec.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
        return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]

    def tokenize(self, texts: list[str]) -> Ragged | None:
        """The ids of texts; None where the tokenizer itself is to be used.

        That is where most words are new, and where a text cannot be tokenised.
        """
        parts = []
        for some in _parts_of(texts):
            part = self._tokenize(some)
            if part is None:
                return None
            parts.append(part)
        lengths = [part.lengths for part in parts]
        return Ragged(np.concatenate([part.values for part in parts]), row_splits(np.concatenate(lengths)))

    def _tokenize(self, texts: list[str]) -> Ragged | None:
        if self._n_new > max(_TRIAL, self._n_looked_up) / 2:
            return None
        found = [self._split(text) for text in texts]
        n_words = np.fromiter(map(len, found), np.int64, len(found))
        words = self._words  # the same until the end, also where another thread begins anew
        numbers = words.numbers_of(chain.from_iterable(found), int(n_words.sum()))
        self._n_looked_up += len(numbers)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            flat = list(chain.from_iterable(found))
            new_words = [flat[i] for i in new.tolist()]
            try:
                self._learn(words, new_words)
            except TypeError:  # lone surrogates
                return None
            numbers[new] = words.numbers_of(new_words, len(new_words))
        text = np.repeat(np.arange(len(texts)), n_words)
        values, splits = words.pieces
        lengths = splits[numbers + 1] - splits[numbers]
        ids = Ragged(
            values[ranges(splits[numbers], lengths)],
            row_splits(np.bincount(text, lengths, len(texts)).astype(np.int64)),
        )
        has_control = np.unique(text[numbers == _CONTROL_NUMBER])
        return self._with(ids, has_control, texts) if len(has_control) else ids

    def _with(self, ids: Ragged, rows: np.ndarray, texts: list[str]) -> Ragged:
        """The same, but for some rows those that the tokenizer itself gives."""
        encoded = self._backend.encode_batch_fast([texts[i] for i in rows.tolist()], add_special_tokens=False)
        others = iter(encoded)
        given = set(rows.tolist())
        parts = [next(others).ids if i in given else ids.row(i) for i in range(len(texts))]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return Ragged(np.concatenate(parts).astype(np.int32), row_splits(lengths))

    def _split(self, text: str) -> list[str]:
        if not text.isascii():
            # Lower case is not made here, where the tokenizer has rules of its own for it.
            return _WORDS_AND_OTHERS.findall(text)
        return _WORDS.findall(text.lower() if self._lowercase else text)

    def _learn(self, words: _Words, new: list[str]) -> None:
        with self._lock:
            unknown = [word for word in dict.fromkeys(new) if word not in words.numbers]
            self._n_new += len(unknown)
            words.add(unknown, [row.ids for row in self._backend.encode_batch_fast(unknown, add_special_tokens=False)])
            if words.n_characters > _MOST_CHARACTERS and words is self._words:
                self._words = _Words()


def _parts_of(texts: list[str]) -> Iterator[list[str]]:
    """All texts, some at a time; at least one part."""
    start = n_characters = 0
    for i, text in enumerate(texts):
        n_characters += len(text)
        if n_characters >= _CHARACTERS_AT_ONCE:
            yield texts[start : i + 1]
            start, n_characters = i + 1, 0
    if start < len(texts) or not texts:
        yield texts[start:]


class _Words:
    """Numbers of words, and the pieces of each number. All control characters have one number, and no pieces."""

    def __init__(self):
        self.numbers: dict[str, int] = _Numbers.fromkeys(_CONTROL, _CONTROL_NUMBER)
        self.pieces = np.zeros(0, np.int32), np.zeros(2, np.int64)
        self.n_characters = 0

    def numbers_of(self, words, n: int) -> np.ndarray:
        """Their numbers, -1 for words that are new."""
        return np.fromiter(map(self.numbers.__getitem__, words), np.int64, n)

    def add(self, words: list[str], ids: list[list[int]]) -> None:
        """Take in new words. Their pieces come first, for threads that find a number to have them."""
        values, splits = self.pieces
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        first = len(splits) - 1
        new = np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum()))
        self.pieces = np.concatenate([values, new]), np.concatenate([splits, splits[-1] + np.cumsum(lengths)])
        self.numbers.update(zip(words, range(first, first + len(words)), strict=True))
        self.n_characters += sum(map(len, words))


class _Numbers(dict):
    """Words that are missing have the number -1."""

    def __missing__(self, word: str) -> int:
        return -1
