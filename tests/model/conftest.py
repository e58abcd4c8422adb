import numpy as np
import pytest

from kbert import BertConfig

TOY = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)


@pytest.fixture(scope="session")
def toy_config():
    return TOY


@pytest.fixture(scope="session")
def texts():
    """Twelve texts as token ids, 2 to 13 of them."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, TOY.vocab_size, length) for length in range(2, 14)]


@pytest.fixture(scope="session")
def rows_of():
    """BertEncoder's input for rows of texts: ``rows_of([[a, b], [c]], length)``."""

    def make(rows, length):
        arrays = {name: np.zeros((len(rows), length), "int32") for name in ("token_ids", "position_ids", "text_ids")}
        for row, texts in enumerate(rows):
            start = 0
            for k, ids in enumerate(texts):
                place = slice(start, start + len(ids))
                arrays["token_ids"][row, place] = ids
                arrays["position_ids"][row, place] = np.arange(len(ids))
                arrays["text_ids"][row, place] = k + 1
                start += len(ids)
        return {**arrays, "segment_ids": arrays["position_ids"] % 2}

    return make
