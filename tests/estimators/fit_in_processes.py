"""A fit that several processes make together: the first one leaves history and weights in a folder.

python tests/estimators/fit_in_processes.py WEIGHTS FOLDER [--random-state SEED]
    [--devices N] [--divided] [--process NUMBER N PORT] [--end-in UPDATE] [--texts reversed]

On JAX each process has so many virtual devices of the CPU, and finds the others by the port; with ``--divided`` halves
of the devices divide the weights. On PyTorch torchrun says which process it is, if there are several. With ``--end-in``
each process gets a SIGTERM in that update; with ``--texts reversed`` the second one has other texts than the first.
"""

import argparse
import json
import os
import signal
import warnings
from pathlib import Path

# kbert and Keras are imported once the number of devices is known, which JAX reads as it is loaded.
TEXTS = ["the table was great", "a sad chair", "the room", "it was awful and sad", "happy", "this was lovely"] * 3
LABELS = ["good", "bad", "good", "bad", "good", "good"] * 3


def unfitted(weights, folder, random_state, distribution="auto"):
    """The classifier that is fitted, whose checkpoints are in the folder."""
    from kbert import BertClassifier

    return BertClassifier(
        weights=weights, batch_size=1, epochs=2, learning_rate=1e-3, dropout=0.0, random_state=random_state,
        early_stopping=True, checkpoint=folder / "checkpoint", distribution=distribution, verbose=1,
    )  # fmt: skip


def main():
    """Fit as one of the processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("weights")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--divided", action="store_true")
    parser.add_argument("--process", type=int, nargs=3)
    parser.add_argument("--random-state", type=int, default=None)
    parser.add_argument("--end-in", type=int)
    parser.add_argument("--texts")
    given = parser.parse_args()
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={given.devices}"

    import keras
    import numpy as np

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

    class Ending(keras.callbacks.Callback):
        """Keras counts batches of an epoch from 0."""

        def on_train_batch_end(self, batch, logs=None):
            if batch + 1 == given.end_in:
                os.kill(os.getpid(), signal.SIGTERM)

    warnings.simplefilter("ignore")
    texts = TEXTS[::-1] if given.texts == "reversed" and number else TEXTS
    classifier = unfitted(given.weights, given.folder, given.random_state, distribution)
    classifier.fit(texts, LABELS, callbacks=[Ending()] if given.end_in else None)
    arrays = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in classifier.model_.weights]
    np.savez(given.folder / f"weights-{number}.npz", *arrays)
    if number == 0:
        (given.folder / "history.json").write_text(json.dumps(classifier.history_))


if __name__ == "__main__":
    main()
