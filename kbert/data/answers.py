"""The right answers of questions, and where they begin in their contexts, from any container. No Keras here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.frames import (
    Column,
    is_missing,
    listed_labels,
    named_columns,
    read_column,
    read_table,
    refuse_one_row,
    refuse_what_has_no_rows,
    require_y,
    to_known_container,
)
from kbert.data.labels import check_n_labels
from kbert.data.misplaced import misplaced
from kbert.data.questions import QuestionColumns
from kbert.text.ragged import Selection
from kbert.values.printable import shown

NAMES = ("answer", "answer_start")

_UNANSWERABLE = "An unanswerable question has the answer '' and the answer_start -1"


@dataclass(frozen=True)
class Answers:
    """The right answers of each row and where they begin in its context, counted in characters (code points).

    Attributes
    ----------
    texts : list of list of str
        An empty list where the question is unanswerable.
    starts : list of list of int
        As many as texts in each row.
    """

    texts: list[list[str]]
    starts: list[list[int]]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.texts)

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """Whether each row has an answer, bool, shape (n_rows,)."""
        return np.fromiter(map(bool, self.texts), bool, self.n_rows)

    def take(self, rows: Selection) -> Answers:
        """Some rows, by their numbers, a mask or a slice."""
        chosen = np.arange(self.n_rows)[rows].tolist()
        return Answers([self.texts[i] for i in chosen], [self.starts[i] for i in chosen])


def answer_columns(y: Any, questions: QuestionColumns, name: str = "y") -> Answers:
    """Read the right answers, and check that each stands in its context where it should.

    Parameters
    ----------
    y : array-like
        A DataFrame with columns named answer and answer_start, among any others; or these two columns, in a DataFrame
        without these names, an array or a list of tuples; or one column of dicts {"text": [...], "answer_start":
        [...]}, as the Hugging Face library datasets gives SQuAD (a DataFrame's column answers). An answer is a str,
        and its start the number of its first character in the context, from 0, as Python counts (code points). If there
        are several right answers, both are lists. An unanswerable question has "" and -1, or two empty lists. Starts
        may be floats with whole values.
    questions : QuestionColumns
        The questions and contexts of the same rows.
    name : str, default="y"
        What messages call y.

    Returns
    -------
    Answers
        ``context[start : start + len(text)] == text`` for each of them.

    Raises
    ------
    TypeError
        If an answer is no text, or a start is no number.
    ValueError
        If the number of rows or columns is wrong, an answer is missing, or an answer does not begin at its start. The
        message names the first such row, says how many there are, and where the answer might be.
    """
    answers, starts = _answer_fields(y, questions.n_rows, name, starts_needed=True)
    if starts is None:
        raise ValueError(
            f"{name} has 1 column, where answer and answer_start are expected. Give a DataFrame with columns of these "
            "names, or tuples: list(zip(answers, starts)). The start is the number of the answer's first character in "
            "the context, from 0."
        )
    texts: list[list[str]] = []
    positions: list[list[int]] = []
    error: TypeError | ValueError | None = None
    n_wrong = 0
    for i, (text, start, context) in enumerate(zip(answers.values, starts.values, questions.contexts, strict=True)):
        # Most rows are like this, and need no other check.
        if type(text) is str and type(start) is int and 0 <= start and text and not text.isspace():
            if context.startswith(text, start):
                texts.append([text])
                positions.append([start])
                continue
        try:
            row_texts, row_starts = _row_of_answers(answers, starts, i, name)
            for j, (text, start) in enumerate(zip(row_texts, row_starts, strict=True)):
                if start < 0 or not context.startswith(text, start):
                    if error is not None:  # only the first message is shown, and a search for the answer takes time
                        raise ValueError(error)
                    where = _where_start(starts, i, j, name)
                    raise ValueError(misplaced(text, start, context, questions.questions[i], where))
            texts.append(row_texts)
            positions.append(row_starts)
        except (TypeError, ValueError) as wrong:
            error = error or wrong
            n_wrong += 1
    if error is not None:
        count = f" {n_wrong} of {questions.n_rows} rows are wrong; this is the first." if n_wrong > 1 else ""
        raise type(error)(f"{error}{count}")
    return Answers(texts, positions)


def answer_texts(y: Any, n_rows: int, name: str = "y") -> list[list[str]]:
    """Read the right answers alone, where their positions do not matter.

    Parameters
    ----------
    y : array-like
        What `answer_columns` reads; or one column of answers: a str, or a list of several, in each row, and "" or []
        where the question is unanswerable.
    n_rows : int
        Number of rows that y must have.
    name : str, default="y"
        What messages call y.

    Returns
    -------
    list of list of str
        An empty list where the question is unanswerable.

    Raises
    ------
    TypeError
        If an answer is no text.
    ValueError
        If the number of rows or columns is wrong, or an answer is missing.
    """
    answers, _ = _answer_fields(y, n_rows, name, starts_needed=False)
    return [_texts_of(answers, i, name) for i in range(n_rows)]


def _answer_fields(y: Any, n_rows: int, name: str, starts_needed: bool) -> tuple[Column, Column | None]:
    """The columns of answers and of starts, not checked yet; None if y has no starts, which may be lacking.

    A row with several right answers has a list in both columns.
    """
    require_y(y, f"the answer and the answer_start of each of the {n_rows} rows")
    refuse_one_row(y, NAMES, name)
    if isinstance(y, Mapping) and "text" in y:
        raise TypeError(f"{name} is the {type(y).__name__} of one row. Put it in a list: [{name}].")
    refuse_what_has_no_rows(y, name)
    answers, starts = _fields_of_table(to_known_container(y), name, starts_needed)
    if starts is None and len(answers.values) == 2 and isinstance(answers.values[0], str):
        if _is_number(answers.values[1]):
            raise ValueError(f"{name} is one row, {shown(y)}. Put it in a list: [(answer, answer_start)].")
    check_n_labels((len(answers.values),), n_rows, name)
    return answers, starts


def _fields_of_table(y: Any, name: str, starts_needed: bool) -> tuple[Column, Column | None]:
    """The columns of answers and starts in a table: by name, by position, or from dicts or pairs in one column."""
    if getattr(y, "ndim", 1) == 1:
        return _fields_of_values(read_column(y, name), name, starts_needed)
    table = read_table(y, name)
    required = NAMES if starts_needed else NAMES[:1]
    found = named_columns(table, NAMES, required, "answer and answer_start", name)
    if found:
        return found["answer"], found.get("answer_start")
    if "answers" in table.labels:
        return _fields_of_values(table.columns[table.labels.index("answers")], name, starts_needed)
    if len(table.columns) == 1:
        return _fields_of_values(table.columns[0], name, starts_needed)
    if len(table.columns) == 2:
        answers, starts = table.columns
        return _called(answers, "answer"), _called(starts, "answer_start")
    raise ValueError(
        f"{name} has {table.described}, where answer and answer_start are expected. Give a "
        "DataFrame with columns of these names, or tuples: list(zip(answers, starts))."
    )


def _called(column: Column, what: str) -> Column:
    return replace(column, called=f"{column.called} ({what})")


def _fields_of_values(column: Column, name: str, starts_needed: bool) -> tuple[Column, Column | None]:
    """Two columns from one of dicts or of pairs. A column of other values is that of the answers, without starts."""
    first = next((i for i, value in enumerate(column.values) if isinstance(value, Mapping) or _is_pair(value)), None)
    if first is None:
        return column, None
    keys = ("text", "answer_start")
    as_dicts = isinstance(column.values[first], Mapping)
    needed = keys if starts_needed else keys[:1]
    rows: list[Sequence[Any]] = []
    for i, value in enumerate(column.values):
        # If starts are needed, a wrong one has a message of its own.
        alike = isinstance(value, Mapping) if as_dicts else _is_pair(value, checked=not starts_needed)
        if not alike and not is_missing(value):
            raise ValueError(
                f"{column.where(i, name)} is {shown(value)}, and {column.row(first)} is "
                f"{'a dict' if as_dicts else 'a pair (answer, answer_start)'}, {shown(column.values[first])}. Give all "
                "rows alike."
            )
        if is_missing(value):
            rows.append((None, None))
        elif not as_dicts:
            rows.append(value)
        else:
            for key in needed:
                if key not in value:
                    raise ValueError(
                        f"{column.where(i, name)} is a dict without {key!r}; its keys are "
                        f"{listed_labels(list(value))}. Give {{'text': [...], 'answer_start': [...]}}."
                    )
            rows.append(tuple(value.get(key) for key in keys))
    called = [repr(key) for key in keys] if as_dicts else [f"column {j} ({label})" for j, label in enumerate(NAMES)]
    answers, starts = ([row[j] for row in rows] for j in range(2))
    return replace(column, values=answers, called=called[0]), replace(column, values=starts, called=called[1])


def _is_pair(value: Any, checked: bool = True) -> bool:
    """Whether a value is a list of two; if ``checked``, whether these may be an answer and its start: not two texts."""
    pair = _listed(value)
    if pair is None or len(pair) != 2:
        return False
    return not checked or (not _is_number(pair[0]) and (_is_number(pair[1]) or _listed(pair[1]) is not None))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not is_missing(value)


def _listed(value: Any) -> Sequence[Any] | None:
    """The values of a list, tuple or 1-D array; None for anything else."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value.tolist())
    return value if isinstance(value, list | tuple) else None


# --- One row


def _where_start(starts: Column, i: int, j: int, name: str) -> str:
    """What messages call one start: the j-th of its row if the row has a list of them."""
    where = starts.where(i, name)
    return where if _listed(starts.values[i]) is None else f"{where}: start {j}"


def _row_of_answers(answers: Column, starts: Column, i: int, name: str) -> tuple[list[str], list[int]]:
    """The right answers of one row and their starts, which are not compared with the context yet."""
    texts = _texts_of(answers, i, name)
    where, start = starts.where(i, name), starts.values[i]
    several = _listed(answers.values[i]) is not None
    numbers = _listed(start)
    if (numbers is not None) != several:
        raise ValueError(
            f"{where} is {shown(start)}, and the answer is {shown(answers.values[i])}: either both are lists of the "
            "same length, or none is."
        )
    if numbers is not None:
        if len(numbers) != len(texts):
            raise ValueError(
                f"{where} has {len(numbers)} starts, {shown(start)}, and the row has {len(texts)} answers, "
                f"{shown(texts)}. Give one start for each answer."
            )
        return texts, [_number(number, f"{where}: start {j}") for j, number in enumerate(numbers)]
    number = _number(start, where)
    if not texts:
        if number != -1:
            raise ValueError(
                f"{where} is {number}, and the answer is empty. {_UNANSWERABLE}; correct the one or the other."
            )
        return [], []
    return texts, [number]


def _texts_of(column: Column, i: int, name: str) -> list[str]:
    """The right answers of one row."""
    value = column.values[i]
    if type(value) is str and value and not value.isspace():
        return [value]
    where = column.where(i, name)
    if isinstance(value, str):
        return [_text(value, where)] if value else []
    several = _listed(value)
    if several is not None:
        return [_text(text, f"{where}: answer {j}") for j, text in enumerate(several)]
    if is_missing(value):
        raise ValueError(
            f"{where} is missing ({shown(value)}). {_UNANSWERABLE}; where the answer is not known, drop the row."
        )
    raise TypeError(
        f"{where} is {shown(value)}, of type {type(value).__name__}. Give a str, or a list of str if there are several "
        "right answers."
    )


def _text(text: Any, where: str) -> str:
    """One answer that is not empty, as a plain str."""
    if not isinstance(text, str):
        raise TypeError(f"{where} is {shown(text)}, of type {type(text).__name__}, and no text. Make it a str.")
    plain = str.__str__(text)  # not str(text), which of a subclass may be anything
    if not plain:
        raise ValueError(f"{where} is empty. {_UNANSWERABLE}, or two empty lists.")
    if plain.isspace():
        raise ValueError(f"{where} is {plain[:20]!r}, white space only. {_UNANSWERABLE}; else give the answer's words.")
    return plain


def _number(value: Any, where: str) -> int:
    """A start as an int."""
    if is_missing(value):
        raise ValueError(
            f"{where} is missing ({shown(value)}). Give the number of the answer's first character in the context, "
            f"from 0. {_UNANSWERABLE}."
        )
    if isinstance(value, bool | np.bool_) or not _is_number(value):
        remedy = " Convert it with int()." if isinstance(value, str) else ""
        raise TypeError(
            f"{where} is {shown(value)}, of type {type(value).__name__}, where the number of the answer's first "
            f"character in the context is expected, from 0.{remedy}"
        )
    if isinstance(value, float | np.floating) and not float(value).is_integer():
        raise ValueError(f"{where} is {shown(value)}, and a character's number is whole.")
    return int(value)
