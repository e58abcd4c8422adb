"""Predictions for tables of any size are those of predict, in the order of the rows, whatever happens on the way."""

import copy
import json
import os
import shutil
import subprocess
import sys
import warnings
from contextlib import ExitStack

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import dataset

import kbert
from kbert import predict_table
from kbert.errors import MissingTextWarning
from kbert.files.folder_lock import alone_in
from kbert.tables import making, predict
from kbert.tables.outputs import _frame as frame_of
from kbert.tables.outputs import columns_read, predicted_columns, predicted_names
from kbert.tables.parts import PartFolder, part_name
from kbert.tables.plan import digest_of_model
from kbert.weights.runtimes import ExportedModel

pytestmark = pytest.mark.slow  # what a backend computes is that of predict

READS = {
    "classifier": "text", "multilabel": "text", "regressor": "text", "vectorizer": "text", "tagger": "words",
    "qa": None, "choice": ["context", "options"],
}  # fmt: skip


def X_of(rows, columns):
    return rows[columns or ["question", "context"]]


@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("kind", READS)
def test_names_of_predictions_are_known_before(kind, probabilities, estimator, rows):
    one, X = estimator(kind), X_of(rows, READS[kind])[:2]
    found = predicted_columns(one, X, probabilities)
    assert list(found) == predicted_names(one, kind == "tagger", probabilities)
    if kind == "tagger":
        texts = rows.text[:2].astype(pd.ArrowDtype(pa.string()))
        assert list(predicted_columns(one, texts, probabilities)) == predicted_names(one, False, probabilities)


def test_names_of_several_numbers_and_of_vectors_of_words_are_known_before(saved, rows):
    two = kbert.BertRegressor(weights=saved("classifier"), epochs=1, max_length=16)
    two.fit(rows.text, np.column_stack([np.arange(60.0), np.ones(60)]))
    of_words = kbert.BertVectorizer(weights=saved("classifier"), level="word").fit(rows.words)
    changed = kbert.BertVectorizer(weights=saved("classifier"), level="word").fit(rows.words).set_params(level="text")
    for one, X in ((two, rows.text[:2]), (of_words, rows.words[:2]), (changed, rows.words[:2])):
        assert list(predicted_columns(one, X, False)) == predicted_names(one, False, False)


def test_probabilities_that_there_are_not_are_refused(estimator, tmp_path):
    pd.DataFrame({"text": ["red"]}).to_csv(tmp_path / "in.csv", index=False)
    with pytest.raises(ValueError, match="BertRegressor has no probabilities of labels or options"):
        predict_table(estimator("regressor"), tmp_path / "in.csv", tmp_path / "out.csv", probabilities=True)
    assert not (tmp_path / "out.csv").exists()


def test_a_vectorizer_of_texts_reads_json_lists_as_texts(saved, tmp_path):
    rows = pd.DataFrame({"text": ['["red", "green"]', '["blue"]']})
    rows.to_csv(tmp_path / "in.csv", index=False)
    vectorizer = kbert.BertVectorizer(weights=saved("classifier")).fit(rows.text)
    predict_table(vectorizer, tmp_path / "in.csv", tmp_path / "out.parquet", keep=[])
    vectors = np.stack(pd.read_parquet(tmp_path / "out.parquet").vector)
    np.testing.assert_allclose(vectors, vectorizer.transform(rows.text), atol=1e-5)


def test_choices_may_lack_the_question_that_question_answering_needs(estimator):
    assert columns_read(estimator("choice"), ["id", "context", "options"], None) == ["context", "options"]
    with pytest.raises(ValueError, match="the table has no column 'question'. It has id, context"):
        columns_read(estimator("qa"), ["id", "context"], None)


def test_of_warnings_of_one_kind_that_of_the_first_rows_is_told(estimator, tmp_path):
    model, texts = estimator("classifier"), [None, "red", None, None]
    pd.DataFrame({"text": texts}).to_parquet(tmp_path / "in.parquet")
    with pytest.warns(MissingTextWarning) as told:
        predict_table(model, tmp_path / "in.parquet", tmp_path / "out.csv", rows_per_part=2)
    with pytest.warns(MissingTextWarning) as of_first:
        model.predict(pd.Series(texts[:2]))
    messages = [str(warning.message) for warning in (*told, *of_first) if warning.category is MissingTextWarning]
    assert len(messages) == 2 and messages[0].endswith(f"this is true: {messages[1]}")


@pytest.mark.parametrize("kind", READS)
def test_what_each_estimator_predicts(kind, estimator, saved, rows, tmp_path):
    rows.to_parquet(tmp_path / "in.parquet")
    columns, one, X = READS[kind], estimator(kind), X_of(rows, READS[kind])
    written = predict_table(
        saved(kind), tmp_path / "in.parquet", tmp_path / "out.parquet", columns=columns, keep=["id"],
        probabilities=kind in ("classifier", "multilabel", "choice"), rows_per_part=25,
    )  # fmt: skip
    assert written == (60, 3, 0)
    table = dataset.dataset(tmp_path / "out.parquet").to_table()
    found = table.to_pandas()
    assert list(found.id) == list(range(60))
    if kind == "classifier":
        np.testing.assert_array_equal(found.prediction, one.predict(X))
        shares = found[[f"probability_{label}" for label in one.classes_]].to_numpy()
        np.testing.assert_allclose(shares, one.predict_proba(X), atol=1e-6)
        np.testing.assert_allclose(found.probability, shares.max(axis=1), atol=1e-6)
    elif kind == "multilabel":
        assert [list(row) for row in found.prediction] == one.predict(X)
        assert list(found.columns) == ["id", "prediction", *(f"probability_{label}" for label in one.classes_)]
    elif kind == "regressor":
        np.testing.assert_allclose(found[["prediction_0", "prediction_1"]], one.predict(X), rtol=1e-5)
    elif kind == "vectorizer":
        assert table.schema.field("vector").type == pa.list_(pa.float32(), 8)
        np.testing.assert_allclose(np.stack(found.vector), one.transform(X), atol=1e-5)
    elif kind == "tagger":
        assert [list(row) for row in found.prediction] == one.predict(X)
    elif kind == "qa":
        best = one.answers(X, n_best=1)
        assert list(found.prediction) == list(best.answer) and list(found.start) == list(best.start)
        np.testing.assert_allclose(found.probability, best.probability, atol=1e-5)
    else:
        np.testing.assert_array_equal(found.prediction, one.predict(X))
        assert [len(row) for row in found.probabilities] == [len(options) for options in rows.options]


def test_a_tagger_on_texts_gives_entities(estimator, rows, tmp_path):
    rows[["text"]].to_csv(tmp_path / "in.csv", index=False)
    predict_table(estimator("tagger"), tmp_path / "in.csv", tmp_path / "out.parquet", rows_per_part=7)
    found = pd.read_parquet(tmp_path / "out.parquet")
    lines = estimator("tagger").entities(rows.text)
    assert sum(map(len, found.entities)) == len(lines) > 0
    flat = [entity for row in found.entities for entity in row]
    assert [entity["text"] for entity in flat] == list(lines.text)
    assert [entity["start"] for entity in flat] == list(lines.start)


@pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")
def test_a_part_without_any_text_has_the_columns_of_the_others(estimator):
    """Its column has no type of its own, and is no column of lists of words."""
    found = [
        list(predicted_columns(estimator("tagger"), frame_of(pa.table({"text": texts})), False))
        for texts in (["a red box", "so"], pa.nulls(2))
    ]
    assert found[0] == found[1] == predicted_names(estimator("tagger"), False, False)


def test_texts_may_be_categories_or_pandas_index(estimator, rows, tmp_path):
    tagger, expected = estimator("tagger"), tmp_path / "expected.parquet"
    rows[["text"]].to_parquet(tmp_path / "texts.parquet")
    predict_table(tagger, tmp_path / "texts.parquet", expected, columns="text")
    rows[["text"]].astype("category").to_parquet(tmp_path / "category.parquet")
    rows[["id", "text"]].set_index("text").to_parquet(tmp_path / "index.parquet")
    for name in ("category", "index"):
        predict_table(tagger, tmp_path / f"{name}.parquet", tmp_path / f"{name}-out.parquet", columns="text")
        found = pd.read_parquet(tmp_path / f"{name}-out.parquet")
        assert found.entities.map(str).tolist() == pd.read_parquet(expected).entities.map(str).tolist(), name


@pytest.mark.parametrize("first", ["parquet", "csv"])
def test_lists_may_be_json_in_some_files_only(estimator, rows, tmp_path, first):
    words = rows[["words"]]
    (tmp_path / "in").mkdir()
    halves = {first: words[:30], "csv" if first == "parquet" else "parquet": words[30:]}
    for letter, (written_as, half) in zip("ab", halves.items(), strict=True):
        path = tmp_path / "in" / f"{letter}.{written_as}"
        half.to_parquet(path) if written_as == "parquet" else half.map(json.dumps).to_csv(path, index=False)
    predict_table(estimator("tagger"), tmp_path / "in", tmp_path / "out.parquet", columns="words", keep=[])
    found = pd.read_parquet(tmp_path / "out.parquet").prediction
    assert list(map(list, found)) == estimator("tagger").predict(rows.words)


@pytest.fixture
def tables(rows, tmp_path):
    """A folder with the rows in three files of three formats."""
    folder = tmp_path / "in"
    folder.mkdir()
    some = rows[["id", "text"]].astype({"id": str})
    some[:20].to_csv(folder / "a.csv.gz", index=False)
    some[20:45].to_json(folder / "b.jsonl", orient="records", lines=True)
    some[45:].to_parquet(folder / "c.parquet", index=False)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


@pytest.mark.parametrize("written_as", ["parquet", "csv", "jsonl"])
def test_a_folder_of_parts_and_one_file_hold_the_same(estimator, tables, rows, tmp_path, written_as):
    model = estimator("classifier")
    assert predict_table(model, tables, tmp_path / "out", columns="text", format=written_as, rows_per_part=9) == (
        60,
        8,
        0,
    )
    predict_table(model, tables, tmp_path / f"out.{written_as}", columns="text", rows_per_part=9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", f"out.{written_as}"]
    read = {"parquet": pd.read_parquet, "csv": pd.read_csv, "jsonl": lambda path: pd.read_json(path, lines=True)}[
        written_as
    ]
    parts = pd.concat([read(path) for path in sorted((tmp_path / "out").glob("part-*"))], ignore_index=True)
    whole = read(tmp_path / f"out.{written_as}")
    pd.testing.assert_frame_equal(parts, whole)
    np.testing.assert_array_equal(whole.prediction, model.predict(rows.text))
    assert list(whole.text) == list(rows.text)


def test_a_killed_call_goes_on_and_ends_at_the_same_bytes(estimator, tables, tmp_path, monkeypatch):
    model, make, made = estimator("classifier"), making._make, []

    class Killed(BaseException):
        pass

    def dying(plan, one, part):
        if len(made) == 4:
            raise Killed
        made.append(part.name)
        return make(plan, one, part)

    predict_table(model, tables, tmp_path / "whole", columns="text", rows_per_part=9)
    monkeypatch.setattr(making, "_make", dying)
    with pytest.raises(Killed):
        predict_table(model, tables, tmp_path / "out", columns="text", rows_per_part=9)
    (tmp_path / "out" / "_part-00001-000001.parquet.12345678").write_text("half")  # what a killed writer leaves
    with (tmp_path / "out" / "_parts.jsonl").open("a") as file:
        file.write('\n{"part": "part-0000')  # torn
    monkeypatch.setattr(making, "_make", make)
    assert predict_table(model, tables, tmp_path / "out", columns="text", rows_per_part=9) == (60, 8, 4)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    monkeypatch.setattr(making, "_make", dying)  # nothing is left to make
    assert predict_table(model, tables, tmp_path / "out", columns="text", rows_per_part=9) == (60, 8, 8)
    assert dataset.dataset(tmp_path / "out").count_rows() == 60
    assert not list((tmp_path / "out").glob("_part-*"))  # what the killed writer left is gone


@pytest.mark.parametrize("out", ["out", "out.csv"])
def test_a_call_killed_while_it_began_or_ended_goes_on(out, estimator, tables, rows, tmp_path):
    """Settings that were not renamed yet; a hidden folder of which the settings are removed, and parts are not."""
    folder = tmp_path / ("out" if out == "out" else ".out.csv.parts")
    folder.mkdir()
    (folder / "_kbert.json.12345678").write_text("{")
    if out == "out.csv":
        (folder / "part-00000-000000.parquet").write_text("old")
        (folder / "_parts.jsonl").write_text('{"part": "part-00000-000000.parquet", "digest": "old"}')
    assert predict_table(estimator("classifier"), tables, tmp_path / out, columns="text") == (60, 3, 0)
    assert not (tmp_path / ".out.csv.parts").exists() and not (folder / "_kbert.json.12345678").exists()


def test_what_an_output_is_of_does_not_change(estimator, saved, tables, rows, tmp_path):
    model, out = estimator("classifier"), tmp_path / "out"

    def call(model=model, **changes):
        return predict_table(model, tables, out, **{"columns": "text", "rows_per_part": 9, **changes})

    call()
    with pytest.raises(FileExistsError, match="made with other settings .keep, rows_per_part."):
        call(keep=["id"], rows_per_part=10)
    other_length = kbert.load(saved("classifier")).set_params(max_length=4)
    for other in (estimator("multilabel"), other_length):
        with pytest.raises(FileExistsError, match="other settings .model."):
            call(other)
    rows[["id", "text"]][:3].to_csv(tables / "a.csv.gz", index=False)
    with pytest.raises(FileExistsError, match="000000.parquet was made of other rows than the table has now"):
        call()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no predictions of kbert's"):
        predict_table(model, tables, tmp_path / "else", columns="text")


def test_of_parquet_only_the_columns_that_are_needed_are_read(estimator, rows, tmp_path, monkeypatch):
    model, path, out, read = estimator("classifier"), tmp_path / "in.parquet", tmp_path / "out", []
    wide = rows[["id"]].assign(note="x", text=rows.text, other=1.5)
    iter_batches = pyarrow.parquet.ParquetFile.iter_batches

    def noted(file, *args, **kwargs):
        for batch in iter_batches(file, *args, **kwargs):
            read.append(batch.schema.names)
            yield batch

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", noted)

    def call(**changes):
        return predict_table(model, path, out, **{"keep": "id", "columns": "text", "rows_per_part": 20, **changes})

    wide.to_parquet(path, index=False)
    assert call() == (60, 3, 0) and read == [["id", "text"]] * 3
    wide.assign(note="y", other=2.5).to_parquet(path, index=False)
    assert call() == (60, 3, 3)  # what is not needed may change
    wide.assign(id=7).to_parquet(path, index=False)
    with pytest.raises(FileExistsError, match="was made of other rows than the table has now"):
        call()

    # A version that writes parts otherwise.
    settings = json.loads((out / "_kbert.json").read_text())
    (out / "_kbert.json").write_text(json.dumps({**settings, "format": 0}))
    wide.to_parquet(path, index=False)
    with pytest.raises(FileExistsError, match="made with other settings .the version of kbert.. Give another output"):
        call()
    shutil.rmtree(out)
    read.clear()
    assert call(keep=None) == (60, 3, 0) and read == [["id", "note", "text", "other"]] * 3


def test_one_damaged_file_is_named_and_the_others_are_done(estimator, tables, rows, tmp_path):
    good = (tables / "b.jsonl").read_bytes()
    (tables / "b.jsonl").write_bytes(good[:500])
    with pytest.raises(ValueError, match="b.jsonl cannot be read as jsonl: line .*What else there is was done"):
        predict_table(estimator("classifier"), tables, tmp_path / "out.csv", columns="text", rows_per_part=9)
    (tables / "b.jsonl").write_bytes(good)
    written = predict_table(estimator("classifier"), tables, tmp_path / "out.csv", columns="text", rows_per_part=9)
    assert written.rows == 60 and written.made_before == 6
    np.testing.assert_array_equal(
        pd.read_csv(tmp_path / "out.csv").prediction, estimator("classifier").predict(rows.text)
    )


def test_without_a_damaged_file_that_was_removed_it_goes_on(estimator, rows, tmp_path):
    """Of the only file of its folder: the names of the others stay the same."""
    for year, content in (("2023", rows[["text"]][:20].to_csv(index=False)), ("2024", 'text\n"a\n')):
        (tmp_path / "in" / year).mkdir(parents=True)
        (tmp_path / "in" / year / "x.csv").write_text(content)
    calls = [(tmp_path / "in", tmp_path / "out"), (tmp_path / "in" / "*" / "*.csv", tmp_path / "of_pattern")]
    options = {"columns": "text", "rows_per_part": 10}
    for source, out in calls:
        with pytest.raises(ValueError, match="What else there is was done"):
            predict_table(estimator("classifier"), source, out, **options)
    shutil.rmtree(tmp_path / "in" / "2024")
    for source, out in calls:
        written = predict_table(estimator("classifier"), source, out, **options)
        assert (written.rows, written.made_before) == (20, 2)


def test_bad_input_is_named(estimator, rows, tmp_path, monkeypatch):
    model = estimator("classifier")
    rows[["id", "text"]].to_csv(tmp_path / "in.csv", index=False)

    def refused(error, match, model=model, source="in.csv", out="out.parquet", **changes):
        with pytest.raises(error, match=match):
            predict_table(model, tmp_path / source, tmp_path / out, **changes)

    refused(ValueError, "in.csv: the table has no column 'review'. It has id, text", columns="review")
    refused(ValueError, "in.csv: the column 'text' is named twice in columns", columns=["text", "text"])
    two = r"in.csv: 2 columns are named, and BertClassifier reads 1, as in its fit.*\(--text on the command line\)"
    refused(ValueError, two, columns=["text", "id"])
    refused(ValueError, "in.csv: the column 'text' is named twice in columns", columns=np.array(["text", "text"]))
    refused(ValueError, "in.csv: the table has no column 'review'", columns=np.array(["review"]))
    refused(TypeError, "columns must be the name of a column or a list of names, got 0", columns=0)
    for wrong in (1.5, b"text", np.array("text")):
        refused(TypeError, "keep must be the name of a column or a list of names, got", keep=wrong)
    (tmp_path / "escape.csv").write_text("id,\x1b[31mtext,words\n1,a,b\n")
    refused(ValueError, r"It has id, \\x1b\[31mtext, words", source="escape.csv")
    refused(ValueError, r"has id, \\x1b\[31mtext, words", source="escape.csv", columns="words", keep=["name"])
    refused(ValueError, "keep names 'name', and the table has id, text", keep=["name"])
    refused(ValueError, "rows_per_part must be a whole number of at least 1, got 0", rows_per_part=0)
    for n_jobs in (0, 1.5, True):
        refused(ValueError, rf"n_jobs \(--jobs .*\) must be a number of processes, or -1 .*got {n_jobs}", n_jobs=n_jobs)
    refused(ValueError, "format must be one of parquet", format="xlsx")
    refused(ValueError, "format is 'csv', and the name of .*out.parquet says 'parquet'", format="csv")
    refused(ValueError, "packed files are read, not written", out="out.csv.gz")
    refused(FileNotFoundError, "no file or folder .*none.csv", source="none.csv")
    refused(FileNotFoundError, "nowhere", model=tmp_path / "nowhere")
    rows.assign(prediction=1)[["text", "prediction"]].to_csv(tmp_path / "made.csv", index=False)
    refused(ValueError, "has a column 'prediction', as the predictions have", source="made.csv")
    (tmp_path / "empty.csv").write_text("text\n")
    refused(ValueError, "There are no rows in", source="empty.csv")
    rows[["id", "question", "text"]].rename(columns={"text": "words"}).to_csv(tmp_path / "three.csv", index=False)
    refused(
        ValueError, "does not say which column BertClassifier reads. It has id, question, words", source="three.csv"
    )
    pd.DataFrame({"text": [1.5, 2.5]}).to_parquet(tmp_path / "numbers.parquet")
    refused(
        TypeError, "numbers.parquet: row 0 of column 'text' .* is of type float, not a text", source="numbers.parquet"
    )

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbert.tables.parts.write_tables", full)
    refused(OSError, r"a part cannot be written \(No space left on device\). Make room and call again")


@pytest.mark.parametrize("rows_per_part", [1, 4, 7])
def test_the_first_row_of_the_wrong_type_is_named_by_its_number_in_the_file(rows_per_part, estimator, saved, tmp_path):
    def refused(kind, good, bad, match):
        lines = [good] * 5 + [bad, good]
        (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
        with pytest.raises((ValueError, TypeError), match=match):
            predict_table(estimator(kind), tmp_path / "in.jsonl", tmp_path / "out", rows_per_part=rows_per_part)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)

    few = ["a", "b"]
    refused(
        "choice", {"context": "x", "options": few}, {"context": "x", "options": ["a"]},
        "in.jsonl: row 5 of column 'options' has one option",
    )  # fmt: skip
    # What JSON cannot be a column of is told of by its line, which counts from 1.
    wrong = ("in.jsonl: row 5 of column 'text'" if rows_per_part == 1 else
             "in.jsonl cannot be read as jsonl: line 6: the column 'text' cannot hold 3 ")  # fmt: skip
    refused("classifier", {"text": "x"}, {"text": 3}, wrong)


def test_names_of_parts_sort_as_the_rows_at_any_number():
    numbers = [0, 9, 10, 99_999, 100_000, 999_999, 1_000_000, 9_999_999, 10_000_000, 10**9]
    names = [part_name(file, number, "csv") for file in numbers for number in numbers]
    assert names == sorted(names) and len(set(names)) == len(names)
    assert part_name(0, 0, "parquet") == "part-00000-000000.parquet"


def test_a_saved_model_shows_no_bar_of_its_own(estimator, tables, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kbert.training.progress._LONG", 0.0)
    talkative = copy.copy(estimator("classifier"))
    talkative.set_params(verbose=1).save(tmp_path / "model")
    predict_table(tmp_path / "model", tables, tmp_path / "out", columns="text")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "jsonl", "jsonl.xz"])
def test_the_bar_estimates_how_many_rows_there_are(ending, estimator, tmp_path, monkeypatch, capsys):
    rows, shown = pd.DataFrame({"id": range(1500), "text": [os.urandom(500).hex() for _ in range(1500)]}), []
    (tmp_path / "in").mkdir()
    for name, some in [("a", rows[:500]), ("c", rows[500:1000])]:
        path = tmp_path / "in" / f"{name}.{ending}"
        if "jsonl" in ending:
            some.to_json(path, orient="records", lines=True)
        else:
            some.to_csv(path, index=False, sep="\t" if "tsv" in ending else ",")
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(b"this is not packed" * 10)
    rows[1000:].to_parquet(tmp_path / "in" / "d.parquet", index=False)

    class Bar(predict.tqdm):
        def refresh(self, *args, **kwargs):
            shown.append((self.total, str(self)))
            return super().refresh(*args, **kwargs)

    monkeypatch.setattr(predict, "tqdm", Bar)
    monkeypatch.setattr(making, "predicted_columns", lambda _, X, __: {"prediction": pa.nulls(len(X))})

    def call(out):
        return predict_table(
            estimator("classifier"), tmp_path / "in", tmp_path / out, columns="text", rows_per_part=100, verbose=1
        )

    with pytest.raises(ValueError, match="b.jsonl.gz cannot be read"):
        call("out")
    estimates = [total for total, text in shown if "/~" in text]
    assert len(estimates) >= 10 and all(1200 < total < 1800 for total in estimates), estimates
    assert shown[-1][0] == 1500 and "| 1500/1500 [" in shown[-1][1]
    (tmp_path / "in" / "b.jsonl.gz").unlink()
    assert call("out").made_before == 15  # what is done counts too
    assert shown[-1][0] == 1500 and "| 1500/1500 [" in capsys.readouterr().err


def test_processes_write_the_same_bytes(saved, tables, tmp_path):
    for n_jobs in (1, 2):
        predict_table(
            saved("classifier"), tables, tmp_path / f"{n_jobs}", columns="text", rows_per_part=9, n_jobs=n_jobs
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2") != {}


def test_threads_record_their_warnings_and_leave_those_of_others(estimator, tmp_path):
    pd.DataFrame({"text": [None, "red hot", "so cold", "great"] * 60}).to_parquet(tmp_path / "in.parquet")
    filters = list(warnings.filters)
    for i in range(3):
        with joblib.parallel_config(backend="threading", n_jobs=4), pytest.warns(MissingTextWarning):
            predict_table(estimator("classifier"), tmp_path / "in.parquet", tmp_path / f"{i}", rows_per_part=5)
    assert warnings.filters == filters


def test_an_exported_model_travels_as_its_name(exported, estimator):
    (exported / "model.onnx").write_bytes(b"one")
    model = copy.copy(estimator("classifier"))
    model.model_ = ExportedModel(exported, "onnxruntime")
    with ExitStack() as stack:
        again = making._loaded(making._sent(model, stack), digest_of_model(model))
    assert again.model_.folder == exported


def test_a_key_that_later_lines_leave_out_is_missing_there(estimator, tmp_path):
    lines = [{"text": "red", "note": "n"}, {"text": "hot"}, {"text": "cold"}, {"note": "m"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    call, outputs = {"columns": "text", "keep": "note"}, []
    for n in (1, 10):
        out = tmp_path / f"{n}.csv"
        with pytest.warns(MissingTextWarning):
            predict_table(estimator("classifier"), tmp_path / "in.jsonl", out, rows_per_part=n, **call)
        outputs.append((tmp_path / f"{n}.csv").read_bytes())
    assert outputs[0] == outputs[1]


def test_joblibs_backends_that_tell_only_when_all_jobs_are_done(saved, tables, tmp_path, monkeypatch):
    """As those of Ray and Spark. They get some parts at a time, so that what is done is noted before the end."""

    class OfLists(joblib.parallel.BACKENDS["loky"]):
        supports_return_generator = False

    def call(out, **changes):
        return predict_table(saved("classifier"), tables, tmp_path / out, columns="text", rows_per_part=9, **changes)

    noted, note = [], PartFolder.note

    def stopping(self, *args):
        if len(noted) == 3:
            raise KeyboardInterrupt
        noted.append(args)
        note(self, *args)

    monkeypatch.setattr(making, "_JOBS_AT_ONCE", 1)
    call("alone")
    with joblib.parallel_config(backend=OfLists(), n_jobs=2):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(PartFolder, "note", stopping)
            call("out")
        assert len(contents(tmp_path / "out")) < 8
        assert call("out") == (60, 8, 3)
        assert call("out.csv") == call("again.csv", n_jobs=1) == (60, 8, 0)
    assert contents(tmp_path / "alone") == contents(tmp_path / "out") != {}
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()


@pytest.fixture
def as_alone(saved, tables, tmp_path):
    """A function that predicts on a cluster, and compares with one process."""

    def check(backend):
        with joblib.parallel_config(backend=backend, n_jobs=-1):
            predict_table(saved("classifier"), tables, tmp_path / "out", columns="text", rows_per_part=9)
        predict_table(saved("classifier"), tables, tmp_path / "alone", columns="text", rows_per_part=9)
        assert contents(tmp_path / "alone") == contents(tmp_path / "out") != {}

    return check


@pytest.mark.thorough
def test_a_cluster_of_ray(as_alone):
    ray = pytest.importorskip("ray", reason="run: pip install ray")
    joblib_of_ray = pytest.importorskip("ray.util.joblib")
    ray.init(num_cpus=2, object_store_memory=100_000_000, include_dashboard=False)
    try:
        joblib_of_ray.register_ray()
        as_alone("ray")
    finally:
        ray.shutdown()


@pytest.mark.thorough
def test_a_cluster_of_spark(as_alone, spark):
    pytest.importorskip("joblibspark", reason="run: pip install joblibspark").register_spark()
    as_alone("spark")


@pytest.mark.thorough
def test_a_cluster_of_which_a_worker_is_killed(saved, rows, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="run: pip install distributed")
    monkeypatch.chdir(tmp_path)  # the workers' folder
    many = pd.concat([rows[["id", "text"]]] * 40, ignore_index=True)
    many.to_parquet(tmp_path / "in.parquet")
    predict_table(saved("classifier"), tmp_path / "in.parquet", tmp_path / "alone", columns="text", rows_per_part=60)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        killer = subprocess.Popen(
            [sys.executable, "-c", _KILL, str(tmp_path / "out"), str(next(iter(cluster.workers.values())).pid)]
        )
        written = predict_table(
            saved("classifier"), tmp_path / "in.parquet", tmp_path / "out", columns="text", rows_per_part=60
        )
        assert killer.wait(60) == 0
    assert written.rows == 2400
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")


# Kills a process once a few parts are there.
_KILL = """
import os, pathlib, signal, sys, time
for _ in range(6_000):  # a busy machine takes long to start workers
    if len(list(pathlib.Path(sys.argv[1]).glob("part-*"))) >= 3:
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        sys.exit(0)
    time.sleep(0.05)
sys.exit("no part was written in time")
"""


def test_a_process_that_finds_another_model_refuses(estimator, saved):
    assert making._loaded(saved("classifier"), digest_of_model(estimator("classifier"))).classes_.size
    with pytest.raises(ValueError, match="classifier holds another model in this process than where"):
        making._loaded(saved("classifier"), digest_of_model(estimator("multilabel")))


def test_load_opens_every_kind_of_estimator(estimator, tmp_path, minilm_folder):
    for kind in READS:
        assert type(estimator(kind)).__name__.startswith("Bert")
    with pytest.raises(kbert.errors.WeightsMismatchError, match="holds no saved estimator.*BertClassifier.load"):
        kbert.load(minilm_folder)
    with pytest.raises(FileNotFoundError):
        kbert.load(tmp_path / "nothing")


def test_odd_tables_and_odd_rows(estimator, saved, rows, tmp_path):
    model = estimator("classifier")

    # JSON lines: decimals, missing values and keys that come late.
    prices = [{"text": "red", "price": 1}] * 3 + [{"text": "hot", "price": 1.5, "note": "late"}, {"text": "cold"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, prices)))
    predict_table(model, tmp_path / "in.jsonl", tmp_path / "out.parquet", columns="text", rows_per_part=2)
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found.price.tolist()[:4] == [1, 1, 1, 1.5] and np.isnan(found.price[4])
    assert found.note.dropna().tolist() == ["late"]

    # The input is neither replaced nor read again with the output in it.
    frame = rows[["id", "text"]]
    (tmp_path / "in").mkdir()
    frame.to_csv(tmp_path / "in" / "rows.csv", index=False)
    with pytest.raises(ValueError, match="is the input, and would be replaced"):
        predict_table(model, tmp_path / "in" / "rows.csv", tmp_path / "in" / "rows.csv", columns="text")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for source, out in (("in", "in/out.csv"), ("link", "in/out.csv"), ("in", "link/parts"), ("link", "in/parts")):
        for _ in range(2):
            assert predict_table(model, tmp_path / source, tmp_path / out, columns="text").rows == 60
        shutil.rmtree(tmp_path / out) if out.endswith("parts") else (tmp_path / out).unlink()
    with pytest.raises(ValueError, match="holds the input"):
        predict_table(model, tmp_path / "in" / "rows.csv", tmp_path / "link", columns="text")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    assert predict_table(model, tmp_path / "in", tmp_path / "looped.csv", columns="text", keep="id").rows == 60

    predict_table(model, tmp_path / "in" / "rows.csv", tmp_path / "kept.csv", columns="text", keep=["id", "id"])
    assert list(pd.read_csv(tmp_path / "kept.csv")) == ["id", "prediction", "probability"]

    # A second call does not write what a first one is writing.
    with alone_in(tmp_path / "in", "busy"), pytest.raises(ValueError, match="busy"), alone_in(tmp_path / "in", "busy"):
        pass

    # Missing texts, carriage returns, empty values of a single column; a pair by the names of the fit.
    pd.DataFrame({"text": [None, "blue chair", "hot\rcold"]}).to_parquet(tmp_path / "odd.parquet")
    predict_table(estimator("tagger"), tmp_path / "odd.parquet", tmp_path / "odd.csv")
    odd = pd.read_csv(tmp_path / "odd.csv", keep_default_na=False)
    assert list(odd.text) == ["", "blue chair", "hot\rcold"] and odd.entities[0] == "[]"
    (tmp_path / "one.csv").write_text("text\nred\n\nhot\n")
    assert predict_table(model, tmp_path / "one.csv", tmp_path / "one.jsonl").rows == 3
    with pytest.raises(ValueError, match="it has a column twice: text, text"):
        twice = pa.table([pa.array(["red"]), pa.array(["hot"])], names=["text", "text"])
        pa.parquet.write_table(twice, tmp_path / "twice.parquet")
        predict_table(model, tmp_path / "twice.parquet", tmp_path / "twice.csv")

    # In a column of lists, a value that is none is named by its row in the file.
    lists = pd.DataFrame({"words": ['["red", "hot"]', '["cold"]', "no list"]})
    lists.to_csv(tmp_path / "lists.csv", index=False)
    with pytest.raises(ValueError, match="lists.csv: row 2 of column 'words' is no JSON list"):
        predict_table(saved("tagger"), tmp_path / "lists.csv", tmp_path / "l.csv", columns="words", rows_per_part=2)
