"""Milliseconds of a training step and of fits, of this kbert and of another checkout, in turns.

    KERAS_BACKEND=jax python benchmarks/training_step.py [--against FOLDER] [--rows 2000] [--rounds 3] [--long]
        [--dtype bfloat16]

One epoch of minilm-l6 on so many rows of SST-2, or with --long of IMDB cut at 384 tokens, batch 32: each run in a
process of its own, the two checkouts in turns. "first fit" has the compilation in it, "second fit" of the same rows has
none, and "a step" is the second divided by its steps. Needs KBERT_DATA and the weights of tests/weights.txt.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parents[1]


def measure(n_rows: int, long: bool, dtype: str) -> None:
    """Fit twice, and print the times as JSON."""
    import resource
    import time
    import warnings

    from kbert import BertClassifier, datasets

    warnings.simplefilter("ignore")
    if long:
        reviews = pd.read_csv(Path(os.environ["KBERT_DATA"]) / "imdb" / "train.csv.gz").sample(frac=1, random_state=0)
        train, dev = reviews[:n_rows], reviews[n_rows : n_rows + 200]
    else:
        train, dev = datasets.load("sst2", "train").iloc[:n_rows], datasets.load("sst2", "dev")
    seconds = []
    for _ in range(2):
        classifier = getattr(BertClassifier, "paper", BertClassifier)(  # a checkout may be older than the recipe
            size="minilm-l6", epochs=1, dtype=dtype, random_state=0, max_length=384 if long else 128
        )
        start = time.perf_counter()
        classifier.fit(train.text, train.label)
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    classifier.predict(dev.text)
    found = {
        "predict, rows/s": len(dev) / (time.perf_counter() - start),
        "first fit, s": seconds[0],
        "second fit, s": seconds[1],
        "a step, ms": seconds[1] / -(-n_rows // 32) * 1000,
        "most memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "accuracy": classifier.score(dev.text, dev.label),
    }
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.rows, arguments.long, arguments.dtype)
    if arguments.against and not (arguments.against / "kbert" / "__init__.py").is_file():
        parser.error(f"--against: there is no kbert in {arguments.against}, so that this one would be measured twice")
    checkouts = {"this": HERE} | ({"other": arguments.against.resolve()} if arguments.against else {})
    found = []
    for turn in range(arguments.rounds):
        for name, folder in checkouts.items():
            command = [sys.executable, __file__, "--measure", "--rows", str(arguments.rows), "--dtype", arguments.dtype]
            command += ["--long"] * arguments.long
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True
            )
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            found.append({"checkout": name, "round": turn, **json.loads(done.stdout.splitlines()[-1])})
            print(pd.DataFrame(found[-1:]).to_string(index=False, header=len(found) == 1), flush=True)
    table = pd.DataFrame(found).groupby("checkout", sort=False).median().drop(columns="round")
    rows = f"{arguments.rows} rows{' of 384 tokens' * arguments.long}"
    print(f"\nmedians, {os.environ['KERAS_BACKEND']}, {arguments.dtype}, {rows}\n{table.round(3).to_string()}")


if __name__ == "__main__":
    main()
