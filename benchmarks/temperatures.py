"""What a temperature from a few validation rows is worth: log loss on test rows, without one and with two kinds.

    KBERT_DATA=... KERAS_BACKEND=torch OMP_NUM_THREADS=1 python benchmarks/temperatures.py [--draws 0 1]

minilm-l6 with every default on nine tenths of 40 to 400 rows; a tenth is held out, as ``calibrate="temperature"`` does.
``best`` is the temperature with the lowest loss on the rows that are held out; ``usual`` is the one that kbert takes,
which stays nearer to what is usual. ``lowest`` would be the best for the test rows themselves. Each fit is appended to
benchmarks/results/temperatures.csv, and one that is there is not made again; temperatures_table.csv has the means.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from first_fit import DATA, MESSAGES
from results_file import ResultsFile, made_with
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.model_selection import train_test_split

from kbert import BertClassifier
from kbert.tasks.calibration import best_temperature

RESULTS = Path(__file__).parent / "results" / "temperatures.csv"
# Of the customer messages: one label against all others.
ONE_LABEL = ("delivery", "product_question")
ROWS, TEST_ROWS = (40, 100, 200, 400), 400


def read(name: str) -> tuple[pd.Series, pd.Series]:
    """All texts and labels of a data set."""
    if name in ONE_LABEL:
        messages = pd.read_csv(MESSAGES).sample(frac=1, random_state=1)
        return messages.message, (messages.label == name).astype(int)
    data = DATA[name]()
    return pd.concat([data.X, data.test_X], ignore_index=True), pd.concat([data.y, data.test_y], ignore_index=True)


def logits(name: str, rows: int, draw: int) -> list[np.ndarray]:
    """Of the validation rows and of the test rows, each with the true labels, as numbers, behind them."""
    X, y = read(name)
    n_test = min(TEST_ROWS, len(X) - rows)
    train_X, test_X, train_y, test_y = train_test_split(
        X, y, train_size=rows, test_size=n_test, stratify=y, random_state=draw
    )
    n_held_out = max(y.nunique(), rows // 10)
    train_X, held_out_X, train_y, held_out_y = train_test_split(
        train_X, train_y, test_size=n_held_out, stratify=train_y, random_state=draw
    )
    classifier = BertClassifier("minilm-l6", random_state=draw).fit(train_X, train_y)
    number = {label: i for i, label in enumerate(classifier.classes_)}
    found = []
    for some, labels in ((held_out_X, held_out_y), (test_X, test_y)):
        found += [np.log(classifier.predict_proba(some) + 1e-30), labels.map(number).to_numpy()]
    return found


def line(held_out: np.ndarray, held_out_y: np.ndarray, test: np.ndarray, test_y: np.ndarray) -> dict[str, Any]:
    """Temperatures, and the log loss of the test rows with each."""

    def loss(some: np.ndarray, labels: np.ndarray, temperature: float) -> float:
        return float(-log_softmax(some / temperature, axis=1)[np.arange(len(labels)), labels].mean())

    def lowest(some: np.ndarray, labels: np.ndarray) -> float:
        found = minimize_scalar(
            lambda log: loss(some, labels, np.exp(log)), bounds=np.log([0.05, 20]), method="bounded"
        )
        return float(np.exp(found.x))

    temperatures = {
        "none": 1.0, "best": lowest(held_out, held_out_y),
        "usual": best_temperature(lambda t: loss(held_out, held_out_y, t), len(held_out)),
        "lowest": lowest(test, test_y),
    }  # fmt: skip
    losses = {f"log_loss_{name}": round(loss(test, test_y, t), 4) for name, t in temperatures.items()}
    told = {f"temperature_{name}": round(t, 3) for name, t in temperatures.items() if name != "none"}
    return {"held_out": len(held_out), **told, **losses}


def main() -> None:
    """Measure what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = ResultsFile(RESULTS, "data", "rows", "draw")
    for draw in options.draws:
        for name in ("sst2", "agnews", "messages", *ONE_LABEL):
            for rows in ROWS:
                key = {"data": name, "rows": rows, "draw": draw}
                if key not in results:
                    results.append(key | line(*logits(name, rows, draw)) | made_with())
    table = (
        results.read()
        .groupby("rows")
        .agg(
            fits=("draw", "size"),
            **{name: (f"log_loss_{name}", "mean") for name in ("none", "best", "usual", "lowest")},
            temperature=("temperature_lowest", "median"),
        )
    )
    table.round(3).reset_index().to_csv(RESULTS.with_name("temperatures_table.csv"), index=False)
    print(table.round(3).to_string())


if __name__ == "__main__":
    main()
