"""Plain text is tokenised by looking its words up, all of them at once: most of them were met before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from kbert.text.longest_match import LongestMatch
from kbert.text.sequences import Ragged, ranges, row_splits
from kbert.text.word_table import LONGEST, WordTable, keys_of, mixed, windows_of

# In ASCII a word is letters and digits, or one mark of punctuation, and texts are split at spaces, tabs and line ends
# (`BasicTokenizer` of the original tokenization.py). Control characters are what the normaliser takes out: they may
# stand in the middle of a word. What has another character is left whole from one space to the next.
_LETTER, _PUNCTUATION, _SPACE, _CONTROL, _OTHER = range(5)
_KINDS = np.full(256, _OTHER, np.uint8)
_KINDS[:128] = [
    _SPACE if c in " \t\n\r" else _LETTER if c.isalnum() else _PUNCTUATION if c.isprintable() else _CONTROL
    for c in map(chr, range(128))
]
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32

# What is kept before it is begun anew: some 20 MB of short words, and some 60 MB of others.
_MOST_SHORT = 2**19
_MOST_CHARACTERS = 2**22
# Characters of the texts that are split at once: their words are ten times as large while they are looked up.
_CHARACTERS_AT_ONCE = 2**19
# Texts of ever new long words (sequences of proteins) are not worth it: seen after so many words.
_TRIAL = 50_000
# So many new words are worth the tables of the vocabulary; the library is as quick with fewer.
_MANY = 256


class KnownWords:
    """The pieces of words, kept from one text to the next. Any number of threads may use one.

    Parameters
    ----------
    backend : Tokenizer
        Tokenises each word that is long or not of ASCII once, and texts with control characters.
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

        That is where most words are long and new, and where a text cannot be tokenised.
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
        try:
            split = _Split(texts, self._lowercase)
        except UnicodeEncodeError:  # lone surrogates
            return None
        words = self._words  # the same until the end, also where another thread begins anew
        numbers = np.empty(len(split.starts), np.int64)
        numbers[split.short] = self._numbers_of_short(words, split)
        numbers[split.long] = self._numbers_of_long(words, split.long_words())
        self._n_looked_up += len(numbers)
        if words is self._words and (words.n_characters > _MOST_CHARACTERS or len(words.short) > _MOST_SHORT):
            self._words = _Words()
        values, splits = words.pieces
        lengths = splits[numbers + 1] - splits[numbers]
        ends = row_splits(lengths)
        ids = Ragged(values[ranges(splits[numbers], lengths)], ends[split.splits])
        return self._with(ids, split.has_control, texts) if len(split.has_control) else ids

    def _with(self, ids: Ragged, rows: np.ndarray, texts: list[str]) -> Ragged:
        """The same, but for some rows those that the tokenizer itself gives."""
        others = iter(self._by_library([texts[i] for i in rows.tolist()]))
        given = set(rows.tolist())
        parts = [next(others) if i in given else ids.row(i) for i in range(len(texts))]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return Ragged(np.concatenate(parts).astype(np.int32), row_splits(lengths))

    def _by_library(self, texts: list[str]) -> list[list[int]]:
        return [row.ids for row in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _numbers_of_short(self, words: _Words, split: _Split) -> np.ndarray:
        keys = split.keys()
        numbers = words.short.numbers_of(*keys)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            with self._lock:
                left = new
                while len(left):  # once, unless the mixed keys of two words are one
                    left = left[words.short.numbers_of(*(key[left] for key in keys)) < 0]
                    once = left[np.unique(mixed(*(key[left] for key in keys)), return_index=True)[1]]
                    if len(once):
                        starts, lengths = split.starts[split.short[once]], split.lengths[split.short[once]]
                        first = words.add_pieces(*self._pieces(split, starts, lengths))
                        words.short.add(*(key[once] for key in keys), np.arange(first, first + len(once)))
            numbers[new] = words.short.numbers_of(*(key[new] for key in keys))
        return numbers

    def _pieces(self, split: _Split, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of short words one after the other, and how many each has."""
        if len(starts) >= _MANY and self._longest_match is not None:
            return self._longest_match(split.windows, starts, lengths)
        return _flat(self._by_library(split.words(starts, lengths)))

    @cached_property
    def _longest_match(self) -> LongestMatch | None:
        """None where the library does something else with some short word."""
        model, vocab = self._backend.model, self._backend.get_vocab(with_added_tokens=False)
        if model.max_input_chars_per_word < LONGEST or model.unk_token not in vocab:
            return None
        return LongestMatch(vocab, model.continuing_subword_prefix, vocab[model.unk_token])

    def _numbers_of_long(self, words: _Words, found: list[str]) -> np.ndarray:
        numbers = [words.long.get(word, -1) for word in found]
        if -1 in numbers:
            with self._lock:
                unknown = [word for word in dict.fromkeys(found) if word not in words.long]
                first = words.add_pieces(*_flat(self._by_library(unknown)))
                words.long.update(zip(unknown, range(first, first + len(unknown)), strict=True))
                words.n_characters += sum(map(len, unknown))
                self._n_new += len(unknown)
            numbers = [words.long[word] for word in found]
        return np.array(numbers, np.int64)


class _Split:
    """The words of some texts.

    Attributes
    ----------
    starts, lengths : ndarray of int64, shape (n_words,)
        Where they are among the bytes of all texts.
    splits : ndarray of int64, shape (n_texts + 1,)
        The words of the text i are those from ``splits[i]`` on, before ``splits[i + 1]``.
    short, long : ndarray of int64
        The numbers of the words of ASCII and at most `LONGEST` bytes, and of the others.
    windows : ndarray
        See `windows_of`; in lower case where texts are.
    has_control : ndarray of int64
        The texts with control characters, whose words here are not to be used.

    Raises
    ------
    UnicodeEncodeError
        If a text holds a lone surrogate.
    """

    def __init__(self, texts: list[str], lowercase: bool):
        joined = "\n".join(texts)
        self._bytes = joined.encode()
        n = len(self._bytes)
        data = np.frombuffer(self._bytes + bytes(LONGEST), np.uint8)
        kinds = _KINDS[data[:n]]
        texts_at = np.cumsum([0] + [len(text) + 1 for text in texts])
        if n > len(joined):  # from characters to bytes: all but the first one of a character begin with the bits 10
            texts_at = np.append(np.flatnonzero(data[:n] & 0xC0 != 0x80), [n, n + 1])[texts_at]
        wholes = self._join_others(kinds)
        in_word, mark = kinds == _LETTER, kinds == _PUNCTUATION
        begins, ends = mark | in_word, mark | in_word
        begins[1:] &= ~(in_word[1:] & in_word[:-1])
        ends[:-1] &= ~(in_word[1:] & in_word[:-1])
        self.starts = np.flatnonzero(begins)
        self.lengths = np.flatnonzero(ends) + 1 - self.starts
        self.splits = np.searchsorted(self.starts, texts_at)
        is_long = self.lengths > LONGEST
        is_long[np.searchsorted(self.starts, wholes)] = True
        self.short, self.long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
        self.windows = windows_of(_LOWER[data] if lowercase else data)
        control = np.flatnonzero(kinds == _CONTROL)
        self.has_control = np.unique(np.searchsorted(texts_at, control, "right") - 1)

    @staticmethod
    def _join_others(kinds: np.ndarray) -> np.ndarray:
        """Make one word of all between two spaces where it has a character that is not of ASCII; where these start."""
        others = np.flatnonzero(kinds == _OTHER)
        if not len(others):
            return others
        spaces = np.concatenate([[-1], np.flatnonzero(kinds == _SPACE), [len(kinds)]])
        last = np.unique(np.searchsorted(spaces, others))
        starts, ends = spaces[last - 1] + 1, spaces[last]
        kinds[ranges(starts, ends - starts)] = _LETTER
        return starts

    def keys(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys of the short words."""
        return keys_of(self.windows, self.starts[self.short], self.lengths[self.short])

    def words(self, starts: np.ndarray, lengths: np.ndarray) -> list[str]:
        """Words as they stand in the texts."""
        return [
            self._bytes[start:end].decode()
            for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        ]

    def long_words(self) -> list[str]:
        """The words that are not short, as they stand in the texts."""
        return self.words(self.starts[self.long], self.lengths[self.long])


class _Words:
    """Numbers of words, and the pieces of each number."""

    def __init__(self):
        self.short, self.long = WordTable(), {}
        # With room at the end: the pieces of the number i are values[splits[i]:splits[i + 1]].
        self.pieces = np.zeros(0, np.int32), np.zeros(1, np.int64)
        self._n = self.n_characters = 0

    def add_pieces(self, ids: np.ndarray, lengths: np.ndarray) -> int:
        """Give numbers to so many pieces, before there are words that lead to them; the first number."""
        first, n = self._n, self._n + len(lengths)
        start = int(self.pieces[1][first])
        end = start + len(ids)
        values, splits = _with_room(self.pieces[0], end), _with_room(self.pieces[1], n + 1)
        values[start:end] = ids
        splits[first + 1 : n + 1] = start + np.cumsum(lengths)
        self.pieces, self._n = (values, splits), n
        return first


def _with_room(array: np.ndarray, n: int) -> np.ndarray:
    """The same array where it has n places, otherwise one that has these and begins with its values."""
    if n <= len(array):
        return array
    larger = np.zeros(max(n, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


def _flat(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


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
