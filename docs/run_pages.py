"""Runs the code of the site's pages, so that what they show is what is printed.

    python docs/run_pages.py docs/start/getting_started.md ...           # run them, and compare what is printed
    python docs/run_pages.py --write docs/start/getting_started.md ...   # and put it into the pages

The Python blocks of a page run in their order, in one namespace, in a temporary folder that has the repository's
``examples``. A text block right after a Python block is what that prints. A block after a comment
``<!-- not run: why -->`` is left out. The code in a comment ``<!-- run: ... -->`` is run and not shown: it makes the
files and models that the page takes for given.

Every other text block has a comment before it: ``<!-- pasted: why -->`` if a program printed it, else
``<!-- drawn -->``. The commands in pasted blocks, ``$ kbert ...``, are run by a test on little data: what they print is
what the page shows, but for numbers and indented lines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"^(?P<left_out><!-- not run: [^>]+-->\n)?```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?"
    r"|^<!-- run:\n(?P<hidden>.*?)^-->\n",
    re.MULTILINE | re.DOTALL,
)
_TEXT = re.compile(
    r"^(?P<said> *<!-- (?:pasted: [^>]+|drawn) -->\n)? *```text\n", re.MULTILINE
)
_PASTED = re.compile(
    r"^<!-- pasted: [^>]+ -->\n```text\n(?:\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n)?(?P<printed>.*?)^```\n",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


class Block(NamedTuple):
    """A Python block of a page.

    Attributes
    ----------
    code : str
    line : int
        The line of the page on which the code begins, from 1.
    output : str or None
        What the page says that it prints.
    """

    code: str
    line: int
    output: str | None


def blocks(text: str) -> list[Block]:
    """Return the blocks of a page that are to be run."""
    found = []
    for match in _BLOCK.finditer(text):
        name = "code" if match["code"] is not None else "hidden"
        line = text[: match.start(name)].count("\n") + 1
        if not match["left_out"]:
            found.append(Block(match[name], line, match["output"]))
    return found


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a page's pasted blocks, each with the lines that it prints.

    Lines that are indented are left out: they show data, or go on. A block without a command has more of what the last
    one prints.
    """
    found: list[tuple[str, list[str]]] = []
    for match in _PASTED.finditer(text):
        if match["command"]:
            found.append((match["command"].replace("\\\n", " "), []))
        lines = match["printed"].splitlines()
        if found:
            found[-1][1].extend(
                line for line in lines if line.strip() and line[0] != " "
            )
    return found


def unchecked(text: str, is_run: bool) -> list[int]:
    """Return the lines of text blocks that are neither compared with what a run prints nor marked.

    Parameters
    ----------
    text : str
        A page.
    is_run : bool
        Whether the page is run; else all of its text blocks have to be marked.
    """
    if is_run:  # those that follow a block that is run are left out
        text = _BLOCK.sub(
            lambda match: (
                match[0] if match["left_out"] else "\n" * match[0].count("\n")
            ),
            text,
        )
    return [
        text[: match.start()].count("\n") + 1
        for match in _TEXT.finditer(text)
        if not match["said"]
    ]


def run(page: Path, text: str | None = None) -> Iterator[tuple[Block, str]]:
    """Run a page in the current folder, or a changed text of it; yield each block with what it printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text(encoding="utf-8") if text is None else text):
        printed = io.StringIO()
        # Empty lines before the code, so that a traceback has the page's own line.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        yield block, printed.getvalue()


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A temporary folder with the examples, which is the current one meanwhile."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.symlink(ROOT / "examples", "examples")
        yield Path(folder)


def differences(shown: str, printed: str, tolerance: float) -> list[str]:
    """Return what differs: the lines without their numbers, and numbers that differ by more than the tolerance."""
    found = []
    words = [" ".join(_NUMBER.sub("#", text).split()) for text in (shown, printed)]
    if words[0] != words[1]:
        return [f"it shows {shown!r}, and prints {printed!r}"]
    for one, other in zip(
        _NUMBER.findall(shown), _NUMBER.findall(printed), strict=True
    ):
        if abs(float(one) - float(other)) > tolerance:
            found.append(f"it shows {one}, and prints {other}")
    return found


def written(text: str, outputs: list[str]) -> str:
    """Return a page with these outputs in the place of those that it shows, where it shows any."""
    left = iter(outputs)

    def with_output(match: re.Match[str]) -> str:
        if match["left_out"]:
            return match[0]
        output = next(left)
        if match["output"] is None:
            return match[0]
        return (
            match[0][: match.start("output") - match.start()]
            + output.rstrip("\n")
            + "\n```\n"
        )

    return _BLOCK.sub(with_output, text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--write", action="store_true", help="put what is printed into the pages"
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.1, help="by how much a number may differ"
    )
    options = parser.parse_args()
    failed = False
    for page in [page.resolve() for page in options.pages]:
        with working_folder():
            results = list(run(page))
        if options.write:
            text = page.read_text(encoding="utf-8")
            page.write_text(
                written(text, [printed for _, printed in results]), encoding="utf-8"
            )
        for block, printed in results:
            if block.output is not None and not options.write:
                for line in differences(block.output, printed, options.tolerance):
                    print(f"{page.relative_to(ROOT)}:{block.line}: {line}")
                    failed = True
        print(f"{page.relative_to(ROOT)}: {len(results)} blocks run", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
