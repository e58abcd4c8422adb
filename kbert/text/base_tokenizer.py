"""A tokenizer of the library ``tokenizers`` with BERT's special tokens: its vocabulary, and how it is pickled."""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Self

from tokenizers import AddedToken, Tokenizer, decoders, processors

from kbert.text.batch_encoder import BatchEncoder
from kbert.text.files import SPECIAL_TOKENS, SpecialTokens, TokenizerSpec
from kbert.text.known_words import KnownWords
from kbert.text.new_words import unused_tokens


class BaseTokenizer:
    """Base of `WordPieceTokenizer`, which documents the parameters: the vocabulary, equality and pickling."""

    def __init__(
        self, spec: TokenizerSpec, special_tokens: SpecialTokens = SPECIAL_TOKENS, model_max_length: int | None = None
    ):
        self._special_tokens = dict(special_tokens)
        self._model_max_length = model_max_length
        backend = Tokenizer.from_str(json.dumps(spec | {"truncation": None, "padding": None, "post_processor": None}))
        names = [name for name in self._special_tokens.values() if name is not None]
        backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
        self._vocab: dict[str, int] = dict(sorted(backend.get_vocab().items(), key=itemgetter(1)))
        self._ids = {name: self._vocab[name] for name in names}
        cls, sep = self._special_tokens["cls"], self._special_tokens["sep"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(name, self._ids[name]) for name in {cls, sep} if name is not None],
        )
        if backend.decoder is None:
            backend.decoder = decoders.WordPiece(prefix=backend.model.continuing_subword_prefix)
        self._json = backend.to_str()
        self._backend = _not_found_in_texts(backend, names)
        self._vocab_size = max(self._vocab.values()) + 1
        added = self._backend.get_added_tokens_decoder().values()
        suits = KnownWords.suit(spec) and all(token.content in names for token in added)
        self._known_words = KnownWords(self._backend, self.lowercase) if suits else None
        self._columns = BatchEncoder(self._backend, self._known_words)

    @property
    def spec(self) -> TokenizerSpec:
        """A copy of the content of its ``tokenizer.json``."""
        spec: TokenizerSpec = json.loads(self._json)
        return spec

    # === The vocabulary ===

    @property
    def vocab_size(self) -> int:
        """Rows that an embedding table needs: the greatest id, added tokens included, plus one."""
        return self._vocab_size

    @property
    def vocab(self) -> dict[str, int]:
        """A copy of the vocabulary, added tokens included: piece -> id, in the order of the ids."""
        return dict(self._vocab)

    @property
    def pad_id(self) -> int:
        """Id of the padding."""
        return self._special_id("pad")

    @property
    def unk_id(self) -> int:
        """Id of unknown words."""
        return self._special_id("unk")

    @property
    def cls_id(self) -> int:
        """Id of the token at the start of every sequence."""
        return self._special_id("cls")

    @property
    def sep_id(self) -> int:
        """Id of the token at the end of every text."""
        return self._special_id("sep")

    @property
    def mask_id(self) -> int | None:
        """Id of the mask, or None if the vocabulary has none."""
        name = self._special_tokens["mask"]
        return None if name is None else self._ids[name]

    def _special_id(self, role: str) -> int:
        name = self._special_tokens[role]
        assert name is not None  # only the mask may be missing
        return self._ids[name]

    @property
    def n_unused(self) -> int:
        """Unused entries of the vocabulary, which `with_words` can give to new words."""
        return len(unused_tokens(self.spec))

    @property
    def lowercase(self) -> bool:
        """Whether upper and lower case are the same."""
        normalizer = self._backend.normalizer
        return normalizer is not None and normalizer.normalize_str("A") == "a"

    @property
    def model_max_length(self) -> int | None:
        """The longest sequence, in tokens, of the model that the tokenizer came with; None if it is not known."""
        return self._model_max_length

    def id_to_token(self, i: int) -> str | None:
        """The piece of an id, or None."""
        if not 0 <= i < 2**32:
            return None
        piece: str | None = self._backend.id_to_token(int(i))
        return piece

    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, or None."""
        i: int | None = self._backend.token_to_id(token)
        return i

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text that ids stand for. Casing, accents and spaces may differ from the original text.

        Parameters
        ----------
        ids : iterable of int
        skip_special_tokens : bool, default=True
            Whether [CLS], [SEP], [PAD] and the like are left out.

        Returns
        -------
        str

        Raises
        ------
        ValueError
            If a number is negative.
        """
        numbers = [int(i) for i in ids]
        if numbers and min(numbers) < 0:
            raise ValueError(f"The ids of pieces must not be negative, got {min(numbers)}.")
        text: str = self._backend.decode(numbers, skip_special_tokens=skip_special_tokens)
        return text

    # === Python's protocols ===

    def __getstate__(self) -> dict[str, Any]:
        # Not the library's own pickle, which loses the setting that special tokens in texts are ordinary characters.
        return {"json": self._json, "special_tokens": self._special_tokens, "model_max_length": self._model_max_length}

    def __setstate__(self, state: dict[str, Any]) -> None:
        BaseTokenizer.__init__(self, json.loads(state["json"]), state["special_tokens"], state["model_max_length"])

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BaseTokenizer):
            return NotImplemented
        return self._json == other._json and self._special_tokens == other._special_tokens

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, lowercase={self.lowercase})"


def _not_found_in_texts(backend: Tokenizer, names: list[str]) -> Tokenizer:
    """The tokenizer that reads these special tokens in a text as characters, and finds every other added token."""
    added = backend.get_added_tokens_decoder().values()
    if any(token.special and token.content not in names for token in added):
        spec = json.loads(backend.to_str())
        for token in spec["added_tokens"]:
            token["special"] = token["content"] in names
        backend = Tokenizer.from_str(json.dumps(spec))
    backend.encode_special_tokens = True
    return backend
