"""A toy run on several devices of one process or of several, whose history and weights it leaves in a folder.

    python on_devices.py FOLDER N_DEVICES [PROCESS_NUMBER N_PROCESSES PORT] [OPTION=VALUE ...]

The devices are virtual ones of the CPU. With processes, N_DEVICES is of each. With divided=true, all devices of the
processes divide the weights.
"""

import json
import os
import sys
from pathlib import Path

folder, n_devices = Path(sys.argv[1]), int(sys.argv[2])
process = [int(number) for number in sys.argv[3:6] if "=" not in number]
options = {name: json.loads(value) for name, value in (word.split("=") for word in sys.argv[3:] if "=" in word)}
backend = os.environ["KERAS_BACKEND"]
if backend == "jax":
    # Before JAX is loaded.
    os.environ["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={n_devices}"

import keras  # noqa: E402
import numpy as np  # noqa: E402

if "RANK" in os.environ:  # torchrun
    from torch import distributed as processes

    processes.init_process_group("gloo")
    process = [processes.get_rank(), processes.get_world_size()]
elif process:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # the default of later versions than 0.5
    number, n_processes, port = process
    keras.distribution.initialize(f"127.0.0.1:{port}", n_processes, number)
if backend == "tensorflow":
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * n_devices
    )
    options["distribution"] = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n_devices)])

is_divided = options.pop("divided", False)
if is_divided:
    devices = keras.distribution.list_devices()
    layouts = keras.distribution.LayoutMap(
        keras.distribution.DeviceMesh((1, len(devices)), ("batch", "model"), devices)
    )
    layouts[".*(query|key|value|intermediate)/kernel"] = (None, "model")
    options["distribution"] = keras.distribution.ModelParallel(layout_map=layouts)

sys.path.insert(0, str(Path(__file__).parent))
from test_trainer import made, weights_of  # noqa: E402

from kbert.training import distribution  # noqa: E402

run = made(folder=folder / "checkpoints", **options)
assert is_divided or distribution.n_devices(run.distribution) == n_devices * (process[1] if process else 1)
history = run.run()
if run.process == 0:
    history.to_csv(folder / "history.csv", index=False)
    np.savez(folder / "weights.npz", *weights_of(run))
