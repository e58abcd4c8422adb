"""How much of a batch is real tokens, over an epoch: padding to 128, length buckets, and packing.

KBERT_DATA=... python benchmarks/padding.py
"""

import csv
import os
from pathlib import Path

import numpy as np
import pandas as pd

from kbert.data.batches import TrainingBatches
from kbert.text import WordPieceTokenizer, build_sequences

BATCH_SIZE, MAX_LENGTH = 32, 128
# The lengths that buckets are padded to: each is a shape to compile.
BUCKETS = np.array([16, 24, 32, 48, 64, 96, 128])


def columns(task: str) -> list[list[str]]:
    """The texts of a training part."""
    folder = Path(os.environ["KBERT_DATA"]) / task
    if task == "imdb":
        return [pd.read_csv(folder / "train.csv.gz").text.tolist()]
    frame = pd.read_csv(folder / "train.tsv.gz", sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, dtype=str)
    return [frame[name].tolist() for name in {"sst2": ["sentence"], "mrpc": ["#1 String", "#2 String"]}[task]]


def length_buckets(lengths: np.ndarray, batch_size: int, seed: int = 0) -> list[tuple[np.ndarray, int]]:
    """The other way: batches of texts of nearly one length, from pools of 50 batches, and what each is padded to."""
    order = np.random.default_rng(seed).permutation(len(lengths))
    steps = []
    for start in range(0, len(order), 50 * batch_size):
        pool = order[start : start + 50 * batch_size]
        pool = pool[np.argsort(-lengths[pool], kind="stable")]
        steps += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    return [(texts, int(BUCKETS[np.searchsorted(BUCKETS, lengths[texts].max())])) for texts in steps]


def main() -> None:
    tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
    rows = []
    for task in ("sst2", "mrpc", "imdb"):
        sequences = build_sequences(tokenizer, *columns(task), max_length=MAX_LENGTH)
        lengths = sequences.lengths
        buckets = length_buckets(lengths, BATCH_SIZE)
        batches = TrainingBatches(sequences, BATCH_SIZE, 0)
        packed = [batch.inputs["token_ids"] for batch in batches.epoch(0)]
        real = lengths.sum()
        rows.append({
            "data": task, "texts": len(lengths), "mean length": round(lengths.mean(), 1),
            "padded to 128": f"{real / (len(lengths) * MAX_LENGTH):.1%}",
            "buckets": f"{real / sum(len(texts) * length for texts, length in buckets):.1%}",
            "bucket shapes": len({(len(texts), length) for texts, length in buckets}),
            "packed": f"{real / sum(array.size for array in packed):.1%}",
            "packed shapes": len({array.shape for array in packed}),
        })  # fmt: skip
    print(f"Share of real tokens over an epoch, batch {BATCH_SIZE}, max_length {MAX_LENGTH}")
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
