"""The columns of predictions, and which columns of a table an estimator reads."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

import kbert
from kbert import predict_table
from kbert.tables.outputs import columns_of_lists, columns_read, predicted_columns, predicted_names

pytestmark = pytest.mark.slow  # what a backend computes is that of predict


def test_probabilities_of_options(estimator, rows):
    X, chooser = rows[["context", "options"]], estimator("choice")
    found, shares = predicted_columns(chooser, X, True), chooser.predict_proba(X)
    np.testing.assert_allclose(found["probability"].to_numpy(), np.nanmax(shares, axis=1), rtol=1e-5)
    for row, expected in zip(found["probabilities"].to_pylist(), shares, strict=True):
        np.testing.assert_allclose(row, expected[~np.isnan(expected)], rtol=1e-5)


def test_options_are_lists_by_the_first_rows(estimator):
    table = pa.table({"context": ["[1]", "see [1]"], "options": ['["a", "b"]'] * 2})
    assert columns_of_lists(estimator("choice"), table) == {"options"}


@pytest.mark.parametrize("kind", [pa.large_list(pa.large_string()), pa.list_(pa.large_string(), 2)])
def test_lists_of_all_types_are_lists(kind, estimator, tmp_path):
    """Polars writes large ones."""
    (tmp_path / "in").mkdir()
    for name, each in (("a", pa.list_(pa.string())), ("b", kind)):
        words = pa.array([["red", "hot"], ["so", "cold"]], each)
        pq.write_table(pa.table({"words": words, "entities": [1, 2]}), tmp_path / "in" / f"{name}.parquet")
    assert predict_table(estimator("tagger"), tmp_path / "in", tmp_path / "out", columns="words").rows == 4


def test_spans_of_tags_that_are_no_bio(saved, rows):
    tagger = kbert.load(saved("tagger"))
    tagger.classes_ = np.array([tag.replace("-", "_") if tag != "O" else "none" for tag in tagger.classes_], object)
    texts = rows.text[:5].astype(pd.ArrowDtype(pa.string()))
    found = predicted_columns(tagger, texts, False)
    assert list(found) == predicted_names(tagger, False, False) == ["spans"]
    flat = [[tuple(span.values()) for span in row] for row in found["spans"].to_pylist()]
    assert flat == [list(map(tuple, row)) for row in tagger.predict(texts)] and sum(map(len, flat))
    assert all(start < end for row in flat for start, end, _ in row)
    assert list(found["spans"].to_pylist()[0][0]) == ["start", "end", "label"]


def test_the_column_of_the_fit_is_not_another(saved, rows):
    model = kbert.load(saved("classifier"))
    model.feature_names_in_ = np.array(["review"], object)
    for names in (["comment"], ["id", "text"]):
        with pytest.raises(ValueError, match="the table has no column 'review'"):
            columns_read(model, names, None)


def test_places_of_answers_in_long_contexts(estimator):
    answerer = estimator("qa")
    X = pd.DataFrame({"question": ["red"], "context": ["red hot cold table chair great " * 60]})
    best = answerer.answers(X, n_best=1)
    found = predicted_columns(answerer, X, False)
    assert (found["start"].type, found["end"].type) == (pa.int32(), pa.int32())
    assert found["start"].to_pylist() == best.start.tolist() and found["end"].to_pylist() == best.end.tolist()


def test_the_index_of_a_filtered_frame_is_no_text(estimator, rows, tmp_path):
    rows[["text"]].rename(columns={"text": "review"}).iloc[[3, 0, 2]].to_parquet(tmp_path / "in.parquet")
    predict_table(estimator("classifier"), tmp_path / "in.parquet", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["review", "__index_level_0__", "prediction", "probability"]
    assert found["__index_level_0__"].to_pylist() == [3, 0, 2]


def test_texts_of_any_type_of_arrows_are_texts(estimator, rows, tmp_path):
    predictions = []
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        pq.write_table(pa.table({"text": pa.array(rows.text[:4].tolist(), kind)}), tmp_path / "in.parquet")
        predict_table(estimator("tagger"), tmp_path / "in.parquet", tmp_path / "out.csv", columns="text")
        predictions.append((tmp_path / "out.csv").read_bytes())
        (tmp_path / "out.csv").unlink()
    assert predictions[0] == predictions[1] == predictions[2]


def test_a_column_of_lists_is_one_by_the_rule_of_fit_and_evaluate(estimator, tmp_path):
    words = ['["red"]', ""] * 3
    for some in (words, ["[]"]):
        assert columns_of_lists(estimator("tagger"), pa.table({"words": some})) == {"words"}
    pd.DataFrame({"words": words}).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match="row 1 of column 'words' is no JSON list"):
        predict_table(estimator("tagger"), tmp_path / "rows.csv", tmp_path / "out.csv", columns="words")


@pytest.mark.skipif(os.name != "posix", reason="permissions and links are those of POSIX")
def test_a_file_that_is_replaced_keeps_its_permissions_and_a_link_stays(estimator, rows, tmp_path):
    rows[["text"]].head(4).to_csv(tmp_path / "rows.csv", index=False)
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    for out in (real, link):
        predict_table(estimator("classifier"), tmp_path / "rows.csv", out)
        assert len(pd.read_csv(real)) == 4 and real.stat().st_mode & 0o777 == 0o600 and link.is_symlink()
    folder = tmp_path / "in"  # what an earlier call wrote through a link in the folder of the input is none of it
    folder.mkdir()
    rows[["text"]].head(3).to_csv(folder / "rows.csv", index=False)
    (folder / "out.csv").symlink_to(real)
    for _ in range(2):
        assert predict_table(estimator("classifier"), folder, folder / "out.csv").rows == len(pd.read_csv(real)) == 3
