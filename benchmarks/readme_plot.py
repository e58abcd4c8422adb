"""The README's picture: accuracy on the customer messages, over five splits, of kbert and of what is simpler.

    KERAS_BACKEND=torch OMP_NUM_THREADS=1 python benchmarks/readme_plot.py

Each split has 500 rows to learn from and 125 to test on; the first is that of the page "Getting started". All
parameters are the defaults. Every score is appended to benchmarks/results/readme.csv, and one that is there is not
measured again. Then docs/benchmarks/readme.png is drawn from the file. Seconds are those of the processor, which
on one thread are what a fit takes where nothing else runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from results_file import ResultsFile, made_with
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from kbert import BertClassifier, BertVectorizer

ROOT = Path(__file__).parents[1]
MESSAGES = ROOT / "examples" / "data" / "support_messages.csv"
RESULTS = ROOT / "benchmarks" / "results" / "readme.csv"
PICTURE = ROOT / "docs" / "benchmarks" / "readme.png"
SPLITS = 5

# From the simplest to the most costly; each takes the number of the split.
METHODS: dict[str, Callable[[int], Any]] = {
    "most frequent label": lambda split: DummyClassifier(),
    "TF-IDF + LogisticRegression": lambda split: make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)),
    "BertVectorizer + LogisticRegression": lambda split: make_pipeline(
        BertVectorizer("minilm-l6"), LogisticRegression(max_iter=1000)
    ),
    "BertClassifier": lambda split: BertClassifier("minilm-l6", random_state=split),
}


def measure(split: int, method: str) -> dict[str, Any]:
    """One row of the results."""
    messages = pd.read_csv(MESSAGES)
    train, test = train_test_split(messages, test_size=0.2, stratify=messages.label, random_state=split)
    model = METHODS[method](split)
    start = time.process_time()
    model.fit(train.message, train.label)
    fitted = time.process_time()
    accuracy = model.score(test.message, test.label)
    return {
        "split": split,
        "method": method,
        "accuracy": accuracy,
        "fit_cpu_s": round(fitted - start, 2),
        "predict_cpu_s": round(time.process_time() - fitted, 2),
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
        **made_with(),
    }


def measure_all() -> None:
    """Append what is not in the file yet."""
    results = ResultsFile(RESULTS, "split", "method")
    for split in range(SPLITS):
        for method in METHODS:
            if {"split": split, "method": method} not in results:
                results.append(row := measure(split, method))
                print(*row.values(), flush=True)


def draw(results: pd.DataFrame, path: Path) -> None:
    """A bar for the mean of each method, a dot for each split."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scores = results.groupby("method").accuracy
    figure, ax = plt.subplots(figsize=(5.8, 2.4), layout="constrained")
    for place, method in enumerate(reversed(METHODS)):
        accuracy = scores.get_group(method)
        mean, spread = accuracy.mean(), accuracy.std()
        ax.barh(place, mean, height=0.62, color="#c2410c" if method == "BertClassifier" else "#cbd5e1")
        ax.plot(accuracy, [place] * len(accuracy), "o", color="#0f172a", markersize=3.5, alpha=0.75)
        ax.text(accuracy.max() + 0.03, place, f"{mean:.2f} ± {spread:.2f}", va="center", fontsize=9)
    ax.set_yticks(range(len(METHODS)), list(reversed(METHODS)))
    ax.set(xlim=(0, 1.2), xticks=[0, 0.25, 0.5, 0.75, 1], xlabel="accuracy on 125 test messages")
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    measure_all()
    draw(pd.read_csv(RESULTS), PICTURE)
