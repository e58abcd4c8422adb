"""Recorded steps: without a GPU, a stand-in for the graph runs the step again on what it holds."""

import gc
import weakref
from contextlib import contextmanager, nullcontext
from functools import partial

import keras
import numpy as np
import pytest

from kbert.training.step import StepBatch

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch: run with KERAS_BACKEND=torch"),
]

N = 2


def hyper_of(update, rate=1e-3, factors=(1.0, 1.0), decays=(0.01, 0.0), loss_scale=1.0):
    from kbert.training.hyperparameters import BETA_1, BETA_2, Hyperparameters

    return Hyperparameters(
        np.float32(rate) * np.array(factors, "float32"),
        np.array(decays, "float32"),
        np.float32(1 - BETA_1**update),
        np.float32(1 - BETA_2**update),
        np.float32(loss_scale),
        np.array([0, update], "uint32"),
    )


def test_the_update_without_waiting_is_the_same():
    import torch

    from kbert.training.optimizer_torch import adamw_all, adamw_on_device, groups_of, host_numbers, numbers_in

    torch.manual_seed(0)
    shapes = [(5, 4), (4,), (6, 6), (3,)]
    ones = [[torch.randn(shape) for shape in shapes], *([torch.zeros(shape) for shape in shapes] for _ in range(2))]
    others = [[array.clone() for array in part] for part in ones]
    for update in range(1, 7):
        size = 3.0 if update % 2 else 0.01  # with and without clipping
        gradients = [torch.randn(shape) * size for shape in shapes]
        gradients[2] = gradients[2].t()  # another order in memory
        if update == 4:
            gradients[1][0] = torch.inf
        hyper = hyper_of(update, 1e-2 / update, (1, 1, 0.5, 0.5), (0.01, 0, 0.01, 0), loss_scale=8.0)
        groups = groups_of(hyper)
        values, moments_1, moments_2 = ones
        skipped = adamw_all(values, [array.clone() for array in gradients], moments_1, moments_2, hyper)
        numbers = numbers_in(torch.from_numpy(host_numbers(hyper, groups)))
        values, moments_1, moments_2 = others
        found = adamw_on_device(values, [array.clone() for array in gradients], moments_1, moments_2, groups, numbers)
        assert np.isnan(skipped) == bool(found.isnan()) == (update == 4)
        for part, other in zip(ones, others, strict=True):
            torch.testing.assert_close(part, other, rtol=1e-5, atol=1e-7)


@pytest.fixture
def recorded(monkeypatch):
    """`RecordedSteps` of a step that notes what it was given, and the graphs that were recorded."""
    import torch

    from kbert.training import cuda_graphs

    runs, graphs = [], []

    def step(batch, groups, numbers):
        runs.append((batch["x"].clone(), groups, [value.clone() for value in numbers]))
        return batch["x"].sum() + numbers.rates.sum()

    class Graph:
        """Holds what `record` was given; `replay` computes it anew in the same places."""

        def pool(self):
            return "pool"

        def replay(self):
            self.out.copy_(self.compute())

    @contextmanager
    def record(graph, pool, stream, capture_error_mode):
        assert not gc.isenabled()  # no other graph may be destroyed meanwhile
        graphs.append((graph, pool))
        original = steps._run

        def run(step, batch, tensors):
            graph.compute = lambda: original(step, batch, tensors)
            graph.out = original(step, batch, tensors).clone()
            runs.pop()  # recording computes nothing
            return graph.out

        monkeypatch.setattr(steps, "_run", run)
        yield
        monkeypatch.setattr(steps, "_run", original)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(cuda_graphs, "pinned", lambda array: torch.from_numpy(np.array(array)))
    steps = cuda_graphs.RecordedSteps(torch.device("cpu"))
    return partial(steps, step), runs, graphs


def test_a_shape_is_recorded_when_it_comes_for_the_third_time(recorded):
    steps, runs, graphs = recorded
    losses, recorded_at = [], []
    for i in range(1, 7):
        x = np.full((2, 3) if i != 4 else (1, 3), i, "float32")
        losses.append(steps({"x": x}, hyper_of(i, rate=i)))
        recorded_at.append(len(graphs))
    assert recorded_at == [0, 0, 1, 1, 1, 1] and len(runs) == 6 and gc.isenabled()
    # The losses of a step stay when the next one runs.
    assert [float(loss) for loss in losses] == [6 * i + 2 * i if i != 4 else 3 * i + 2 * i for i in range(1, 7)]
    for i, (x, groups, (rates, loss_scale, updates)) in enumerate(runs, 1):
        assert (x == i).all() and rates.tolist() == [i, i] and loss_scale == 1 and updates == i - 1
        assert groups.members == [[0], [1]] and groups.decays == pytest.approx([0.01, 0])
    for i in (7, 8):
        steps({"x": np.zeros((1, 3), "float32")}, hyper_of(i))
    assert [pool for _, pool in graphs] == [None, "pool"]  # all share their memory


def test_other_groups_are_recorded_anew(recorded):
    steps, runs, graphs = recorded
    x = {"x": np.zeros((2, 3), "float32")}
    for i in range(1, 5):
        steps(x, hyper_of(i, decays=(0.01, 0.0)))
    for i in range(5, 8):
        steps(x, hyper_of(i, decays=(0.0, 0.0)))
    assert [pool for _, pool in graphs] == [None, None]  # the memory of the others is gone
    assert [len(groups.members) for _, groups, _ in runs] == [2, 2, 2, 2, 1, 1, 1]


def refusing(error):
    @contextmanager
    def refuse(*_, **__):
        raise error
        yield

    return refuse


def test_without_enough_memory_to_record_it_is_told_once_and_goes_on(recorded, monkeypatch):
    import torch

    steps, runs, _ = recorded
    monkeypatch.setattr(torch.cuda, "graph", refusing(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.warns(UserWarning, match="not enough memory to record") as told:
        for i in range(1, 6):
            steps({"x": np.full((2, 3), i, "float32")}, hyper_of(i))
    assert len(told) == 1 and [float(x[0, 0]) for x, *_ in runs] == [1, 2, 3, 4, 5] and gc.isenabled()


def test_what_cannot_be_recorded_is_an_error_that_says_what_to_do(recorded, monkeypatch):
    import torch

    steps, runs, _ = recorded
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    monkeypatch.setattr(torch.cuda, "graph", refusing(error))
    with pytest.raises(RuntimeError, match="KBERT_CUDA_GRAPHS=0") as raised:
        for i in range(1, 5):
            steps({"x": np.full((2, 3), i, "float32")}, hyper_of(i))
    assert raised.value.__cause__ is error and len(runs) == 2 and gc.isenabled()


def test_batches_on_the_device_are_trained_on_too(recorded):
    import torch

    steps, runs, graphs = recorded
    for i in range(1, 5):
        steps({"x": torch.full((2, 3), float(i))}, hyper_of(i))
    assert len(graphs) == 1 and [float(x[0, 0]) for x, *_ in runs] == [1, 2, 3, 4]


TOY = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_derivatives_are_cast_together_whatever_the_dtype(dtype):
    """With no layers in bfloat16 there is nothing to cast."""
    import torch

    from kbert import BertConfig
    from kbert.model.heads import BertForSequenceClassification
    from kbert.training.fused_layers import FusedLayers

    policy = dtype if dtype == "float32" else f"mixed_{dtype}"
    layers = FusedLayers(BertForSequenceClassification(BertConfig(**TOY), 2, dtype=policy))
    assert bool(layers._cast) == (dtype == "bfloat16") and all(value.is_floating_point() for value in layers._values)
    found = {id(cast): torch.ones_like(cast) for cast in layers._cast[1:]}
    keys = set(found)
    layers._in_float32(found)
    assert set(found) == keys and all(array.dtype == torch.float32 for array in found.values())


def test_a_trainer_does_not_outlive_its_last_use(monkeypatch):
    """Its moments and graphs take the memory of a GPU, which no collection of cycles frees in time."""
    import torch

    from kbert import BertConfig
    from kbert.model.heads import BertForSequenceClassification
    from kbert.training import cuda_graphs, step_torch
    from kbert.training.losses import softmax_cross_entropy

    trainer = step_torch.Trainer(BertForSequenceClassification(BertConfig(**TOY), 2), softmax_cross_entropy)
    trainer.recorded = cuda_graphs.RecordedSteps(torch.device("cpu"))
    monkeypatch.setattr(cuda_graphs, "pinned", lambda array: torch.from_numpy(np.array(array)))
    ones = np.ones((2, 4), "int32")
    inputs = {"token_ids": ones, "segment_ids": 0 * ones, "position_ids": 0 * ones, "text_ids": ones}
    inputs = {**inputs, "first_positions": np.zeros((2, 1), "int32")}
    n = len(trainer.parameters)
    hyper = hyper_of(1, factors=[1.0] * n, decays=[0.0] * n)
    before = trainer.parameters[0].clone()
    trainer.train(StepBatch(inputs, np.zeros((2, 1), "int32"), np.full((2, 1), 0.5, "float32")), hyper)
    assert not torch.equal(before, trainer.parameters[0])
    alive, was_enabled = weakref.ref(trainer), gc.isenabled()
    gc.disable()
    try:
        del trainer
        assert alive() is None
    finally:
        if was_enabled:
            gc.enable()


def test_a_variable_turns_it_off(recorded, monkeypatch):
    from kbert.training.cuda_graphs import RecordedSteps

    steps, runs, graphs = recorded
    monkeypatch.setenv("KBERT_CUDA_GRAPHS", "0")
    steps = partial(RecordedSteps(steps.func.device), *steps.args)
    for i in range(1, 5):
        steps({"x": np.zeros((2, 3), "float32")}, hyper_of(i))
    assert not graphs and len(runs) == 4
