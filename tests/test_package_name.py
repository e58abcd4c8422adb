"""The distribution is kbert-learn: ``kbert`` on PyPI is another package, of 2020."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import kbert

ROOT = Path(__file__).parents[1]
NAME = "kbert-learn"
SUFFIXES = (".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cff")
# What would install the other package, or find it: pip install kbert, 'kbert[jax]', version("kbert").
ANOTHER = re.compile(r"""pip3? install[^\n`]*[ '"]kbert(?![-\w/.])|['"]kbert\[|version\(["']kbert["']\)""")


def test_it_is_installed_under_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == NAME and project["dynamic"] == ["version"]
    assert kbert.__version__ == metadata.version(NAME)


@pytest.mark.parametrize("text", ["pip install kbert", "run: pip install -U 'kbert[jax]'", 'version("kbert")'])
def test_another_package_is_seen(text):
    assert ANOTHER.search(text) and not ANOTHER.search(text.replace("kbert", NAME))


def test_no_text_installs_another_package():
    folders = [ROOT / name for name in (".ci", ".github", "kbert", "tests", "examples", "docs", "benchmarks")]
    files = [*ROOT.glob("*"), *(path for folder in folders for path in folder.rglob("*") if "_build" not in path.parts)]
    texts = [path for path in files if path.name == "Makefile" or path.suffix in SUFFIXES]
    assert len(texts) > 200
    found = [path for path in texts if path != Path(__file__) and ANOTHER.search(path.read_text(encoding="utf-8"))]
    assert found == []
