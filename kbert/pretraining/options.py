"""How to pre-train: budget, phases, batches, optimiser, masks."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from pathlib import Path

_WHOLE = ("max_steps", "batch_size", "gradient_accumulation", "seed", "evaluate_every", "checkpoint_every", "verbose")
_REAL = ("max_seconds", "learning_rate", "weight_decay", "mask_rate")
_FLAGS = ("bias_correction", "whole_word", "fixed")


@dataclass(frozen=True)
class PretrainingOptions:
    """How to pre-train.

    Attributes
    ----------
    max_steps : int, optional
        Updates in all.
    max_seconds : float, optional
        Or the time that training may take; the schedule then follows the share of it that is used.
    phases : tuple of (int, float)
        Greatest lengths in tokens and the shares of the steps that they get (Devlin et al., 2018, appendix A.2: 128 for
        nine tenths, then 512).
    batch_size : int
        Rows of a batch, each full of one or more instances.
    gradient_accumulation : int
        Batches whose gradients are averaged into one update.
    learning_rate, warmup, weight_decay
        Peak of the schedule; a share of the updates (float) or their number (int); decay of matrices and tables.
    optimizer : {"adamw", "lamb"}
    bias_correction : bool
    mask_rate : float
    whole_word : bool
    fixed : bool
        The same instances and masks in every epoch, as in the original code with one copy of the data.
    seed : int
    evaluate_every, checkpoint_every : int
        Updates from one evaluation on held-out text, or checkpoint, to the next.
    verbose : int
        1 shows a progress bar, and notes the share of the machine's peak in the history.
    tensorboard : str or Path, optional
        Folder to which losses, accuracies and rates are written for TensorBoard, update by update.
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
