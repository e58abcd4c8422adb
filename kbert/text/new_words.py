"""Give new words to the unused tokens of a vocabulary: "[unused0]", "[unused1]" and so on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Tokenizer

from kbert.text.files import TokenizerSpec
from kbert.values.surrogates import require_no_surrogates

_UNUSED = re.compile(r"\[unused\d+\]")


def unused_tokens(spec: TokenizerSpec) -> list[str]:
    """The unused tokens of a tokenizer's vocabulary, in the order of their ids.

    An entry that is among the added tokens, which are found in texts, is in use: as a marker, for instance.
    """
    added = {token["content"] for token in spec["added_tokens"]}
    vocab: dict[str, int] = spec["model"]["vocab"]
    names = [name for name in vocab if _UNUSED.fullmatch(name) and name not in added]
    return sorted(names, key=vocab.__getitem__)


def with_words(spec: TokenizerSpec, words: list[str]) -> TokenizerSpec:
    """The tokenizer in which new words replace the first unused tokens.

    Parameters
    ----------
    spec : dict
        The content of a ``tokenizer.json``.
    words : list of str
        As `words_to_add` gives them.

    Raises
    ------
    ValueError
        If there are fewer unused tokens than words.
    """
    unused = unused_tokens(spec)
    if len(words) > len(unused):
        raise ValueError(
            f"words: there are {len(words)} new ones, and the vocabulary has {len(unused) or 'no'} unused tokens left "
            '("[unusedN]") for them. Give fewer words, the most frequent ones for instance.'
        )
    new = dict(zip(unused, words, strict=False))
    # The order of the ids stays as it is.
    vocab = {new.get(piece, piece): i for piece, i in spec["model"]["vocab"].items()}
    return spec | {"model": spec["model"] | {"vocab": vocab}}


def words_to_add(words: Iterable[str], backend: Tokenizer, unk_id: int) -> list[str]:
    """Words as a vocabulary holds them: normalised, each once, and without those that are one piece already.

    Parameters
    ----------
    words : iterable of str
    backend : tokenizers.Tokenizer
        The tokenizer that is to get the words.
    unk_id : int
        Its id of unknown words.

    Raises
    ------
    ValueError
        If this is a single str, or an item is no single word: empty, of several words, too long, with an added token
        inside, or with a lone surrogate.
    TypeError
        If a word is not a str.
    """
    if isinstance(words, str):
        raise ValueError(f"words is a single str, and a list of words is wanted: [{words!r}].")
    found: dict[str, None] = {}
    added = backend.get_added_tokens_decoder()
    for i, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"words: number {i} is of type {type(word).__name__}, and words are str.")
        require_no_surrogates(word, f"words: number {i}")
        ids = backend.encode(word, add_special_tokens=False).ids
        if len(ids) != 1 or ids[0] == unk_id:
            found[_normalised(word, backend)] = None
            if inside := (added.keys() - {unk_id}).intersection(ids):
                raise ValueError(
                    f"words: {word!r} cannot be one entry of the vocabulary: the tokenizer finds its added token "
                    f"{added[min(inside)].content!r} in it first. Leave it out."
                )
    return list(found)


def _normalised(word: str, backend: Tokenizer) -> str:
    """A word as it is looked up in the vocabulary. Raises where this is no single word."""
    text = word if backend.normalizer is None else backend.normalizer.normalize_str(word)
    found = [text]
    if backend.pre_tokenizer is not None:
        found = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    if not found:
        raise ValueError(f"words: {word!r} has no character that the tokenizer reads. Leave it out.")
    if len(found) > 1:
        raise ValueError(
            f"words: {word!r} cannot be one entry of the vocabulary: texts are split there into "
            f"{', '.join(map(repr, found))} before words are looked up. Give words without spaces and punctuation."
        )
    (normalised,) = found
    prefix = backend.model.continuing_subword_prefix
    if prefix and normalised.startswith(prefix):
        raise ValueError(f"words: {word!r} begins with {prefix!r}, as pieces inside of words do. Give whole words.")
    longest = backend.model.max_input_chars_per_word
    if len(normalised) > longest:
        raise ValueError(
            f"words: {word[:20]!r}... has {len(normalised)} characters, and words of more than {longest} are unknown "
            "to the tokenizer. Leave it out."
        )
    return normalised
