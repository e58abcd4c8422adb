"""Seconds until the first step of a fit has ended, in a process and in the next one, with and without a compile cache.

    KBERT_DATA=... KERAS_BACKEND=jax python benchmarks/first_step.py

minilm-l6 on 2,000 rows of SST-2, one epoch. Imports and the reading of the rows are not counted; what is compiled is.
"""

import os
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import time
import keras
from kbert import BertClassifier, datasets

class First(keras.callbacks.Callback):
    seconds = None
    def on_train_batch_end(self, batch, logs=None):
        if self.seconds is None:
            float(logs["loss"])
            self.seconds = time.perf_counter() - start

train, first = datasets.load("sst2", "train")[:2000], First()
classifier = BertClassifier.paper("minilm-l6", epochs=1, random_state=0)
start = time.perf_counter()
classifier.fit(train.text, train.label, callbacks=[first])
print(f"first step {first.seconds:5.1f} s, fit {time.perf_counter() - start:5.1f} s")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, cache in (("no cache", "0"), ("an empty cache", folder), ("the cache of the last process", folder)):
            environment = {**os.environ, "KBERT_COMPILE_CACHE": cache}
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
            )
            print(f"{name:30} {done.stdout.strip()}, process {time.perf_counter() - start:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
