"""What kbert's own training step gains beside Keras's `fit`, and each of its parts by itself.

    KBERT_DATA=... python benchmarks/engine.py [--rounds 3] [--backends torch jax] [--only kbert "Keras's fit"]

minilm-l6 learns SST-2, 480 rows, batch 32, four epochs, twice in a process, each variant in a process of its own, in
the dtype that "auto" finds, and on PyTorch in float32 too where that is bfloat16:

    kbert                     as it is
    Keras's fit               `keras.Model.compile` and `fit` with Keras's AdamW, on the same model and packed batches
    Keras's dropout           instead of hashed random bits (of 64 bits for four values, on PyTorch)
    whole token table         the embeddings of all 30,522 tokens are updated, not only those that occur
    settings of the process   `KBERT_KEEP_PROCESS_SETTINGS=1`: glibc and JAX's dispatch as they are
    PyTorch's product         on PyTorch in float32, instead of oneDNN called as PyTorch's compiler calls it
    layers by Keras           on PyTorch: operation by operation, instead of few with derivatives by hand

"first fit" and "second fit" are the seconds of both, "warm" are the rows a second of the second fit's last epochs, and
"peak" is the most memory of the process. A line for each run is appended to benchmarks/results/engine.csv. The medians
are printed and written to engine_table.csv, with the warm rate and the first fit as multiples of kbert's own.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from unittest import mock

import pandas as pd

RESULTS = Path(__file__).parent / "results" / "engine.csv"
ROWS, EPOCHS = 480, 4
EVERYWHERE = ("kbert", "Keras's fit", "Keras's dropout", "whole token table", "settings of the process")
ON_TORCH = (*EVERYWHERE, "layers by Keras")
# What is run: the backend, the dtype, and the variants that differ there.
CASES = {
    ("torch", "auto"): ON_TORCH,
    ("torch", "float32"): (*ON_TORCH, "PyTorch's product"),
    ("jax", "auto"): EVERYWHERE,
    ("tensorflow", "auto"): EVERYWHERE,
}
MEASURED = ["first_fit_s", "second_fit_s", "warm_rows_s", "peak_mb"]


def train_by_keras(model, loss, batches, data, options, evaluation=None):
    """In place of `kbert.training.loop.train`: Keras trains the model on the same batches."""
    import keras

    from kbert.training.labelled_batches import labelled_batches

    names = [tensor.name for tensor in model.inputs]

    class Batches(keras.utils.PyDataset):
        """One epoch; Keras begins the next one at `on_epoch_end`."""

        def __init__(self):
            super().__init__()
            self.epoch = 0
            self.begin()

        def begin(self):
            steps = labelled_batches(batches.epoch(self.epoch, 0), data, lambda batch: batch.inputs_of(names))
            self.steps = [tuple(step) for _, step in steps]

        def on_epoch_end(self):
            self.epoch += 1
            self.begin()

        def __len__(self):
            return len(self.steps)

        def __getitem__(self, i):
            return self.steps[i]

    model.compile(
        optimizer=keras.optimizers.AdamW(options.learning_rate, weight_decay=options.weight_decay, clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        jit_compile="auto",
    )
    found = model.fit(Batches(), epochs=options.epochs, verbose=0, shuffle=False, callbacks=options.callbacks)
    return {"loss": found.history["loss"], "update_loss": [[] for _ in range(options.epochs)]}


@contextlib.contextmanager
def as_variant(name: str):
    """Put the variant's part in place of kbert's own."""
    import keras

    import kbert.estimators.runs
    import kbert.model.heads
    import kbert.model.layers
    import kbert.training.loop

    class KerasDropout(keras.layers.Dropout):
        def __init__(self, rate, seed, **options):
            super().__init__(rate, seed=seed, **options)

    with contextlib.ExitStack() as stack:

        def put(target, attribute, value):
            stack.enter_context(mock.patch.object(target, attribute, value))

        if name == "Keras's fit":
            put(kbert.estimators.runs, "train", train_by_keras)
        elif name == "whole token table":
            put(kbert.training.loop, "trimmed_model", lambda *_: None)
        elif name == "Keras's dropout":
            put(kbert.model.layers, "Dropout", KerasDropout)
            put(kbert.model.heads, "Dropout", KerasDropout)
        if keras.backend.backend() == "torch":
            import torch

            from kbert.model import layers_torch, products_torch

            if name == "PyTorch's product":
                put(products_torch, "_linear", None)
            elif name == "layers by Keras":
                put(layers_torch, "fused_layer", lambda *_: None)
            elif name == "Keras's dropout":
                put(
                    layers_torch,
                    "kept",
                    lambda x, rate: torch.nn.functional.dropout(torch.ones_like(x), rate),
                )
        yield


def run(name: str, dtype: str) -> dict:
    """The figures of one variant, in this process."""
    import warnings

    import keras

    from kbert import BertClassifier, datasets

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            times.append(time.perf_counter())

    rows = datasets.load("sst2", "train").iloc[:ROWS]
    warnings.simplefilter("ignore")
    fits = []
    with as_variant(name):
        for _ in range(2):
            times: list[float] = []
            start = time.perf_counter()
            classifier = BertClassifier.paper("minilm-l6", epochs=EPOCHS, dtype=dtype, random_state=0)
            classifier.fit(rows.text, rows.label, callbacks=[Clock()])
            fits.append(time.perf_counter() - start)
    epochs = [after - before for before, after in zip(times, times[1:], strict=False)]
    return {
        "dtype": classifier.model_.dtype_policy.name,
        "first_fit_s": fits[0],
        "second_fit_s": fits[1],
        "warm_rows_s": ROWS / median(epochs),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "loss": classifier.history_["loss"][-1],
    }


def in_a_process(backend: str, dtype: str, name: str) -> dict | None:
    """The figures of one variant, in a process of its own; None if it fails."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if name == "settings of the process":
        environment["KBERT_KEEP_PROCESS_SETTINGS"] = "1"
    call = [sys.executable, __file__, "--child", name, dtype]
    done = subprocess.run(call, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{name} failed:\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    found = json.loads(done.stdout.strip().splitlines()[-1])
    versions = {"keras": version("keras"), "backend_version": version(backend)}
    return {"backend": backend, "variant": name, **found, "date": datetime.date.today().isoformat(), **versions}


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Medians, and the warm rate and the first fit as multiples of what kbert has as it is."""
    medians = runs.groupby(["backend", "dtype", "variant"], sort=False)[MEASURED].median()
    ours = medians.xs("kbert", level="variant").reindex(medians.index.droplevel("variant"))
    ratios = medians / ours.to_numpy()
    ratios = ratios.rename(columns={"warm_rows_s": "warm rate", "first_fit_s": "first fit"})
    return medians.join(ratios[["warm rate", "first fit"]]).round(2).reset_index()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    backends, names = ["torch", "jax", "tensorflow"], [*ON_TORCH, "PyTorch's product"]
    parser.add_argument("--backends", nargs="+", default=backends, choices=backends)
    parser.add_argument("--only", nargs="+", default=names, choices=names)
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(*options.child)))
        return
    auto_is_float32 = False
    for _ in range(0 if options.table else options.rounds):
        for (backend, dtype), variants in CASES.items():
            for name in variants:
                measured = dtype == "float32" and auto_is_float32 and name in CASES[backend, "auto"]
                if backend not in options.backends or name not in options.only or measured:
                    continue
                row = in_a_process(backend, dtype, name)
                if row is not None:
                    if backend == "torch" and dtype == "auto":
                        auto_is_float32 = row["dtype"] == "float32"
                    frame = pd.DataFrame([row]).round(3)
                    frame.to_csv(RESULTS, mode="a", header=not RESULTS.exists(), index=False)
                    print(frame.to_string(index=False, header=False), flush=True)
    frame = table(pd.read_csv(RESULTS))
    frame.to_csv(RESULTS.with_name("engine_table.csv"), index=False)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
