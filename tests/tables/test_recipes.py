"""The recipes of docs/howto/tables.md, each run as it stands there, where its engine is installed."""

import os
import re
import sys
from pathlib import Path

import pandas as pd
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tables.md"


def block(title):
    """The Python code after a line that begins with this."""
    after = PAGE.read_text(encoding="utf-8").partition(f"\n{title}")[2]
    return re.search(r"```python\n(.*?)```", after, re.DOTALL)[1]


@pytest.fixture
def work(estimator, rows, tmp_path, monkeypatch):
    """The working folder, with what the recipes name: 60 reviews in three files, the saved model and the module."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews").mkdir()
    reviews = rows[["id"]].assign(review=rows.text)
    for part in range(3):
        reviews[part * 20 : part * 20 + 20].to_parquet(tmp_path / "reviews" / f"{part}.parquet", index=False)
    estimator("classifier").save(tmp_path / "reviews-model")
    (tmp_path / "labelling.py").write_text(block("Send the name of the folder"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    # For the processes that the engines start.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    sys.modules.pop("labelling", None)
    yield tmp_path
    sys.modules.pop("labelling", None)


@pytest.fixture
def check(work, estimator, rows):
    """A function that compares what a recipe has written with `predict`."""

    def compare():
        found = pd.read_parquet(work / "labels").sort_values("id")
        assert list(found.id) == list(rows.id) and list(found.review) == list(rows.text)
        assert list(found.label) == estimator("classifier").predict(rows.text).tolist()

    return compare


@pytest.mark.thorough
def test_dask(check, work):
    pytest.importorskip("dask.dataframe", reason="run: pip install dask[dataframe]")
    import dask

    with dask.config.set(scheduler="synchronous"):  # threads that begin at once load it once each
        exec(block("With Dask").replace('"good"', "1"), {})  # the labels of this model are numbers
    check()
    import labelling

    assert labelling.model.cache_info().misses == 1


@pytest.mark.thorough
def test_spark(check, work, spark):
    exec(block("With Spark").replace("label string", "label long"), {"__name__": "recipe"})
    check()


@pytest.mark.thorough
def test_ray(check, work):
    ray = pytest.importorskip("ray", reason="run: pip install 'ray[data]'")
    ray.init(num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    try:
        exec(block("With Ray"), {"__name__": "recipe"})
    finally:
        ray.shutdown()
    check()
