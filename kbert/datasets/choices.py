"""Multiple-choice questions from SWAG's CSV and from JSON lines."""

import csv
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kbert.datasets.files import PACKED, is_blank, read_lines, read_text
from kbert.files.inputs import endings_of, with_long_fields
from kbert.values.surrogates import require_no_surrogates

_ENDING = re.compile(r"ending(\d+)")


class Choice(NamedTuple):
    """One row. ``source`` is its file and line, for messages; ``label`` is None where it is withheld."""

    source: str
    id: str | None
    context: str
    question: str | None
    options: list[str]
    label: int | None


def read_choices(path: str | Path) -> pd.DataFrame:
    """Read multiple-choice questions from SWAG's CSV or from JSON lines.

    Parameters
    ----------
    path : str or Path
        A .csv in SWAG's format (columns sent1, sent2, ending0 and so on, label), or a .jsonl with an object a line
        (keys context and options, a list; question, label and id are optional). Also .gz, .bz2, .xz.

    Returns
    -------
    DataFrame
        Columns ``context``; ``options``, a list of str; ``label``, the index of the right option from 0; ``id`` and
        ``question``. A column that the file does not have is absent. SWAG's sent1 is the context, and its sent2, with
        which each ending begins, the question.

    Raises
    ------
    ValueError
        If a row is damaged, has no options, or a label that is none of them; the message names file and line.

    Examples
    --------
    >>> import pandas as pd
    >>> from kbert.datasets import read_choices
    >>> rows = {"context": ["It rains."], "options": [["dry", "wet"]], "label": [1]}
    >>> pd.DataFrame(rows).to_json("exam.jsonl", orient="records", lines=True)
    >>> read_choices("exam.jsonl")
         context     options  label
    0  It rains.  [dry, wet]      1
    """
    contents, _ = endings_of(Path(path))
    if contents == ".csv":
        return choices_frame(_read_swag(path))
    if contents in (".jsonl", ".json"):
        return choices_frame(_read_json_lines(path))
    raise ValueError(f"{path}: the name of a file of choices ends in .csv (SWAG) or .jsonl, also with {PACKED}.")


def choices_frame(rows: Iterable[Choice]) -> pd.DataFrame:
    """Make a table of rows.

    Raises
    ------
    ValueError
        If a row has no options or a label that is none of them, or if some rows have labels and others do not.
    """
    rows = list(rows)
    for row in rows:
        if not row.options:
            raise ValueError(f"{row.source}: has no options.")
        if row.label is not None and not 0 <= row.label < len(row.options):
            raise ValueError(f"{row.source}: label {row.label}, where the options are 0 to {len(row.options) - 1}.")
    columns: dict[str, list[Any]] = {}
    if any(row.id is not None for row in rows):
        ids = [row.id for row in rows]
        columns["id"] = pd.Series(ids, dtype=object) if None in ids else ids  # or pandas would make floats of numbers
    columns["context"] = [row.context for row in rows]
    if any(row.question is not None for row in rows):
        columns["question"] = [row.question or "" for row in rows]
    columns["options"] = [row.options for row in rows]
    labelled = [row.label is not None for row in rows]
    if all(labelled):
        columns["label"] = [row.label for row in rows]
    elif any(labelled):
        raise ValueError(f"{rows[labelled.index(False)].source}: has no label, and others have.")
    return pd.DataFrame(columns)


def swag_choice(record: dict[str, Any], source: str) -> Choice:
    """Make a row of SWAG's columns, given by name."""
    endings = sorted((int(match[1]), name) for name in record if (match := _ENDING.fullmatch(name)))
    options = [record[name] for _, name in endings]
    return Choice(source, None, record["sent1"], record["sent2"], options, _label(record.get("label"), source))


def _read_swag(path: str | Path) -> Iterable[Choice]:
    # strict: an open quote is an error, where it would otherwise swallow the rows up to the next one.
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows = with_long_fields(reader)
    try:
        header = next(rows, [])
        missing = [name for name in ("sent1", "sent2", "ending0") if name not in header]
        if missing:
            raise ValueError(
                f"{path} has no column {missing[0]!r}; its first line is {header!r:.500}. SWAG's files have one."
            )
        for fields in rows:
            source = f"{path}, line {reader.line_num}"
            if not fields or (len(fields) == 1 and is_blank(fields[0])):
                continue
            if len(fields) != len(header):
                raise ValueError(f"{source}: {len(fields)} columns, where the header has {len(header)}.")
            yield swag_choice(dict(zip(header, fields, strict=True)), source)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: is no CSV ({error}).") from error


def _read_json_lines(path: str | Path) -> Iterable[Choice]:
    for n, line in enumerate(read_lines(path), 1):
        if is_blank(line):
            continue
        source = f"{path}, line {n}"
        try:
            record = json.loads(line)
        except RecursionError:
            raise ValueError(f"{source}: is nested too deeply for an object with context and options.") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{source}, column {error.colno}: is no JSON ({error.msg}).") from error
        if not isinstance(record, dict):
            raise ValueError(f"{source}: is no JSON object.")
        missing = [key for key in ("context", "options") if key not in record]
        if missing:
            raise ValueError(f"{source}: {missing[0]!r} is missing; it has {', '.join(record)}.")
        for key in ("context", "question"):
            if not isinstance(record.get(key, ""), str) and not (key == "question" and record[key] is None):
                raise ValueError(f"{source}: {key} is {record[key]!r:.500}, not a text.")
        for key in ("context", "question", "id"):
            require_no_surrogates(str(record.get(key)), f"{source}: {key}")
        options = record["options"]
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
            raise ValueError(f"{source}: options is {options!r:.500}, not a list of texts.")
        for option in options:
            require_no_surrogates(option, f"{source}: options")
        label = _label(record.get("label"), source)
        yield Choice(source, record.get("id"), record["context"], record.get("question"), options, label)


def _label(value: Any, source: str) -> int | None:
    """Return the index of the right option; None where it is withheld."""
    if value is None or value in ("", -1, "-1"):
        return None
    if isinstance(value, int | str) and not isinstance(value, bool) and str(value).isdecimal():
        return int(value)
    raise ValueError(f"{source}: label {value!r:.500} is no index of an option.")
