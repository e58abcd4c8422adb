"""What the user is told of rows that were cut, or have an empty text: once in fit, and again only if there are more.

And in fit, of words that the vocabulary lacks, and of rows that are longer than any that the model has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbert.config import BertConfig
from kbert.data.columns import Columns
from kbert.data.frames import listed_positions
from kbert.data.texts import TextColumns
from kbert.errors import MissingTextWarning, ParameterWarning, TruncationWarning, UnknownWordsWarning
from kbert.text import WordPieceTokenizer
from kbert.text.sequences import Sequences
from kbert.values.printable import percent, shown
from kbert.warn import warn_user

# Predicting tells again what fit has told only where the share of such rows is at least this many times as high, and
# higher by this much: 10% in fit and 25% now. Less than that a random sample of the same texts may have (of 32 rows two
# standard deviations are up to 18 points, of 100 rows up to 10), and repeating it would hide what is new.
_TIMES_AS_HIGH = 2.0
_HIGHER_BY = 0.05

# Words that the vocabulary lacks are told of where at least this share of the rows has some: rarer ones decide little.
_MANY_WITH_UNKNOWN = 0.05
# What a missing value is in Python, NumPy and pandas, written as a text.
_WRITTEN_MISSING = frozenset(("nan", "NaN", "None", "<NA>", "NaT"))
# In so many of these rows examples are looked for.
_ROWS_LOOKED_AT = 100
_EXAMPLES = 3

# Most models of BERT's have no more positions, so no row can be longer.
USUAL_POSITIONS = BertConfig.max_position_embeddings

C = TypeVar("C", bound=Columns)


class RowShares(NamedTuple):
    """The shares of the rows of a fit that the user has been told of, from 0 to 1."""

    cut: float
    empty: float


class RowReader(Protocol[C]):
    """What reads rows, and knows what to say of them: a task, `TextReader` or `WordReader`."""

    def read(self, X: Any) -> C:
        """X as plain columns."""
        ...

    def warn_cut(self, n_cut: int, n_rows: int, details: str) -> None:
        """Say that rows were cut, and what to do. ``details``: their share, and which they are."""
        ...

    def warn_missing(self, columns: C, n_missing: int, n_rows: int, details: str) -> None:
        """Say that texts are missing; ``columns`` tell what they are."""
        ...


class MissingTexts:
    """What a `RowReader` of texts says of those that are missing."""

    def warn_missing(self, columns: Columns, n_missing: int, n_rows: int, details: str) -> None:
        """Say that texts are missing."""
        warn_user(
            f"{n_missing} of the texts in {n_rows} rows {'are' if n_missing > 1 else 'is'} missing (None, NaN, pd.NA, "
            f"'' or white space) and read as empty ({details}). Every row still gets a result; drop or fill such rows "
            "if that is not wanted.",
            MissingTextWarning,
        )


class RowsRead(NamedTuple, Generic[C]):
    """The rows of one X.

    Attributes
    ----------
    X : array-like
        As the user gave it.
    columns : Columns
        What it was read into.
    cut : ndarray of int64
        The numbers of the rows that were cut; empty as long as this is not known.
    name : str
        What messages call X.
    """

    X: Any
    columns: C
    cut: NDArray[np.int64] = np.array([], np.int64)
    name: str = "X"


def tell_missing(reader: RowReader[C], read: Sequence[RowsRead[C]], of_fit: float | None = None) -> float:
    """Issue one warning about missing and empty texts, if there are any; give the share of the rows that have some.

    Parameters
    ----------
    reader : RowReader
    read : sequence of RowsRead
        The X of one call, and the X of its ``eval_set``.
    of_fit : float, optional
        When predicting, the share in fit: then nothing is said unless the share is much higher.
    """
    n_missing = sum(rows.columns.n_missing for rows in read)
    if not n_missing:
        return 0.0
    found = [rows.columns.missing_rows() for rows in read]
    share, n_rows, details = _described(read, found, of_fit)
    if _is_news(share, of_fit):
        reader.warn_missing(read[0].columns, n_missing, n_rows, details)
    return share


def tell_cut(reader: RowReader[C], read: Sequence[RowsRead[C]], of_fit: float | None = None) -> float:
    """The same for rows that were cut."""
    found = [rows.cut for rows in read]
    n_cut = sum(map(len, found))
    if not n_cut:
        return 0.0
    share, n_rows, details = _described(read, found, of_fit)
    if _is_news(share, of_fit):
        reader.warn_cut(n_cut, n_rows, details)
    return share


def tell_unknown(X: Any, columns: Columns, sequences: Sequences, tokenizer: WordPieceTokenizer) -> None:
    """Issue a warning if many rows have words that the vocabulary lacks, such as emoji.

    Parameters
    ----------
    X : array-like
        As the user gave it.
    columns : Columns
        What it was read into.
    sequences : Sequences
        Its tokens.
    tokenizer : WordPieceTokenizer
    """
    rows = sequences.rows_with(tokenizer.unk_id)
    if len(rows) < _MANY_WITH_UNKNOWN * columns.n_rows:
        return
    words = _unknown_words(columns, rows[:_ROWS_LOOKED_AT], tokenizer)
    if words:
        warn_user(
            f"{len(rows)} of {columns.n_rows} rows have words that the vocabulary lacks, such as "
            f"{' and '.join(map(shown, words))} ({percent(len(rows) / columns.n_rows)} of the rows: "
            f"{listed_positions(X, rows)}). To the model they are all the same, [UNK]. If they matter, replace them by "
            "words before fit and predict (the package emoji has demojize), or take weights of their language.",
            UnknownWordsWarning,
        )


def tell_written_missing(X: Any, columns: Columns) -> None:
    """Issue a warning about texts that are the name of a missing value, as ``astype(str)`` makes them.

    Parameters
    ----------
    X : array-like
        As the user gave it.
    columns : Columns
        What it was read into.
    """
    if not isinstance(columns, TextColumns):  # a word may be "None"
        return
    texts = zip(*columns.columns, strict=True)
    found = {i: text for i, row in enumerate(texts) for text in row if text in _WRITTEN_MISSING}
    if found:
        rows, names = np.array(list(found), np.int64), dict.fromkeys(found.values())
        warn_user(
            f"{len(rows)} of {columns.n_rows} rows have the text {' or '.join(map(shown, names))} "
            f"({listed_positions(X, rows)}): a missing value looks so once it was made a text. It is read like any "
            "other text. If it was a missing value, leave such rows out.",
            MissingTextWarning,
        )


def tell_untrained(config: BertConfig, lengths: NDArray[np.int64]) -> None:
    """Issue a warning if sequences are longer than those that the model was pre-trained on.

    Parameters
    ----------
    config : BertConfig
        Of the start.
    lengths : ndarray of int64
        Tokens of each sequence to train on.
    """
    n_trained = config.num_trained_positions
    if not n_trained or not (n_longer := int((lengths > n_trained).sum())):
        return
    warn_user(
        f"{n_longer} of {len(lengths)} sequences have more than {n_trained} tokens, and this model was pre-trained on "
        f"texts of up to {n_trained}, which did not reach its positions beyond: they are learned in this fit alone. "
        f"Set max_length={n_trained}, with long_text='window' where there is one; or pre-train on longer texts, in "
        "rows that hold them (max_length of BertPretrainer, --phases of kbert pretrain).",
        ParameterWarning,
    )


def _unknown_words(columns: Columns, rows: NDArray[Any], tokenizer: WordPieceTokenizer) -> list[str]:
    """The first words that the tokenizer does not know, as they stand in the texts.

    Words in ASCII do not count: a released vocabulary has all its characters, so they are unknown where they have over
    a hundred of them, or in a vocabulary that was learned from other text.
    """
    texts = [text for row in rows.tolist() for text in columns.rows(slice(row, row + 1)).texts()]
    ids, offsets = tokenizer.tokenize_with_offsets(texts)
    unknown = np.flatnonzero(ids.values == tokenizer.unk_id)
    of_text = np.searchsorted(ids.splits, unknown, side="right") - 1
    words = (texts[i][slice(*offsets[at])] for i, at in zip(of_text, unknown, strict=True))
    return list(dict.fromkeys(word for word in words if not word.isascii()))[:_EXAMPLES]


def _is_news(share: float, of_fit: float | None) -> bool:
    """Whether a share of rows has to be told. Where fit had none, nothing was said yet."""
    return not of_fit or (share >= _TIMES_AS_HIGH * of_fit and share - of_fit >= _HIGHER_BY)


def _described(
    read: Sequence[RowsRead[C]], found: Sequence[NDArray[np.int64]], of_fit: float | None
) -> tuple[float, int, str]:
    """The share of the found rows, the number of all rows, and a description: "5%: rows 3, 17 and 2 more"."""
    n_rows = sum(rows.columns.n_rows for rows in read)
    share = sum(map(len, found)) / n_rows
    in_fit = f", and in fit {percent(of_fit)}" if of_fit else ""
    places = [
        ("" if rows.name == "X" else f"of {rows.name} ") + listed_positions(rows.X, numbers)
        for rows, numbers in zip(read, found, strict=True)
        if len(numbers)
    ]
    return share, n_rows, f"{percent(share)} of the rows{in_fit}: {'; '.join(places)}"


def warn_cut_texts(n_cut: int, n_rows: int, max_length: int, details: str, remedy: str) -> None:
    """Say that texts were cut to ``max_length`` tokens."""
    warn_user(
        f"{n_cut} of {n_rows} rows have more than max_length={max_length} tokens and were cut ({details}). {remedy}",
        TruncationWarning,
    )
