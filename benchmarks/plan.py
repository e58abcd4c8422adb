"""How long a plan says that a fit and 1,000 predictions will take, and how long they take.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/plan.py [--cases sst2 agnews ...] [--epochs 1]
    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/plan.py --rows 100000

The first command plans each case with minilm-l6, fits it by the default recipe (with --epochs, since more of them take
as much longer in plan and fit) and predicts 1,000 rows, on as many threads as OMP_NUM_THREADS says. The second times
`plan` alone on rows of SST-2, repeated to so many. Each appends a line to benchmarks/results/plan.csv; a ratio is the
predicted seconds divided by the measured ones. A CPU that other processes use meanwhile makes wall times of both
meaningless: cpu_s is the fit's own. Each case runs in a process of its own: memory_gb is what the fit takes beyond what
this process has, and memory that an earlier fit has left would hide it.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import keras
import pandas as pd
from memory import settle, status

import kbert
from kbert import BertClassifier
from kbert.training.cost import backend_cost, trained_numbers

RESULTS = Path(__file__).parent / "results" / "plan.csv"
MESSAGES = Path(__file__).parents[1] / "examples" / "data" / "support_messages.csv"
CASES = {"sst2": 4000, "agnews": 1000, "imdb": 500, "mrpc": 2000, "messages": 600}


class Clock(keras.callbacks.Callback):
    """Seconds of the training, and of all its steps but the first, which is compiled."""

    def on_train_begin(self, logs=None):
        self.began, self.steps = time.perf_counter(), 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == 1:
            float(keras.ops.convert_to_numpy(logs["loss"]).ravel()[0])  # until it is computed
            self.first = time.perf_counter()

    def on_train_end(self, logs=None):
        self.ended = time.perf_counter()


def read(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """X and y of a case: all rows there are, in random order."""
    if name == "messages":
        frame = pd.read_csv(MESSAGES)
        columns, label = ["message"], "label"
    elif name == "imdb":
        frame = pd.read_csv(Path(os.environ["KBERT_DATA"]) / "imdb" / "train.csv.gz")
        columns, label = ["text"], "label"
    else:
        (file,) = (Path(os.environ["KBERT_DATA"]) / name).glob("train*.tsv.gz")
        frame = pd.read_csv(file, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False)
        pair = [column for column in ("sentence1", "sentence2", "#1 String", "#2 String") if column in frame]
        columns = pair or [column for column in ("sentence", "text") if column in frame]
        label = "label" if "label" in frame else "Quality"
    frame = frame.sample(frac=1, random_state=0)
    return frame[columns], frame[label]


def prepare() -> None:
    """Import what a plan and a fit import, and read the folder of the weights."""
    BertClassifier("minilm-l6").plan(["a text", "another text"] * 8, [0, 1] * 8)


def measure(name: str, epochs: str | int, share: float) -> dict:
    """Plan, fit and predict one case."""
    prepare()
    X, y = read(name)
    n_rows = round(CASES[name] * share)
    train, labels, test = X[:n_rows], y[:n_rows], X[-1000:][: round(1000 * share)]
    classifier = BertClassifier("minilm-l6", epochs=epochs, random_state=0)
    began, cpu = time.perf_counter(), time.process_time()
    plan = classifier.plan(train, labels)
    planning, cpu_of_plan = time.perf_counter() - began, time.process_time() - cpu
    print(plan, flush=True)
    clock, before = Clock(), settle()
    fit_began, cpu = time.perf_counter(), time.process_time()
    classifier.fit(train, labels, callbacks=clock)
    fitting, cpu = time.perf_counter() - fit_began, time.process_time() - cpu
    peak = status("VmHWM")
    if plan.seconds["compile"]:
        classifier.predict(test)
    began = time.perf_counter()
    classifier.predict(test)
    predicting = (time.perf_counter() - began) * 1000 / len(test)
    # What `backend_cost` is made of: a step, without the optimiser, in forward passes.
    optimizer = trained_numbers(classifier.config_) * backend_cost(classifier.model_.dtype_policy.name).optimizer
    step = (clock.ended - clock.first) / max(1, clock.steps - 1)
    return {
        "case": name, "rows": len(train), "updates": plan.n_updates, "plan_s": planning, "plan_cpu_s": cpu_of_plan,
        "fit_planned_s": plan.seconds_fit, "fit_s": fitting, "fit_ratio": plan.seconds_fit / fitting,
        "predict_planned_s": plan.seconds_predict, "predict_s": predicting,
        "predict_ratio": plan.seconds_predict / predicting,
        "memory_planned_gb": plan.memory_bytes / 1e9, "memory_gb": (peak - before) / 1e3,
        "step_s": step, "step_in_forward_passes": (step - optimizer) / plan.seconds_forward,
        "first_step_s": clock.first - clock.began, "before_training_s": clock.began - fit_began,
        "cpu_s": cpu,
    }  # fmt: skip


def time_plan(n_rows: int) -> dict:
    """A plan of many rows."""
    X, y = read("sst2")
    repeats = -(-n_rows // len(X))
    X, y = pd.concat([X] * repeats)[:n_rows], pd.concat([y] * repeats)[:n_rows]
    classifier = BertClassifier("minilm-l6", random_state=0)
    began, cpu = time.perf_counter(), time.process_time()
    plan = classifier.plan(X, y)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(plan)
    line = {"case": "sst2, plan alone", "rows": n_rows, "updates": plan.n_updates}
    return {**line, "plan_s": seconds, "plan_cpu_s": cpu}


def append(line: dict) -> None:
    """Add a line to the results."""
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not file.tell():
            writer.writeheader()
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in line.items()}
        backend = keras.backend.backend()
        package = {"torch": "torch", "jax": "jax", "tensorflow": "tensorflow"}[backend]
        writer.writerow({
            **rounded, "load": round(os.getloadavg()[0], 1), "threads": os.environ.get("OMP_NUM_THREADS", "all"),
            "backend": backend, "date": datetime.date.today().isoformat(), "kbert": kbert.__version__,
            "keras": keras.__version__, "backend_version": version(package),
        })  # fmt: skip


COLUMNS = (
    *("case", "rows", "updates", "plan_s", "plan_cpu_s", "fit_planned_s", "fit_s", "fit_ratio", "predict_planned_s"),
    *(
        "predict_s",
        "predict_ratio",
        "memory_planned_gb",
        "memory_gb",
        "step_s",
        "step_in_forward_passes",
        "first_step_s",
    ),
    *("before_training_s", "cpu_s", "load", "threads", "backend", "date", "kbert", "keras", "backend_version"),
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--epochs", type=int, help="default: by the recipe")
    parser.add_argument("--share", type=float, default=1.0, help="of each case's rows")
    parser.add_argument("--rows", type=int, help="time plan alone on so many rows of SST-2")
    options = parser.parse_args()
    if options.rows:
        prepare()
        append(time_plan(options.rows))
    else:
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
            for case in options.cases:
                line = pool.submit(measure, case, options.epochs or "auto", options.share).result()
                append(line)
                names = ("case", "fit_ratio", "predict_ratio", "memory_planned_gb", "memory_gb")
                print({name: line[name] for name in names}, flush=True)
