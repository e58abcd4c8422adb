"""Several devices, and several processes, train as one does. They are virtual devices of the CPU."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest
from test_trainer import made, weights_of

from kbert.pretraining.objective import pretraining_losses
from kbert.training.distribution import all_devices, checked, n_devices, trainer_on

SCRIPT = Path(__file__).parent / "on_devices.py"
# Dropout draws the same numbers on JAX however its array is divided. On TensorFlow each device has its own.
DROPOUT = {"jax": 0.1, "tensorflow": 0.0}.get(keras.backend.backend(), 0.0)

pytestmark = pytest.mark.backend
on_one_process = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="PyTorch's devices belong to several processes"
)


def started(folder, *arguments, launcher=(), **options):
    """A process that runs the script."""
    folder.mkdir(exist_ok=True)
    words = [f"{name}={value}" for name, value in options.items()]
    command = [sys.executable, *launcher, str(SCRIPT), str(folder), *map(str, arguments), *words]
    return subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, stderr=subprocess.PIPE, text=True)


def free_port():
    """A port that no program has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def finish(*processes):
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]


def result(folder):
    with np.load(folder / "weights.npz") as arrays:
        return pd.read_csv(folder / "history.csv"), [arrays[f"arr_{i}"] for i in range(len(arrays.files))]


def assert_same_run(one, several):
    names = ["loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy", "tokens", "val_loss"]
    (history, weights), (other_history, other_weights) = one, several
    assert len(history) == len(other_history) == 12
    np.testing.assert_allclose(history[names], other_history[names], rtol=1e-5, atol=1e-5)
    for a, b in zip(weights, other_weights, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.fixture(scope="module")
def alone():
    """A run on one device."""
    run = made(dropout=DROPOUT, distribution=None)
    return run.run(), weights_of(run)


@pytest.mark.compiles
@on_one_process
def test_two_devices_train_as_one(tmp_path, alone):
    finish(started(tmp_path, 2, dropout=DROPOUT))
    assert_same_run(alone, result(tmp_path))


@pytest.mark.thorough
@on_one_process
def test_gradients_accumulate_over_devices(tmp_path):
    run = made(dropout=DROPOUT, gradient_accumulation=2, distribution=None)
    history = run.run()
    finish(started(tmp_path, 2, dropout=DROPOUT, gradient_accumulation=2))
    assert_same_run((history, weights_of(run)), result(tmp_path))


@pytest.mark.compiles
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="several processes train on JAX")
def test_two_processes_train_as_one_and_go_on(tmp_path, alone):
    port = free_port()
    finish(*(started(tmp_path, 2, number, 2, port, dropout=DROPOUT) for number in range(2)))
    assert_same_run(alone, result(tmp_path))
    # One device goes on from what four devices wrote: nothing is left to do.
    run = made(dropout=DROPOUT, distribution=None, folder=tmp_path / "checkpoints")
    assert len(run.run()) == 12
    for a, b in zip(alone[1], weights_of(run), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.compiles
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="several processes train on JAX")
def test_two_processes_divide_the_weights(tmp_path, alone):
    port = free_port()
    finish(*(started(tmp_path, 1, number, 2, port, dropout=DROPOUT, divided="true") for number in range(2)))
    assert_same_run(alone, result(tmp_path))


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="a distribution of one device, which JAX has")
def test_rows_are_shared_out_and_weights_copied():
    one = keras.distribution.DataParallel()
    run = made(distribution=one)
    trainer = trainer_on(one, run.model, pretraining_losses, "adamw")
    rows, copies = trainer._sharded({"a": np.ones((4, 2))})["a"], trainer.values[0]
    assert tuple(rows.sharding.spec) == ("batch", None) and tuple(copies.sharding.spec) == ()
    assert checked(one, 5) is one and n_devices(one) == 1


@pytest.mark.thorough
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torchrun starts processes of PyTorch")
def test_processes_of_torchrun_train_as_one(tmp_path, alone):
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()))
    finish(started(tmp_path, 1, launcher=torchrun, dropout=DROPOUT))
    assert_same_run(alone, result(tmp_path))


def test_bad_distributions_are_told(monkeypatch):
    assert all_devices() is None and checked(None, 5) is None and n_devices(None) == 1
    with pytest.raises(TypeError, match="distribution is int; on"):
        made(distribution=2)
    if keras.backend.backend() == "jax":
        with pytest.raises(ValueError, match="max_steps where there are several processes"):
            monkeypatch.setattr("kbert.pretraining.trainer.process_number", lambda: (0, 2))
            made(max_steps=None, max_seconds=3.0)
