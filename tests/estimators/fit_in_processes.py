"""A fit that several processes make together: the first one leaves history and weights in a folder.

python tests/estimators/fit_in_processes.py WEIGHTS FOLDER [--random-state SEED]
    [--devices N] [--divided] [--process NUMBER N PORT]

On JAX each process has so many virtual devices of the CPU, and finds the others by the port; with ``--divided`` halves
of the devices divide the weights. On PyTorch torchrun says which process it is, if there are several.
"""

import argparse
import json
import os
import warnings
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("weights")
parser.add_argument("folder", type=Path)
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--divided", action="store_true")
parser.add_argument("--process", type=int, nargs=3)
parser.add_argument("--random-state", type=int, default=None)
given = parser.parse_args()
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={given.devices}"  # before JAX is loaded

import keras  # noqa: E402
import numpy as np  # noqa: E402

number, distribution = 0, "auto"
if given.process:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # the default of later versions than 0.5
    number, n_processes, port = given.process
    keras.distribution.initialize(f"127.0.0.1:{port}", n_processes, number)
if "RANK" in os.environ:
    from torch import distributed

    distributed.init_process_group("gloo")
    number = distributed.get_rank()
if given.divided:
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((2, len(devices) // 2), ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*(query|key|value|intermediate)/kernel"] = (None, "model")
    distribution = keras.distribution.ModelParallel(layout_map=layouts)

from kbert import BertClassifier  # noqa: E402

TEXTS = ["the table was great", "a sad chair", "the room", "it was awful and sad", "happy", "this was lovely"] * 3
LABELS = ["good", "bad", "good", "bad", "good", "good"] * 3

warnings.simplefilter("ignore")
classifier = BertClassifier(
    weights=given.weights, batch_size=5, epochs=2, learning_rate=1e-3, dropout=0.0, random_state=given.random_state,
    early_stopping=True, checkpoint=given.folder / "checkpoint", distribution=distribution,
)  # fmt: skip
classifier.fit(TEXTS, LABELS)
arrays = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in classifier.model_.weights]
np.savez(given.folder / f"weights-{number}.npz", *arrays)
if number == 0:
    (given.folder / "history.json").write_text(json.dumps(classifier.history_))
