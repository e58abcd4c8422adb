"""What bfloat16 costs in score: fits in float32 and in bfloat16 on the same rows, over seeds.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/bfloat16.py [--rows 1000] [--tasks sst2]

minilm-l6, the paper's recipe with three epochs, on the first rows of SST-2, CoLA, MRPC and CoNLL-2003. The scores are
those of the dev sets: accuracy, Matthews' correlation, F1 and entity F1. Each fit is appended to
benchmarks/results/bfloat16.csv; the means over the seeds, and their spread, are printed and written to
bfloat16_table.csv. A fit that is in the file is not made again.
"""

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import keras
import pandas as pd
from results_file import ResultsFile, made_with
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from kbert import BertClassifier, BertTagger, datasets, metrics

RESULTS = Path(__file__).parent / "results" / "bfloat16.csv"
TASKS = {"sst2": accuracy_score, "cola": matthews_corrcoef, "mrpc": partial(f1_score, pos_label="1"),
         "conll2003": metrics.entity_f1}  # fmt: skip


def score(task: str, dtype: str, rows: int, seed: int) -> dict:
    """One fit, and its score on the dev set."""
    train = datasets.load(task, "train").sample(frac=1, random_state=0)[:rows]
    dev = datasets.load(task, "dev")
    *inputs, label = ("words", "tags") if task == "conll2003" else train.columns
    X, y = train[inputs[0]] if len(inputs) == 1 else train[inputs], train[label]
    kind = BertTagger if task == "conll2003" else BertClassifier
    start = time.perf_counter()
    model = kind.paper("minilm-l6", epochs=3, dtype=dtype, random_state=seed).fit(X, y)
    seconds = time.perf_counter() - start
    predicted = model.predict(dev[inputs[0]] if len(inputs) == 1 else dev[inputs])
    found = {"score": round(float(TASKS[task](dev[label], predicted)), 4), "fit_s": round(seconds, 4), **made_with()}
    return {"task": task, "dtype": dtype, "rows": rows, "seed": seed, **found}


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread over the seeds, float32 beside bfloat16."""
    lines = runs.groupby(["task", "rows", "dtype"], sort=False).agg(mean=("score", "mean"), spread=("score", "std"))
    return lines.round(3).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = ResultsFile(RESULTS, "task", "dtype", "rows", "seed", "backend")
    for task in options.tasks:
        for seed in options.seeds:
            for dtype in ("float32", "bfloat16"):
                run = {"task": task, "dtype": dtype, "rows": options.rows, "seed": seed}
                if {**run, "backend": keras.backend.backend()} not in results:
                    results.append(row := score(**run))
                    print(row, flush=True)
    frame = table(results.read())
    frame.to_csv(RESULTS.with_name("bfloat16_table.csv"), index=False)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
