"""Folders of parts: what a power cut leaves of them, which rows they are of, and their joining."""

import errno

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from kbert import predict_table
from kbert.tables import parts
from kbert.tables.parts import PartFolder, digest_of, write_part


def test_what_is_noted_is_on_the_disk_before(tmp_path, monkeypatch):
    synced, on_disk = [], []

    def sync(path):
        synced.append((path.name, sorted(each.name for each in path.iterdir()) if path.is_dir() else path.read_text()))

    monkeypatch.setattr(parts, "sync", sync)
    monkeypatch.setattr(parts.os, "fsync", lambda handle: on_disk.append((folder / "_parts.jsonl").read_text()))
    folder, table = tmp_path / "out", pa.table({"a": [1, 2]})
    folder.mkdir()
    output = PartFolder(folder, {"files": ["a.csv"]}, is_temporary=True)
    (unfinished, text), *named = synced
    assert unfinished.startswith("_kbert.json.") and "a.csv" in text
    assert named == [("out", ["_kbert.json"]), (tmp_path.name, ["out"])]

    synced.clear()
    name = "part-00000-000000.parquet"
    monkeypatch.setattr(parts, "write_tables", lambda path, tables, _: parquet.write_table(next(iter(tables)), path))
    n_bytes = write_part(folder / name, table, "parquet")
    assert synced == [("out", ["_kbert.json", name])] and on_disk == []
    output.note(name, "digest", n_bytes)
    assert name in on_disk[0]

    synced.clear()
    output.join([name], tmp_path / "out.parquet", "parquet")
    assert synced == [(tmp_path.name, ["out", "out.parquet"])]  # before the parts went
    assert not folder.exists()


@pytest.mark.parametrize("change", [lambda whole: whole[:-1], lambda whole: whole + b"x", lambda whole: b""])
def test_a_part_of_another_size_than_was_noted_is_not_there(tmp_path, change):
    settings, names = {"files": ["a.csv"]}, [f"part-00000-00000{i}.parquet" for i in range(2)]
    output = PartFolder(tmp_path, settings, is_temporary=False)
    for name in names:
        output.note(name, "digest", write_part(tmp_path / name, pa.table({"a": [1, 2]}), "parquet"))
    assert PartFolder(tmp_path, settings, is_temporary=False).done == dict.fromkeys(names, "digest")
    path = tmp_path / names[1]
    path.write_bytes(change(path.read_bytes()))
    again = PartFolder(tmp_path, settings, is_temporary=False)
    assert again.has(names[0], "digest") and not again.has(names[1], "digest")


def test_settings_of_very_many_files_are_read_again(tmp_path):
    """40,000 names of Spark's: more than the 4 MB that JSON of a model may have."""
    settings = {"files": [f"part-{i:05d}-{'c0ffee' * 18}.parquet" for i in range(40_000)], "format": 1}
    PartFolder(tmp_path, settings, is_temporary=False)
    assert (tmp_path / "_kbert.json").stat().st_size > 4_000_000
    assert PartFolder(tmp_path, settings, is_temporary=False).files == settings["files"]


def test_a_part_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(path, *_):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts, "write_tables", full)
    with pytest.raises(OSError, match="a part cannot be written"):
        parts.write_part(tmp_path / "part-00000-000000.parquet", pa.table({"a": [1]}), "parquet")
    assert not list(tmp_path.iterdir())


def test_a_noted_line_that_is_json_but_no_note_is_passed_over(tmp_path):
    settings, name = {"files": ["a.csv"]}, "part-00000-000000.parquet"
    output = parts.PartFolder(tmp_path, settings, is_temporary=False)
    output.note(name, "digest", parts.write_part(tmp_path / name, pa.table({"a": [1]}), "parquet"))
    with (tmp_path / "_parts.jsonl").open("a") as file:
        file.write('\n{}\n[]\n{"part": "x", "digest": "y", "bytes": null}\n')
    assert parts.PartFolder(tmp_path, settings, is_temporary=False).done == {name: "digest"}


def test_notes_that_are_no_utf8_are_passed_over(tmp_path):
    settings, name = {"files": ["a.csv"]}, "part-00000-000000.parquet"
    output = PartFolder(tmp_path, settings, is_temporary=False)
    output.note(name, "digest", write_part(tmp_path / name, pa.table({"a": [1]}), "parquet"))
    with (tmp_path / "_parts.jsonl").open("ab") as file:
        file.write(b"\n{\xff\n")
    assert PartFolder(tmp_path, settings, is_temporary=False).done == {name: "digest"}


def test_the_digest_is_of_the_rows_and_not_of_the_file():
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    assert digest_of(table.replace_schema_metadata({"by": "another program"})) == digest_of(table)
    for other in (
        pa.table({"a": [1, 3], "b": ["x", None]}),
        pa.table({"a": [1, 2], "b": ["x", "None"]}),
        table.rename_columns(["a", "c"]),
    ):
        assert digest_of(other) != digest_of(table)


@pytest.mark.slow
def test_rows_that_are_added_to_a_file_of_pandas_leave_the_others_done(estimator, rows, tmp_path):
    frame, call = rows[["id", "text"]], [estimator("classifier"), tmp_path / "in.parquet", tmp_path / "out"]
    frame[:20].to_parquet(tmp_path / "in.parquet")  # with an index, whose length pandas writes into the file
    assert predict_table(*call, columns="text", rows_per_part=10) == (20, 2, 0)
    frame[:30].to_parquet(tmp_path / "in.parquet")
    assert predict_table(*call, columns="text", rows_per_part=10) == (30, 3, 2)


@pytest.mark.slow
def test_a_part_that_was_not_noted_and_has_no_file_any_more_is_told(estimator, rows, tmp_path):
    """A call that was killed after it had written a part, and a file that was removed then."""
    (tmp_path / "in").mkdir()
    for name in "ab":
        rows[["text"]].to_csv(tmp_path / "in" / f"{name}.csv", index=False)
    call = [estimator("classifier"), tmp_path / "in", tmp_path / "out"]
    predict_table(*call)
    notes = tmp_path / "out" / "_parts.jsonl"
    notes.write_text("\n".join(notes.read_text().splitlines()[:-1]))
    (tmp_path / "in" / "b.csv").unlink()
    with pytest.raises(FileExistsError, match="1 parts of rows that the table no longer has"):
        predict_table(*call)


@pytest.mark.slow
def test_a_category_and_texts_go_into_one_file(estimator, rows, tmp_path):
    (tmp_path / "in").mkdir()
    rows[["text"]].astype("category").to_parquet(tmp_path / "in" / "a.parquet")
    rows[["text"]].to_parquet(tmp_path / "in" / "b.parquet")
    assert predict_table(estimator("classifier"), tmp_path / "in", tmp_path / "out.parquet").rows == 120
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found.text.tolist() == [*rows.text, *rows.text]
    assert found.prediction[:60].tolist() == found.prediction[60:].tolist()
