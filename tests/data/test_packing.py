"""Packing: no text lost, no row too full, and layouts that hold what they were chosen for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbert.data.packing import LENGTHS, choose_layout, pack, row_length, slots_of

some_lengths = st.lists(st.integers(1, 64), min_size=1, max_size=80)


def _assert_valid(rows, lengths, length, slots):
    assert sorted(text for row in rows for text in row) == list(range(len(lengths)))
    assert max(sum(lengths[text] for text in row) for row in rows) <= length
    assert max(map(len, rows)) <= slots
    assert min(map(len, rows)) >= 1


@given(some_lengths, st.integers(64, 200), st.integers(1, 12))
def test_each_text_is_packed_once_and_no_row_is_too_full(lengths, length, slots):
    _assert_valid(pack(np.array(lengths), length, slots), lengths, length, slots)


@given(some_lengths, st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_order_of_the_texts_changes_neither_validity_nor_the_number_of_rows(lengths, slots, random):
    shuffled = random.sample(lengths, len(lengths))
    rows = pack(np.array(shuffled), 96, slots)
    _assert_valid(rows, shuffled, 96, slots)
    assert len(rows) == len(pack(np.array(lengths), 96, slots))


@given(some_lengths)
def test_rows_are_few_where_slots_are_many(lengths):
    # Any two rows hold more than one row's length together, or the second one's texts would be in the first.
    n_rows = len(pack(np.array(lengths), 64, 64))
    assert n_rows <= 1 or n_rows < 2 * sum(lengths) / 64 + 1


@pytest.mark.parametrize("longest, length", [(1, 16), (16, 16), (17, 32), (128, 128), (129, 160), (1025, 1280)])
def test_row_lengths_are_rounded_up_to_few_values(longest, length):
    assert row_length(longest) == length


@given(st.lists(some_lengths, min_size=1, max_size=10))
def test_a_chosen_layout_holds_every_step(steps):
    steps = [np.array(step) for step in steps]
    layout = choose_layout(steps)
    assert layout.length in LENGTHS and layout.slots == slots_of(layout.length)
    rows = [pack(step, layout.length, layout.slots) for step in steps]
    for step, packed in zip(steps, rows, strict=True):
        _assert_valid(packed, step, layout.length, layout.slots)
    assert layout.rows == max(map(len, rows))


def test_a_chosen_layout_holds_the_last_of_very_many_steps():
    steps = [np.full(4, 5)] * 500 + [np.full(4, 60)]
    layout = choose_layout(steps)
    assert len(pack(steps[-1], layout.length, layout.slots)) <= layout.rows
