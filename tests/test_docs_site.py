"""The tools that make and check the site: docs/check_site.py and docs/results_table.py. What a search must find."""

import re
import runpy
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
check = runpy.run_path(str(DOCS / "check_site.py"))

GOOD = """<!doctype html><html><head><meta name="viewport" content="width=device-width"><title>a</title></head>
<body><article><h1 id="top">a</h1><a href="#top">up</a> <a href="b/index.html#part">b</a> <a href="b/">b</a>
<a href="https://other.example/x">elsewhere</a>
<div class="scrolls" style="overflow-x: auto"><p style="width: 3000px">a table</p></div>
<pre>short</pre></article></body></html>"""
B = '<!doctype html><html><head><title>b</title></head><body><p id="part">b</p></body></html>'
WIDE = '<p style="width: 900px">nine hundred</p>'


@pytest.fixture
def site(tmp_path):
    """Two pages without a fault."""
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "b" / "index.html").write_text(B)
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "theme.html").write_text('<a href="{{ a }}">a template of the theme</a>')
    (tmp_path / "favicon.ico").write_bytes(b"")
    return tmp_path


def test_links_within_the_site(site):
    assert check["broken_links"](site) == []
    links = '<a href="no.html">1</a><a href="b/index.html#no">2</a><img src="no.png"><a href="#no">3</a>'
    (site / "index.html").write_text(GOOD.replace("<pre>", links + "<pre>"))
    assert check["broken_links"](site) == [
        "index.html: no.html: there is no such file",
        "index.html: b/index.html#no: there is no such anchor",
        "index.html: no.png: there is no such file",
        "index.html: #no: there is no such anchor",
    ]


@pytest.fixture
def shown(site):
    """What a browser finds in the page, changed by a function."""
    pytest.importorskip("playwright.sync_api", reason="to open pages, run: pip install playwright")
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        pytest.skip("to open pages, run: apt-get install chromium")

    def find(more=""):
        (site / "index.html").write_text(GOOD.replace("<pre>", more + "<pre>"))
        return list(check["shown_faults"](site, check["pages_of"](site)))

    return find


@pytest.mark.thorough
@pytest.mark.slow
def test_a_browser_finds_what_is_wrong(shown):
    assert shown() == []
    for wide in (WIDE, f'<div style="overflow: auto">{WIDE}</div>'):  # the theme's text is in such a box
        assert shown(wide) == [
            f"index.html at 400 px, {scheme}: wider than the page: <p> nine hundred" for scheme in ("light", "dark")
        ]
    (clipped,) = shown(f'<pre style="overflow-x: auto">x\n{"y" * 300}\n</pre>')
    assert clipped.startswith("index.html at 1400 px: code is clipped: yyy")
    (error,) = shown("<script>console.error('an error')</script>")
    assert error.startswith("index.html: an error (http://127.0.0.1:")
    (error,) = shown("<script>no_function()</script>")
    assert error == "index.html: no_function is not defined"
    assert any("404" in fault and "no.png" in fault for fault in shown('<img src="no.png">'))


# What people search for, and a page that has it. The site's search finds a page by the words in its text.
SEARCHED = {
    "named entity recognition": "tasks/named_entity_recognition",
    "NER": "tasks/named_entity_recognition",
    "part of speech": "tasks/named_entity_recognition",
    "sentiment analysis": "tasks/text_classification",
    "text classification": "tasks/text_classification",
    "confusion matrix": "start/getting_started",
    "multi-label classification": "tasks/several_labels",
    "duplicate questions": "tasks/text_pairs",
    "entailment": "tasks/text_pairs",
    "similarity": "tasks/regression",
    "question answering": "tasks/question_answering",
    "multiple choice": "tasks/multiple_choice",
    "embeddings": "tasks/embeddings",
    "masked language model": "tasks/pretraining",
    "explain": "howto/explain",
    "Shapley": "howto/explain",
    "long texts": "howto/long_texts",
    "imbalanced": "howto/small_data",
    "calibration": "howto/thresholds",
    "hyperparameter search": "howto/grid_search",
    "cross-validation": "howto/small_data",
    "early stopping": "reference/classifier",
    "MLflow": "howto/tracking",
    "FastAPI": "howto/serve",
    "ONNX": "howto/export",
    "quantization": "howto/export",
    "dtype": "howto/speed",
    "out of memory": "help/troubleshooting",
    "GPU": "help/troubleshooting",
    "learning rate": "concepts/glossary",
    "cite": "project/cite",
}


@pytest.mark.parametrize("phrase", SEARCHED)
def test_a_search_finds_what_people_look_for(phrase):
    text = (DOCS / f"{SEARCHED[phrase]}.md").read_text(encoding="utf-8")
    words, wanted = re.findall(r"\w+", text.lower()), re.findall(r"\w+", phrase.lower())
    assert wanted in [words[i : i + len(wanted)] for i in range(len(words))]


def test_every_page_is_in_the_contents():
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    pages = {name for name in pages if not name.startswith(("_build", "gallery", "start/_install"))}
    listed = {"index"}
    for name in pages:
        for contents in re.findall(r"```{toctree}\n(.*?)```", (DOCS / f"{name}.md").read_text("utf-8"), re.DOTALL):
            entries = [line for line in contents.split("\n") if line and not line.startswith(":")]
            listed |= {(Path(name).parent / entry).as_posix() for entry in entries}
    assert pages <= listed


def test_a_citation_is_that_of_the_file():
    page = (DOCS / "project" / "cite.md").read_text(encoding="utf-8").replace("{", "").replace("}", "")
    facts = (DOCS.parent / "CITATION.cff").read_text(encoding="utf-8")
    for name in ("title", "doi", "repository-code"):
        for value in re.findall(rf'^ *{name}: "?(.*?)"?$', facts, re.MULTILINE):
            assert value in " ".join(page.split()), value


def test_columns_of_results():
    pytest.importorskip("sphinx", reason="run: pip install 'kbert-learn[docs]'")
    selected = runpy.run_path(str(DOCS / "results_table.py"))["selected"]
    text = 'task,"paper, test",seed,fit_s\ncola,0.521,0,226\n'
    assert selected(text, 'task, "paper, test", fit_s = seconds') == 'task,"paper, test",seconds\ncola,0.521,226\n'
    with pytest.raises(ValueError, match="the file has no column rate. It has: task, paper, test, seed, fit_s"):
        selected(text, "task, rate")
    with pytest.raises(ValueError, match="8 columns of the file: a page has room for 7"):
        selected(text, ", ".join(["task"] * 8))
