"""Saved estimators of every kind, and rows for them."""

import shutil
import sys
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


@pytest.fixture
def spark(monkeypatch):
    """A session of Spark with two local workers, in a Java of its own, which has the working folder of the test."""
    pyspark = pytest.importorskip("pyspark", reason="run: pip install pyspark")
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = sql.SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").getOrCreate()
    yield session
    session.stop()
    gateway, context = pyspark.SparkContext._gateway, pyspark.SparkContext
    gateway.shutdown()
    gateway.proc.terminate()
    context._gateway = context._jvm = None
