"""Scores of minilm-l6 on GLUE tasks at the settings of a plain PyTorch loop: batch 32, rate 5e-5, length 128.

    KBERT_DATA=... python benchmarks/scores.py [--task mrpc cola sst2] [--seed 0 1 2]

Each finished (task, seed, backend) is appended to benchmarks/results/scores.csv; those that stand there are not run
again. With --table nothing is run: the means are printed beside PyTorch's.
"""

import argparse
import csv
import datetime
import os
import time
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

RESULTS = Path(__file__).parent / "results" / "scores.csv"
COLUMNS = """
task seed backend epochs metric score accuracy f1
fit_s rows dev_rows date kbert keras backend_version
""".split()

# Task: text columns, label column, epochs, the metric that counts.
TASKS = {
    "mrpc": (["#1 String", "#2 String"], "Quality", 3, "accuracy"),
    "cola": (["sentence"], "label", 3, "mcc"),
    "sst2": (["sentence"], "label", 1, "accuracy"),
}

# A plain PyTorch loop with the settings of benchmarks/pytorch_scores.py, one seed (PyTorch 2.13, transformers 5.23).
PYTORCH = {"mrpc": {"accuracy": 0.772}, "cola": {"mcc": 0.289}, "sst2": {"accuracy": 0.896}}


def read(task: str, part: str) -> pd.DataFrame:
    """One part of a task, labels as text."""
    path = Path(os.environ["KBERT_DATA"]) / task / f"{part}.tsv.gz"
    return pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, dtype=str)


def run(task: str, seed: int) -> dict:
    """Fine-tune and score on dev."""
    import keras

    from kbert import BertClassifier

    texts, label, epochs, _ = TASKS[task]
    train, dev = read(task, "train"), read(task, "dev")
    classifier = BertClassifier(
        "minilm-l6", epochs=epochs, batch_size=32, learning_rate=5e-5, max_length=128, random_state=seed, verbose=1
    )
    start = time.perf_counter()
    classifier.fit(train[texts], train[label])
    seconds = time.perf_counter() - start
    predicted = classifier.predict(dev[texts])
    backend = keras.backend.backend()
    return result(task, seed, backend, version(backend), seconds, train, dev, predicted)


def result(task: str, seed: int, backend: str, backend_version: str, seconds: float, train, dev, predicted) -> dict:
    """A row of the results."""
    _, label, epochs, metric = TASKS[task]
    scores = {
        "accuracy": accuracy_score(dev[label], predicted),
        "f1": f1_score(dev[label], predicted, pos_label="1"),
        "mcc": matthews_corrcoef(dev[label], predicted),
    }
    return {
        "task": task, "seed": seed, "backend": backend, "epochs": epochs, "metric": metric,
        "score": round(scores[metric], 4), "accuracy": round(scores["accuracy"], 4), "f1": round(scores["f1"], 4),
        "fit_s": round(seconds), "rows": len(train), "dev_rows": len(dev), "date": datetime.date.today().isoformat(),
        "kbert": version("kbert"), "keras": version("keras"), "backend_version": backend_version,
    }  # fmt: skip


def append(row: dict) -> None:
    """Add a row to the results."""
    RESULTS.parent.mkdir(exist_ok=True)
    pd.DataFrame([row])[COLUMNS].to_csv(RESULTS, mode="a", header=not RESULTS.exists(), index=False)
    print(row, flush=True)


def done() -> set[tuple]:
    """What stands in the results."""
    if not RESULTS.exists():
        return set()
    return set(pd.read_csv(RESULTS)[["task", "seed", "backend"]].itertuples(index=False, name=None))


def table() -> pd.DataFrame:
    """Mean and spread over seeds of all that has been run; written beside the results, for the documentation."""
    rows = pd.read_csv(RESULTS).groupby(["task", "metric", "backend"])
    rows = rows.score.agg(["count", "mean", "std", "min", "max"]).rename(columns={"count": "seeds"})
    rows = rows.reset_index().round(4)
    rows["PyTorch, one seed"] = [PYTORCH[task][metric] for task, metric in zip(rows.task, rows.metric, strict=True)]
    rows.to_csv(RESULTS.with_name("scores_table.csv"), index=False)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        for task in options.task:
            for seed in options.seed:
                backend = os.environ.get("KERAS_BACKEND", "tensorflow")
                if (task, seed, backend) in done():
                    continue
                append(run(task, seed))
    print(table().to_string(index=False))


if __name__ == "__main__":
    main()
