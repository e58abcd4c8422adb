"""The gallery, examples/plot_*.py: its scripts run with a small BERT; ``make docs`` runs them with minilm-l6."""

import ast
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("plot_*.py"))
CONF = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")


def test_the_site_runs_these_scripts_and_no_other_examples():
    tree = ast.parse(CONF)
    (settings,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "sphinx_gallery_conf"
    ]
    assert settings["examples_dirs"] == "../examples"
    run = [
        path
        for path in (ROOT / "examples").glob("*.py")
        if not re.search(settings["ignore_pattern"], path.name) and re.search(settings["filename_pattern"], str(path))
    ]
    assert sorted(run) == SCRIPTS and 8 <= len(SCRIPTS) <= 10


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_a_page_with_a_title_that_others_lead_to(path):
    text = path.read_text(encoding="utf-8")
    title, line, *_ = ast.get_docstring(ast.parse(text)).split("\n")
    assert title and line == "=" * len(title)
    code = text.split('"""', 2)[2].split("\n")
    assert [row for row in code if len(row) > 88 and not row.startswith("#")] == []  # it fits the page
    # No download: the released weights that a package carries, and the data of the repository.
    assert set(re.findall(r'Bert\w+\("([^"]*)"', text)) == {"minilm-l6"}
    assert set(re.findall(r'read_csv\("([^"]*)"\)', text)) <= {"data/support_messages.csv"}
    pages = (ROOT / "docs").rglob("*.md")
    assert any(f"gallery/{path.stem}.rst" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.slow
@pytest.mark.usefixtures("bert_tiny_for_all", "one_pass")
@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot", reason="to draw, run: pip install 'kbert-learn[plots]'")
    plt.switch_backend("agg")
    plt.close("all")  # what other tests have drawn
    monkeypatch.chdir(path.parent)  # as the gallery does
    try:
        runpy.run_path(path.name)
        figures = plt.get_fignums()
    finally:
        plt.close("all")
    assert bool(figures) == (path.stem not in ("plot_answers", "plot_entities"))  # which mark texts
