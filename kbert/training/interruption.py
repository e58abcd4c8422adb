"""A run that is asked to stop, by Ctrl-C or by the cluster that wants its machine back, first finishes its step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interruption:
    """Holds SIGINT and SIGTERM back until the run has finished its step and written a checkpoint.

    A second one is not held back. Only Python's main thread is sent signals: elsewhere nothing is changed.

    Parameters
    ----------
    active : bool
        Whether to do so at all.
    """

    def __init__(self, active: bool):
        self._active = active and threading.current_thread() is threading.main_thread()
        self._before: dict[int, Any] = {}
        self._number: int | None = None

    @property
    def came(self) -> bool:
        """Whether there was a signal."""
        return self._number is not None

    def __enter__(self) -> Self:
        if self._active:
            for number in (signal.SIGINT, signal.SIGTERM):
                # None is a handler that was not set from Python, and could not be put back.
                if signal.getsignal(number) not in (None, signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, error: type[BaseException] | None = None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
        if self._number is not None and error is None:  # it came when the run had nothing left to finish
            number, self._number = self._number, None
            signal.raise_signal(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        is_second, self._number = self.came, number
        if is_second:
            self.pass_on()

    def pass_on(self) -> None:
        """Let a signal that came do what it would have done without this."""
        if self._number is not None:
            number, self._number = self._number, None
            self.__exit__()
            signal.raise_signal(number)
            # A handler of the user's own may let the run go on.
            self.__enter__()
