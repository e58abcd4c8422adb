"""The table of short words finds what was put in, and nothing else, however full it is."""

import numpy as np
import pytest

from kbert.text.word_table import LONGEST, WordTable, keys_of, windows_of

ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)


def keys(words):
    """The keys of words given as bytes."""
    data = np.frombuffer(b"".join(words) + bytes(LONGEST), np.uint8)
    lengths = np.array([len(word) for word in words])
    return keys_of(windows_of(data), np.cumsum(lengths) - lengths, lengths)


@pytest.fixture(scope="module")
def words():
    rng = np.random.default_rng(0)
    made = {rng.choice(ALPHABET, rng.integers(1, LONGEST + 1)).tobytes() for _ in range(20_000)}
    return sorted(made | {b"a" * n for n in range(1, LONGEST + 1)})


def test_words_that_begin_alike_have_different_keys(words):
    assert len(set(zip(*map(np.ndarray.tolist, keys(words)), strict=True))) == len(words)


def test_words_are_found_while_it_grows(words):
    table, all_keys = WordTable(), keys(words)
    order = np.random.default_rng(1).permutation(len(words))
    numbers = np.arange(len(words))
    for some in np.array_split(order, [1, 2, 100, 3000, 3001, 12_000]):
        assert (table.numbers_of(*(key[some] for key in all_keys)) == -1).all()
        table.add(*(key[some] for key in all_keys), numbers[some])
        known = order[: len(table)]
        np.testing.assert_array_equal(table.numbers_of(*(key[known] for key in all_keys)), known)
        others = order[len(table) :]
        assert (table.numbers_of(*(key[others] for key in all_keys)) == -1).all()
    assert len(table) == len(words)


def test_words_for_one_slot_are_all_kept(words, monkeypatch):
    monkeypatch.setattr(WordTable, "_slot", staticmethod(lambda mixed, n_slots: np.full(len(mixed), n_slots - 2)))
    table, all_keys = WordTable(), keys(words[:300])
    table.add(*all_keys, np.arange(300))
    np.testing.assert_array_equal(table.numbers_of(*all_keys), np.arange(300))
    assert (table.numbers_of(*keys(words[300:400])) == -1).all()
