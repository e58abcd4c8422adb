"""Batches made ahead, in a thread beside the one that trains."""

import queue
import threading
from collections.abc import Iterable, Iterator

_END = object()


def prefetched(items: Iterable, ahead: int = 4) -> Iterator:
    """The same items, made up to ``ahead`` in advance in another thread. An error in making one is raised here."""
    done = threading.Event()
    ready: queue.Queue = queue.Queue(maxsize=ahead)

    def put(item):
        while not done.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work():
        try:
            for item in items:
                put((item, None))
                if done.is_set():
                    return
            put((_END, None))
        except BaseException as error:
            put((_END, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        done.set()
        thread.join()
