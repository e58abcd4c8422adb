"""A cache of words and their pieces. All words of a chunk of texts are looked up at once, in NumPy arrays."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kbert.forks import LockOfProcess
from kbert.text.chunks import text_chunks
from kbert.text.files import TokenizerSpec
from kbert.text.longest_match import LongestMatch
from kbert.text.ragged import Ragged, ranges, row_splits
from kbert.text.word_table import LONGEST, Keys, WordTable, keys_of, mixed, windows_of

# In ASCII a word is letters and digits, or one mark of punctuation, and texts are split at spaces, tabs and line ends
# (`BasicTokenizer` of the original tokenization.py). The normaliser removes control characters, which may stand in the
# middle of a word. A run of characters between two spaces is one word here if it has a character outside ASCII.
_LETTER, _PUNCTUATION, _SPACE, _CONTROL, _OTHER = range(5)
_KINDS = np.full(256, _OTHER, np.uint8)
_KINDS[:128] = [
    _SPACE if c in " \t\n\r" else _LETTER if c.isalnum() else _PUNCTUATION if c.isprintable() else _CONTROL
    for c in map(chr, range(128))
]
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32

# Size at which the cache is emptied: some 20 MB of short words, and some 60 MB of others.
_MOST_SHORT = 2**19
_MOST_CHARACTERS = 2**22
# Size of the chunks of texts that are split at once: their words take ten times as much room while they are looked up.
_CHUNK_ROWS = 2**19
_CHUNK_CHARACTERS = 2**19
# The cache is given up if more than half of all words are long and new (sequences of proteins, for instance), counted
# among so many words at least.
_TRIAL = 50_000
# From this number of new words on, `LongestMatch` is quicker than the library.
_MANY = 256


class KnownWords:
    """A cache of the pieces of words. Any number of threads may use it.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
        Tokenises each word once that is long or not of ASCII, and texts with control characters.
    lowercase : bool
        Whether ``backend`` turns texts into lower case.
    """

    def __init__(self, backend: Tokenizer, lowercase: bool):
        self._backend, self._lowercase = backend, lowercase
        self._words, self._lock = _Words(), LockOfProcess()
        self._n_looked_up = self._n_new = 0

    @staticmethod
    def suit(spec: TokenizerSpec) -> bool:
        """Whether the tokenizer of a ``tokenizer.json`` splits texts by the original's rules, as this class does."""
        kinds = [(spec.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
        return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"]

    def tokenize(self, texts: list[str]) -> Ragged | None:
        """The ids of texts; None if the library is to tokenise them instead.

        This is the case if most words are long and new, and if a text cannot be tokenised.
        """
        lengths, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for chunk in text_chunks(texts, _CHUNK_ROWS, _CHUNK_CHARACTERS):
            ids = self._tokenize(texts[chunk])
            if ids is None:
                return None
            lengths.append(ids.lengths)
            values.append(ids.values)
        return Ragged(np.concatenate(values), row_splits(np.concatenate(lengths)))

    def _tokenize(self, texts: list[str]) -> Ragged | None:
        if self._n_new > max(_TRIAL, self._n_looked_up) / 2:
            return None
        try:
            split = _Split(texts, self._lowercase)
        except UnicodeEncodeError:  # lone surrogates
            return None
        words = self._words  # the same until the end, even if another thread empties the cache
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
        return self._replaced(ids, split.has_control, texts) if len(split.has_control) else ids

    def _replaced(self, ids: Ragged, rows: NDArray[np.int64], texts: list[str]) -> Ragged:
        """The same ids, but for some rows those that the library gives."""
        by_library = dict(zip(rows.tolist(), self._by_library([texts[i] for i in rows.tolist()]), strict=True))
        values = [by_library[i] if i in by_library else ids.row(i) for i in range(len(texts))]
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return Ragged(np.concatenate(values).astype(np.int32), row_splits(lengths))

    def _by_library(self, texts: list[str]) -> list[list[int]]:
        return [row.ids for row in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _numbers_of_short(self, words: _Words, split: _Split) -> NDArray[np.int64]:
        first, second = split.keys()
        numbers = words.short.numbers_of(first, second)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            with self._lock:
                left = new
                while len(left):  # once, unless two different words have the same hash
                    left = left[words.short.numbers_of(first[left], second[left]) < 0]
                    once = left[np.unique(mixed(first[left], second[left]), return_index=True)[1]]
                    if len(once):
                        starts, lengths = split.starts[split.short[once]], split.lengths[split.short[once]]
                        number = words.add_pieces(*self._pieces(split, starts, lengths))
                        words.short.add(first[once], second[once], np.arange(number, number + len(once)))
            numbers[new] = words.short.numbers_of(first[new], second[new])
        return numbers

    def _pieces(
        self, split: _Split, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The ids of short words one after the other, and how many each word has."""
        if len(starts) >= _MANY and self._longest_match is not None:
            return self._longest_match(split.windows, starts, lengths)
        return _flat(self._by_library(split.words(starts, lengths)))

    @cached_property
    def _longest_match(self) -> LongestMatch | None:
        """None if the library treats some short word in another way."""
        model, vocab = self._backend.model, self._backend.get_vocab(with_added_tokens=False)
        if model.max_input_chars_per_word < LONGEST or model.unk_token not in vocab:
            return None
        return LongestMatch(vocab, model.continuing_subword_prefix, vocab[model.unk_token])

    def _numbers_of_long(self, words: _Words, found: list[str]) -> NDArray[np.int64]:
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
        The first position and the length of each word, in the bytes of all texts.
    splits : ndarray of int64, shape (n_texts + 1,)
        The words of text i are those from ``splits[i]`` on, before ``splits[i + 1]``.
    short, long : ndarray of int64
        The numbers of the short words, which are of ASCII and have at most `LONGEST` bytes, and of the long ones, which
        are all others.
    windows : ndarray of uint64
        See `windows_of`; of the texts in lower case if these are lower-cased.
    has_control : ndarray of int64
        The numbers of the texts with control characters, whose words here are not valid.

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
        text_starts = np.cumsum([0] + [len(text) + 1 for text in texts])
        if n > len(joined):  # from characters to bytes: all but the first one of a character begin with the bits 10
            text_starts = np.append(np.flatnonzero(data[:n] & 0xC0 != 0x80), [n, n + 1])[text_starts]
        wholes = self._join_others(kinds)
        in_word, mark = kinds == _LETTER, kinds == _PUNCTUATION
        begins, ends = mark | in_word, mark | in_word
        begins[1:] &= ~(in_word[1:] & in_word[:-1])
        ends[:-1] &= ~(in_word[1:] & in_word[:-1])
        self.starts = np.flatnonzero(begins)
        self.lengths = np.flatnonzero(ends) + 1 - self.starts
        self.splits = np.searchsorted(self.starts, text_starts)
        is_long = self.lengths > LONGEST
        is_long[np.searchsorted(self.starts, wholes)] = True
        self.short, self.long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
        self.windows: Keys = windows_of(_LOWER[data] if lowercase else data)
        control = np.flatnonzero(kinds == _CONTROL)
        self.has_control = np.unique(np.searchsorted(text_starts, control, "right") - 1)

    @staticmethod
    def _join_others(kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Make one word of each run between two spaces that has a character outside ASCII; the starts of these runs."""
        others = np.flatnonzero(kinds == _OTHER)
        if not len(others):
            return others
        spaces = np.concatenate([[-1], np.flatnonzero(kinds == _SPACE), [len(kinds)]])
        last = np.unique(np.searchsorted(spaces, others))
        starts, ends = spaces[last - 1] + 1, spaces[last]
        kinds[ranges(starts, ends - starts)] = _LETTER
        return starts

    def keys(self) -> tuple[Keys, Keys]:
        """The keys of the short words."""
        return keys_of(self.windows, self.starts[self.short], self.lengths[self.short])

    def words(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[str]:
        """Words as they stand in the texts."""
        return [
            self._bytes[start:end].decode()
            for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        ]

    def long_words(self) -> list[str]:
        """The long words, as they stand in the texts."""
        return self.words(self.starts[self.long], self.lengths[self.long])


class _Words:
    """Numbers of words, and the pieces of each number.

    Attributes
    ----------
    short, long : WordTable, dict of int
        The numbers of the short words and of the long ones.
    pieces : tuple of ndarray
        Ids and splits, longer than needed: the pieces of number i are ``ids[splits[i]:splits[i + 1]]``.
    n_characters : int
        Characters of all long words.
    """

    def __init__(self) -> None:
        self.short, self.long = WordTable(), dict[str, int]()
        self.pieces = np.zeros(0, np.int32), np.zeros(1, np.int64)
        self.n_characters = 0
        self._n = 0

    def add_pieces(self, ids: NDArray[Any], lengths: NDArray[np.int64]) -> int:
        """Add the pieces of some words; the number of the first of these words, from which the others are counted.

        Pieces are added before the words that refer to them, for threads that look words up meanwhile.
        """
        first, n = self._n, self._n + len(lengths)
        start = int(self.pieces[1][first])
        end = start + len(ids)
        values, splits = _grown(self.pieces[0], end), _grown(self.pieces[1], n + 1)
        values[start:end] = ids
        splits[first + 1 : n + 1] = start + np.cumsum(lengths)
        self.pieces, self._n = (values, splits), n
        return first


def _grown(array: NDArray[Any], n: int) -> NDArray[Any]:
    """The same array if it has n values at least; otherwise a longer one that begins with its values."""
    if n <= len(array):
        return array
    larger = np.zeros(max(n, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


def _flat(rows: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths
