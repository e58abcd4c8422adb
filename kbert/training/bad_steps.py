"""Steps whose loss or gradients are not finite: told of, counted, and what they say about float16's loss scale."""

from __future__ import annotations

import math
import warnings

from kbert.errors import DivergedError

# In a row, before training is given up.
_MOST = 5
# Losses that may be under way on the device before they are looked at. Under float16 each is looked at once it is
# there, since the next step's scale depends on it.
_DELAY = 8
# float16's loss scale, halved at each step that overflows and doubled after so many in a row that do not: the numbers
# of PyTorch's GradScaler, but for the start, from which it takes no dozen skipped steps to where most models train.
_FIRST_SCALE, _GROWTH_INTERVAL = 2.0**12, 2000
_LARGEST_SCALE = 2.0**16


class BadSteps:
    """What the losses of a run have told so far.

    Parameters
    ----------
    float16 : bool
        Whether the model computes in float16, whose gradients are under a loss scale.
    remedy : str
        What to try where training diverges, for the end of "Try ...".

    Attributes
    ----------
    loss_scale : float
        For the next step; 1 where the model computes in another type.
    delay : int
        How many steps later to look at a loss.
    """

    def __init__(self, float16: bool, remedy: str):
        self.float16, self.remedy = float16, remedy
        self.loss_scale, self.delay = (_FIRST_SCALE, 0) if float16 else (1.0, _DELAY)
        self._in_a_row = self._good_in_a_row = 0

    def look_at(self, step: int, loss: float, stacklevel: int) -> None:
        """Take in the loss of a step, NaN where it or its gradients were not finite and nothing was changed.

        Raises
        ------
        DivergedError
            At the fifth bad step in a row; under float16, once no smaller scale is left to try.
        """
        if math.isfinite(loss):
            self._in_a_row = 0
            self._good_in_a_row += 1
            if self.float16 and self._good_in_a_row % _GROWTH_INTERVAL == 0:
                self.loss_scale = min(_LARGEST_SCALE, 2 * self.loss_scale)
            return
        self._in_a_row, self._good_in_a_row = self._in_a_row + 1, 0
        if self._in_a_row >= _MOST and self.loss_scale <= 1:
            raise DivergedError(
                f"The loss or its gradients were not finite in {self._in_a_row} steps in a row. Try {self.remedy}."
            )
        if self.float16:
            self.loss_scale = max(1.0, self.loss_scale / 2)
        elif self._in_a_row == 1:
            warnings.warn(
                f"The loss of step {step} or its gradients were not finite; the step was skipped.",
                stacklevel=stacklevel + 1,
            )

    def state(self) -> list[float | None]:
        """For a checkpoint."""
        return [self._in_a_row, self._good_in_a_row, self.loss_scale if self.float16 else None]

    def restore(self, state: list[float | None]) -> None:
        """Take back what `state` gave; the scale, where both runs have one."""
        self._in_a_row, self._good_in_a_row, scale = state
        if self.float16 and scale is not None:
            self.loss_scale = scale
