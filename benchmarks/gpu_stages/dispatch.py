"""What it costs to start a training step: one step a call, and several.

The batches are made beforehand, of SST-2 at batch 32, so that nothing else of the host is in the times:

    one step a call, from the host   as a fit does it: each batch is copied to the device; on PyTorch the step is
                                     recorded as a CUDA graph
    one step a call                  the batches are on the device already
    one step a call, not recorded    PyTorch: the same, one operation at a time (KBERT_CUDA_GRAPHS=0)
    several steps a call             JAX: `jax.lax.scan` over the batches, in one compiled function
    torch.compile and torch.compile, reduce-overhead
                                     PyTorch: another step, to compare with: the model compiled, with attention under a
                                     mask, and PyTorch's AdamW

``step_ms`` is the median time of a step, ``busy`` the share of it in which the device computes. Where ``busy`` is low
and several steps a call are much faster, the host is what limits training. ``graphs`` and ``graph_breaks`` say how
torch.compile has cut up the model: many breaks mean that most of it still runs eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_stages import texts
from gpu_stages.setting import Absent, Cell, Setting

SIZES = ("tiny", "minilm-l6", "base")
_WAYS = {
    "jax": ("one step a call, from the host", "one step a call", "several steps a call"),
    "torch": (
        "one step a call, from the host", "one step a call", "one step a call, not recorded", "torch.compile",
        "torch.compile, reduce-overhead",
    ),
}  # fmt: skip
# Steps of a call where there are several, and of a measurement.
STEPS = 16


def cells(setting: Setting) -> list[Cell]:
    """Small models first, in which the host shows most."""
    return [
        Cell(f"{size}: {way}", {"size": size, "way": way}, 60 if "compile" in way else 20)
        for size in setting.pick(SIZES, ("tiny",))
        for way in _WAYS[setting.backend]
    ]


def measure(setting: Setting, seconds: float, size: str, way: str) -> dict[str, Any]:
    """One cell."""
    from gpu_stages import device

    if way == "one step a call, not recorded" and not device.is_gpu():
        raise Absent("PyTorch sees no CUDA, where no step is recorded")
    n_steps = setting.pick(STEPS, 2)
    work = _Work(setting, size, n_steps)
    run = work.kbert(way) if "a call" in way else work.compiled(way)
    median = device.median_seconds(run, setting.pick(1.0, 0.01))
    return {
        **(graphs() if "compile" in way else {}),
        "step_ms": 1e3 * median / n_steps,
        **device.profiled(run),
        "memory_mb": device.peak_memory_mb(),
        "tokens_of_a_step": work.tokens,
        "row_length": work.row_length,
        "steps": n_steps,
    }


def graphs() -> dict[str, int]:
    """In how many graphs torch.compile has cut what it compiled, and at how many places."""
    from torch._dynamo.utils import counters

    return {"graphs": counters["stats"]["unique_graphs"], "graph_breaks": sum(counters["graph_break"].values())}


class _Work:
    """A model, and the batches and hyperparameters of some steps."""

    def __init__(self, setting: Setting, size: str, n_steps: int):
        from kbert import WordPieceTokenizer
        from kbert.data.batches import TrainingBatches
        from kbert.model import BertForSequenceClassification
        from kbert.text import build_sequences
        from kbert.training.backends import backend_step
        from kbert.training.hyperparameters import HyperparameterFactory
        from kbert.training.labelled_batches import TrainingData, labelled_batches
        from kbert.training.losses import softmax_cross_entropy
        from kbert.training.precision import dtype_policy

        self.setting = setting
        folder, longest = texts.weights_folder(size, setting), texts.max_length("sst2", setting)
        some, labels = texts.rows("sst2", 32 * n_steps, folder, setting)
        tokenizer = WordPieceTokenizer.from_pretrained(folder)
        sequences = build_sequences(tokenizer, some, max_length=longest)
        batches = TrainingBatches(sequences, 32, 0)
        self.loss = softmax_cross_entropy
        self.model = BertForSequenceClassification(texts.config_of(size, setting), 2, dtype=dtype_policy("auto"))
        names = [tensor.name for tensor in self.model.inputs]
        data = TrainingData(sequences, np.array(labels, "int32"), np.ones(len(labels), "float32"))
        made = list(batches.epoch(0))
        self.batches = [batch for _, batch in labelled_batches(made, data, lambda batch: batch.inputs_of(names))]
        # Steps that are stacked for a scan, or captured in a graph, have one shape.
        shapes = {batch.inputs["token_ids"].shape for batch in self.batches}
        if len(shapes) > 1:
            raise ValueError(f"the batches have several shapes: {shapes}")
        self.tokens, self.row_length = made[0].n_tokens, batches.layout.length
        hyper = HyperparameterFactory(self.model, 0.01)
        self.hypers = [hyper(5e-5, i, i, 1.0) for i in range(n_steps)]
        self.trainer = backend_step().Trainer(self.model, self.loss)

    # --- kbert's own step ----------------------------------------------------------------------------------------

    def kbert(self, way: str) -> Callable[[], Any]:
        """All steps, one a call, or on JAX in one call."""
        if way == "several steps a call":
            return self._scan()
        batches: list[Any] = self.batches
        train = self.trainer.train
        if way != "one step a call, from the host":
            if getattr(self.trainer, "recorded", None) is not None:
                batches, train = self._with_bounds(), self._train_with_bounds
                self.trainer.recorded._may_record &= "not recorded" not in way
            batches = [self._on_device(batch) for batch in batches]
        return lambda: [train(batch, hyper) for batch, hyper in zip(batches, self.hypers, strict=True)]

    def _with_bounds(self) -> list[Any]:
        """The batches with what a GPU's attention reads beside them, which the host finds out for each batch."""
        from kbert.training.step_torch import _bounds_of

        return [(batch, *_bounds_of(batch.inputs)) for batch in self.batches]

    def _train_with_bounds(self, batch: Any, hyper: Any) -> Any:
        """`Trainer.train` of step_torch on a GPU, on such a batch."""
        from kbert.training.step_torch import _current, _seeded

        trainer = self.trainer
        with _current(trainer.device), _seeded(hyper.seed, trainer.device):
            return trainer.recorded(trainer._step, batch, hyper)

    def _on_device(self, batch: Any) -> Any:
        import keras

        if keras.backend.backend() == "jax":
            import jax

            return jax.device_put(batch)
        import torch

        from kbert.training.step_torch import _on_device

        moved = _on_device(batch, self.trainer.device)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return moved

    def _scan(self) -> Callable[[], Any]:
        import jax
        from jax import numpy as jnp

        trainer = self.trainer

        def stacked(values: list[Any]) -> Any:
            return jax.device_put(jax.tree.map(lambda *arrays: np.stack(arrays), *values))

        batches, hypers = stacked(self.batches), stacked(self.hypers)

        def several(state: Any, frozen: Any, batches: Any, hypers: Any) -> Any:
            def step(state: Any, inputs: Any) -> Any:
                *state, loss = trainer._train(state, frozen, *inputs)
                return tuple(state), loss

            return jax.lax.scan(step, state, (batches, hypers))

        compiled = jax.jit(several, donate_argnums=0)
        held = [jax.tree.map(jnp.copy, (trainer.values, trainer.moments_1, trainer.moments_2))]

        def run() -> Any:
            held[0], losses = compiled(held[0], trainer.frozen, batches, hypers)
            return losses

        return run

    # --- PyTorch: torch.compile ----------------------------------------------------------------------------------

    def compiled(self, way: str) -> Callable[[], Any]:
        """All steps, one a call, of a step that reads no number from the device."""
        import torch

        parameters = self.trainer.parameters
        batches = [self._on_device(batch) for batch in self.batches]
        on_gpu = torch.cuda.is_available()
        optimizer = torch.optim.AdamW(parameters, 5e-5, eps=1e-6, weight_decay=0.01, fused=True, capturable=on_gpu)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        # The compiler of a CPU takes minutes.
        mode = "reduce-overhead" if "reduce" in way else "default"
        options: dict[str, Any] = {"backend": "eager"} if self.setting.miniature else {"mode": mode}
        forward = torch.compile(lambda inputs: self.model(inputs, training=True), **options)

        def step(batch: Any) -> Any:
            torch.compiler.cudagraph_mark_step_begin()  # the memory of the step before may be used again
            loss = self.loss(forward(batch.inputs), batch.targets, batch.weights)
            found = torch.autograd.grad(loss, parameters, materialize_grads=True)
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(found)))
            factor = torch.clamp(1 / (norm + 1e-6), max=1.0)
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient * factor
            optimizer.step()
            return loss.detach()

        return lambda: [step(batch) for batch in batches]
