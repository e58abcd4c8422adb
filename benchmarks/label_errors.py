"""How many of 100 planted label errors are among the first 100 rows that a report says to look at.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/label_errors.py [--seed 0 1 2] [--cv 5]
    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/label_errors.py --train 10000 [--seed 0 1 2]

Each seed draws 1,000 rows of SST-2's train part, and of every hundred of them ten get the other label. The first
command judges them by cross-validation among themselves: `report(X, y, cv=5)`, errors in training too. The second fits
minilm-l6 once, by the default recipe, on --train other rows as they are, and reports on the rows of each seed. SST-2's
train part has the phrases of its sentences as rows of their own, so rows that have five words in a row in common with a
judged one are not trained on.

`found` counts the planted errors among the first 100 rows of the report's `doubtful`, `found_of_20` among the first 20,
those that the page shows. `doubtful` is how many rows the report has there at all. `accuracy` is the share of the
predictions that agree with the labels as they were before the errors. Each run is appended to
benchmarks/results/label_errors.csv, and one that is there is not made again.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from results_file import ResultsFile, made_with

RESULTS = Path(__file__).parent / "results" / "label_errors.csv"
N_ROWS, OF_EACH_HUNDRED = 1000, 10
RUN = 5


def judged(frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """The rows of one seed, and which of them get the other label."""
    hundreds = np.tile(np.arange(100) < OF_EACH_HUNDRED, (N_ROWS // 100, 1))
    return frame.sample(N_ROWS, random_state=seed), np.random.default_rng(seed).permuted(hundreds, axis=1).ravel()


def runs(text: str) -> set[tuple[str, ...]]:
    """All runs of five words of a text; the whole of a shorter one."""
    words = text.split()
    return {tuple(words[start : start + RUN]) for start in range(max(1, len(words) - RUN + 1))}


def others(frame: pd.DataFrame, n_rows: int, seeds: list[int]) -> pd.DataFrame:
    """Rows that have nothing in common with those that are judged."""
    rows = pd.concat([judged(frame, seed)[0] for seed in seeds])
    taken = set().union(*map(runs, rows.text))
    free = frame[[taken.isdisjoint(runs(text)) for text in frame.text]]
    return free.sample(n_rows, random_state=0)


def measure(classifier, frame: pd.DataFrame, seed: int, cv: int | None) -> dict:
    """Plant errors, report, and count those that are found."""
    rows, wrong = judged(frame, seed)
    given = np.where(wrong, 1 - rows.label, rows.label)
    start = time.perf_counter(), time.process_time()
    doubtful = classifier.report(rows.text, given, cv=cv, explain=False).doubtful
    seconds, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    predicted = given.copy()
    predicted[doubtful.row] = doubtful.predicted
    is_found = wrong[doubtful.row]
    return {
        "cv": cv, "seed": seed, "found": int(is_found[:100].sum()), "found_of_20": int(is_found[:20].sum()),
        "doubtful": len(doubtful), "accuracy": round(float((predicted == rows.label).mean()), 4),
        "report_s": round(seconds, 1), "report_cpu_s": round(cpu, 1),
    }  # fmt: skip


def main() -> None:
    """Judge the rows of each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--cv", type=int, default=5, help="folds, without --train")
    parser.add_argument("--train", type=int, help="fit on so many other rows, in the place of cross-validation")
    options = parser.parse_args()

    from kbert import BertClassifier, datasets

    frame, fitted, cpu = datasets.load("sst2", "train").astype({"label": int}), None, None
    judged_by = f"a fit on {options.train:,} others" if options.train else "cross-validation"
    asked = {"rows_judged_by": judged_by, "cv": None if options.train else options.cv}
    results = ResultsFile(RESULTS, "rows_judged_by", "cv", "seed")
    seeds = [seed for seed in options.seed if {**asked, "seed": seed} not in results]
    if options.train and seeds:
        train, start = others(frame, options.train, options.seed), time.process_time()
        fitted = BertClassifier("minilm-l6", random_state=0, verbose=1).fit(train.text, train.label)
        cpu = round(time.process_time() - start, 1)
    for seed in seeds:
        classifier = fitted or BertClassifier("minilm-l6", random_state=seed)
        found = measure(classifier, frame, seed, asked["cv"])
        line = {**asked, **found, "train": options.train, "fit_cpu_s": cpu, **made_with()}
        print(line, flush=True)
        results.append(line)


if __name__ == "__main__":
    main()
