"""How to pre-train: budget, phases, batches, optimiser, masks."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from pathlib import Path

_WHOLE = ("max_steps", "batch_size", "gradient_accumulation", "seed", "evaluate_every", "checkpoint_every", "verbose")
_REAL = ("max_seconds", "learning_rate", "weight_decay", "mask_rate", "held_out_mask_rate")
_FLAGS = ("bias_correction", "whole_word", "fixed")


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
    batch_size : int, default=256
        Rows of a batch, each filled with one or more instances. On several devices, of all of them together.
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
        If there is no budget, or both.

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
        # NumPy's numbers would be no JSON for a checkpoint, and np.int64 is no int.
        for names, plain in ((_WHOLE, int), (_REAL, float), (_FLAGS, bool)):
            for name in names:
                if (value := getattr(self, name)) is not None:
                    object.__setattr__(self, name, plain(value))
        warmup = int(self.warmup) if isinstance(self.warmup, numbers.Integral) else float(self.warmup)
        object.__setattr__(self, "warmup", warmup)
        phases = tuple((int(length), float(share)) for length, share in self.phases)
        object.__setattr__(self, "phases", phases)
