"""What is shown of characters that would steer a terminal."""

import sys
import unicodedata

import numpy as np
import pytest

from kbert.values.printable import printable, printable_lines, shown


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\x08b\x7f\x9b2J\r\n\t", r"a\x08b\x7f\x9b2J\r\n\t"),
        ("\u202egpj.exe \u2066\u200f", r"\u202egpj.exe \u2066\u200f"),
        ("one\u2028two\udcff", r"one\u2028two\udcff"),
        (
            "plain: \\x1b, \u00fc, 日本, عربى, a\u00a0b, 👩\u200d🔬",
            "plain: \\x1b, \u00fc, 日本, عربى, a\u00a0b, 👩\u200d🔬",
        ),
    ],
)
def test_what_steers_is_shown_and_all_else_stays(text, shown):
    assert printable(text) == shown


def test_no_character_that_steers_is_left():
    left = printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert {unicodedata.category(character) for character in left}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    # Those of bidirectional text that carry a direction of their own.
    directions = {unicodedata.bidirectional(character) for character in left}
    assert directions.isdisjoint({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def test_lines_stay_where_they_are_wanted():
    assert printable_lines("one\n\x1btwo\r\n") == "one\n\\x1btwo\\r\n"


@pytest.mark.parametrize(
    "value, text",
    [
        (np.int64(3), "3"),
        (np.str_("three"), "'three'"),
        # Python has no dates of nanoseconds: NumPy gives whole numbers for them.
        (np.datetime64("2024-05-01", "ns"), "2024-05-01"),
        (np.datetime64("2024-05-01T12:30:00.000000001"), "2024-05-01T12:30:00.000000001"),
        ("a\n b", "'a\\n b'"),
        ("x" * 100, "'" + "x" * 56 + "..."),
    ],
)
def test_a_value_in_a_message(value, text):
    assert shown(value) == text


def test_a_duration_in_a_message_has_its_unit():
    assert "timedelta64(5,'ns')" in shown(np.timedelta64(5, "ns"))  # NumPy 2 has np. before it
