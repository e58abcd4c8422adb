"""The code of the site's pages runs as it stands, with a smaller BERT than minilm-l6; the thorough tests take that."""

import os
import random
import re
import runpy
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
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
    "tasks/pretraining",
    "howto/small_data",
    "howto/long_texts",
    "howto/plan",
    "howto/columns",
    "howto/explain",
    "howto/export",
    "howto/thresholds",
    "howto/report",
    "howto/grid_search",
    "howto/speed",
    "howto/several_devices",
    "howto/fits_that_survive",
    "howto/tables",
    "howto/tracking",
    "howto/offline",
    "help/troubleshooting",
    "concepts/bert",
    "concepts/tokens",
    "concepts/fit",
    "concepts/reproducibility",
    "reference/datasets",
    "reference/classifier",
    "reference/cli",
    "reference/errors",
    "reference/scikit_learn",
]
# Where the data of the first examples are for those who have no clone.
DATA = "https://raw.githubusercontent.com/kbert-learn/kbert/main/examples/data/"
# What comes out the same under every model and on every machine, so that it is compared to the letter here too.
EXACT = {"concepts/tokens", "reference/datasets", "tasks/pretraining"}
# What takes long on a page or is made of much data, and what stands in its place here.
SHORTER = {
    "tasks/text_pairs": {"sample(4000,": "sample(40,", "sample(1000,": "sample(40,"},
    "tasks/regression": {"sample(500,": "sample(40,"},
    "tasks/embeddings": {'support_messages.csv")': 'support_messages.csv", nrows=150)'},
    "howto/columns": {"max_leaf_nodes=8": "max_leaf_nodes=8, max_iter=10"},
    "tasks/pretraining": {
        "max_seconds=3600,": "max_steps=2,",
        "max_steps=100,": "max_steps=2,",
        "n_jobs=-1": "n_jobs=1",
        'from_size("base")': 'from_size("tiny")',
        "max_steps=100_000,": "max_steps=10,",
        "batch_size=256": "batch_size=2",
    },
    "reference/classifier": {"tune_thresholds=True)": "tune_thresholds=True, epochs=1)"},
}


def test_every_task_page_is_run():
    without_code = {"tasks/index"}
    tasks = {f"tasks/{path.stem}" for path in (DOCS / "tasks").glob("*.md")}
    assert tasks - set(PAGES) == without_code
    assert not any(pages["blocks"]((DOCS / f"{name}.md").read_text(encoding="utf-8")) for name in without_code)


def needs(text):
    """Skip a page that reads public data where they are not there."""
    if "datasets.load(" in text and not os.environ.get("KBERT_DATA"):
        pytest.skip("set KBERT_DATA to a folder with the public data sets (see CONTRIBUTING.md)")


def run(name, layers=6, shorter=(), epochs=None):
    """A page's blocks, each with what it printed. At most so many layers are frozen; ``epochs`` replaces all others."""
    page = DOCS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    needs(text)
    for long, short in dict(shorter).items():
        assert text.count(long) == 1, f"{name} has no {long}, or more than one"
        text = text.replace(long, short)
    text = re.sub(r"freeze=(\d)", lambda match: f"freeze={min(int(match[1]), layers)}", text)
    if epochs is not None:
        text = re.sub(r"\bepochs=\d+", f"epochs={epochs}", text)
    with pages["working_folder"]():
        return list(pages["run"](page, text))


@pytest.fixture
def made_up_data(tmp_path, monkeypatch):
    """Data sets that pages load, with a few rows that are made up."""
    pairs = [f"How many?\tHow much of {i}?\t{i % 2}" for i in range(40)]
    files = {
        "qqp/train.tsv": ["question1\tquestion2\tis_duplicate", *pairs],
        "qqp/dev.tsv": ["question1\tquestion2\tis_duplicate", *pairs],
        "stsb/train.tsv": ["sentence1\tsentence2\tscore", *pairs],
        "conll2003/train.txt": ["Ada NNP B-NP B-PER\nleft VBD B-VP O\nOslo NNP B-NP B-LOC\n"] * 10,
    }
    for name, lines in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("KBERT_DATA", str(tmp_path))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")  # so small a model learns little
@pytest.mark.usefixtures("bert_tiny_for_all", "one_pass", "made_up_data")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs(name):
    epochs = None if name == "howto/tracking" else 1  # it prints a line for each epoch
    for block, printed in run(name, layers=2, shorter=SHORTER.get(name, ()), epochs=epochs):
        if block.output is not None:
            assert block.output.strip(), f"line {block.line} shows an empty output"
            assert printed.rstrip().count("\n") == block.output.rstrip().count("\n"), f"line {block.line}"
            if name in EXACT:
                assert pages["differences"](block.output, printed, 0) == []


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.usefixtures("minilm_folder")
@pytest.mark.parametrize("name", [name for name in PAGES if name != "tasks/pretraining"])  # which takes hours
def test_a_page_shows_what_is_printed(name):
    for block, printed in run(name):
        if block.output is not None:
            assert pages["differences"](block.output, printed, 0.1) == [], f"line {block.line}"


def test_what_runs_without_a_clone():
    for name in ("../README", "index"):
        (block, *_) = pages["blocks"]((DOCS / f"{name}.md").read_text(encoding="utf-8"))
        (place,) = re.findall(r'read_csv\("examples/data/(.*?)"\)', block.code)
        assert f"<{DATA}{place}>" in (DOCS / f"{name}.md").read_text(encoding="utf-8")
        assert (ROOT / "examples" / "data" / place).is_file()


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
    text = "<!-- pasted: x -->\n```text\n$ a b \\\n --c\n1 of 2\n  data\n```\n\n<!-- pasted: x -->\n```text\nend\n```\n"
    assert pages["commands"](text) == [("a b   --c", ["1 of 2", "end"])]


@pytest.fixture
def folder_of_commands(tmp_path, monkeypatch, bert_tiny_folder):
    """The current folder, which has what the commands on the pages read."""
    monkeypatch.chdir(tmp_path)
    people = ["Ada wrote a program.", "Grace found the bug.", "Alan broke that code."]
    text = "\n\n".join("\n".join(random.Random(i).choices(people, k=8)) for i in range(20))
    (tmp_path / "wikipedia").mkdir()
    for name in ("wikipedia/0.txt", "held_out.txt"):
        (tmp_path / name).write_text(text)
    (tmp_path / "run.toml").write_text("[pretrain]\nbatchsize = 32\n")
    (tmp_path / "bert-tiny").symlink_to(bert_tiny_folder)
    (tmp_path / "support_messages.csv").symlink_to(ROOT / "examples" / "data" / "support_messages.csv")


def masked(text):
    """In one line, with # for each number and checksum."""
    return " ".join(re.sub(r"\b[0-9a-f]{64}\b|\d[\d,.]*(?:e-\d+)?,?", "#", text).split())


@pytest.mark.slow
@pytest.mark.usefixtures("folder_of_commands", "bert_tiny_for_all")
@pytest.mark.parametrize("name", ["reference/cli", "howto/weights"])
def test_commands_print_what_a_page_shows(name, capfd):
    from kbert.cli import main

    for command, shown in pages["commands"]((DOCS / f"{name}.md").read_text(encoding="utf-8")):
        command = re.sub(r"--max-seconds \d+", "--max-steps 2 --batch-size 4", command)
        main(shlex.split(command)[1:])
        printed = masked("".join(capfd.readouterr()))
        assert shown and [line for line in shown if masked(line) not in printed] == [], printed


def test_outputs_are_compared_by_words_and_numbers():
    differences = pages["differences"]
    assert differences("accuracy 0.90\n", "accuracy  0.86\n", 0.1) == []
    assert differences("accuracy 0.90\n", "accuracy 0.76\n", 0.1) == ["it shows 0.90, and prints 0.76"]
    assert len(differences("accuracy 0.90\n", "error 0.90\n", 0.1)) == 1


@pytest.mark.slow
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
        refused = client.post(
            "/predict", content=r'{"texts": ["\ud83d"]}', headers={"Content-Type": "application/json"}
        )
        assert refused.status_code == 422 and "surrogate" in refused.json()["detail"]
        assert client.post("/predict", json={"texts": ["so " * 7000]}).status_code == 422
    expected = classifier.predict_proba(["so good", "so bad"])
    assert [line["label"] for line in answer.json()] == list(classifier.classes_[expected.argmax(axis=1)])
    assert [line["probability"] for line in answer.json()] == pytest.approx(expected.max(axis=1).tolist())
