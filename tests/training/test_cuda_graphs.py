"""Recorded steps: without a GPU, a stand-in for the graph runs the step again on what it holds."""

from contextlib import contextmanager

import keras
import numpy as np
import pytest

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
    def record(graph, pool, capture_error_mode):
        graphs.append((graph, pool))
        original = steps._run

        def run(batch, tensors):
            graph.compute = lambda: original(batch, tensors)
            graph.out = original(batch, tensors).clone()
            runs.pop()  # recording computes nothing
            return graph.out

        monkeypatch.setattr(steps, "_run", run)
        yield
        monkeypatch.setattr(steps, "_run", original)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(cuda_graphs, "pinned", lambda array: torch.from_numpy(np.array(array)))
    steps = cuda_graphs.RecordedSteps(step, torch.device("cpu"))
    return steps, runs, graphs


def test_a_shape_is_recorded_when_it_comes_again(recorded):
    steps, runs, graphs = recorded
    losses = []
    for i in range(1, 6):
        x = np.full((2, 3) if i != 4 else (1, 3), i, "float32")
        losses.append(steps({"x": x}, hyper_of(i, rate=i)))
    assert len(graphs) == 1 and len(runs) == 5
    # The losses of a step stay when the next one runs.
    assert [float(loss) for loss in losses] == [6 * i + 2 * i if i != 4 else 3 * i + 2 * i for i in range(1, 6)]
    for i, (x, groups, (rates, loss_scale, updates)) in enumerate(runs, 1):
        assert (x == i).all() and rates.tolist() == [i, i] and loss_scale == 1 and updates == i - 1
        assert groups.members == [[0], [1]] and groups.decays == pytest.approx([0.01, 0])
    steps({"x": np.zeros((1, 3), "float32")}, hyper_of(6))
    assert [pool for _, pool in graphs] == [None, "pool"]  # all share their memory


def test_other_groups_are_recorded_anew(recorded):
    steps, runs, graphs = recorded
    x = {"x": np.zeros((2, 3), "float32")}
    for i in range(1, 4):
        steps(x, hyper_of(i, decays=(0.01, 0.0)))
    for i in range(4, 7):
        steps(x, hyper_of(i, decays=(0.0, 0.0)))
    assert len(graphs) == 2
    assert [len(groups.members) for _, groups, _ in runs] == [2, 2, 2, 1, 1, 1]


def test_what_cannot_be_recorded_is_told_once_and_run(recorded, monkeypatch):
    import torch

    steps, runs, _ = recorded

    @contextmanager
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")
        yield

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    with pytest.warns(UserWarning, match="stream is capturing") as told:
        for i in range(1, 5):
            steps({"x": np.full((2, 3), i, "float32")}, hyper_of(i))
    assert len(told) == 1 and [float(x[0, 0]) for x, *_ in runs] == [1, 2, 3, 4]


def test_a_variable_turns_it_off(recorded, monkeypatch):
    from kbert.training.cuda_graphs import RecordedSteps

    steps, runs, graphs = recorded
    monkeypatch.setenv("KBERT_CUDA_GRAPHS", "0")
    steps = RecordedSteps(steps.step, steps.device)
    for i in range(1, 4):
        steps({"x": np.zeros((2, 3), "float32")}, hyper_of(i))
    assert not graphs and len(runs) == 3
