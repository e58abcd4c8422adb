"""One bad file of ten, a full disk, a folder that cannot be written: the error names it, and what was finished stays.

When the fault is mended the same call goes on from there, and ends at the bytes of a call that met none.
"""

import os
import re
import shutil
from contextlib import contextmanager

import pandas as pd
import pytest

from kbert import predict_table
from kbert.cli import main

pytestmark = pytest.mark.slow  # what a backend computes is that of predict


@pytest.fixture
def ten(rows, tmp_path):
    """A folder with ten Parquet files of six rows each."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(10):
        rows[["id", "text"]][number * 6 : number * 6 + 6].to_parquet(folder / f"{number}.parquet", index=False)
    return folder


@pytest.fixture
def call(estimator, ten, tmp_path):
    """A function that predicts the ten files, in parts of three rows."""

    def predict(out="out"):
        return predict_table(estimator("classifier"), ten, tmp_path / out, columns="text", rows_per_part=3)

    return predict


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


@contextmanager
def no_file_over(n_bytes):
    """A disk on which no file can become larger: what is written beyond that fails, as on a full one."""
    resource = pytest.importorskip("resource", reason="this system limits no sizes of files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("out", ["labels.xlsx", "labels.json", "labels.txt", "labels.parquet.gz"])
def test_an_output_of_another_ending_is_refused(out, call, tmp_path):
    with pytest.raises(
        ValueError, match=f"{out}: .*\\.parquet, \\.csv, \\.tsv, \\.jsonl.* folder of parts has no ending"
    ):
        call(out)
    assert not (tmp_path / out).exists()


def test_folders_of_parts_may_have_a_dot_in_their_names(call, tmp_path):
    assert call("out-2026.11").rows == 60
    (tmp_path / "out.v2").mkdir()
    assert call("out.v2").rows == 60
    assert contents(tmp_path / "out.v2") == contents(tmp_path / "out-2026.11")


@pytest.mark.parametrize("damage", [lambda part: part[: len(part) // 2], lambda part: part + b"more", lambda part: b""])
def test_a_part_that_was_damaged_after_it_was_done_is_written_again(damage, call, tmp_path):
    call()
    good = contents(tmp_path / "out")
    part = tmp_path / "out" / "part-00003-000001.parquet"
    part.write_bytes(damage(part.read_bytes()))
    assert call() == (60, 20, 19)
    assert contents(tmp_path / "out") == good
    assert call() == (60, 20, 20)


def test_settings_of_a_call_that_wrote_no_part_are_not_kept(estimator, ten, call, tmp_path):
    for path in ten.iterdir():
        rows = pd.read_parquet(path)
        rows.assign(prediction=0).to_parquet(path, index=False)
    with pytest.raises(ValueError, match="has a column 'prediction', as the predictions have"):
        call()
    written = predict_table(estimator("classifier"), ten, tmp_path / "out", columns="text", keep="id")
    assert written.rows == 60


def goes_on(call, tmp_path, n_before):
    """Whether the call goes on from so many parts, to the bytes of one that met no fault."""
    assert len(contents(tmp_path / "out")) == n_before
    assert call() == (60, 20, n_before)
    call("whole")
    return contents(tmp_path / "out") == contents(tmp_path / "whole") != {}


@pytest.mark.parametrize(
    ("bad", "out", "error", "match"),
    [
        (
            lambda rows: rows.rename(columns={"text": "review"}),
            "out",
            ValueError,
            "no column 'text'. It has id, review",
        ),
        (lambda rows: rows.assign(text=1.5), "out", TypeError, "'text' is of type double, and in .*0.parquet of type "),
        (
            lambda rows: rows.assign(text=[["red"]] * 6),
            "out",
            TypeError,
            "'text' is of type list<.*>, and in .*0.parquet of type ",
        ),
        (
            lambda rows: rows.assign(id="x"),
            "out.csv",
            ValueError,
            "different types .*which do not go into the one file",
        ),
        (lambda rows: rows.assign(probability=1), "out", ValueError, "6.parquet has a column 'probability', as the"),
    ],
    ids=["a missing column", "numbers for texts", "lists for texts", "a kept column of another type", "a name twice"],
)
def test_one_file_of_ten_is_told_of_before_the_first_is_predicted(bad, out, error, match, call, ten, tmp_path):
    path = ten / "6.parquet"
    good = path.read_bytes()
    bad(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(error, match=match) as raised:
        call(out)
    assert "6.parquet" in str(raised.value) or out == "out.csv"
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    path.write_bytes(good)
    assert call(out) == (60, 20, 0)


def test_columns_of_csv_files_are_compared_before_the_first_is_predicted(estimator, rows, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(3):
        rows[["id", "text"]].to_csv(tmp_path / "in" / f"{number}.csv.gz", index=False)
    rows[["id"]].to_csv(tmp_path / "in" / "3.csv", index=False)
    with pytest.raises(ValueError, match="3.csv: the table has no column 'text'. It has id"):
        predict_table(estimator("classifier"), tmp_path / "in", tmp_path / "out", columns="text")
    rows[["text"]].to_csv(tmp_path / "in" / "3.csv", index=False)
    with pytest.raises(ValueError, match="3.csv: keep names 'id', and the table has text"):
        predict_table(estimator("classifier"), tmp_path / "in", tmp_path / "out", columns="text", keep="id")
    assert not (tmp_path / "out").exists()
    (tmp_path / "in" / "3.csv").write_text("number\n")  # of no rows, as an empty partition
    assert predict_table(estimator("classifier"), tmp_path / "in", tmp_path / "out", columns="text").rows == 180


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "jsonl"])
def test_a_column_of_the_predictions_name_is_found_before_the_first_is_predicted(ending, saved, rows, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for number in range(3):
        frame = rows[["id", "text"]].assign(**{"probability_1": "mine"} if number == 2 else {})
        path = tmp_path / "in" / f"{number}.{ending}"
        if ending == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_csv(path, index=False, sep="\t" if "tsv" in ending else ",")
    argv = ["predict", saved("classifier"), tmp_path / "in", "--out", tmp_path / "out", "--quiet", "--text", "text"]
    assert main([*map(str, argv), "--probabilities"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and f"2.{ending} has a column 'probability_1', as the predictions have" in error
    assert not (tmp_path / "out").exists()
    assert main([*map(str, argv), "--probabilities", "--keep", "id"]) == 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv", "text;label\nred;1\nhot;2\n", "Its header has semicolons in place of commas. Write it with commas:"),
        ("t.csv", "text;label\nred, hot;1\n", "Its header has semicolons in place of commas. Write it with commas:"),
        ("t.csv", '"text";"label"\n"red";"1"\n', "Its header has semicolons in place of commas. Write it with commas:"),
        ("t.csv", "text\tlabel\nred\t1\n", "Its header has tabs in place of commas. Give it a name that ends in .tsv"),
        ("t.tsv", "text,label\nred,1\n", "Its header has commas in place of tabs. Give it a name that ends in .csv"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "evaluate", "predict", "predict --text text", "predict_table"])
def test_another_separator_is_named(command, name, content, says, saved, tmp_path, capsys):
    path = tmp_path / name
    path.write_text(content)
    if command == "predict_table":
        with pytest.raises(ValueError) as raised:
            predict_table(saved("classifier"), path, tmp_path / "out.csv", columns=["text"])
        error = str(raised.value)
    else:
        command, *options = command.split()
        out = {"fit": ["--out", tmp_path / "out"], "predict": ["--out", tmp_path / "out"]}.get(command, [])
        model = ["--weights", saved("classifier"), path] if command == "fit" else [saved("classifier"), path]
        assert main([command, *map(str, [*model, *out, *options]), "--quiet"]) == 2
        error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and str(path) in error and says in error
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("part-*"))


def test_one_corrupt_parquet_file_of_ten(call, ten, tmp_path):
    path = ten / "6.parquet"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(ValueError, match="6.parquet cannot be read as parquet: .*What else there is was done"):
        call()
    path.write_bytes(good)
    assert goes_on(call, tmp_path, 18)


@pytest.mark.parametrize("out", ["out", "out.csv"])
def test_a_corrupt_file_may_be_removed(out, call, ten, tmp_path, estimator):
    (ten / "6.parquet").write_bytes(b"PAR1 this is none")
    with pytest.raises(ValueError, match=r"not a parquet file\. What else there is was done: mend or remove"):
        call(out)
    (ten / "6.parquet").unlink()
    assert call(out) == (54, 18, 18)
    found = pd.read_csv(tmp_path / out) if out == "out.csv" else pd.read_parquet(tmp_path / out)
    assert list(found.id) == [*range(36), *range(42, 60)]


def test_parts_of_rows_that_are_gone_are_told_of(call, ten, tmp_path):
    call()
    first, last = ten / "0.parquet", ten / "9.parquet"
    rows = last.read_bytes()
    pd.read_parquet(last)[:3].to_parquet(last, index=False)
    first.unlink()
    match = r"3 parts of rows that the table no longer has \(part-00000-000000.parquet is the first\)"
    with pytest.raises(FileExistsError, match=match):
        call()
    last.write_bytes(rows)
    for path in (tmp_path / "out").glob("part-00000-*"):
        path.unlink()
    assert call() == (54, 18, 18)


@pytest.mark.parametrize("out", ["out", "out.csv"])
def test_a_table_that_has_lost_its_rows_takes_no_predictions_with_it(out, call, ten, tmp_path):
    files = {path: path.read_bytes() for path in ten.iterdir()}
    if out == "out":
        call(out)
    else:
        (ten / "6.parquet").write_bytes(b"none")
        with pytest.raises(ValueError, match="6.parquet cannot be read"):
            call(out)
    for path in files:
        pd.DataFrame({"id": [], "text": []}).to_parquet(path, index=False)
    with pytest.raises(ValueError, match="There are no rows in"):
        call(out)
    for path, content in files.items():
        path.write_bytes(content)
    assert call(out) == (60, 20, 20 if out == "out" else 18)


def test_numbers_that_do_not_go_into_one_file_are_told_of_by_their_column(estimator, tmp_path):
    lines = ['{"text": "red", "n": 9007199254740993}', '{"text": "hot", "n": 1.5}']  # no decimal number is the first
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    model, source = estimator("classifier"), tmp_path / "in.jsonl"
    with pytest.raises(ValueError, match="The column 'n' has values that do not go together .*out.csv"):
        predict_table(model, source, tmp_path / "out.csv", columns="text", rows_per_part=1)
    assert predict_table(model, source, tmp_path / "out", columns="text", rows_per_part=1).rows == 2
    assert predict_table(model, source, tmp_path / "out.csv", columns="text", keep=[], rows_per_part=1).rows == 2


@pytest.mark.usefixtures("no_compiled_files")
def test_a_full_disk(call, ten, tmp_path):
    # The parts of one file are larger, for it has long texts of all kinds of signs.
    path = ten / "6.parquet"
    noise = [os.urandom(20_000).hex() for _ in range(6)]
    pd.read_parquet(path).assign(text=noise).to_parquet(path, index=False)
    with no_file_over(50_000), pytest.raises(OSError, match=r"a part cannot be written .*Make room and call again"):
        call()
    assert goes_on(call, tmp_path, 12)


@pytest.mark.usefixtures("no_compiled_files")
def test_a_disk_that_is_full_when_the_parts_become_one_file(call, ten, tmp_path):
    for path in ten.iterdir():
        rows = pd.read_parquet(path)
        rows.assign(text=[f"{text} {os.urandom(500).hex()}" for text in rows.text]).to_parquet(path, index=False)
    # Over the size of a part, and under that of all together.
    with no_file_over(30_000), pytest.raises(OSError, match=r"cannot be written .*Make room and call again.*out.csv"):
        call("out.csv")
    assert not (tmp_path / "out.csv").exists()
    assert call("out.csv") == (60, 20, 20)
    call("whole.csv")
    assert (tmp_path / "out.csv").stat().st_size > 0
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("out", ["file/out", "file/out.csv", "file"])
def test_an_output_where_nothing_can_be_written(out, call, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=f"{tmp_path / 'file'}"):
        call(out)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to every folder")
def test_a_folder_without_permission(call, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    with pytest.raises(PermissionError, match="closed"):
        call("closed/out")


def test_the_command_says_it_in_one_line(saved, ten, tmp_path, capsys):
    (ten / "6.parquet").write_bytes(b"PAR1")
    (tmp_path / "file").write_text("mine")
    for out, match in [("out", "6.parquet cannot be read as parquet"), ("file/out", str(tmp_path / "file"))]:
        argv = [
            "predict",
            str(saved("classifier")),
            str(ten),
            "--text",
            "text",
            "--out",
            str(tmp_path / out),
            "--quiet",
        ]
        assert main(argv) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1 and match in error


@pytest.mark.parametrize(
    ("change", "out", "match"),
    [
        (lambda rows: rows.drop(columns="label"), "model", "6.parquet has no column 'label', which other files"),
        (
            lambda rows: rows.assign(label=[["a"]] * len(rows)),
            "model",
            r"6.parquet: the column 'label' is of type list<.*>, and in \S*0.parquet of type int64",
        ),
        (
            lambda rows: rows.assign(label=None),
            "model",
            r"The label in the column 'label' of row 0 of \S*6.parquet is empty",
        ),
        (None, "model", "6.parquet cannot be read as parquet"),
        (lambda rows: rows, "file/model", "/file: (File exists|Not a directory)"),
    ],
    ids=[
        "a missing column",
        "a column of the wrong type",
        "missing labels",
        "a corrupt file",
        "an output below a file",
    ],
)
def test_a_model_is_fitted_to_ten_files_of_which_one_is_bad(change, out, match, saved, ten, tmp_path, capsys):
    for path in ten.iterdir():
        rows = pd.read_parquet(path)
        rows.assign(label=rows.id % 2).to_parquet(path, index=False)
    path = ten / "6.parquet"
    path.write_bytes(b"PAR1") if change is None else change(pd.read_parquet(path)).to_parquet(path, index=False)
    (tmp_path / "file").write_text("mine")
    argv = ["fit", ten, "--text", "text", "--weights", saved("classifier"), "--epochs", "1", "--out", tmp_path / out]
    assert main([*map(str, argv), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and re.search(match, error), error
    assert not (tmp_path / "model").exists() and (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("no_compiled_files")
def test_a_disk_that_is_full_when_a_model_is_saved(saved, rows, tmp_path, capsys):
    rows.assign(label=rows.id % 2)[["text", "label"]].to_csv(tmp_path / "in.csv", index=False)
    argv = ["fit", tmp_path / "in.csv", "--weights", saved("classifier"), "--epochs", "1", "--out", tmp_path / "model"]
    argv = [*map(str, argv), "--quiet"]

    def refused(*more):
        with no_file_over(4_000):
            assert main([*argv, *more]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert f"{tmp_path / 'model'}: it cannot be written (File too large). Make room" in error
        assert not [path for path in tmp_path.iterdir() if "model" in path.name]
        return error

    assert "The fit is lost: with --checkpoint FOLDER it would be kept" in refused()
    kept = ["--checkpoint", str(tmp_path / "kept")]
    assert main([*argv, *kept]) == 0
    shutil.rmtree(tmp_path / "model")
    assert f"The fit is kept in {tmp_path / 'kept'}: the same call goes on" in refused(*kept)
    assert main([*argv, *kept]) == 0
    capsys.readouterr()

    with no_file_over(20):
        argv = ["evaluate", tmp_path / "model", tmp_path / "in.csv", "--metrics", tmp_path / "scores.json"]
        assert main([*map(str, argv), "--quiet"]) == 2
    out, error = capsys.readouterr()
    assert out.startswith("accuracy ") and out.endswith(" on 60 rows\n")  # the scores are not lost
    assert f"{tmp_path / 'scores.json'}: File too large" in error


def test_rows_in_memory_are_refused_with_what_takes_them(estimator, rows, tmp_path):
    with pytest.raises(
        TypeError, match="source must be a file, a folder or a pattern, not DataFrame. For rows in memory"
    ):
        predict_table(estimator("classifier"), rows, tmp_path / "out")
