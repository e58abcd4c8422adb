"""benchmarks/results_file.py: what is measured is kept, and is not measured again."""

import importlib
import shutil
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["first_fit", "first_fit_other", "first_fit_tiny"])
def test_the_tables_of_first_fits_are_those_of_their_runs(name, monkeypatch, tmp_path):
    benchmarks = Path(__file__).parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    stored = benchmarks / "results" / f"{name}_table.csv"
    shutil.copy(benchmarks / "results" / f"{name}.csv", tmp_path)
    importlib.import_module("first_fit").make_page(tmp_path / f"{name}.csv", None)
    assert (tmp_path / stored.name).read_text() == stored.read_text()


@pytest.fixture
def results_file(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("results_file")


def test_a_run_is_known_by_what_was_asked_for(results_file, tmp_path):
    results = results_file.ResultsFile(tmp_path / "new" / "runs.csv", "data", "rows", "rate", "cv")
    assert (tmp_path / "new").is_dir()
    run = {"data": "a, b", "rows": 8, "rate": 1e-05, "cv": None}
    assert run not in results
    results.append({**run, "score": 0.25}, {**run, "rows": 16, "score": 0.5})
    assert run in results and {**run, "rows": 16, "else": 1} in results
    others = ({"rows": 80}, {"data": "a"}, {"rate": 2e-05}, {"cv": 5})
    assert not any({**run, **other} in results for other in others)
    assert results.read().score.tolist() == [0.25, 0.5]


def test_new_columns_are_added_and_old_lines_stay_as_they_were(results_file, tmp_path):
    results = results_file.ResultsFile(tmp_path / "runs.csv", "seed")
    results.append({"seed": 0, "score": "0.10", "note": "NA"})
    results.append({"score": 0.2, "seed": 1, "date": "2026-11-28"})
    results.append({"seed": 2})
    assert results.path.read_text() == ("seed,score,note,date\n0,0.10,NA,\n1,0.2,,2026-11-28\n2,,,\n")
    assert all({"seed": seed} in results for seed in range(3))
