"""Folders of parts: what a power cut leaves of them."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from kbert.tables import parts
from kbert.tables.parts import PartFolder, write_part


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
