"""Fine-tuning with the lower layers frozen beside fine-tuning all of them: seconds and accuracy.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/freeze.py [--rows 4000] [--rounds 3]

minilm-l6, the paper's recipe (3 epochs of batches of 32) on rows of SST-2, tested on its 872 dev rows. All fits are in
one process, in turns, after one that compiles; each round has its own seed. Frozen layers are computed once for each
text; "in each step" computes them in every step, without dropout too. The medians of the seconds, and mean and spread
of the accuracies over the rounds, are appended to benchmarks/results/freeze.csv.
"""

import argparse
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pandas as pd
from results_file import ResultsFile, made_with

from kbert import BertClassifier, datasets
from kbert.training import frozen, loop

RESULTS = Path(__file__).parent / "results" / "freeze.csv"
CASES = {"all layers": 0, "2 of 6 frozen": 2, "4 of 6 frozen": 4, "6 of 6 frozen": 6, "4 of 6 frozen, in each step": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = ResultsFile(RESULTS)
    train, dev = datasets.load("sst2", "train")[: options.rows], datasets.load("sst2", "dev")
    found = []
    for seed in range(-1, options.rounds):
        for name, freeze in CASES.items():
            frozen._last.vectors = None  # each fit computes all its texts
            no_parts = mock.patch.object(loop, "frozen_part", lambda *_: None)
            rows = train if seed >= 0 else train[:64]
            classifier = BertClassifier.paper("minilm-l6", freeze=freeze, random_state=max(seed, 0))
            start = time.perf_counter()
            with no_parts if "each step" in name else nullcontext():
                classifier.fit(rows.text, rows.label)
            if seed >= 0:
                seconds = time.perf_counter() - start
                found.append({"case": name, "fit_s": seconds, "accuracy": classifier.score(dev.text, dev.label)})
                print(seed, *found[-1].values(), flush=True)
    table = (
        pd.DataFrame(found)
        .groupby("case", sort=False)
        .agg(
            fit_s=("fit_s", "median"),
            accuracy=("accuracy", "mean"),
            spread=("accuracy", "std"),
        )
    )
    table["times as fast"] = table.fit_s["all layers"] / table.fit_s
    table = table.round(3).reset_index().assign(rows=len(train), rounds=options.rounds, **made_with())
    results.append(*table.to_dict("records"))
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
