"""Making items ahead in another thread."""

import threading
import time
import weakref

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


@pytest.mark.parametrize("n", [0, 1])
def test_a_single_item_starts_no_thread(n, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("a thread was started"))
    assert list(prefetched(iter(range(n)))) == list(range(n))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_an_error_is_raised_where_the_items_are_used_after_those_before_it(n):
    def items():
        yield from range(n)
        raise KeyError(f"row {n}")

    before, got = _threads(), []
    with pytest.raises(KeyError, match=f"row {n}"):
        for item in prefetched(items()):
            got.append(item)
    assert got == list(range(n)) and _threads() <= before


@pytest.mark.parametrize("n", [0, 1])
def test_an_interrupt_in_the_first_items_is_raised_at_once(n):
    def items():
        yield from range(n)
        raise KeyboardInterrupt

    got = []
    with pytest.raises(KeyboardInterrupt):
        for item in prefetched(items()):
            got.append(item)
    assert not got


def test_items_that_were_used_are_not_kept():
    class Item:
        pass

    used = []
    for item in prefetched(Item() for _ in range(8)):
        used.append(weakref.ref(item))
        assert not any(reference() for reference in used[:-1])


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
