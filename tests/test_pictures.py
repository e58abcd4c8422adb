"""The pictures of docs/howto: which there are, and when they are made."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def script(tmp_path):
    """docs/make_pictures.py as a module's names, with a folder of its own for what it writes, and no Chromium."""
    names = runpy.run_path(str(DOCS / "make_pictures.py"))
    globals_of_main = names["main"].__globals__
    globals_of_main["MADE_FROM"], globals_of_main["PICTURES"] = tmp_path / "made_from.txt", tmp_path
    globals_of_main["chromium"] = lambda: None
    return globals_of_main


def test_the_pages_show_all_pictures_and_no_others():
    pages = [(DOCS / "howto" / f"{name}.md").read_text(encoding="utf-8") for name in ("displays", "report")]
    shown = re.findall(r"\]\(\.\./pictures/([\w-]+\.png)\)", "".join(pages))
    assert sorted(shown) == sorted(path.name for path in (DOCS / "pictures").glob("*.png")) and len(shown) == 21
    assert max(path.stat().st_size for path in (DOCS / "pictures").glob("*.png")) <= 60_000


def test_pictures_of_the_present_displays_are_kept(script, capsys):
    script["MADE_FROM"].write_text(script["digest"]() + "\n", encoding="utf-8")
    script["main"]([])
    assert capsys.readouterr().out == ""


def test_without_a_browser_the_command_is_told_and_nothing_is_written(script, capsys):
    pytest.importorskip("playwright", reason="pip install playwright")
    pytest.importorskip("PIL", reason="pip install matplotlib")
    script["MADE_FROM"].write_text("that of other displays\n", encoding="utf-8")
    script["main"]([])
    assert "apt-get install chromium" in capsys.readouterr().out
    assert [path.name for path in script["PICTURES"].iterdir()] == ["made_from.txt"]


def test_a_picture_that_is_too_large_is_refused(script, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="pip install matplotlib")
    script["MOST_BYTES"] = 60
    image.new("RGB", (20, 20)).save(tmp_path / "large.png")
    with pytest.raises(SystemExit, match="large.png has"):
        list(script["shrink"](tmp_path))
