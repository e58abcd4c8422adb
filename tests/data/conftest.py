import numpy as np
import pytest

from kbert.text import Ragged, TokenSequences


@pytest.fixture(scope="session")
def sequences_of():
    """Texts of given lengths: every token has an id of its own, and the last third of each is a second segment."""

    def make(lengths):
        lengths = np.asarray(lengths, "int64")
        splits = np.concatenate([[0], np.cumsum(lengths)])
        tokens = Ragged(np.arange(100, 100 + splits[-1], dtype="int32"), splits)
        return TokenSequences(tokens, lengths - lengths // 3, np.zeros(len(lengths), bool), np.arange(len(lengths)))

    return make


@pytest.fixture(scope="session")
def realistic_lengths():
    """Token counts spread as those of short reviews are: most of 8 to 30, some up to 64."""
    rng = np.random.default_rng(0)
    return np.clip(rng.lognormal(2.9, 0.6, 6000).round().astype("int64"), 3, 64)
