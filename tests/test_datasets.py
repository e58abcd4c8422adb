"""SQuAD and multiple choice from their files; data sets by name, and those of the data folder."""

import bz2
import csv
import importlib.machinery
import json
import lzma
import sys
import types
import warnings

import pytest

from kbert import datasets
from kbert.datasets import catalogue, load, read_choices, read_squad
from kbert.errors import DatasetNotFoundError, DatasetWarning


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


# --- SQuAD

CONTEXT = 'Oslo is "the"\x85capital\u2028of Norway.'


def _squad(*questions, context=CONTEXT):
    return {
        "version": "v2.0",
        "data": [{"title": "Oslo", "paragraphs": [{"context": context, "qas": list(questions)}]}],
    }


def _answer(text, start):
    return {"text": text, "answer_start": start}


def _squad_file(tmp_path, content):
    return _write(tmp_path / "squad.json", json.dumps(content, ensure_ascii=False))


def test_one_answer_is_a_text_several_are_a_list_none_is_empty(tmp_path):
    one = {"id": "1", "question": "What is Oslo?", "answers": [_answer("capital", 14)]}
    two = {"id": "2", "question": "Of what?", "answers": [_answer("of Norway", 22), _answer("Norway", 25)]}
    none = {"id": "3", "question": "Since when?", "answers": [], "is_impossible": True}
    none["plausible_answers"] = [_answer("Norway", 25)]
    bare = {"id": "4", "question": "Until when?", "is_impossible": True}
    frame = read_squad(_squad_file(tmp_path, _squad(one, two, none, bare)))
    assert list(frame.columns) == ["id", "title", "question", "context", "answer", "answer_start"]
    assert frame.answer.tolist() == ["capital", ["of Norway", "Norway"], "", ""]
    assert frame.answer_start.tolist() == [14, [22, 25], -1, -1]
    assert frame.id.tolist() == ["1", "2", "3", "4"]
    assert set(frame.title) == {"Oslo"} and set(frame.context) == {CONTEXT}


def test_a_train_file_has_plain_columns(tmp_path):
    rows = [{"id": str(i), "question": "?", "answers": [_answer("Oslo", 0)]} for i in range(3)]
    frame = read_squad(_squad_file(tmp_path, _squad(*rows)))
    assert frame.answer.tolist() == ["Oslo"] * 3 and frame.answer_start.dtype == "int64"


def test_answers_that_are_not_where_they_should_be_are_counted_in_one_warning(tmp_path):
    # The last one is in the context, counted from its end.
    wrong = [
        {"id": f"w{i}", "question": "?", "answers": [_answer("Norway", start)]} for i, start in enumerate((24, -8, -7))
    ]
    right = {"id": "r", "question": "?", "answers": [_answer("Norway", 25)]}
    path = _squad_file(tmp_path, _squad(*wrong, right))
    with pytest.warns(DatasetWarning, match="3 of 4 answers are not in the context.*question 'w0'") as caught:
        frame = read_squad(path)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert frame.answer_start.tolist() == [24, -8, -7, 25]


def test_an_answer_may_start_at_a_whole_number_written_as_a_float(tmp_path):
    frame = read_squad(_squad_file(tmp_path, _squad({"id": "1", "question": "?", "answers": [_answer("Oslo", 0.0)]})))
    assert frame.answer_start.tolist() == [0] and frame.answer_start.dtype == "int64"


def test_a_squad_file_without_answers_has_no_answer_columns(tmp_path):
    frame = read_squad(_squad_file(tmp_path, _squad({"id": "1", "question": "?"})))
    assert list(frame.columns) == ["id", "title", "question", "context"]
    frame = read_squad(_squad_file(tmp_path, _squad()))  # of no questions none lacks its answers
    assert len(frame) == 0 and list(frame.columns) == ["id", "title", "question", "context", "answer", "answer_start"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": [', "line 1, column 11: is no JSON"),
        pytest.param('{"data": ' + "[" * 100_000, "is nested too deeply", id="deep"),
        ('{"data":\n "x" 3}', "line 2, column 6: is no JSON"),
        ("[1]", "an object with a list 'data'"),
        ('{"data": [{"title": "x"}]}', "article 0: .* 'paragraphs' is missing"),
        (json.dumps(_squad({"id": "1"})), "article 0: .* 'question' is missing"),
        (json.dumps(_squad({"id": "1", "question": "?", "answers": [{"text": "Oslo"}]})), "'answer_start' is missing"),
        ('{"data": [3]}', "article 0: is not in SQuAD's layout"),
        (
            '{"data": [{"title": 5, "paragraphs": [{"context": "a", "qas": [{"id": 1, "question": "b"}]}]}]}',
            "'title' is 5",
        ),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 1, "question": null}]}]}]}', "'question' is None"),
        (json.dumps(_squad({"id": "1", "question": "a\ud800"})), "article 0: .*question holds a lone surrogate"),
        (json.dumps(_squad({"id": "\ud800", "question": "a"})), "article 0: .*id holds a lone surrogate"),
        ('{"data": [{"paragraphs": [{"context": ["a"], "qas": [{"id": 1, "question": "b"}]}]}]}', "not a text"),
        (
            '{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": 1, "question": "b", "answers": '
            '[{"text": "a", "answer_start": Infinity}]}]}]}]}',
            "is not in SQuAD's layout",
        ),
        (
            json.dumps(_squad({"id": "q7", "question": "?", "is_impossible": "false", "answers": [_answer("is", 5)]})),
            "article 0: .*question 'q7': is_impossible is 'false'; write true or false",
        ),
        (
            json.dumps(_squad({"id": "q7", "question": "?", "answers": [_answer("the", 13.7)]})),
            "article 0: .*question 'q7': answer_start is 13.7; write the number",
        ),
        (
            json.dumps(_squad({"id": "1", "question": "?", "answers": []}, {"id": "2", "question": "?"})),
            "question '2' has no 'answers', and others have",
        ),
    ],
)
def test_a_file_in_another_layout_is_an_error_that_says_where(tmp_path, text, message):
    path = _write(tmp_path / "squad.json", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_squad(path)
    assert str(path) in str(caught.value)


# --- Multiple choice

SWAG = [
    ["", *"video-id fold-ind startphrase sent1 sent2 gold-source ending0 ending1 ending2 ending3 label".split()],
    ["0", "v", "1", "x", 'She said "hi", and sat.', "She", "gold", "stands.", "a\nb\u2028c", "runs, fast.", "", "2"],
    ["1", "v", "2", "x", "He eats.", "He", "gold", "w", "x", "y", "z", "0"],
]  # fmt: skip


def _csv(rows, end="\r\n"):
    lines = []
    for row in rows:
        lines.append(",".join('"' + field.replace('"', '""') + '"' for field in row))
    return end.join(lines) + end


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_swag_has_its_first_sentence_as_context_and_its_second_as_question(tmp_path, end):
    path = _write(tmp_path / "train.csv", "\ufeff" + _csv([SWAG[0], SWAG[1]], end) + end + _csv(SWAG[2:], end))
    assert read_choices(path).to_dict("list") == {
        "context": ['She said "hi", and sat.', "He eats."],
        "question": ["She", "He"],
        "options": [["stands.", "a\nb\u2028c", "runs, fast.", ""], ["w", "x", "y", "z"]],
        "label": [2, 0],
    }


def test_swag_without_labels_has_no_label_column(tmp_path):
    path = _write(tmp_path / "test.csv", _csv([row[:-1] for row in SWAG]))
    assert list(read_choices(path).columns) == ["context", "question", "options"]
    path = _write(tmp_path / "withheld.csv", _csv([SWAG[0], *([*row[:-1], "-1"] for row in SWAG[1:])]))
    assert list(read_choices(path).columns) == ["context", "question", "options"]


def test_the_endings_are_in_the_order_of_their_numbers(tmp_path):
    numbers = [10, 2, 0, 1, *range(3, 10)]
    header = ["sent1", "sent2", *(f"ending{n}" for n in numbers), "label"]
    path = _write(tmp_path / "train.csv", _csv([header, ["He eats.", "He", *map(str, numbers), "10"]]))
    assert read_choices(path).options.tolist() == [[str(n) for n in range(11)]]


def test_json_lines_may_have_any_number_of_options(tmp_path):
    rows = [
        {"id": "a", "context": "one\x85two\u2028three", "question": "Which?", "options": ["x", "y"], "label": 1},
        {"id": "b", "context": "", "question": "Who?", "options": ["x", "y", "z"], "label": 0},
    ]
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    frame = read_choices(_write(tmp_path / "dev.jsonl", text + "\n\n"))
    assert frame.to_dict("records") == rows


def test_numbers_as_ids_stay_numbers_where_a_row_has_none(tmp_path):
    text = '{"context": "x", "options": ["a"], "id": 7}\n{"context": "y", "options": ["b"]}\n'
    assert read_choices(_write(tmp_path / "dev.jsonl", text)).id.tolist() == [7, None]


@pytest.mark.parametrize("name", ["TRAIN.CSV.BZ2", "train.csv.xz"])
def test_choices_may_be_packed(tmp_path, name):
    path = tmp_path / name
    path.write_bytes({".BZ2": bz2, ".xz": lzma}[path.suffix].compress(_csv(SWAG).encode()))
    assert read_choices(path).equals(read_choices(_write(tmp_path / "train.csv", _csv(SWAG))))


def test_json_lines_without_question_and_labels_have_no_such_columns(tmp_path):
    text = '{"context": "c", "options": ["x"], "label": -1}\r\n{"context": "d", "options": ["y"]}\r\n'
    frame = read_choices(_write(tmp_path / "test.jsonl", text))
    assert frame.to_dict("list") == {"context": ["c", "d"], "options": [["x"], ["y"]]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", _csv([SWAG[0], SWAG[1][:-1]]), "line 3: 11 columns, where the header has 12"),
        ("a.csv", _csv([SWAG[0], [*SWAG[2][:-1], "4"]]), "line 2: label 4, where the options are 0 to 3"),
        ("a.csv", _csv(SWAG)[:-3], "line 4: is no CSV"),
        ("a.csv", "a,b\n1,2\n", "has no column 'sent1'"),
        ("a.csv", "", "has no column 'sent1'"),
        ("a.jsonl", '{"context": "c"\n', "line 1, column 16: is no JSON"),
        ("a.jsonl", '\n{"context": "c"}\n', "line 2: 'options' is missing; it has context"),
        ("a.jsonl", "[1]\n", "line 1: is no JSON object"),
        pytest.param("a.jsonl", "\n" + "[" * 100_000 + "\n", "line 2: is nested too deeply", id="deep"),
        ("a.jsonl", '{"context": "c", "options": []}\n', "line 1: has no options"),
        ("a.jsonl", '{"context": 5, "options": ["x"]}\n', "line 1: context is 5, not a text"),
        ("a.jsonl", '{"context": "a\\ud800", "options": ["x"]}\n', "line 1: context holds a lone surrogate"),
        ("a.jsonl", '{"context": "a", "id": "\\ud800", "options": ["x"]}\n', "line 1: id holds a lone surrogate"),
        ("a.jsonl", '{"context": "a", "options": ["x", "\\ud800"]}\n', "line 1: options holds a lone surrogate"),
        ("a.jsonl", '{"context": "c", "question": [], "options": ["x"]}\n', "line 1: question is .*, not a text"),
        ("a.jsonl", '{"context": "c", "options": "xy"}\n', "line 1: options is 'xy', not a list"),
        ("a.jsonl", '{"context": "c", "options": ["x"], "label": true}\n', "label True is no index"),
        (
            "a.jsonl",
            '{"context": "c", "options": ["x"], "label": 0}\n{"context": "c", "options": ["x"]}\n',
            "line 2: has no label, and others have",
        ),
        ("a.txt", "", "ends in .csv .SWAG. or .jsonl"),
    ],
)
def test_damaged_choices_are_an_error_that_names_file_and_line(tmp_path, name, text, message):
    path = _write(tmp_path / name, text)
    with pytest.raises(ValueError, match=message) as caught:
        read_choices(path)
    assert str(path) in str(caught.value)


def test_reading_a_csv_leaves_the_callers_settings_alone(tmp_path):
    limit = csv.field_size_limit()
    read_choices(_write(tmp_path / "train.csv", _csv(SWAG)))
    assert csv.field_size_limit() == limit


# --- By name


def test_each_data_set_is_found_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KBERT_DATA", str(tmp_path))
    question = {"id": "1", "question": "?", "answers": [_answer("Oslo", 0)]}
    for path in ("squad/dev-v1.1.json", "squad/dev-v2.0.json", "SQuAD-2.0/train-v2.0.json"):
        _write(tmp_path / path, json.dumps(_squad(question)))
    _write(tmp_path / "CoNLL-2003" / "eng.testa", "Oslo NNP I-NP I-LOC\n\n-DOCSTART- -X- O O\n\nis VBZ I-VP O\n")
    _write(tmp_path / "swag" / "val.csv", _csv(SWAG))
    _write(tmp_path / "dream" / "test.jsonl", '{"context": "c", "options": ["x"]}')
    _write(tmp_path / "SST-2" / "dev.tsv", "sentence\tlabel\nfine\t1\n")
    n_rows = {("squad", "dev"): 1, ("squad_v2", "dev"): 1, ("squad_v2", "train"): 1, ("conll2003", "dev"): 2}
    n_rows |= {("swag", "dev"): 2, ("dream", "test"): 1, ("sst2", "dev"): 1}
    assert {key: len(load(*key)) for key in n_rows} == n_rows


def test_unknown_names_and_parts_are_errors_that_list_the_known(tmp_path):
    with pytest.raises(ValueError, match="name='race' is not known.*squad_v2"):
        load("race", "train", tmp_path)
    with pytest.raises(ValueError, match="part='test' is no part of squad. Its parts are train, dev"):
        load("squad", "test", tmp_path)


def test_without_file_and_library_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "library_is_installed", lambda: False)
    monkeypatch.delenv("KBERT_DATA", raising=False)
    with pytest.raises(DatasetNotFoundError, match="KBERT_DATA is not set.*pip install datasets"):
        load("cola", "train")
    with pytest.raises(DatasetNotFoundError, match="has no folder named swag.*pip install datasets"):
        load("swag", "train", tmp_path)
    with pytest.raises(DatasetNotFoundError, match="has no folder named dream") as caught:
        load("dream", "train", tmp_path)
    assert "pip" not in str(caught.value)


def test_a_folder_of_data_called_datasets_is_not_taken_for_the_library(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    assert not catalogue.library_is_installed()


class _Column:
    """A feature of the library, as far as it is read."""

    def __init__(self, names=None, feature=None):
        self.names, self.feature = names, feature


@pytest.fixture
def library(monkeypatch, tmp_path):
    """A stand-in for the Hugging Face library: `.tables` by repository, `.asked` what it was asked for."""
    fake = types.ModuleType("datasets")
    fake.__spec__ = importlib.machinery.ModuleSpec("datasets", None, origin="stand-in")
    fake.tables, fake.asked = {}, []

    def load_dataset(path, name=None, split=None, revision=None):
        fake.asked.append((path, name, split, revision))
        columns, features = fake.tables[path]
        return types.SimpleNamespace(to_dict=lambda: columns, features=features)

    fake.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setenv("KBERT_DATA", str(tmp_path))
    return fake


def test_the_library_is_asked_only_if_the_folder_lacks_the_file(tmp_path, library):
    library.tables["nyu-mll/glue"] = ({"sentence": ["hub"], "label": [1], "idx": [0]}, {})
    assert load("sst2", "dev").text.tolist() == ["hub"]
    _write(tmp_path / "sst2" / "dev.tsv", "sentence\tlabel\nlocal\t1\n")
    assert load("sst2", "dev").text.tolist() == ["local"]
    with pytest.raises(DatasetNotFoundError, match="is no folder"):
        load("sst2", "dev", tmp_path / "tpyo")
    assert library.asked == [("nyu-mll/glue", "sst2", "validation", None)]


def test_glue_from_the_library_has_the_columns_and_labels_of_the_files(library):
    pair = {"sentence1": ["One."], "sentence2": ["Two."], "idx": [0]}
    names = {"label": _Column(["entailment", "not_entailment"])}
    texts = {"text_a": ["One."], "text_b": ["Two."]}
    for task, label, expected in (("mrpc", 1, "1"), ("rte", 1, "not_entailment"), ("stsb", 2, 2.0)):
        library.tables["nyu-mll/glue"] = ({**pair, "label": [label]}, names)
        assert load(task, "train").to_dict("list") == {**texts, "label": [expected], "index": [0]}
    two = {name: values * 2 for name, values in pair.items()}
    library.tables["nyu-mll/glue"] = ({**two, "label": [1, -1]}, names)
    with pytest.raises(ValueError, match="nyu-mll/glue, rte, row 1: has no label, and others have"):
        load("rte", "train")
    library.tables["nyu-mll/glue"] = ({**pair, "label": [-1]}, names)
    assert load("rte", "test").to_dict("list") == {**texts, "index": [0]}
    library.tables["nyu-mll/glue"] = ({"premise": ["One."], "hypothesis": ["Two."], "label": [-1]}, names)
    assert load("mnli", "test_mismatched").to_dict("list") == texts
    load("mnli", "dev")
    assert [asked[1:3] for asked in library.asked[-2:]] == [("mnli", "test_mismatched"), ("mnli", "validation_matched")]


def test_the_other_data_sets_from_the_library_have_the_columns_of_the_files(library):
    columns = {"id": ["1", "2"], "title": ["t"] * 2, "question": ["?"] * 2, "context": [CONTEXT] * 2}
    answers = [{"text": ["Oslo"], "answer_start": [0]}, {"text": [], "answer_start": []}]
    library.tables["rajpurkar/squad_v2"] = ({**columns, "answers": answers}, {})
    frame = load("squad_v2", "dev")
    assert (frame.answer.tolist(), frame.answer_start.tolist()) == (["Oslo", ""], [0, -1])
    ner = {"ner_tags": _Column(feature=_Column(["O", "B-PER", "I-PER"]))}
    library.tables["eriktks/conll2003"] = ({"tokens": [["Jo", "x"], []], "ner_tags": [[1, 0], []]}, ner)
    frame = load("conll2003", "train")
    assert frame.to_dict("list") == {"words": [["Jo", "x"]], "tags": [["B-PER", "O"]], "document": [0]}
    row = dict(zip(SWAG[0][1:], [*SWAG[2][1:-1], 0], strict=True))
    library.tables["allenai/swag"] = ({key: [value] for key, value in row.items()}, {})
    assert load("swag", "train").options.tolist() == [["w", "x", "y", "z"]]


def test_what_goes_wrong_in_the_library_is_told_with_the_place_that_was_searched_first(library):
    with pytest.raises(DatasetNotFoundError, match="has no folder named swag.*could not load allenai/swag.*KeyError"):
        load("swag", "train")


# --- The published files

ROWS = {
    **{("sst2", "train"): 67349, ("sst2", "dev"): 872, ("cola", "train"): 8551, ("cola", "dev"): 1043},
    **{("mrpc", "train"): 3668, ("mrpc", "dev"): 408, ("stsb", "train"): 5749, ("stsb", "dev"): 1500},
    **{("rte", "train"): 2490, ("rte", "dev"): 277, ("wnli", "train"): 635, ("wnli", "dev"): 71, ("qnli", "dev"): 5463},
    **{("qqp", "train"): 20000, ("qqp", "dev"): 3496, ("conll2003", "train"): 14041, ("conll2003", "dev"): 3250},
    **{("squad", "train"): 87599, ("squad", "dev"): 10570, ("squad_v2", "dev"): 11873},
    **{("dream", "train"): 6116, ("dream", "dev"): 2040},
}


@pytest.mark.parametrize(("name", "part"), ROWS, ids=map("-".join, ROWS))
def test_the_published_files_have_the_published_numbers_of_rows(data_folder, name, part):
    with warnings.catch_warnings():
        # QQP is there in part only.
        warnings.simplefilter("ignore" if name == "qqp" else "error", DatasetWarning)
        frame = load(name, part, data_folder)
    assert len(frame) == ROWS[name, part] and not frame.isna().any(axis=None)
    assert {"label", "answer", "tags"} & set(frame.columns)


def test_conll_2003_has_the_published_documents_and_entities(data_folder):
    # Tables 1 and 2 of Tjong Kim Sang and De Meulder (2003), English training set.
    frame = load("conll2003", "train", data_folder)
    tags = [tag for row in frame.tags for tag in row]
    counts = {kind: tags.count(f"B-{kind}") for kind in ("LOC", "MISC", "ORG", "PER")}
    assert counts == {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}
    assert len(tags) == 203621 and frame.document.nunique() == 946


def test_all_public_names_of_the_module_are_there():
    assert all(hasattr(datasets, name) for name in datasets.__all__)
