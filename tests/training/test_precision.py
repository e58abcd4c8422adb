"""What dtype="auto" means on machines of all kinds."""

import keras
import pytest
from threadpoolctl import threadpool_info

from kbert.training import precision

torch_only = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="other backends have no fast bfloat16 on CPUs"
)


@pytest.fixture
def machine(monkeypatch):
    """Make it look as if the machine had an accelerator, instructions for bfloat16, and such a gain by them."""

    def arrange(accelerator=False, instructions=False, gain=1.0, variable=None):
        monkeypatch.setattr(precision, "has_accelerator", lambda: accelerator)
        monkeypatch.setattr(precision, "_has_instructions", lambda: instructions)
        monkeypatch.setattr(precision, "bfloat16_gain", lambda: gain)
        monkeypatch.delenv(precision.CPU_BFLOAT16, raising=False)
        if variable is not None:
            monkeypatch.setenv(precision.CPU_BFLOAT16, variable)

    return arrange


@pytest.mark.backend
def test_an_accelerator_computes_in_bfloat16(machine):
    machine(accelerator=True)
    assert precision.dtype_policy("auto") == "mixed_bfloat16"
    assert precision.dtype_policy("float32") == "float32"


@torch_only
@pytest.mark.backend
@pytest.mark.parametrize(
    "facts, expected",
    [
        ({"instructions": True, "gain": 1.9}, "mixed_bfloat16"),
        ({"instructions": True, "gain": 1.1}, "float32"),
        ({"instructions": False, "gain": 1.9}, "float32"),
        ({"instructions": False, "variable": "1"}, "mixed_bfloat16"),
        ({"instructions": True, "gain": 1.9, "variable": "0"}, "float32"),
    ],
)
def test_a_cpu_computes_in_what_is_faster(machine, facts, expected):
    machine(**facts)
    assert precision.dtype_policy("auto") == expected
    assert precision.why_auto().startswith("on a CPU")


@pytest.mark.backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch may compute in bfloat16 on a CPU")
def test_other_backends_compute_in_float32_on_a_cpu(machine):
    machine(instructions=True, gain=1.9)
    assert precision.dtype_policy("auto") == "float32"
    assert keras.backend.backend() in precision.why_auto()


@torch_only
@pytest.mark.backend
def test_without_the_instructions_nothing_is_timed(monkeypatch):
    """A product in bfloat16 may then take very long."""
    monkeypatch.setattr(precision, "_has_instructions", lambda: False)
    monkeypatch.setattr(precision, "bfloat16_gain", lambda: pytest.fail("it was timed"))
    monkeypatch.delenv(precision.CPU_BFLOAT16, raising=False)
    assert precision.dtype_policy("auto") == "float32"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("found", "expected"),
    [({"fpu", "avx512f", "avx512_bf16"}, True), ({"amx_bf16"}, True), ({"asimd", "bf16"}, True), ({"avx512f"}, False)],
)
def test_which_instructions_multiply_bfloat16(monkeypatch, found, expected):
    monkeypatch.setattr(precision, "instructions", lambda: found)
    assert precision._has_instructions() == expected


@torch_only
@pytest.mark.backend
def test_the_gain_is_measured():
    assert precision.bfloat16_gain() > 0


@torch_only
@pytest.mark.backend
def test_one_thread_is_timed(monkeypatch):
    """Several would wait for each other where other processes run, and the dtype would be another one by chance."""
    from kbert.model import products_torch

    def threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "openmp"]

    before, seen, original = threads(), [], products_torch.product_without_grad
    monkeypatch.setattr(
        products_torch, "product_without_grad", lambda x, kernel: seen.append(threads()) or original(x, kernel)
    )
    precision.bfloat16_gain.__wrapped__()
    assert seen and {n for found in seen for n in found} == {1}
    assert threads() == before
