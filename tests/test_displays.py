"""Displays in HTML: what is in the page, and what a browser shows of it."""

import re
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest

from kbert.plots import AnswerDisplay, AttributionDisplay, EntityDisplay
from kbert.reports import Report

pytestmark = pytest.mark.slow  # no backend has a part in it

TEXT = 'a <b>bold</b> claim & "quotes"\n  two spaces, שלום עולם 😀 and averyveryverylongword' + "y" * 80
PAIRS = pd.DataFrame({"left": ["<script>alert(1)</script>"], "right": ["it's\r\n&amp;"]})


def explanation():
    """Every word of TEXT, scores from -1 to 1."""
    words = list(re.finditer(r"\S+", TEXT))
    scores = [i / (len(words) - 1) * 2 - 1 for i in range(len(words))]
    lines = [(0, m.group(), *m.span(), "<pos>", score) for m, score in zip(words, scores, strict=True)]
    return pd.DataFrame(lines, columns=["row", "word", "start", "end", "label", "score"])


def entities():
    """Nine labels, so that every ground is used."""
    lines = [(0, *m.span(), f"L{i}", 0.5) for i, m in enumerate(list(re.finditer(r"\w+", TEXT))[:9])]
    return pd.DataFrame(lines, columns=["row", "start", "end", "label", "score"])


def answers():
    """Two that overlap, and none."""
    start = TEXT.index("two")
    lines = [(0, 1, TEXT[start : start + 10], start, start + 10, 0.6), (0, 2, "", -1, -1, 0.2)]
    lines.append((0, 3, TEXT[start + 4 : start + 16], start + 4, start + 16, 0.1))
    return pd.DataFrame(lines, columns=["row", "rank", "answer", "start", "end", "probability"])


def report():
    """With every part that a page may have."""
    score = {"value": 0.75, "low": 0.5, "high": 0.875}
    line = {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "rows": 1234}
    labels = ["<i>&pos", "averyveryveryverylonglabel" * 2, "שלום"]
    bins = [{"from": 0.5, "to": 0.6, "rows": 3, "probability": 0.55, "right": 0.0}]
    reliability = {"error": 0.55, "error_by_chance": 0.2, "bins": bins}
    values = {
        "estimator": "BertClassifier(weights='<b>')",
        "evaluated_by": "cross-validation",
        "rows": {"rows": 12, "empty": 1, "cut": 2, "in_windows": 0, "max_length": 128},
        "score": {"name": "accuracy", **score},
        "baselines": {"most_frequent": score, "tfidf_linear": score},
        "scores": {"f1_macro": 0.5},
        "by_label": dict.fromkeys(labels, line),
        "confusion": {label: {other: 40 if label == other else 3 for other in labels} for label in labels},
        "by_length": [{"from": 3, "to": 200, "cut": True, "rows": 12, **score}],
        "calibration": {"learned": False, "before": reliability, "after": reliability},
    }
    columns = ["row", "given", "predicted", "doubt", "probability_given", "probability", "text"]
    lines = [(4, labels[0], "neg", 0.9, 0.1, 0.9, TEXT), (0, labels[1], "neg", 0.6, 0.4, 0.6, "none")]
    doubtful = pd.DataFrame(lines, columns=columns, index=["<u>", "b"])
    why = AttributionDisplay.from_predictions(explanation(), [TEXT, "none"])
    return Report("labels", values, doubtful, why, 20)


def displays():
    questions = pd.DataFrame({"question": ["what <i>is</i> it?"], "context": [TEXT]})
    return {
        "attributions": AttributionDisplay.from_predictions(explanation(), [TEXT, "none"], probabilities=[0.9, 0.5]),
        "entities": EntityDisplay.from_predictions(entities(), [TEXT]),
        "answers": AnswerDisplay.from_predictions(answers(), questions),
        "report": report(),
    }


class Texts(HTMLParser):
    """What stands in the elements of class "text"."""

    def __init__(self, page):
        super().__init__()
        self.depth, self.texts = 0, []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if dict(attributes).get("class") == "text":
            self.depth = 1
            self.texts.append("")
        elif self.depth and tag == "div":
            self.depth += 1

    def handle_endtag(self, tag):
        self.depth -= self.depth > 0 and tag == "div"

    def handle_data(self, data):
        if self.depth:
            self.texts[-1] += data


@pytest.mark.parametrize("name", ["attributions", "entities", "answers", "report"])
def test_a_page_has_the_texts_and_asks_for_nothing(name, tmp_path):
    display = displays()[name]
    display.save(tmp_path / "new" / "page.html")
    page = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert page == display.html() and display._repr_html_() in page
    assert TEXT in Texts(page).texts
    assert not re.search(r"<script|<link|<img|@import|url\(|src=|href=|<b>bold|<i>&|<u>", page)


def test_a_page_goes_into_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    AttributionDisplay([{"": "red"}], pd.DataFrame(columns=["row", "start", "end", "label", "score"])).save(
        "~/why.html"
    )
    assert (tmp_path / "why.html").exists()


def test_pairs_stand_under_their_names():
    lines = [(0, "left", "script", 1, 7, 0, 0.5), (0, "right", "it", 0, 2, 0, -0.5)]
    frame = pd.DataFrame(lines, columns=["row", "column", "word", "start", "end", "label", "score"])
    page = AttributionDisplay.from_predictions(frame, PAIRS).html()
    assert Texts(page).texts == PAIRS.iloc[0].tolist()
    assert "&#13;\n" in page  # HTML would read the character itself as a line feed
    assert page.count('class="for"') == page.count('class="against"') == 1


def test_words_are_shaded_by_their_share_of_the_largest_score_of_all_rows():
    lines = [(0, 0, 3, "a", -2.0), (0, 4, 7, "a", 1.0), (0, 8, 10, "a", 0.0), (1, 0, 4, "b", 0.5)]
    frame = pd.DataFrame(lines, columns=["row", "start", "end", "label", "score"])

    def marks(frame):
        page = AttributionDisplay.from_predictions(frame, ["red hot it", "cold"]).html()
        return re.findall(r'<mark class="(\w+)" data-score="(\S+)" style="--strength:(\S+)"', page), page

    found, page = marks(frame)
    assert found == [
        ("against", "-2.0", "1.000"), ("for", "1.0", "0.500"), ("for", "0.0", "0.000"), ("for", "0.5", "0.250")
    ]  # fmt: skip
    assert re.findall(r"sum ([+-][\d.]+)", page) == ["-1.00", "+0.50"]
    assert {strength for _, _, strength in marks(frame.assign(score=0.0))[0]} == {"0.000"}


def test_answers_are_listed_by_rank_and_add_up_where_they_overlap():
    questions = pd.DataFrame({"question": ["what is it?"], "context": [TEXT]})
    page = AnswerDisplay.from_predictions(answers()[::-1], questions).html()
    assert re.findall(r'<li value="(\d)"', page) == ["1", "2", "3"] and "<bdi>no answer</bdi>" in page
    marks = re.findall(r'data-ranks="([^"]*)" style="--strength:(\S+)" title="answer ([^"]*)"', page)
    assert marks == [("1", "0.700", "1: 0.600"), ("1 3", "0.775", "1 3: 0.700"), ("3", "0.325", "3: 0.100")]


def test_entities_may_come_in_any_order_with_labels_of_any_kind_and_without_probabilities():
    lines = pd.DataFrame([(0, 4, 7, '"b"'), (0, 0, 3, 1), (0, 8, 11, 1)], columns=["row", "start", "end", "label"])
    mark = re.compile(r'data-label="([^"]*)" style="[^"]*--hue-(\d+)\)\)" title="([^"]*)">(\w+)')
    found = mark.findall(EntityDisplay.from_predictions(lines, ["red hot red"]).html())
    named = "&quot;b&quot;"
    assert found == [("1", "1", "1", "red"), (named, "0", named, "hot"), ("1", "1", "1", "red")]
    nine = re.findall(r"var\(--hue-(\d+)\)", EntityDisplay.from_predictions(entities(), [TEXT]).html())
    assert nine == list("012345670")


def test_many_rows_are_cut_and_told():
    display = EntityDisplay.from_predictions(entities(), [TEXT] * 5, max_rows=2)
    assert display.html().count("<section>") == 2 and "and 3 more rows; max_rows=5" in display.html()


@pytest.mark.parametrize("name", ["row", "label", "start", "rank"])
def test_the_index_of_X_may_be_named_like_a_column(name):
    attributions, spans, best = (lines.rename_axis(name) for lines in (explanation(), entities(), answers()))
    questions = pd.DataFrame({"question": ["what is it?"], "context": [TEXT]})
    for display in (
        AttributionDisplay.from_predictions(attributions, [TEXT, "none"]),
        EntityDisplay.from_predictions(spans, [TEXT]),
        AnswerDisplay.from_predictions(best, questions),
    ):
        assert TEXT in Texts(display.html()).texts


def test_what_is_no_result_or_that_of_other_rows_is_refused():
    with pytest.raises(ValueError, match="explain returns: there is no column label, score"):
        AttributionDisplay.from_predictions(pd.DataFrame(columns=["row", "start", "end"]), [TEXT])
    with pytest.raises(ValueError, match="Are the rows those of X"):
        EntityDisplay.from_predictions(entities(), ["short"]).html()
    with pytest.raises(ValueError, match="overlaps another one"):
        EntityDisplay.from_predictions(pd.concat([entities(), entities()]), [TEXT]).html()
    others = [entities().assign(row=-1), answers().assign(row=1), explanation().assign(row=2)]
    questions = pd.DataFrame({"question": ["what is it?"], "context": [TEXT]})
    displays = [EntityDisplay, AnswerDisplay, AttributionDisplay]
    for display, lines, X in zip(displays, others, [[TEXT], questions, [TEXT, "none"]], strict=True):
        with pytest.raises(ValueError, match="lines of row .*Give the X that they are of"):
            display.from_predictions(lines, X)
    with pytest.raises(ValueError, match="max_rows must be"):
        EntityDisplay.from_predictions(entities(), [TEXT], max_rows=0)


# --- In a browser

READ = """() => {
  const rgb = color => color.match(/[\\d.]+/g).map(Number).concat(1).slice(0, 4);
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const ground = node => {
    if (!node) return [255, 255, 255, 1];
    return over(rgb(getComputedStyle(node).backgroundColor), ground(node.parentElement));
  };
  const light = color => {
    const [r, g, b] = color.map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrasts = [...document.querySelectorAll('.kbert-display *')]
    .filter(node => [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()))
    .filter(node => node.tagName !== 'STYLE')
    .map(node => {
      const pair = [rgb(getComputedStyle(node).color), ground(node)].map(light).sort((a, b) => b - a);
      return (pair[0] + 0.05) / (pair[1] + 0.05);
    });
  return {
    texts: [...document.querySelectorAll('.text')].map(node => node.innerText),
    marks: [...document.querySelectorAll('mark')].map(node => ({text: node.textContent, ...node.dataset})),
    listed: [...document.querySelectorAll('li')].map(node => node.innerText),
    contrast: Math.min(...contrasts),
    ground: getComputedStyle(document.querySelector('.kbert-display')).backgroundColor,
    scripts: document.scripts.length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    label: getComputedStyle(document.querySelector('mark'), '::after').content,
  };
}"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="to open pages, run: pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("to open pages, run: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.thorough
def test_a_browser_shows_what_was_given_in_light_and_dark_and_on_a_phone(browser, tmp_path):
    read = {}
    for name, display in displays().items():
        display.save(tmp_path / f"{name}.html")
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme, viewport={"width": 400, "height": 800})
            requests = []
            page.on("request", lambda request, requests=requests: requests.append(request.url))
            page.goto((tmp_path / f"{name}.html").as_uri())
            found = read[name] = page.evaluate(READ)
            page.close()
            assert len(requests) == 1 and found["scripts"] == 0
            assert TEXT in found["texts"]
            assert found["contrast"] >= 4.5, (name, scheme)
            assert found["overflow"] <= 0, (name, scheme)
            assert found["ground"] == {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 27, 27)"}[scheme]

    shown = [(mark["text"], float(mark["score"])) for mark in read["attributions"]["marks"]]
    assert shown == list(zip(explanation().word, explanation().score, strict=True))
    assert read["report"]["marks"] == read["attributions"]["marks"]
    shown = [(mark["text"], mark["label"]) for mark in read["entities"]["marks"]]
    assert shown == [(TEXT[line.start : line.end], line.label) for line in entities().itertuples()]
    assert read["entities"]["label"] == '"L0"'
    where = TEXT.index("two")
    assert [(mark["text"], mark["ranks"]) for mark in read["answers"]["marks"]] == [
        ("two ", "1"), ("spaces", "1 3"), (TEXT[where + 10 : where + 16], "3")
    ]  # fmt: skip
    assert "no answer 0.200" in read["answers"]["listed"]


def test_there_is_a_probability_for_each_row():
    with pytest.raises(ValueError, match=r"a number for each of the 2 rows, and has the shape \(1,\)"):
        AttributionDisplay.from_predictions(explanation(), [TEXT, "none"], probabilities=[0.9])
