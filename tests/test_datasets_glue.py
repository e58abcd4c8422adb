"""GLUE's files as they were released, with what goes wrong in them, and its submission files."""

import gzip
import lzma

import numpy as np
import pandas as pd
import pytest

from kbert.datasets import read_glue, write_glue_submission
from kbert.errors import DatasetNotFoundError, DatasetWarning

# For each task: the columns of train.tsv, a row of it, and what it is read as.
LAYOUTS = {
    "cola": ("source label original_mark sentence", ["gj04", "0", "*", "It run."], ["It run."], "0"),
    "sst2": ("sentence label", ["a joy ", "1"], ["a joy "], "1"),
    "mrpc": ("Quality,#1 ID,#2 ID,#1 String,#2 String", ["1", "7", "8", "One.", "Two."], ["One.", "Two."], "1"),
    "stsb": (
        "index genre filename year old_index source1 source2 sentence1 sentence2 score",
        ["0", "g", "f", "2012", "01", "none", "none", "One.", "Two.", "3.250"],
        ["One.", "Two."],
        3.25,
    ),
    "qqp": (
        "id qid1 qid2 question1 question2 is_duplicate",
        ["9", "1", "2", "Who?", "Why?", "0"],
        ["Who?", "Why?"],
        "0",
    ),
    "mnli": (
        "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
        "sentence1 sentence2 label1 gold_label",
        ["0", "1", "1n", "tel", "( a )", "( b )", "(A)", "(B)", "One.", "Two.", "neutral", "neutral"],
        ["One.", "Two."],
        "neutral",
    ),
    "qnli": ("index question sentence label", ["0", "Who?", "He.", "entailment"], ["Who?", "He."], "entailment"),
    "rte": ("index sentence1 sentence2 label", ["0", "A.", "B.", "not_entailment"], ["A.", "B."], "not_entailment"),
    "wnli": ("index sentence1 sentence2 label", ["0", "A.", "B.", "1"], ["A.", "B."], "1"),
}


def _columns(task):
    header = LAYOUTS[task][0]
    return header.split("," if "," in header else " ")


def _tsv(*rows, end="\n"):
    return "".join("\t".join(row) + end for row in rows)


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("task", LAYOUTS)
def test_each_task_has_the_same_columns_whatever_its_file_calls_them(tmp_path, task):
    _, row, texts, label = LAYOUTS[task]
    _write(tmp_path / task / "train.tsv", _tsv(_columns(task), row))
    frame = read_glue(task, "train", tmp_path)
    names = ["text"] if len(texts) == 1 else ["text_a", "text_b"]
    index = [int(row[0])] if _columns(task)[0] in ("index", "id") else []
    assert list(frame.columns) == [*names, "label", *(["index"] if index else [])]
    assert frame.iloc[0].tolist() == [*texts, label, *index]


@pytest.mark.parametrize(
    ("task", "folder"),
    [
        *(("sst2", folder) for folder in ("SST-2", "sst2", "SST", "glue_data/SST-2", "GLUE/sst-2")),
        *(("stsb", folder) for folder in ("STS-B", "STS")),
        *(("qnli", folder) for folder in ("QNLI", "QNLIv2")),
    ],
)
def test_the_folder_may_be_spelled_as_in_the_release(tmp_path, task, folder):
    _write(tmp_path / folder / "dev.tsv", _tsv(_columns(task), LAYOUTS[task][1]))
    assert len(read_glue(task, "dev", tmp_path)) == len(read_glue(task, "dev", tmp_path / folder)) == 1


def test_the_folder_is_by_default_that_of_the_environment(tmp_path, monkeypatch):
    _write(tmp_path / "sst2" / "dev.tsv", _tsv(["sentence", "label"], ["fine", "1"]))
    monkeypatch.setenv("KBERT_DATA", str(tmp_path))
    assert len(read_glue("sst2", "dev")) == 1
    monkeypatch.delenv("KBERT_DATA")
    with pytest.raises(DatasetNotFoundError, match="set the environment variable KBERT_DATA"):
        read_glue("sst2", "dev")


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_packing_line_ends_byte_order_mark_and_blank_lines_make_no_difference(tmp_path, ending, mark, end):
    text = mark + _tsv(["sentence", "label"], ["good", "1"], [" "], [""], ["bad", "0"], [""], end=end)
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[ending]
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / f"train.tsv{ending}").write_bytes(pack(text.encode()))
    frame = read_glue("sst2", "train", tmp_path)
    assert frame.to_dict("list") == {"text": ["good", "bad"], "label": ["1", "0"]}


def test_quotes_and_odd_separators_within_a_text_are_ordinary_characters(tmp_path):
    texts = [
        'He said "no',
        '"',
        'a "b" c',
        "one\x85two",
        "one\u2028two\u2029three",
        "a\x0bb\x0cc\x1cd",
        "a\rb",
        "NA",
        "null",
    ]
    _write(tmp_path / "sst2" / "train.tsv", _tsv(["sentence", "label"], *([text, "1"] for text in texts)))
    assert read_glue("sst2", "train", tmp_path).text.tolist() == texts


def test_cola_is_read_with_its_header_and_as_released_without(tmp_path):
    row = LAYOUTS["cola"][1]
    _write(tmp_path / "with" / "cola" / "train.tsv", _tsv(_columns("cola"), row))
    _write(tmp_path / "without" / "CoLA" / "train.tsv", _tsv(row))
    first, second = (read_glue("cola", "train", tmp_path / name) for name in ("with", "without"))
    pd.testing.assert_frame_equal(first, second)
    assert len(first) == 1
    _write(tmp_path / "word" / "CoLA" / "train.tsv", _tsv([*row[:3], "sentence"], row))
    assert read_glue("cola", "train", tmp_path / "word").text.tolist() == ["sentence", row[3]]


def test_mnli_has_matched_and_mismatched_parts(tmp_path):
    header = "index promptID pairID genre sentence1 sentence2 label1 label2 label3 label4 label5 gold_label".split()
    for part, label in (("dev_matched", "neutral"), ("dev_mismatched", "contradiction")):
        row = ["0", "1", "1n", "tel", "One.", "Two.", *["entailment"] * 5, label]
        _write(tmp_path / "MNLI" / f"{part}.tsv", _tsv(header, row))
    assert read_glue("mnli", "dev", tmp_path).label.tolist() == ["neutral"]
    assert read_glue("mnli", "dev_matched", tmp_path).label.tolist() == ["neutral"]
    assert read_glue("mnli", "dev_mismatched", tmp_path).label.tolist() == ["contradiction"]


def test_the_diagnostic_set_is_found_beside_mnli_or_in_its_own_folder(tmp_path):
    for path in ("a/MNLI/diagnostic.tsv", "b/diagnostic/diagnostic.tsv", "c/AX/AX.tsv", "d/ax/test.tsv"):
        _write(tmp_path / path, _tsv(["index", "sentence1", "sentence2"], ["0", "One.", "Two."]))
        frame = read_glue("ax", "test", tmp_path / path[0])
        assert frame.to_dict("list") == {"text_a": ["One."], "text_b": ["Two."], "index": [0]}


def test_a_file_without_rows_has_its_columns(tmp_path):
    _write(tmp_path / "rte" / "train.tsv", _tsv(_columns("rte")))
    frame = read_glue("rte", "train", tmp_path)
    assert len(frame) == 0 and list(frame.columns) == ["text_a", "text_b", "label", "index"]


def test_an_index_that_is_no_whole_number_stays_as_it_is(tmp_path):
    row = LAYOUTS["rte"][1]
    _write(tmp_path / "rte" / "train.tsv", _tsv(_columns("rte"), row, ["n1", *row[1:]]))
    assert read_glue("rte", "train", tmp_path)["index"].tolist() == ["0", "n1"]


# --- Parts without labels


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("sst2", [["index", "sentence"], ["0", "fine"]]),
        ("qqp", [["id", "question1", "question2"], ["0", "Who?", "Why?"]]),
        ("mrpc", [["index", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["0", "1", "2", "One.", "Two."]]),
        ("rte", [["index", "sentence1", "sentence2", "label"], ["0", "A.", "B.", "-1"]]),
        ("rte", [["index", "sentence1", "sentence2", "label"], ["0", "A.", "B.", ""]]),
    ],
)
def test_a_part_without_labels_has_no_label_column(tmp_path, task, rows):
    _write(tmp_path / task / "test.tsv", _tsv(*rows))
    frame = read_glue(task, "test", tmp_path)
    assert "label" not in frame and frame["index"].tolist() == [0]


# --- MRPC as Microsoft released it


@pytest.fixture
def microsoft(tmp_path):
    header = _columns("mrpc")
    train = [["1", "1", "2", 'One "1', "Two."], ["0", "3", "4", "Three.", "Four."], ["1", "2", "1", "Two.", "One."]]
    _write(tmp_path / "MRPC" / "msr_paraphrase_train.txt", "\ufeff" + _tsv(header, *train, end="\r\n"))
    test = _tsv(header, ["0", "5", "6", "Five.", "Six."], end="\r\n")
    _write(tmp_path / "MRPC" / "msr_paraphrase_test.txt", "\ufeff" + test)
    return tmp_path


def test_mrpc_without_its_ids_is_named(microsoft):
    for path in (microsoft / "MRPC").glob("msr_paraphrase_train.txt"):
        _write(path, _tsv(["Quality", "#1 String", "#2 String"], ["1", "One.", "Two."]))
    _write(microsoft / "MRPC" / "dev_ids.tsv", "1\t2\n")
    with pytest.raises(ValueError, match="msr_paraphrase_train.txt lacks the columns '#1 ID' and '#2 ID'"):
        read_glue("mrpc", "train", microsoft)


@pytest.mark.parametrize("name", ["dev_ids.tsv", "mrpc_dev_ids.tsv"])
def test_mrpc_is_split_by_the_ids_of_its_dev_part(microsoft, name):
    _write(microsoft / "MRPC" / name, _tsv(["3", "4"]))
    assert read_glue("mrpc", "train", microsoft).text_a.tolist() == ['One "1', "Two."]
    assert read_glue("mrpc", "dev", microsoft).to_dict("list") == {
        "text_a": ["Three."],
        "text_b": ["Four."],
        "label": ["0"],
    }
    assert read_glue("mrpc", "test", microsoft).label.tolist() == ["0"]


def test_mrpc_without_the_ids_of_its_dev_part_is_an_error_that_says_where_they_are(microsoft):
    with pytest.raises(DatasetNotFoundError, match=r"not dev_ids.tsv beside it.*mrpc_dev_ids.tsv"):
        read_glue("mrpc", "train", microsoft)


# --- Damage


def test_a_stray_tab_is_an_error_that_names_file_and_line(tmp_path):
    path = _write(tmp_path / "sst2" / "train.tsv", _tsv(["sentence", "label"], [""], ["a", "1"], ["b", "c", "0"]))
    with pytest.raises(ValueError, match="3 columns, where the header has 2") as caught:
        read_glue("sst2", "train", tmp_path)
    assert str(caught.value).startswith(f"{path}, line 4: ")


def test_the_broken_rows_of_qqp_are_left_out_and_counted(tmp_path):
    row = LAYOUTS["qqp"][1]
    _write(tmp_path / "QQP" / "train.tsv", _tsv(_columns("qqp"), row, ["10", "1", "2", "Who"], ["is it?", "0"], row))
    with pytest.warns(
        DatasetWarning, match=r"2 of 4 rows do not have 6 columns and are left out \(lines 3, 4\)"
    ) as caught:
        frame = read_glue("qqp", "train", tmp_path)
    assert len(frame) == 2 and caught[0].filename == __file__


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        ("sst2", "positive", "line 3: label 'positive' is none of 0, 1"),
        ("sst2", "", "line 3: label '' is none of 0, 1"),
        ("rte", "1", "line 3: label '1' is none of entailment, not_entailment"),
        ("stsb", "high", "line 3: score 'high' is no number"),
        ("stsb", "nan", "line 3: score 'nan' is no number"),
        ("stsb", "-1", "line 3: score '-1' is not from 0 to 5"),
        ("stsb", "73", "line 3: score '73' is not from 0 to 5"),
    ],
)
def test_a_label_of_another_kind_is_an_error_that_names_its_line(tmp_path, task, label, message):
    row = LAYOUTS[task][1]
    _write(tmp_path / task / "train.tsv", _tsv(_columns(task), row, [*row[:-1], label]))
    with pytest.raises(ValueError, match=message):
        read_glue(task, "train", tmp_path)


def test_the_file_of_another_task_is_recognised(tmp_path):
    _write(tmp_path / "rte" / "train.tsv", _tsv(["sentence", "label"], ["a", "1"]))
    with pytest.raises(ValueError, match="has no column 'sentence1'"):
        read_glue("rte", "train", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.tsv", b"", "is empty"),
        ("train.tsv", b"sentence\tlabel\rgood\t1\r", "has line ends of old Macs"),
        ("train.tsv", "sentence\tlabel\ngut\t1\nsch\xf6n\t1\n".encode("latin-1"), "line 3: is not UTF-8"),
        ("train.tsv.gz", gzip.compress(b"sentence\tlabel\ngood\t1\n" * 100, mtime=0)[:-20], "is no whole .gz file"),
        ("train.tsv.gz", b"sentence\tlabel\ngood\t1\n", "is no whole .gz file"),
        ("train.tsv.xz", lzma.compress(b"sentence\tlabel\ngood\t1\n")[:-20], "is no whole .xz file"),
        ("train.tsv.xz", b"sentence\tlabel\ngood\t1\n", "is no whole .xz file"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, name, content, message):
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_glue("sst2", "train", tmp_path)
    assert str(tmp_path / "sst2" / name) in str(caught.value)


def test_a_file_that_says_it_is_a_part_is_read_with_a_warning_if_the_whole_is_missing(tmp_path):
    path = _write(tmp_path / "qqp" / "train_1_partial.tsv", _tsv(_columns("qqp"), LAYOUTS["qqp"][1]))
    with pytest.warns(DatasetWarning, match="only some of the rows"):
        assert len(read_glue("qqp", "train", tmp_path)) == 1
    _write(path.with_name("train.tsv"), _tsv(_columns("qqp"), *[LAYOUTS["qqp"][1]] * 2))
    assert len(read_glue("qqp", "train", tmp_path)) == 2


@pytest.mark.parametrize(
    ("task", "part", "message"),
    [
        ("snli", "train", "The tasks are cola, sst2"),
        ("cola", "validation", "Its parts are train, dev, test"),
        ("mnli", "dev_matches", "dev_matched, dev_mismatched"),
        ("ax", "train", "Its parts are test"),
    ],
)
def test_unknown_tasks_and_parts_are_errors_that_list_the_known(tmp_path, task, part, message):
    with pytest.raises(ValueError, match=message):
        read_glue(task, part, tmp_path)


def test_a_missing_file_is_an_error_that_lists_where_it_was_looked_for(tmp_path):
    with pytest.raises(DatasetNotFoundError, match="has no folder named sst2 or sst"):
        read_glue("sst2", "dev", tmp_path)
    (tmp_path / "SST-2").mkdir()
    with pytest.raises(DatasetNotFoundError, match=r"looked for dev\.tsv \(also \.gz, \.bz2 or \.xz\) in .*SST-2"):
        read_glue("sst2", "dev", tmp_path)
    with pytest.raises(DatasetNotFoundError, match="is no folder"):
        read_glue("sst2", "dev", tmp_path / "nowhere")


# --- Submissions


@pytest.mark.parametrize(
    ("task", "part", "predictions", "name", "lines"),
    [
        ("cola", "test", ["1", "0"], "CoLA.tsv", ["0\t1", "1\t0"]),
        ("sst2", "test", np.array([1, 0]), "SST-2.tsv", ["0\t1", "1\t0"]),
        ("mrpc", "test", pd.Series(["1", "0"], index=[5, 3]), "MRPC.tsv", ["0\t1", "1\t0"]),
        ("stsb", "test", [3.14159, -0.2, 5.7], "STS-B.tsv", ["0\t3.142", "1\t0.000", "2\t5.000"]),
        ("stsb", "test", np.array([[1.0], [2.5]], dtype="float32"), "STS-B.tsv", ["0\t1.000", "1\t2.500"]),
        ("qqp", "test", [1], "QQP.tsv", ["0\t1"]),
        ("mnli", "test", ["neutral"], "MNLI-m.tsv", ["0\tneutral"]),
        ("mnli", "test_mismatched", ["contradiction"], "MNLI-mm.tsv", ["0\tcontradiction"]),
        ("qnli", "test", ["not_entailment"], "QNLI.tsv", ["0\tnot_entailment"]),
        ("rte", "test", np.array(["entailment"], dtype=object), "RTE.tsv", ["0\tentailment"]),
        ("wnli", "test", ["0"], "WNLI.tsv", ["0\t0"]),
        ("ax", "test", ["neutral"], "AX.tsv", ["0\tneutral"]),
    ],
)
def test_submission_files_have_the_official_names_header_and_labels(tmp_path, task, part, predictions, name, lines):
    with pytest.warns(DatasetWarning, match=f"{name} has {len(lines)} rows; {part}"):
        path = write_glue_submission(task, predictions, tmp_path / "new" / "folder", part)
    assert path == tmp_path / "new" / "folder" / name
    assert path.read_bytes().decode() == "\n".join(["index\tprediction", *lines, ""])


def test_a_submission_of_the_official_length_gives_no_warning(tmp_path, recwarn):
    write_glue_submission("wnli", ["0"] * 146, tmp_path)
    assert not recwarn.list


def test_a_submission_may_go_into_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    path = write_glue_submission("wnli", ["0"] * 146, "~/out")
    assert path == tmp_path / "out" / "WNLI.tsv" and path.is_file()


@pytest.mark.parametrize(
    ("task", "part", "predictions", "message"),
    [
        ("rte", "test", ["entailment", "neutral"], "row 1: 'neutral' is none of the labels entailment, not_entailment"),
        ("cola", "test", [0.0], "row 0: '0.0' is none of the labels 0, 1"),
        ("stsb", "test", [1.0, float("nan")], "row 1: .*nan.* is no number"),
        ("cola", "test", [["0", "1"]], "give one prediction for each row"),
        ("cola", "dev", ["0"], "GLUE takes predictions for test of cola only"),
        ("mnli", "dev", ["neutral"], "for test_matched and test_mismatched"),
    ],
)
def test_predictions_that_the_site_would_refuse_are_an_error_and_write_nothing(
    tmp_path, task, part, predictions, message
):
    with pytest.raises(ValueError, match=message):
        write_glue_submission(task, predictions, tmp_path / "out", part)
    assert not (tmp_path / "out").exists()
