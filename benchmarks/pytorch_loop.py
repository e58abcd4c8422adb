"""The training loop of plain PyTorch that kbert's scores are set beside: AdamW as in the paper, dynamic padding.

It computes in bfloat16 wherever that is faster, as kbert does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from kbert.training.precision import LEAST_GAIN, bfloat16_gain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def prepared(model: torch.nn.Module) -> torch.nn.Module:
    """The model on the device; in bfloat16 where that is faster, by autocast, as Trainer with ``bf16=True`` has it."""
    model.to(DEVICE)
    if torch.cuda.is_bf16_supported() if DEVICE == "cuda" else bfloat16_gain() > LEAST_GAIN:
        model.forward = torch.autocast(DEVICE, torch.bfloat16)(model.forward)
    return model


def batches(lengths: np.ndarray, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Length grouping as transformers does it: random pools of 50 batches, each sorted by length, batches shuffled."""
    order = rng.permutation(len(lengths))
    pools = [order[start : start + 50 * size] for start in range(0, len(order), 50 * size)]
    ordered = np.concatenate([pool[np.argsort(-lengths[pool], kind="stable")] for pool in pools])
    steps = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    return [steps[i] for i in rng.permutation(len(steps))]


def keep(file: Path, parts: dict[str, Any], done: int) -> None:
    """Write the state of a run, complete or not at all."""
    part = file.with_suffix(".part")
    torch.save({**parts, "rng": torch.get_rng_state(), "done": done}, part)
    part.replace(file)


def train(
    model: torch.nn.Module,
    lengths: np.ndarray,
    run: dict[str, Any],
    loss: Callable[[np.ndarray], torch.Tensor],
    state: Path | None = None,
) -> torch.nn.Module:
    """Train a model in place: decay 0.01, not on biases and LayerNorm; 10% warm-up, then linear decay; clip 1.0.

    Parameters
    ----------
    model : torch.nn.Module
    lengths : ndarray of int, shape (n,)
        Tokens of each example.
    run : dict
        ``epochs``, ``batch_size``, ``learning_rate`` and ``seed``. With ``at_once``, the gradients of a batch are those
        of so many examples at a time, added up: less memory, and the same update but for dropout's draws.
    loss : callable
        From the numbers of the examples of a batch to their loss.
    state : path, optional
        A file that keeps the run every 50 updates. Where it is there already, the run goes on from it.

    Returns
    -------
    torch.nn.Module
        The model, set to predict.
    """
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, run["learning_rate"], eps=1e-6)
    n_steps = run["epochs"] * -(-len(lengths) // run["batch_size"])
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, n_steps // 10, n_steps)
    kept = {"model": model, "optimizer": optimizer, "schedule": schedule}
    at_once = run.get("at_once", run["batch_size"])
    done = 0
    if state is not None and state.exists():
        saved = torch.load(state)
        for name, part in kept.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["rng"])
        done = saved["done"]
    rng = np.random.default_rng(run["seed"])
    model.train()
    for epoch in range(run["epochs"]):
        for step, rows in enumerate(batches(lengths, run["batch_size"], rng), epoch * (n_steps // run["epochs"])):
            if step < done:
                continue
            for some in np.split(rows, range(at_once, len(rows), at_once)):
                (loss(some) * (len(some) / len(rows))).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if step % 50 == 49:
                print(f"epoch {epoch + 1}, step {step + 1} of {n_steps}", flush=True)
                if state is not None:
                    keep(state, {name: part.state_dict() for name, part in kept.items()}, step + 1)
    return model.eval()
