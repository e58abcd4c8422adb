"""A fit that several processes make together, on JAX: the first one leaves history and weights in a folder.

python tests/estimators/fit_in_processes.py WEIGHTS FOLDER N_DEVICES [PROCESS_NUMBER N_PROCESSES PORT]

The devices, of which each process has so many, are virtual ones of the CPU.
"""

import json
import os
import sys
import warnings
from pathlib import Path

weights, folder, n_devices, *process = sys.argv[1:]
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={n_devices}"  # before JAX is loaded

import keras  # noqa: E402
import numpy as np  # noqa: E402

if process:
    number, n_processes, port = map(int, process)
    keras.distribution.initialize(f"127.0.0.1:{port}", n_processes, number)

from kbert import BertClassifier  # noqa: E402

TEXTS = ["the table was great", "a sad chair", "the room", "it was awful and sad", "happy", "this was lovely"] * 3
LABELS = ["good", "bad", "good", "bad", "good", "good"] * 3

warnings.simplefilter("ignore")
classifier = BertClassifier(
    weights=weights, batch_size=5, epochs=2, learning_rate=1e-3, dropout=0.0, random_state=0, early_stopping=True,
    checkpoint=Path(folder) / "checkpoint",
)  # fmt: skip
classifier.fit(TEXTS, LABELS)
if not process or number == 0:
    arrays = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in classifier.model_.weights]
    np.savez(Path(folder) / "weights.npz", *arrays)
    (Path(folder) / "history.json").write_text(json.dumps(classifier.history_))
