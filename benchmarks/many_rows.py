"""Ten million rows: what a fit takes until its first step, and predictions of a table by one process and by two.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/many_rows.py fit --rows 10000000 --out results.csv
    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/many_rows.py predict --rows 200000 --out results.csv
    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/many_rows.py predict --variants 2 killed --out results.csv

The rows are phrases of SST-2 (9 words in the mean), drawn with replacement, in Parquet files of a million rows. A fit
is ended at its third step, since all that grows with the rows comes before the first. Predictions are made three times:
by one process, by two, and by two that are killed on the way and started again; the files must be the same. --variants
chooses among the three; the files of the first of those are what the others are compared with. Lines are added to those
that are in the file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from results_file import ResultsFile, made_with

from kbert import datasets

ROWS_A_FILE = 1_000_000
# Of the predictions: the processes of each, and whether they are killed on the way.
VARIANTS = {"1": (1, False), "2": (2, False), "killed": (2, True)}


def write_rows(folder: Path, n_rows: int) -> None:
    """Phrases and labels in Parquet files."""
    phrases = datasets.load("sst2", "train")
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, ROWS_A_FILE):
        chosen = rng.integers(len(phrases), size=min(ROWS_A_FILE, n_rows - start))
        rows = phrases[["text", "label"]].iloc[chosen].assign(id=np.arange(start, start + len(chosen)))
        rows.to_parquet(folder / f"rows-{start:09d}.parquet", index=False)


def peak_mb() -> float:
    """Of this process and of those that it has waited for."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


class _Enough(Exception):
    """Ends a fit."""


def until_first_step(folder: Path, sender: Any) -> None:
    """Read the files and fit; sends the seconds to read and to the first step, and the memory before and after."""
    import keras
    import pyarrow.parquet

    from kbert import BertClassifier

    class Stop(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 0:
                self.first = time.perf_counter()
            if batch == 3:
                raise _Enough

    small = pd.DataFrame({"text": ["a", "b"] * 20, "label": [0, 1] * 20})
    BertClassifier("minilm-l6", epochs=1).fit(small.text, small.label)  # imports and code
    before, start = peak_mb(), time.perf_counter()
    frame = pyarrow.parquet.read_table(folder).to_pandas(types_mapper=pd.ArrowDtype)
    read, stop = time.perf_counter(), Stop()
    try:
        BertClassifier("minilm-l6", batch_size=32, epochs=1, random_state=0).fit(
            frame.text, frame.label, callbacks=[stop]
        )
    except _Enough:
        pass
    sender.send((read - start, stop.first - read, before, peak_mb()))


def measure_fit(n_rows: int) -> list[dict[str, Any]]:
    """Seconds and memory of a fit up to its third step."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), n_rows)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=until_first_step, args=(Path(folder), sender))
        process.start()
        sender.close()
        read, first, before, after = receiver.recv()
        process.join()
    return [
        {"what": "read the files", "rows": n_rows, "seconds": round(read, 1)},
        {
            "what": "fit to its first step", "rows": n_rows, "seconds": round(first, 1), "peak_mb": round(after),
            "bytes_a_row": round((after - before) * 2**20 / n_rows),
        },
    ]  # fmt: skip


_PREDICT = """
import json, resource, sys, time
from kbert import predict_table
model, source, out, n_jobs = sys.argv[1:]
start = time.perf_counter()
written = predict_table(model, source, out, columns="text", keep=["id"], n_jobs=int(n_jobs))
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
print(json.dumps([time.perf_counter() - start, written, peak]))
"""


def measure_predict(n_rows: int, weights: str, variants: list[str]) -> list[dict[str, Any]]:
    """Seconds and memory of predictions, of some of `VARIANTS`; each in processes of its own."""
    import json

    from kbert import BertClassifier

    def contents(out: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}

    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        write_rows(folder / "in", n_rows)
        train = datasets.load("sst2", "train").sample(200, random_state=0)
        BertClassifier(weights=weights, epochs=1, random_state=0).fit(train.text, train.label).save(folder / "model")

        def command(out: str, n_jobs: int) -> list[str]:
            parts = (folder / "model", folder / "in", folder / out, n_jobs)
            return [sys.executable, "-c", _PREDICT, *map(str, parts)]

        expected = None
        for out in variants:
            n_jobs, killed = VARIANTS[out]
            if killed:
                process = subprocess.Popen(command(out, n_jobs), start_new_session=True)
                while len(list((folder / out).glob("part-*"))) < n_rows // 10_000 // 2:
                    time.sleep(0.2)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            done = subprocess.run(command(out, n_jobs), capture_output=True, text=True, check=True)
            seconds, written, peak = json.loads(done.stdout)
            found = contents(folder / out)
            lines.append({
                "what": f"predict, {n_jobs} process{'es' if n_jobs > 1 else ''}"
                + (f", killed and started again with {written[2]} of {written[1]} parts" if killed else ""),
                "rows": n_rows, "seconds": round(seconds, 1), "peak_mb": round(peak),
                "rows_a_second": None if killed else round(n_rows / seconds),
                "same_bytes": None if expected is None else found == expected,  # the first is compared with nothing
            })  # fmt: skip
            expected = expected or found
    return lines


def main() -> None:
    """Measure, and append to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "predict"))
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--weights", default="minilm-l6", help="of the predictions: a folder or a name")
    names = tuple(VARIANTS)
    parser.add_argument("--variants", nargs="+", choices=names, default=names, help="of the predictions (default: all)")
    parser.add_argument("--out", type=Path, default=Path("many_rows.csv"))
    options = parser.parse_args()
    rows, results = options.rows, ResultsFile(options.out)
    predictions = sorted(set(options.variants))
    lines = measure_fit(rows) if options.what == "fit" else measure_predict(rows, options.weights, predictions)
    results.append(*({**line, **made_with()} for line in lines))
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
