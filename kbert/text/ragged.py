"""Rows of different lengths in flat NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# What selects rows: their numbers, a mask with one bool for each row, or a slice.
Selection: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_] | slice


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths in one flat array, as in TensorFlow's RaggedTensor.

    Attributes
    ----------
    values : ndarray of int32 or uint16, shape (n_values,)
        All rows, one after the other.
    splits : ndarray of int64, shape (n_rows + 1,)
        Row i is ``values[splits[i]:splits[i + 1]]``.
    """

    values: NDArray[Any]
    splits: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.splits) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each row, int64, shape (n_rows,)."""
        return np.diff(self.splits)

    def row(self, i: int) -> NDArray[Any]:
        """One row, as a view. Negative numbers count from the end."""
        i = range(len(self))[i]
        return self.values[self.splits[i] : self.splits[i + 1]]

    def rows_with(self, value: int) -> NDArray[np.int64]:
        """The numbers of the rows that have a value, ascending."""
        return np.unique(np.searchsorted(self.splits, np.flatnonzero(self.values == value), side="right") - 1)

    def take(self, selection: Selection) -> Ragged:
        """The selected rows, in the order of the selection."""
        rows = np.arange(len(self))[selection]
        lengths = self.splits[rows + 1] - self.splits[rows]
        return Ragged(self.slices(rows, 0, lengths), row_splits(lengths))

    def slices(self, rows: Selection, starts: int | NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """A slice of each of ``rows``, from its value number ``starts`` on and ``lengths`` long; all concatenated."""
        return self.values[ranges(self.splits[rows] + starts, lengths)]


def row_splits(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Where rows of these lengths begin and end in a flat array: ``splits`` of a `Ragged`."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> NDArray[np.int64]:
    """The numbers from each start on, as many as its length says; all concatenated."""
    splits = row_splits(lengths)
    return np.repeat(starts - splits[:-1], lengths) + np.arange(splits[-1])
