"""The guard against updates that are not finite: it skips them, and ends training after several in a row."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from kbert.errors import DivergedError
from kbert.training.host_copies import host_copy
from kbert.warn import warn_user

# Skipped updates in a row after which training is given up.
_MOST_IN_A_ROW = 5
# Updates whose losses may be under way on the device before the first of them is read, so that the host need not wait.
_DELAY = 8


class LossScaler:
    """The scale of float16's loss: halved at each update that overflows, doubled after many in a row that do not.

    As PyTorch's ``GradScaler``, but with a lower first scale, so that fewer updates are skipped before the scale suits
    the model.

    Attributes
    ----------
    scale : float
        For the next update.
    """

    FIRST, LARGEST, GROWTH_INTERVAL = 2.0**12, 2.0**16, 2000

    def __init__(self) -> None:
        self.scale = self.FIRST
        self._without_overflow = 0

    def update(self, found_inf: bool) -> None:
        """Take in whether a gradient was not finite in the newest update."""
        if found_inf:
            self.scale = max(1.0, self.scale / 2)
            self._without_overflow = 0
            return
        self._without_overflow += 1
        if self._without_overflow % self.GROWTH_INTERVAL == 0:
            self.scale = min(self.LARGEST, 2 * self.scale)

    def state(self) -> list[float]:
        """For a checkpoint."""
        return [self.scale, self._without_overflow]

    def restore(self, state: list[float]) -> None:
        """Take back what `state` gave."""
        self.scale, self._without_overflow = state[0], int(state[1])


class NonFiniteGuard:
    """Reads the losses of a run's updates, of which those that were skipped have NaN.

    A loss is read some updates late, since the device may still compute it. Under float16 it is read at once: the next
    update's loss scale depends on it.

    Parameters
    ----------
    float16 : bool
        Whether the model computes in float16, whose gradients overflow unless their loss is scaled.
    remedy : str
        What to try where training diverges, for the end of "Try ...".
    """

    def __init__(self, float16: bool, remedy: str):
        self.remedy = remedy
        self._scaler = LossScaler() if float16 else None
        self._delay = 0 if float16 else _DELAY
        self._in_a_row = 0
        self._unread: deque[tuple[int, Callable[[], np.ndarray], Callable[[np.ndarray], None] | None]] = deque()

    @property
    def loss_scale(self) -> float:
        """The loss scale of the next update; 1 under every dtype but float16."""
        return 1.0 if self._scaler is None else self._scaler.scale

    def record(self, update: int, losses: Any, on_read: Callable[[np.ndarray], None] | None = None) -> None:
        """Note the losses of an update, and read those of earlier ones.

        Parameters
        ----------
        update : int
            Its number, counted from 1.
        losses : tensor
            A scalar, or a vector whose first number is the loss: NaN or infinite where the update was skipped.
        on_read : callable, optional
            Called with the numbers, an array of float64, once they are read.

        Raises
        ------
        DivergedError
            At the fifth update in a row that was skipped; under float16, once no smaller loss scale is left to try.
        """
        self._unread.append((update, host_copy(losses), on_read))
        while len(self._unread) > self._delay:
            self._read_oldest()

    def read_all(self) -> None:
        """Wait for the losses that are not read yet, and read them. Raises what `record` raises."""
        while self._unread:
            self._read_oldest()

    def _read_oldest(self) -> None:
        update, read, on_read = self._unread.popleft()
        values = np.asarray(read(), "float64")
        if on_read is not None:
            on_read(values)
        self._check(update, float(values.flat[0]))

    def _check(self, update: int, loss: float) -> None:
        found_inf = not math.isfinite(loss)
        self._in_a_row = self._in_a_row + 1 if found_inf else 0
        if self._in_a_row >= _MOST_IN_A_ROW and self.loss_scale <= 1:
            raise DivergedError(
                f"The loss or its gradients were not finite in {self._in_a_row} steps in a row. Try {self.remedy}."
            )
        if self._scaler is not None:
            self._scaler.update(found_inf)
        elif self._in_a_row == 1:
            warn_user(f"The loss of step {update} or its gradients were not finite; the step was skipped.")

    def state(self) -> dict[str, Any]:
        """For a checkpoint. All losses must have been read."""
        return {"in_a_row": self._in_a_row, "scaler": None if self._scaler is None else self._scaler.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave; the loss scale, where both runs have one. Losses not read yet are dropped."""
        self._unread.clear()
        self._in_a_row = state["in_a_row"]
        if self._scaler is not None and state["scaler"] is not None:
            self._scaler.restore(state["scaler"])
