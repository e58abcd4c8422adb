"""What building sequences needs of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kbert.text.ragged import Ragged


class ColumnTokenizer(Protocol):
    """A tokenizer of whole columns of texts, as `WordPieceTokenizer` is one and documents it.

    The functions that build sequences and windows take this, so that they need not know `WordPieceTokenizer`, which
    itself calls `build_sequences`.
    """

    @property
    def cls_id(self) -> int:
        """Id of the token at the start of every sequence."""

    @property
    def sep_id(self) -> int:
        """Id of the token at the end of every text."""

    @property
    def unk_id(self) -> int:
        """Id of unknown words."""

    @property
    def vocab_size(self) -> int:
        """The greatest id plus one."""

    def tokenize_column(self, texts: Iterable[str], name: str = "texts", first_row: int = 0) -> Ragged:
        """The token ids of many texts, without special tokens and with nothing cut off."""

    def tokenize_with_offsets(
        self, texts: Iterable[str], name: str = "texts", first_row: int = 0
    ) -> tuple[Ragged, NDArray[np.int32]]:
        """The same, and the first character of each token and the one after its last: shape (n_ids, 2)."""
