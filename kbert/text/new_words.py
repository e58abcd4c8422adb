"""Words that take the places which a vocabulary keeps free: "[unused0]", "[unused1]" and so on."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from kbert.text.vocabulary import require_no_surrogates

if TYPE_CHECKING:
    from kbert.text.wordpiece import WordPieceTokenizer

_UNUSED = re.compile(r"\[unused\d+\]")


def unused_tokens(spec: dict) -> list[str]:
    """The places that a ``tokenizer.json`` keeps free, in the order of their ids.

    One that stands among the added tokens, which are found in texts, is in use: as a marker, for instance.
    """
    added = {token["content"] for token in spec["added_tokens"]}
    vocab = spec["model"]["vocab"]
    names = [name for name in vocab if _UNUSED.fullmatch(name) and name not in added]
    return sorted(names, key=vocab.get)


def with_words(spec: dict, words: list[str]) -> dict:
    """The ``tokenizer.json`` in which new words, as `words_to_add` gives them, have the first of the free places.

    Raises
    ------
    ValueError
        If there are fewer places than words.
    """
    places = unused_tokens(spec)
    if len(words) > len(places):
        raise ValueError(
            f"words: there are {len(words)} new ones, and the vocabulary has {len(places) or 'no'} unused places left "
            '("[unusedN]") for them. Give fewer words, the most frequent ones for instance.'
        )
    new = dict(zip(places, words, strict=False))
    # The order of the ids stays as it is.
    vocab = {new.get(piece, piece): i for piece, i in spec["model"]["vocab"].items()}
    return spec | {"model": spec["model"] | {"vocab": vocab}}


def words_to_add(words: Iterable[str], tokenizer: "WordPieceTokenizer", backend: Tokenizer) -> list[str]:
    """Words as a vocabulary holds them: normalised, each once, and without those that it has already.

    Raises
    ------
    ValueError
        If this is a single str, or a word is none: empty, of several words, too long, or with a lone surrogate.
    TypeError
        If a word is not a str.
    """
    if isinstance(words, str):
        raise ValueError(f"words is a single str, and a list of words is wanted: [{words!r}].")
    found: dict[str, None] = {}
    for i, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"words: number {i} is of type {type(word).__name__}, and words are str.")
        require_no_surrogates(word, f"words: number {i}")
        if not _is_whole(word, tokenizer):
            found[_normalised(word, backend)] = None
    return list(found)


def _is_whole(word: str, tokenizer: "WordPieceTokenizer") -> bool:
    ids = tokenizer.encode(word).ids[1:-1]
    return len(ids) == 1 and ids[0] != tokenizer.unk_id


def _normalised(word: str, backend: Tokenizer) -> str:
    """A word as it is looked up in the vocabulary, once it was found to be one."""
    text = word if backend.normalizer is None else backend.normalizer.normalize_str(word)
    parts = [text] if backend.pre_tokenizer is None else [p for p, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    if not parts:
        raise ValueError(f"words: {word!r} has no character that the tokenizer reads. Leave it out.")
    if len(parts) > 1:
        raise ValueError(
            f"words: {word!r} cannot be one entry of the vocabulary: texts are split there into "
            f"{', '.join(map(repr, parts))} before words are looked up. Give words without spaces and punctuation."
        )
    prefix = backend.model.continuing_subword_prefix
    if prefix and parts[0].startswith(prefix):
        raise ValueError(f"words: {word!r} begins with {prefix!r}, as pieces inside of words do. Give whole words.")
    longest = backend.model.max_input_chars_per_word
    if len(parts[0]) > longest:
        raise ValueError(
            f"words: {word[:20]!r}... has {len(parts[0])} characters, and words of more than {longest} are unknown to "
            "the tokenizer. Leave it out."
        )
    return parts[0]
