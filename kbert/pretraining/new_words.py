"""New words for a checkpoint's vocabulary: which ones the texts need, and the weights that they start from."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np

from kbert.errors import NewWordsWarning
from kbert.model import BertForPreTraining
from kbert.model.base import to_numpy
from kbert.text import WordPieceTokenizer
from kbert.warn import warn_user

# Words whose pieces are looked up at a time.
_CHUNK = 4096


def add_new_words(
    tokenizer: WordPieceTokenizer, new_words: int | list[str], texts: Iterable[str]
) -> WordPieceTokenizer:
    """A tokenizer in whose vocabulary new words replace the unused tokens.

    Parameters
    ----------
    tokenizer : WordPieceTokenizer
    new_words : int or list of str
        How many, the most frequent ones of the texts (`frequent_split_words`); or which.
    texts : iterable of str
        Read, once and in a stream, only where a number is given.

    Raises
    ------
    ValueError
        If words are listed and there are fewer unused tokens, or one is no word (`WordPieceTokenizer.with_words`).

    Warns
    -----
    NewWordsWarning
        If a number is given, and there are more such words than unused tokens: all of these are replaced. Without
        unused tokens the texts are not read.
    """
    if not isinstance(new_words, int | np.integer):
        return tokenizer.with_words(new_words)
    n_places = tokenizer.n_unused
    words = frequent_split_words(texts, tokenizer, min(int(new_words), n_places + 1)) if n_places else []
    if len(words) > n_places or not n_places:
        warn_user(
            f"new_words={new_words}, and the vocabulary has {n_places or 'no'} unused tokens: "
            + (f"the {n_places} most frequent words are taken." if n_places else "no word is added."),
            NewWordsWarning,
        )
    return tokenizer.with_words(words[:n_places])


def frequent_split_words(texts: Iterable[str], tokenizer: WordPieceTokenizer, n: int) -> list[str]:
    """The most frequent words of texts that a vocabulary has in several pieces only.

    Parameters
    ----------
    texts : iterable of str
        Read once, in a stream; only the counts of the different words are held.
    tokenizer : WordPieceTokenizer
    n : int
        How many words at most.

    Returns
    -------
    list of str
        Words of letters and digits, with one letter at least, as the tokenizer normalises them. The most frequent one
        comes first; of those that are equally frequent, the first in the order of the alphabet. Words that are [UNK]
        are not among them: no pieces say what they could start from.
    """
    counts = tokenizer.count_words(texts) if n > 0 else {}
    ranked = sorted(filter(_is_written, counts), key=lambda word: (-counts[word], word))
    found: list[str] = []
    for start in range(0, len(ranked), _CHUNK):
        if len(found) >= n:
            break
        chunk = ranked[start : start + _CHUNK]
        pieces = tokenizer.tokenize_column(chunk)
        found += [word for i, word in enumerate(chunk) if len(pieces.row(i)) > 1]
    return found[:n]


def _is_written(word: str) -> bool:
    """Whether there is a letter, and nothing but letters, digits and the marks that belong to letters."""
    # Not str.isalnum: the vowel signs of many scripts, such as Devanagari, are marks.
    kinds = {unicodedata.category(character)[0] for character in word}
    return "L" in kinds and kinds <= {"L", "N", "M"}


def start_new_words(model: BertForPreTraining, before: WordPieceTokenizer, after: WordPieceTokenizer) -> list[str]:
    """Let the words that ``after`` has and ``before`` has not start from the pieces they were split into.

    A word's row in the embeddings becomes the mean of its pieces' rows, and its bias in the output the mean of their
    biases. The output matrix is the embeddings, so that a new word's logit is the mean of its pieces' logits.

    Returns
    -------
    list of str
        The words, in the order of their ids.
    """
    pieces_before = before.vocab
    ids = {word: i for word, i in after.vocab.items() if word not in pieces_before}
    if not ids:
        return []
    pieces = before.tokenize_column(list(ids))
    for variable in (model.encoder.embeddings.word, model.mlm_head.bias):
        values = np.array(to_numpy(variable.value), "float32")
        for row, i in enumerate(ids.values()):
            values[i] = values[pieces.row(row)].mean(axis=0)
        variable.assign(values)
    return list(ids)
