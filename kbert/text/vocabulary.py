"""Learn a WordPiece vocabulary from texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import index

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from kbert.errors import UnknownWordsWarning
from kbert.values.printable import percent, shown
from kbert.values.surrogates import require_no_surrogates
from kbert.warn import warn_user

# Characters beyond the most frequent 1,000 become [UNK], as in the Hugging Face BERT vocabularies.
ALPHABET = 1000
# Share of a text's letters in words that are too long, from which on a warning says so.
_MUCH = 0.05


def learn_vocabulary(
    texts: Iterable[str], vocab_size: int, min_frequency: int, special_tokens: list[str], tokenizer: Tokenizer
) -> dict[str, int]:
    """The pieces of a vocabulary and their ids: the special tokens, single characters, then pieces in order of merging.

    The same texts always give the same vocabulary, in any process and in any order of the texts.

    Parameters
    ----------
    texts : iterable of str
        Read once, in a stream; only the counts of the different words are kept in memory.
    vocab_size : int
        Greatest number of pieces. Few texts give fewer.
    min_frequency : int
        How often two neighbouring pieces must occur to be merged.
    special_tokens : list of str
        They get the first ids.
    tokenizer : tokenizers.Tokenizer
        Its normaliser, pre-tokeniser and model determine what a word is, how long it may be, and how pieces that
        continue a word are marked.

    Returns
    -------
    dict of int
        Piece -> id, in the order of the ids.

    Raises
    ------
    ValueError
        If there is no word in the texts that is not too long, or room for no piece but the special tokens.
    TypeError
        If a text is not a str.

    Warns
    -----
    UnknownWordsWarning
        If words that are too long have much of the text.
    """
    vocab_size, min_frequency = index(vocab_size), index(min_frequency)
    # A letter may need two pieces: at the start of a word, and inside.
    room = (vocab_size - len(special_tokens)) // 2
    if room < 1:
        raise ValueError(f"vocab_size must be at least {len(special_tokens) + 2}, got {vocab_size}.")
    all_words = _all_words(texts, tokenizer)
    words = _without_long(all_words, tokenizer)
    _tell_of_long(all_words, words, tokenizer)
    frequency: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in words.items():
        for character in word:
            frequency[character] += count
        inside.update(word[1:])
    ranked = sorted(frequency, key=lambda character: (-frequency[character], character))
    alphabet = sorted(ranked[: min(ALPHABET, room)])
    prefix = tokenizer.model.continuing_subword_prefix

    # By itself, the trainer numbers the letters inside of words in the order of a randomly seeded hash table, and its
    # choice between equally frequent pairs depends on these numbers. Letters that are given as special tokens are
    # numbered first, in the given order.
    letters = alphabet + [prefix + character for character in alphabet if character in inside]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=special_tokens + letters,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=prefix,
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token=tokenizer.model.unk_token))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(_repeated(words), trainer)
    pieces = learner.get_vocab()
    return {piece: pieces[piece] for piece in sorted(pieces, key=pieces.__getitem__)}


def count_words(texts: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """How often each word occurs, without words that are too long for the tokenizer.

    Parameters
    ----------
    texts : iterable of str
        Read once, in a stream.
    tokenizer : tokenizers.Tokenizer
        Its normaliser, pre-tokeniser and model determine what a word is, and how long it may be.

    Returns
    -------
    dict of int
        Word -> count, in alphabetical order.

    Raises
    ------
    ValueError
        If a text holds a lone surrogate.
    TypeError
        If a text is not a str.
    """
    return _without_long(_all_words(texts, tokenizer), tokenizer)


def _without_long(words: dict[str, int], tokenizer: Tokenizer) -> dict[str, int]:
    """The words that are not too long for the tokenizer, in alphabetical order."""
    longest = tokenizer.model.max_input_chars_per_word
    return {word: words[word] for word in sorted(words) if len(word) <= longest}


def _tell_of_long(words: dict[str, int], known: dict[str, int], tokenizer: Tokenizer) -> None:
    """Raise a ValueError where no word is known; warn where those that are too long have much of the text."""
    if not words:
        raise ValueError("There is no word in the texts. Check that they are not empty, or used up by an earlier loop.")
    long = words.keys() - known.keys()
    if not long:
        return
    longest = tokenizer.model.max_input_chars_per_word
    share = sum(words[word] * len(word) for word in long) / sum(count * len(word) for word, count in words.items())
    told = (
        f"{percent(share)} of the letters of the texts stand in words of more than {longest} letters, such as "
        f"{shown(min(long))}. Each is one unknown token, [UNK]. Put spaces into such strings: "
        "' '.join(textwrap.wrap(text, 6)) puts one after every sixth letter."
    )
    if not known:
        raise ValueError(told)
    if share > _MUCH:
        warn_user(told, UnknownWordsWarning)


def _all_words(texts: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """How often each word occurs."""
    counter = Tokenizer(models.WordPiece(unk_token=tokenizer.model.unk_token))
    counter.normalizer = tokenizer.normalizer
    counter.pre_tokenizer = tokenizer.pre_tokenizer
    # The trainer counts on all cores, but its counts can be read from its pickled state only.
    trainer = trainers.WordPieceTrainer(vocab_size=0, special_tokens=[], show_progress=False)
    counter.train_from_iterator(_checked(texts), trainer)
    words: dict[str, int] = json.loads(trainer.__getstate__())["WordPieceTrainer"]["bpe_trainer"]["words"]
    return words


def _checked(texts: Iterable[str]) -> Iterator[str]:
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"texts: row {row} is of type {type(text).__name__}, and texts are str. Turn it into a str."
            )
        if not text.isascii():
            require_no_surrogates(text, f"texts: row {row}")
        yield text


def _repeated(words: dict[str, int]) -> Iterator[str]:
    """Texts in which each word occurs as often as counted, because the trainer takes texts only."""
    for word, count in words.items():
        for start in range(0, count, 1000):
            yield f"{word} " * min(1000, count - start)
