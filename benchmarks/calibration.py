"""Expected calibration error on SST-2's dev rows before and after calibrate="temperature".

    KBERT_DATA=... python benchmarks/calibration.py [--seed 0 1 2] [--rows 10000]

minilm-l6, the paper's recipe (3 epochs at batch 32), on rows drawn from the train part; a tenth of them is split off
as a validation set for the temperature. "Before" are the same model's logits, times the temperature again, so that both
columns are of one run. Each seed is appended to benchmarks/results/calibration.csv; those that stand there with as many
rows are not run again.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from results_file import ResultsFile, made_with
from scipy.special import expit
from sklearn.metrics import accuracy_score, log_loss

RESULTS = Path(__file__).parent / "results" / "calibration.csv"
BINS = 15


def expected_calibration_error(right: np.ndarray, confidence: np.ndarray) -> float:
    """Mean distance of accuracy and confidence over bins of equal width (Guo et al., 2017, equation 3), in percent."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return 100 * float(np.sum(gaps))


def run(seed: int, rows: int) -> dict:
    """Fine-tune, calibrate and score."""
    from kbert import BertClassifier, datasets

    train, dev = datasets.load("sst2", "train").sample(rows, random_state=0), datasets.load("sst2", "dev")
    classifier = BertClassifier.paper("minilm-l6", calibrate="temperature", random_state=seed, verbose=1)
    start = time.perf_counter()
    classifier.fit(train.text, train.label)
    seconds = time.perf_counter() - start
    after = classifier.decision_function(dev.text).astype("float64")
    good = (dev.label == classifier.classes_[1]).to_numpy()
    result = {"seed": seed, "rows": rows, "temperature": round(classifier.temperature_, 3)}
    for name, margin in (("before", after * classifier.temperature_), ("after", after)):
        confidence = expit(np.abs(margin))
        result[f"ece_{name}"] = round(expected_calibration_error((margin > 0) == good, confidence), 2)
        result[f"log_loss_{name}"] = round(log_loss(good, expit(margin)), 4)
    return result | {"accuracy": round(accuracy_score(good, after > 0), 4), "fit_s": round(seconds), **made_with()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    results = ResultsFile(RESULTS, "seed", "rows")
    for seed in options.seed:
        if {"seed": seed, "rows": options.rows} not in results:
            results.append(run(seed, options.rows))
    runs = results.read()
    runs = runs[runs.seed.isin(options.seed) & (runs.rows == options.rows)]
    columns = ["temperature", "ece_before", "ece_after", "log_loss_before", "log_loss_after", "accuracy"]
    print(runs[columns].agg(["mean", "std"]).round(4).to_string())


if __name__ == "__main__":
    main()
