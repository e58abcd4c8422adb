"""Each token of a sequence is traced to its word, as the tokenizer itself tells for a single text."""

import numpy as np
import pytest

from kbert import WordPieceTokenizer
from kbert.text import build_sequences, build_windows
from kbert.text.tracing import TracingTokenizer

LETTERS = [
    "a",
    "b",
    "é",
    "e\u0301",
    "東",
    "😀",
    "\u200d",
    "\x00",
    " ",
    "\n",
    "[SEP]",
    "##",
    "ing",
    "İ",
    "ß",
    "א",
    "!",
    "\xad",
]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["a b ab ing é 東 ß א !"] * 20, vocab_size=100)


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(LETTERS, rng.integers(30))) for _ in range(300)]


def test_tokens_and_words_of_odd_texts_are_the_tokenizers(tokenizer, texts):
    trace = TracingTokenizer(tokenizer)
    sequences, words = trace.ids_and_words(build_sequences(trace, texts, texts[::-1], 512))
    expected = build_sequences(tokenizer, texts, texts[::-1], 512)
    np.testing.assert_array_equal(sequences.tokens.values, expected.tokens.values)
    np.testing.assert_array_equal(sequences.first_length, expected.first_length)
    for row, pair in enumerate(zip(texts, texts[::-1], strict=True)):
        encoding = tokenizer.encode(*pair)
        own = words[slice(*sequences.splits[row : row + 2])]
        for segment, (text, column) in enumerate(zip(pair, trace.columns, strict=True)):
            first, end = column.splits[row : row + 2]
            inside = [
                i for i, word in enumerate(encoding.word_ids) if word is not None and encoding.segment_ids[i] == segment
            ]
            order = list(dict.fromkeys(encoding.word_ids[i] for i in inside))
            assert (own[inside] - first).tolist() == [order.index(encoding.word_ids[i]) for i in inside]
            assert end - first == len(order)
            spans = column.offsets[first - trace.columns[segment].splits[0] :][: len(order)].tolist()
            assert [text[a:b] for a, b in spans] == tokenizer.split_words([text])[0][0]


def test_windows_of_a_text_repeat_its_words(tokenizer):
    trace = TracingTokenizer(tokenizer)
    _, words = trace.ids_and_words(build_windows(trace, ["a b ing ab é"], None, 5, 2))
    assert words.tolist() == [-1, 0, 1, 2, -1, -1, 2, 3, 4, -1]
