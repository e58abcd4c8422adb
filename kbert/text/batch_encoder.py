"""Columns of texts through the Rust library ``tokenizers``: some rows at a time, on all cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from kbert.text.chunks import text_chunks
from kbert.text.known_words import KnownWords
from kbert.text.marks import past_marks
from kbert.text.ragged import Ragged, row_splits
from kbert.values.surrogates import require_no_surrogates

# What is tokenised at a time. The library's own results take about a hundred bytes for each token.
_CHUNK_ROWS = 2**14
_CHUNK_CHARACTERS = 1_000_000
# Up to so many rows the library is quicker than `KnownWords`: 0.03 ms for one short text, which takes 0.2 ms there.
_FEW = 4

# Where the words of one text begin and end in it, in characters, the end exclusive.
Offsets = list[tuple[int, int]]


class BatchEncoder:
    """Tokenises columns of texts, without special tokens and with nothing cut off. Threads may share it.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
    known_words : KnownWords, optional
        Quicker than the library for the ids of texts; None where it does not follow the tokenizer's rules.
    """

    def __init__(self, backend: Tokenizer, known_words: KnownWords | None):
        self._backend, self._known_words = backend, known_words

    def ids(self, texts: Iterable[str], name: str, first_row: int) -> Ragged:
        """See `WordPieceTokenizer.tokenize_column`."""
        rows = text_list(texts, name)
        lengths, values = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for chunk in text_chunks(rows, _CHUNK_ROWS, _CHUNK_CHARACTERS):
            known_words = self._known_words if len(rows) > _FEW else None
            ids = None if known_words is None else known_words.tokenize(rows[chunk])
            if ids is None:
                ids = _ragged([row.ids for row in self._encoded(rows, chunk, name, first_row, with_offsets=False)])
            lengths.append(ids.lengths)
            values.append(ids.values)
        return Ragged(np.concatenate(values), np.cumsum(np.concatenate(lengths)))

    def ids_and_offsets(self, texts: Iterable[str], name: str, first_row: int) -> tuple[Ragged, NDArray[np.int32]]:
        """See `WordPieceTokenizer.tokenize_with_offsets`."""
        rows = text_list(texts, name)
        lengths, values, offsets = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)]
        for chunk in text_chunks(rows, _CHUNK_ROWS, _CHUNK_CHARACTERS):
            encoded = self._encoded(rows, chunk, name, first_row, with_offsets=True)
            lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
            n_ids = int(lengths[-1].sum())
            values.append(np.fromiter(chain.from_iterable(row.ids for row in encoded), np.int32, n_ids))
            bounds = chain.from_iterable(chain.from_iterable(row.offsets for row in encoded))
            offsets.append(np.fromiter(bounds, np.int32, 2 * n_ids).reshape(-1, 2))
        return Ragged(np.concatenate(values), np.cumsum(np.concatenate(lengths))), np.concatenate(offsets)

    def words(self, texts: Iterable[str]) -> tuple[list[list[str]], list[Offsets]]:
        """See `WordPieceTokenizer.split_words`."""
        rows = text_list(texts)
        words, offsets = [], []
        for chunk in text_chunks(rows, _CHUNK_ROWS, _CHUNK_CHARACTERS):
            encoded_rows = self._encoded(rows, chunk, "texts", 0, with_offsets=True)
            for text, encoded in zip(rows[chunk], encoded_rows, strict=True):
                spans: Offsets = []
                last = None
                for word, (start, end) in zip(encoded.word_ids, encoded.offsets, strict=True):
                    if word == last:
                        start = spans.pop()[0]
                    spans.append((start, end))
                    last = word
                if not text.isascii():
                    limits = [*(start for start, _ in spans[1:]), len(text)]  # a mark may begin a word
                    spans = [(a, min(past_marks(text, b), limit)) for (a, b), limit in zip(spans, limits, strict=False)]
                words.append([text[start:end] for start, end in spans])
                offsets.append(spans)
        return words, offsets

    def _encoded(self, rows: list[str], chunk: slice, name: str, first_row: int, with_offsets: bool) -> list[Encoding]:
        """Some rows, as the library encodes them; offsets take longer."""
        encode = self._backend.encode_batch if with_offsets else self._backend.encode_batch_fast
        try:
            encoded: list[Encoding] = encode(rows[chunk], add_special_tokens=False)
        except TypeError:
            # Looked for only now, because it is rare and looking takes time.
            for row in range(chunk.start, chunk.stop):
                require_no_surrogates(rows[row], f"{name}: row {first_row + row}")
            raise
        return encoded


def text_list(texts: Iterable[str], name: str = "texts") -> list[str]:
    """A column of texts as a list of str.

    Raises
    ------
    ValueError
        If this is no column: a single str, a mapping or a table.
    TypeError
        If a row is not a str.
    """
    if isinstance(texts, str):
        raise ValueError(f"{name} is a single str, and a column of texts is wanted. Put it in a list: [{name}].")
    if isinstance(texts, Mapping) or getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            f"{name} is a {type(texts).__name__}, and one column of texts is wanted. Select one column of it."
        )
    rows = texts if isinstance(texts, list) else list(texts)
    # The tokenizers library would take a tuple for a pair of texts. A set of types is quick, a look at each row is not.
    if not all(issubclass(kind, str) for kind in set(map(type, rows))):
        row, value = next((row, value) for row, value in enumerate(rows) if not isinstance(value, str))
        raise TypeError(
            f"{name}: row {row} is of type {type(value).__name__} ({value!r:.60}), and texts are str. Turn it into a "
            'str first; a missing text is "".'
        )
    return rows


def _ragged(rows: list[list[int]]) -> Ragged:
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    splits = row_splits(lengths)
    return Ragged(np.fromiter(chain.from_iterable(rows), np.int32, int(splits[-1])), splits)
