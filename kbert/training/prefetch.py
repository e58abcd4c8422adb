"""Batches made ahead, in a thread beside the one that trains."""

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

_END = object()
Item = TypeVar("Item")


def prefetched(items: Iterable[Item], ahead: int = 4) -> Generator[Item, None, None]:
    """The same items, made up to ``ahead`` in advance in another thread. An error in making one is raised here.

    The first two are made in the calling thread: starting another for one short text takes longer than its tokens do.
    """
    items = iter(items)
    done = threading.Event()
    ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=max(ahead, 2))

    def put(result: tuple[Any, BaseException | None]) -> None:
        while not done.is_set():
            try:
                ready.put(result, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        result: tuple[Any, BaseException | None] = None, None
        while result[0] is not _END and not done.is_set():
            result = _next(items, BaseException)
            put(result)

    thread = threading.Thread(target=work, daemon=True)
    try:
        for _ in range(2):
            result = _next(items, Exception)  # Ctrl-C, which comes to this thread alone, ends it at once
            ready.put(result)
            if result[0] is _END:
                break
        else:
            thread.start()
        del result  # only the queue holds an item until it is used
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        done.set()
        if thread.ident is not None:
            thread.join()


def _next(items: Iterator[Any], errors: type[BaseException]) -> tuple[Any, BaseException | None]:
    """The next item beside None; after the last one ``_END``, beside the error that ended them, if one did."""
    try:
        return next(items), None
    except StopIteration:
        return _END, None
    except errors as error:
        return _END, error
