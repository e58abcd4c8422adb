"""The page of a report: which labels, mistakes and rows stand on it, and the sizes of what is drawn."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from kbert.reports import Report
from kbert.reports.parts import bar, number, reliability, shaded_table

VALUES = {
    "estimator": "e", "evaluated_by": "predict", "baselines": {}, "scores": {}, "calibration": {}, "by_length": [],
    "score": {"name": "accuracy", "value": 0.5, "low": 0.4, "high": 0.6},
    "rows": {"rows": 9, "empty": 0, "cut": 0, "in_windows": 0, "max_length": 8},
}  # fmt: skip


def page(kind, lines, columns=(), index=None, max_rows=5, **values):
    names = ["row", "given", "predicted", "doubt", *columns]
    frame = pd.DataFrame(lines, columns=names, index=index)
    return Report(kind, {**VALUES, **values}, frame, None, max_rows).html()


def heads(page):
    """What stands above each row, without its marks."""
    return [re.sub("<[^>]+>", "", head) for head in re.findall(r'<p class="row">(.*?)</p>', page)]


def test_of_many_labels_the_worst_ones_and_the_most_frequent_mistakes_are_shown():
    labels = [f"l{i}" for i in range(40)]
    by_label = {label: {"f1": 1 - i / 40, "rows": 3} for i, label in enumerate(labels)}
    confusion = {a: {b: 99 if a == b else i if a == "l0" else 0 for i, b in enumerate(labels)} for a in labels}
    found = page("labels", [], by_label=by_label, confusion=confusion)
    first = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>(?:<td>([^<]*)</td>)', found)
    worst, mistakes = (re.findall(r"l\d+", part) for part in found.split("What was taken for what"))
    assert worst == labels[:9:-1]
    assert mistakes == [name for i in range(39, 9, -1) for name in ("l0", f"l{i}")] and ("l0", "l39", "39") in first


@pytest.mark.parametrize(
    "n, which", [(1, "There is one such row."), (5, "These are all 5."), (6, "These are the first 5 of 6.")]
)
def test_as_many_rows_are_shown_as_were_asked_for(n, which):
    found = page("labels", [(i, "a", "b", 0.9, "red") for i in range(n)], ["text"])
    assert which in found and len(heads(found)) == min(n, 5)


def test_what_is_said_of_a_row():
    shares = ["probability_given", "probability"]
    lines = [(3, "a", "b", 0.9, 0.1, 0.8, "red"), (4, "a", "b", 0.5, np.nan, 0.7, "hot")]
    found = heads(page("labels", lines, [*shares, "text"], ["x", 4]))
    assert found == ["row 3, index x · given a 0.100 · predicted b 0.800", "row 4 · given a · predicted b 0.700"]
    lines = [(0, ["hot"], [], 0.9, 0.1, 0.8, "hot", "red")]
    found = heads(page("several labels", lines, [*shares, "label", "text"]))
    assert found == ["row 0, hot · given hot 0.100 · predicted none 0.800"]
    lines = [(0, "O", "B-X", 0.9, 0.1, 0.8, "Oslo", 2, "to Oslo")]
    found = heads(page("tags", lines, [*shares, "word", "position", "text"]))
    assert found == ["row 0, word 2 Oslo · given O 0.100 · predicted B-X 0.800"]
    lines = [(0, ["red", "", "red", "hot"], "", 0.9, np.nan, 0.8, "q", "c"), (1, [], "red", 0.9, np.nan, 0.8, "q", "c")]
    found = heads(page("answers", lines, [*shares, "question", "context"]))
    assert found[0] == "row 0 · given red / hot · predicted no answer 0.800"
    assert found[1] == "row 1 · given no answer · predicted red 0.800"
    lines = [(0, 1, 0, 0.9, 0.1, 0.8, "c", ["red", "hot"])]
    found = heads(page("choices", lines, [*shares, "context", "options"]))
    assert found == ["row 0 · given 1: hot 0.100 · predicted 0: red 0.800"]
    found = heads(page("numbers", [(0, 1.0, 2.34567, 0.9, "red"), (1, [1.0, 2.0], [3.0, 4.5], 0.9, "red")], ["text"]))
    assert found == ["row 0 · given 1 · predicted 2.346", "row 1 · given 1, 2 · predicted 3, 4.5"]


def test_bars_lie_between_0_and_1():
    def sizes(*score):
        return re.findall(r"(?:width|left):([^%]+)%", bar(*score))

    assert sizes(0.75, 0.5, 0.875) == ["75.0", "50.0", "37.5"]
    assert sizes(-3.0, -4.0, 0.25) == ["0.0", "0.0", "25.0"]
    assert sizes(1.5, 0.75, 2.0) == ["100.0", "75.0", "25.0"]
    assert sizes(math.nan, math.nan, math.nan) == ["0.0", "0.0", "0.0"]


def test_numbers_of_a_table():
    assert [number(value) for value in (1234, 0, 40.0, 1.0, 0.0, 0.12345, math.nan, -math.inf)] == [
        "1,234", "0", "40", "1.000", "0.000", "0.123", "–", "–"
    ]  # fmt: skip


def test_counts_are_shaded_by_their_share_of_their_line():
    found = shaded_table({"a": {"a": 3, "b": 1}, "b": {"a": 0, "b": 0}})
    cells = re.findall(r'<td style="--strength:([\d.]+)">(\d+)</td>', found)
    assert cells == [("0.750", "3"), ("0.250", "1"), ("0.000", "0"), ("0.000", "0")]


def test_a_point_of_the_diagram_lies_to_the_right_of_and_above_less_probable_and_less_right_ones():
    bins = [
        {"rows": 16, "probability": 0.25, "right": 0.1, "from": 0.2, "to": 0.3},
        {"rows": 4, "probability": 0.85, "right": 0.9, "from": 0.8, "to": 0.9},
    ]
    found = re.findall(
        r'<circle cx="(\S+)" cy="(\S+)" r="(\S+)">',
        reliability({"error": 0.1, "error_by_chance": 0.05, "bins": bins}, "x"),
    )
    assert found == [("25.0", "90.0", "5.0"), ("85.0", "10.0", "3.2")]
