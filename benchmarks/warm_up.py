"""How long the first requests of a service wait, without `warm_up` and after it.

    KERAS_BACKEND=tensorflow python benchmarks/warm_up.py

A minilm-l6 that was fine-tuned on the messages of the README is saved. In a new process it is loaded, and predicts one
message of each of several lengths, one after the other, twice: the first time every length is new. Printed are the
seconds of `load`, of `warm_up`, of the slowest first request, of the mean first request, and of the mean later one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

MESSAGES = Path(__file__).parents[1] / "examples" / "data" / "support_messages.csv"
WORDS = (2, 5, 10, 20, 40, 80, 160)


def requests(folder: str, warm: bool) -> None:
    """The seconds of one process."""
    import kbert

    start = time.perf_counter()
    classifier = kbert.load(folder)
    loaded = time.perf_counter()
    if warm:
        classifier.warm_up()
    warmed = time.perf_counter()
    waits: list[list[float]] = [[], []]
    for of_round in waits:
        for n in WORDS:
            begin = time.perf_counter()
            classifier.predict([" ".join(["parcel"] * n)])
            of_round.append(time.perf_counter() - begin)
    first, later = waits
    print(
        f"{'with warm_up' if warm else 'without':13} load {loaded - start:.2f} s, warm_up {warmed - loaded:.2f} s, "
        f"slowest first request {max(first):.2f} s, first ones {sum(first) / len(first):.3f} s, "
        f"later ones {sum(later) / len(later):.3f} s"
    )


def main() -> None:
    if len(sys.argv) > 1:
        requests(sys.argv[1], sys.argv[2] == "warm")
        return
    import keras

    from kbert import BertClassifier

    rows = pd.read_csv(MESSAGES)[:100]
    with tempfile.TemporaryDirectory() as folder:
        BertClassifier("minilm-l6", epochs=1, random_state=0).fit(rows.message, rows.label).save(Path(folder, "model"))
        print(f"{keras.backend.backend()}, Keras {keras.__version__}", flush=True)
        for warm in ("cold", "warm"):
            subprocess.run([sys.executable, __file__, str(Path(folder, "model")), warm], check=True)


if __name__ == "__main__":
    main()
