"""Long columns are worked on some rows at a time, so that memory does not grow with them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike


def chunks(sizes: ArrayLike, most_rows: int, most_size: int) -> Iterator[slice]:
    """Cut rows into chunks of neighbouring rows: of a bounded number of rows, and of a bounded size.

    Parameters
    ----------
    sizes : array-like of int, shape (n_rows,)
        The size of each row, in characters for instance.
    most_rows : int
        Greatest number of rows in a chunk.
    most_size : int
        Greatest size of a chunk, in the unit of ``sizes``. A row that is larger than this is a chunk of its own.

    Yields
    ------
    slice
        The rows of each chunk, in order. Its ``stop`` is never beyond ``n_rows``. Without rows there is no chunk.
    """
    ends = np.cumsum(sizes, dtype=np.int64)  # of all rows up to each one
    n_rows, start, size_before = len(ends), 0, 0
    while start < n_rows:
        fitting = int(np.searchsorted(ends, size_before + most_size, "right"))
        stop = min(max(fitting, start + 1), start + most_rows, n_rows)
        yield slice(start, stop)
        start, size_before = stop, int(ends[stop - 1])


def text_chunks(texts: Sequence[str], most_rows: int, most_characters: int) -> Iterator[slice]:
    """Cut texts into chunks of a bounded number of texts and of characters (`chunks`)."""
    return chunks(np.fromiter(map(len, texts), np.int64, len(texts)), most_rows, most_characters)
