"""Which operations a training step's time goes to, on JAX or PyTorch, by the backend's own profiler.

    KERAS_BACKEND=torch python benchmarks/step_profile.py
    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/step_profile.py --sst2

A fit of minilm-l6 on 64 rows of 128 tokens, or on 960 rows of SST-2, batch 32, after one that compiles. Shares of the
time in operations, the greatest first. On JAX an operation is what XLA fused, by the name it has there; ynn_fusion and
dot are products.
"""

import argparse
import glob
import gzip
import json
import tempfile
from collections import Counter

import keras
import numpy as np
from overheads import long_rows

from kbert import BertClassifier, datasets

MOST = 14


def of_torch(function) -> Counter:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        function()
    return Counter({event.key: event.self_cpu_time_total for event in found.key_averages()})


def of_jax(function) -> Counter:
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            function()
        (path,) = glob.glob(f"{folder}/plugins/profile/*/*.trace.json.gz")
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
    found: Counter = Counter()
    for event in events:
        if "hlo_op" in event.get("args", {}):
            found[event["args"]["hlo_op"].partition(".")[0]] += event["dur"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sst2", action="store_true", help="short rows")
    options = parser.parse_args()
    backend = keras.backend.backend()
    profilers = {"torch": of_torch, "jax": of_jax}
    if backend not in profilers:
        raise SystemExit(f"KERAS_BACKEND is {backend!r}; this reads the profilers of {' and '.join(profilers)}.")
    texts = datasets.load("sst2", "train").text[:960] if options.sst2 else long_rows(64)
    classifier = BertClassifier.paper("minilm-l6", epochs=1, random_state=0)
    labels = np.arange(len(texts)) % 2
    classifier.fit(texts, labels)
    found = profilers[backend](lambda: classifier.fit(texts, labels))
    total = sum(found.values())
    print(f"{backend}, keras {keras.__version__}, {classifier.model_.dtype_policy.name}")
    for name, time in found.most_common(MOST):
        print(f"{time / total:6.1%}  {name}")
    print(f"{1 - sum(time for _, time in found.most_common(MOST)) / total:6.1%}  all others")


if __name__ == "__main__":
    main()
