"""The recipes of docs/howto/tables.md for jobs of one's own, as far as their engines are installed."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tables.md"


def block(title):
    """The Python code after a line that begins with this."""
    after = PAGE.read_text(encoding="utf-8").partition(f"\n{title}")[2]
    return re.search(r"```python\n(.*?)```", after, re.DOTALL)[1]


@pytest.mark.thorough
def test_dask(estimator, rows, tmp_path, monkeypatch):
    frames = pytest.importorskip("dask.dataframe", reason="run: pip install dask[dataframe]")
    import dask

    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews").mkdir()
    reviews = rows[["id"]].assign(review=rows.text)
    for part in range(3):
        reviews[part * 20 : part * 20 + 20].to_parquet(tmp_path / "reviews" / f"{part}.parquet")
    estimator("classifier").save(tmp_path / "reviews-model")
    (tmp_path / "labelling.py").write_text(block("Load the model once"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with dask.config.set(scheduler="synchronous"):  # threads that begin at once load it once each
        exec(block("With Dask").replace('"good"', "1"), {})  # the labels of this model are numbers
    found = frames.read_parquet(tmp_path / "labels").compute().sort_values("id")
    assert list(found.label) == estimator("classifier").predict(rows.text).tolist()
    import labelling

    assert labelling.model.cache_info().misses == 1
