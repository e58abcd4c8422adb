"""Several labels a row: which of them a row gets, by thresholds of 0.5, the default's, and tuned ones.

    KBERT_DATA=... KERAS_BACKEND=torch OMP_NUM_THREADS=1 python benchmarks/thresholds.py

Sentences of CoNLL-2003, and which of four kinds of entity each has: all of them, and those that have one at least. Two
fits of each draw: with the defaults, whose outputs are read by 0.5 and by what ``fit`` has learned, and with
``tune_thresholds=True``, which holds out a tenth of the rows. Scores are the macro F1, and the share of the rows that
get no label. Each line is appended to benchmarks/results/thresholds.csv, and one that is there is not measured again;
the table of docs/benchmarks/defaults.md has the means over the draws, benchmarks/results/thresholds_table.csv.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from first_fit import DATA, Data, drawn
from results_file import ResultsFile, made_with
from sklearn.metrics import f1_score

from kbert import BertClassifier

RESULTS = Path(__file__).parent / "results" / "thresholds.csv"
TABLE = RESULTS.with_name("thresholds_table.csv")
ROWS, DRAWS = (16, 64, 250), range(5)


def _some(data: Data) -> Data:
    """The rows that have a label."""
    train, test = data.y.any(axis=1), data.test_y.any(axis=1)
    return data._replace(X=data.X[train], y=data.y[train], test_X=data.test_X[test], test_y=data.test_y[test])


def measure(data: Data, name: str, rows: int, draw: int) -> list[dict[str, Any]]:
    """A line for each way to read the outputs."""
    X, y = drawn(data, name, rows, draw)
    lines = []

    def note(thresholds: str, predicted: pd.DataFrame) -> None:
        score = f1_score(data.test_y, predicted, average="macro", zero_division=0)
        empty = float((predicted.to_numpy().sum(axis=1) == 0).mean())
        lines.append({"data": name, "rows": rows, "draw": draw, "thresholds": thresholds, "f1": round(score, 4),
                      "no_label": round(empty, 4)})  # fmt: skip

    default = BertClassifier("minilm-l6", random_state=draw).fit(X, y)
    probabilities = pd.DataFrame(default.predict_proba(data.test_X), columns=y.columns)
    note("0.5", (probabilities >= 0.5).astype(int))
    note("default", default.predict(data.test_X))
    tuned = BertClassifier("minilm-l6", tune_thresholds=True, random_state=draw).fit(X, y)
    note("tune_thresholds=True", tuned.predict(data.test_X))
    return lines


def main() -> None:
    """Measure what is missing, and write the table."""
    warnings.simplefilter("ignore")
    results = ResultsFile(RESULTS, "data", "rows", "draw")
    kinds = DATA["kinds"]()
    for name, data in (("all sentences", kinds), ("sentences with a label", _some(kinds))):
        for rows in ROWS:
            for draw in DRAWS:
                if {"data": name, "rows": rows, "draw": draw} in results:
                    continue
                found = measure(data, name, rows, draw)
                results.append(*({**line, **made_with()} for line in found))
                print(*found, sep="\n", flush=True)
    runs = results.read()
    means = runs.groupby(["data", "rows", "thresholds"], sort=False)[["f1", "no_label"]].mean().unstack("thresholds")
    table = pd.DataFrame({"draws": runs.groupby(["data", "rows"], sort=False).draw.nunique()})
    for thresholds in runs.thresholds.unique():
        table[f"{thresholds}: F1"] = means["f1", thresholds].map("{:.3f}".format)
        table[f"{thresholds}: no label"] = means["no_label", thresholds].map("{:.0%}".format)
    table.reset_index().to_csv(TABLE, index=False)
    print(table.to_string())


if __name__ == "__main__":
    main()
