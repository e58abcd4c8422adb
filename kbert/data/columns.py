"""What the X of an estimator is read into: one interface, whatever the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


class Columns(Protocol):
    """Rows of X as plain Python lists: of texts, pairs, questions, options or words.

    `TextColumns`, `QuestionColumns`, `ChoiceColumns` and `WordColumn` have these members, and each has attributes of
    its own besides. They are immutable.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def names(self) -> list[str] | None:
        """The names of the columns of a DataFrame, in the order in which they are read; None if X has no names."""

    @property
    def n_missing(self) -> int:
        """How many texts were missing or empty, over all rows and columns; 0 for a selection of rows."""

    @property
    def n_characters(self) -> NDArray[np.int64]:
        """Characters that are tokenised for each row, shape (n_rows,)."""

    def texts(self) -> Iterator[str]:
        """All texts, in no particular order, to learn a vocabulary from."""

    def rows(self, rows: slice) -> Self:
        """Some neighbouring rows."""
