"""docs/project/architecture.md names files and functions: they are there."""

import re
from pathlib import Path

import pytest

import kbert

ROOT = Path(__file__).parents[1]
PACKAGE = Path(kbert.__file__).parent
# Without the code of the new task, whose names are its own (`tests/estimators/test_new_task.py` runs it).
TEXT = (ROOT / "docs" / "project" / "architecture.md").read_text(encoding="utf-8")
PAGE = re.sub(r"```python\n.*?```", "", TEXT, flags=re.DOTALL)
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
# The rows of the tables on the way of one row: what happens, functions, files.
STEPS = re.findall(r"^\| [^|`]+ \| ((?:`[^`|]+`(?:, )?)+) \| ((?:`[^`|]+`(?:, )?)+) \|$", PAGE, re.MULTILINE)


def test_the_files_that_it_names_are_there():
    names = {name.removeprefix("kbert/") for name in re.findall(r"`([\w./*]+\.py)`", PAGE)}
    known = {*SOURCES, *(source.rpartition("/")[2] for source in SOURCES)}
    assert len(names) > 40
    assert not {
        name for name in names if name not in known and not list(PACKAGE.glob(name)) and not (ROOT / name).exists()
    }


@pytest.mark.parametrize("functions, files", STEPS)
def test_a_step_is_in_one_of_its_files(functions, files):
    names = re.findall(r"`([\w./*]+)`", files)
    texts = [text for file, text in SOURCES.items() if any(Path(file).match(name) for name in names)]
    for function in re.findall(r"`([\w.]+)`", functions):
        name = function.rpartition(".")[2]
        assert any(re.search(rf"(def|class) {name}\b", text) for text in texts), f"{function} is in none of {files}"


def test_the_way_of_one_row_is_read():
    assert len(STEPS) > 25
