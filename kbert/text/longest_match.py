"""WordPiece's longest match first (`WordpieceTokenizer` of the original tokenization.py), of many words at once."""

import numpy as np

from kbert.text.word_table import LONGEST, WordTable, keys_of


class LongestMatch:
    """The pieces of words of at most `LONGEST` bytes of ASCII.

    Parameters
    ----------
    vocab : dict of int
        The pieces and their ids.
    prefix : str
        What pieces begin with that go on in a word ("##").
    unk_id : int
        Id of words that no pieces make up.
    """

    def __init__(self, vocab: dict[str, int], prefix: str, unk_id: int):
        self._unk_id = unk_id
        self._first = _table(vocab)
        self._others = _table({piece[len(prefix) :]: i for piece, i in vocab.items() if piece.startswith(prefix)})

    def __call__(self, windows: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all words one after the other, and how many each has.

        Parameters
        ----------
        windows : ndarray
            See `windows_of`.
        starts, lengths : ndarray of int64, shape (n_words,)
            Where the words are, in bytes; at least one word.
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
        # Of an unknown word the pieces that were found do not count.
        of, found = np.concatenate(words), np.concatenate(ids)
        of, found = of[~unknown[of]], found[~unknown[of]]
        of = np.concatenate([of, np.flatnonzero(unknown)])
        found = np.concatenate([found, np.full(len(of) - len(found), self._unk_id)])
        return found[np.argsort(of, kind="stable")], np.bincount(of, minlength=len(starts))

    @staticmethod
    def _longest(table: WordTable, windows, start, rest) -> tuple[np.ndarray, np.ndarray]:
        """The longest piece that each word begins with, -1 for none, and its length."""
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
    """A table of those pieces that a short word of ASCII may hold."""
    short = [piece for piece in pieces if 0 < len(piece) <= LONGEST and piece.isascii() and "\0" not in piece]
    keys = np.array(short, f"S{LONGEST}").view("<u8").reshape(-1, 2)
    table = WordTable()
    table.add(keys[:, 0], keys[:, 1], np.array([pieces[piece] for piece in short], np.int64))
    return table
