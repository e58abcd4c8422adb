"""What X is read into has one interface, whatever the task."""

import numpy as np
import pandas as pd
import pytest

from kbert.data.choices import choice_columns
from kbert.data.questions import question_columns
from kbert.data.tags import word_column
from kbert.data.texts import text_columns

ROWS = 5
TEXTS = ["The cat.", "", "A mat", "sat", "on it"]
WORDS = [["The", "cat"], [], ["A", "mat"], ["sat"], ["on", "it"]]

READ = {
    "texts": lambda: text_columns(pd.DataFrame({"text": TEXTS})),
    "pairs": lambda: text_columns(pd.DataFrame({"one": TEXTS, "two": TEXTS[::-1]}).astype("string")),
    "questions": lambda: question_columns(pd.DataFrame({"question": TEXTS, "context": TEXTS[::-1]})),
    "choices": lambda: choice_columns(pd.DataFrame({"context": TEXTS, "options": [["a", "bc"]] * ROWS})),
    "words": lambda: word_column(pd.DataFrame({"words": WORDS})),
    "texts to split": lambda: word_column(pd.DataFrame({"words": TEXTS})),
}
NAMES = {
    "texts": ["text"],
    "pairs": ["one", "two"],
    "questions": ["question", "context"],
    "choices": ["context", "options"],
    "words": ["words"],
    "texts to split": ["words"],
}


@pytest.mark.parametrize("kind", READ)
def test_rows_names_and_characters(kind):
    columns = READ[kind]()
    assert columns.n_rows == len(columns.n_characters) == ROWS
    assert columns.names == NAMES[kind]
    assert columns.n_missing == {"pairs": 2, "questions": 2, "words": 0}.get(kind, 1)
    if kind != "choices":  # whose contexts count once for each option
        # The text of a row of words has spaces that are in no word.
        spaces = sum(len(row) - 1 for row in WORDS if row) if kind == "words" else 0
        assert columns.n_characters.sum() == sum(map(len, columns.texts())) - spaces


@pytest.mark.parametrize("kind", READ)
def test_some_rows_are_those_rows(kind):
    columns = READ[kind]()
    some, none = columns.rows(slice(2, 4)), columns.rows(slice(5, 5))
    assert (some.n_rows, none.n_rows) == (2, 0)
    assert some.names == columns.names
    assert some.n_characters.tolist() == columns.n_characters[2:4].tolist()
    assert list(none.texts()) == []
    halves = [columns.rows(rows) for rows in (slice(0, 2), slice(2, 5))]
    assert sorted(text for half in halves for text in half.texts()) == sorted(columns.texts())


@pytest.mark.parametrize("kind", READ)
def test_rows_that_are_taken_and_what_identifies_them(kind):
    columns = READ[kind]()
    some = columns.take(np.array([1, 3, 4]))
    keys, n_characters = list(columns.keys()), columns.n_characters.tolist()
    assert list(some.keys()) == [keys[1], keys[3], keys[4]] and len(set(keys)) == ROWS
    assert some.n_characters.tolist() == [n_characters[1], n_characters[3], n_characters[4]]
    assert some.names == columns.names and some.n_rows == 3 and len({hash(key) for key in keys}) == ROWS


def test_questions_and_options_identify_a_row_too():
    rows = [("c", "q", ["a", "b"]), ("c", "q", ["a", "b"]), ("c", "r", ["a", "b"]), ("c", "q", ["b", "a"])]
    columns = choice_columns(pd.DataFrame(rows, columns=["context", "question", "options"]))
    one, same, other_question, other_options = columns.keys()
    assert one == same and len({one, other_question, other_options}) == 3
    taken = columns.take(np.array([2]))
    assert taken.questions == ["r"] and taken.names == columns.names


def test_words_are_split_once_and_keep_their_offsets():
    calls = []

    def words_of_texts(texts):
        calls.append(list(texts))
        return [text.split() for text in texts], [[(0, 1)] * len(text.split()) for text in texts]

    words = word_column(TEXTS).split(words_of_texts)
    assert words.split(words_of_texts) is words and len(calls) == 1
    (chunk,) = words.rows(slice(0, 3)).chunks(words_of_texts)
    assert chunk.words == [["The", "cat."], [], ["A", "mat"]] and chunk.raw_texts == TEXTS[:3]
    assert [len(row) for row in chunk.offsets] == [2, 0, 2] and len(calls) == 1
