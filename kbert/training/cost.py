"""What a training takes, before it is begun: seconds, by one forward pass of a part of the model, and memory.

A training step is not measured: on JAX and TensorFlow it would have to be compiled, which takes longer than a plan may.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from kbert.config import BertConfig
from kbert.data.packing import Layout
from kbert.model.encoder import skip_initialisation
from kbert.model.setup import keras
from kbert.training.precision import has_accelerator
from kbert.training.predict import predict_padding

# Of all layers so many are measured: they are all alike, and compiling takes time with their number.
_LAYERS = 2
# A batch is measured that takes at most so many operations, or has one row.
_OPERATIONS = 2e10
# It is repeated for so long, or so often.
_SECONDS, _REPEATS = 0.5, 5


@dataclass(frozen=True)
class BackendCost:
    """How a backend's training compares with its forward pass when predicting.

    Attributes
    ----------
    ratio : float
        A training step, without the optimiser, in forward passes of the same batch, where attention costs nothing.
    attention : float
        What is added for attention, which has dropout in training and is not fused: times heads x length / width².
    optimizer : float
        Seconds of the optimiser for each number that is trained.
    compile_step, compile_forward : float
        Seconds of compiling a training step and a forward pass, for each layer.
    """

    ratio: float
    attention: float
    optimizer: float
    compile_step: float
    compile_forward: float


# Measured with minilm-l6 on two cores of a server: steps and forward passes in benchmarks/results/plan.csv,
# optimisers in benchmarks/results/optimizer_share.csv.
_ON_CPU = {
    "torch": BackendCost(2.0, 105.0, 1.6e-9, 0.0, 0.0),
    "jax": BackendCost(1.8, 65.0, 1.1e-9, 1.4, 0.17),
    "tensorflow": BackendCost(1.5, 88.0, 3.1e-9, 2.75, 0.3),
}
# PyTorch in bfloat16: predicting gains more by it than training does, whose dropout and optimiser stay as they are.
_IN_BFLOAT16 = {"ratio": 2.7, "attention": 140.0}
# Backpropagation takes twice the forward pass. An accelerator updates some 30 bytes a number at 1 TB/s.
_ON_ACCELERATOR = {"ratio": 3.0, "attention": 0.0, "optimizer": 3e-11}


def backend_cost(policy: str) -> BackendCost:
    """That of the backend in use, on the device in use, under one of Keras's dtype policies."""
    backend = keras.backend.backend()
    if has_accelerator():
        return replace(_ON_CPU[backend], **_ON_ACCELERATOR)
    in_bfloat16 = backend == "torch" and policy == "mixed_bfloat16"
    return replace(_ON_CPU[backend], **_IN_BFLOAT16) if in_bfloat16 else _ON_CPU[backend]


@dataclass(frozen=True)
class Forward:
    """A forward pass that was measured.

    Attributes
    ----------
    config : BertConfig
        Of the whole model.
    layout : Layout
        The shape of the whole batch.
    measured_rows, measured_layers : int
        How many rows of the batch, and layers of the model, were computed.
    seconds : float
        What the whole model takes for the whole batch.
    seconds_to_build : float
        What making the whole model took.
    policy : str
        The dtype policy of the model.
    """

    config: BertConfig
    layout: Layout
    measured_rows: int
    measured_layers: int
    seconds: float
    seconds_to_build: float
    policy: str = "float32"

    @property
    def n_tokens(self) -> int:
        """Tokens of the batch, padding included."""
        return self.layout.rows * self.layout.length


def measure_forward(make_model: Callable[[BertConfig], keras.Model], config: BertConfig, layout: Layout) -> Forward:
    """Measure a forward pass of the first layers on some rows of a batch of padding.

    The weights are zeros, so that none are read; what is computed takes as long.

    Parameters
    ----------
    make_model : callable
        Makes a model with the task's head.
    config : BertConfig
    layout : Layout
        The shape of a batch.
    """
    n_layers = min(_LAYERS, config.num_hidden_layers)
    share = config.num_hidden_layers / n_layers
    rows = max(1, min(layout.rows, int(_OPERATIONS / (n_layers * _operations(config, layout.length)))))
    began = time.perf_counter()
    with skip_initialisation():
        model = make_model(replace(config, num_hidden_layers=n_layers))
    built = time.perf_counter() - began
    some = layout._replace(rows=rows)
    predict_padding(model, some)  # compiles
    times: list[float] = []
    while len(times) < _REPEATS and sum(times) < _SECONDS:
        began = time.perf_counter()
        predict_padding(model, some)
        times.append(time.perf_counter() - began)
    seconds = min(times) * share * layout.rows / rows
    return Forward(config, layout, rows, n_layers, seconds, built * share, model.dtype_policy.name)


def _operations(config: BertConfig, length: int) -> float:
    """Operations of one layer on one row of a batch: matrix products, and attention."""
    width = config.hidden_size
    products = 2 * (4 * width + 2 * config.intermediate_size) * width
    return length * (products + 4 * length * width)


def step_seconds(forward: Forward, freeze: int, cost: BackendCost) -> float:
    """Seconds of the forward pass and backpropagation of a batch, without the optimiser.

    ``freeze`` layers are frozen, and not computed in a step.
    """
    config = forward.config
    attention = cost.attention * config.num_attention_heads * forward.layout.length / config.hidden_size**2
    return (cost.ratio + attention) * forward.seconds * (1 - freeze / config.num_hidden_layers)


def trained_numbers(config: BertConfig, freeze: int = 0) -> int:
    """Weights that are trained, without those of a head."""
    width = config.hidden_size
    layer = (4 * width + 2 * config.intermediate_size) * width + 9 * width + config.intermediate_size
    tables = config.vocab_size + config.max_position_embeddings + config.type_vocab_size + 2
    return (config.num_hidden_layers - freeze) * layer + (0 if freeze else tables * width)


def memory_of_training(config: BertConfig, layout: Layout, policy: str, freeze: int = 0) -> int:
    """Bytes that a training step takes: weights, and what the layers keep for backpropagation.

    16 bytes for each number that is trained (the weight, its gradient and two moments), 4 for any other. The layers
    keep what Korthikanti et al. (2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.1)
    count: with 2 bytes a number, 34 s b h + 5 a s² b of each layer, which is 66 s b h + 9 a s² b with 4 bytes, since
    the masks of the dropouts stay. Attention that is fused keeps less.

    Parameters
    ----------
    config : BertConfig
    layout : Layout
        b rows of s tokens.
    policy : str
        Keras's dtype policy.
    freeze : int, default=0
        The first layers that are not trained, and the embeddings with them; they keep nothing.
    """
    trained = trained_numbers(config, freeze)
    b, s, h, a = layout.rows, layout.length, config.hidden_size, config.num_attention_heads
    kept = (66 * h + 9 * a * s) if policy == "float32" else (34 * h + 5 * a * s)
    return 16 * trained + 4 * (trained_numbers(config) - trained) + (config.num_hidden_layers - freeze) * b * s * kept
