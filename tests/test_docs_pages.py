"""The code of the site's pages runs as it stands, with a smaller BERT than minilm-l6; the thorough tests take that."""

import os
import re
import runpy
from pathlib import Path

import pytest

from kbert.hub import packages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# docs/run_pages.py, which is no module of a package.
pages = runpy.run_path(str(DOCS / "run_pages.py"))

PAGES = [
    "../README",
    "index",
    "start/getting_started",
    "tasks/text_classification",
    "tasks/text_pairs",
    "tasks/regression",
    "tasks/named_entity_recognition",
    "tasks/question_answering",
    "tasks/multiple_choice",
    "tasks/embeddings",
    "tasks/several_labels",
    "howto/small_data",
    "howto/long_texts",
    "howto/plan",
    "howto/columns",
    "howto/explain",
    "howto/export",
    "howto/thresholds",
    "howto/report",
    "howto/grid_search",
    "howto/tracking",
    "howto/offline",
    "help/troubleshooting",
    "concepts/bert",
    "concepts/tokens",
    "concepts/fit",
    "concepts/reproducibility",
    "reference/datasets",
]
# What comes out the same under every model and on every machine, so that it is compared to the letter here too.
EXACT = {"concepts/tokens", "reference/datasets"}


# Task pages whose code is run elsewhere or not at all, with the reason.
ELSEWHERE = {
    "tasks/index": "it has no code",
    "tasks/pretraining": "its runs take minutes to hours; tests/test_example_pretrain.py has a small one",
}


def test_every_task_page_is_run():
    tasks = {f"tasks/{path.stem}" for path in (DOCS / "tasks").glob("*.md")}
    assert tasks - set(PAGES) == set(ELSEWHERE)
    shown = {name for name in ELSEWHERE if pages["blocks"]((DOCS / f"{name}.md").read_text(encoding="utf-8"))}
    assert shown <= {"tasks/pretraining"}


def needs(text):
    """Skip a page that reads public data where they are not there."""
    if "datasets.load(" in text and not os.environ.get("KBERT_DATA"):
        pytest.skip("set KBERT_DATA to a folder with the public data sets (see CONTRIBUTING.md)")


def run(name, layers=6):
    """A page's blocks, each with what it printed. At most so many layers are frozen."""
    page = DOCS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    needs(text)
    text = re.sub(r"freeze=(\d)", lambda match: f"freeze={min(int(match[1]), layers)}", text)
    with pages["working_folder"]():
        return list(pages["run"](page, text))


@pytest.fixture
def smaller(bert_tiny_folder, monkeypatch):
    """BERT-tiny is what the name of minilm-l6 stands for."""
    package = packages.PACKAGES[MINILM]._replace(module="cognition", sha256={})
    monkeypatch.setitem(packages.PACKAGES, MINILM, package)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")  # so small a model learns little
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs(name, smaller):
    for block, printed in run(name, layers=2):
        if block.output is not None:
            assert block.output.strip(), f"line {block.line} shows an empty output"
            assert printed.rstrip().count("\n") == block.output.rstrip().count("\n"), f"line {block.line}"
            if name in EXACT:
                assert pages["differences"](block.output, printed, 0) == []


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.usefixtures("minilm_folder")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_is_printed(name):
    for block, printed in run(name):
        if block.output is not None:
            assert pages["differences"](block.output, printed, 0.1) == [], f"line {block.line}"


def test_every_output_is_compared_or_says_why_not():
    found = {
        path.relative_to(DOCS).as_posix(): pages["unchecked"](path.read_text(encoding="utf-8"), name in PAGES)
        for path in DOCS.rglob("*.md")
        if not {"_build", "gallery"} & set(path.relative_to(DOCS).parts)
        for name in [path.relative_to(DOCS).with_suffix("").as_posix()]
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
    shown = "```python\nf()\n```\n\n```text\n1\n```\n\n<!-- drawn -->\n```text\na\n```\n\n```text\nb\n```\n"
    assert pages["unchecked"](shown, True) == [14] and pages["unchecked"](shown, False) == [5, 14]


def test_blocks_are_found():
    hidden = "<!-- run:\nx = 1\n-->\n\n```python\nprint(x)\n```\n\n```text\n1\n```\n"
    assert pages["blocks"](hidden) == [("x = 1\n", 2, None), ("print(x)\n", 6, "1\n")]
    assert pages["written"](hidden, ["", "2\n"]) == hidden.replace("```text\n1\n", "```text\n2\n")
    text = "a\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n<!-- not run: no -->\n```python\n1 / 0\n```\n"
    assert pages["blocks"](text) == [("print(1)\n", 3, "1\n")]
    assert pages["written"](text, ["2\n3\n"]) == text.replace("```text\n1\n", "```text\n2\n3\n")
    assert pages["written"]("```python\nf()\n```\n", ["2\n"]) == "```python\nf()\n```\n"


def test_outputs_are_compared_by_words_and_numbers():
    differences = pages["differences"]
    assert differences("accuracy 0.90\n", "accuracy  0.86\n", 0.1) == []
    assert differences("accuracy 0.90\n", "accuracy 0.76\n", 0.1) == ["it shows 0.90, and prints 0.76"]
    assert len(differences("accuracy 0.90\n", "error 0.90\n", 0.1)) == 1


def test_the_service_answers(bert_tiny_folder, tmp_path, monkeypatch):
    testing = pytest.importorskip("fastapi.testclient", reason="run: pip install fastapi httpx")
    from kbert import BertClassifier

    texts, labels = ["so good", "so bad"] * 8, ["pos", "neg"] * 8
    classifier = BertClassifier(weights=bert_tiny_folder, epochs=1, random_state=0).fit(texts, labels)
    classifier.save(tmp_path / "support-model")
    monkeypatch.chdir(tmp_path)
    (block,) = pages["blocks"]((DOCS / "howto" / "serve.md").read_text(encoding="utf-8"))
    (tmp_path / "service.py").write_text(block.code, encoding="utf-8")
    app = runpy.run_path("service.py")["app"]
    with testing.TestClient(app) as client:
        answer = client.post("/predict", json={"texts": ["so good", "so bad"]})
        assert client.post("/predict", json={"texts": []}).status_code == 422
    expected = classifier.predict_proba(["so good", "so bad"])
    assert [line["label"] for line in answer.json()] == list(classifier.classes_[expected.argmax(axis=1)])
    assert [line["probability"] for line in answer.json()] == pytest.approx(expected.max(axis=1).tolist())
