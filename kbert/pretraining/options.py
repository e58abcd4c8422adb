"""How to pre-train: budget, phases, batches, optimiser, masks."""

from __future__ import annotations

import itertools
import math
import numbers
from dataclasses import dataclass
from pathlib import Path

from kbert.errors import ParameterWarning
from kbert.values.number_rules import MASK_RATE, OVER_0, PHASES, WARMUP, WEIGHT_DECAY, whole
from kbert.values.saved import Rule
from kbert.warn import warn_user

_RULES: dict[str, Rule] = {
    "max_steps": whole(1), "batch_size": whole(1), "gradient_accumulation": whole(1), "seed": whole(0),
    "evaluate_every": whole(1), "checkpoint_every": whole(1), "max_seconds": OVER_0, "learning_rate": OVER_0,
    "weight_decay": WEIGHT_DECAY, "mask_rate": MASK_RATE, "held_out_mask_rate": MASK_RATE, "warmup": WARMUP,
    "phases": PHASES, "optimizer": (lambda v: v in ("adamw", "lamb"), '"adamw" or "lamb"'),
}  # fmt: skip
_OPTIONAL = ("max_steps", "max_seconds", "held_out_mask_rate")
_FLAGS = ("mixed", "bias_correction", "whole_word", "fixed")
# With ``mixed``, the share of the budget after which longer rows begin to come: about when a tiny network begins to use
# the neighbouring words in a run of ten minutes, and while the learning rate is high (docs/benchmarks/pretraining.md).
_LONGER_FROM = 0.3
# Multiples of it, less their whole parts, fall evenly on the numbers from 0 to 1: no stretch of updates lacks a length.
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class PretrainingOptions:
    """How to pre-train.

    NumPy's numbers are taken too, and made plain.

    Attributes
    ----------
    max_steps : int, optional
        The budget: how many updates there are in all. Give this or ``max_seconds``.
    max_seconds : float, optional
        The budget: how long training may take. The learning rate then follows the share of the time that is used, and
        a run cannot be repeated bit for bit.
    phases : tuple of (int, float), default=((128, 1.0),)
        Lengths of the rows in tokens, and the share of the budget that each gets. Rows of 128 cost less than long ones
        and teach most; the paper's schedule is ((128, 0.9), (512, 0.1)), so that the late positions are learned too
        (Devlin et al., 2018, appendix A.2).
    mixed : bool, default=False
        False: one length after the other. True: at first all batches have the shortest rows; after three tenths of the
        updates batches of longer rows come in between, more and more often. In the whole run each length has its
        share of the updates. A batch of longer rows has fewer of them, so that it has no more tokens than one of the
        shortest.
    batch_size : int, default=256
        Rows of a batch, each filled with one or more instances; with ``mixed``, of the shortest length. On several
        devices, of all of them together.
    gradient_accumulation : int, default=1
        Batches whose gradients are averaged into one update: for large batches in little memory.
    learning_rate : float, default=1e-4
        The peak of the schedule: 1e-4 for BERT-base; smaller models learn quicker at 5e-4 or 1e-3.
    warmup : float or int, default=0.1
        Linear warm-up, after which the rate falls linearly to 0: a share of the budget (float) or a number of updates
        (int).
    weight_decay : float, default=0.01
        Decoupled decay of matrices and embedding tables; biases and LayerNorm are not decayed.
    optimizer : {"adamw", "lamb"}, default="adamw"
        "lamb" is for batches of several thousand rows.
    bias_correction : bool, default=True
        Adam's bias correction. The original code has none.
    mask_rate : float, default=0.15
        Share of the tokens that are to be predicted.
    held_out_mask_rate : float, optional
        The same of held-out text; None takes ``mask_rate``.
    whole_word : bool, default=False
        Whether words are masked with all of their pieces.
    fixed : bool, default=False
        Whether every epoch has the same instances and masks, as in the original code with one copy of the data.
    seed : int, default=0
        Of instances, masks and dropout.
    evaluate_every, checkpoint_every : int, default=1000
        Updates from one evaluation on held-out text, or one checkpoint, to the next.
    verbose : int, default=0
        1 shows a progress bar, and writes the share of the machine's peak into the history.
    tensorboard : str or Path, optional
        A folder, to which losses, accuracies and rates of every update are written for TensorBoard.

    Raises
    ------
    ValueError
        If there is no budget, or both; if a number is out of its range; or if with ``mixed`` the first length is not
        the shortest, or the others have more than 0.35 of the budget.

    Examples
    --------
    >>> from kbert.pretraining import PretrainingOptions
    >>> options = PretrainingOptions(max_steps=100_000, phases=((128, 0.9), (512, 0.1)))
    >>> options.batch_size, options.mask_rate
    (256, 0.15)
    """

    max_steps: int | None = None
    max_seconds: float | None = None
    phases: tuple[tuple[int, float], ...] = ((128, 1.0),)
    mixed: bool = False
    batch_size: int = 256
    gradient_accumulation: int = 1
    learning_rate: float = 1e-4
    warmup: float | int = 0.1
    weight_decay: float = 0.01
    optimizer: str = "adamw"
    bias_correction: bool = True
    mask_rate: float = 0.15
    held_out_mask_rate: float | None = None
    whole_word: bool = False
    fixed: bool = False
    seed: int = 0
    evaluate_every: int = 1000
    checkpoint_every: int = 1000
    verbose: int = 0
    tensorboard: str | Path | None = None

    def __post_init__(self) -> None:
        if (self.max_steps is None) == (self.max_seconds is None):
            raise ValueError("Give max_steps or max_seconds, one of the two.")
        for name, (test, wanted) in _RULES.items():
            value = getattr(self, name)
            if not (test(value) or (value is None and name in _OPTIONAL)):
                raise ValueError(f"PretrainingOptions: {name} must be {wanted}, got {value!r}.")
            # NumPy's numbers would be no JSON for a checkpoint, and np.int64 is no int.
            if isinstance(value, numbers.Real):
                object.__setattr__(self, name, int(value) if isinstance(value, numbers.Integral) else float(value))
        for name in _FLAGS:
            value = getattr(self, name)
            if value not in (True, False):  # 0 and 1 too
                raise ValueError(f"PretrainingOptions: {name} must be True or False, got {value!r}.")
            object.__setattr__(self, name, bool(value))
        object.__setattr__(self, "verbose", int(self.verbose))
        phases = tuple((int(length), float(share)) for length, share in self.phases)
        object.__setattr__(self, "phases", phases)
        if self.mixed and (phases[0][0] != min(phases)[0] or max(self._shares_at_the_end(), default=0) > 1 + 1e-9):
            raise ValueError(
                f"With mixed, the first of the phases has the shortest rows, and the others have "
                f"{(1 - _LONGER_FROM) / 2:.2f} of the budget at most; phases is {phases}."
            )

    def phase(self, n_updates: int, share: float) -> int:
        """Which of ``phases`` the next update is of.

        Parameters
        ----------
        n_updates : int
            Updates before it.
        share : float
            How much of the budget they have used.
        """
        if self.mixed:
            grown = max(0.0, share - _LONGER_FROM) / (1 - _LONGER_FROM)
            place = n_updates * _GOLDEN_RATIO % 1
            return next((phase for phase, end in enumerate(self._shares_at_the_end(), 1) if place < grown * end), 0)
        total, used = sum(share for _, share in self.phases), 0.0
        for phase, (_, share_of_phase) in enumerate(self.phases):
            used += share_of_phase / total
            # Shares such as 0.9 of 10 steps are no exact numbers.
            if share < used - 1e-9:
                return phase
        return len(self.phases) - 1

    def _shares_at_the_end(self) -> list[float]:
        """With ``mixed``, the cumulative shares of the longer lengths among the updates at the end of the budget.

        They grow linearly from 0, so in the mean over the whole budget they are those of ``phases``.
        """
        most = 2 / (1 - _LONGER_FROM) / sum(share for _, share in self.phases)
        return list(itertools.accumulate(most * share for _, share in self.phases[1:]))

    @property
    def batch_sizes(self) -> list[int]:
        """Rows of a batch in each phase."""
        if not self.mixed:
            return [self.batch_size] * len(self.phases)
        shortest = self.phases[0][0]
        return [max(1, self.batch_size // math.ceil(length / shortest)) for length, _ in self.phases]


def warn_of_long_warmup(options: PretrainingOptions) -> None:
    """Issue a ParameterWarning where the learning rate rises to the end, and never falls."""
    warmup, n_steps = options.warmup, options.max_steps
    if isinstance(warmup, int) and n_steps is not None and warmup >= n_steps > 1:
        warn_user(
            f"warmup={warmup} is a number of updates, and max_steps={n_steps}: the learning rate stays low, and is "
            f"{options.learning_rate * n_steps / warmup:.2g} at the end instead of {options.learning_rate:g}. Give a "
            "share of the budget, such as warmup=0.1.",
            ParameterWarning,
        )
