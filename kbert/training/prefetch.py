"""Batches made ahead, in a thread beside the one that trains."""

import itertools
import queue
import threading
from collections.abc import Iterable, Iterator

_END = object()


def prefetched(items: Iterable, ahead: int = 4) -> Iterator:
    """The same items, made up to ``ahead`` in advance in another thread. An error in making one is raised here.

    The first two are made in the calling thread: starting another for one short text takes longer than its tokens do.
    """
    done = threading.Event()
    ready: queue.Queue = queue.Queue(maxsize=ahead)
    made = _made(items)
    start = list(itertools.islice(made, 2))

    def put(result):
        while not done.is_set():
            try:
                ready.put(result, timeout=0.1)
                return
            except queue.Full:
                continue

    def work():
        for result in made:
            put(result)
            if done.is_set():
                return

    thread = threading.Thread(target=work, daemon=True)
    more = start[-1][0] is not _END
    if more:
        thread.start()
    try:
        for item, error in itertools.chain(start, iter(ready.get, None)):
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        done.set()
        if more:
            thread.join()


def _made(items: Iterable) -> Iterator[tuple]:
    """Each item beside None, and at the end ``_END`` beside the error that ended them, if one did."""
    error = None
    try:
        for item in items:
            yield item, None
    except GeneratorExit:
        raise
    except BaseException as raised:
        error = raised
    yield _END, error
