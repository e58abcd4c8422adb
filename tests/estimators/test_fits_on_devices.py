"""Fine-tuning on several devices is fine-tuning on one. They are virtual devices of the CPU."""

import json
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from fit_in_processes import LABELS, TEXTS, unfitted
from sklearn.base import clone

from kbert import BertClassifier
from kbert.training import distribution
from kbert.training.checkpoint_folders import checkpoints_in
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
    assert pickle.loads(pickle.dumps(classifier)).distribution == "auto" and classifier.distribution is strategy
    with pytest.raises(TypeError, match=r"distribution=MirroredStrategy\(...\) names devices.*distribution=\"auto\""):
        pickle.dumps(toy(distribution=strategy))
    assert for_fine_tuning("auto", True) is None and for_fine_tuning(None, False) is None


def run_processes(weights, folder, processes, launcher=()):
    """Run a fit that processes with these arguments make together; what they wrote on stdout and stderr, by process."""
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable,
        *launcher,
        str(Path(__file__).with_name("fit_in_processes.py")),
        str(weights),
        str(folder),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, *words], **pipes) for words in processes]
    told = [process.communicate(timeout=600) for process in running]
    return [(process.returncode, *both) for process, both in zip(running, told, strict=True)]


def in_processes(weights, folder, *processes, launcher=()):
    """The weights of each process, and the history, of a fit that processes with these arguments make together."""
    for returncode, _, errors in run_processes(weights, folder, processes, launcher):
        assert returncode == 0, errors[-3000:]
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


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torchrun starts processes of PyTorch")
def test_processes_of_torchrun_stop_together_go_on_and_tell_once(toy_folder, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    together = tmp_path / "together"
    ((returncode, _, errors),) = run_processes(toy_folder, together, [(*SEED, "--end-in", "3")], launcher)
    assert returncode != 0 and "SIGTERM" in errors, errors[-3000:]
    assert [path.name for path in checkpoints_in(together / "checkpoint")] == ["checkpoint-000000008"]  # of 16 an epoch
    ((returncode, shown, errors),) = run_processes(toy_folder, together, [SEED], launcher)
    assert returncode == 0, errors[-3000:]
    assert shown.count("epoch 2/2") == 1
    history = json.loads((together / "history.json").read_text())
    alone = unfitted(toy_folder, tmp_path / "alone", random_state=0).fit(TEXTS, LABELS)
    np.testing.assert_allclose(history["loss"], alone.history_["loss"], atol=1e-5)


@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torchrun starts processes of PyTorch")
def test_processes_with_other_texts_are_refused(toy_folder, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    words = (*SEED, "--texts", "reversed")
    ((returncode, _, errors),) = run_processes(toy_folder, tmp_path / "fit", [words], launcher)
    assert returncode != 0 and "were given different rows" in errors, errors[-3000:]


def test_a_strategy_in_force_that_cannot_be_used_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setattr(distribution, "all_devices", lambda: object())
    with pytest.raises(TypeError, match='distribution is object; .*"auto" took it.*; None takes one device'):
        distribution.checked("auto")


def test_processes_agree_after_the_same_update(monkeypatch):
    others = []
    monkeypatch.setattr(distribution, "process_number", lambda: (0, 2))
    monkeypatch.setattr(distribution, "of_all_processes", lambda number: [number, *others])
    wanted = [(False, 0), (False, 1), (True, 0)]
    for mine, other in wanted:
        others[:] = [other]
        asked = [n for n in range(1, 20) if distribution.agreed(mine, n, "several")]
        assert asked == ([8, 16] if mine or other else [])
    assert distribution.agreed(True, 1, None) and not distribution.agreed(False, 8, None)  # this one trains alone


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
