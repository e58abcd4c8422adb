"""Tables in files: what is read is what was written, in parts of any size, and what is damaged is named."""

import csv
import gzip
import json
import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from kbert.pretraining import Corpus
from kbert.tables.files import find_tables, format_of, head_of, other_separator, read_in_parts, write_tables
from kbert.tables.parts import one_schema
from kbert.tables.reading import read_table, task_of_columns

TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), max_size=12)
# Of CSV, what is not quite a text comes back as the text that stands there.
ROWS = st.lists(st.fixed_dictionaries({"text": TEXTS.filter(bool), "other": TEXTS}), min_size=1, max_size=30)


def read(path, n_rows=1000):
    """All rows of a file as a list of dicts."""
    return [row for part in read_in_parts(path, n_rows) for row in part.to_pylist()]


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, n_rows=st.integers(1, 12), written_as=st.sampled_from(["csv", "tsv", "jsonl", "parquet"]))
def test_what_is_written_is_read_in_parts_of_any_size(tmp_path_factory, rows, n_rows, written_as):
    path = tmp_path_factory.mktemp("files") / f"table.{written_as}"
    schema = pa.schema([("text", pa.string()), ("other", pa.string())])
    tables = [pa.Table.from_pylist(rows[i : i + 7], schema=schema) for i in range(0, len(rows), 7)]
    write_tables(path, tables, written_as)
    parts = list(read_in_parts(path, n_rows))
    assert [part.num_rows for part in parts[:-1]] == [n_rows] * (len(parts) - 1)
    assert [row for part in parts for row in part.to_pylist()] == rows


@pytest.mark.parametrize("written_as", ["csv", "jsonl", "parquet"])
def test_types_and_nested_values(tmp_path, written_as):
    entity = pa.struct([("label", pa.string()), ("score", pa.float32())])
    halves = list(np.array([0.1, 2.0, 0.5, 1.0], "float16"))  # pyarrow 16 takes no others
    table = pa.table(
        {
            "share": pa.array([0.1, None], pa.float32()),
            "vector": pa.array([[0.1, 2.0], []], pa.list_(pa.float32())),
            "entities": pa.array([[{"label": "ä", "score": 0.7}], []], pa.list_(entity)),
            "large": pa.array([[0.1], None], pa.large_list(pa.float32())),
            "half": pa.array([halves[:2], halves[2:]], pa.list_(pa.float16(), 2)),
            "map": pa.array([[("a", 0.1)], []], pa.map_(pa.string(), pa.float32())),
        }
    )  # fmt: skip
    path = tmp_path / f"table.{written_as}"
    write_tables(path, [table], written_as)
    if written_as == "parquet":
        assert parquet.read_table(path).equals(table)
        assert head_of(path) == (2, table.schema, None)
        return
    first, second = read(path)
    if written_as == "csv":
        entities = '[{"label": "ä", "score": 0.7}]'
        assert list(first.values()) == ["0.1", "[0.1, 2.0]", entities, "[0.1]", "[0.1, 2.0]", '[["a", 0.1]]']
        assert list(second.values()) == ["", "[]", "[]", "", "[0.5, 1.0]", "[]"]
    else:
        entities = [{"label": "ä", "score": 0.7}]
        # A list of values of several types is read as its JSON.
        assert list(first.values()) == [0.1, [0.1, 2.0], entities, [0.1], [0.1, 2.0], '[["a", 0.1]]']
        assert list(second.values()) == [None, [], [], None, [0.5, 1.0], "[]"]
    names = list(table.schema.names) if written_as == "csv" else None
    assert head_of(path).n_rows is None and getattr(head_of(path).schema, "names", None) == names


def test_json_lines_have_null_for_what_is_no_number(tmp_path):
    shares = pa.array([[0.5, float("nan")], None], pa.list_(pa.float64()))
    table = pa.table({"price": pa.array([float("inf"), 2.0]), "shares": shares})
    write_tables(tmp_path / "table.jsonl", [table], "jsonl")

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    lines = (tmp_path / "table.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=refuse) for line in lines]
    assert found == [{"price": None, "shares": [0.5, None]}, {"price": 2.0, "shares": None}]


def test_packed_files_byte_order_marks_and_line_breaks_in_values(tmp_path):
    with gzip.open(tmp_path / "table.csv.gz", "wt", encoding="utf-8-sig") as file:
        file.write('id,text\n007,"two\nlines, and a "" quote"\n\n8,\n')
    assert read(tmp_path / "table.csv.gz", 1) == [
        {"id": "007", "text": 'two\nlines, and a " quote'}, {"id": "8", "text": ""}
    ]  # fmt: skip


def test_carriage_returns_empty_values_and_missing_lists_come_back(tmp_path):
    rows = [{"text": "a\rb"}, {"text": ""}, {"text": "\r\n"}]
    for written_as in ("csv", "tsv", "jsonl", "parquet"):
        write_tables(tmp_path / f"t.{written_as}", [pa.Table.from_pylist(rows)], written_as)
        assert read(tmp_path / f"t.{written_as}") == rows
    (tmp_path / "t.csv").write_text("text\na\n\nb\n")  # of one column, an empty line is an empty value
    assert read(tmp_path / "t.csv") == [{"text": "a"}, {"text": ""}, {"text": "b"}]
    (tmp_path / "t.jsonl").write_text('{"spans": [[0, "x"]]}\n{"spans": null}\n')
    assert read(tmp_path / "t.jsonl") == [{"spans": '[[0, "x"]]'}, {"spans": None}]


def test_values_of_any_length_leave_the_limit_of_other_readers_alone(tmp_path):
    (tmp_path / "table.csv").write_text(f"text\n{'x' * 200_000}\n")
    limit = csv.field_size_limit()
    assert read(tmp_path / "table.csv", 1) == [{"text": "x" * 200_000}]
    assert sum(len(text) for document in Corpus(tmp_path / "table.csv") for text in document) == 200_000
    assert csv.field_size_limit() == limit


def test_files_of_a_folder_and_of_a_pattern(tmp_path):
    for name in ("b.csv", "a.parquet", "c.txt", "_kbert.json", "_part.csv", "sub/d.tsv.xz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names = [str(path.relative_to(tmp_path)) for path in find_tables(tmp_path)]
    assert names == ["a.parquet", "b.csv", "sub/d.tsv.xz"]
    assert [path.name for path in find_tables(tmp_path / "*.csv")] == ["_part.csv", "b.csv"]
    with pytest.raises(ValueError, match=r"c.txt: the ending of its name says of no known format. Known are .csv"):
        find_tables(tmp_path / "c.txt")
    with pytest.raises(FileNotFoundError, match="no file or folder .*none"):
        find_tables(tmp_path / "none*")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no table in the folder"):
        find_tables(tmp_path / "empty")
    assert format_of(tmp_path / "x.parquet.gz") is None and format_of(tmp_path / "X.CSV.GZ") == "csv"


def test_what_links_lead_to_is_read_once(tmp_path):
    (tmp_path / "2024").mkdir()
    (tmp_path / "2024" / "a.csv").write_text("text\nx\n")
    (tmp_path / "latest").symlink_to(tmp_path / "2024")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "b.csv").symlink_to(tmp_path / "2024" / "a.csv")
    os.mkfifo(tmp_path / "pipe.csv")  # which would never end
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "c.csv").write_text("text\nx\n")
    assert [str(path.relative_to(tmp_path)) for path in find_tables(tmp_path)] == ["2024/a.csv"]
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nothing.csv")
    with pytest.raises(FileNotFoundError, match="gone.csv is a link to a file that is not there"):
        find_tables(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_no_empty_one(tmp_path):
    (tmp_path / "a.csv").write_text("text\nx\n")
    (tmp_path / "closed").mkdir(mode=0o000)
    with pytest.raises(PermissionError, match="closed"):
        find_tables(tmp_path)


def test_objects_without_keys_are_missing_values(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "meta": {}}\n{"text": "b", "meta": {}}\n')
    (table,) = read_in_parts(tmp_path / "a.jsonl", 10)
    assert table.column("meta").to_pylist() == [None, None]
    write_tables(tmp_path / "a.parquet", [table], "parquet")
    (tmp_path / "a.jsonl").write_text('{"meta": {"a": 1, "b": [{}]}, "deep": {"a": 1, "b": [2]}}\n' * 2)
    (table,) = read_in_parts(tmp_path / "a.jsonl", 10)
    assert table.column("meta").to_pylist() == ['{"a": 1, "b": [{}]}'] * 2
    assert table.column("deep").to_pylist() == [{"a": 1, "b": [2]}] * 2
    write_tables(tmp_path / "a.parquet", [table], "parquet")


def test_a_column_that_a_file_lacks_may_be_one_that_another_always_has():
    never_missing = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    schema = one_schema([never_missing, pa.schema([("text", pa.string())])], Path("out.parquet"))
    assert schema.field("id").nullable


def test_decimals_of_parquet_are_numbers(tmp_path):
    prices = pa.array([Decimal("1.50"), Decimal("20.00")], pa.decimal128(10, 2))
    parquet.write_table(pa.table({"text": ["a", "b"], "price": prices}), tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
    assert frame.price.tolist() == [1.5, 20.0] and frame.price.dtype == float
    assert task_of_columns(frame, ["text"], ["price"]) == "regression"


@pytest.mark.parametrize(
    ("name", "content", "wrong"),
    [
        ("t.csv", b"a,b\n1,2\n3\n", "line 3 has 1 values, and the header has 2"),
        ("t.csv", b"a,a\n1,2\n", "its header has a name twice"),
        ("t.csv", b"", "it has no header"),
        ("t.csv", b'a,b\n1,"2\n', "unexpected end of data"),
        ("t.tsv", b'a\tb\n1\t"2" or 3\n', "line 2: .*A value with quotes in it has to be in quotes"),
        ("t.csv", b"a,b\n1,\xff\n", r"line 2 is not UTF-8 \(invalid start byte\)"),
        ("t.csv.gz", gzip.compress(b"a,b\n" + 9_000 * b"1,2\n" + b"caf\xe9,2\n", mtime=0), "line 9002 is not UTF-8"),
        ("t.jsonl", b'{"a": "x"}\n{"a": "caf\xe9"}\n', "line 2 is not UTF-8"),
        ("t.tsv.gz", b"a\tb\n", "[Nn]ot a gzipped file"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:10] + 20 * b"\xff", "Error -3 while decompressing"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,\xff", mtime=0) + b"\x1f\x8b\0", "it is not UTF-8"),
        ("t.jsonl", b'{"a": 1}\n{"a": \n', "line 2: "),
        ("t.jsonl", b"[1]\n", "line 1 holds no JSON object"),
        (
            "t.jsonl",
            b'{"a": 1}\n\n{"b": 2}\n{"a": 2}\n{"a": "x"}\n{"a": 3}\n',
            "line 5: the column 'a' cannot hold 'x'",
        ),
        ("t.jsonl", b'{"a": "x"}\n{"a": ["x"]}\n', r"line 2: the column 'a' cannot hold \['x'\]"),
        ("t.jsonl", b'{"a": 1}\n{"a": 1e400}\n{"a": 99999999999999999999}\n', "line 3: the column 'a' cannot hold 999"),
        ("t.jsonl", b'{"a": "\\ud800"}\n', r"line 1: the column 'a' cannot hold '\\ud800'"),
        ("t.parquet", b"PAR1 this is none", "not a parquet file"),
    ],
)
def test_a_damaged_file_is_named_with_the_line(tmp_path, name, content, wrong):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} cannot be read as .*{wrong}"):
        read(tmp_path / name)


def test_a_key_that_comes_late_in_json_lines_is_a_column_from_there_on(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, [{"a": 1}, {"a": 2}, {"a": 3, "b": 4}, {"a": 5}])))
    late = [{"a": 3, "b": 4}, {"a": 5, "b": None}]
    assert read(tmp_path / "t.jsonl", 2) == [{"a": 1}, {"a": 2}, *late]
    assert read(tmp_path / "t.jsonl") == [{"a": 1, "b": None}, {"a": 2, "b": None}, *late]


@pytest.mark.parametrize(
    "name, header, says", [("t.csv", "a;b", "has semicolons in"), ("t.csv", "a;b,c", ""), ("t.jsonl", "a;b", "")]
)
def test_another_separator_is_told_of_where_the_header_has_not_its_own(tmp_path, name, header, says):
    (tmp_path / name).write_text(f"{header}\n1;2\n")
    told = other_separator(tmp_path / name)
    assert says in told and bool(told) == bool(says)
