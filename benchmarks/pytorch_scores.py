"""GLUE with plain PyTorch and transformers, on the same rows and at the same settings as examples/glue.py.

    KBERT_DATA=... python benchmarks/pytorch_scores.py mrpc rte --seeds 0 1 2

minilm-l6, batch 32, learning rate 5e-5, length 128, 3 epochs (SST-2: 1), dynamic padding with length grouping, AdamW
(decay 0.01, not on biases and LayerNorm), 10% warm-up, then linear decay, clip 1.0, bfloat16 where that is faster;
STS-B by squared error on its scores of 0 to 5. Runs go to the same CSV as kbert's, under the backend
"pytorch-transformers", and are not made twice.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from pytorch_loop import DEVICE, prepared, train

from kbert.hub import resolve_folder

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import glue

RESULTS = Path(__file__).parent / "results" / "glue.csv"
EPOCHS = {"sst2": 1}


def fit(run: dict[str, Any], texts: pd.DataFrame, labels: pd.Series) -> Any:
    """Fine-tune; a function from texts to labels or, for STS-B, to numbers; with ``logits=True`` to logits."""
    folder = resolve_folder(run["size"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    classes, targets = np.unique(labels, return_inverse=True)
    regression = run["task"] == "stsb"
    torch.manual_seed(run["seed"])
    # With one output, transformers takes the squared error.
    n_outputs = 1 if regression else len(classes)
    model = prepared(transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=n_outputs))
    targets = torch.tensor(labels.to_numpy("float32") if regression else targets, device=DEVICE)

    def encode(frame, rows):
        columns = [frame[name].iloc[rows].tolist() for name in frame]
        encoded = tokenizer(*columns, truncation=True, max_length=run["max_length"], padding=True, return_tensors="pt")
        return encoded.to(DEVICE)

    lengths = np.array([len(ids) for ids in tokenizer(*[texts[name].tolist() for name in texts])["input_ids"]])
    train(model, lengths, run, lambda rows: model(**encode(texts, rows), labels=targets[rows]).loss)

    def predict(frame, logits=False):
        parts = [np.arange(i, min(i + 64, len(frame))) for i in range(0, len(frame), 64)]
        with torch.no_grad():
            found = np.concatenate([model(**encode(frame, rows)).logits.float().cpu().numpy() for rows in parts])
        if logits:
            return found
        return found[:, 0] if regression else classes[found.argmax(-1)]

    return predict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=glue.TASKS, metavar="task", help=", ".join(glue.TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rows", type=int, help="train on so many rows only")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for task in options.tasks:
        train, dev = glue.load(task, "train", options.rows), glue.load(task, "dev")
        fixed = ("pytorch-transformers", "gpu" if DEVICE == "cuda" else "cpu", "minilm-l6", "auto", 128)
        values = (task, *fixed, len(train[0]), len(dev[0]), EPOCHS.get(task, 3), 32, 5e-5)
        for seed in options.seeds:
            run = {**dict(zip(glue.SETTING, values, strict=True)), "seed": seed}
            if glue.find(options.results, run) is None:
                start = time.perf_counter()
                predict = fit(run, *train)
                seconds = time.perf_counter() - start
                scores = glue.dev_scores(task, predict, *dev)
                glue.append(options.results, run, scores, seconds, torch.__version__)
    print(glue.table(glue.read(options.results), {}, best_only=False).to_string(index=False))


if __name__ == "__main__":
    main()
