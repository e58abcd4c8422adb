"""Rows of words to windows: every word has one place, the one with most context."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbert.text import WordPieceTokenizer
from kbert.text.words import WordSequences, build_word_windows


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["ab cd ef gh a b c d e f g h"], min_frequency=1)


WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=5), max_size=40)


@given(st.lists(WORDS, min_size=1, max_size=6), st.integers(4, 16), st.data())
def test_every_word_has_one_place_with_most_context(tokenizer, rows, max_length, data):
    room = max_length - 2
    stride = data.draw(st.integers(1, room))
    built = build_word_windows(tokenizer, rows, max_length=max_length, stride=stride)[0]
    assert np.diff(built.splits).tolist() == [len(row) for row in rows]
    assert sorted(built.words[built.words >= 0].tolist()) == list(range(built.n_words))
    for row, words in enumerate(rows):
        pieces = [tokenizer.encode(word).ids[1:-1] for word in words]
        tokens = [token for word in pieces for token in word]
        last = max(0, len(tokens) - room)
        starts = [*range(0, last, stride), last] if tokens else []
        windows = np.flatnonzero(built.sequences.rows == row)
        found = [built.sequences.tokens.row(window).tolist() for window in windows]
        special = tokenizer.cls_id, tokenizer.sep_id
        assert found == [[special[0], *tokens[s : s + room], special[1]] for s in starts]
        first = np.cumsum([0, *map(len, pieces)])[:-1]
        for word, position in enumerate(first):
            contexts = {
                start: min(position - start, min(start + room, len(tokens)) - 1 - position)
                for start in starts
                if start <= position < start + room
            }
            best = max(contexts, key=lambda start: (contexts[start], -start))
            window = windows[starts.index(best)]
            place = built.sequences.tokens.splits[window] + 1 + position - best
            assert built.words[place] == built.splits[row] + word


def test_words_without_pieces_are_unknown(tokenizer):
    built = build_word_windows(tokenizer, [["a", "", "\u200b\x00", "b"]])[0]
    ids = built.sequences.tokens.row(0).tolist()
    assert ids[2:4] == [tokenizer.unk_id] * 2 and built.n_words == 4


def test_rows_without_words_have_no_window(tokenizer):
    built = build_word_windows(tokenizer, [[], ["a"], []])[0]
    assert built.sequences.rows.tolist() == [1] and built.n_rows == 3 and built.n_words == 1


def test_parts_and_selections(tokenizer):
    rows = [["ab"] * 9, [], ["cd", "a"], ["h"] * 12, []]
    whole = build_word_windows(tokenizer, rows, max_length=6)[0]
    parts = WordSequences.concatenate(
        [build_word_windows(tokenizer, part, max_length=6)[0] for part in (rows[:2], rows[2:])]
    )
    for name in ("words", "splits"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    assert np.array_equal(whole.sequences.tokens.values, parts.sequences.tokens.values)
    assert np.array_equal(whole.sequences.rows, parts.sequences.rows)
    some = whole.of_rows(np.array([1, 2, 4]))
    alone = build_word_windows(tokenizer, [rows[1], rows[2], rows[4]], max_length=6)[0]
    assert np.array_equal(some.words, alone.words) and np.array_equal(some.splits, alone.splits)
    assert np.array_equal(some.sequences.tokens.values, alone.sequences.tokens.values)
    assert np.array_equal(some.sequences.rows, alone.sequences.rows)


def test_words_are_tokenised_as_transformers_tokenises_split_words(minilm_folder):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    theirs = transformers.AutoTokenizer.from_pretrained(minilm_folder)
    ours = WordPieceTokenizer.from_pretrained(minilm_folder)
    words = ["EU", "rejects", "German", "call-up", "U.N.", "naïve", "東京", "don't", "Ümit"]
    expected = theirs([words], is_split_into_words=True, truncation=False)["input_ids"][0]
    assert build_word_windows(ours, [words])[0].sequences.tokens.row(0).tolist() == expected


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("text", ["wow\u203c\ufe0f ok", "#\ufe0f\u20e3 one", "jos\u0301 a\u0301\u4e00\u0301b"])
def test_no_character_is_in_two_words(lowercase, text):
    tokenizer = WordPieceTokenizer.train(["wow ok one jose"] * 3, vocab_size=60, lowercase=lowercase)
    (words,), (spans,) = tokenizer.split_words([text])
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    assert [text[start:end] for start, end in spans] == words
    # No mark is lost.
    assert "".join(words) == text.replace(" ", "")
