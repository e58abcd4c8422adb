"""Learning a vocabulary."""

import os
import random
import subprocess
import sys

import pytest

from kbert.errors import UnknownWordsWarning
from kbert.text import WordPieceTokenizer


def _texts(n_words=3000, seed=0):
    """Words of random letters in random numbers, so that many pairs of pieces are equally frequent."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyzäöüéèñ", k=draw.randint(1, 9))) for _ in range(n_words)]
    return [" ".join(draw.choices(words, k=12)) for _ in range(n_words // 6)]


def test_same_texts_give_the_same_vocabulary_in_any_process():
    code = (
        "from test_vocabulary import _texts, WordPieceTokenizer as W\n"
        "print(*W.train(_texts(), vocab_size=900).vocab, sep='\\n')"
    )
    env = os.environ | {"PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(sys.path)}
    runs = [
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True).stdout for _ in range(3)
    ]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0].decode().split() == list(WordPieceTokenizer.train(_texts(), vocab_size=900).vocab)


def test_order_of_texts_and_kind_of_iterable_do_not_matter():
    texts = _texts()
    expected = WordPieceTokenizer.train(texts, vocab_size=600)
    assert expected.vocab_size == 600
    assert WordPieceTokenizer.train(reversed(texts), vocab_size=600) == expected
    assert WordPieceTokenizer.train((text for text in texts), vocab_size=600) == expected


def test_special_tokens_first_then_letters_then_frequent_pieces():
    tokenizer = WordPieceTokenizer.train(["low lower lowest [SEP]"] * 5 + ["xyz"], vocab_size=100)
    pieces = list(tokenizer.vocab)
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert pieces.index("z") < pieces.index("##z") < pieces.index("lo") < pieces.index("low")
    assert "xy" not in pieces  # seen once
    assert "xyz" in WordPieceTokenizer.train(["xyz"], min_frequency=1).vocab


def test_casing_and_accents():
    texts = ["Äpfel Über Äpfel"] * 3
    lower, cased = WordPieceTokenizer.train(texts), WordPieceTokenizer.train(texts, lowercase=False)
    kept = WordPieceTokenizer.train(texts, strip_accents=False)
    assert lower.lowercase and not cased.lowercase and kept.lowercase
    assert "apfel" in lower.vocab and "Äpfel" in cased.vocab and "äpfel" in kept.vocab
    assert lower.encode("ÄPFEL").tokens == ["[CLS]", "apfel", "[SEP]"]
    assert cased.encode("äpfel").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_long_words():
    with pytest.warns(UnknownWordsWarning, match="98% of the letters.*textwrap"):
        tokenizer = WordPieceTokenizer.train(["ab" * 60 + " ba"] * 3)
    with pytest.raises(ValueError, match="100% of the letters of the texts stand in words of more than 100"):
        WordPieceTokenizer.train(["ab" * 60])
    assert list(tokenizer.vocab)[5:] == ["a", "b", "##a", "ba"]  # nothing is learned from the long word
    tokenizer = WordPieceTokenizer.train(["ab" * 50] * 3)
    assert tokenizer.encode("ab" * 50).tokens[1:-1] == ["ab" * 50]
    assert tokenizer.encode("ab" * 51).tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_a_small_vocabulary_holds_the_most_frequent_letters():
    tokenizer = WordPieceTokenizer.train(["eeee tttt aa o"] * 3, vocab_size=9)
    assert list(tokenizer.vocab)[5:] == ["e", "t", "##e", "##t"]


def test_errors():
    with pytest.raises(ValueError, match="single str"):
        WordPieceTokenizer.train("some text")
    with pytest.raises(ValueError, match="no word in the texts"):
        WordPieceTokenizer.train(["", " "])
    with pytest.raises(ValueError, match="vocab_size must be at least 7"):
        WordPieceTokenizer.train(["a"], vocab_size=6)
    with pytest.raises(TypeError, match="row 1 is of type float"):
        WordPieceTokenizer.train(["a", float("nan")])
    with pytest.raises(ValueError, match="row 1 holds a lone surrogate"):
        WordPieceTokenizer.train(["a", "\ud800"])
