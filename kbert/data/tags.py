"""Rows of words and their tags, or texts and the spans that are marked in them, from any container. No Keras here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.columns import is_empty, rows_with_empty
from kbert.data.frames import NO_SAMPLES, Column, is_missing, read_column, require_y
from kbert.data.labels import check_n_labels
from kbert.data.mistakes import hint_for_list_as_text, refuse_lists_as_texts
from kbert.errors import LabelsWarning
from kbert.text.chunks import chunks
from kbert.values.printable import percent, shown
from kbert.values.surrogates import require_no_surrogates
from kbert.warn import warn_user

_LISTS = (list, tuple, np.ndarray)
# Spans that a warning shows.
_EXAMPLES = 3
# `WordPieceTokenizer.split_words`.
WordsOfTexts = Callable[[list[str]], tuple[list[list[str]], list[list[tuple[int, int]]]]]

# What is tokenised, and when predicting computed, at a time.
_CHUNK_ROWS = 8192
_CHUNK_WORDS = 200_000
_CHUNK_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class WordColumn:
    """Rows of words, or texts to be split into words. It is one kind of `kbert.data.columns.Columns`.

    Attributes
    ----------
    words : list of list of str
        The words of each row; empty as long as texts are not split.
    raw_texts : list of str or None
        The texts of X; None if X holds lists of words.
    offsets : list of list of (int, int)
        Where each word begins and ends in its text, in characters, the end exclusive; empty if there are no texts, or
        they are not split.
    names : list of str or None
        The name of a DataFrame's column, if it is a str, in a list.
    n_missing : int
        How many words, or texts that are not split, were missing or empty; 0 in `rows` and `take`.
    """

    words: list[list[str]]
    raw_texts: list[str] | None = None
    offsets: list[list[tuple[int, int]]] = field(default_factory=list)
    names: list[str] | None = None
    n_missing: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.words if self.raw_texts is None else self.raw_texts)

    @property
    def is_split(self) -> bool:
        """Whether the words of each row are known."""
        return len(self.words) == self.n_rows

    @property
    def n_characters(self) -> NDArray[np.int64]:
        """Characters of each row: of its text, or of its words together; shape (n_rows,)."""
        if self.raw_texts is not None:
            return np.fromiter(map(len, self.raw_texts), np.int64, self.n_rows)
        return np.fromiter((sum(map(len, row)) for row in self.words), np.int64, self.n_rows)

    def missing_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows with an empty word, or of the empty texts."""
        if self.raw_texts is not None:
            return rows_with_empty([self.raw_texts])
        empty = (any(map(is_empty, row)) for row in self.words)
        return np.flatnonzero(np.fromiter(empty, bool, self.n_rows))

    def texts(self) -> Iterator[str]:
        """The text of each row: its words, with spaces in between, where X holds lists of words."""
        return iter(self.raw_texts) if self.raw_texts is not None else map(" ".join, self.words)

    def rows(self, rows: slice) -> WordColumn:
        """Some neighbouring rows."""
        raw_texts = None if self.raw_texts is None else self.raw_texts[rows]
        return WordColumn(self.words[rows], raw_texts, self.offsets[rows], self.names)

    def take(self, rows: NDArray[Any]) -> WordColumn:
        """Some rows, by their numbers."""
        numbers = rows.tolist()
        words, offsets = ([of_rows[i] for i in numbers] if of_rows else [] for of_rows in (self.words, self.offsets))
        raw_texts = None if self.raw_texts is None else [self.raw_texts[i] for i in numbers]
        return WordColumn(words, raw_texts, offsets, self.names)

    def keys(self) -> Iterator[Hashable]:
        """The text of each row, or its words."""
        return iter(self.raw_texts) if self.raw_texts is not None else map(tuple, self.words)

    def split(self, words_of_texts: WordsOfTexts) -> WordColumn:
        """The same rows with texts split into words; itself if they are split already, or X holds lists of words.

        Parameters
        ----------
        words_of_texts : callable
            Gives the words and offsets of a list of texts: `WordPieceTokenizer.split_words`.
        """
        if self.raw_texts is None or self.is_split:
            return self
        words, offsets = words_of_texts(self.raw_texts)
        return replace(self, words=words, offsets=offsets)

    def chunks(self, words_of_texts: WordsOfTexts) -> Iterator[WordColumn]:
        """All rows, split, some at a time: rows may be long, and texts take more memory when they are split."""
        if self.is_split:
            sizes, most = np.fromiter(map(len, self.words), np.int64, self.n_rows), _CHUNK_WORDS
        else:
            sizes, most = self.n_characters, _CHUNK_CHARACTERS
        for rows in chunks(sizes, _CHUNK_ROWS, most):
            yield self.rows(rows).split(words_of_texts)


def word_column(X: Any, name: str = "X") -> WordColumn:
    """Read rows of words, or texts.

    Parameters
    ----------
    X : array-like
        One list of words for each row: a list, a Series, an object array, or a DataFrame of one such column; or texts.
        A missing word or text becomes "".
    name : str, default="X"
        What messages call X.

    Returns
    -------
    WordColumn
        Its lists of words are the user's own, unless something in them is missing: they must not be changed.

    Raises
    ------
    TypeError
        If a row is neither a list of words nor a text, or a word is no str.
    ValueError
        If X is empty or has several columns, or mixes lists and texts, or a word or text holds a lone surrogate.
    """
    column = read_column(X, name)
    values = column.values
    if not values:
        raise ValueError(f"{NO_SAMPLES.format((0,))} {name} is empty: give at least one row of words.")
    lists = [isinstance(value, _LISTS) for value in values]
    if not any(lists):
        return _texts(column, name)
    rows, n_empty = [], 0
    for i, (value, is_list) in enumerate(zip(values, lists, strict=True)):
        if not is_list:
            raise ValueError(
                f"{name}: {column.row(i)} is {shown(value)}, and other rows are lists of words. Give a list for each "
                "row; [] for a row without words."
            )
        if not all(type(word) is str for word in value):
            value = [_word(word, f"{name}: word {j} of {column.row(i)}") for j, word in enumerate(value)]
        if not "".join(value).isascii():
            for j, word in enumerate(value):
                require_no_surrogates(word, f"{name}: word {j} of {column.row(i)}")
        n_empty += sum(map(is_empty, value))
        rows.append(value)
    return WordColumn(rows, names=_names(column), n_missing=n_empty)


def _word(word: Any, where: str) -> str:
    if isinstance(word, str):
        return str.__str__(word)
    if is_missing(word):
        return ""
    raise TypeError(f"{where} is {shown(word)}, of type {type(word).__name__}. Words are str.")


def _texts(column: Column, name: str) -> WordColumn:
    texts = []
    for i, value in enumerate(column.values):
        if not isinstance(value, str) and not is_missing(value):
            raise TypeError(
                f"{name}: {column.row(i)} is {shown(value)}, of type {type(value).__name__}. Give a list of words, "
                "or a text, for each row."
            )
        texts.append(value if isinstance(value, str) else "")
        if not texts[-1].isascii():
            require_no_surrogates(texts[-1], f"{name}: {column.row(i)}")
    refuse_lists_as_texts(texts, name)
    return WordColumn([], texts, names=_names(column), n_missing=sum(map(is_empty, texts)))


def _names(column: Column) -> list[str] | None:
    return None if column.label is None else [column.label]


def words_in_texts(chunk: WordColumn) -> Iterator[tuple[list[str], str, list[tuple[int, int]]]]:
    """The words of each row, their text, and where in it each begins and ends, in characters.

    The text of a list of words is these words joined by spaces.
    """
    for i, words in enumerate(chunk.words):
        if chunk.raw_texts is None:
            yield words, " ".join(words), _joined_offsets(words)
        else:
            yield words, chunk.raw_texts[i], chunk.offsets[i]


def _joined_offsets(words: list[str]) -> list[tuple[int, int]]:
    """Where each word begins and ends when the words are joined by spaces."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


class WidenedSpans:
    """Counts the spans that begin or end inside a word, as annotation tools and offsets of other texts give them.

    Attributes
    ----------
    n_spans, n_widened : int
        All spans, and those of them that were widened to whole words.
    examples : list of str
        The first of these, for the warning.
    """

    def __init__(self) -> None:
        self.n_spans, self.n_widened = 0, 0
        self.examples: list[str] = []

    def count(self, text: str, given: tuple[int, int], widened: tuple[int, int], row: str) -> None:
        """Take in a span as it was given, and one of whole words, both as start and end in the text of a row."""
        self.n_spans += 1
        if widened[0] < given[0] or given[1] < widened[1]:
            self.n_widened += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(f"{row} {shown(text[slice(*given)])} to {shown(text[slice(*widened)])}")

    def warn(self, name: str) -> None:
        """Issue one LabelsWarning, if there are any. ``name`` is what it calls y."""
        if not self.n_widened:
            return
        do, were = ("begins or ends", "was") if self.n_widened == 1 else ("begin or end", "were")
        more = self.n_widened - len(self.examples)
        warn_user(
            f"{self.n_widened} of {self.n_spans} spans of {name} ({percent(self.n_widened / self.n_spans)}) "
            f"{do} inside a word, and {were} widened to whole words, since a word has one tag: "
            f"{'; '.join(self.examples)}{f' and {more} more' * (more > 0)}. "
            "If these are not meant, check that the offsets count characters of these very texts, with an exclusive "
            "end.",
            LabelsWarning,
        )


_WORD_A_ROW = (
    ' A table with a word in each row and the columns sentence, word and tag becomes lists by df.groupby("sentence", '
    "sort=False).agg(list)."
)


def tag_lists(
    y: Any, words: WordColumn, name: str = "y", widened: WidenedSpans | None = None, bio: bool = True
) -> list[list[str]]:
    """Read one tag for each word, or the spans that are marked in texts.

    Parameters
    ----------
    y : array-like
        For each row of words a list of as many tags. For each text a list of spans: (start, end, label) in characters,
        the end exclusive, or dicts with these keys. Spans become BIO tags, B-label and I-label (but see ``bio``).
    words : WordColumn
        The words of the same rows, split.
    name : str, default="y"
        What messages call y.
    widened : WidenedSpans, optional
        Counts the spans that begin or end inside a word.
    bio : bool, default=True
        Whether the tags of spans are BIO tags. If not, each word of a span has its label as a tag, as a tagger of parts
        of speech predicts.

    Returns
    -------
    list of list of str
        One tag for each word of each row.

    Raises
    ------
    ValueError
        If the number of rows, or of tags in a row, is wrong; if a span is malformed, overlaps another one or has no
        word; or if a tag holds a lone surrogate.
    TypeError
        If a tag is no str.
    """
    require_y(y, "a list of tags a row")
    column = read_column(y, name)
    check_n_labels((len(column.values),), words.n_rows, name)
    rows = []
    for i, (value, row) in enumerate(zip(column.values, words.words, strict=True)):
        if not isinstance(value, _LISTS):
            raise ValueError(
                f"{name}: {column.row(i)} is {shown(value)}. Give a list for each row; [] for none."
                f"{hint_for_list_as_text(value) or (_WORD_A_ROW if isinstance(value, str) else '')}"
            )
        if words.raw_texts is not None:
            rows.append(_tags_of_spans(value, words, i, name, column.row(i), widened, bio))
            continue
        if len(value) != len(row):
            raise ValueError(
                f"{name}: {column.row(i)} has {len(value)} tags, and {name.removesuffix('y')}X has {len(row)} words "
                f"there ({shown(row)}). Give one tag for each word."
            )
        rows.append([_tag(tag, f"{name}: tag {j} of {column.row(i)}") for j, tag in enumerate(value)])
    return rows


def _tag(tag: Any, where: str) -> str:
    if isinstance(tag, str):
        if not tag.isascii():
            require_no_surrogates(tag, where)
        return str.__str__(tag)
    if isinstance(tag, int | np.integer) and not isinstance(tag, bool | np.bool_):
        raise TypeError(f"{where} is the number {tag}. Tags are str: turn the numbers into their names first.")
    raise TypeError(f"{where} is {shown(tag)}, of type {type(tag).__name__}. Tags are str, such as 'B-PER' or 'O'.")


def spans_of(value: Any, length: int, where: str) -> list[tuple[int, int, str]]:
    """The spans of one text as tuples (start, end, label), sorted.

    Parameters
    ----------
    value : list
        Tuples (start, end, label), or dicts with these keys.
    length : int
        Characters of the text.
    where : str
        What messages call the row; it begins the message.

    Raises
    ------
    ValueError
        If a span is malformed, beyond the text, or overlaps another one.
    """
    spans = []
    for given in value:
        span = tuple(given.get(key) for key in ("start", "end", "label")) if isinstance(given, Mapping) else given
        if not isinstance(span, _LISTS) or len(span) != 3 or not all(map(_is_whole, span[:2])):
            raise ValueError(f"{where} holds {shown(given)}, which is no span. {_instead(given, value)}")
        start, end, label = int(span[0]), int(span[1]), _tag(span[2], f"{where}: the label of {shown(span)}")
        if not 0 <= start < end <= length:
            raise ValueError(
                f"{where} holds the span {(start, end, label)}, and its text has {length} characters: start is to be "
                "at least 0 and less than end, which is exclusive."
            )
        spans.append((start, end, label))
    spans.sort()
    for one, other in zip(spans, spans[1:], strict=False):
        if other[0] < one[1]:
            raise ValueError(f"{where}: the spans {one} and {other} overlap. A word has one tag: choose one of them.")
    return spans


def _is_whole(number: Any) -> bool:
    """Whether a position is a whole number, also as pandas has one in a column where others are missing: 3.0."""
    if isinstance(number, float | np.floating):
        return float(number).is_integer()
    return isinstance(number, int | np.integer)


def _instead(given: Any, row: Any) -> str:
    """What to give instead of something that is no span, for a message."""
    if isinstance(given, str):
        return "Tags, one for each word, go with lists of words as X; for texts give spans, (start, end, label)."
    if isinstance(given, int | np.integer) and len(row) == 3:
        return f"Put the spans of a row in a list: [{shown(row)}]."
    return "Give (start, end, label), or a dict with these keys; start and end are whole numbers."


def _tags_of_spans(
    value: Any, words: WordColumn, i: int, name: str, row: str, widened: WidenedSpans | None, bio: bool
) -> list[str]:
    """The tags of the words of row i, from the spans of its text. ``row`` is what messages call it."""
    assert words.raw_texts is not None
    where = f"{name}: {row}"
    offsets = words.offsets[i]
    tags = ["O"] * len(offsets)
    starts = np.array([start for start, _ in offsets], np.int64)
    ends = np.array([end for _, end in offsets], np.int64)
    for start, end, label in spans_of(value, len(words.raw_texts[i]), where):
        # The words that end after its start and begin before its end.
        first, last = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(starts, end, "left"))
        if first >= last:
            raise ValueError(
                f"{where}: the span {(start, end, label)} holds no word ({words.raw_texts[i][start:end]!r})."
            )
        for word in range(first, last):
            if tags[word] != "O":
                raise ValueError(
                    f"{where}: the span {(start, end, label)} shares the word {words.words[i][word]!r} with another. A "
                    "word has one tag: choose one of them."
                )
            tags[word] = f"{'B' if word == first else 'I'}-{label}" if bio else label
        if widened is not None:
            of_words = (offsets[first][0], offsets[last - 1][1])
            widened.count(words.raw_texts[i], (start, end), of_words, row)
    return tags
