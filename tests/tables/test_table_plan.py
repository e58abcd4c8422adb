"""What a call of predict_table is to do: its files, columns and settings, and which model it is."""

import copy
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import kbert
from kbert import predict_table
from kbert.tables.plan import digest_of_model
from kbert.weights.runtimes import ExportedModel

pytestmark = pytest.mark.slow  # what a backend computes is that of predict


@pytest.mark.parametrize("change", [{"columns": "question"}, {"probabilities": True}, {"format": "csv"}])
def test_a_call_with_other_settings_is_refused(change, estimator, rows, tmp_path):
    rows[["text", "question"]].to_csv(tmp_path / "in.csv", index=False)
    call = {"columns": "text", "rows_per_part": 20}
    predict_table(estimator("classifier"), tmp_path / "in.csv", tmp_path / "out", **call)
    with pytest.raises(FileExistsError, match="made with other settings"):
        predict_table(estimator("classifier"), tmp_path / "in.csv", tmp_path / "out", **call | change)


@pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")
def test_a_file_of_missing_texts_and_one_of_no_rows_go_with_the_others(estimator, rows, tmp_path):
    (tmp_path / "in").mkdir()
    rows[["text"]][:4].to_parquet(tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"text": pa.nulls(3)}), tmp_path / "in" / "b.parquet")
    assert predict_table(estimator("classifier"), tmp_path / "in", tmp_path / "out").rows == 7
    pq.write_table(pa.table({"other": pa.array([], pa.int64())}), tmp_path / "in" / "c.parquet")
    assert predict_table(estimator("classifier"), tmp_path / "in", tmp_path / "again", columns="text").rows == 7


def test_the_digest_of_a_model_changes_with_what_predictions_depend_on(saved, estimator, monkeypatch):
    model = kbert.load(saved("classifier"))
    digest = digest_of_model(estimator("classifier"))
    assert digest_of_model(model.set_params(verbose=1, random_state=5)) == digest
    with monkeypatch.context() as patched:
        patched.setattr("kbert.tables.plan.backend_name", lambda: "another")
        assert digest_of_model(model) != digest
    weight = model.model_.weights[0]
    weight.assign(weight + 1)
    assert digest_of_model(model) != digest


def test_the_digest_of_an_exported_model_changes_with_its_file(exported, estimator):
    (exported / "model.onnx").write_bytes(b"one")
    model = copy.copy(estimator("classifier"))
    model.model_ = ExportedModel(exported, "onnxruntime")
    digest = digest_of_model(model)
    (exported / "model.onnx").write_bytes(b"two")
    assert digest_of_model(model) != digest


def test_a_model_that_is_not_fitted(rows, tmp_path):
    rows[["text"]].to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(NotFittedError):
        predict_table(kbert.BertClassifier(), tmp_path / "in.csv", tmp_path / "out")


def test_endings_may_be_in_capitals(estimator, rows, tmp_path):
    rows[["text"]].to_csv(tmp_path / "IN.CSV", index=False)
    assert predict_table(estimator("classifier"), tmp_path / "IN.CSV", tmp_path / "OUT.CSV").rows == 60


def test_an_output_in_the_home_folder_that_is_read_is_no_input(estimator, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "in").mkdir()
    rows[["text"]].to_csv(tmp_path / "in" / "a.csv", index=False)
    for _ in range(2):
        assert predict_table(estimator("classifier"), "~/in", "~/in/out.csv").rows == 60


def test_a_column_is_that_of_predictions_by_whether_words_are_read(estimator, rows, tmp_path):
    words = rows.words[:3].map(json.dumps)
    pd.DataFrame({"words": words, "entities": 1}).to_csv(tmp_path / "in.csv", index=False)
    assert predict_table(estimator("tagger"), tmp_path / "in.csv", tmp_path / "out", columns="words").rows == 3


def test_a_model_that_is_none_is_told_with_what_is_taken(estimator, rows, tmp_path):
    rows[["text"]].to_csv(tmp_path / "in.csv", index=False)
    search = GridSearchCV(estimator("classifier"), {})
    for model in (search, make_pipeline(estimator("classifier")), kbert.BertClassifier, None, 3):
        with pytest.raises(TypeError, match="model must be a fitted estimator .*Of a search give best_estimator_"):
            predict_table(model, tmp_path / "in.csv", tmp_path / "out")


@pytest.mark.parametrize("names", [{"keep": np.array([0])}, {"columns": [b"text"]}, {"keep": [None]}, {"columns": 3}])
def test_names_that_are_no_texts_are_refused(names, estimator, rows, tmp_path):
    rows[["text"]].to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(TypeError, match=f"{next(iter(names))} must be the name of a column or a list of names"):
        predict_table(estimator("classifier"), tmp_path / "in.csv", tmp_path / "out", **names)


def test_what_a_call_wrote_is_no_input_of_the_same_call_with_a_pattern(estimator, rows, tmp_path):
    (tmp_path / "in").mkdir()
    rows[["text"]].to_parquet(tmp_path / "in" / "a.parquet")
    call = [estimator("classifier"), tmp_path / "in" / "**" / "*.parquet", tmp_path / "in" / "out"]
    assert predict_table(*call) == (60, 1, 0) and predict_table(*call) == (60, 1, 1)
    with pytest.raises(ValueError, match="out holds the input"):
        predict_table(estimator("classifier"), tmp_path / "in" / "out" / "*.parquet", tmp_path / "in" / "out")
