"""A pandas column of texts in pyarrow's memory, read some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

# Rows that become Python objects at a time in a loop over all rows.
_ROWS = 1024


class ArrowTexts(Sequence[str]):
    """Texts that become Python objects only when they are read: all of them at once may take gigabytes.

    A slice gives a list. It is equal to a list of the same texts.

    Parameters
    ----------
    array : pandas.api.extensions.ExtensionArray
        Strings in pyarrow's memory.
    missing_as : str, optional
        The text that stands for missing ones. None gives pandas's own value, NaN or NA.
    """

    def __init__(self, array: Any, missing_as: str | None = None):
        self._array, self._missing_as = array, missing_as

    def filled(self) -> ArrowTexts:
        """The same texts, with "" for missing ones."""
        return ArrowTexts(self._array, "")

    def take(self, rows: Any) -> ArrowTexts:
        """Some rows, by number."""
        return ArrowTexts(self._array.take(rows), self._missing_as)

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, rows: int) -> str: ...

    @overload
    def __getitem__(self, rows: slice) -> list[str]: ...

    def __getitem__(self, rows: int | slice) -> str | list[str]:
        if not isinstance(rows, slice):
            i = range(len(self))[rows]
            return self[i : i + 1][0]
        values: list[Any] = self._array[rows].tolist()
        if self._missing_as is None:
            return values
        return [value if type(value) is str else self._missing_as for value in values]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS):
            yield from self[start : start + _ROWS]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | ArrowTexts):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
