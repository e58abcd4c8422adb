"""Seconds of a prediction in rows as long as kbert makes them, and in rows of a power of two from 32 on, in turns.

    KBERT_DATA=... KERAS_BACKEND=jax python benchmarks/prediction_rows.py

minilm-l6 on one short text, on sentences of SST-2, on contexts of SQuAD cut at 384 tokens, and on texts that are all as
long as their limit; medians, in one process. The first prediction of each shape, which compiles, does not count. A line
for each is appended to benchmarks/results/prediction_rows.csv.
"""

from pathlib import Path
from statistics import median

import pandas as pd
from overheads import TEXT, classifier, long_rows, seconds, store

from kbert import datasets
from kbert.data import batches

RESULTS = Path(__file__).parent / "results" / "prediction_rows.csv"


def power_of_two(longest: int) -> int:
    return max(32, 1 << (longest - 1).bit_length())


def main() -> None:
    contexts = datasets.load("squad", "dev").context.sample(150, random_state=0).tolist()
    cases = {
        "one short text": (128, [TEXT], 60),
        "2,000 of SST-2": (128, datasets.load("sst2", "train").text[:2000].tolist(), 3),
        "150 contexts of SQuAD": (384, contexts, 3),
        "64 of 192 tokens": (192, long_rows(64, 192), 3),
        "32 of 384 tokens": (384, long_rows(32, 384), 3),
    }
    rules = {"seconds": batches.prediction_row_length, "in powers of two": power_of_two}
    fitted, lines = classifier(), []
    for name, (max_length, texts, rounds) in cases.items():
        fitted.max_length = max_length
        taken = {rule: [] for rule in rules}
        for _ in range(rounds + 1):
            for rule, batches.prediction_row_length in rules.items():
                taken[rule].append(seconds(lambda texts=texts: fitted.predict(texts)))
        lines.append({"texts": name, **{rule: median(found[1:]) for rule, found in taken.items()}})
    frame = pd.DataFrame(lines)
    store(frame.assign(ratio=frame["in powers of two"] / frame.seconds), RESULTS)


if __name__ == "__main__":
    main()
