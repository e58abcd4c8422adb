"""SQuAD 1.1 and 2.0 from their JSON files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kbert.datasets.files import read_text
from kbert.errors import DatasetWarning
from kbert.values.surrogates import require_no_surrogates
from kbert.warn import warn_user

COLUMNS = ["id", "title", "question", "context", "answer", "answer_start"]


class Question(NamedTuple):
    """A question. ``answers`` are its right answers as (text, start) pairs, or None where they are withheld."""

    id: str
    title: str
    question: str
    context: str
    answers: list[tuple[str, int]] | None


def read_squad(path: str | Path) -> pd.DataFrame:
    """Read a file in SQuAD's JSON format, version 1.1 or 2.0.

    Parameters
    ----------
    path : str or Path
        The file, such as dev-v2.0.json; also .json.gz, .json.bz2, .json.xz.

    Returns
    -------
    DataFrame
        A row for each question, with the columns ``id``, ``title``, ``question``, ``context``, ``answer`` and
        ``answer_start``, the answer's first character in the context. One right answer: a str and an int. Several, as
        in the dev parts: two lists of equal length. None, an unanswerable question of 2.0: "" and -1. A file without
        answers gives no ``answer`` and ``answer_start``.

    Raises
    ------
    ValueError
        If the file is not JSON or not in SQuAD's layout. The message names the line or the article.

    Warns
    -----
    DatasetWarning
        If answers are not in their contexts at ``answer_start``, with the number of them.

    Examples
    --------
    >>> import json
    >>> from kbert.datasets import read_squad
    >>> answers = [{"text": "Norway", "answer_start": 11}]
    >>> questions = [{"id": "1", "question": "Where is Oslo?", "answers": answers}]
    >>> paragraph = {"context": "Oslo is in Norway.", "qas": questions}
    >>> with open("dev.json", "w") as file:
    ...     json.dump({"data": [{"title": "Oslo", "paragraphs": [paragraph]}]}, file)
    >>> read_squad("dev.json")[["question", "answer", "answer_start"]]
             question  answer  answer_start
    0  Where is Oslo?  Norway            11
    """
    try:
        content = json.loads(read_text(path))
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply to be in SQuAD's layout.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}, column {error.colno}: is no JSON ({error.msg}).") from error
    return squad_frame(_questions(content, path), str(path))


def squad_frame(questions: Iterable[Question], source: str) -> pd.DataFrame:
    """Make a table of questions. ``source`` is what messages call the file."""
    rows = list(questions)
    labelled = [(row, row.answers) for row in rows if row.answers is not None]
    frame = pd.DataFrame([row[:4] for row in rows], columns=COLUMNS[:4])
    if rows and not labelled:
        return frame
    if len(labelled) < len(rows):
        question = next(row for row in rows if row.answers is None)
        raise ValueError(f"{source}: question {question.id!r} has no 'answers', and others have.")
    wrong = [
        row.id
        for row, answers in labelled
        for text, start in answers
        if start < 0 or row.context[start : start + len(text)] != text
    ]
    if wrong:
        n_answers = sum(len(answers) for _, answers in labelled)
        warn_user(
            f"{source}: {len(wrong)} of {n_answers} answers are not in the context where answer_start says, for "
            f"instance that of question {wrong[0]!r}. Drop these rows, or correct their answer_start, before training "
            "on them.",
            DatasetWarning,
        )
    columns = [_columns(answers) for _, answers in labelled]
    frame["answer"] = [answer for answer, _ in columns]
    frame["answer_start"] = [start for _, start in columns]
    return frame


def _columns(answers: list[tuple[str, int]]) -> tuple[str | list[str], int | list[int]]:
    """Return the values of the columns ``answer`` and ``answer_start``."""
    if not answers:
        return "", -1
    if len(answers) == 1:
        return answers[0]
    return [text for text, _ in answers], [start for _, start in answers]


def _questions(content: Any, path: str | Path) -> Iterable[Question]:
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise ValueError(f"{path}: is not in SQuAD's layout, an object with a list 'data'.")
    for a, article in enumerate(content["data"]):
        try:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    require_no_surrogates(str(question["id"]), "id")
                    yield Question(
                        str(question["id"]),
                        _text(article, "title") if "title" in article else "",
                        _text(question, "question"),
                        _text(paragraph, "context"),
                        _answers(question),
                    )
        except KeyError as error:
            raise ValueError(f"{path}, article {a}: is not in SQuAD's layout, {error.args[0]!r} is missing.") from error
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path}, article {a}: is not in SQuAD's layout ({error}).") from error


def _answers(question: dict[str, Any]) -> list[tuple[str, int]] | None:
    """Return the right answers of a question. The "plausible_answers" of SQuAD 2.0 are wrong ones."""
    impossible = question.get("is_impossible")
    if impossible not in (None, False, True):
        raise ValueError(f"question {str(question['id'])!r}: is_impossible is {impossible!r:.200}; write true or false")
    if impossible:
        return []
    if "answers" not in question:
        return None
    return [(_text(answer, "text"), _start(question, answer["answer_start"])) for answer in question["answers"]]


def _start(question: dict[str, Any], value: Any) -> int:
    try:
        start: int | None = int(value)
    except (TypeError, ValueError, OverflowError):
        start = None
    if start is None or isinstance(value, bool) or (isinstance(value, float) and value != start):
        raise ValueError(
            f"question {str(question['id'])!r}: answer_start is {value!r:.200}; write the number of the answer's first "
            "character, a whole number"
        )
    return start


def _text(values: dict[str, Any], key: str) -> str:
    if not isinstance(values[key], str):
        raise TypeError(f"{key!r} is {values[key]!r:.200}, not a text")
    require_no_surrogates(values[key], key)
    return values[key]
