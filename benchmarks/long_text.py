"""Reading long texts in windows against cutting them: IMDB reviews, 5,000 to train on and 5,000 others to score.

    KBERT_DATA=... python benchmarks/long_text.py [--seed 0 1 2]

minilm-l6, one epoch at batch 32, rate 5e-5, max_length 128; windows start 96 tokens apart. Both parts are drawn once
from IMDB's train part, without duplicates; the seeds are those of the training. Each finished (long_text, seed) is
appended to benchmarks/results/long_text.csv; those that stand there are not run again.
"""

import argparse
import os
import time
from pathlib import Path

import pandas as pd
from results_file import ResultsFile, made_with

RESULTS = Path(__file__).parent / "results" / "long_text.csv"
ROWS = 5000


def read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to train on and rows to score, both with as many good reviews as bad ones, or nearly."""
    reviews = pd.read_csv(Path(os.environ["KBERT_DATA"]) / "imdb" / "train.csv.gz").drop_duplicates("text")
    drawn = reviews.sample(2 * ROWS, random_state=0)
    return drawn[:ROWS], drawn[ROWS:]


def run(long_text: str, seed: int) -> dict:
    """Fine-tune and score."""
    from kbert import BertClassifier

    train, test = read()
    classifier = BertClassifier.paper(
        "minilm-l6", long_text=long_text, stride=96, epochs=1, learning_rate=5e-5, random_state=seed, verbose=1
    )
    start = time.perf_counter()
    classifier.fit(train.text, train.label)
    fitted = time.perf_counter()
    accuracy = classifier.score(test.text, test.label)
    end = time.perf_counter()
    return {
        "long_text": long_text, "seed": seed, "accuracy": round(accuracy, 4), "fit_s": round(fitted - start),
        "score_s": round(end - fitted), **made_with(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    results = ResultsFile(RESULTS, "long_text", "seed")
    for seed in parser.parse_args().seed:
        for long_text in ("truncate", "window"):
            if {"long_text": long_text, "seed": seed} not in results:
                results.append(run(long_text, seed))
    print(
        results.read()
        .groupby("long_text")
        .agg(seeds=("seed", "count"), mean=("accuracy", "mean"), std=("accuracy", "std"))
        .round(4)
    )


if __name__ == "__main__":
    main()
