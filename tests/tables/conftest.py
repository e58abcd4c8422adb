"""Saved estimators of every kind, and rows for them."""

from pathlib import Path

import pandas as pd
import pytest

import kbert

SAVED = Path(__file__).parents[1] / "estimators" / "saved"
WORDS = "red blue hot cold table chair great awful".split()
TEXTS = [" ".join(WORDS[(i + j * j) % 8] for j in range(3 + i % 4)) for i in range(60)]


@pytest.fixture(scope="session")
def saved():
    """The folder of a saved estimator, by the name of its kind."""
    return SAVED.__truediv__


@pytest.fixture(scope="session")
def estimator():
    """A saved estimator, by the name of its kind. Tests must not change it."""
    loaded = {}

    def get(kind):
        if kind not in loaded:
            loaded[kind] = kbert.load(SAVED / kind)
        return loaded[kind]

    return get


@pytest.fixture(scope="session")
def rows():
    """60 rows with the columns of every kind of estimator."""
    return pd.DataFrame(
        {
            "id": range(60), "text": TEXTS, "words": [text.split() for text in TEXTS],
            "question": [text.split()[0] for text in TEXTS], "context": TEXTS,
            "options": [["red hot", "blue cold", "great"][: 2 + i % 2] for i in range(60)],
        }
    )  # fmt: skip
