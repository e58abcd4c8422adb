"""What is worth most where there is a GPU for a quarter of an hour, or two: some cells of several stages.

PyTorch comes first, which is kbert's first choice on a GPU. The order is that of worth: what is not measured for want
of time is what comes last. README.md has the times that are expected.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

from gpu_stages.runner import run_stage
from gpu_stages.setting import Setting

# Of training kbert-mini.
MINUTES = 6.0


class Part(NamedTuple):
    """Cells of a stage under a backend, by their names; without names all of them."""

    backend: str
    stage: str
    names: tuple[str, ...] = ()

    def has(self, cell: str) -> bool:
        """Whether a cell belongs to it."""
        return not self.names or cell in self.names


_OURS = ("base, sst2: kbert", "base, 512: kbert")
_TRAINER = ("base, 512: Trainer, SDPA, torch.compile", "base, 512: Trainer, SDPA", "base, sst2: Trainer, SDPA")
_TRAINER_PREDICT = ("base, 512: Trainer.predict", "base, sst2: Trainer.predict", "base, sst2: pipeline")
_ATTENTION = ("512: packed, kbert", "512: mask, SDPA", "512: packed, varlen", "512: packed, FlexAttention")
_KBERT_MINI = (
    "vocabulary", "shards", "training", "held-out", "sst2, pre-trained, seed 0", "sst2, random start, seed 0",
)  # fmt: skip
PARTS = (
    Part("torch", "check"),
    Part("torch", "fit", _OURS),
    Part("torch", "pretrain", ("base, 512",)),
    Part("torch", "predict", _OURS),
    Part("torch", "fit", _TRAINER),
    Part("torch", "predict", _TRAINER_PREDICT),
    Part("torch", "attention", _ATTENTION),
    Part("torch", "pretrain", ("losses", "base, 512, short texts")),
    Part("jax", "check"),
    Part("jax", "pretrain", ("losses", "base, 512")),
    Part("jax", "fit", _OURS),
    Part("jax", "predict", _OURS),
    Part("jax", "kbert-mini", _KBERT_MINI),
    Part("torch", "choice", ("kbert, seed 0", "PyTorch, seed 0")),
    Part("torch", "first-fit"),
)


def run_short(setting: Setting, seconds: float) -> list[dict[str, Any]]:
    """Measure what is not in the results yet, as far as the time goes, and give the lines that were written."""
    end = time.monotonic() + seconds
    written: list[dict[str, Any]] = []
    for part in PARTS:
        left = max(0.0, end - time.monotonic())
        lines = run_stage(part.stage, replace(setting, backend=part.backend), left, only=part.has)
        written += lines
        if any("unfinished" in line for line in lines):  # it has used up the time
            break
    return written
