"""The WordPiece tokenizer of BERT, immutable, on the Rust library ``tokenizers``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kbert import hub
from kbert.errors import WeightsMismatchError
from kbert.text.base_tokenizer import BaseTokenizer
from kbert.text.batch_encoder import Offsets
from kbert.text.files import SPECIAL_TOKENS, bert_spec, read_tokenizer, write_tokenizer
from kbert.text.new_words import with_words, words_to_add
from kbert.text.ragged import Ragged
from kbert.text.sequences import build_sequences
from kbert.text.vocabulary import count_words, learn_vocabulary
from kbert.values.surrogates import require_no_surrogates


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
        The number of the word that a piece belongs to, counted in its own text from 0; None for special tokens.
    offsets : list of (int, int)
        Where a piece begins and ends in its own text as it was given, in characters, the end exclusive; (0, 0) for
        special tokens.
    """

    ids: list[int]
    tokens: list[str]
    segment_ids: list[int]
    word_ids: list[int | None]
    offsets: list[tuple[int, int]]


class WordPieceTokenizer(BaseTokenizer):
    """BERT's tokenizer: text to word pieces, and their ids.

    Make one with `train` or `from_pretrained`. It never changes, so that threads may share it. The name of a special
    token that stands in a text, such as "[SEP]", is read as ordinary characters. Other tokens that were added to a
    vocabulary, such as markers of entities, are found in texts.

    Parameters
    ----------
    spec : dict
        The content of a ``tokenizer.json``. Its truncation, padding and post-processor are ignored.
    special_tokens : dict of str
        The names of the special tokens under the keys "pad", "unk", "cls", "sep" and "mask": [PAD], [UNK], [CLS], [SEP]
        and [MASK] by default. The mask may be None.
    model_max_length : int, optional
        The longest sequence, in tokens, of the model that the tokenizer came with. It is stored and saved, and limits
        nothing.

    Examples
    --------
    >>> from kbert import WordPieceTokenizer
    >>> texts = ["the cat sat", "the cats sit"] * 10
    >>> tokenizer = WordPieceTokenizer.train(texts, vocab_size=40)
    >>> encoding = tokenizer.encode("The cat sits")
    >>> encoding.tokens
    ['[CLS]', 'the', 'cat', 'sit', '##s', '[SEP]']
    >>> encoding.offsets
    [(0, 0), (0, 3), (4, 7), (8, 11), (11, 12), (0, 0)]

    A batch of texts, as `BertEncoder` takes it:

    >>> batch = tokenizer(["The cat", "The cat sits"])
    >>> {name: array.shape for name, array in batch.items()}
    {'token_ids': (2, 6), 'segment_ids': (2, 6), 'position_ids': (2, 6), 'text_ids': (2, 6)}
    """

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 30522,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        min_frequency: int = 2,
        n_unused: int = 0,
    ) -> WordPieceTokenizer:
        """Learn a vocabulary from texts. The same texts always give the same vocabulary.

        Parameters
        ----------
        texts : iterable of str
            Read once, in a stream.
        vocab_size : int, default=30522
            Greatest number of pieces, special tokens ([PAD], [UNK], [CLS], [SEP] and [MASK]) and unused tokens
            included. Few texts give fewer. A smaller vocabulary splits more words, and makes a smaller model.
        lowercase : bool, default=True
            Whether upper and lower case are the same. False for cased models, for instance for names or for German.
        strip_accents : bool, optional
            Whether letters with and without accents are the same. None means the same as ``lowercase``, as in the
            original code.
        min_frequency : int, default=2
            How often two neighbouring pieces must occur to be merged.
        n_unused : int, default=0
            Number of entries "[unused0]", "[unused1]" and so on, which occur in no text and which `with_words` can give
            to new words later. As in Google's vocabularies, the first 99 stand between [PAD] and [UNK], and the others
            after [MASK]; 994 of them have the ids of bert-base-uncased.

        Returns
        -------
        WordPieceTokenizer

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
    def from_pretrained(cls, name: str | Path, revision: str | None = None) -> WordPieceTokenizer:
        """Read the tokenizer of a weights folder.

        ``tokenizer.json`` is read if there is one. With a ``vocab.txt`` alone, as in Google's own folders, casing and
        accents follow ``tokenizer_config.json``; without such a file, a vocabulary with capital letters is cased. Words
        of more than 100 characters are then [UNK], as in the Hugging Face tokenizer.

        Parameters
        ----------
        name : str or Path
            A folder, a size such as "base", or a hub name.
        revision : str, optional
            Branch, tag or commit of a hub repository; None is its main branch.

        Returns
        -------
        WordPieceTokenizer

        Raises
        ------
        WeightsNotFoundError
            If there is no such folder, or no tokenizer in it.
        WeightsMismatchError
            If a file is malformed, is not a WordPiece tokenizer, or asks for more time or memory than any model needs.
        """
        files = read_tokenizer(hub.resolve_folder(name, revision=revision))
        try:
            tokenizer = cls(files.spec, files.special_tokens, files.model_max_length)
            # Some faults the library finds only in a text.
            tokenizer.encode("A small test, é 東京.")
            return tokenizer
        except BaseException as error:
            # The library has no errors of its own. What it panics of is no Exception, and its class cannot be imported.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise WeightsMismatchError(
                f"{files.path} is not a tokenizer that the tokenizers library can read ({error}). Copy or download the "
                "folder again, or update the library: pip install -U tokenizers."
            ) from None

    def save(self, folder: str | Path) -> None:
        """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``vocab.txt``, which transformers reads too.

        ``vocab.txt`` is left out if it cannot hold the vocabulary: if ids are missing, or a piece has a line break.

        Parameters
        ----------
        folder : str or Path
            Made if there is none.
        """
        path = Path(os.path.expanduser(folder))
        write_tokenizer(path, json.loads(self._json), self._special_tokens, self.lowercase, self._model_max_length)

    def with_words(self, words: Iterable[str]) -> WordPieceTokenizer:
        """A tokenizer that has these words as whole pieces, in place of unused tokens of the vocabulary ("[unusedN]").

        Every other piece keeps its id, and the vocabulary its size. Longer words that begin with a new one may be split
        in another way than before, since WordPiece takes the longest piece first.

        Parameters
        ----------
        words : iterable of str
            Lower and upper case, accents and spaces around a word are treated as in texts. Words that are one piece
            already change nothing.

        Returns
        -------
        WordPieceTokenizer
            A new one; this one does not change.

        Raises
        ------
        ValueError
            If there are fewer unused tokens than new words, or an item is no single word: texts are split at
            punctuation, so "covid-19" is three words.
        TypeError
            If a word is not a str.
        """
        new = words_to_add(words, self._backend, self.unk_id)
        if not new:
            return self
        spec = with_words(json.loads(self._json), new)
        return WordPieceTokenizer(spec, self._special_tokens, self._model_max_length)

    # === Texts to tokens ===

    def encode(self, text: str, pair: str | None = None) -> Encoding:
        """The tokens of one text or pair, special tokens included and nothing cut off.

        Parameters
        ----------
        text : str
        pair : str, optional
            The second text of a pair.

        Returns
        -------
        Encoding

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
        """The token ids of many texts, without special tokens and with nothing cut off; on all cores.

        Parameters
        ----------
        texts : iterable of str
            A list, an array, a Series: n_rows texts.
        name : str, default="texts"
            What error messages call the texts.
        first_row : int, default=0
            The number of the first row in error messages, if the texts are a chunk of a column.

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
        return self._columns.ids(texts, name, first_row)

    def tokenize_with_offsets(
        self, texts: Iterable[str], name: str = "texts", first_row: int = 0
    ) -> tuple[Ragged, NDArray[np.int32]]:
        """The token ids of many texts as `tokenize_column` gives them, and where each token stands in its text.

        Parameters
        ----------
        texts, name, first_row
            As in `tokenize_column`.

        Returns
        -------
        ids : Ragged
            n_rows rows of ids.
        offsets : ndarray of int32, shape (n_ids, 2)
            The first character of each token and the one after its last, in its text as it was given.

        Raises
        ------
        ValueError, TypeError
            As in `tokenize_column`.
        """
        return self._columns.ids_and_offsets(texts, name, first_row)

    def split_words(self, texts: Iterable[str]) -> tuple[list[list[str]], list[Offsets]]:
        """The words of each text as the tokenizer finds them: it splits at spaces and punctuation, and around CJK
        characters.

        Parameters
        ----------
        texts : iterable of str
            n_rows texts.

        Returns
        -------
        words : list of list of str
            The words of each text, as they stand there.
        offsets : list of list of (int, int)
            Where each word begins and ends in its text, in characters, the end exclusive.

        Raises
        ------
        ValueError, TypeError
            As in `tokenize_column`.
        """
        return self._columns.words(texts)

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """How often each word occurs in texts; counted on all cores.

        Words are counted as they are looked up in the vocabulary: normalised, and split at spaces and punctuation.
        Words that are too long for the tokenizer are left out.

        Parameters
        ----------
        texts : iterable of str
            Read once, in a stream.

        Returns
        -------
        dict of int
            Word -> count, in alphabetical order.

        Raises
        ------
        ValueError, TypeError
            As in `tokenize_column`.
        """
        return count_words(texts, self._backend)

    def __call__(
        self, texts: Iterable[str], pairs: Iterable[str] | None = None, max_length: int = 128
    ) -> dict[str, NDArray[np.int32]]:
        """Texts or pairs as BertEncoder's inputs, one in each row, padded to the longest one.

        Parameters
        ----------
        texts : iterable of str
            The first texts; B of them.
        pairs : iterable of str, optional
            The second texts, as many. None if the rows are single texts.
        max_length : int, default=128
            Greatest length of a row in tokens, special tokens included. Longer texts are truncated at the end; of
            a longer pair the longer text loses tokens first. The model's ``max_position_embeddings`` (512 for BERT) is
            the limit.

        Returns
        -------
        dict of ndarray of int32, each of shape (B, T)
            ``token_ids``, ``segment_ids`` (1 on the second text of a pair), ``position_ids`` and ``text_ids`` (1 on
            tokens, 0 on padding), as in `TokenSequences.padded`.

        Raises
        ------
        ValueError
            If a text cannot be tokenised, the columns differ in length, or ``max_length`` is too small.
        TypeError
            If a row is not a str.
        """
        return build_sequences(self, texts, pairs, max_length).padded(pad_id=self.pad_id)
