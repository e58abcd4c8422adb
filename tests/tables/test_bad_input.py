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


def goes_on(call, tmp_path, n_before):
    """Whether the call goes on from so many parts, to the bytes of one that met no fault."""
    assert len(contents(tmp_path / "out")) == n_before
    assert call() == (60, 20, n_before)
    call("whole")
    return contents(tmp_path / "out") == contents(tmp_path / "whole") != {}


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda rows: rows.rename(columns={"text": "review"}), ValueError, "has no column 'text'. It has id, review"),
        (lambda rows: rows.assign(text=1.5), TypeError, "text"),
    ],
    ids=["a missing column", "a column of the wrong type"],
)
def test_one_file_of_ten_with(bad, error, match, call, ten, tmp_path):
    path = ten / "6.parquet"
    good = path.read_bytes()
    bad(pd.read_parquet(path)).to_parquet(path, index=False)
    with pytest.raises(error, match=f"6.parquet, rows 0 to 2 .index.: .*{match}"):
        call()
    path.write_bytes(good)
    assert goes_on(call, tmp_path, 12)


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
