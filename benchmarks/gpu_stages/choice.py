"""Multiple choice on DREAM: kbert's BertMultipleChoice with its defaults, and plain PyTorch on the same rows.

minilm-l6, three seeds. PyTorch's is the loop of benchmarks/pytorch_choice.py, in bfloat16 too. ``accuracy``
is that on dev; ``fit_s`` is the time of a first fit, with compiling, and ``predict_s`` that of predicting dev.
"""

from __future__ import annotations

import time
from typing import Any

from gpu_stages import texts
from gpu_stages.setting import Absent, Cell, Setting, examples_can_be_imported

SEEDS = (0, 1, 2)
# What kbert decides by itself; the loop of PyTorch has the paper's recipe for SWAG.
SETTLED = ("max_length", "epochs", "batch_size", "learning_rate")


def cells(setting: Setting) -> list[Cell]:
    """Seed by seed: kbert, and under PyTorch the loop."""
    found = []
    for seed in setting.pick(SEEDS, (0,)):
        found.append(Cell(f"kbert, seed {seed}", {"seed": seed, "who": "kbert"}, 60))
        if setting.backend == "torch":
            found.append(Cell(f"PyTorch, seed {seed}", {"seed": seed, "who": "PyTorch"}, 90, ("transformers",)))
    return found


def measure(setting: Setting, seconds: float, seed: int, who: str) -> dict[str, Any]:
    """One cell."""
    if setting.data is None or not (setting.data / "dream").is_dir():
        raise Absent("there is no dream in the folder of KBERT_DATA")
    examples_can_be_imported()
    import choice as example

    folder = texts.weights_folder("minilm-l6", setting)
    train, dev = (example.load("dream", part, setting.pick(0, 32)) for part in ("train", "dev"))
    start = time.perf_counter()
    if who == "kbert":
        from kbert import BertMultipleChoice

        options = setting.pick({}, {"max_length": 32, "epochs": 1})
        chooser = BertMultipleChoice(weights=folder, random_state=seed, **options).fit(train, train.label)
        predict, settled = chooser.predict, {name: getattr(chooser, f"{name}_") for name in SETTLED}
    else:
        import pytorch_choice

        settled = {**pytorch_choice.RECIPE, **setting.pick({}, {"max_length": 32, "epochs": 1})}
        predict = pytorch_choice.fit(folder, train, settled, seed)
    fitted = time.perf_counter()
    accuracy = float((predict(dev) == dev.label).mean())
    return {
        "accuracy": accuracy,
        "fit_s": fitted - start,
        "predict_s": time.perf_counter() - fitted,
        "rows": len(train),
        "dev_rows": len(dev),
        "released_weights": texts.is_released("minilm-l6", setting),
        **settled,
    }
