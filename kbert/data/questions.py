"""Rows of question answering, a question and a context each, and their right answers, from any container. No Keras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from kbert.data.arrow_texts import ArrowTexts
from kbert.data.frames import (
    NO_SAMPLES,
    Column,
    Table,
    is_missing,
    listed_labels,
    named_columns,
    plain_texts,
    read_column,
    read_table,
    refuse_one_row,
    refuse_what_has_no_rows,
    require_whole_characters,
    shown,
    to_known_container,
)
from kbert.data.labels import check_n_labels
from kbert.data.misplaced import misplaced

NAMES = ("question", "context")
ANSWER_NAMES = ("answer", "answer_start")

_UNANSWERABLE = "An unanswerable question has the answer '' and the answer_start -1"


@dataclass(frozen=True)
class QuestionColumns:
    """Questions and their contexts as plain lists. It serves where `TextColumns` does.

    Attributes
    ----------
    questions, contexts : list of str, or ArrowTexts
    names : list of str or None
        The names of the columns that were read, questions first, if X is a DataFrame that names them.
    n_missing : int
        How many questions and contexts were missing or empty; 0 in `rows` and `take`.
    """

    questions: list[str] | ArrowTexts
    contexts: list[str] | ArrowTexts
    names: list[str] | None = None
    n_missing: int = 0

    @property
    def columns(self) -> tuple[list[str] | ArrowTexts, list[str] | ArrowTexts]:
        """Questions and contexts."""
        return self.questions, self.contexts

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.questions)

    @property
    def n_characters(self) -> np.ndarray:
        """Characters of each row, those of its question and of its context; int64, shape (n_rows,)."""
        return sum(np.fromiter(map(len, column), np.int64, self.n_rows) for column in self.columns)

    def texts(self) -> Iterator[str]:
        """All texts."""
        return chain(self.questions, self.contexts)

    def rows(self, rows: slice) -> QuestionColumns:
        """Some neighbouring rows."""
        return QuestionColumns(self.questions[rows], self.contexts[rows], self.names)

    def take(self, rows: np.ndarray) -> QuestionColumns:
        """Some of the rows, by number."""
        questions, contexts = (
            column.take(rows) if isinstance(column, ArrowTexts) else [column[i] for i in rows.tolist()]
            for column in self.columns
        )
        return QuestionColumns(questions, contexts, self.names)


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
    def answerable(self) -> np.ndarray:
        """Whether each row has an answer, bool, shape (n_rows,)."""
        return np.fromiter(map(bool, self.texts), bool, self.n_rows)

    def take(self, rows: Any) -> Answers:
        """Some of the rows, by number, mask or slice."""
        chosen = np.arange(self.n_rows)[rows].tolist()
        return Answers([self.texts[i] for i in chosen], [self.starts[i] for i in chosen])


def question_columns(X: Any, name: str = "X") -> QuestionColumns:
    """Read questions and contexts out of any usual container.

    Parameters
    ----------
    X : array-like
        A DataFrame with columns named question and context, in any order and among any others; or two columns, of
        questions and of contexts, in a DataFrame without these names, an array or a list of tuples. A missing text
        (None, NaN, pd.NA) becomes "".
    name : str
        What the caller calls X, for messages.

    Raises
    ------
    TypeError
        If X is no container of rows, or a value is no text.
    ValueError
        If X is empty, is one row only, or has other columns, or a text holds a lone surrogate.
    """
    refuse_one_row(X, NAMES, name)
    refuse_what_has_no_rows(X, name)
    table = read_table(X, name, of_texts=True)
    if table.shape[0] == 0:
        raise ValueError(f"{NO_SAMPLES.format(table.shape)} {name} is empty: give at least one row.")
    found = named_columns(table, NAMES, NAMES, "question and context", name)
    columns, names = (list(found.values()), list(found)) if found else (table.columns, table.names)
    if len(columns) != 2:
        raise ValueError(_no_two_columns(table, name))
    (questions, n_questions), (contexts, n_contexts) = (plain_texts(column, name) for column in columns)
    for column, texts in zip(columns, (questions, contexts), strict=True):
        require_whole_characters(column, texts, name)
    return QuestionColumns(questions, contexts, names, n_questions + n_contexts)


def _no_two_columns(table: Table, name: str) -> str:
    """The message for a table of which question and context cannot be told."""
    n_columns = len(table.columns)
    has = f"{n_columns} column{'s' if n_columns != 1 else ''}"
    listed = f" ({listed_labels(table.labels)})" if table.labels else ""
    message = f"{name} has {has}{listed}, where question and context are expected."
    if n_columns == 0:
        return f"Found array with 0 feature(s) (shape={table.shape}) while a minimum of 2 is required. {message}"
    if n_columns == 1:
        values = table.columns[0].values
        if isinstance(values[0], Mapping):
            return f"{message} Make a table of the dicts: pd.DataFrame(list({name}))."
        if not listed and len(values) == 2 and all(isinstance(value, str) for value in values):
            return f"{message} If it is one row, put it in a list: [(question, context)]."
    if not listed and table.shape[0] == 2 and n_columns > 2:
        return f"{message} Rows go first: list(zip(questions, contexts))."
    return f"{message} Give a DataFrame with columns of these names, or tuples: list(zip(questions, contexts))."


# --- Answers


def answer_columns(y: Any, questions: QuestionColumns, name: str = "y") -> Answers:
    """Read the right answers, and check that each stands in its context where it should.

    Parameters
    ----------
    y : array-like
        A DataFrame with columns named answer and answer_start, among any others; or these two columns, in a DataFrame
        without these names, an array or a list of tuples; or one column of dicts {"text": [...], "answer_start":
        [...]}, as the Hugging Face datasets library gives SQuAD (a DataFrame's column answers). An answer is a str,
        and its start the number of its first character in the context, from 0, as Python counts (code points); of
        several right answers both are lists. An unanswerable question has "" and -1, or two empty lists. Whole
        numbers in floats serve.
    questions : QuestionColumns
        Of the same rows.
    name : str
        What the caller calls y, for messages.

    Returns
    -------
    Answers
        ``context[start : start + len(text)] == text`` for each of them.

    Raises
    ------
    TypeError
        If an answer is no text, or a start no number.
    ValueError
        If the number of rows or columns is wrong, an answer is missing, or does not stand where its start says. The
        message names the first such row, says how many there are, and offers the nearest match.
    """
    answers, starts = _answer_fields(y, questions.n_rows, name, starts_needed=True)
    texts, positions, error, n_wrong = [], [], None, 0
    for i, (text, start, context) in enumerate(zip(answers.values, starts.values, questions.contexts, strict=True)):
        # What most rows are, in one step.
        if type(text) is str and type(start) is int and 0 <= start and text and not text.isspace():
            if context.startswith(text, start):
                texts.append([text])
                positions.append([start])
                continue
        try:
            row_texts, row_starts = _row_of_answers(answers, starts, i, name)
            for j, (text, start) in enumerate(zip(row_texts, row_starts, strict=True)):
                if start < 0 or not context.startswith(text, start):
                    where = _where_start(starts, i, j, name)
                    # Only the first message is shown, and to look for the nearest match takes time.
                    raise ValueError(error or misplaced(text, start, context, questions.questions[i], where))
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
        How many rows there must be.
    name : str
        What the caller calls y, for messages.

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
    """The answers and, where y has them, their starts: one value a row each, a list where there are several."""
    if y is None:
        raise ValueError(
            "This estimator requires y to be passed, but the target y is None. Give the answer and the answer_start of "
            f"each of the {n_rows} rows."
        )
    refuse_one_row(y, ANSWER_NAMES, name)
    if isinstance(y, Mapping) and "text" in y:
        raise TypeError(f"{name} is the {type(y).__name__} of one row. Put it in a list: [{name}].")
    refuse_what_has_no_rows(y, name)
    answers, starts = _fields_of_table(to_known_container(y), name, starts_needed)
    if starts is None and len(answers.values) == 2 and isinstance(answers.values[0], str):
        if _is_number(answers.values[1]):
            raise ValueError(f"{name} is one row, {shown(y)}. Put it in a list: [(answer, answer_start)].")
    check_n_labels((len(answers.values),), n_rows, name)
    if starts is None and starts_needed:
        raise ValueError(
            f"{name} has 1 column, where answer and answer_start are expected. Give a DataFrame with columns of these "
            "names, or tuples: list(zip(answers, starts)). The start is the number of the answer's first character in "
            "the context, from 0."
        )
    return answers, starts


def _fields_of_table(y: Any, name: str, starts_needed: bool) -> tuple[Column, Column | None]:
    """The columns of a table by name or place, or those that the values of its one column are made of."""
    if getattr(y, "ndim", 1) == 1:
        return _fields_of_values(read_column(y, name), name, starts_needed)
    table = read_table(y, name)
    required = ANSWER_NAMES if starts_needed else ANSWER_NAMES[:1]
    found = named_columns(table, ANSWER_NAMES, required, "answer and answer_start", name)
    if found:
        return found["answer"], found.get("answer_start")
    if "answers" in (table.labels or []):
        return _fields_of_values(table.columns[table.labels.index("answers")], name, starts_needed)
    if len(table.columns) == 1:
        return _fields_of_values(table.columns[0], name, starts_needed)
    if len(table.columns) == 2:
        answers, starts = table.columns
        return _called(answers, "answer"), _called(starts, "answer_start")
    listed = f" ({listed_labels(table.labels)})" if table.labels else ""
    raise ValueError(
        f"{name} has {len(table.columns)} columns{listed}, where answer and answer_start are expected. Give a "
        "DataFrame with columns of these names, or tuples: list(zip(answers, starts))."
    )


def _called(column: Column, what: str) -> Column:
    return column._replace(called=f"{column.called} ({what})")


def _fields_of_values(column: Column, name: str, starts_needed: bool) -> tuple[Column, Column | None]:
    """Answers and starts out of dicts or pairs; a column of other values as it is, without starts."""
    first = next((i for i, value in enumerate(column.values) if isinstance(value, Mapping) or _is_pair(value)), None)
    if first is None:
        return column, None
    keys = ("text", "answer_start")
    as_dicts = isinstance(column.values[first], Mapping)
    needed = keys if starts_needed else keys[:1]
    rows = []
    for i, value in enumerate(column.values):
        # Where starts are read, a wrong one has a message of its own.
        alike = isinstance(value, Mapping) if as_dicts else _is_pair(value, checked=not starts_needed)
        if not alike and not is_missing(value):
            raise ValueError(
                f"{_where(column, i, name)} is {shown(value)}, and {column.row(first)} is "
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
                        f"{_where(column, i, name)} is a dict without {key!r}; its keys are "
                        f"{listed_labels(list(value))}. Give {{'text': [...], 'answer_start': [...]}}."
                    )
            rows.append(tuple(value.get(key) for key in keys))
    called = (
        [repr(key) for key in keys] if as_dicts else [f"column {j} ({label})" for j, label in enumerate(ANSWER_NAMES)]
    )
    answers, starts = ([row[j] for row in rows] for j in range(2))
    return column._replace(values=answers, called=called[0]), column._replace(values=starts, called=called[1])


def _is_pair(value: Any, checked: bool = True) -> bool:
    """Whether a value has two parts, which may be answers and their starts if they are checked: two texts are not."""
    value = _listed(value)
    if value is None or len(value) != 2:
        return False
    return not checked or (not _is_number(value[0]) and (_is_number(value[1]) or _listed(value[1]) is not None))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not is_missing(value)


def _listed(value: Any) -> list | tuple | None:
    """What is inside of a list, tuple or 1-D array; None of anything else."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return value.tolist()
    return value if isinstance(value, list | tuple) else None


# --- One row


def _where(column: Column, i: int, name: str) -> str:
    of_column = "" if column.called == name else f" of {column.called}"
    return f"{name}: {column.row(i)}{of_column}"


def _where_start(starts: Column, i: int, j: int, name: str) -> str:
    """The place of one start, the j-th of its row if the row has a list of them."""
    where = _where(starts, i, name)
    return where if _listed(starts.values[i]) is None else f"{where}: start {j}"


def _row_of_answers(answers: Column, starts: Column, i: int, name: str) -> tuple[list[str], list[int]]:
    """The right answers of one row and their starts, which may be wrong."""
    texts = _texts_of(answers, i, name)
    where, start = _where(starts, i, name), starts.values[i]
    several = _listed(answers.values[i]) is not None
    numbers = _listed(start)
    if (numbers is not None) != several:
        raise ValueError(
            f"{where} is {shown(start)}, and the answer is {shown(answers.values[i])}: either both are lists of the "
            "same length, or none is."
        )
    if several:
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
    where = _where(column, i, name)
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
    if not isinstance(text, str):
        raise TypeError(f"{where} is {shown(text)}, of type {type(text).__name__}, and no text. Make it a str.")
    # str() of a subclass may be anything.
    text = str.__str__(text)
    if not text:
        raise ValueError(f"{where} is empty. {_UNANSWERABLE}, or two empty lists.")
    if text.isspace():
        raise ValueError(f"{where} is {text[:20]!r}, white space only. {_UNANSWERABLE}; else give the answer's words.")
    return text


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
