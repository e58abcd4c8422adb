"""Predicting: rows a second of kbert, of Trainer.predict, the pipeline and sentence-transformers, in half precision.

Each cell predicts twice and measures the second time. Peers get the rows sorted by length, as somebody does who wants
them fast, batches of 128, and bfloat16; kbert gets them as they are. ``busy`` is the share of the time in which the
device computes, by the profiler, when a part of the rows is predicted once more; the host's share is the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages import texts
from gpu_stages.fit import tokens_of
from gpu_stages.setting import Cell, Setting

SIZES = ("base", "minilm-l6", "large")
_ROWS = {"sst2": 40_000, "128": 16_000, "384": 6_000, "512": 4_000}
BATCH = 128
# Rows for the profiler, whose record grows with every operation.
_PROFILED = 2048

# Of each, the packages that it needs, and what it gives.
PEERS = {
    "Trainer.predict": ("transformers", "accelerate"),
    "Trainer.predict, torch.compile": ("transformers", "accelerate"),
    "pipeline": ("transformers",),
    "features: sentence-transformers": ("sentence_transformers",),
}


def cells(setting: Setting) -> list[Cell]:
    """Kbert, and under PyTorch its peers."""
    found = []
    for size in setting.pick(SIZES, ("base",)):
        for kind in setting.pick(("sst2", "512", "128", "384"), ("sst2",)):
            who: dict[str, tuple[str, ...]] = {"kbert": (), "features: kbert": ()}
            if setting.backend == "torch":
                who |= PEERS
            for name, needs in who.items():
                seconds = 60.0 if "compile" in name else 35.0
                options = {"size": size, "kind": kind, "who": name}
                # JAX counts memory from the start of the process.
                alone = setting.backend == "jax"
                found.append(Cell(f"{size}, {kind}: {name}", options, seconds, needs, alone=alone))
    return found


def measure(setting: Setting, seconds: float, size: str, kind: str, who: str) -> dict[str, Any]:
    """One cell."""
    from gpu_stages import device

    folder, longest = texts.weights_folder(size, setting), texts.max_length(kind, setting)
    n = setting.pick(_ROWS[kind] // (3 if size == "large" else 1), 48)
    some, labels = texts.rows(kind, n, folder, setting)
    predict = _predictor(who, folder, longest, some, labels, setting)
    device.reset_peak_memory()  # kbert's was fitted to a few rows
    if "kbert" not in who:
        order = np.argsort([-len(text) for text in some], kind="stable")
        rows = [some[i] for i in order]
    else:
        rows = some
    first = device.seconds_of(lambda: predict(rows))
    second = device.seconds_of(lambda: predict(rows))
    tokens, memory = tokens_of(some, folder, longest), device.peak_memory_mb()
    few = rows[:: -(-n // setting.pick(_PROFILED, 32))]
    predict(few)  # its shapes are compiled now
    profile = device.profiled(lambda: predict(few), None if "kbert" in who else True)
    return {
        "rows": n,
        "tokens_of_a_row": tokens,
        "first_s": first,
        "rows_s": n / second,
        "tokens_s": n / second * tokens,
        "memory_mb": memory,
        **profile,
        "dtype": "bfloat16",
    }


def _predictor(who: str, folder: Path, longest: int, some: list[str], labels: list[int], setting: Setting) -> Any:
    """A function from texts to results."""
    import contestants

    if who == "kbert":
        from kbert import BertClassifier

        model = BertClassifier.paper(weights=folder, epochs=1, max_length=longest, random_state=0)
        return model.fit(some[:32], labels[:32]).predict
    if who == "features: kbert":
        return contestants.KbertVectorizer(folder, longest).transform
    import torch

    half: dict[str, Any] = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
    on_gpu = torch.cuda.is_available()
    if who == "pipeline":
        device = "cuda" if on_gpu else "cpu"
        return contestants.Pipeline(folder, half, batch_size=BATCH, device=device, max_length=longest).predict
    if who == "features: sentence-transformers":
        return contestants.SentenceTransformer(folder, longest, half, batch_size=BATCH).transform
    compiled = {"torch_compile": True} if "compile" in who else {}
    if compiled and setting.miniature:
        compiled["torch_compile_backend"] = "eager"
    trainer = contestants.Trainer(
        folder,
        grouped=False,
        length=longest,
        model=half,
        bf16_full_eval=True,
        use_cpu=not on_gpu,
        per_device_eval_batch_size=BATCH,
        **compiled,
    )
    trainer.prepare()
    return trainer.predict
