"""One progress bar: loss, rows per second, time left."""

import sys
from typing import Self

from tqdm.auto import tqdm

from kbert.training.step import Tensor

# How often the loss is fetched from the device, in steps.
_EVERY = 10


class Progress:
    """A bar over all rows of all epochs; nothing at all where ``verbose`` is 0, or there is no standard error."""

    def __init__(self, n_rows: int, verbose: int):
        self.bar = tqdm(total=n_rows, unit="row", desc="fit", dynamic_ncols=True) if verbose and sys.stderr else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def update(self, n_rows: int, losses: list[Tensor]) -> None:
        """Count rows as done. The loss shown is that of the step before, which is ready."""
        if self.bar is None:
            return
        if len(losses) > 1 and (len(losses) == 2 or len(losses) % _EVERY == 0):
            self.bar.set_postfix(loss=f"{float(losses[-2]):.3f}", refresh=False)
        self.bar.update(n_rows)
