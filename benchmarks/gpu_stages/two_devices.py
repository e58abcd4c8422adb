"""Two devices beside one: rows a second of fine-tuning, and tokens a second of pre-training, of base, on JAX.

Each pair has the same batches: what they are divided among is all that differs. Not on PyTorch, where a process has
one device: torchrun starts several processes, and a stage is one.
"""

from __future__ import annotations

from typing import Any

from gpu_stages import texts
from gpu_stages.setting import Absent, Cell, Setting


def cells(setting: Setting) -> list[Cell]:
    """Fits and pre-training, on one device and on all."""
    absent = "" if setting.backend == "jax" else "a process has one device under PyTorch; torchrun starts several"
    return [
        Cell(f"{what}, {who}", {"what": what, "on_all": who == "all devices"}, 60, absent=absent)
        for what in ("fit", "pretrain")
        for who in ("one device", "all devices")
    ]


def measure(setting: Setting, seconds: float, what: str, on_all: bool) -> dict[str, Any]:
    """One cell."""
    from gpu_stages import device

    if device.n_devices() < 2:
        raise Absent("there is one device")
    distribution = "auto" if on_all else None
    return (_fit if what == "fit" else _pretrain)(setting, distribution)


def _fit(setting: Setting, distribution: Any) -> dict[str, Any]:
    from gpu_stages import device
    from kbert import BertClassifier

    folder = texts.weights_folder("base", setting)
    n, batch_size = setting.pick(4096, 32), setting.pick(128, 8)
    some, labels = texts.rows("128", n, folder, setting)

    def fit() -> None:
        BertClassifier.paper(
            weights=folder, epochs=1, max_length=texts.max_length("128", setting), batch_size=batch_size,
            distribution=distribution, random_state=0,
        ).fit(some, labels)  # fmt: skip

    device.seconds_of(fit)
    return {"rows_s": n / device.seconds_of(fit), "rows": n, "batch_size": batch_size}


def _pretrain(setting: Setting, distribution: Any) -> dict[str, Any]:
    from gpu_stages.pretrain import documents, new_model
    from kbert.pretraining import Pretraining, PretrainingOptions
    from kbert.training.precision import dtype_policy

    model, tokenizer = new_model(setting, "base", dtype_policy("auto"))
    n, length = setting.pick(60, 4), setting.pick(128, 16)
    options = PretrainingOptions(max_steps=n, phases=((length, 1.0),), batch_size=setting.pick(512, 4))
    source = documents(setting)
    history = Pretraining(model, tokenizer, source, options, distribution=distribution).run()
    first = n // 5
    elapsed, tokens = (float(history[name].iloc[-1] - history[name].iloc[first]) for name in ("seconds", "tokens"))
    return {"tokens_s": tokens / elapsed, "batch_size": options.batch_size, "updates": n}
