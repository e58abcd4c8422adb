"""Fine-tuning for one epoch at batch 32: rows a second of kbert, and of transformers' Trainer at its best.

Sizes base, large and minilm-l6; SST-2 and rows of exactly 128, 384 and 512 tokens. Each cell fits twice, and measures
the second fit, when all is compiled that stays compiled (where ``compiles_anew``, the only one):

    rows_s          rows over the time of the whole fit, with reading, tokenising and making the model
    steady_rows_s   rows a second of the steps after the first fifth, to the end of training
    tokens_s        that times the mean number of tokens of a row, without padding
    busy, kernels   the share of the time in which the device computes, by the profiler, in the second half of the steps
                    of a further short fit, and in what; the host's share is the rest
    memory_mb       the most memory of the device that arrays had at once
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages import texts
from gpu_stages.setting import Cell, Setting

SIZES = ("base", "large", "minilm-l6")
# Rows of base on the kinds of rows; enough for some seconds.
_ROWS = {"sst2": 8192, "128": 4096, "384": 2048, "512": 1536}
# Rows for the profiler, whose record grows with every operation.
_PROFILED = 640

# How Trainer is set up, beside bfloat16, dynamic padding and grouping by length, which all have: TrainingArguments, and
# the model's options.
_GROUPED: dict[str, Any] = {"arguments": {}, "model": {"attn_implementation": "sdpa"}}
_COMPILED: dict[str, Any] = {**_GROUPED, "arguments": {"torch_compile": True}}
_LOADERS: dict[str, Any] = {**_GROUPED, "arguments": {"dataloader_num_workers": 2}}
_FLASH: dict[str, Any] = {"arguments": {}, "model": {"attn_implementation": "flash_attention_2"}}
VARIANTS = {
    "SDPA": _GROUPED,
    "SDPA, torch.compile": _COMPILED,
    "SDPA, loader processes": _LOADERS,
    "FlashAttention 2": _FLASH,
}
NO_PADDING_FREE = (
    "DataCollatorWithFlattening makes one row of a batch, and BertForSequenceClassification reads the first token of a "
    "row alone, so a classifier cannot be trained on it"
)


def cells(setting: Setting) -> list[Cell]:
    """Kbert, and under PyTorch its peers, in the order of worth: short rows of base first."""
    found = []
    for size in setting.pick(SIZES, ("base",)):
        for kind in setting.pick(tuple(texts.KINDS), ("sst2", "128")):
            options = {"size": size, "kind": kind}
            slow = 2.0 if size == "large" else 1.0
            # JAX compiles two steps, and counts memory from the start of the process.
            on_jax = setting.backend == "jax"
            found.append(Cell(f"{size}, {kind}: kbert", options, (150 if on_jax else 25) * slow, alone=on_jax))
            if setting.backend == "torch":
                for variant in VARIANTS:
                    needs = ("transformers", "accelerate", *["flash_attn"] * (variant == "FlashAttention 2"))
                    seconds = slow * (80 if "compile" in variant else 70 if kind == "sst2" else 40)
                    found.append(
                        Cell(f"{size}, {kind}: Trainer, {variant}", {**options, "variant": variant}, seconds, needs)
                    )
    if setting.backend == "torch":
        found.append(Cell("Trainer, padding-free", absent=NO_PADDING_FREE))
    return found


def measure(setting: Setting, seconds: float, size: str, kind: str, variant: str | None = None) -> dict[str, Any]:
    """One cell."""
    from gpu_stages import device

    folder = texts.weights_folder(size, setting)
    n = setting.pick(_ROWS[kind] // (3 if size == "large" else 1), 64)
    some, labels = texts.rows(kind, n, folder, setting)
    make = _kbert if variant is None else partial(_trainer, variant=variant)
    model, clock = make(folder, texts.max_length(kind, setting), setting)
    few = setting.pick(_PROFILED, 64)
    # A further Trainer compiles anew, which takes a minute or so. Then one fit has to do, of which only the steady part
    # is to be compared.
    compiles_anew = variant is not None and "compile" in variant
    first = None if compiles_anew else device.seconds_of(lambda: model.fit(some, labels))
    clock.steps.clear()
    second = device.seconds_of(lambda: model.fit(some, labels))
    tokens = tokens_of(some, folder, texts.max_length(kind, setting))
    steady, memory = clock.steady(len(some)), device.peak_memory_mb()
    clock.profile(device.Profiler(None if variant is None else True), few // 64)
    model.fit(some[:few], labels[:few])
    return {
        "rows": n,
        "tokens_of_a_row": tokens,
        "first_s": first,
        "rows_s": n / second,
        "steady_rows_s": steady,
        "tokens_s": steady * tokens,
        "memory_mb": memory,
        **clock.profile_of_steps,
        "batch_size": 32,
        "compiles_anew": compiles_anew,
    }


def tokens_of(some: list[str], folder: Path, longest: int) -> float:
    """The mean number of tokens of a row, special ones included."""
    from kbert import WordPieceTokenizer

    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    return float(np.mean([min(longest, len(tokenizer.encode(text).ids)) for text in some[:2000]]))


class Clock:
    """When each step of a training ended, for the host; `steady` counts from a fifth of them to the end of training."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.end = 0.0
        self.profile_of_steps: dict[str, Any] = {}
        self._profiler: Any = None
        self._profiled_from = 0

    def profile(self, profiler: Any, first: int) -> None:
        """Let the next training be profiled from the end of its ``first`` step on: what comes before may compile."""
        self.steps.clear()
        self._profiler, self._profiled_from = profiler, first

    def step(self) -> None:
        """A step is begun: by kbert before, by Trainer after the host has begun it."""
        self.steps.append(time.perf_counter())
        if self._profiler is not None and len(self.steps) == self._profiled_from:
            self._profiler.start()

    def stop(self) -> None:
        """All steps are done."""
        from gpu_stages import device

        device.wait()
        self.end = time.perf_counter()
        if self._profiler is not None:
            self.profile_of_steps, self._profiler = self._profiler.stop(), None

    def steady(self, n_rows: int) -> float:
        """Rows a second after the first fifth of the steps."""
        first = max(1, len(self.steps) // 5)
        share = (len(self.steps) - first) / len(self.steps)
        return share * n_rows / (self.end - self.steps[first - 1])


def _kbert(folder: Path, longest: int, setting: Setting) -> tuple[Any, Clock]:
    import keras

    from kbert import BertClassifier

    clock = Clock()

    class Told(keras.callbacks.Callback):
        # Not at its end: Keras would wait for the loss of each batch.
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            clock.step()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            clock.stop()  # the losses of all steps have been read

    class Fitted:
        """A new classifier for each fit."""

        def fit(self, some: list[str], labels: list[int]) -> None:
            classifier = BertClassifier.paper(
                weights=folder, epochs=1, max_length=longest, learning_rate=5e-5, random_state=0
            )
            classifier.fit(some, labels, callbacks=[Told()])

    return Fitted(), clock


def _trainer(folder: Path, longest: int, setting: Setting, variant: str) -> tuple[Any, Clock]:
    import contestants
    import torch
    import transformers

    clock, chosen = Clock(), VARIANTS[variant]

    class Told(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.step()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            clock.stop()

    arguments = {**chosen["arguments"], "bf16": True, "use_cpu": not torch.cuda.is_available()}
    fields = transformers.TrainingArguments.__dataclass_fields__
    by_name = "train_sampling_strategy" in fields  # of transformers 5; before, a flag
    if not by_name:
        arguments["group_by_length"] = True
    if setting.miniature and arguments.get("torch_compile"):
        arguments["torch_compile_backend"] = "eager"  # the compiler of a CPU takes minutes
    model = contestants.Trainer(folder, grouped=by_name, length=longest, model=chosen["model"], **arguments)
    model.callbacks = [Told()]
    return model, clock
