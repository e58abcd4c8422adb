"""Cutting rows into chunks of bounded size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbert.text.chunks import chunks


@given(sizes=st.lists(st.integers(0, 9), max_size=40), most_rows=st.integers(1, 9), most_size=st.integers(1, 30))
def test_every_row_once_and_no_chunk_too_large(sizes, most_rows, most_size):
    found = list(chunks(sizes, most_rows, most_size))
    assert [i for rows in found for i in range(rows.start, rows.stop)] == list(range(len(sizes)))
    for rows in found:
        assert 1 <= rows.stop - rows.start <= most_rows
        assert sum(sizes[rows]) <= most_size or rows.stop - rows.start == 1
    for rows, following in zip(found, found[1:], strict=False):  # none is smaller than it has to be
        more = slice(rows.start, following.start + 1)
        assert more.stop - more.start > most_rows or sum(sizes[more]) > most_size


@pytest.mark.parametrize("sizes", [[], np.zeros(0, np.int64)])
def test_no_rows_no_chunks(sizes):
    assert list(chunks(sizes, 8, 100)) == []


def test_a_row_beyond_the_bound_is_a_chunk_of_its_own():
    assert list(chunks([5, 1000, 5, 5], 8, 10)) == [slice(0, 1), slice(1, 2), slice(2, 4)]
