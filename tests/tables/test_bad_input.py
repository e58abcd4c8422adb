"""One bad file of ten, a full disk, a folder that cannot be written: the error names it, and what was finished stays.

When the fault is mended the same call goes on from there, and ends at the bytes of a call that met none.
"""

import os
import re
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
    ],
    ids=["a missing column", "numbers for texts", "lists for texts", "a kept column of another type"],
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


def test_a_full_disk(call, ten, tmp_path):
    # The parts of one file are larger, for it has long texts of all kinds of signs.
    path = ten / "6.parquet"
    noise = [os.urandom(20_000).hex() for _ in range(6)]
    pd.read_parquet(path).assign(text=noise).to_parquet(path, index=False)
    with no_file_over(50_000), pytest.raises(OSError, match=r"a part cannot be written .*Make room and call again"):
        call()
    assert goes_on(call, tmp_path, 12)


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
        (lambda rows: rows.assign(label=[["a"]] * len(rows)), "model", "have columns of different types: .*label"),
        (None, "model", "6.parquet cannot be read as parquet"),
        (lambda rows: rows, "file/model", "/file: (File exists|Not a directory)"),
    ],
    ids=["a missing column", "a column of the wrong type", "a corrupt file", "an output below a file"],
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
