"""What is brought to the host; a GPU of PyTorch's is played by the CPU, which notes what it is asked for."""

from contextlib import nullcontext

import keras
import numpy as np
import pytest

from kbert.training import host_copies
from kbert.training.host_copies import as_numbers, host_copy
from kbert.training.non_finite import NonFiniteGuard

pytestmark = pytest.mark.backend


def test_a_copy_is_that_of_the_tensor():
    tensor = keras.ops.convert_to_tensor(np.arange(6, dtype="float32").reshape(2, 3))
    np.testing.assert_array_equal(host_copy(tensor)(), np.arange(6).reshape(2, 3))


def test_scalars_and_numbers_become_one_array():
    scalars = [0.5, keras.ops.convert_to_tensor(np.float32(0.25)), float("nan"), keras.ops.convert_to_tensor(2.0)]
    found = as_numbers(scalars)
    assert found.dtype == "float64" and as_numbers([]).shape == (0,)
    np.testing.assert_array_equal(found, [0.5, 0.25, np.nan, 2.0])


@pytest.fixture
def gpu(monkeypatch):
    """What PyTorch's GPU was asked for, in order. Tensors of the CPU stand for its own."""
    torch = pytest.importorskip("torch")
    if keras.backend.backend() != "torch":
        pytest.skip("waiting for all that a GPU was asked for is PyTorch's")
    asked = []
    empty = torch.empty

    class Event:
        def record(self):
            self.number = len(asked)
            asked.append("copy")

        def synchronize(self):
            asked.append(f"wait for {self.number}")

    monkeypatch.setattr(host_copies, "_is_on_gpu", lambda tensor: isinstance(tensor, torch.Tensor))
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **options: empty(*size, **options))
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return asked


def test_a_reading_waits_for_its_own_copy_alone(gpu):
    read = host_copy(keras.ops.convert_to_tensor([1.0, 2.0]))
    gpu.append("another step")
    np.testing.assert_array_equal(read(), [1, 2])
    assert gpu == ["copy", "another step", "wait for 0"]


def test_scalars_on_a_gpu_come_in_one_copy(gpu, monkeypatch):
    """And in their places among numbers."""
    copied = []
    monkeypatch.setattr(host_copies, "to_numpy", lambda tensor: copied.append(tensor.shape) or tensor.numpy())
    one, two = keras.ops.convert_to_tensor(1.5), keras.ops.convert_to_tensor(2.5)
    np.testing.assert_array_equal(as_numbers([0.5, one, 9, two]), [0.5, 1.5, 9, 2.5])
    assert copied == [(2,)]


def test_a_large_copy_is_made_when_it_is_read(gpu):
    """PyTorch would keep the memory that a GPU can write for good."""
    large = keras.ops.zeros((host_copies._LARGEST // 4 + 1,), "float32")
    assert host_copy(large)().shape == tuple(large.shape) and gpu == []
    host_copy(large[1:])
    assert gpu == ["copy"]


def test_the_loss_of_an_update_is_copied_at_once_and_read_later(gpu):
    guard = NonFiniteGuard(False, "again")
    read = []
    for update in range(1, 13):
        guard.record(update, keras.ops.convert_to_tensor(float(update)), lambda values: read.append(float(values)))
        gpu.append(f"update {update + 1}")
    assert read == [1, 2, 3, 4] and gpu.index("wait for 0") > gpu.index("update 9")
    guard.read_all()
    assert read == list(range(1, 13))
