"""Long texts to overlapping windows: nothing lost, nothing twice where it need not be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbert.text import TokenSequences, WordPieceTokenizer, build_sequences, build_windows


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["a b c d e f g h"], min_frequency=1)


def ids(tokenizer, text):
    return tokenizer.encode(text).ids[1:-1]


def text_of(tokenizer, windows, window):
    """The pieces of the first and of the second text in a window."""
    tokens, first = windows.tokens.row(window).tolist(), int(windows.first_length[window])
    assert tokens[0] == tokenizer.cls_id and tokens[first - 1] == tokens[-1] == tokenizer.sep_id
    return tokens[1 : first - 1], tokens[first:-1]


LETTERS = st.text("abcdefgh", max_size=60).map(" ".join)


@given(st.lists(LETTERS, min_size=1), st.integers(3, 20), st.data())
def test_windows_of_single_texts(tokenizer, texts, max_length, data):
    room = max_length - 2
    stride = data.draw(st.integers(1, room))
    windows = build_windows(tokenizer, texts, max_length=max_length, stride=stride)
    assert windows.n_rows == len(texts) and not windows.truncated.any()
    for row, text in enumerate(texts):
        pieces = ids(tokenizer, text)
        found = [text_of(tokenizer, windows, window)[0] for window in np.flatnonzero(windows.rows == row)]
        last = max(0, len(pieces) - room)
        starts = [*range(0, last, stride), last]
        assert found == [pieces[start : start + room] for start in starts]


@given(st.lists(st.tuples(LETTERS, LETTERS), min_size=1), st.integers(5, 20), st.data())
def test_every_piece_of_a_pair_is_in_a_window(tokenizer, pairs, max_length, data):
    stride = data.draw(st.integers(1, max_length - 3))
    firsts, seconds = [a for a, _ in pairs], [b for _, b in pairs]
    windows = build_windows(tokenizer, firsts, seconds, max_length=max_length, stride=stride)
    assert windows.lengths.max() <= max_length and np.array_equal(np.unique(windows.rows), np.arange(len(pairs)))
    assert (np.diff(windows.rows) >= 0).all()
    cut = build_sequences(tokenizer, firsts, seconds, max_length=max_length)
    for row in range(len(pairs)):
        members = np.flatnonzero(windows.rows == row)
        # What fits has one window, and the first window of what does not is what truncation leaves.
        assert (len(members) > 1) == cut.truncated[row]
        assert np.array_equal(windows.tokens.row(members[0]), cut.tokens.row(row))
        assert len(set(windows.lengths[members])) == 1
        for side in (0, 1):
            pieces = ids(tokenizer, pairs[row][side])
            found = [text_of(tokenizer, windows, window)[side] for window in members]
            room = len(found[0])
            starts = [min(i * min(stride, room), len(pieces) - room) for i in range(len(members))]
            assert found == [pieces[start : start + room] for start in starts]
            assert starts[-1] == len(pieces) - room


def test_the_shorter_text_of_a_pair_is_whole_in_every_window(tokenizer):
    windows = build_windows(tokenizer, ["a b"], ["a b c d e f g h"], max_length=9, stride=2)
    found = [text_of(tokenizer, windows, window) for window in range(len(windows))]
    second = ids(tokenizer, "a b c d e f g h")
    assert found == [(ids(tokenizer, "a b"), second[start : start + 4]) for start in (0, 2, 4)]


def test_two_long_texts_of_a_pair_are_read_side_by_side(tokenizer):
    windows = build_windows(tokenizer, ["a b c d e f"], ["a b c d e f g h"], max_length=9, stride=3)
    found = [text_of(tokenizer, windows, window) for window in range(len(windows))]
    first, second = ids(tokenizer, "a b c d e f"), ids(tokenizer, "a b c d e f g h")
    assert found == [(first[start : start + 3], second[other : other + 3]) for start, other in ((0, 0), (3, 3), (3, 5))]


def test_half_of_the_length_is_the_stride_by_default(tokenizer):
    windows = build_windows(tokenizer, ["a b c d e f g h"], max_length=6)
    pieces = ids(tokenizer, "a b c d e f g h")
    assert [text_of(tokenizer, windows, window)[0] for window in range(3)] == [pieces[s : s + 4] for s in (0, 3, 4)]


@pytest.mark.parametrize("stride", [0, 5, -1, 2.5, "3", True])
def test_a_stride_that_skips_words_is_refused(tokenizer, stride):
    with pytest.raises(ValueError, match="stride must be a whole number from 1 to 4"):
        build_windows(tokenizer, ["a"], max_length=6, stride=stride)


def test_parts_of_a_column_together_are_the_column(tokenizer):
    texts = ["a b c d e f g h", "", "a b", "h g f e d c b a a a a"]
    whole = build_windows(tokenizer, texts, max_length=6)
    parts = TokenSequences.concatenate(build_windows(tokenizer, texts[i : i + 2], max_length=6) for i in (0, 2))
    assert np.array_equal(whole.tokens.values, parts.tokens.values)
    assert np.array_equal(whole.tokens.splits, parts.tokens.splits)
    assert np.array_equal(whole.rows, parts.rows) and np.array_equal(whole.first_length, parts.first_length)


def test_the_windows_of_some_rows(tokenizer):
    windows = build_windows(tokenizer, ["a b c d e f g h", "", "a b", "h g f e d"], max_length=6)
    some = windows.of_rows(np.array([0, 3]))
    assert some.rows.tolist() == [0, 0, 0, 1, 1]
    assert np.array_equal(some.tokens.row(4), windows.tokens.row(len(windows) - 1))


def test_a_lone_surrogate_is_named_by_its_row_in_the_whole_column(tokenizer):
    with pytest.raises(ValueError, match="texts: row 11"):
        build_windows(tokenizer, ["a", "\ud800"], max_length=6, first_row=10)
