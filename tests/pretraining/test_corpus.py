"""Corpora: the same documents from every source, in any number of units, in little memory."""

import bz2
import csv
import gzip
import json
import lzma
import pickle
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbert.errors import KbertWarning, ParameterWarning
from kbert.pretraining import Corpus
from kbert.pretraining.shards import write_shards
from kbert.text import WordPieceTokenizer
from kbert.text.sentences import sentence_splitter

DOCUMENTS = [
    ["It rained, e.g. on Jan. 3.", "We stayed.\x00\x0cIn.", "Ü\u2028b\x85c \x1c d"],
    ["Second document.", "«Да», 漢字。", '"Quoted", he said,', "a\rb"],
    ["Only one."],
]
PACKERS = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
ENDINGS = [".txt", ".jsonl", ".csv", ".parquet"]


def _write(path, documents, as_lists=False, row_group=2):
    """A file of any format, one line a segment."""
    path = Path(path)
    packing = path.suffix if path.suffix in PACKERS else ""
    ending = Path(path.stem).suffix if packing else path.suffix
    values = documents if as_lists else ["\n".join(document) for document in documents]
    with PACKERS[packing](path, "wb") as file:
        if ending == ".txt":
            file.write("\n\n".join("\n".join(document) for document in documents).encode())
        elif ending == ".jsonl":
            for i, value in enumerate(values):
                file.write(json.dumps({"id": i, "text": value}, ensure_ascii=bool(i % 2)).encode() + b"\n")
        elif ending == ".csv":
            with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as text:
                csv.writer(text).writerows([["id", "text"], *([str(i), value] for i, value in enumerate(values))])
                text.seek(0)
                file.write(text.read().encode())
        else:
            pq.write_table(pa.table({"id": range(len(values)), "text": values}), file, row_group_size=row_group)
    return path


def _joined(units):
    return [document for unit in units for document in pickle.loads(pickle.dumps(unit)).documents()]


# === Sources ===


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_documents(tmp_path, ending, packing):
    corpus = Corpus(_write(tmp_path / f"a{ending}{packing}", DOCUMENTS), split="lines")
    assert list(corpus) == DOCUMENTS
    assert list(corpus) == DOCUMENTS  # a second time
    assert _joined(corpus.units()) == DOCUMENTS


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_lists_in_files_are_segments(tmp_path, ending):
    documents = [["One. Two.", "a\nb"], ["Three."]]
    assert list(Corpus(_write(tmp_path / f"a{ending}", documents, as_lists=True))) == documents


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "binary", "dictionary", "string_view", "list", "large_list of bytes"]
)
def test_types_of_parquet_columns(tmp_path, kind):
    types = {"dictionary": pa.dictionary(pa.int32(), pa.string()), "string_view": pa.string_view()}
    if "list" in kind:
        column = pa.array([["é. b", None], None, ["c"]], pa.list_(pa.string()))
        column = column.cast(pa.large_list(pa.large_binary())) if "bytes" in kind else column
    else:
        try:
            column = pa.array(["é. b", None, "c"]).cast(types.get(kind) or getattr(pa, kind)())
        except pa.ArrowNotImplementedError:
            assert kind == "string_view"
            pytest.skip("this pyarrow cannot make such a column")
    pq.write_table(pa.table({"body": column}), tmp_path / "a.parquet")
    assert list(Corpus(tmp_path / "a.parquet", column="body", split="lines")) == [["é. b"], ["c"]]


def test_sources_in_memory():
    texts = ["A boy. A girl.\n\nA dog.", None, "", " \n ", np.str_("G.")]
    expected = [["A boy.", "A girl.", "A dog."], ["G."]]
    frame = pd.DataFrame({"text": texts, "other": 1})
    sources = [texts, tuple(texts), np.array(texts, object), pd.Series(texts), frame["text"], frame]
    sources += [frame.rename(columns={"text": "body"}), lambda: iter(texts), [{"text": text} for text in texts]]
    for source in sources:
        column = "body" if isinstance(source, pd.DataFrame) and "body" in source else "text"
        corpus = Corpus(source, column=column)
        assert list(corpus) == list(corpus) == expected
        for n_bytes in (1, 9, 10**6):
            assert [document for unit in corpus.units(n_bytes) for document in unit.documents()] == expected
    assert len(Corpus(pd.Series(texts)).units(1)) == 3
    assert list(Corpus([["Not. Split.", " "], ("x",), np.array(["y", "z"])])) == [["Not. Split."], ["x"], ["y", "z"]]


def test_folders_patterns_and_lists_of_files(tmp_path):
    for i, name in enumerate(["b.txt", "a.jsonl.gz", "deep/c.TXT", ".hidden.txt", "d.parquet"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        _write(tmp_path / name.lower(), [[f"Text {i}."]]).rename(tmp_path / name)
    (tmp_path / "LICENSE").write_text("not text of the corpus")
    assert list(Corpus(tmp_path)) == [["Text 1."], ["Text 0."], ["Text 4."], ["Text 2."]]
    assert list(Corpus(tmp_path / "*.txt")) == [["Text 0."]]
    assert list(Corpus(tmp_path / "**" / "*.[tT]*")) == [["Text 0."], ["Text 2."]]
    assert list(Corpus([tmp_path / "d.parquet", tmp_path / "b.txt"])) == [["Text 4."], ["Text 0."]]


def test_what_kbert_writes_is_no_text(tmp_path):
    """A vocabulary, shards or a model below the folder of text are no part of it, when it is read again."""
    _write(tmp_path / "a.txt", [["Text."]])
    tokenizer = WordPieceTokenizer.train(["Text."] * 9)
    before = Corpus(tmp_path).fingerprint()
    tokenizer.save(tmp_path / "vocab")
    shards = write_shards(Corpus(tmp_path, split="lines"), tokenizer, tmp_path / "shards")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "history.csv").write_text("step,loss\n1,2.0\n")
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "run" / "checkpoint-5").mkdir(parents=True)
    (tmp_path / "run" / "history.csv").write_text("step,loss\n1,2.0\n")
    assert list(Corpus(tmp_path)) == [["Text."]] and Corpus(tmp_path).fingerprint() == before
    assert write_shards(Corpus(tmp_path, split="lines"), tokenizer, tmp_path / "shards").manifest == shards.manifest
    (tmp_path / "vocab.txt").write_text("a text of this name")
    assert ["a text of this name"] in list(Corpus(tmp_path))


def test_a_str_is_a_text_even_if_there_is_such_a_folder(tmp_path):
    with pytest.warns(ParameterWarning, match=r"or of folders, .*pathlib\.Path"):
        assert len(list(Corpus([str(tmp_path)]))) == 1


def test_a_str_is_a_text_even_if_there_is_such_a_file(tmp_path):
    path = _write(tmp_path / "a.txt", DOCUMENTS)
    with pytest.warns(ParameterWarning, match=r"names of files, .*pathlib\.Path"):
        assert list(Corpus([str(path)])) == [[str(path)]]
    with pytest.raises(ValueError, match=r"single str.*in a list.*pathlib\.Path"):
        Corpus(str(path))


# === Lines, sentences, documents ===


def test_only_line_feeds_end_lines_and_only_blank_lines_end_documents(tmp_path):
    raw = "\ufeffa\x0cb\u2028c\x85d\r\n\x00\n\u3000\ne\rf\r\n \t\r\n\n\ng\x0b\n".encode()
    (tmp_path / "a.txt").write_bytes(raw)
    assert list(Corpus(tmp_path / "a.txt", split="lines")) == [["a\x0cb\u2028c\x85d", "\x00", "e\rf"], ["g"]]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.parquet"])
def test_long_documents_are_cut(tmp_path, name):
    path = _write(tmp_path / name, [[str(i) for i in range(10)], ["x"], ["1", "2", "3", "4"]])
    corpus = Corpus(path, split="lines", max_segments=4)
    assert [len(document) for document in corpus] == [4, 4, 2, 1, 4]
    assert _joined(corpus.units(1)) == list(corpus)


def test_sentences_of_hard_cases():
    cases = [
        ("Dr. Smith left at 5 p.m. on Jan. 3.", "He slept."),
        ("J. R. R. Tolkien wrote it.", "It cost $3.50 in 1999.", "Prices rose 2.5%."),
        ('"Stop!" he cried.', '"Who goes there?"', "No one answered."),
        ("Wait... what?", "He lives in the U.S.", "It is big."),
        ("the film opened.", "it was a flop."),
        ("See Fig. 3 in Jones et al. (1999), e.g. there.", "Email a.b@c.org."),
    ]
    for sentences in cases:
        assert list(Corpus([" ".join(sentences)])) == [list(sentences)]
    assert list(Corpus(["我喜欢猫。你呢？他不喜欢！"], language="zh")) == [["我喜欢猫。", "你呢？", "他不喜欢！"]]
    assert list(Corpus(["J.\u3000B.\u2028C. Ende.\xa0Neu."], language="de"))


@settings(max_examples=150, deadline=None)
@given(
    st.text(st.sampled_from("aBé.。!?\"'“” ()\xa0\u2028\u3000\r\x00\x851漢"), max_size=60),
    st.sampled_from(["en", "hi", "?"]),
)
def test_sentences_are_the_whole_line(line, language):
    assert "".join(sentence_splitter(language)(line)) == line


def test_long_lines():
    split = sentence_splitter("en")
    sentences = [f"This is sentence {i}. " for i in range(2000)]
    assert list(split("".join(sentences))) == sentences
    for line in ("x" * 9000, "word " * 3000, 'He said: "' + "And so on. " * 3000, "“\u3000" * 5000):
        pieces = list(split(line))
        assert "".join(pieces) == line and max(map(len, pieces)) <= 4000


# === Units ===

# Carriage returns and others that are no line ends, but no line feed, no mark of byte order and no surrogates.
SEGMENTS = (
    st.text(st.sampled_from('ab,." \t\r\x00\x0c\x85\u2028\u3000é漢😀\\[]{}'), max_size=12).map(str.strip).filter(bool)
)


@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(st.lists(SEGMENTS, min_size=1, max_size=5), min_size=1, max_size=8),
    ending=st.sampled_from(ENDINGS),
    packing=st.sampled_from(["", "", "", ".gz"]),
    cuts=st.lists(st.integers(0, 8), max_size=2),
    n_bytes=st.integers(1, 120),
    blank=st.sampled_from(["\n", "\r\n", " \t\n", "\n\n\n"]),
    bom=st.booleans(),
)
def test_what_was_written_is_read_in_any_format_and_any_units(documents, ending, packing, cuts, n_bytes, blank, bom):
    with tempfile.TemporaryDirectory() as folder:
        bounds = [0, *sorted(min(cut, len(documents)) for cut in cuts), len(documents)]
        paths = []
        for i, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False)):
            path = _write(Path(folder, f"{i}{ending}{packing}"), documents[start:stop])
            if ending == ".txt":
                text = f"\n{blank}".join("\n".join(document) for document in documents[start:stop])
                with PACKERS[packing](path, "wb") as file:
                    file.write(text.encode("utf-8-sig" if bom else "utf-8"))
            paths.append(path)
        corpus = Corpus(Path(folder), split="lines")
        assert list(corpus) == documents
        units = corpus.units(n_bytes)
        assert _joined(units) == documents
        assert units == Corpus(paths, split="lines").units(n_bytes)
        assert packing == "" or len(units) <= len(paths)


def test_small_files_go_together(tmp_path):
    for i in range(20):
        (tmp_path / f"{i:02d}.txt").write_text(f"Document {i} is one line.\n")
    (tmp_path / "10.txt").write_text("\n\n".join(f"Document 10, part {i:02d}." for i in range(20)))
    corpus = Corpus(tmp_path, split="lines")
    assert len(corpus.units()) == 1
    units = corpus.units(100)
    counts = [len(list(unit.documents())) for unit in units]
    assert _joined(units) == list(corpus) and sum(counts) == 39 and max(counts) < 8 and counts[0] == 5


def test_sizes_of_units(tmp_path):
    documents = [["word " * 20, f"number {i}"] for i in range(400)]
    for name, most in (("a.txt", 10), ("a.jsonl", 11), ("a.parquet", 25)):
        corpus = Corpus(_write(tmp_path / name, documents), split="lines")
        assert len(corpus.units()) == 1
        assert 5 <= len(corpus.units(5_000)) <= most, name
        sizes = [sum(map(len, chain(*unit.documents()))) for unit in corpus.units(5_000)]
        assert max(sizes) < 6_000, name
    assert len(Corpus(documents).units(5_000)) == 9
    assert len(Corpus(lambda: documents).units(5_000)) == 1
    with pytest.raises(ValueError, match="n_bytes must be at least 1"):
        corpus.units(0)


def test_units_are_read_by_other_processes_in_other_folders(tmp_path, monkeypatch):
    _write(tmp_path / "a.txt", DOCUMENTS)
    monkeypatch.chdir(tmp_path)
    units = Corpus(Path("a.txt"), split="lines").units(10)
    assert len(units) == 3
    code = (
        "import pickle, sys; units = pickle.load(sys.stdin.buffer)\n"
        "sys.stdout.buffer.write(pickle.dumps([list(unit.documents()) for unit in units]))\n"
        "assert not {'pandas', 'pyarrow', 'sentencex', 'keras'} & set(sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(units), capture_output=True, check=True, cwd="/"
    )
    assert list(chain(*pickle.loads(run.stdout))) == DOCUMENTS


def _peak(corpus):
    tracemalloc.start()
    try:
        for _ in corpus:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl", "a.csv", "a.parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, name):
    peaks = []
    for n in (400, 3200):
        path = _write(tmp_path / name, [["Some words for a line."] * 20] * n, row_group=100)  # 0.2 and 1.5 MB
        list(Corpus(path, split="lines").units())  # what is imported or cached once
        peaks.append(_peak(Corpus(path, split="lines")))
    assert peaks[1] < peaks[0] + 400_000  # buffers fill


@pytest.mark.parametrize(("end", "n_lines", "max_segments"), [("\n", 40_000, 1000), (" ", 800_000, 1)])
def test_memory_without_blank_lines_or_line_breaks(tmp_path, end, n_lines, max_segments):
    line = f"Some words for a line.{end}"
    (tmp_path / "a.txt").write_text(line * n_lines)  # 0.9 and 18 MB
    corpus = Corpus(tmp_path / "a.txt", split="lines", max_segments=max_segments)
    assert _peak(corpus) < len(line) * n_lines / 2
    assert sum(len(segment.split()) for segment in chain(*corpus)) == 5 * n_lines
    assert len(corpus.units(10**6)) == 1


def test_a_very_long_line_is_cut_between_characters(tmp_path):
    (tmp_path / "a.txt").write_bytes("é漢😀".encode() * 300_000 + b"\n\nnext")
    corpus = Corpus(tmp_path / "a.txt", split="lines")
    long, short = corpus
    assert "".join(long) == "é漢😀" * 300_000 and len(long) == 3 and short == ["next"]
    assert [len(list(unit.documents())) for unit in corpus.units(10)] == [1, 1]
    # The line feed behind exactly one piece is not a blank line.
    (tmp_path / "a.txt").write_bytes(b"x" * (2**20 - 1) + b" \nsame document")
    assert [len(document) for document in Corpus(tmp_path / "a.txt", split="lines")] == [2]


# === Damaged text ===


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\nfine \xef\xbf\xbd \xc3\xa9\nbad \xff\xfe\n\nlast \xe9")
    with pytest.raises(
        ValueError, match=r"a\.txt, line 4, byte 22: is not UTF-8 \(invalid start byte, 0xff\).*errors="
    ):
        list(Corpus(path))
    with pytest.raises(ValueError, match=r"line 6, byte 31"):
        list(Corpus(path).units(1)[-1].documents())
    with pytest.warns(KbertWarning, match=r"line 4, byte 22: .* 3 times in all") as caught:
        read = list(Corpus(path, errors="replace", split="lines"))
    assert len(caught) == 1
    assert read == [["good"], ["fine \ufffd é", "bad \ufffd\ufffd"], ["last \ufffd"]]
    for ending, packing in ((".jsonl", ""), (".csv", ".xz"), (".parquet", "")):
        bad = _write(tmp_path / f"b{ending}{packing}", [["good"], ["qqq"]])
        with PACKERS[packing](bad, "rb") as file:
            raw = file.read().replace(b"qqq", b"q\xffq")
        if ending == ".parquet":
            values = pa.array([b"good", b"q\xffq"]).view(pa.string())
            pq.write_table(pa.table({"text": values}), bad, use_dictionary=False)
        else:
            with PACKERS[packing](bad, "wb") as file:
                file.write(raw)
        with pytest.raises(ValueError, match=rf"b\{ending}.*(line 2|line 3|row 1 of row group 0), byte .*not UTF-8"):
            list(Corpus(bad))
        with pytest.warns(KbertWarning, match="1 times"):
            assert list(Corpus(bad, errors="replace")) == [["good"], ["q\ufffdq"]]


def test_utf16_and_other_files_that_are_not_utf8(tmp_path):
    (tmp_path / "a.txt").write_text("hello", encoding="utf-16")
    with pytest.raises(ValueError, match=r"line 1, byte 0: is not UTF-8"):
        list(Corpus(tmp_path / "a.txt"))


def test_a_line_that_is_nested_too_deeply_is_told_of_with_its_place(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + "[" * 100_000 + "\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2, byte 17: is nested too deeply"):
        list(Corpus(path))


def test_lone_surrogates(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine \\ud83d\\ude00"}\n{"text": "bad \\ud83d"}')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2, byte 30 holds a lone surrogate, '\\ud83d' at character 4"):
        list(Corpus(path))
    with pytest.raises(ValueError, match="source: row 1 holds a lone surrogate"):
        list(Corpus(["a", "\udc80"]))
    with pytest.warns(KbertWarning, match="source: row 0: .* 1 times"):
        assert list(Corpus([["\udc80 b"]], errors="replace")) == [["\ufffd b"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(Corpus(["é"], errors="replace")) == [["é"]]


@pytest.mark.parametrize("packing", [".gz", ".xz", ".bz2"])
def test_files_that_are_not_whole(tmp_path, packing):
    path = _write(tmp_path / f"a.txt{packing}", [["word"] * 1000])
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(ValueError, match=rf"a\.txt\{packing} is no whole \{packing} file"):
        list(Corpus(path))
    path.write_bytes(b"plain text")
    with pytest.raises(ValueError, match="or rename it if it is not packed"):
        list(Corpus(path))


def test_damaged_tables(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "b"')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 3, byte 15: is not JSON"):
        list(Corpus(path))
    path.write_text('["a"]')
    with pytest.raises(ValueError, match=r'line 1, byte 0: is not an object, such as \{"text": \.\.\.\}'):
        list(Corpus(path))
    path.write_text('{"text": 3}')
    with pytest.raises(TypeError, match=r"line 1, byte 0 is of type int"):
        list(Corpus(path))
    (tmp_path / "a.csv").write_text('id,text\n1,"a"\n\n2\n')
    with pytest.raises(ValueError, match=r"a\.csv, line 4: has 1 values for 2 columns"):
        list(Corpus(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text("id,text\n1,Hello, dear world\n")
    with pytest.raises(ValueError, match=r"a\.csv, line 2: has 3 values for 2 columns"):
        list(Corpus(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text('id,text\n1,"Hello\n2,World\n')
    with pytest.raises(ValueError, match=r"a\.csv, line 3: unexpected end of data.* quotation mark"):
        list(Corpus(tmp_path / "a.csv"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(ValueError, match=r"a\.parquet is no whole Parquet file"):
        list(Corpus(tmp_path / "a.parquet"))


# === Errors ===


def test_missing_columns_are_named(tmp_path):
    for ending in (".jsonl", ".csv", ".parquet"):
        path = _write(tmp_path / f"a{ending}", DOCUMENTS)
        says = r"has no column 'body'\. .* with Corpus\(\.\.\., column=\.\.\.\) .*: 'id', 'text'\."
        with pytest.raises(ValueError, match=rf"a\{ending}.*: {says}"):
            list(Corpus(path, column="body"))
    (tmp_path / "twice.csv").write_text("text,id,text\na,1,b\n")
    with pytest.raises(ValueError, match=r"twice.csv has 2 columns 'text'"):
        list(Corpus(tmp_path / "twice.csv"))
    with pytest.raises(ValueError, match=r"no columns 'text'.*: 'a', 'b'\."):
        Corpus(pd.DataFrame({"a": ["x"], "b": ["y"]}))
    with pytest.raises(ValueError, match="source: row 0 has no 'text'; it has"):
        list(Corpus([{"body": "x"}]))
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="column 'text' is of type int64, not of texts"):
        list(Corpus(tmp_path / "a.parquet"))


@pytest.mark.parametrize(("header", "named"), [("id;text", "semicolons"), ("id\ttext", "tabs")])
def test_another_separator_than_a_comma_is_named(tmp_path, header, named):
    (tmp_path / "a.csv").write_text(f"{header}\n1,2\n")
    with pytest.raises(ValueError, match=f"has no column 'text'. Its header has {named} in place of commas"):
        list(Corpus(tmp_path / "a.csv"))


def test_files_that_are_not_there_or_not_known(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder .*none\.txt"):
        Corpus(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match=r"no text in the folder .*Known are \.txt, \.jsonl, \.csv, \.parquet"):
        Corpus(tmp_path)
    for name in ("a.doc", "a.gz", "a", "a.txt.zip"):
        (tmp_path / name).write_text("text")
        with pytest.raises(ValueError, match="no known format. Known are"):
            Corpus(tmp_path / name)


@pytest.mark.parametrize("raw", [b"", b"\n \n\r\n"])
def test_empty_corpora(tmp_path, raw):
    (tmp_path / "a.txt").write_bytes(raw)
    corpus = Corpus([tmp_path / "a.txt", tmp_path / "a.txt"])
    with pytest.raises(ValueError, match=r"has no text in .*a\.txt and 1 more"):
        list(corpus)
    assert _joined(corpus.units()) == []
    for source in ([], ["", None], [[]], lambda: []):
        with pytest.raises(ValueError, match="The corpus has no text"):
            list(Corpus(source))


def test_sources_that_cannot_be(tmp_path):
    path = _write(tmp_path / "a.txt", DOCUMENTS)
    with pytest.raises(TypeError, match="generator, which can be read only once. Give a function"):
        Corpus(text for text in ["a"])
    with pytest.raises(TypeError, match="rows have no order"):
        Corpus({"a"})
    with pytest.raises(TypeError, match="row 1 is of type str, and others are paths"):
        Corpus([path, "a"])
    for source in (b"a", {"text": ["a"]}, 3, None):
        with pytest.raises(TypeError, match="Give a pathlib.Path"):
            Corpus(source)
    with pytest.raises(TypeError, match="source, a function, returned 'abc'"):
        list(Corpus(lambda: "abc"))
    with pytest.raises(TypeError, match="row 1 is of type int. A document is a str"):
        list(Corpus(["a", 3]))
    with pytest.raises(TypeError, match="row 0: segment 1 is of type NoneType"):
        list(Corpus([["a", None]]))


@pytest.mark.parametrize(
    "parameters", [{"split": "words"}, {"errors": "ignore"}, {"language": None}, {"max_segments": 0}]
)
def test_parameters_are_checked(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        Corpus(["a"], **parameters)


def test_parquet_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = _write(tmp_path / "a.txt", DOCUMENTS).rename(tmp_path / "a.parquet")
    with pytest.raises(ImportError, match=r"package pyarrow. Install it with: pip install pyarrow\."):
        list(Corpus(path))


# === Fingerprint ===


def test_fingerprint_of_files(tmp_path):
    path = _write(tmp_path / "a.txt", [["word"] * 50_000])
    first = Corpus(path).fingerprint()
    assert first == Corpus(tmp_path).fingerprint() and len(first) == 64
    assert Corpus(path, split="lines").fingerprint() != first
    (tmp_path / "moved").mkdir()
    path = path.rename(tmp_path / "moved" / "a.txt")
    assert Corpus(path).fingerprint() == first
    raw = bytearray(path.read_bytes())
    raw[100_000] ^= 1  # in the middle, the same size
    path.write_bytes(raw)
    assert Corpus(path).fingerprint() != first
    other = _write(tmp_path / "b.txt", DOCUMENTS)
    assert Corpus([path, other]).fingerprint() != Corpus([other, path]).fingerprint()


def test_fingerprint_of_documents():
    first = Corpus(["Ann sat. Bob."]).fingerprint()
    assert first == Corpus(lambda: ["Ann sat. Bob."]).fingerprint() == Corpus([["Ann sat.", "Bob."]]).fingerprint()
    assert len({first, Corpus(["Ann sat. Dan."]).fingerprint(), Corpus(["Ann sat.", "Bob."]).fingerprint()}) == 3


# === Its vocabulary ===


def test_a_vocabulary_is_learned_from_a_corpus(tmp_path):
    texts = ["Low lower lowest. The lowest of all.\n\nSlow and low."] * 5
    paths = [_write(tmp_path / "a.txt.gz", [text.split("\n") for text in texts])]
    trained = [
        WordPieceTokenizer.train(chain.from_iterable(Corpus(source, split=split)), vocab_size=60, n_unused=3)
        for source in (texts, paths)
        for split in ("sentences", "lines")
    ]
    files = []
    for i, tokenizer in enumerate(trained):
        tokenizer.save(tmp_path / str(i))
        files.append([(tmp_path / str(i) / name).read_bytes() for name in ("vocab.txt", "tokenizer.json")])
    assert files.count(files[0]) == len(files) == 4


def test_unused_tokens_are_placed_as_in_googles_vocabularies():
    specials = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = list(WordPieceTokenizer.train(["a b [unused0]"] * 3, vocab_size=40, n_unused=2).vocab)
    assert pieces[:7] == ["[PAD]", "[unused0]", "[unused1]", *specials] and len(pieces) <= 40
    tokenizer = WordPieceTokenizer.train(["a b"] * 3, n_unused=994)
    pieces = list(tokenizer.vocab)
    assert [pieces[i] for i in (0, 1, 99, 104, 998)] == ["[PAD]", *(f"[unused{i}]" for i in (0, 98, 99, 993))]
    assert pieces[100:104] == specials and pieces[999] == "a"
    assert "[unused0]" not in tokenizer.encode("[unused0] a").tokens  # text is data
    with pytest.raises(ValueError, match="n_unused must be at least 0"):
        WordPieceTokenizer.train(["a"], n_unused=-1)
    with pytest.raises(ValueError, match="vocab_size must be at least 17"):
        WordPieceTokenizer.train(["a"], vocab_size=16, n_unused=10)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_is_replaced_is_warned_of_by_the_process_that_called(tmp_path, n_jobs, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_bytes(b"the caf\xe9 is red\n\nthe house\n")
    corpus = Corpus(tmp_path, split="lines", errors="replace")
    tokenizer = WordPieceTokenizer.train(["the house is red"] * 3)
    units = corpus.units(1)
    monkeypatch.setattr(Corpus, "units", lambda self: units)
    assert len(units) > 1
    with pytest.warns(KbertWarning, match=r"a.txt, line 1, .* for the first time, 2 times in all") as told:
        write_shards(corpus, tokenizer, tmp_path / "shards", n_jobs=n_jobs)
    assert len(told) == 1


def test_a_table_of_arrow_has_columns_by_name():
    table = pa.table({"text": ["one", "two"], "n": [1, 2]})
    assert list(Corpus(table, split="lines")) == list(Corpus(["one", "two"], split="lines"))
    with pytest.raises(ValueError, match="no columns 'body'. Choose one of those there .*: 'text', 'n'"):
        Corpus(table, column="body")
    frame = pd.DataFrame({"text": ["one", "two"], "column_names": ["a", "b"]})
    assert list(Corpus(frame, split="lines")) == [["one"], ["two"]]
