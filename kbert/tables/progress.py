"""The bar of `predict_table`, whose total is an estimate where the files do not say how many rows they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbert.tables.files import Head, format_of, read_in_parts

# The usual line of a bar, whose total is an estimate.
_ABOUT = "{l_bar}{bar}| {n_fmt}/~{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class RowTotal:
    """How many rows there are in all, for the bar.

    Parquet says it. Of other files the bytes that are still to be read, packed as they are, are taken to hold as many
    rows each as those that were read. The bar shows such an estimate as "~60".
    """

    def __init__(self, bar: Any, heads: dict[Path, Head]):
        self.bar = bar
        self.known = sum(head.n_rows or 0 for head in heads.values())
        self.sizes = {file: file.stat().st_size for file in heads if format_of(file) != "parquet"}
        self.rows = self.n_bytes = 0  # read so far of files of other formats
        self.bar.total = None if self.sizes else self.known

    def parts_of(self, file: Path, n_rows: int, columns: list[str] | None, faults: dict[str, str]) -> Iterator[Any]:
        """The rows of a file as `read_in_parts` has them. With each of its tables, the total is estimated anew."""
        before = self.n_bytes

        def tell(n_bytes: int) -> None:
            self.n_bytes = before + n_bytes

        try:
            for table in read_in_parts(file, n_rows, tell, columns, faults):
                if file in self.sizes:
                    self.rows += table.num_rows
                    self._show(round(self.rows * sum(self.sizes.values()) / self.n_bytes), _ABOUT)
                yield table
        finally:  # of a file that cannot be read, the rest is none to wait for
            self.n_bytes = before + self.sizes.get(file, 0)

    def end(self) -> None:
        """Show how many rows there were."""
        self._show(self.rows, None)

    def _show(self, rows: int, bar_format: str | None) -> None:
        self.bar.total, self.bar.bar_format = self.known + rows, bar_format
        self.bar.refresh()
