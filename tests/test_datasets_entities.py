"""Exports of annotation tools: every format gives the same texts and spans."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from kbert.datasets import read_entities
from kbert.errors import DatasetWarning

TEXTS = ["Ada lived in London.", "Nobody is named.", "😀 Oslo, says Ada"]
SPANS = [[(0, 3, "PER"), (13, 19, "LOC")], [], [(2, 6, "LOC"), (13, 16, "PER")]]
ROWS = list(zip(TEXTS, SPANS, strict=True))


def dicts(spans, *keys):
    return [dict(zip(keys, span, strict=True)) for span in spans]


def prodigy(text, spans, answer="accept"):
    marks = [{**span, "token_start": 0} for span in dicts(spans, "start", "end", "label")]
    return {"text": text, "_input_hash": 1, "tokens": [], "spans": marks, "answer": answer}


def region(text, span, units=False):
    """A region as Label Studio writes it; its places may count UTF-16 units, as in a browser."""
    start, end, label = span
    count = (lambda i: len(text[:i].encode("utf-16-le")) // 2) if units else (lambda i: i)
    return {"start": count(start), "end": count(end), "text": text[start:end], "labels": [label]}


def task(text, spans, units=False, **more):
    results = [
        {"id": "a", "from_name": "ner", "to_name": "text", "type": "labels", "value": region(text, span, units)}
        for span in spans
    ]
    results.append({"from_name": "kind", "to_name": "text", "type": "choices", "value": {"choices": ["letter"]}})
    annotation = {"id": 1, "completed_by": 1, "result": results, "was_cancelled": False, "ground_truth": False}
    return {"id": 7, "data": {"text": text, "title": "A title"}, "annotations": [annotation], "predictions": [], **more}


def minimal(text, spans):
    marks = {"ner": [region(text, span) for span in spans]} if spans else {}
    return {"text": text, "id": 1, **marks, "annotator": 1, "annotation_id": 3, "lead_time": 2.5}


EXPORTS = {
    "spaCy's pairs": [(text, {"entities": spans, "cats": {}}) for text, spans in ROWS],
    "spaCy's pairs with ids": [(text, {"entities": [(*span, "Q1") for span in spans]}) for text, spans in ROWS],
    "spaCy's to_json": [{"text": text, "ents": dicts(spans, "start", "end", "label")} for text, spans in ROWS],
    "spaCy's to_json with groups of spans": [
        {"text": text, "ents": dicts(spans, "start", "end", "label"), "spans": {"sc": []}} for text, spans in ROWS
    ],
    "an annotator's": [{"classes": ["PER"], "annotations": [[t, {"entities": s}] for t, s in ROWS] + [None]}],
    "doccano's label": [{"id": 1, "text": text, "label": spans, "Comments": []} for text, spans in ROWS],
    "doccano's labels": [{"text": text, "labels": spans} for text, spans in ROWS],
    "doccano's data": [{"id": 1, "data": text, "label": spans} for text, spans in ROWS],
    "doccano's entities": [
        {"text": text, "entities": dicts(spans, "start_offset", "end_offset", "label"), "relations": []}
        for text, spans in ROWS
    ],
    "Prodigy's": [prodigy(*row) for row in ROWS],
    "Label Studio's": [task(*row) for row in ROWS],
    "Label Studio's in UTF-16": [task(*row, units=True) for row in ROWS],
    "Label Studio's minimal": [minimal(*row) for row in ROWS],
}


@pytest.mark.parametrize("name", EXPORTS)
def test_every_export_gives_the_same_texts_and_spans(tmp_path, name, recwarn):
    records = EXPORTS[name]
    (tmp_path / "all.json").write_text(json.dumps(records, indent=2, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "all in a line.json").write_text(json.dumps(records))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(record) + "\r\n\n" for record in records))
    with gzip.open(tmp_path / "packed.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    for source in (records, *sorted(tmp_path.iterdir())):
        frame = read_entities(source)
        assert frame.columns.tolist() == ["text", "spans"]
        assert frame.text.tolist() == TEXTS and frame.spans.tolist() == SPANS, source
    assert not recwarn


def test_spans_come_sorted():
    assert read_entities([{"text": "a b", "label": [[2, 3, "X"], [0, 1, "Y"]]}]).spans[0] == [(0, 1, "Y"), (2, 3, "X")]


def test_places_may_be_numbers_of_numpy():
    assert read_entities([("Ada left", {"entities": [(np.int64(0), np.int64(3), "PER")]})]).spans[0] == [(0, 3, "PER")]


def test_the_format_can_be_named():
    records = [{"text": "a b", "spans": [[0, 1, "X"]], "label": [[2, 3, "Y"]]}]
    assert read_entities(records).spans[0] == read_entities(records, "prodigy").spans[0] == [(0, 1, "X")]
    assert read_entities(records, format="doccano").spans[0] == [(2, 3, "Y")]
    with pytest.raises(ValueError, match="format='brat' is not known. Use 'auto' or one of 'spacy', 'doccano'"):
        read_entities(records, format="brat")


DOCCANOS = {"text": "Ada x", "label": [[0, 3, "P"]]}
PAIR = ("Ada x", {"entities": [(0, 3, "P")]})


@pytest.mark.parametrize(
    ("records", "format", "message"),
    [
        ([DOCCANOS], "spacy", "record 0: has no 'ents'; it has text, label. If it is another tool's"),
        ([{**DOCCANOS, "tokens": []}], "spacy", "record 0: has no 'ents'"),
        ([prodigy("Ada x", [(0, 3, "P")])], "spacy", "record 0: has no 'ents'"),
        ([PAIR, ("Ada x", {"cats": {}})], "spacy", "record 1: has no 'entities'; it has cats"),
        ([PAIR, DOCCANOS], "auto", "record 1: has no 'ents'"),
        ([DOCCANOS], "prodigy", "record 0: has no 'spans'; it has text, label. If it is another tool's"),
        ([{1: "Ada"}], "doccano", "record 0: has no 'label', 'labels' or 'entities'; it has 1"),
        ([{}], "prodigy", "record 0: has no 'text' that is a text; it has nothing"),
        ([prodigy("Ada x", []), DOCCANOS], "auto", "record 1: has no 'spans'"),
        ([EXPORTS["spaCy's to_json"][0]], "prodigy", "record 0: has no 'spans'; it has text, ents"),
        ([minimal("Ada x", [(0, 3, "P")])], "prodigy", "record 0: has no 'spans'; it has text, id, ner"),
        ([DOCCANOS], "label-studio", "record 0: has spans that are not Label Studio's; it has text, label. If it is"),
        ([EXPORTS["doccano's entities"][0]], "label-studio", "record 0: has spans that are not Label Studio's"),
    ],
)
def test_a_record_of_another_tool_is_refused_and_does_not_lose_its_spans(records, format, message):
    with pytest.raises(ValueError, match=message):
        read_entities(records, format)


def test_doccanos_records_may_have_an_answer():
    assert read_entities([{**DOCCANOS, "answer": "accept"}]).spans[0] == [(0, 3, "P")]


@pytest.mark.parametrize(
    ("record", "format"),
    [
        ({"text": "Ada x"}, "spacy"),
        ({"text": "Ada x", "tokens": [{"id": 0, "start": 0, "end": 3}], "cats": {}, "spans": {"sc": []}}, "spacy"),
        ({"text": "Ada x", "answer": "accept", "tokens": []}, "prodigy"),
        ({"text": "Ada x", "kinds": [["letter", "long", "old"]], "annotation_id": 3}, "label-studio"),
    ],
)
def test_a_record_without_spans_need_not_have_the_key_of_its_tool(record, format, recwarn):
    assert read_entities([record], format).spans.tolist() == [[]]
    assert not recwarn


def test_answers_that_were_not_accepted_are_left_out_and_counted():
    answers = ["accept", "reject", "ignore", "reject"]
    records = [prodigy(*ROWS[0], answer=answer) for answer in answers]
    with pytest.warns(DatasetWarning) as found:
        frame = read_entities(records)
    assert frame.text.tolist() == TEXTS[:1]
    assert str(found[0].message) == (
        'The list: of 4 records 2 left out because its "answer" is \'reject\'; 1 left out because its "answer" is '
        "'ignore'."
    )
    assert found[0].filename == __file__


def test_of_several_annotations_one_is_read_and_tasks_without_any_are_left_out():
    two = task(*ROWS[0])
    two["annotations"].append({**task(TEXTS[0], SPANS[0][:1])["annotations"][0], "ground_truth": True})
    skipped = task(*ROWS[1])
    skipped["annotations"][0]["was_cancelled"] = True
    with pytest.warns(DatasetWarning) as found:
        frame = read_entities([two, skipped, task(*ROWS[2], annotations=[])])
    assert frame.text.tolist() == TEXTS[:1] and frame.spans[0] == SPANS[0][:1]
    assert "1 with several annotations, of which one is read; 2 left out because nobody annotated it" in str(
        found[0].message
    )


def test_of_several_annotations_without_a_ground_truth_the_first_is_read():
    two = task(*ROWS[0])
    two["annotations"] += task(TEXTS[0], SPANS[0][:1])["annotations"]
    with pytest.warns(DatasetWarning, match="1 with several annotations"):
        assert read_entities([two]).spans[0] == SPANS[0]


def test_tasks_of_older_label_studios_have_completions():
    tasks = [task(*row) for row in ROWS]
    for one in tasks:
        one["completions"] = one.pop("annotations")
    assert read_entities(tasks).spans.tolist() == SPANS


def test_what_label_studio_names_as_the_others_do_is_still_label_studios():
    records = [minimal(*row) | {"answer": "a field of the data", "spans": "another"} for row in ROWS]
    assert read_entities(records).spans.tolist() == SPANS


def test_the_text_of_a_task_is_that_with_the_regions():
    one = task(*ROWS[0])
    one["data"] = {"title": "A title", "body": TEXTS[0]}
    assert read_entities([one]).text[0] == TEXTS[0]


def test_the_text_of_all_tasks_is_that_with_most_regions(recwarn):
    tasks = [task("Oslo won the cup in Rome", [(0, 4, "LOC")]), task("It rained in Paris", [(13, 18, "LOC")])]
    tasks.append(task("Nothing", []))
    for one, title in zip(tasks, ["Oslo wins", "A long title about rain", "None"], strict=True):
        one["data"] = {"title": title, "body": one["data"]["text"]}
    assert read_entities(tasks).text.tolist() == ["Oslo won the cup in Rome", "It rained in Paris", "Nothing"]
    assert not recwarn
    with pytest.raises(ValueError, match=r'record 0: its text is not found; there are title, body. Call it "text"'):
        read_entities(tasks[:1])  # both have "Oslo" there


def test_labels_in_several_texts_of_a_task_are_refused():
    one = task("Oslo wins", [(0, 4, "LOC"), (5, 9, "ACT")])
    one["data"]["title"] = "Ada saw it"
    one["annotations"][0]["result"][1]["to_name"] = "title"
    with pytest.raises(ValueError, match=r"record 0: has labels in several texts \(text, title\). Keep the results of"):
        read_entities([one])


def test_a_table_of_records_is_refused_with_the_call():
    frame = pd.DataFrame(EXPORTS["doccano's label"])
    with pytest.raises(TypeError, match=r"source is a DataFrame, and must be.*df.to_dict\('records'\)"):
        read_entities(frame)
    assert read_entities(frame.to_dict("records")).spans.tolist() == SPANS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "label": []}\n{"text": "a", "label": [[0, 1, "X"]}\n', "line 2, column 36: is no JSON"),
        ('[\n{"text": "a",\n"label": }]', "line 3, column 10: is no JSON"),
        ('{"text": "a", "label": []}\n{"text": "a", "label": [[0, 2, "X"]]}', r"line 2: the span \(0, 2, 'X'\) is not"),
        *(
            (f'[{{"text": "ab", "label": [[{place}, "X"]]}}]', rf"record 0: the span \({place}, 'X'\) is not within")
            for place in ("1, 1", "2, 1", "-1, 1")
        ),
        ('[{"text": "a", "label": [[0, 1]]}]', r"record 0: \[0, 1\] is no span"),
        ('[{"text": "a", "label": [[0, 1, 4]]}]', "record 0: the label 4 is a number"),
        ('[{"text": "a", "label": 3}]', "record 0: label is 3, not a list"),
        (
            '[{"text": "a", "label": []}, {"text": "a"}]',
            "record 1: has no 'label', 'labels' or 'entities'; it has text",
        ),
        ('[{"text": null, "label": []}]', "record 0: has no 'text' that is a text"),
        ('[{"text": "a\\ud800", "label": []}]', "record 0: the text holds a lone surrogate"),
        ('[{"text": "a", "spans": []}, 3]', "record 1: is 3, not an object"),
        ('{"words": ["a"], "tags": ["O"]}', "holds no records of a known format .*read_conll"),
        ("EU NNP I-NP I-ORG\n", "is no JSON .*read_conll"),
        ("", "is empty"),
        ('[{"data": {"text": "a"}, "annotations": [3]}]', "record 0: annotations holds 3, which is no object"),
        (json.dumps([task("ab", [(0, 1, "X")]) | {"data": {"a": "x", "b": "y"}}]), "record 0: its text is not found"),
        ('[{"text": "a", "ner": [{"start": 0, "end": 1, "labels": ["A", "B"]}]}]', "has 2 labels"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path, content, message):
    path = tmp_path / "export.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as found:
        read_entities(path)
    assert str(found.value).startswith(str(path))


def test_a_file_of_spacys_own_says_what_to_give(tmp_path):
    with pytest.raises(ValueError, match="Give a list.*get_docs"):
        read_entities(tmp_path / "train.spacy")


# --- Label Studio's places, which a browser counts


@pytest.mark.parametrize(
    ("text", "shown", "word", "written"),
    [
        ("Line one\r\nLine two\r\nAda lives in Rome", "Line one\nLine two\nAda lives in Rome", "Rome", "Rome"),
        ("\U0001f600 one\r\nAda lives in Rome", "\U0001f600 one\nAda lives in Rome", "Rome", "Rome"),
        ("\U0001f600 Ada\nB lives", "\U0001f600 Ada\nB lives", "Ada\nB", "Ada\\nB"),
        ("Ada  B lives", "Ada  B lives", "Ada  B", "Ada B"),
        ("\U0001f600a a b", "\U0001f600a a b", " a", " a"),  # and not "a ", which stands at the place in characters
    ],
)
def test_places_that_a_browser_counted(text, shown, word, written):
    start = len(shown[: shown.index(word)].encode("utf-16-le")) // 2
    end = start + len(word.encode("utf-16-le")) // 2
    value = {"start": start, "end": end, "text": written, "labels": ["X"]}
    result = {"type": "labels", "to_name": "text", "value": value}
    frame = read_entities([{"data": {"text": text}, "annotations": [{"result": [result]}]}])
    ((first, last, _),) = frame.spans[0]
    assert text[first:last].replace("\r", "") == word


def test_a_span_whose_text_is_elsewhere_is_told():
    record = task("Ada lived", [(0, 3, "PER")])
    record["annotations"][0]["result"][0]["value"]["text"] = "lived"
    with pytest.warns(DatasetWarning, match="of 1 records 1 with a span at whose place another text stands"):
        assert read_entities([record]).spans[0] == [(0, 3, "PER")]


def test_the_text_of_one_task_tells_what_it_is_called_in_all():
    records = [minimal(*row) for row in ROWS]
    for n, record in enumerate(records):
        record |= {"content": record.pop("text"), "created_at": "2026-01-01", "id": n}
    assert any("ner" not in record for record in records)  # of which several texts might be meant
    assert read_entities(records).text.tolist() == TEXTS


def test_of_two_annotations_of_a_minimal_task_one_is_read():
    records = [minimal(*ROWS[0]), {**minimal(*ROWS[0]), "annotator": 2, "annotation_id": 4}]
    with pytest.warns(DatasetWarning, match="1 left out because another annotation of its task is read"):
        assert len(read_entities(records)) == 1
