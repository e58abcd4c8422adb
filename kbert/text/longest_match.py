"""WordPiece's greedy longest match (`WordpieceTokenizer` of the original tokenization.py), for many words at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.text.word_table import LONGEST, Keys, WordTable, keys_of


class LongestMatch:
    """Splits words of at most `LONGEST` bytes of ASCII into pieces.

    Parameters
    ----------
    vocab : dict of int
        The pieces and their ids.
    prefix : str
        The start of pieces that continue a word ("##").
    unk_id : int
        Id of words that cannot be split into pieces of the vocabulary.
    """

    def __init__(self, vocab: dict[str, int], prefix: str, unk_id: int):
        self._unk_id = unk_id
        self._first = _table(vocab)
        self._others = _table({piece[len(prefix) :]: i for piece, i in vocab.items() if piece.startswith(prefix)})

    def __call__(
        self, windows: Keys, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of all words one after the other, and how many each word has.

        Parameters
        ----------
        windows : ndarray of uint64
            See `windows_of`.
        starts, lengths : ndarray of int64, shape (n_words,)
            The first position and the length of each word in bytes; at least one word.
        """
        words, ids = [], []
        unknown = np.zeros(len(starts), bool)
        word, start, rest = np.arange(len(starts)), starts, lengths
        table = self._first
        while len(word):
            piece, size = self._longest(table, windows, start, rest)
            unknown[word[piece < 0]] = True
            found = piece >= 0
            words.append(word[found])
            ids.append(piece[found])
            go_on = found & (size < rest)
            word, start, rest = word[go_on], (start + size)[go_on], (rest - size)[go_on]
            table = self._others
        # An unknown word is one [UNK], whatever pieces it begins with.
        word_of_id, id_ = np.concatenate(words), np.concatenate(ids)
        known = ~unknown[word_of_id]
        word_of_id, id_ = word_of_id[known], id_[known]
        word_of_id = np.concatenate([word_of_id, np.flatnonzero(unknown)])
        id_ = np.concatenate([id_, np.full(len(word_of_id) - len(id_), self._unk_id)])
        return id_[np.argsort(word_of_id, kind="stable")], np.bincount(word_of_id, minlength=len(starts))

    @staticmethod
    def _longest(
        table: WordTable, windows: Keys, start: NDArray[np.int64], rest: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The longest piece that the rest of each word begins with, -1 if there is none, and its length."""
        piece, size = np.full(len(start), -1), np.zeros(len(start), np.int64)
        left = np.arange(len(start))
        for n in range(int(rest.max()), 0, -1):
            tried = left[rest[left] >= n]
            if len(tried):
                number = table.numbers_of(*keys_of(windows, start[tried], np.full(len(tried), n)))
                hit = number >= 0
                piece[tried[hit]], size[tried[hit]] = number[hit], n
                left = left[piece[left] < 0]
        return piece, size


def _table(pieces: dict[str, int]) -> WordTable:
    """A table of the pieces that may occur in a short word of ASCII."""
    short = [piece for piece in pieces if 0 < len(piece) <= LONGEST and piece.isascii() and "\0" not in piece]
    keys = np.array(short, f"S{LONGEST}").view("<u8").reshape(-1, 2)
    table = WordTable()
    table.add(keys[:, 0], keys[:, 1], np.array([pieces[piece] for piece in short], np.int64))
    return table
