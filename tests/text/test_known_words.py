"""Words that are looked up have the pieces that the tokenizer library gives, whatever the text."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import Lowercase
from unusual_texts import NASTY

from kbert import WordPieceTokenizer
from kbert.text import known_words

WORDS = "the naive cafe is a don ' t - , . ! covid 19 #tag ## e mail@host.org straße i İstanbul ΣΑΣ 中 文 42 x".split()


@pytest.fixture(scope="module", params=["uncased", "cased", "accents"])
def tokenizer(request):
    texts = [" ".join(WORDS) * 3, "café Naïve THE Covid", "abcdefghijklmnopqrstuvwxyz 0123456789"] * 5
    return WordPieceTokenizer.train(
        texts, 150, lowercase=request.param != "cased", strip_accents={"accents": False}.get(request.param)
    )


@pytest.fixture(scope="module", params=["library", "longest match"], autouse=True)
def new_words(request):
    """How words that are met for the first time are split: fewer than so many by the library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_words, "_MANY", {"library": 10**9, "longest match": 1}[request.param])
        yield


def copy_of(tokenizer):
    """One that knows no words yet."""
    fresh = WordPieceTokenizer.__new__(WordPieceTokenizer)
    fresh.__setstate__(tokenizer.__getstate__())
    return fresh


def by_the_library(tokenizer, texts):
    return [row.ids for row in tokenizer._backend.encode_batch_fast(texts, add_special_tokens=False)]


def looked_up(tokenizer, texts):
    ids = tokenizer._known_words.tokenize(texts)
    return [ids.row(i).tolist() for i in range(len(ids))]


def test_unusual_texts(tokenizer):
    for texts in (NASTY, NASTY[::-1], NASTY):
        assert looked_up(tokenizer, texts) == by_the_library(tokenizer, texts)


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NEAR_TEXT = st.lists(
    st.sampled_from([*WORDS, " ", " ", "\t", "\n", "\r", "\x0b", "\x00", "\x1c", "\x7f", "\x85", "\xa0", "\u2028",
                     "\u0301", "\u200d", "\ufffd", "É", "ǅ", "A", "z", "9", "_", "~", "[SEP]", "[MASK]"]),
    max_size=20,
).map("".join)  # fmt: skip
LONG_WORDS = st.lists(st.text("abcdehostTZ0129é", min_size=1, max_size=20), max_size=8).map(" ".join)


@settings(deadline=None, max_examples=300)
@given(texts=st.lists(ANY_TEXT | NEAR_TEXT | LONG_WORDS, max_size=6))
def test_any_texts(tokenizer, texts):
    assert looked_up(tokenizer, texts) == by_the_library(tokenizer, texts)
    column = tokenizer.tokenize_column(texts)
    assert [column.row(i).tolist() for i in range(len(texts))] == by_the_library(tokenizer, texts)


def test_words_of_every_piece_of_a_real_vocabulary(minilm_folder):
    tokenizer = WordPieceTokenizer.from_pretrained(minilm_folder)
    pieces = [piece.removeprefix("##") for piece in tokenizer.vocab]
    shuffled = np.random.default_rng(0).permutation(pieces).tolist()
    texts = [f"{piece} {piece}{other} {other.upper()}" for piece, other in zip(pieces, shuffled, strict=True)]
    ids, expected = tokenizer.tokenize_column(texts), by_the_library(tokenizer, texts)
    assert [ids.row(i).tolist() for i in range(len(texts))] == expected


def test_it_begins_anew_when_it_is_full(tokenizer, monkeypatch):
    monkeypatch.setattr(known_words, "_MOST_CHARACTERS", 500)
    monkeypatch.setattr(known_words, "_MOST_SHORT", 50)
    fresh = copy_of(tokenizer)
    known = fresh._known_words
    for start in range(0, 400, 20):
        texts = [f"a{i} the b{i} {'c' * 20}{i}" for i in range(start, start + 20)]
        assert looked_up(fresh, texts) == by_the_library(fresh, texts)
        assert len(known._words.short) <= 50 and known._words.n_characters <= 500


def test_ever_new_long_words_are_left_to_the_library(tokenizer):
    fresh = copy_of(tokenizer)
    numbers = [" ".join(f"{n:020}" for n in range(start, start + 1000)) for start in range(0, 60_000, 1000)]
    ids = fresh.tokenize_column(numbers)
    assert fresh._known_words.tokenize(["the"]) is None
    assert [ids.row(i).tolist() for i in (0, 59)] == by_the_library(fresh, [numbers[0], numbers[59]])


@pytest.mark.parametrize("word", ["w{}", "wörd{}"])
def test_many_threads_share_it(tokenizer, monkeypatch, word):
    monkeypatch.setattr(known_words, "_MOST_SHORT", 300)
    fresh = copy_of(tokenizer)
    rng = np.random.default_rng(0)
    columns = [[" ".join(word.format(n) for n in rng.integers(0, 500, 8)) for _ in range(200)] for _ in range(8)]
    wanted = [by_the_library(fresh, texts) for texts in columns]
    found = [None] * 8

    def work(i):
        found[i] = [row for start in range(0, 200, 20) for row in looked_up(fresh, columns[i][start : start + 20])]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted


@pytest.mark.parametrize("most", [3, 15, 16, 17])
def test_words_of_more_characters_than_the_tokenizer_takes_are_unknown(tokenizer, most):
    spec = json.loads(tokenizer._json)
    spec["model"]["max_input_chars_per_word"] = most
    short = WordPieceTokenizer(spec)
    texts = ["the cafe is", "abc abcd", *("a" * n for n in range(14, 19))]
    assert looked_up(short, texts) == by_the_library(short, texts)
    assert looked_up(short, ["a" * (most + 1)]) == [[short.unk_id]]


def test_another_thread_may_have_learned_the_words_meanwhile(tokenizer):
    fresh = copy_of(tokenizer)
    with ThreadPoolExecutor(2) as threads:
        with fresh._known_words._lock:
            found = [threads.submit(looked_up, fresh, ["wörd w"]) for _ in range(2)]
            time.sleep(0.3)  # both have found the words unknown, and wait to learn them
        assert [one.result() for one in found] == 2 * [by_the_library(fresh, ["wörd w"])]


def test_other_rules_and_added_tokens_are_the_librarys(tokenizer):
    assert tokenizer._known_words is not None
    library = Tokenizer.from_str(tokenizer._json)
    library.add_tokens([AddedToken("<e1>")])

    marked = WordPieceTokenizer(json.loads(library.to_str()))
    assert marked._known_words is None
    assert marked.tokenize_column(["the <e1> is"]).row(0).tolist() == by_the_library(marked, ["the <e1> is"])[0]
    library = Tokenizer.from_str(tokenizer._json)
    library.normalizer = Lowercase()
    assert WordPieceTokenizer(json.loads(library.to_str()))._known_words is None
