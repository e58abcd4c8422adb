"""The gallery, examples/plot_*.py. ``make docs`` runs these scripts, with warnings as errors; no test does it again."""

import ast
import re
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
