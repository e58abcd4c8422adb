"""A display as HTML: of texts with marks in them, in a page or in a notebook.

All is in one piece, with no script and no request. Every text is escaped, and stands in the page character by
character: what a mark adds (a label, a score) is an attribute, which the style shows.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kbert.values.number_rules import whole_number

# Every text on every ground has a contrast of 4.5 or more, in both schemes (WCAG 2.2, 1.4.3), which a test measures.
# Grounds are numbers, so that a mark can have them at any strength: the style's --strength.
_STYLE = """
.kbert-display{--ground:#ffffff;--ink:#1a1a1a;--quiet:#595959;--line:#d0d0d0;--for:100,170,240;--against:245,165,80;
--hue-0:158,202,245;--hue-1:250,196,140;--hue-2:160,220,170;--hue-3:240,180,215;--hue-4:205,190,245;--hue-5:235,215,120;
--hue-6:150,220,220;--hue-7:215,205,195;color-scheme:light;background:var(--ground);color:var(--ink);
font:16px/1.9 system-ui,sans-serif;padding:12px;max-width:70em;box-sizing:border-box;overflow-wrap:anywhere}
.kbert-display section{border-top:1px solid var(--line);padding:8px 0}
.kbert-display section:first-of-type{border-top:0}
.kbert-display p{margin:0;color:var(--quiet);font-size:14px;line-height:1.5}
.kbert-display p b{color:var(--ink)}
.kbert-display .text{white-space:pre-wrap}
.kbert-display mark{color:inherit;border-radius:3px;padding:2px 1px;-webkit-box-decoration-break:clone;
box-decoration-break:clone}
.kbert-display .for{background:rgba(var(--for),var(--strength))}
.kbert-display .against{background:rgba(var(--against),var(--strength));text-decoration:underline dotted 1px;
text-underline-offset:3px}
.kbert-display .labelled::after{content:attr(data-label);font-size:11px;font-weight:700;margin:0 3px;
unicode-bidi:isolate}
.kbert-display ol{margin:4px 0;padding-inline-start:2em;font-size:15px;line-height:1.6}
.kbert-display .value{color:var(--quiet);font-variant-numeric:tabular-nums}
@media (prefers-color-scheme:dark){.kbert-display{--ground:#1b1b1b;--ink:#ededed;--quiet:#b0b0b0;--line:#444444;
--for:30,95,160;--against:140,75,10;--hue-0:25,80,135;--hue-1:125,70,15;--hue-2:25,95,45;--hue-3:125,45,95;
--hue-4:85,65,150;--hue-5:100,80,5;--hue-6:10,90,95;--hue-7:85,78,70;color-scheme:dark}}
""".strip()
_N_HUES = 8
# Around the display, where it is a page of its own.
_PAGE_STYLE = """
body{margin:0;background:#ffffff}
@media (prefers-color-scheme:dark){body{background:#1b1b1b}}
""".strip()


class Mark(NamedTuple):
    """A part of a text that stands out.

    Attributes
    ----------
    start, end : int
        In characters, the end exclusive.
    kind : str
        Names for the style: "for", "against" or "labelled".
    values : dict
        What the mark says, for those who read the page: ``data-...`` attributes.
    style : str
        Values of the style.
    title : str
        What is shown where the pointer rests.
    """

    start: int
    end: int
    kind: str
    values: Mapping[str, Any]
    style: str
    title: str


def hue(number: int) -> str:
    """The ground of the labels with this number."""
    return f"background:rgb(var(--hue-{number % _N_HUES}))"


def escaped(value: Any) -> str:
    """A text that HTML shows character by character, in an element or in an attribute."""
    # A reader of HTML takes a carriage return for a line feed.
    return html.escape(str(value), quote=True).replace("\r", "&#13;")


def marked(text: str, marks: Iterable[Mark]) -> str:
    """A text with marks, which are in order and do not overlap.

    Raises
    ------
    ValueError
        If a mark begins before the one before it ends, or beyond the text.
    """
    pieces, before = [], 0
    for mark in marks:
        if not before <= mark.start <= mark.end <= len(text):
            raise ValueError(
                f"A mark from character {mark.start} to {mark.end} overlaps another one, or is not in the text of "
                f"{len(text)} characters. Are the rows those of X?"
            )
        values = "".join(f' data-{name}="{escaped(value)}"' for name, value in mark.values.items())
        style = f' style="{mark.style}"' if mark.style else ""
        title = f' title="{escaped(mark.title)}"' if mark.title else ""
        pieces += [
            escaped(text[before : mark.start]),
            f'<mark class="{mark.kind}"{values}{style}{title}>{escaped(text[mark.start : mark.end])}</mark>',
        ]
        before = mark.end
    # The first strong letter says in which direction a text is written.
    return f'<div class="text" dir="auto">{"".join(pieces)}{escaped(text[before:])}</div>'


def lines_of_rows(lines: Any) -> Iterator[tuple[int, Any]]:
    """The lines of each row that has some, as smaller DataFrames, in order."""
    # Without their index, whose name may be that of a column.
    for row, of_row in lines.reset_index(drop=True).groupby("row", sort=True):
        yield int(row), of_row


def require_columns(lines: Any, names: tuple[str, ...], method: str) -> None:
    """Refuse what is not the DataFrame that an estimator's ``method`` gives."""
    missing = [name for name in names if name not in getattr(lines, "columns", ())]
    if missing:
        raise ValueError(f"Give the DataFrame that {method} returns: there is no column {', '.join(missing)}.")


def require_rows(lines: Any, n_rows: int) -> None:
    """Refuse lines of rows that X does not have: they would not be shown."""
    others = [row for row in lines["row"] if row not in range(n_rows)]
    if others:
        raise ValueError(
            f"There are lines of row {others[0]}, and X has {n_rows} rows, counted from 0. Give the X that they are of."
        )


class HtmlPage:
    """Base of all that is shown as HTML. A subclass says what the page is called, and gives its body."""

    _title = "kbert"
    # What a subclass adds to the style.
    _own_style = ""

    def _body(self) -> str:
        """The HTML of all sections."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f'<div class="kbert-display"><style>{_STYLE}{self._own_style}</style>{self._body()}</div>'

    def html(self) -> str:
        """All of it as a page of its own.

        Returns
        -------
        str
        """
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escaped(self._title)}</title><style>{_PAGE_STYLE}</style></head>"
            f"<body>{self._repr_html_()}</body></html>\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file in UTF-8.

        Parameters
        ----------
        path : str or Path
            A file that is there is replaced, and folders that are not there are made. "~" is the home folder.
        """
        file = Path(path).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.html(), encoding="utf-8", newline="")


class HtmlDisplay(HtmlPage):
    """Base of the displays of rows. A subclass gives the HTML of each row.

    Parameters
    ----------
    max_rows : int, default=50
        How many rows are shown.
    """

    def __init__(self, max_rows: int = 50):
        self.max_rows = whole_number(max_rows, "max_rows")

    def _n_rows(self) -> int:
        raise NotImplementedError

    def _sections(self) -> Iterator[str]:
        """The HTML of each row."""
        raise NotImplementedError

    def _body(self) -> str:
        shown = [section(body) for _, body in zip(range(self.max_rows), self._sections(), strict=False)]
        n_more = self._n_rows() - len(shown)
        more = f"<p>and {n_more} more rows; max_rows={self._n_rows()} shows all.</p>" if n_more > 0 else ""
        return "".join(shown) + more


def section(body: str) -> str:
    """A part of a page."""
    return f"<section>{body}</section>"
