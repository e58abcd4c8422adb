"""DREAM with plain PyTorch and transformers, on the same rows as kbert and with the paper's recipe for SWAG.

    KBERT_DATA=... python benchmarks/pytorch_choice.py --rows 200 --dev-rows 200 --seeds 0 1 2

BertForMultipleChoice from minilm-l6: batch 16, learning rate 5e-5 (the paper has 2e-5, for larger models), 3 epochs,
rows of up to 512 tokens, dynamic padding with length grouping, AdamW (decay 0.01, not on biases and LayerNorm), 10%
warm-up, then linear decay, clip 1.0, bfloat16 where that is faster. An option is read as "[CLS] context [SEP]
question option [SEP]", as kbert reads it. Runs go to a CSV of the same columns as that of examples/choice.py, under
the backend "pytorch-transformers", and are not made twice.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from pytorch_loop import DEVICE, prepared
from pytorch_loop import train as train_model
from results_file import ResultsFile

import kbert
from kbert.hub import resolve_folder

sys.path.append(str(Path(__file__).parent.parent / "examples"))
import choice

RECIPE = {"max_length": 512, "epochs": 3, "batch_size": 16, "learning_rate": 5e-5}


def fit(
    folder: Path, train: pd.DataFrame, recipe: dict[str, Any], seed: int, state: Path | None = None
) -> Callable[[pd.DataFrame], np.ndarray]:
    """Fine-tune, from the file ``state`` on where it is there; a function from rows to the indices of the options."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(seed)
    model = prepared(transformers.BertForMultipleChoice.from_pretrained(folder))
    targets = torch.tensor(train.label.to_numpy(), device=DEVICE)

    def encode(frame: pd.DataFrame) -> dict[str, torch.Tensor]:
        """Arrays of shape (rows, options, tokens): all rows have the same number of options."""
        contexts = [context for context, options in zip(frame.context, frame.options, strict=True) for _ in options]
        endings = [
            f"{question} {option}"
            for question, options in zip(frame.question, frame.options, strict=True)
            for option in options
        ]
        encoded = tokenizer(
            contexts, endings, truncation=True, max_length=recipe["max_length"], padding=True, return_tensors="pt"
        )
        return {name: array.view(len(frame), -1, array.shape[-1]).to(DEVICE) for name, array in encoded.items()}

    lengths = train.context.str.len().to_numpy() + train.options.map(lambda options: max(map(len, options))).to_numpy()
    run = {**recipe, "seed": seed}

    def loss(rows: np.ndarray) -> torch.Tensor:
        return model(**encode(train.iloc[rows]), labels=targets[rows]).loss

    train_model(model, lengths, run, loss, state)

    def predict(frame: pd.DataFrame) -> np.ndarray:
        parts = [frame.iloc[start : start + 64] for start in range(0, len(frame), 64)]
        with torch.no_grad():
            return np.concatenate([model(**encode(part)).logits.argmax(-1).cpu().numpy() for part in parts])

    return predict


def main() -> None:
    """Make the runs that are not in the file yet, and print their accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rows", type=int, default=0, help="train on so many rows; 0 for all")
    parser.add_argument("--dev-rows", type=int, default=0, help="score so many rows; 0 for all")
    parser.add_argument("--max-length", type=int, default=RECIPE["max_length"])
    parser.add_argument("--epochs", type=int, default=RECIPE["epochs"])
    parser.add_argument("--size", default="minilm-l6")
    parser.add_argument("--results", type=Path, default=Path("choice_results.csv"))
    parser.add_argument("--state", type=Path, help="a folder that keeps unfinished runs, so that they go on")
    options = parser.parse_args()
    if negative := [name for name in ("rows", "dev_rows") if getattr(options, name) < 0]:
        parser.error(f"--{negative[0].replace('_', '-')} is {getattr(options, negative[0])}: give 0 for all, or more")
    results = ResultsFile(options.results)
    train, dev = choice.load("dream", "train", options.rows), choice.load("dream", "dev", options.dev_rows)
    recipe = {**RECIPE, "max_length": options.max_length, "epochs": options.epochs}
    setting = {
        "task": "dream",
        "backend": "pytorch-transformers",
        "device": "gpu" if DEVICE == "cuda" else "cpu",
        "size": options.size,
        "weights": "auto",
        **recipe,
        "rows": len(train),
        "dev_rows": len(dev),
    }
    for seed in options.seeds:
        run = {**setting, "seed": seed}
        if len(choice.find(options.results, run)):
            continue
        state = None
        if options.state:
            options.state.mkdir(parents=True, exist_ok=True)
            settled = {key: value for key, value in run.items() if key not in ("task", "weights", "backend")}
            state = options.state / ("_".join(map(str, settled.values())) + ".pt")
        resumed = state is not None and state.exists()
        start = time.perf_counter()
        predict = fit(resolve_folder(options.size), train, recipe, seed, state)
        seconds = time.perf_counter() - start
        accuracy = round(float((predict(dev) == dev.label).mean()), 4)
        scores = {"accuracy": accuracy, "fit_s": "" if resumed else round(seconds)}
        versions = {"kbert": kbert.__version__, "keras": "", "backend_version": torch.__version__}
        row = {**run, **scores, "date": datetime.date.today().isoformat(), **versions}
        results.append(row)
    print(choice.find(options.results, setting)[["seed", "accuracy", "fit_s"]].to_string(index=False))


if __name__ == "__main__":
    main()
