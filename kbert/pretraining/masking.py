"""Masking for the masked language model: which tokens are to be predicted, and what replaces them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kbert.text import WordPieceTokenizer

# Of the tokens to predict, the shares that become [MASK] and that stay as they are; the others become any token of the
# vocabulary (Devlin et al., 2018, appendix A.1).
MASKED, KEPT = 0.8, 0.1
NO_WORD_FITS = (
    "With whole_word=True a word is masked with all of its pieces, and these are more than are to be predicted of a "
    "text: mask_rate of its tokens, and at least one. Set whole_word=False, or give longer texts."
)


class Masked(NamedTuple):
    """Tokens to predict.

    Attributes
    ----------
    token_ids : ndarray of int32, shape (n_tokens,)
        All tokens, with masks and replacements.
    chosen : ndarray of int64, shape (n_chosen,)
        The positions of those to predict, ascending.
    """

    token_ids: np.ndarray
    chosen: np.ndarray


class Masking:
    """Chooses the tokens to predict, and replaces them.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
        Its vocabulary must have a mask.
    rate : float, default=0.15
        Share of a text's tokens, special ones counted, that are to be predicted: ``max(1, round(rate * length))``.
    whole_word : bool, default=False
        Choose words with all of their pieces, as long as they fit into that number (the original's later masking).
    """

    def __init__(self, tokenizer: WordPieceTokenizer, rate: float = 0.15, whole_word: bool = False):
        if tokenizer.mask_id is None:
            raise ValueError("The vocabulary has no mask token. Train one with WordPieceTokenizer.train.")
        self.rate, self.whole_word = rate, whole_word
        self.mask_id, self.vocab_size = tokenizer.mask_id, tokenizer.vocab_size
        self.is_special = np.zeros(tokenizer.vocab_size, bool)
        self.is_special[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]] = True
        self.goes_on = np.zeros(tokenizer.vocab_size, bool)
        self.goes_on[[i for piece, i in tokenizer.vocab.items() if piece.startswith("##")]] = True

    def number(self, lengths: np.ndarray | int) -> np.ndarray:
        """How many tokens of texts of these lengths, special ones counted, are to be predicted."""
        return np.maximum(1, np.rint(self.rate * np.asarray(lengths))).astype(np.int64)

    def draw(self, token_ids: np.ndarray, splits: np.ndarray, rng: np.random.Generator) -> Masked:
        """Choose tokens of texts, and mask them.

        Parameters
        ----------
        token_ids : ndarray of int, shape (n_tokens,)
            Texts one after the other, special tokens included. A special token is never chosen.
        splits : ndarray of int64, shape (n_texts + 1,)
            Where each text begins and ends.
        rng : numpy.random.Generator

        Returns
        -------
        Masked
            Of each text exactly ``number(length)`` tokens are chosen, or all that are no special ones if these are
            fewer; with ``whole_word`` as many whole words as fit, in random order.
        """
        lengths = np.diff(splits)
        text = np.repeat(np.arange(len(lengths)), lengths)
        candidates = np.flatnonzero(~self.is_special[token_ids])
        number = self.number(lengths)
        if self.whole_word:
            chosen = self._whole_words(token_ids, candidates, text, number, rng)
        else:
            # Candidates in random order within each text, of which the first so many are chosen.
            order = candidates[np.argsort(text[candidates] + rng.random(len(candidates)))]
            chosen = np.sort(order[_rank(text[order]) < number[text[order]]])
        fate = rng.random(len(chosen))
        replaced = np.where(fate < MASKED, self.mask_id, token_ids[chosen])
        by_any = fate >= MASKED + KEPT
        replaced[by_any] = rng.integers(0, self.vocab_size, int(by_any.sum()))
        result = np.array(token_ids, np.int32)
        result[chosen] = replaced
        return Masked(result, chosen)

    def _whole_words(
        self,
        token_ids: np.ndarray,
        candidates: np.ndarray,
        text: np.ndarray,
        number: np.ndarray,
        rng: np.random.Generator,
    ) -> np.ndarray:
        # A word begins at a piece without "##", or where what comes before is no candidate, such as [SEP].
        first = ~self.goes_on[token_ids[candidates]] | (np.diff(candidates, prepend=-2) > 1)
        begins = np.flatnonzero(first)
        sizes = np.diff(np.append(begins, len(candidates)))
        of_text = text[candidates[begins]]
        order = np.argsort(of_text + rng.random(len(begins)))
        rank = _rank(of_text[order])
        taken = np.zeros(len(begins), bool)
        room = number.copy()
        # All texts at once: first the first word of each in this order, then the second, and so on.
        by_rank = order[np.argsort(rank, kind="stable")]
        for words in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]):
            fits = words[sizes[words] <= room[of_text[words]]]
            taken[fits] = True
            room[of_text[fits]] -= sizes[fits]
            if not room.any():
                break
        chosen: np.ndarray = candidates[np.repeat(taken, sizes)]
        return chosen


def _rank(groups: np.ndarray) -> np.ndarray:
    """The number of each element in its group, from 0; the elements of a group stand together."""
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))
