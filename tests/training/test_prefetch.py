"""Making items ahead in another thread."""

import threading
import time

import pytest

from kbert.training.prefetch import prefetched


def _threads():
    return {thread for thread in threading.enumerate() if thread.is_alive()}


def test_items_come_in_order_and_the_thread_ends():
    before = _threads()
    assert list(prefetched(range(100), ahead=3)) == list(range(100))
    assert _threads() <= before


def test_items_are_made_ahead_and_not_too_far():
    made = []
    items = prefetched((made.append(i) or i for i in range(100)), ahead=4)
    assert next(items) == 0
    deadline = time.monotonic() + 5
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert 5 <= len(made) <= 6
    items.close()


def test_an_error_is_raised_where_the_items_are_used_after_those_before_it():
    def items():
        yield 1
        yield 2
        raise KeyError("row 3")

    before, got = _threads(), []
    with pytest.raises(KeyError, match="row 3"):
        for item in prefetched(items()):
            got.append(item)
    assert got == [1, 2] and _threads() <= before


def test_leaving_early_ends_the_thread():
    before = _threads()
    for item in prefetched(iter(int, 1), ahead=2):  # zeros without end
        assert item == 0
        break
    deadline = time.monotonic() + 5
    while not _threads() <= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _threads() <= before


def test_none_and_falsy_items_are_items():
    assert list(prefetched([None, 0, "", None])) == [None, 0, "", None]
