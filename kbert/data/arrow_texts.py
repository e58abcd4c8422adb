"""A pandas column of texts that pyarrow holds, read some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Rows that are Python objects at a time while all of them are gone through.
_ROWS = 1024


class ArrowTexts(Sequence):
    """Texts that become Python objects when they are read, and are not kept: all at once may take gigabytes.

    A slice gives a list. It is equal to a list of the same texts.

    Parameters
    ----------
    array : pandas.api.extensions.ExtensionArray
        Of strings that pyarrow holds.
    missing_as : str, optional
        What is read where a text is missing; without it, what pandas has there.
    """

    def __init__(self, array: Any, missing_as: str | None = None):
        self._array, self._missing_as = array, missing_as

    def filled(self) -> ArrowTexts:
        """The same with "" where a text is missing."""
        return ArrowTexts(self._array, "")

    def take(self, rows: Any) -> ArrowTexts:
        """Some rows, by number."""
        return ArrowTexts(self._array.take(rows), self._missing_as)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: int | slice) -> Any:
        if not isinstance(rows, slice):
            i = range(len(self))[rows]
            return self[i : i + 1][0]
        values = self._array[rows].tolist()
        if self._missing_as is None:
            return values
        return [value if type(value) is str else self._missing_as for value in values]

    def __iter__(self) -> Iterator:
        for start in range(0, len(self), _ROWS):
            yield from self[start : start + _ROWS]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | ArrowTexts):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None
