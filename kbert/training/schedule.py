"""The learning rate over a run, and how much of the run's budget is used."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

from kbert.errors import ParameterWarning
from kbert.warn import warn_user

# Of the peak: the rate of the first update where warm-up is a share of a time. It is the first rate of a warm-up of a
# hundred updates; how many there will be is not known yet.
_FIRST_SHARE = 0.01
# AdamW moves each weight by about the rate in an update, and the weights of a BERT have a standard deviation of 0.02 at
# the start (``initializer_range``): a higher rate writes over what a checkpoint has learned in the first update.
_HIGHEST_RATE = 0.02


def warn_of_high_rate(learning_rate: float | str) -> None:
    """Warn of a learning rate at which nothing can be learned. "auto" and the like are none."""
    if not isinstance(learning_rate, str) and learning_rate > _HIGHEST_RATE:
        warn_user(
            f"learning_rate={learning_rate:g} is so high that the first updates write over all that the weights hold. "
            'Usual are 1e-5 to 5e-4, in pre-training up to 3e-3. learning_rate="auto" chooses one.',
            ParameterWarning,
        )


@dataclass(frozen=True)
class LinearSchedule:
    """Linear warm-up to the peak, then linear decay to zero at the end of the budget.

    Parameters
    ----------
    learning_rate : float
        The peak.
    n_updates : int or None
        The budget: how many updates there are in all.
    warmup : float or int, default=0.1
        A share of the budget (float), or a number of updates (int). NumPy's numbers count as what they are.
    seconds : float or None, default=None
        The budget, where ``n_updates`` is None: the time that training may take.
    """

    learning_rate: float
    n_updates: int | None
    warmup: float | int = 0.1
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.n_updates is None) == (self.seconds is None):
            raise ValueError("The budget is n_updates or seconds, one of the two.")
        plain = int if isinstance(self.warmup, numbers.Integral) else float
        object.__setattr__(self, "warmup", plain(self.warmup))

    def share(self, n_updates: int, seconds: float = 0.0) -> float:
        """How much of the budget is used, from 0 to 1, after so many updates and so many seconds."""
        if self.n_updates is not None:
            return min(1.0, n_updates / self.n_updates)
        assert self.seconds is not None  # checked above
        return min(1.0, seconds / self.seconds)

    def __call__(self, n_updates: int, seconds: float = 0.0) -> float:
        """The rate of the next update.

        Parameters
        ----------
        n_updates : int
            Updates that were made before it.
        seconds : float, default=0.0
            Time that training has taken so far. It is read where the budget is a time.
        """
        # The first update is not wasted at rate zero, and neither is the last.
        if self.n_updates is None:
            return self.learning_rate * self._share_of_peak_by_time(n_updates, seconds)
        warmup = round(self.warmup * self.n_updates) if isinstance(self.warmup, float) else self.warmup
        if n_updates < warmup:
            return self.learning_rate * (n_updates + 1) / warmup
        return self.learning_rate * max(0.0, (self.n_updates - n_updates) / max(1, self.n_updates - warmup))

    def _share_of_peak_by_time(self, n_updates: int, seconds: float) -> float:
        used = self.share(n_updates, seconds)
        if isinstance(self.warmup, int):
            return (n_updates + 1) / self.warmup if n_updates < self.warmup else 1 - used
        if used < self.warmup:
            # With the share that this update is going to use, which is about that of the updates before it.
            return min(1.0, (used + used / n_updates) / self.warmup) if n_updates else _FIRST_SHARE
        return (1 - used) / (1 - self.warmup) if self.warmup < 1 else 1.0
