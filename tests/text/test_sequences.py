"""Columns of texts to rows of tokens: truncation, segments, padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbert.text import Ragged, WordPieceTokenizer, build_sequences
from kbert.text.sequences import truncated_lengths


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["a b c d e f g h"], min_frequency=1)


def _ragged(rows):
    return Ragged(np.concatenate([[], *rows]).astype(np.int32), np.cumsum([0, *map(len, rows)]))


def _popped(first, second, budget):
    """``_truncate_seq_pair`` of the original ``run_classifier.py``, word for word."""
    while True:
        total_length = len(first) + len(second)
        if total_length <= budget:
            break
        if len(first) > len(second):
            first.pop()
        else:
            second.pop()
    return len(first), len(second)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1), st.integers(2, 50))
def test_truncation_is_the_originals_popping_loop(pairs, budget):
    first, second = np.array(pairs).T
    kept = truncated_lengths(first, second, budget)
    assert list(zip(*kept, strict=True)) == [_popped([0] * a, [0] * b, budget) for a, b in pairs]


@given(st.lists(st.tuples(st.text("abc ", max_size=20), st.text("abc ", max_size=20))), st.integers(5, 20))
def test_pairs_row_by_row(tokenizer, rows, max_length):
    firsts, seconds = [a for a, _ in rows], [b for _, b in rows]
    sequences = build_sequences(tokenizer, firsts, seconds, max_length)
    n_cut = 0
    for i, (first, second) in enumerate(rows):
        a, b = first_ids(tokenizer, first), first_ids(tokenizer, second)
        kept_a, kept_b = _popped(a.copy(), b.copy(), max_length - 3)
        n_cut += kept_a + kept_b < len(a) + len(b)
        expected = [tokenizer.cls_id, *a[:kept_a], tokenizer.sep_id, *b[:kept_b], tokenizer.sep_id]
        assert sequences.tokens.row(i).tolist() == expected
        assert sequences.first_length[i] == kept_a + 2
    assert sequences.truncated.sum() == n_cut and len(sequences) == len(rows)


def first_ids(tokenizer, text):
    return tokenizer.encode(text).ids[1:-1]


def test_on_a_tie_the_second_text_is_cut(tokenizer):
    tokens = build_sequences(tokenizer, ["a b c"], ["d e f"], max_length=8)
    assert [tokenizer.id_to_token(i) for i in tokens.tokens.row(0)] == "[CLS] a b c [SEP] d e [SEP]".split()


def test_call_pads_to_the_longest_row(tokenizer):
    out = tokenizer(["a b c d", ""], ["e", "f g"], max_length=7)
    c, s, p = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
    a, b, cc, d, e, f, g = (tokenizer.token_to_id(x) for x in "abcdefg")
    assert list(out) == ["token_ids", "segment_ids", "position_ids", "text_ids"]
    assert {value.dtype for value in out.values()} == {np.dtype(np.int32)}
    assert out["token_ids"].tolist() == [[c, a, b, cc, s, e, s], [c, s, f, g, s, p, p]]
    assert out["segment_ids"].tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 0, 0]]
    assert out["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 2
    assert out["text_ids"].tolist() == [[1] * 7, [1] * 5 + [0] * 2]
    assert d not in out["token_ids"]


def test_single_texts(tokenizer):
    sequences = build_sequences(tokenizer, ["a b c d", "", "e"], max_length=4)
    assert sequences.lengths.tolist() == sequences.first_length.tolist() == [4, 2, 3]
    assert sequences.truncated.sum() == 1
    assert not sequences.padded()["segment_ids"].any()


def test_padded_picks_rows_and_length(tokenizer):
    sequences = build_sequences(tokenizer, ["a b c d", "", "e"], ["f", "", "g h"])
    out = sequences.padded([2, 0], length=9, pad_id=7)
    whole = sequences.padded(length=9, pad_id=7)
    for key, value in out.items():
        assert value.shape == (2, 9)
        np.testing.assert_array_equal(value, whole[key][[2, 0]])
    with pytest.raises(ValueError, match="length is 4.*has 8 tokens"):
        sequences.padded(length=4)


def test_no_rows(tokenizer):
    out = tokenizer([])
    assert all(value.shape == (0, 0) and value.dtype == np.int32 for value in out.values())
    assert len(build_sequences(tokenizer, ["a"], ["b"]).take([])) == 0


def test_ragged_take_is_list_indexing():
    rows = [[1, 2], [], [3], [4, 5, 6]]
    ragged = _ragged(rows)
    assert [ragged.row(i).tolist() for i in range(-1, 3)] == [[4, 5, 6], [1, 2], [], [3]]
    for indices in ([3, 0, 0, 1], [], slice(1, 3), np.array([True, False, True, False]), [-1]):
        taken = ragged.take(indices)
        assert [taken.row(i).tolist() for i in range(len(taken))] == [rows[i] for i in np.arange(4)[indices]]
        assert taken.values.dtype == np.int32 and taken.splits.dtype == np.int64
    with pytest.raises(IndexError):
        ragged.take([4])


@pytest.mark.parametrize("pairs, max_length", [(None, 2), (["b"], 4), (None, True), (None, 8.0), (None, "8")])
def test_max_length_that_cannot_be(tokenizer, pairs, max_length):
    with pytest.raises(ValueError, match="max_length must be a whole number of at least"):
        tokenizer(["a"], pairs, max_length=max_length)


def test_columns_of_different_lengths(tokenizer):
    with pytest.raises(ValueError, match="texts has 1 rows and pairs has 2"):
        tokenizer(["a"], ["b", "c"])
