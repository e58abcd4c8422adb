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


@pytest.fixture
def differences(toy_folder):
    """A function that gives how far fits on several devices are from those on one, by case."""

    def run(*options):
        command = [sys.executable, str(SCRIPT), str(toy_folder), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch's devices belong to several processes")
def test_several_devices_train_as_one(differences):
    found = differences()
    names = {"windows on several", "frozen on several", "predicting"}
    if keras.backend.backend() == "jax":
        names |= {"options on several", "windows divided", "frozen divided", "options divided", "divided in force"}
        names |= {"memory", "auto", "one beside one in force", "cannot be divided by", "no key of the LayoutMap"}
    else:
        names |= {"in force", "refused", "auto in a scope", "one in a scope", "predicting in a scope"}
    assert set(found) == names
    assert max(found.values()) < 1e-4, found  # the rate is 1e-3, and AdamW may turn round what is nearly 0


@pytest.mark.backend
@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch's devices belong to several processes")
def test_two_devices_train_the_other_estimators_as_one(differences):
    found = differences("--others")
    assert set(found) == {"numbers on 2", "tags on 2", "answers on 2"}
    assert max(found.values()) < 1e-4, found


@pytest.mark.parametrize(("wrong", "error"), [(2, ValueError), ("all", ValueError), (["gpu:0"], TypeError)])
def test_what_is_no_distribution_is_refused(toy, wrong, error):
    with pytest.raises(error, match="distribution must be.*DataParallel"):
        toy(distribution=wrong).fit(["a", "b"], ["x", "y"])


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="elsewhere it can be used")
def test_pytorch_takes_no_distribution_of_keras(toy):
    one = keras.distribution.DataParallel.__new__(keras.distribution.DataParallel)
    with pytest.raises(TypeError, match='on torch it is "auto", which takes all processes that torchrun has started'):
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


def in_processes(weights, folder, *processes, launcher=()):
    """The weights of each process, and the history, of a fit that processes with these arguments make together."""
    folder.mkdir()
    command = [
        sys.executable,
        *launcher,
        str(Path(__file__).with_name("fit_in_processes.py")),
        str(weights),
        str(folder),
    ]
    running = [subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) for words in processes]
    for process in running:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors[-3000:]
    weights = [list(np.load(path).values()) for path in sorted(folder.glob("weights-*.npz"))]
    return weights, json.loads((folder / "history.json").read_text())


def assert_as_one(alone, together):
    """Whether processes ended where one alone did, to float32 rounding, and all of them at the same bits."""
    ((expected,), history), (found, other_history) = alone, together
    assert len(found) == 2
    np.testing.assert_allclose(other_history["loss"], history["loss"], atol=1e-5)
    for first, second, array in zip(*found, expected, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, array, atol=1e-4 if array.dtype.kind == "f" else 0)


SEED = ("--random-state", "0")


@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torchrun starts processes of PyTorch")
def test_processes_of_torchrun_fit_as_one(toy_folder, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    alone = in_processes(toy_folder, tmp_path / "alone", SEED)
    assert_as_one(alone, in_processes(toy_folder, tmp_path / "together", SEED, launcher=launcher))
    (first, second), _ = in_processes(toy_folder, tmp_path / "no seed", (), launcher=launcher)
    for array, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(array, other)  # without a random_state the first one's seed is that of all


@pytest.mark.backend
@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="these processes train on JAX")
@pytest.mark.parametrize("options", [(), ("--divided",)], ids=["copied", "divided"])
def test_two_processes_fit_as_one(options, toy_folder, tmp_path):
    port = str(free_port())
    processes = [("--devices", "2", *options, *SEED, "--process", number, "2", port) for number in "01"]
    alone = in_processes(toy_folder, tmp_path / "alone", SEED)
    assert_as_one(alone, in_processes(toy_folder, tmp_path / "together", *processes))


def free_port():
    """A port that no program has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
