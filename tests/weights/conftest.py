import keras
import numpy as np
import pytest

from kbert import BertConfig, BertEncoder

TOY = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_act="gelu_new",
)


@pytest.fixture(scope="session")
def toy_config():
    return TOY


@pytest.fixture(scope="session")
def encoder():
    """An encoder of which no array holds its start value."""
    encoder = BertEncoder(TOY, seed=1)
    rng = np.random.default_rng(0)
    for weight in encoder.weights:
        weight.assign(rng.normal(1.0 if weight.name == "gamma" else 0.0, 0.2, weight.shape).astype("float32"))
    return encoder


@pytest.fixture(scope="session")
def inputs():
    """Three rows of 5, 9 and 12 tokens, of which the last four are a second segment."""
    rng = np.random.default_rng(1)
    lengths = np.array([5, 9, 12])
    positions = np.tile(np.arange(12), (3, 1))
    return {
        "token_ids": rng.integers(0, 100, (3, 12)).astype("int32"),
        "segment_ids": ((positions >= lengths[:, None] - 4) & (positions < lengths[:, None])).astype("int32"),
        "position_ids": positions.astype("int32"),
        "text_ids": (positions < lengths[:, None]).astype("int32"),
    }


@pytest.fixture(scope="session")
def arrays_of():
    """A model's weights as NumPy arrays."""
    return lambda model: [np.array(keras.ops.convert_to_numpy(weight)) for weight in model.weights]
