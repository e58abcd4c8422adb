"""Fine-tuning on several devices is fine-tuning on one. They are virtual devices of the CPU."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from sklearn.base import clone

from kbert import BertClassifier
from kbert.training.distribution import for_fine_tuning, is_distribution

SCRIPT = Path(__file__).with_name("fits_on_devices.py")


@pytest.mark.backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="on PyTorch kbert trains on one device")
def test_several_devices_train_as_one(toy_folder):
    command = [sys.executable, str(SCRIPT), str(toy_folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"windows on 4", "frozen on 4", "predicting"} < set(found)
    assert max(found.values()) < 1e-4, found  # the rate is 1e-3, and AdamW may turn round what is nearly 0


@pytest.mark.parametrize(("wrong", "error"), [(2, ValueError), ("all", ValueError), (["gpu:0"], TypeError)])
def test_what_is_no_distribution_is_refused(toy, wrong, error):
    with pytest.raises(error, match="distribution must be.*DataParallel"):
        toy(distribution=wrong).fit(["a", "b"], ["x", "y"])


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="elsewhere it can be used")
def test_pytorch_says_that_it_has_one_device(toy):
    one = keras.distribution.DataParallel.__new__(keras.distribution.DataParallel)
    with pytest.raises(TypeError, match="training on several devices needs JAX or TensorFlow"):
        toy(distribution=one).fit(["a", "b"], ["x", "y"])


def test_a_strategy_is_known_without_tensorflow_and_kept_apart_from_files(toy, tmp_path):
    class MirroredStrategy:
        num_replicas_in_sync = 2

    strategy = MirroredStrategy()
    assert is_distribution(strategy) and not is_distribution("auto")
    assert isinstance(clone(toy(distribution=strategy)).distribution, MirroredStrategy)
    classifier = toy().fit(["a", "b"] * 4, ["x", "y"] * 4).set_params(distribution=strategy)
    classifier.save(tmp_path / "saved")
    assert BertClassifier.load(tmp_path / "saved").distribution == "auto"
    assert for_fine_tuning("auto", True) is None and for_fine_tuning(None, False) is None


@pytest.mark.backend
@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="several processes train on JAX")
def test_two_processes_fit_as_one(toy_folder, tmp_path):
    script = Path(__file__).with_name("fit_in_processes.py")

    def run(name, *processes):
        (tmp_path / name).mkdir(exist_ok=True)
        command = [sys.executable, str(script), str(toy_folder), str(tmp_path / name)]
        running = [
            subprocess.Popen([*command, *map(str, words)], stderr=subprocess.PIPE, text=True) for words in processes
        ]
        for process in running:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
        arrays = np.load(tmp_path / name / "weights.npz")
        return dict(arrays), json.loads((tmp_path / name / "history.json").read_text())

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone, history = run("alone", [1])
    together, found = run("together", [2, 0, 2, port], [2, 1, 2, port])
    np.testing.assert_allclose(found["loss"], history["loss"], atol=1e-5)
    for name, array in alone.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(together[name], array, atol=1e-4, err_msg=name)
