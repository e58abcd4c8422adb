"""Whole tables with labels, for the commands ``fit`` and ``evaluate``: texts and labels of the types that are meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kbert.data import answers, choices, questions
from kbert.tables.files import find_tables, other_separator, read_in_parts, require_pyarrow, require_readable
from kbert.values.printable import printable, shown

_ANSWER = [*answers.NAMES]
_ROWS_AT_ONCE = 100_000
# Of a table's ``attrs``: a file for each column that not all files have; each file with the number of its rows; what is
# wrong with columns that could not be read.
_LACKED, _FILES, _FAULTS = "lacked", "files", "faults"


def read_table(source: str | Path) -> pd.DataFrame:
    """All rows of a file, a folder or a pattern. Texts are Arrow's, also JSON lists, which `read_lists` reads.

    A value is missing where a file has not the column, or where the column could not be read; `require_columns` names
    such a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a file is damaged, or a column has types in two files that do not go together, with their names.
    """
    pa, tables, names_in = require_pyarrow(), list[Any](), dict[str, set[str]]()
    n_rows: dict[str, int] = {}
    kinds: dict[str, tuple[str, Any]] = {}
    faults: dict[str, str] = {}
    for file in find_tables(source):
        for table in read_in_parts(file, _ROWS_AT_ONCE, faults=faults):
            tables.append(table)
            n_rows[str(file)] = n_rows.get(str(file), 0) + table.num_rows
            names_in.setdefault(str(file), set()).update(table.column_names)
            _require_types(kinds, str(file), table.schema)
    if not tables:
        raise ValueError(f"There are no rows in {source}.")
    whole = pa.concat_tables(tables, promote_options="permissive")
    for i, field in enumerate(whole.schema):
        if pa.types.is_decimal(field.type):  # pandas has no such numbers
            whole = whole.set_column(i, field.name, _without_decimals(whole.column(i)))
        elif str(field.type) == "string_view":
            whole = whole.set_column(i, field.name, whole.column(i).cast(pa.string()))
    # Not pandas' own index, which files of pandas may hold: rows are counted from 0, over all files.
    frame = whole.to_pandas(types_mapper=keep_texts, ignore_metadata=True)
    frame.attrs[_LACKED] = {name: file for file, names in names_in.items() for name in set(frame) - names}
    frame.attrs[_FILES] = list(n_rows.items())
    frame.attrs[_FAULTS] = faults
    return frame


def keep_texts(kind: Any) -> pd.ArrowDtype | None:
    """For ``to_pandas``: texts stay Arrow's, which are read without making Python's."""
    from pyarrow import types

    return pd.ArrowDtype(kind) if types.is_string(kind) or types.is_large_string(kind) else None


def _without_decimals(column: Any) -> Any:
    """Decimals as whole numbers where their type has no places after the point, and 64 bits hold them; else floats."""
    import pyarrow as pa

    if column.type.scale <= 0:
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column.cast(pa.float64())


def _require_types(known: dict[str, tuple[str, Any]], file: str, schema: Any) -> None:
    """Raise if a column of a file does not go together with those of the files before: ``known``, which it joins."""
    import pyarrow as pa

    for field in schema.remove_metadata():
        other, before = known.get(field.name, (file, field))
        try:
            both = pa.unify_schemas([pa.schema([before]), pa.schema([field])], promote_options="permissive")
        except pa.ArrowException:
            raise ValueError(
                f"{file}: the column {field.name!r} is of type {field.type}, and in {other} of type {before.type}. "
                "Give a column one type in all files."
            ) from None
        known[field.name] = other, both.field(0)


def row_in_file(frame: pd.DataFrame, row: int) -> str:
    """What messages call a row of `read_table`: its number in its file, from 0, and the file."""
    in_file = row
    for file, n_rows in frame.attrs.get(_FILES, []):
        if in_file < n_rows:
            return f"row {in_file} of {file}"
        in_file -= n_rows
    return f"row {row}"


def json_list(text: Any) -> list[Any] | None:
    """The list that a text is as JSON; None where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def read_columns(frame: pd.DataFrame, task: str, X: Sequence[str], y: Sequence[str], source: str | Path) -> None:
    """Raise unless a table has the columns of a task, and read their lists, in place.

    A text such as '["one", "two"]' is meant as a list in the labels; among the texts only where these are words or
    options.
    """
    require_columns(frame, [*X, *y], source)
    read_lists(frame, [*X, *y] if task in ("tagging", "choice") else y)


def read_lists(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Make columns of texts that are JSON lists, as CSV has them, columns of lists, in place.

    Columns of other values stay as they are.

    Raises
    ------
    ValueError
        With the first row of a column of lists that holds none.
    """
    for name in names:
        if not meant_as_lists(frame[name]):
            continue
        lists = [json_list(text) for text in frame[name]]
        if None in lists:
            row = lists.index(None)
            raise ValueError(
                f"The column {name!r} holds lists, but {shown(frame[name].iloc[row])} in {row_in_file(frame, row)} is "
                'no list as JSON has it: ["one", "two"].'
            )
        frame[name] = pd.Series(lists, frame.index, dtype=object)


def meant_as_lists(column: pd.Series) -> bool:
    """Whether texts are meant as lists.

    They are if half of them or more begin like a list, and one of these is a list, or begins like one of Python's,
    which pandas writes into CSV.
    """
    if not isinstance(column.dtype, pd.ArrowDtype) or not len(column):
        return False
    alike = column.str.lstrip().str.startswith("[").fillna(False).astype(bool)
    begun = column[alike][:1000]
    return alike.mean() >= 0.5 and any(json_list(text) is not None or text.startswith("['") for text in begun)


def require_columns(frame: pd.DataFrame, names: Sequence[str], source: str | Path) -> None:
    """Raise unless a table has these columns.

    Raises
    ------
    ValueError
        With the columns that there are, or the file that lacks one or in which it cannot be read; or if a column is
        named twice.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"The column {twice!r} is named twice: for --text or --label. Name it once.")
    require_readable(frame.attrs.get(_FAULTS, {}), names)
    lacked = frame.attrs.get(_LACKED, {})
    for name in names:
        if name in lacked:
            hint = other_separator(Path(lacked[name]))
            raise ValueError(
                f"{lacked[name]} has no column {name!r}, which other files of {source} have. {hint}".rstrip()
            )
    missing = [name for name in names if name not in frame.columns]
    if missing:
        near = get_close_matches(missing[0], map(str, frame.columns), n=1, cutoff=0.7)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{source} has no column {missing[0]!r}.{hint} It has {printable(', '.join(map(str, frame.columns)))}. "
            f"Name those to use: --text for texts, --label for labels. {_other_separator(frame)}".rstrip()
        )


def _other_separator(frame: pd.DataFrame) -> str:
    """What to tell of the first file that has another separator than its name says."""
    return next(filter(None, (other_separator(Path(file)) for file, _ in frame.attrs.get(_FILES, []))), "")


def task_of_columns(frame: pd.DataFrame, text: Sequence[str], label: Sequence[str]) -> str:
    """What a table is about, a task of ``kbert fit``, by its columns and the type of the labels.

    A number that is not whole among the labels, all of which are numbers, means a regression, as in scikit-learn's
    ``type_of_target``; lists of labels beside lists of words, or lists of spans beside texts, mean tags.
    """
    names = set(frame.columns)
    if "options" in names and not text:
        return "choice"
    if {"question", "context", *_ANSWER} <= names and not text and not label:
        return "answering"
    if len(label) > 1:
        return "regression" if _hold_decimals(frame, label) else "classification"
    texts = list(text) or [name for name in ("text",) if name in names]
    if label and len(texts) == 1 and _has_lists(frame[label[0]]):
        if _has_lists(frame[texts[0]]) or _holds_spans(frame[label[0]]):
            return "tagging"
    return "regression" if _hold_decimals(frame, label) else "classification"


def columns_of_task(
    task: str, frame: pd.DataFrame, text: Sequence[str], label: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The columns of X and of y, with the names that a task has where none are given."""
    X = list(text) or {
        "answering": [*questions.NAMES],
        "choice": [name for name in choices.NAMES if name in frame.columns],
    }.get(task, ["text"])
    return X, list(label) or (_ANSWER if task == "answering" else ["label"])


def X_of(frame: pd.DataFrame, columns: Sequence[str]) -> Any:
    """One column as a Series, several as a DataFrame."""
    return frame[columns[0]] if len(columns) == 1 else frame[list(columns)]


def X_of_fit(estimator: Any, frame: pd.DataFrame, columns: Sequence[str]) -> Any:
    """The columns as a fitted estimator takes them: under the names of its fit, if it was given a DataFrame.

    Columns of the same names are taken by name, others by position.
    """
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is None or len(fitted) != len(columns):
        return X_of(frame, columns)
    return frame[list(fitted)] if set(fitted) == set(columns) else frame[list(columns)].set_axis(list(fitted), axis=1)


def y_of(frame: pd.DataFrame, columns: Sequence[str], task: str, classes: Any = None) -> Any:
    """The labels: numbers for a regression, else as they stand.

    Parameters
    ----------
    frame : DataFrame
    columns : sequence of str
    task : str
    classes : array-like, optional
        The labels that there are, of an estimator or another table: values that are written as one of them become it,
        as the text "1" of a CSV file becomes the number.

    Raises
    ------
    ValueError
        If a value is no number where it must be, a label is empty, or no value is one of the ``classes``.
    """
    y = X_of(frame, columns)
    if task == "regression" or (task == "choice" and not holds_lists(y)):
        numbers = _numbers(frame, columns, "float64" if task == "regression" else "int64")
        return numbers[columns[0]] if len(columns) == 1 else numbers
    if task == "answering":
        return y.assign(**_numbers(frame, [name for name in columns[1:] if not holds_lists(y[name])], "int64"))
    if isinstance(y, pd.DataFrame):
        return _numbers(frame.assign(**{name: _zeros_and_ones(frame[name]) for name in columns}), columns, "int64")
    if task == "tagging" or holds_lists(y):
        return y
    values = y.astype(object)
    _require_labels(frame, columns[0])
    if classes is None:
        return values
    known = list(classes)
    meant, of_type = {text: value for value in known for text in _as_written(value)}, _to_type_of(known)
    is_known = set(known)
    values = values.map(lambda value: value if value in is_known else meant.get(_read(value, known), of_type(value)))
    if not values.isin(known).any():
        raise ValueError(
            f"The column {columns[0]!r} has no label that the model knows: it has {_some(values.unique())}, and the "
            f"model {_some(known)}."
        )
    return values


def _as_written(value: Any) -> set[str]:
    """How a label may stand in a file: 1 and 1.0 as "1" and as "1.0"; in lower case, unless it is a text."""
    if isinstance(value, str):
        return {value}
    is_whole = isinstance(value, int | float | np.number) and not isinstance(value, bool) and float(value).is_integer()
    return {str(value).lower()} | ({str(int(value)), str(float(value))} if is_whole else set())


def _read(value: Any, known: Sequence[Any]) -> str:
    """A label of a file, to be looked up among what `_as_written` gives for the known ones."""
    is_text = isinstance(value, str) and isinstance(known[0], str)
    return value if is_text else str(value).lower()


def _to_type_of(known: Sequence[Any]) -> Callable[[Any], Any]:
    """What makes a label that is new of the type of those that are known, where it can be."""
    if all(isinstance(value, str) for value in known):
        return str
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in known):
        return lambda value: (
            int(value) if isinstance(value, str) and value.strip().removeprefix("-").isdecimal() else value
        )
    return lambda value: value


def _require_labels(frame: pd.DataFrame, name: str) -> None:
    """Raise with the first row whose label is missing or an empty text, if there is one."""
    column = frame[name]
    is_empty = column.isna()
    if not pd.api.types.is_numeric_dtype(column.dtype):
        is_empty |= column.astype(object).map(lambda value: isinstance(value, str) and not value).astype(bool)
    if is_empty.any():
        row = row_in_file(frame, int(np.argmax(is_empty)))
        raise ValueError(f"The label in the column {name!r} of {row} is empty. Remove such rows.")


def _zeros_and_ones(column: pd.Series) -> pd.Series:
    """A column of texts with "True" and "False", which pandas writes into CSV, as 1 and 0; any other as it is."""
    if not isinstance(column.dtype, pd.ArrowDtype):
        return column
    truth = column.str.lower().map({"true": 1, "false": 0}, na_action="ignore")
    return column.astype(object).where(truth.isna(), truth)


def _numbers(frame: pd.DataFrame, columns: Sequence[str], dtype: str) -> pd.DataFrame:
    """Columns as numbers. The error names the first value that is none, with its row."""
    for name in columns:
        _require_labels(frame, name)
        if dtype == "int64" and pd.api.types.is_numeric_dtype(frame[name].dtype):
            _require_whole(frame, name)  # astype cuts decimals off, and wraps what is too large
    try:
        return frame[list(columns)].astype(dtype)
    except (ValueError, TypeError, OverflowError):
        for name in columns:
            for row, value in frame[name].items():
                try:
                    pd.Series([value]).astype(dtype)
                except (ValueError, TypeError, OverflowError):
                    kind = "number" if dtype == "float64" else "whole number"
                    raise ValueError(_no_number(frame, name, row, value, kind)) from None
        raise


def _require_whole(frame: pd.DataFrame, name: str) -> None:
    """Raise with the first value of a column that is no whole number of 64 bits, if there is one."""
    numbers = frame[name].astype("float64")
    wrong = (numbers % 1 != 0) | (numbers.abs() >= 2**63)  # an infinite one has no remainder that is 0
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(_no_number(frame, name, row, float(frame[name].iloc[row]), "whole number"))


def _no_number(frame: pd.DataFrame, name: str, row: Any, value: Any, kind: str) -> str:
    """The message for a value that is not of a kind of numbers."""
    return f"The column {name!r} does not hold numbers only: {shown(value)} in {row_in_file(frame, row)} is no {kind}."


def _some(values: Sequence[Any]) -> str:
    return ", ".join(map(shown, list(values)[:5])) + (", ..." if len(values) > 5 else "")


def holds_lists(column: Any) -> bool:
    """Whether the values of a column are lists, by its first one."""
    return isinstance(column, pd.Series) and len(column) > 0 and isinstance(column.iloc[0], list | np.ndarray)


def _has_lists(column: pd.Series) -> bool:
    """Whether the values of a column are lists, or texts that are meant as lists."""
    return holds_lists(column) or meant_as_lists(column)


def _holds_spans(column: pd.Series) -> bool:
    """Whether the lists of a column are of spans, by the first that is not empty: objects with a start, or triples."""
    lists = (json_list(row) if isinstance(row, str) else row for row in column)
    first = next((row[0] for row in lists if isinstance(row, list | np.ndarray) and len(row)), None)
    if isinstance(first, dict):
        return "start" in first
    return isinstance(first, list | tuple | np.ndarray) and len(first) == 3


def _hold_decimals(frame: pd.DataFrame, names: Sequence[str]) -> bool:
    """Whether all values of these columns are numbers, and one is not whole: 0 and 1.0 are labels, 0.5 is none."""
    columns = [_as_numbers(frame[name]) for name in names]
    return all(column.notna().all() for column in columns) and any((column % 1 != 0).any() for column in columns)


def _as_numbers(column: pd.Series) -> pd.Series:
    """The column as numbers, NaN for what is none: texts of numbers are some, lists and categories are not."""
    if isinstance(column.dtype, pd.ArrowDtype):
        column = column.astype(object)
    elif not pd.api.types.is_numeric_dtype(column.dtype):
        return pd.Series(np.nan, column.index)
    return pd.to_numeric(column, errors="coerce")
