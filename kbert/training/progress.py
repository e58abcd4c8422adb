"""What ``verbose=1`` shows: a bar, and lines that stay. Plain text, so that a notebook turned into a page has it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Self

import numpy as np
from tqdm import tqdm

from kbert.training.step import Tensor

# How often the loss is fetched from the device, in steps.
_EVERY = 10
# A prediction shows a bar once it has taken so many seconds.
_LONG = 3.0


def say(text: str) -> None:
    """Print a line to standard output, above the bars that are shown."""
    if sys.stdout is not None:
        tqdm.write(text, file=sys.stdout)
        sys.stdout.flush()


def _bar(n_rows: int, what: str, **options: Any) -> Any:
    """A bar on standard error, or None where there is none."""
    return tqdm(total=n_rows, unit="row", desc=what, dynamic_ncols=True, **options) if sys.stderr else None


class Progress:
    """A bar over all rows of all epochs, and one line for each epoch; nothing at all where ``verbose`` is 0.

    Parameters
    ----------
    n_rows : int
        In an epoch.
    n_texts : int
        In an epoch: as many, or the windows of all rows.
    epochs, verbose : int
    """

    def __init__(self, n_rows: int, n_texts: int, epochs: int, verbose: int):
        self.n_rows, self.n_texts, self.epochs, self.verbose = n_rows, n_texts, epochs, verbose
        self.texts_done, self.n_updates, self.shown = 0, 0, dict[str, str]()
        self.before: Callable[[], np.ndarray] | None = None  # the loss of the update before, if it is to be shown
        self.epoch_began = time.perf_counter()
        self.bar: Any = _bar(n_rows * epochs, "fit") if verbose else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def update(self, n_texts: int, losses: list[Tensor]) -> None:
        """Count texts as done. The loss shown is that of the update before, for which nothing has to wait."""
        if self.bar is None:
            return
        if losses:  # none where texts were done before this process
            from kbert.training.host_copies import host_copy  # here: what predicts without Keras has this module too

            if self.before is not None:
                self._show(loss=float(self.before()))
            self.n_updates += 1
            self.before = host_copy(losses[-1]) if self.n_updates == 1 or (self.n_updates + 1) % _EVERY == 0 else None
        self.texts_done += n_texts
        self.bar.update(self.texts_done * self.n_rows // self.n_texts - self.bar.n)

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        """Print the epoch's line. ``epoch`` is counted from 0; ``logs`` are its losses, and its score if it has one."""
        if not self.verbose:
            return
        seconds, self.epoch_began = time.perf_counter() - self.epoch_began, time.perf_counter()
        if self.bar is not None and "val_score" in logs:
            self._show(val_score=logs["val_score"])
        values = "".join(f"{name} {float(value):.3f}, " for name, value in logs.items())
        say(f"epoch {epoch + 1}/{self.epochs}: {values}{seconds:.1f} s")

    def _show(self, **values: float) -> None:
        self.shown |= {name: f"{value:.3f}" for name, value in values.items()}
        self.bar.set_postfix(self.shown, refresh=False)


# The bar of the prediction that runs in this thread. A variable, and no argument, since many functions lie between the
# estimator, which has ``verbose``, and the loop over the batches.
_shown: ContextVar[PredictionProgress | None] = ContextVar("_shown", default=None)


class PredictionProgress:
    """A bar over the rows of a long prediction; nothing for one of a few seconds, or where ``verbose`` is 0.

    In a ``with`` block. What is predicted in it is told by `count_predicted`.
    """

    def __init__(self, n_rows: int, verbose: int, what: str = "predict"):
        self.n_rows, self.rows_done = n_rows, 0.0
        self.bar = _bar(n_rows, what, delay=_LONG) if verbose else None
        self.token: Token[PredictionProgress | None] | None = None

    def __enter__(self) -> Self:
        self.token = _shown.set(self)
        return self

    def __exit__(self, error: object, *_: object) -> None:
        assert self.token is not None
        _shown.reset(self.token)
        if self.bar is not None:
            if error is None:
                self.bar.update(self.n_rows - self.bar.n)  # rows without words are in no batch
            self.bar.close()

    def advance(self, rows: float) -> None:
        """Count rows as done, or shares of them."""
        if self.bar is not None:
            self.rows_done += rows
            self.bar.update(min(self.n_rows, int(self.rows_done + 1e-3)) - self.bar.n)


def is_counted() -> bool:
    """Whether there is a bar that `count_predicted` would tell."""
    progress = _shown.get()
    return progress is not None and progress.bar is not None


def count_predicted(rows: float, of: int | None = None) -> None:
    """Tell the bar, if one is shown, that rows are done; of so many in all, where they are counted in another way."""
    progress = _shown.get()
    if progress is not None:
        progress.advance(rows if of is None else rows * progress.n_rows / of)
