"""``kbert fit``, ``evaluate`` and ``predict``: every task from a table to a model, its scores and its predictions."""

import json
import re
import shutil
from argparse import Namespace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from safetensors.numpy import load_file, save_file

import kbert
from kbert import BertConfig, BertEncoder, WordPieceTokenizer, cli
from kbert.tables.commands import _parts, _value
from kbert.tables.reading import meant_as_lists, read_lists, read_table, task_of_columns, y_of

pytestmark = pytest.mark.slow  # the fits are those of the estimators

# Of CSV, with a place for the list of the second row.
CHOICES = 'context,options,label\nx,"[""a"", ""b""]",0\ny,{},1\nz,"[""a"", ""c""]",1\n'
TAGS = 'words,tags\n"[""x""]","[""O""]"\n"[""y""]",{}\n"[""z""]","[""O""]"\n'
WORDS = ["--text", "words", "--label", "tags"]
SMALL = ["--epochs", "2", "--batch-size", "8", "--max-length", "16", "--learning-rate", "1e-3"]

# A bar: what it is of and its rows; then it has the time so far, the time left and the rows per second.
BAR = re.compile(r"(\w+): +\d+%\|.*?\| (\d+/\d+) \[[\d:]+<[\d:]+, +[\d.]+row/s")


@pytest.fixture(scope="module")
def weights(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("weights")
    tokenizer = WordPieceTokenizer.train([" ".join(rows.text)] * 9, vocab_size=80)
    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=32, initializer_range=0.3, **sizes)
    BertEncoder(config, dtype="float32", seed=1).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def call(capsys):
    """Run the command; gives its status, and what it wrote to stdout and stderr."""

    def run(*argv):
        status = cli.main([str(part) for part in argv])
        return status, *capsys.readouterr()

    return run


def table(task, rows):
    """A table for each task, and the options that it takes."""
    first = [text.split()[0] for text in rows.text]
    if task == "classification":
        return rows[["text"]].assign(stars=[int("red" in text) for text in rows.text]), ["--label", "stars"]
    if task == "regression":
        return rows[["text"]].assign(label=[len(text) / 10 for text in rows.text]), []
    if task == "tagging":
        tags = [["B-C" if word in ("red", "blue") else "O" for word in words] for words in rows.words]
        return rows[["words"]].assign(tags=tags), ["--text", "words", "--label", "tags"]
    if task == "answering":
        return rows[["context"]].assign(question=first, answer=first, answer_start=0), []
    return rows[["context", "options"]].assign(label=[i % 2 for i in range(len(rows))]), []


@pytest.mark.parametrize("written_as", ["csv", "parquet"])
@pytest.mark.parametrize("task", ["classification", "regression", "tagging", "answering", "choice"])
def test_every_task_from_a_table_to_predictions(call, task, written_as, rows, weights, tmp_path, monkeypatch):
    monkeypatch.setattr("kbert.training.progress._LONG", 0.0)  # a bar for short predictions too
    frame, options = table(task, rows)
    path = tmp_path / f"rows.{written_as}"
    if written_as == "csv":
        as_json = {name: frame[name].map(json.dumps) for name in frame if isinstance(frame[name].iloc[0], list)}
        frame.assign(**as_json).to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    status, out, err = call(
        "fit", path, *options, "--weights", weights, "--out", tmp_path / "model", "--validation", "0.2", *SMALL,
        "--metrics", tmp_path / "fit.json",
    )  # fmt: skip
    assert status == 0, err
    assert ("fit", "96/96") in BAR.findall(err)  # of two epochs
    assert f"{task}: 48 rows of " in out and "the model is in" in out and " on 12 rows" in out
    main = {"regression": "r2", "tagging": "f1", "answering": "f1"}.get(task, "accuracy")
    assert main in json.loads((tmp_path / "fit.json").read_text())

    status, out, err = call("evaluate", tmp_path / "model", path, *options, "--metrics", tmp_path)
    assert status == 2 and "is a folder. Give the name of a file" in err and out == ""
    status, out, err = call("evaluate", tmp_path / "model", path, *options, "--metrics", tmp_path / "all.json")
    assert status == 0, err
    assert ("predict", "60/60") in BAR.findall(err)
    scores = json.loads((tmp_path / "all.json").read_text())
    assert scores["rows"] == 60 and isinstance(scores["rows"], int) and f"{main} {scores[main]:.3f}" in out
    assert ("true label (rows) taken for" in out) == (task == "classification")
    model = kbert.load(tmp_path / "model")
    if task == "classification":
        predicted = model.predict(frame.text)
        assert scores["accuracy"] == np.mean(predicted.astype(str) == frame.stars.astype(str))
        assert np.array(list(map(list, (row.values() for row in scores["confusion"].values())))).sum() == 60
    elif task == "tagging":
        assert scores["f1"] == pytest.approx(model.score(frame.words, frame.tags))
    elif task == "answering":
        assert scores["f1"] == pytest.approx(
            model.score(frame[["question", "context"]], frame[["answer", "answer_start"]])
        )

    text = ["--text", "words"] if task == "tagging" else []
    status, out, err = call("predict", tmp_path / "model", path, *text, "--out", tmp_path / "out.jsonl")
    assert status == 0, err
    assert out.startswith("60 rows; the predictions are in")
    assert set(frame) < set(pd.read_json(tmp_path / "out.jsonl", lines=True))
    only = ["--out", tmp_path / "only.csv", "--predictions-only", "--quiet"]
    assert call("predict", tmp_path / "model", path, *text, *only)[0::2] == (0, "")
    found = pd.read_csv(tmp_path / "only.csv", keep_default_na=False)
    assert len(found) == 60 and found.columns[0] == "prediction" and not set(frame) & set(found)


def test_several_labels_and_labels_of_other_types(call, rows, weights, tmp_path):
    both = rows[["text"]].assign(
        red=rows.text.str.contains("red").astype(int), hot=rows.text.str.contains("hot").astype(int)
    )
    both.to_csv(tmp_path / "rows.csv", index=False)
    fit = [
        "fit",
        tmp_path / "rows.csv",
        "--label",
        "red",
        "hot",
        "--weights",
        weights,
        *SMALL,
        "--out",
        tmp_path / "model",
    ]
    status, out, err = call(*fit, "--quiet", "--set", "class_weight=balanced", "n_restarts=1")
    assert status == 0, err
    assert kbert.load(tmp_path / "model").get_params()["class_weight"] == "balanced"
    status, out, err = call("evaluate", tmp_path / "model", tmp_path / "rows.csv", "--label", "red", "hot")
    assert status == 0 and "f1_micro" in out and "average_precision" in out

    # A model whose labels are numbers, and a table of texts.
    truth = [int("red" in text) for text in rows.text]
    model = kbert.BertClassifier(weights=weights, epochs=1, max_length=16, random_state=0).fit(rows.text, truth)
    model.save(tmp_path / "numbers")
    rows[["text"]].assign(label=truth).to_csv(tmp_path / "rows.csv", index=False)
    status, out, _ = call("evaluate", tmp_path / "numbers", tmp_path / "rows.csv", "--metrics", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["accuracy"] == model.score(rows.text, truth)


def test_options_from_a_file(call, rows, weights, tmp_path):
    table("classification", rows)[0].to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "fit.toml").write_text(
        f'[fit]\ntrain = "{tmp_path / "rows.csv"}"\nlabel = "stars"\nweights = "{weights}"\nepochs = 1\n'
        'max-length = 16\nset = ["warmup=0.5"]\nseed = 3\nfew-labels = true\nquiet = true\n'
    )
    status, out, err = call("fit", "--config", tmp_path / "fit.toml", "--out", tmp_path / "model")
    assert status == 0, err
    model = kbert.load(tmp_path / "model")
    assert (model.warmup, model.epochs, model.max_length) == (0.5, 1, 16)
    assert (model.random_state, model.few_labels) == (3, True)


def test_a_share_is_held_out_of_each_label_by_the_seed():
    frame = pd.DataFrame({"text": "x", "label": ["a"] * 20 + ["b"] * 4 + ["c"]})

    def held_out(seed, share="0.5"):
        options = Namespace(validation=share, seed=seed)
        (train, _), (other, labels) = _parts(frame, ["text"], ["label"], "classification", options)
        assert sorted([*train.index, *other.index]) == list(range(25))
        return labels

    assert held_out(0).value_counts().to_dict() == {"a": 10, "b": 2}  # of a label of one row none
    assert held_out(0, "0.9").value_counts().to_dict() == {"a": 18, "b": 3}
    assert held_out(0).equals(held_out(0)) and not held_out(0).equals(held_out(1))


def test_a_share_of_rows_with_rare_labels_is_that_share():
    labels = ["big"] * 60 + [f"rare {i // 4}" for i in range(80)]
    for y, n in ((labels, 14), (list("abcdefghijkl") * 5, 6)):
        frame = pd.DataFrame({"text": "x", "label": y})
        options = Namespace(validation="0.1", seed=0)
        (_, kept), (_, held_out) = _parts(frame, ["text"], ["label"], "classification", options)
        assert len(held_out) == n and set(kept) == set(frame.label)
        assert held_out.nunique() > n / 2  # not those of one label alone

    alone = [f"a{i:02d}" for i in range(80)]  # whose one row is never held out: no other label pays for that
    frame = pd.DataFrame({"text": "x", "label": [*alone, *["y"] * 20, *["z"] * 100]})
    _, (_, held_out) = _parts(frame, ["text"], ["label"], "classification", Namespace(validation="0.2", seed=0))
    assert held_out.value_counts().to_dict() == {"z": 20, "y": 4}


@pytest.mark.parametrize(
    ("text", "value"),
    [(".5", 0.5), ("1.", 1.0), ("+1e-3", 0.001), ("3", 3), ("null", None), ("a", "a"), ("007", "007"), ("1_0", "1_0")],
)
def test_a_number_on_the_command_line_is_a_number_however_it_is_written(text, value):
    assert _value(text) == value and type(_value(text)) is type(value)


@pytest.mark.parametrize("option", ["--metrics", "--checkpoint"])
def test_nothing_else_is_written_into_the_folder_of_the_model(call, weights, tmp_path, option):
    pd.DataFrame({"text": ["a", "b"] * 4, "label": [0, 1] * 4}).to_csv(tmp_path / "rows.csv", index=False)
    options = ["--weights", weights, *SMALL, "--validation", "0.5", "--out", tmp_path / "model"]
    for inside in (tmp_path / "model", tmp_path / "model" / "own"):
        status, _, err = call("fit", tmp_path / "rows.csv", *options, option, inside)
        assert status == 2 and "is in the folder of the model" in err and not (tmp_path / "model").exists()


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()], ids=str)
def test_texts_of_parquet_are_read_as_those_of_csv(tmp_path, kind):
    lists, numbers = ['["hot", "red"]', '["hot"]'], ["3.5", "1.25"]
    for name, values in (("lists", lists), ("numbers", numbers)):
        columns = {"text": pa.array(["a", "b"], kind), "label": pa.array(values, kind)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        pd.DataFrame({"text": ["a", "b"], "label": values}).to_csv(tmp_path / f"{name}.csv", index=False)
    for name, task in (("lists", "classification"), ("numbers", "regression")):
        for ending in ("csv", "parquet"):
            frame = read_table(tmp_path / f"{name}.{ending}")
            assert task_of_columns(frame, [], ["label"]) == task
            assert meant_as_lists(frame["label"]) == (name == "lists")


def test_what_a_table_is_about():
    def task(text=(), label=(), **columns):
        return task_of_columns(pd.DataFrame(columns), text, label)

    assert task(label=["y"], text=["x"], x=["a"], y=[1]) == "classification"
    assert task(label=["y"], x=["a", "b"], y=[1.0, 2.5]) == "regression"
    for whole in ([1.0, 0.0], [1, 0], [True, False], pd.Series(["4.0", "1"], dtype=pd.ArrowDtype(pa.string()))):
        assert task(label=["y"], x=["a", "b"], y=whole) == "classification"
    assert task(label=["a", "b"], x=["a", "b"], a=[1.0, 2.0], b=[0.5, 1.0]) == "regression"
    assert task(label=["y"], text=["x"], x=[["a"]], y=[["O"]]) == "tagging"
    assert task(label=["y"], text=["x"], x=["a"], y=[["red", "hot"]]) == "classification"
    assert task(label=["y"], text=["x"], x=["a", "b"], y=[[], [[0, 3, "PER"]]]) == "tagging"
    assert task(label=["y"], text=["x"], x=["a"], y=[[{"start": 0, "end": 3, "label": "PER"}]]) == "tagging"
    assert task(label=["a", "b"], text=["x"], x=["a"], a=[0.5], b=[1.5]) == "regression"
    assert task(question=["q"], context=["c"], answer=["a"], answer_start=[0]) == "answering"
    assert task(label=["label"], context=["c"], options=[["a", "b"]], label_=[0]) == "choice"
    for texts, labels in (([["a"]], [["O"]]), (["a b"], [[[0, 1, "PER"]]])):
        assert task_of_columns(pd.DataFrame({"text": texts, "label": labels}), [], ["label"]) == "tagging"
    several = pd.DataFrame({"text": ["a b"], "label": [["red", "hot"]]})
    assert task_of_columns(several, [], ["label"]) == "classification"


@pytest.mark.parametrize(
    ("content", "options", "wrong"),
    [
        ("text,stars\na,1\nb,2\n", [], "has no column 'label'. It has text, stars. .*--label"),
        ("review,label\na,1\nb,2\n", [], "has no column 'text'. It has review, label"),
        ("text,label\na,1\nb,2\n", ["--text", "text", "text"], "The column 'text' is named twice"),
        ("text,label\na,1\nb,2\n", ["--text", "words"], "has no column 'words'. It has text, label"),
        ("message,label\na,1\nb,2\n", ["--text", "messages"], "has no column 'messages'. Did you mean 'message'"),
        ("text,label\na,1\nb,x\n", ["--task", "regression"], "'label' .*: 'x' in row 1 of /.*/rows.csv is no number"),
        ("text,label\na,1\nb,\n", [], r"column 'label' of row 1 of \S+/rows.csv is empty"),
        ("text,a,b\nx,1,0\ny,0,z\n", ["--label", "a", "b"], "column 'b' .*: 'z' in row 1 of .* is no whole number"),
        ("question,context,answer,answer_start\nq,c,c,0\nq,c,c,z\n", [], "'answer_start' .*: 'z' in row 1 of "),
        (CHOICES.format('"[""a"", ""b"""'), [], """'options' holds lists, but '\\["a", "b"' in row 1 of .*rows.csv"""),
        (CHOICES.format("a|b"), [], "'options' holds lists, but 'a.b' in row 1 of .*rows.csv is no list as JSON"),
        (CHOICES.format(""), [], "'options' holds lists, but '' in row 1 of .*rows.csv is no list"),
        (TAGS.format('"[""O"""'), WORDS, """'tags' holds lists, but '\\["O"' in row 1 of .*rows.csv is no list"""),
        (TAGS.format("\"['O']\"").replace('""', "'"), WORDS, "'words' holds lists, .* in row 0 of .*rows.csv is"),
        ("text,label\na,1\nb,2\n", ["--metrics", "s.json"], "--metrics writes the scores of --validation"),
        ("text,label\na,1\nb,2\n", ["--metrics", ".", "--validation", "0.5"], "--metrics: . is a folder"),
        ("text,label\na,1\nb\n", [], "rows.csv cannot be read as csv: line 3 has 1 values"),
        ("text,label\na,1\nb,2\n", ["--set", "epoch=3"], "unexpected keyword argument 'epoch'.*did you mean"),
        ("text,label\na,1\nb,2\n", ["--epochs", "none"], "epochs must be \"auto\" or a whole number"),
        ("text,label\na,1\nb,2\n", ["--set", "3"], "--set takes NAME=VALUE, not '3'"),
        ("text,label\na,1\nb,2\n", ["--validation", "1.5"], "must be a table, or a share over 0 and under 1"),
        ("text,label\na,1\nb,2\n", ["--validation", "no.csv"], "There is no file or folder .*no.csv"),
        ("text,label\na,1\nb,2\n", ["--validation", "0.9"], "each label of 'label' has one row. Is it the column"),
    ],
)  # fmt: skip
def test_errors_are_one_line_that_names_what_is_wrong(call, content, options, wrong, weights, tmp_path):
    (tmp_path / "rows.csv").write_text(content)
    status, _, err = call("fit", tmp_path / "rows.csv", "--weights", weights, "--out", tmp_path / "model", *options)
    assert status == 2 and len(err.splitlines()) == 1
    assert re.search(wrong, err, re.IGNORECASE), err
    assert not (tmp_path / "model").exists()


def test_checkpoints_in_the_folder_of_the_model_are_refused_before_the_fit(call, rows, weights, tmp_path):
    frame, options = table("classification", rows)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for inside in (".", "run"):
        fit = ["fit", tmp_path / "rows.csv", *options, "--weights", weights, *SMALL, "--out", tmp_path / "model"]
        status, _, err = call(*fit, "--checkpoint", tmp_path / "model" / inside)
        assert status == 2 and "is in the folder of the model" in err and not (tmp_path / "model").exists()


def test_a_warning_is_printed_once(call, rows, weights, tmp_path):
    without = tmp_path / "weights"
    shutil.copytree(weights, without)
    arrays = load_file(without / "model.safetensors")
    save_file({name: a for name, a in arrays.items() if "pooler" not in name}, without / "model.safetensors")
    frame, options = table("classification", rows)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit = ["fit", tmp_path / "rows.csv", *options, "--weights", without, *SMALL, "--quiet", "--out", tmp_path / "model"]
    status, _, err = call(*fit, "--set", "classifier_pooling=cls")
    assert status == 0 and err.count("has no pooler") == 1


def test_spans_of_json_lines_train_a_tagger(call, rows, weights, tmp_path):
    """As doccano exports them; ids of two types are in the way of nobody who does not need them."""
    lines = [
        {"id": i or "none", "text": text, "label": [[0, len(text.split()[0]), "FIRST"]]}
        for i, text in enumerate(rows.text)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    model = ["--weights", weights, *SMALL, "--quiet", "--out", tmp_path / "model"]
    status, _, err = call("fit", tmp_path / "in.jsonl", "--text", "text", "--label", "label", *model)
    assert status == 0, err
    assert type(kbert.load(tmp_path / "model")).__name__ == "BertTagger"
    out = ["--keep", "label", "--quiet", "--out", tmp_path / "out.jsonl"]
    status, _, err = call("predict", tmp_path / "model", tmp_path / "in.jsonl", *out)
    assert status == 0, err
    status, _, err = call("fit", tmp_path / "in.jsonl", "--text", "id", *model)
    assert status == 2 and "in.jsonl cannot be read as jsonl: line 2: the column 'id' cannot hold 1" in err


def test_lists_in_csv_are_lists_where_all_are(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n"[""x""]",[x\n"[1, 2]",y\n')
    frame = read_table(tmp_path / "t.csv")
    read_lists(frame, ["a", "b"])
    assert list(frame.a) == [["x"], [1, 2]] and list(frame.b) == ["[x", "y"]


def test_texts_that_are_json_lists_stay_texts_where_no_words_are_read(call, tmp_path):
    """A column of tags as text is one text a row, for all commands as for `fit` in Python."""
    rows = pd.DataFrame({"text": ['["urgent", "billing"]', '["refund", "late"]'] * 10, "label": ["a", "b"] * 10})
    rows.to_csv(tmp_path / "in.csv", index=False)
    model = ["--out", tmp_path / "model", "--size", "tiny", "--weights", "None", "--epochs", "1"]
    status, out, err = call("fit", tmp_path / "in.csv", *model)
    assert status == 0 and "classification: 20 rows" in out, err
    assert kbert.load(tmp_path / "model").weights is None
    assert kbert.load(tmp_path / "model").n_features_in_ == 1
    status, _, err = call("evaluate", tmp_path / "model", tmp_path / "in.csv", "--quiet")
    assert status == 0, err


def test_decimals_are_not_cut_off(tmp_path):
    """Of a file that has types, pandas would make 0 of 0.7."""
    frame = pd.DataFrame({"text": ["x", "y"], "a": [1.0, 0.7], "b": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'a' .*: 0\.7 in row 1 of .*t\.parquet is no whole number"):
        y_of(read, ["a", "b"], "classification")
    with pytest.raises(ValueError, match="'a' .*: inf in row 1 is no whole number"):
        y_of(frame.assign(a=[0, np.inf]), ["a", "b"], "classification")
    for large in (pd.Series([1, 1e19]), pd.Series([1, 2**63 + 1], dtype="uint64"), pd.Series(["1", str(2**63)])):
        with pytest.raises(ValueError, match="'a' .* in row 1 is no whole number"):
            y_of(frame.assign(a=large), ["a", "b"], "classification")
    assert y_of(frame.assign(a=[1.0, 0.0]), ["a", "b"], "classification").to_numpy().tolist() == [[1, 0], [0, 1]]


def test_booleans_of_csv_are_labels_as_those_of_parquet(tmp_path):
    """`get_dummies` gives such columns."""
    frame = pd.DataFrame({"text": ["x", "y"], "a": [True, False], "b": [False, True], "c": [True, True]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        y = y_of(read_table(tmp_path / name), ["a", "b", "c"], "classification")
        assert y.to_numpy().tolist() == [[1, 0, 1], [0, 1, 1]]
    (tmp_path / "t.csv").write_text("text,a,b\nx,True,1\ny,yes,0\n")
    with pytest.raises(ValueError, match=r"'a' .*: 'yes' in row 1 of .*t\.csv is no whole number"):
        y_of(read_table(tmp_path / "t.csv"), ["a", "b"], "classification")
    (tmp_path / "t.csv").write_text("text,a,b\nx,TRUE,1\ny,,0\n")
    with pytest.raises(ValueError, match=r"label in the column 'a' of row 1 of .*t\.csv is empty"):
        y_of(read_table(tmp_path / "t.csv"), ["a", "b"], "classification")
    (tmp_path / "t.csv").write_text("text,a,b\nx,TRUE,1\ny,FALSE,0\n")
    assert y_of(read_table(tmp_path / "t.csv"), ["a", "b"], "classification").to_numpy().tolist() == [[1, 1], [0, 0]]


def test_decimals_of_parquet_are_numbers(tmp_path):
    frame = pd.DataFrame({"text": ["x", "y"], "label": [Decimal("1.50"), Decimal("-0.25")]})
    frame.to_parquet(tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read.label.dtype == "float64" and task_of_columns(read, [], ["label"]) == "regression"
    assert y_of(read, ["label"], "regression").tolist() == [1.5, -0.25]
    for label in (1, 10**20):  # beyond 64 bits there are floats alone
        frame.assign(label=[Decimal(label), Decimal(0)]).to_parquet(tmp_path / "t.parquet")
        read = read_table(tmp_path / "t.parquet")
        assert read.label.dtype == ("int64" if label == 1 else "float64") and read.label.tolist() == [label, 0]


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (["1", "2", "6", "-1"], [1, 2], [1, 2, 6, -1]),
        ([1, 2, 6], ["1", "2"], ["1", "2", "6"]),
        (["a", "B"], ["a", "b"], ["a", "B"]),  # as `score` has it
        (["True", "TRUE", "false"], [False, True], [True, True, False]),
        ([True, False], ["True", "False"], ["True", "False"]),
        ([True, False], ["true", "false"], ["true", "false"]),
        (["1", "0.0", "x"], [0.0, 1.0], [1.0, 0.0, "x"]),
        (["1.0", "0"], list(np.array([0, 1])), [1, 0]),
    ],
)
def test_new_labels_are_of_the_type_of_the_others(labels, classes, expected):
    assert y_of(pd.DataFrame({"label": labels}), ["label"], "classification", classes).tolist() == expected


def test_labels_of_other_types_empty_ones_and_rare_ones(call, rows, weights, tmp_path):
    frame = rows[["text"]].assign(label=[1 + int("red" in text) for text in rows.text])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    model = ["--weights", weights, *SMALL, "--quiet", "--out", tmp_path / "model"]
    status, out, err = call("fit", tmp_path / "rows.csv", "--validation", tmp_path / "rows.parquet", *model)
    assert status == 0, err
    scores = [
        call("evaluate", tmp_path / "model", tmp_path / f"rows.{kind}", "--quiet")[1] for kind in ("csv", "parquet")
    ]
    assert scores[0] == scores[1] and "accuracy 0.000" not in scores[0]
    frame.assign(label="other").to_csv(tmp_path / "other.csv", index=False)
    status, _, err = call("evaluate", tmp_path / "model", tmp_path / "other.csv")
    assert status == 2 and "has no label that the model knows: it has 'other', and the model '1', '2'" in err

    frame.assign(label=["", *frame.label[1:].astype(str)]).to_csv(tmp_path / "empty.csv", index=False)
    status, _, err = call("fit", tmp_path / "empty.csv", *model)
    assert status == 2 and "The label in the column 'label' of row 0 of " in err and "empty.csv is empty" in err
    frame.assign(label=[None, *frame.label[1:].astype(str)]).to_parquet(tmp_path / "rows.parquet")
    status, _, err = call("evaluate", tmp_path / "model", tmp_path / "rows.parquet")
    assert status == 2 and f"of row 0 of {tmp_path}/rows.parquet is empty" in err

    rare = frame.assign(label=["rare", *frame.label[1:].astype(str)])
    rare.to_csv(tmp_path / "rare.csv", index=False)
    for seed in range(4):
        status, _, err = call("fit", tmp_path / "rare.csv", "--validation", "0.3", "--seed", seed, *model)
        assert status == 0, err
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    status, out, err = call("fit", tmp_path / "rows.csv", *model[:-1], tmp_path / "notes")
    assert status == 2 and "notes exists and holds no saved estimator" in err and "rows of" not in out


def test_questions_and_choices_have_the_columns_of_their_fit(call, rows, weights, tmp_path):
    model = ["--weights", weights, *SMALL, "--quiet", "--out"]
    frame, _ = table("answering", rows)
    renamed = {"question": "q", "context": "passage", "answer": "reply", "answer_start": "place"}
    path, out = tmp_path / "rows.parquet", tmp_path / "out.csv"
    frame.rename(columns=renamed).to_parquet(path)
    labels = ["--label", "reply", "place"]
    assert call("fit", path, "--task", "answering", "--text", "q", "passage", *labels, *model, tmp_path / "qa")[0] == 0
    assert call("predict", tmp_path / "qa", path, "--out", out)[0] == 0 and len(pd.read_csv(out)) == len(rows)
    assert call("evaluate", tmp_path / "qa", path, *labels)[0] == 0

    frame, _ = table("choice", rows)
    frame.assign(question="which?").to_parquet(path)  # which the fit does not read
    choices = ["--task", "choice", "--text", "context", "options"]
    assert call("fit", path, *choices, *model, tmp_path / "choice")[0] == 0
    out.unlink()
    assert call("predict", tmp_path / "choice", path, "--out", out)[0] == 0 and len(pd.read_csv(out)) == len(rows)
    assert call("evaluate", tmp_path / "choice", path)[0] == 0


def test_columns_of_the_fit_are_taken_by_name_and_pandas_index_is_none(call, rows, weights, tmp_path):
    pairs = rows[["text"]].assign(other=rows.text.str.split().str[0], label=[int("red" in text) for text in rows.text])
    model = kbert.BertClassifier(weights=weights, epochs=3, max_length=16, learning_rate=1e-2, random_state=0)
    model.fit(pairs[["text", "other"]], pairs.label).save(tmp_path / "pairs")
    pairs.set_index(np.zeros(len(pairs), int)).to_parquet(
        tmp_path / "pairs.parquet"
    )  # an index that tells no rows apart
    scores = [
        call("evaluate", tmp_path / "pairs", tmp_path / "pairs.parquet", "--quiet", "--text", *columns)[1]
        for columns in (("text", "other"), ("other", "text"))
    ]
    accuracy = model.score(pairs[["text", "other"]], pairs.label)
    assert scores[0] == scores[1] and scores[0].startswith(f"accuracy {accuracy:.3f}")
    assert accuracy != model.score(pairs[["other", "text"]].set_axis(["text", "other"], axis=1), pairs.label)

    single, frame = tmp_path / "single.parquet", rows[["text"]].rename(columns={"text": "review"})
    frame.assign(label=[int("red" in text) for text in rows.text]).set_index(np.zeros(60, int)).to_parquet(single)
    fit = ["fit", single, "--text", "review", "--weights", weights, *SMALL, "--validation", "0.2"]
    out = call(*fit, "--out", tmp_path / "model")[1]
    assert "48 rows of review" in out and "on 12 rows" in out
    assert call("evaluate", tmp_path / "model", single)[0] == 0
    assert call("predict", tmp_path / "model", single, "--out", tmp_path / "out.csv")[0] == 0
    status, _, err = call("predict", tmp_path / "model", single, "--out", "-")
    assert status == 2 and "not to standard output" in err and not Path("-").exists()
    by_series = kbert.load(tmp_path / "model").predict(frame.review)
    assert pd.read_csv(tmp_path / "out.csv").prediction.tolist() == list(map(int, by_series))


def test_options_of_predict_reach_the_call(call, saved, rows, tmp_path):
    rows[["id", "text"]].to_csv(tmp_path / "rows.csv", index=False)
    predict = ["predict", saved("classifier"), tmp_path / "rows.csv", "--out", tmp_path / "out", "--quiet"]
    options = ["--format", "jsonl", "--rows-per-part", "25", "--probabilities", "--keep", "id"]
    assert call(*predict, *options)[1].startswith("60 rows; the predictions are in")
    parts = sorted((tmp_path / "out").glob("part-*.jsonl"))
    found = [pd.read_json(part, lines=True) for part in parts]
    assert list(map(len, found)) == [25, 25, 10]
    assert list(found[0]) == ["id", "prediction", "probability", "probability_0", "probability_1"]
    assert call(*predict, *options)[1].startswith("60 rows, 3 of 3 parts by an earlier call; the predictions are in")
    status, _, err = call(*predict, *options, "--jobs", "0")
    assert status == 2 and "n_jobs (--jobs on the command line) must be a number of processes" in err


def test_a_model_without_labels_is_not_evaluated(call, saved, rows, tmp_path):
    rows[["text"]].assign(label=1).to_csv(tmp_path / "rows.csv", index=False)
    status, _, err = call("evaluate", saved("vectorizer"), tmp_path / "rows.csv")
    assert status == 2 and "holds a BertVectorizer, which has no labels to compare with" in err


def test_folders_that_are_not_there_yet_are_made(call, rows, weights, tmp_path):
    frame, options = table("classification", rows)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit = ["fit", tmp_path / "rows.csv", *options, "--weights", weights, *SMALL, "--quiet"]
    out, metrics = tmp_path / "models" / "new" / "model", tmp_path / "scores" / "new" / "fit.json"
    status, _, err = call(*fit, "--out", out, "--validation", "0.2", "--metrics", metrics)
    assert status == 0, err
    assert (out / "kbert.json").is_file() and "accuracy" in json.loads(metrics.read_text())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NO_SUCH_MODEL", "There is no saved model 'NO_SUCH_MODEL'. Looked for: - a folder of that name in "),
        ("./no_such", r"There is no saved model './no_such'. Looked for: - the folder \S+/no_such: the path exists"),
        ("no such!", "There is no saved model 'no such!'. Looked for: - a folder of that name in "),
        ("rows.csv", "There is no saved model 'rows.csv'. Looked for: - a folder: rows.csv is a file. "),
    ],
)
def test_a_model_that_is_not_there(name, says, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "rows.csv").write_text("text,label\nred,1\n")
    for argv in (["predict", name, "rows.csv", "--out", "out.csv"], ["evaluate", name, "rows.csv"]):
        status, _, err = call(*argv)
        assert status == 2 and len(err.splitlines()) == 1
        assert re.search(says, err) and "weights" not in err, err
        assert "Give the folder that an estimator's save, or `kbert fit --out`, wrote; or the name of one on" in err
