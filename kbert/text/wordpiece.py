"""The WordPiece tokenizer of BERT, immutable, on the Rust library ``tokenizers``."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import index, itemgetter
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, processors

from kbert import hub
from kbert.errors import WeightsMismatchError
from kbert.text.chunks import chunks
from kbert.text.files import SPECIAL_TOKENS, bert_spec, read_tokenizer, write_tokenizer
from kbert.text.known_words import KnownWords
from kbert.text.new_words import unused_tokens, with_words, words_to_add
from kbert.text.sequences import Ragged, build_sequences, row_splits, text_list
from kbert.text.vocabulary import count_words, learn_vocabulary, require_no_surrogates

# What is tokenised at a time. The library's own results take about a hundred bytes a token.
_CHUNK_ROWS = 2**14
_CHUNK_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class Encoding:
    """The tokens of one text, or of a pair of texts, special tokens included.

    Attributes
    ----------
    ids : list of int
        Token ids.
    tokens : list of str
        The pieces themselves.
    segment_ids : list of int
        0 for [CLS], the first text and its [SEP]; 1 for the second text and its [SEP].
    word_ids : list of int or None
        Which word of its own text a piece belongs to; None for special tokens.
    offsets : list of (int, int)
        Where in its own text, as it was given, a piece begins and ends, in characters; (0, 0) for special tokens.
    """

    ids: list[int]
    tokens: list[str]
    segment_ids: list[int]
    word_ids: list[int | None]
    offsets: list[tuple[int, int]]


class WordPieceTokenizer:
    """BERT's tokenizer: text to word pieces, and their ids.

    Make one with `train` or `from_pretrained`. It never changes, so that threads may share it. Text is data: a special
    token's name, such as "[SEP]", typed in a text is ordinary characters. Other tokens that were added to a vocabulary,
    such as markers of entities, are found in texts.

    Parameters
    ----------
    spec : dict
        The content of a ``tokenizer.json``. Its truncation, padding and post-processor are passed over.
    special_tokens : dict of str
        The names of the special tokens under "pad", "unk", "cls", "sep" and "mask".
    model_max_length : int, optional
        The longest sequence of the model that the tokenizer came with, if known.
    """

    def __init__(
        self, spec: dict, special_tokens: dict[str, str | None] = SPECIAL_TOKENS, model_max_length: int | None = None
    ):
        self._special_tokens = dict(special_tokens)
        self._model_max_length = model_max_length
        backend = Tokenizer.from_str(json.dumps(spec | {"truncation": None, "padding": None, "post_processor": None}))
        names = [name for name in self._special_tokens.values() if name is not None]
        backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
        cls, sep = self._special_tokens["cls"], self._special_tokens["sep"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(name, backend.token_to_id(name)) for name in {cls, sep}],
        )
        if backend.decoder is None:
            backend.decoder = decoders.WordPiece(prefix=backend.model.continuing_subword_prefix)
        self._json = backend.to_str()
        self._backend = _text_is_data(backend, names)
        self._ids = {role: name and backend.token_to_id(name) for role, name in self._special_tokens.items()}
        self._vocab = dict(sorted(backend.get_vocab().items(), key=itemgetter(1)))
        self._vocab_size = max(self._vocab.values()) + 1
        added = self._backend.get_added_tokens_decoder().values()
        suits = KnownWords.suit(spec) and all(token.content in names for token in added)
        self._known_words = KnownWords(self._backend, self.lowercase) if suits else None

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 30522,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        min_frequency: int = 2,
        n_unused: int = 0,
    ) -> "WordPieceTokenizer":
        """Learn a vocabulary from texts. The same texts always give the same vocabulary.

        Parameters
        ----------
        texts : iterable of str
            Read once, in a stream.
        vocab_size : int
            Greatest number of pieces, the special tokens [PAD], [UNK], [CLS], [SEP] and [MASK] (ids 0 to 4 without
            unused ones) and the unused ones included.
        lowercase : bool
            Whether upper and lower case are the same.
        strip_accents : bool, optional
            Whether letters with and without accents are the same; None, as in the original, means as ``lowercase``.
        min_frequency : int
            How often two neighbouring pieces must occur to become one.
        n_unused : int
            Pieces "[unused0]", "[unused1]" and so on, which no text has, to be given to new words later. As in Google's
            vocabularies, the first 99 stand between [PAD] and [UNK], others behind [MASK]: 994 are those of
            bert-base-uncased, id for id.

        Raises
        ------
        ValueError
            If there is no word in the texts, ``vocab_size`` is too small, ``n_unused`` is negative, or a text holds a
            lone surrogate.
        TypeError
            If a text is not a str.
        """
        if isinstance(texts, str):
            raise ValueError("texts is a single str, and many texts are wanted. Put it in a list: [texts].")
        if index(n_unused) < 0:
            raise ValueError(f"n_unused must be at least 0, got {n_unused}.")
        pad, *others = SPECIAL_TOKENS.values()
        unused = [f"[unused{i}]" for i in range(n_unused)]
        names = [pad, *unused[:99], *others, *unused[99:]]
        plain = {name: i for i, name in enumerate(names)}
        spec = bert_spec(plain, SPECIAL_TOKENS["unk"], lowercase, strip_accents, tokenize_chinese_chars=True)
        spec["model"]["vocab"] = learn_vocabulary(
            texts, vocab_size, min_frequency, names, Tokenizer.from_str(json.dumps(spec))
        )
        return cls(spec)

    @classmethod
    def from_pretrained(cls, name: str | Path, revision: str | None = None) -> "WordPieceTokenizer":
        """Open the tokenizer of a weights folder.

        ``tokenizer.json`` is read first. With a ``vocab.txt`` alone, as in Google's own folders, casing and accents
        follow ``tokenizer_config.json``; where it does not say, a vocabulary with capital letters is cased. Words of
        more than 100 characters are then [UNK], as in Hugging Face's own tokenizer.

        Parameters
        ----------
        name : str or Path
            A folder, a named size or a hub name.
        revision : str, optional
            Branch, tag or commit of a hub name.

        Raises
        ------
        WeightsNotFoundError
            If there is no such folder, or no tokenizer in it.
        WeightsMismatchError
            If a file is malformed, or is not a WordPiece tokenizer.
        """
        files = read_tokenizer(hub.resolve_folder(name, revision=revision))
        try:
            return cls(files.spec, files.special_tokens, files.model_max_length)
        except Exception as error:  # the library has no errors of its own
            raise WeightsMismatchError(
                f"{files.path} is not a tokenizer that the tokenizers library can read ({error}). Copy or download the "
                "folder again, or update the library: pip install -U tokenizers."
            ) from None

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``vocab.txt``, which transformers opens too.

        ``vocab.txt`` is left out where it could not say the same: ids are missing, or a piece holds a line break.
        """
        write_tokenizer(
            Path(folder), json.loads(self._json), self._special_tokens, self.lowercase, self._model_max_length
        )

    def with_words(self, words: Iterable[str]) -> "WordPieceTokenizer":
        """A tokenizer that has these words whole, in the places that the vocabulary keeps free ("[unusedN]").

        Every other piece keeps its id, and the vocabulary its size. Longer words that begin with a new one are split
        otherwise than before, since the longest piece is taken first.

        Parameters
        ----------
        words : iterable of str
            Lower and upper case, accents and spaces around a word are treated as in texts. Words that the vocabulary
            has whole already are left alone.

        Returns
        -------
        WordPieceTokenizer
            A new one; this one stays as it is.

        Raises
        ------
        ValueError
            If there are fewer unused places than new words, or a word is none: where texts are split at punctuation,
            "covid-19" is three.
        TypeError
            If a word is not a str.
        """
        new = words_to_add(words, self, self._backend)
        if not new:
            return self
        spec = with_words(json.loads(self._json), new)
        return WordPieceTokenizer(spec, self._special_tokens, self._model_max_length)

    @property
    def spec(self) -> dict:
        """A copy of the content of its ``tokenizer.json``."""
        return json.loads(self._json)

    # === The vocabulary ===

    @property
    def vocab_size(self) -> int:
        """Rows that an embedding table needs: the greatest id, of added tokens too, plus one."""
        return self._vocab_size

    @property
    def vocab(self) -> dict[str, int]:
        """A copy of the vocabulary, added tokens included: piece -> id, in the order of the ids."""
        return dict(self._vocab)

    @property
    def pad_id(self) -> int:
        """Id of the padding."""
        return self._ids["pad"]

    @property
    def unk_id(self) -> int:
        """Id of unknown words."""
        return self._ids["unk"]

    @property
    def cls_id(self) -> int:
        """Id of the token at the start of every row."""
        return self._ids["cls"]

    @property
    def sep_id(self) -> int:
        """Id of the token at the end of every text."""
        return self._ids["sep"]

    @property
    def mask_id(self) -> int | None:
        """Id of the mask, or None if the vocabulary has none."""
        return self._ids["mask"]

    @property
    def n_unused(self) -> int:
        """Places that are free for new words: see `with_words`."""
        return len(unused_tokens(json.loads(self._json)))

    @property
    def lowercase(self) -> bool:
        """Whether upper and lower case are the same."""
        normalizer = self._backend.normalizer
        return normalizer is not None and normalizer.normalize_str("A") == "a"

    @property
    def model_max_length(self) -> int | None:
        """The longest sequence of the model that the tokenizer came with, or None."""
        return self._model_max_length

    def id_to_token(self, i: int) -> str | None:
        """The piece of an id, or None."""
        return self._backend.id_to_token(int(i))

    def token_to_id(self, token: str) -> int | None:
        """The id of a piece, or None."""
        return self._backend.token_to_id(token)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Put pieces together to text again; casing, accents and spacing are not always those of the original."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=skip_special_tokens)

    # === Texts to tokens ===

    def encode(self, text: str, pair: str | None = None) -> Encoding:
        """The tokens of one text or pair, special tokens included and nothing cut off.

        Raises
        ------
        ValueError
            If a text holds a lone surrogate.
        TypeError
            If a text is not a str.
        """
        for name, value in (("text", text), ("pair", pair)):
            if not isinstance(value, str) and not (name == "pair" and value is None):
                raise TypeError(f"{name} must be a str, got {type(value).__name__}. For many texts call the tokenizer.")
            require_no_surrogates(value or "", name)
        encoded = self._backend.encode(text, pair)
        return Encoding(encoded.ids, encoded.tokens, encoded.type_ids, encoded.word_ids, encoded.offsets)

    def tokenize_column(self, texts: Iterable[str], name: str = "texts", first_row: int = 0) -> Ragged:
        """The token ids of many texts, without special tokens and with nothing cut off; in parallel.

        Parameters
        ----------
        texts : iterable of str
            A list, an array, a Series: n_rows texts.
        name : str
            What error messages call the texts.
        first_row : int
            What error messages call the first row.

        Returns
        -------
        Ragged
            n_rows rows of ids.

        Raises
        ------
        ValueError
            If this is a single str or no column, or a text holds a lone surrogate.
        TypeError
            If a row is not a str.
        """
        rows = text_list(texts, name)
        lengths, values = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for chunk in _chunks(rows):
            ids = self._known_words.tokenize(rows[chunk]) if self._known_words else None
            if ids is None:
                ids = _ragged([row.ids for row in self._encoded(rows, chunk, name, first_row, fast=True)])
            lengths.append(ids.lengths)
            values.append(ids.values)
        return Ragged(np.concatenate(values), np.cumsum(np.concatenate(lengths)))

    def tokenize_with_offsets(
        self, texts: Iterable[str], name: str = "texts", first_row: int = 0
    ) -> tuple[Ragged, np.ndarray]:
        """The token ids of many texts as `tokenize_column` gives them, and where each stands in its text.

        Parameters
        ----------
        texts, name, first_row
            As in `tokenize_column`.

        Returns
        -------
        ids : Ragged
            n_rows rows of ids.
        offsets : ndarray of int32, shape (n_ids, 2)
            The first character of each and the one after its last, of the text as it was given.
        """
        rows = text_list(texts, name)
        lengths, values, offsets = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)]
        for chunk in _chunks(rows):
            encoded = self._encoded(rows, chunk, name, first_row, fast=False)
            lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
            n_ids = int(lengths[-1].sum())
            values.append(np.fromiter(chain.from_iterable(row.ids for row in encoded), np.int32, n_ids))
            places = chain.from_iterable(chain.from_iterable(row.offsets for row in encoded))
            offsets.append(np.fromiter(places, np.int32, 2 * n_ids).reshape(-1, 2))
        return Ragged(np.concatenate(values), np.cumsum(np.concatenate(lengths))), np.concatenate(offsets)

    def _encoded(self, rows: list[str], chunk: slice, name: str, first_row: int, fast: bool) -> list:
        """Some rows, as the library encodes them; fast means without offsets."""
        encode = self._backend.encode_batch_fast if fast else self._backend.encode_batch
        try:
            return encode(rows[chunk], add_special_tokens=False)
        except TypeError:
            # Looked for only now, because it is rare and looking takes time.
            for row in range(chunk.start, chunk.stop):
                require_no_surrogates(rows[row], f"{name}: row {first_row + row}")
            raise

    def split_words(self, texts: Iterable[str]) -> tuple[list[list[str]], list[list[tuple[int, int]]]]:
        """The words of each text, as the tokenizer sees them: at spaces, at punctuation, around CJK characters.

        Parameters
        ----------
        texts : iterable of str

        Returns
        -------
        words : list of list of str
            As they stand in the text.
        offsets : list of list of (int, int)
            Where in its text each begins and ends, in characters.

        Raises
        ------
        ValueError, TypeError
            As in `tokenize_column`.
        """
        rows = text_list(texts)
        words, offsets = [], []
        for chunk in _chunks(rows):
            for text, encoded in zip(rows[chunk], self._encoded(rows, chunk, "texts", 0, fast=False), strict=True):
                spans: list[tuple[int, int]] = []
                last = None
                for word, (start, end) in zip(encoded.word_ids, encoded.offsets, strict=True):
                    if word == last:
                        start = spans.pop()[0]
                    spans.append((start, end))
                    last = word
                words.append([text[start:end] for start, end in spans])
                offsets.append(spans)
        return words, offsets

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """How often each word occurs in texts, which are read once, in a stream, and counted on all cores.

        Words are what is looked up in the vocabulary: normalised, and split at spaces and punctuation. Those too long
        for it are left out.

        Raises
        ------
        ValueError, TypeError
            As in `tokenize_column`.
        """
        return count_words(texts, self._backend)

    def __call__(
        self, texts: Iterable[str], pairs: Iterable[str] | None = None, max_length: int = 128
    ) -> dict[str, np.ndarray]:
        """Texts or pairs as BertEncoder's inputs, padded to the longest row.

        Parameters
        ----------
        texts : iterable of str
            The first texts; B of them.
        pairs : iterable of str, optional
            The second texts, as many.
        max_length : int
            Greatest length in tokens. Of longer pairs the longer text loses tokens first.

        Returns
        -------
        dict of ndarray of int32, each of shape (B, T)
            ``token_ids``, ``segment_ids``, ``position_ids`` and ``text_ids``, as in `TokenSequences.padded`.

        Raises
        ------
        ValueError
            If a text cannot be tokenised, the columns differ in length, or ``max_length`` is too small.
        TypeError
            If a row is not a str.
        """
        return build_sequences(self, texts, pairs, max_length).padded(pad_id=self.pad_id)

    # === Python's protocols ===

    def __getstate__(self) -> dict:
        # The library's own pickles forget that special tokens in a text are ordinary characters.
        return {"json": self._json, "special_tokens": self._special_tokens, "model_max_length": self._model_max_length}

    def __setstate__(self, state: dict) -> None:
        self.__init__(json.loads(state["json"]), state["special_tokens"], state["model_max_length"])

    def __copy__(self) -> "WordPieceTokenizer":
        return self

    def __deepcopy__(self, memo: dict) -> "WordPieceTokenizer":
        return self

    def __eq__(self, other) -> bool:
        if not isinstance(other, WordPieceTokenizer):
            return NotImplemented
        return self._json == other._json and self._special_tokens == other._special_tokens

    def __hash__(self) -> int:
        return hash(self._json)

    def __repr__(self) -> str:
        return f"WordPieceTokenizer(vocab_size={self.vocab_size}, lowercase={self.lowercase})"


def _ragged(rows: list[list[int]]) -> Ragged:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    splits = row_splits(lengths)
    return Ragged(np.fromiter(chain.from_iterable(rows), np.int32, int(splits[-1])), splits)


def _chunks(rows: list[str]) -> Iterator[slice]:
    """What is tokenised at a time."""
    return chunks(np.fromiter(map(len, rows), np.int64, len(rows)), _CHUNK_ROWS, _CHUNK_CHARACTERS)


def _text_is_data(backend: Tokenizer, names: list[str]) -> Tokenizer:
    """The tokenizer that finds none of these special tokens in a text, but every other token that was added."""
    added = backend.get_added_tokens_decoder().values()
    if any(token.special and token.content not in names for token in added):
        spec = json.loads(backend.to_str())
        for token in spec["added_tokens"]:
            token["special"] = token["content"] in names
        backend = Tokenizer.from_str(json.dumps(spec))
    backend.encode_special_tokens = True
    return backend
