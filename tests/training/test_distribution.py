"""What a fit is told of devices that it does not use."""

import warnings
from types import SimpleNamespace

import keras
import pytest

from kbert.errors import KbertWarning
from kbert.training import distribution
from kbert.training.distribution import checked, for_fine_tuning

pytestmark = pytest.mark.slow  # with which PyTorch's tests are run
only_torch = pytest.mark.skipif(keras.backend.backend() != "torch", reason="elsewhere a process takes all GPUs")


@pytest.fixture
def four_gpus(monkeypatch):
    """PyTorch sees four."""
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


@only_torch
@pytest.mark.usefixtures("four_gpus")
def test_gpus_that_are_left_unused_are_told_of_with_what_to_do():
    match = "sees 4 GPUs, and training uses one of them.*torchrun --nproc-per-node 4.*distribution=None"
    with pytest.warns(KbertWarning, match=match):
        assert for_fine_tuning("auto", False) is None
    with pytest.warns(KbertWarning, match=match):
        assert checked("auto", 8) is None  # of a pre-training


@only_torch
@pytest.mark.usefixtures("four_gpus")
def test_nothing_is_told_where_one_gpu_is_meant_or_all_are_used(monkeypatch):
    group = SimpleNamespace(size=lambda: 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert for_fine_tuning(None, False) is None
        assert for_fine_tuning("auto", True) is None  # torchrun would not divide it
        monkeypatch.setattr(distribution, "_process_group", lambda: group)
        assert for_fine_tuning("auto", False) is group


@only_torch
def test_a_fit_on_one_gpu_is_told_nothing(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert for_fine_tuning("auto", False) is None
