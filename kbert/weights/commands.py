"""The commands about weights, for `kbert.cli`: ``convert`` and ``info``. What they need is imported when they run."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbert.values.printable import printable

if TYPE_CHECKING:
    from kbert.weights.convert import Row


class ConvertCommand:
    """Write weights in another format, array by array, and print what became of each.

    SOURCE is a weights folder of any format that kbert reads, a name of weights, or a .keras or .weights.h5 file of one
    of kbert's models. Arrays are written as float32, bit for bit; those of float64 are rounded. If one is wrong or
    missing, nothing is written.
    """

    name = "convert"
    summary = "write weights in another format"
    example = "kbert convert kerashub://bert_tiny_en_uncased bert-tiny --to hf"
    required = ("source", "target", "to")
    either: tuple[tuple[str, ...], ...] = ()
    if_interrupted = "The same call starts again; nothing was written."

    def add_options(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("source", nargs="?", metavar="SOURCE", help="folder, file or name of weights")
        parser.add_argument("target", nargs="?", type=Path, metavar="TARGET", help="a new folder")
        # Those of kbert.weights.convert.TARGETS, whose import would slow down the help.
        formats = ("hf", "google", "kerashub")
        parser.add_argument("--to", choices=formats, metavar="FORMAT", help=f"one of {', '.join(formats)}")
        parser.add_argument("--quiet", action="store_true", help="no table")

    def run(self, options: Namespace) -> None:
        """Convert, and print the table."""
        from kbert.weights.convert import convert

        rows = convert(options.source, options.target, options.to)
        if not options.quiet:
            _print_table(rows)
        arrays = [row for row in rows if row.shape is not None and row.target]
        skipped = sum(row.done.startswith("skipped") for row in rows)
        print(f"{len(arrays)} arrays written, {skipped} skipped; the weights are in {printable(str(options.target))}")


class InfoCommand:
    """Print what a weights folder holds: format, architecture, parts, vocabulary, labels, licence and checksum.

    All arrays are read and checked.
    """

    name = "info"
    summary = "tell what a weights folder holds"
    example = "kbert info google-bert/bert-base-uncased"
    required = ("folder",)
    either: tuple[tuple[str, ...], ...] = ()
    if_interrupted = ""

    def add_options(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("folder", nargs="?", metavar="FOLDER", help="folder, file or name of weights")

    def run(self, options: Namespace) -> None:
        """Read, and print."""
        from kbert.weights.describe import describe

        facts = describe(options.folder)
        width = max(map(len, facts))
        for title, text in facts.items():
            wrapper = textwrap.TextWrapper(
                110,
                initial_indent=f"{title:{width}}  ",
                subsequent_indent=" " * (width + 2),
                break_long_words=False,
                break_on_hyphens=False,
            )
            print(wrapper.fill(printable(text)))


COMMANDS = (ConvertCommand(), InfoCommand())


def _print_table(rows: Sequence[Row]) -> None:
    """Print one line for each row. Lines are not wrapped, so that they can be searched and compared."""
    cells: list[tuple[str, ...]] = [("source", "target", "shape", "what was done")]
    cells += [(row.source or "-", row.target or "-", _shown(row.shape), row.done) for row in rows]
    # Names of arrays and labels come from the file.
    cells = [tuple(map(printable, line)) for line in cells]
    widths = [max(len(line[i]) for line in cells) for i in range(3)]
    for line in cells:
        print("  ".join([*(f"{text:{width}}" for text, width in zip(line, widths, strict=False)), line[3]]))
    print()


def _shown(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else " x ".join(map(str, shape))
