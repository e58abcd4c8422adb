import os
import platform

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.data.batches import TrainingBatches
from kbert.model import BertForSequenceClassification
from kbert.text import Ragged, TokenSequences
from kbert.training.labelled_batches import TrainingData
from kbert.training.loop import TrainingOptions, train
from kbert.training.losses import softmax_cross_entropy

TOY = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=1,  # compiles twice as fast as two
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)


@pytest.fixture
def own_allocator(monkeypatch):
    """glibc's, which nobody has adjusted. (A cluster of Dask's leaves MALLOC_TRIM_THRESHOLD_ in the environment.)"""
    for name in list(os.environ):
        if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES":
            monkeypatch.delenv(name)
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("the allocator of glibc is what is adjusted")


@pytest.fixture(scope="session")
def model_of():
    """A classifier into two classes; ``model_of(dropout=0.0)``."""

    def make(dropout=None, dtype=None, seed=1):
        return BertForSequenceClassification(TOY.with_dropout(dropout), num_labels=2, dtype=dtype, seed=seed)

    return make


@pytest.fixture(scope="session")
def sequences():
    """96 texts of 8 tokens, so that all batches of one size have one shape; half of the texts hold the token 7."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(10, 100, (96, 8)).astype("int32")
    tokens[1::2, 3] = 7
    return TokenSequences(
        Ragged(tokens.ravel(), np.arange(0, 769, 8)), np.full(96, 5), np.zeros(96, bool), np.arange(96)
    )


@pytest.fixture(scope="session")
def targets():
    """The class of each text: whether it holds the token 7."""
    return (np.arange(96) % 2).astype("int32")


@pytest.fixture(scope="session")
def trained(sequences, targets):
    """Train a model on the texts, 16 a step; returns the history."""

    def run(model, batch_size=16, n_texts=64, weights=None, on_epoch_end=None, loss=softmax_cross_entropy, **options):
        weights = np.ones(n_texts, "float32") if weights is None else weights
        data = TrainingData(sequences.take(slice(n_texts)), targets[:n_texts], weights)
        batches = TrainingBatches(data.sequences, batch_size, seed=options.get("seed", 0))
        options = TrainingOptions(**{"epochs": 1, "learning_rate": 1e-3, **options})
        return train(model, loss, batches, data, options, on_epoch_end)

    return run


@pytest.fixture(scope="session")
def arrays_of():
    """A model's weights as NumPy arrays."""
    return lambda model: [np.array(keras.ops.convert_to_numpy(weight)) for weight in model.weights]


@pytest.fixture(scope="session")
def largest_difference():
    """Of two lists of arrays."""
    return lambda first, second: max(np.abs(a - b).max() for a, b in zip(first, second, strict=True))
