"""What messages show: values in one line, and text from files, made safe for a terminal.

The names of labels, of arrays and of files may come from anybody. Printed as they are, they could clear the screen,
hide what stands before them, or look like a line of kbert's own. So what would steer a terminal is shown instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

# Control characters, among them the one that begins ANSI's escape sequences; characters that end a line or turn the
# direction of writing; lone surrogates, which a terminal cannot show. All others stay, such as those that join emoji.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return a text in one line. Characters that steer a terminal are written as in Python: ``\x1b``, ``\n``."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """Return a text as `printable` does, but with its line breaks: those of kbert's own messages."""
    return "\n".join(map(printable, text.split("\n")))


def shown(value: Any) -> str:
    """A value in a message, cut if it is long; a scalar of NumPy's as Python's own, its dates as ISO 8601 has them."""
    numpy = sys.modules.get("numpy")  # errors, and with them `import kbert`, do without it
    if numpy is not None and isinstance(value, numpy.generic):
        if isinstance(value, numpy.datetime64):
            return str(numpy.datetime_as_string(value, unit="auto"))
        if not isinstance(value, numpy.timedelta64):  # of nanoseconds it would become a whole number
            value = value.item()
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(items: Sequence[Any], show: Callable[[Any], str] = str, most: int = 5) -> str:
    """The first few of some items, and how many more there are."""
    return ", ".join(map(show, items[:most])) + (f" and {len(items) - most} more" if len(items) > most else "")


def percent(share: float) -> str:
    """A share in percent, with two digits; three from 99.5% on, which would be shown as all."""
    return f"{100 * share:.2g}%" if share < 0.995 else f"{100 * share:.3g}%"
