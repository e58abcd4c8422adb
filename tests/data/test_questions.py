from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kbert.data.answers import Answers, answer_columns, answer_texts
from kbert.data.questions import QuestionColumns, question_columns

QUESTIONS = ["Where?", "", "Who is Ünal 🙂?", "Which?"]
CONTEXTS = ["In Paris, not in Lyon.", "Nothing here.", "中文 🙂 Ünal, they say", "one, two, one"]
ROWS = QuestionColumns(QUESTIONS, CONTEXTS)

# One answer in each row, none in the second.
ANSWERS, STARTS = ["Paris", "", "Ünal", "one"], [3, -1, 5, 10]
ONE = Answers([["Paris"], [], ["Ünal"], ["one"]], [[3], [], [5], [10]])

# Several in some rows, as in SQuAD's dev parts.
SEVERAL = [["Paris", "in Lyon"], [], ["Ünal"], ["one", "two", "one"]]
THEIR_STARTS = [[3, 14], [], [5], [0, 5, 10]]


def pyarrow_frame(a, b):
    pytest.importorskip("pyarrow")
    return pd.DataFrame({"question": a, "context": b}).astype("string[pyarrow]")


def polars_frame(data):
    pytest.importorskip("pyarrow")
    return pytest.importorskip("polars").DataFrame(data)


class Foreign:
    """A container of another library, which converts itself."""

    def __init__(self, inner):
        self.inner = inner

    def to_pandas(self):
        return self.inner


Row = namedtuple("Row", ["question", "context"])
IS_NAMED = {"frame", "frame_order", "frame_others", "frame_string", "frame_pyarrow", "frame_category", "foreign"}
IS_NAMED |= {"polars"}
QUESTION_CONTAINERS = {
    "tuples": lambda a, b: list(zip(a, b, strict=True)),
    "lists": lambda a, b: [list(row) for row in zip(a, b, strict=True)],
    "namedtuples": lambda a, b: [Row(*row) for row in zip(a, b, strict=True)],
    "tuple_of_tuples": lambda a, b: tuple(zip(a, b, strict=True)),
    "array_object": lambda a, b: np.array([a, b], dtype=object).T,
    "array_str": lambda a, b: np.array([a, b]).T,
    "series_of_tuples": lambda a, b: pd.Series(list(zip(a, b, strict=True)), index=[7] * len(a)),
    "frame": lambda a, b: pd.DataFrame({"question": a, "context": b}),
    "frame_order": lambda a, b: pd.DataFrame({"context": b, "question": a}),
    "frame_others": lambda a, b: pd.DataFrame({"id": 1, "context": b, "answer": "x", "question": a, 3: None}),
    "frame_string": lambda a, b: pd.DataFrame({"question": a, "context": b}, dtype="string"),
    "frame_pyarrow": pyarrow_frame,
    "frame_category": lambda a, b: pd.DataFrame({"question": a, "context": b}, dtype="category"),
    "frame_unnamed": lambda a, b: pd.DataFrame(list(zip(a, b, strict=True))),
    "foreign": lambda a, b: Foreign(pd.DataFrame({"question": a, "context": b})),
    "polars": lambda a, b: polars_frame({"context": b, "question": a}),
}


# --- Questions and contexts


@pytest.mark.parametrize("kind", QUESTION_CONTAINERS)
def test_every_container_of_questions_is_equal(kind):
    found = question_columns(QUESTION_CONTAINERS[kind](QUESTIONS, CONTEXTS))
    assert found.columns == (QUESTIONS, CONTEXTS) and found.n_rows == 4 and found.n_missing == 1
    assert all(type(text) is str for text in found.texts()) and list(found.texts()) == QUESTIONS + CONTEXTS
    assert found.names == (["question", "context"] if kind in IS_NAMED else None)


def test_columns_are_known_by_their_place_where_none_has_its_name():
    found = question_columns(pd.DataFrame({"ask": QUESTIONS, "passage": CONTEXTS}))
    assert found.columns == (QUESTIONS, CONTEXTS) and found.names == ["ask", "passage"]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, ""])
def test_a_missing_text_is_empty_and_counted(missing):
    found = question_columns([("a", missing), (missing, "b"), ("c", "d"), (missing, missing)])
    assert found.columns == (["a", "", "c", ""], ["", "b", "d", ""]) and found.n_missing == 4


def test_rows_are_cut_and_characters_are_counted():
    found = question_columns(list(zip(QUESTIONS, CONTEXTS, strict=True)))
    some = found.rows(slice(1, 3))
    assert some.columns == (QUESTIONS[1:3], CONTEXTS[1:3]) and some.n_rows == 2
    assert found.n_characters.tolist() == [28, 13, 14 + 19, 19] and found.n_characters.dtype == np.int64


ONE_ROW = pd.DataFrame({"question": ["a"], "context": ["b"], "id": [1]})


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("text", ValueError, "X is a single str"),
        ([], ValueError, "Found array with 0 sample.*X is empty: give at least one row"),
        (ONE_ROW[:0], ValueError, "Found array with 0 sample"),
        (("a?", "b"), ValueError, r"X has 1 column, where question and context.*one row, .*\[\(question, context\)\]"),
        (["a?", "b", "c"], ValueError, r"X has 1 column, where question.*list\(zip\(questions, contexts\)\)"),
        (ONE_ROW.iloc[0], ValueError, r"X is one row of a DataFrame.*'question', 'context', 'id'.*df.iloc\[\[i\]\]"),
        ({"question": "a", "context": "b"}, TypeError, r"X is one row, a dict of single.*pd.DataFrame\(\[X\]\)"),
        ({"question": ["a"], "context": ["b"]}, TypeError, r"X is a dict. Make it a table: pd.DataFrame\(X\)"),
        ([{"question": "a", "context": "b"}], ValueError, r"X has 1 column.*of the dicts: pd.DataFrame\(list\(X\)\)"),
        (iter([("a", "b")]), TypeError, "read only once"),
        (["abc", ("a", "b")], ValueError, "X is ragged: row 0"),
        ([("a", "b", "c")], ValueError, "X has 3 columns, where question and context are expected"),
        ((["a"] * 3, ["b"] * 3), ValueError, r"X has 3 columns.*Rows go first: list\(zip\(questions, contexts\)\)"),
        (np.empty((3, 0)), ValueError, "Found array with 0 feature.*question and context are expected"),
        (ONE_ROW[["question"]], ValueError, "X has a column 'question' and none named 'context'; its.*rename"),
        (ONE_ROW[["context", "id"]], ValueError, "X has a column 'context' and none named 'question'"),
        (ONE_ROW[["question", "context", "context"]], ValueError, "X has 2 columns named 'context'. Choose one"),
        (pd.DataFrame([list("abc")], columns=list("efg")), ValueError, r"X has 3 columns \('e', 'f', 'g'\), where"),
        ([("a", "b"), ("a", 3)], TypeError, "X: row 1 of column 1 is of type int, not a text: 3. Convert"),
        ([("a", "b"), (["a"], "b")], TypeError, "X: row 1 of column 0 is of type list"),
        (pd.DataFrame({"context": ["a", b"b"], "question": "c"}, index=[5, 6]), TypeError,
         r"X: row 1 \(index 6\) of column 'context' .*bytes.*Decode"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used_are_refused_with_the_remedy(X, error, message):
    with pytest.raises(error, match=message):
        question_columns(X)


# --- Answers


ONE_ANSWER = {
    "tuples": lambda a, s: list(zip(a, s, strict=True)),
    "lists": lambda a, s: [list(row) for row in zip(a, s, strict=True)],
    "array": lambda a, s: np.array([a, s], dtype=object).T,
    "arrays": lambda a, s: [np.array(row, dtype=object) for row in zip(a, s, strict=True)],
    "series_of_tuples": lambda a, s: pd.Series(list(zip(a, s, strict=True)), index=[7] * len(a)),
    "numpy": lambda a, s: list(zip(np.array(a), np.array(s, "int32"), strict=True)),
    "floats": lambda a, s: list(zip(a, map(float, s), strict=True)),
    "frame": lambda a, s: pd.DataFrame({"answer": a, "answer_start": s}),
    "frame_others": lambda a, s: pd.DataFrame({"answer_start": s, "id": "x", "question": "y", "answer": a, 3: 4}),
    "frame_by_place": lambda a, s: pd.DataFrame({"text": a, "start": s}),
    "frame_nullable": lambda a, s: pd.DataFrame({"answer": a, "answer_start": s}).convert_dtypes(),
    "frame_floats": lambda a, s: pd.DataFrame({"answer": a, "answer_start": np.array(s, "float32")}),
    "frame_category": lambda a, s: pd.DataFrame({"answer": pd.Categorical(a), "answer_start": s}),
    "foreign": lambda a, s: Foreign(pd.DataFrame({"answer": a, "answer_start": s})),
    "polars": lambda a, s: polars_frame({"answer": a, "answer_start": s}),
    "dicts_of_one": lambda a, s: [{"text": t, "answer_start": n} for t, n in zip(a, s, strict=True)],
}
SEVERAL_ANSWERS = {
    "tuples": lambda a, s: list(zip(a, s, strict=True)),
    "tuples_of_tuples": lambda a, s: [(tuple(t), tuple(n)) for t, n in zip(a, s, strict=True)],
    "frame": lambda a, s: pd.DataFrame({"answer_start": s, "answer": a}),
    "frame_arrays": lambda a, s: pd.DataFrame(
        {"answer": [np.array(t, object) for t in a], "answer_start": [np.array(n, "int32") for n in s]}
    ),
    "dicts": lambda a, s: [{"text": t, "answer_start": n} for t, n in zip(a, s, strict=True)],
    "series_of_dicts": lambda a, s: pd.Series(SEVERAL_ANSWERS["dicts"](a, s), name="answers"),
    "array_of_dicts": lambda a, s: np.array(SEVERAL_ANSWERS["dicts"](a, s)),
    "dicts_of_arrays": lambda a, s: [
        {"answer_start": np.array(n, "int32"), "text": np.array(t, object)} for t, n in zip(a, s, strict=True)
    ],
    "frame_of_dicts": lambda a, s: pd.DataFrame({"answers": SEVERAL_ANSWERS["dicts"](a, s)}),
    "hugging_face": lambda a, s: Foreign(
        pd.DataFrame({"id": "x", "title": "y", "question": QUESTIONS, "answers": SEVERAL_ANSWERS["dicts"](a, s)})
    ),
}


def all_plain(found):
    texts = all(type(text) is str for row in found.texts for text in row)
    return texts and all(type(start) is int for row in found.starts for start in row)


@pytest.mark.parametrize("kind", ONE_ANSWER)
def test_every_container_of_one_answer_a_row_is_equal(kind):
    y = ONE_ANSWER[kind](ANSWERS, STARTS)
    found = answer_columns(y, ROWS)
    assert found == ONE and all_plain(found)
    assert answer_texts(y, 4) == ONE.texts


@pytest.mark.parametrize("kind", SEVERAL_ANSWERS)
def test_every_container_of_several_answers_is_equal(kind):
    y = SEVERAL_ANSWERS[kind](SEVERAL, THEIR_STARTS)
    found = answer_columns(y, ROWS)
    assert found == Answers(SEVERAL, THEIR_STARTS) and all_plain(found)
    assert answer_texts(y, 4) == SEVERAL


@pytest.mark.parametrize("kind", ["tuples", "frame"])
def test_rows_of_one_and_of_several_answers_may_be_mixed(kind):
    y = ONE_ANSWER[kind](["Paris", "", ["Ünal"], ["one", "two"]], [3, -1, [5], [0, 5]])
    expected = [["Paris"], [], ["Ünal"], ["one", "two"]]
    assert answer_columns(y, ROWS) == Answers(expected, [[3], [], [5], [0, 5]])
    assert answer_texts(y, 4) == expected


@pytest.mark.parametrize("container", [list, tuple, pd.Series, lambda y: pd.DataFrame({"answer": y}), Foreign])
@pytest.mark.parametrize("y", [["Paris", "", "Ünal", "one"], SEVERAL, [["a", "b"], "", "c", ["d"]], [["a", "b"]] * 4])
def test_texts_alone_serve_where_positions_do_not_matter(y, container):
    made = container(pd.Series(y)) if container is Foreign else container(y)
    assert answer_texts(made, 4) == [[row] if row and isinstance(row, str) else list(row) for row in y]
    with pytest.raises(ValueError, match="y has|a column 'answer' and none named 'answer_start'"):
        answer_columns(made, ROWS)


def test_some_rows_are_taken():
    assert ONE.answerable.tolist() == [True, False, True, True] and ONE.answerable.dtype == bool
    expected = Answers([[], ["one"]], [[], [10]])
    for rows in ([1, 3], np.array([1, 3]), np.array([False, True, False, True]), slice(1, None, 2)):
        assert ONE.take(rows) == expected
    assert ONE.take([]) == Answers([], []) and ONE.take([]).answerable.shape == (0,)


def test_the_caller_keeps_its_lists():
    y = pd.DataFrame({"answer": SEVERAL, "answer_start": THEIR_STARTS})
    found = answer_columns(y, ROWS)
    found.texts[0].append("x")
    found.starts[0].append(1)
    assert y.answer[0] == ["Paris", "in Lyon"] and y.answer_start[0] == [3, 14]


# --- Answers that stand elsewhere


CITY = QuestionColumns(["Where is the river?"], ["In Paris. The\n cafe in Lyon, and paris again: Paris"])


@pytest.mark.parametrize(
    ("answer", "start", "messages"),
    [
        ("Lyon", 20, ["y: row 0 of column 1 (answer_start) is 20, where the context has 'in L'", "the answer is 'Lyon'",
                      "It stands at 23: correct the answer_start"]),
        ("Paris", 7, ["Its nearest occurrence is at 3"]),
        ("Paris", 40, ["Its nearest occurrence is at 46"]),
        ("Lyon", -1, ["is -1, which stands for an unanswerable question, and the answer is 'Lyon'", "stands at 23"]),
        ("Lyon", -7, ["is -7, and characters count from 0", "It stands at 23"]),
        ("Lyon", 99, ["is 99, past the end of the context, which has 51 characters", "It stands at 23"]),
        ("PARIS", 36, ["differs in case or white space only is 'paris' at 33: take this text"]),
        ("the cafe", 10, [r"where the context has 'The\n caf'", r"is 'The\n cafe' at 10"]),
        (" Lyon ", 23, ["where the context has 'Lyon, '", "is 'Lyon' at 23"]),
        ("river", 3, ["It is not in the context, but in the question", "in the right order"]),
        ("Rome", 3, ["It is not in the context: drop the row, or give the answer as the context has it"]),
        ("(", 3, ["It is not in the context: drop"]),
        ("x" * 99, 3, ["the answer is '" + "x" * 57 + "'...", "It is not in the context"]),
    ],
)  # fmt: skip
def test_the_nearest_match_is_offered(answer, start, messages):
    with pytest.raises(ValueError) as told:
        answer_columns([(answer, start)], CITY)
    for message in messages:
        assert message in str(told.value)
    assert "offsets" not in str(told.value) and "rows are wrong" not in str(told.value)
    with pytest.raises(ValueError) as told:
        answer_columns([(["In", answer], [0, start])], CITY)
    assert "y: row 0 of column 1 (answer_start): start 1 is" in str(told.value) and messages[-1] in str(told.value)


@pytest.mark.parametrize(
    ("start", "messages"),
    [
        (11, ["like byte offsets: counted in UTF-8 bytes, 11 is right", "it is 6", "encode('utf-8')[:answer_start]"]),
        (7, ["like offsets of JavaScript or Java: counted in UTF-16 units, 7", "it is 6", "[:2 * answer_start]"]),
    ],
)
def test_offsets_in_bytes_are_recognised(start, messages):
    rows = QuestionColumns(["?"], ["é 🙂 à Paris"])
    with pytest.raises(ValueError) as told:
        answer_columns([("Paris", start)], rows)
    for message in ["It stands at 6", *messages]:
        assert message in str(told.value)
    assert len(rows.contexts[0].encode("utf-8")[:11].decode("utf-8")) == 6
    assert len(rows.contexts[0].encode("utf-16-le")[: 2 * 7].decode("utf-16-le")) == 6


def test_lone_surrogates_are_characters_like_others():
    rows = QuestionColumns(["?"], ["\ud83d\ud800a 🙂 Paris"])
    assert answer_columns([("\ud800a", 1)], rows).starts == [[1]]
    with pytest.raises(ValueError, match="It stands at 6"):
        answer_columns([("Paris", 9)], rows)


@given(context=st.text(min_size=1), data=st.data())
def test_any_slice_is_an_answer_and_no_shift_of_it(context, data):
    start = data.draw(st.integers(0, len(context) - 1))
    answer = context[start : data.draw(st.integers(start + 1, len(context)))]
    assume(not answer.isspace())
    rows = QuestionColumns(["?"], [context])
    assert answer_columns([(answer, start)], rows) == Answers([[answer]], [[start]])
    shifted = data.draw(st.integers(-5, len(context) + 5))
    places = [i for i in range(len(context)) if context[i : i + len(answer)] == answer]
    assume(shifted not in places)
    with pytest.raises(ValueError) as told:
        answer_columns(pd.DataFrame({"answer_start": [shifted], "answer": [answer]}, index=["r"]), rows)
    message = str(told.value)
    assert message.startswith(f"y: row 0 (index 'r') of column 'answer_start' is {shifted}, ")
    inside = min(max(shifted, 0), len(context))
    nearest = [i for i in places if abs(i - inside) == min(abs(place - inside) for place in places)]
    words = "It stands at {}:" if len(places) == 1 else "Its nearest occurrence is at {}:"
    assert any(words.format(i) in message for i in nearest)
    if context.isascii():
        assert "offsets" not in message


@given(context=st.text(st.sampled_from("aé中🙂 "), min_size=1), data=st.data())
def test_a_byte_offset_is_told_by_the_character_it_stands_for(context, data):
    start = data.draw(st.integers(0, len(context) - 1))
    answer = context[start:]
    assume(not answer.isspace())
    for encoding, unit, units in (("utf-8", 1, "UTF-8 bytes"), ("utf-16-le", 2, "UTF-16 units")):
        offset = len(context[:start].encode(encoding)) // unit
        if context[offset : offset + len(answer)] != answer:
            with pytest.raises(ValueError, match=f"{units}, {offset} is right.*it is {start}, or len"):
                answer_columns([(answer, offset)], QuestionColumns(["?"], [context]))
            break


def test_several_wrong_rows_are_counted_and_the_first_is_named():
    y = pd.DataFrame({"answer": ANSWERS, "answer_start": [3, 4, 5, 9]}, index=list("abcd"))
    with pytest.raises(ValueError, match=r"y: row 1 \(index 'b'\) of column 'answer_start' is 4.*2 of 4 rows are wr"):
        answer_columns(y, ROWS)
    y = pd.DataFrame({"answer": [*ANSWERS[:3], 7], "answer_start": [3, -1, 6, 9]}, index=list("abcd"))
    with pytest.raises(ValueError, match=r"row 2 \(index 'c'\).*It stands at 5.* 2 of 4 rows are wrong"):
        answer_columns(y, ROWS)


# --- Bad input


def row_of(answer, start):
    """The third of four rows."""
    return [*zip(ANSWERS[:2], STARTS[:2], strict=True), (answer, start), ("one", 10)]


@pytest.mark.parametrize(
    ("answer", "start", "error", "field", "message"),
    [
        (None, 5, ValueError, 0, "is missing.*unanswerable question has the answer '' and the answer_start -1.*drop"),
        (np.nan, np.nan, ValueError, 0, "is missing.*unanswerable question has"),
        (pd.NA, -1, ValueError, 0, "is missing.*unanswerable question has"),
        ("Ünal", None, ValueError, 1, "is missing.*number of the answer's first character"),
        ("", np.nan, ValueError, 1, "is missing.*the answer '' and the answer_start -1"),
        ("", 5, ValueError, 1, "is 5, and the answer is empty. An unanswerable.*correct the one or the other"),
        ("", 0, ValueError, 1, "is 0, and the answer is empty"),
        ("Ünal", -1, ValueError, 1, "is -1, which stands for an unanswerable question.*stands at 5"),
        (" \n", 2, ValueError, 0, r"is ' \\n', white space only"),
        (7, 5, TypeError, 0, "is 7, of type int. Give a str"),
        (b"a", 5, TypeError, 0, "is b'a', of type bytes"),
        ("Ünal", "5", TypeError, 1, r"is '5', of type str.*Convert it with int\(\)"),
        ("Ünal", True, TypeError, 1, "is True, of type bool"),
        ("Ünal", 5.5, ValueError, 1, "is 5.5, and a character's number is whole"),
        ("Ünal", np.inf, ValueError, 1, "is inf, and a character's number is whole"),
        ("Ünal", 10**400, ValueError, 1, "past the end of the context"),
        ("Ünal", [5], ValueError, 1, "is .5., and the answer is 'Ünal': either both are lists"),
        (["Ünal"], 5, ValueError, 1, "is 5, and the answer is .'Ünal'.: either both are lists"),
        (["Ünal", "they"], [5], ValueError, 1, "has 1 starts, .5., and the row has 2 answers"),
        ([], [5], ValueError, 1, "has 1 starts, .5., and the row has 0 answers"),
        (["Ünal", ""], [5, -1], ValueError, 0, "answer 1 is empty. An unanswerable question.*or two empty lists"),
        (["Ünal", None], [5, 5], TypeError, 0, "answer 1 is None, of type NoneType, and no text"),
        (["Ünal", "they"], [5, None], ValueError, 1, "start 1 is missing"),
        (["Ünal", "they"], [5, "11"], TypeError, 1, "start 1 is '11'"),
    ],
)
def test_rows_that_cannot_be_used_are_named(answer, start, error, field, message):
    y = row_of(answer, start)
    with pytest.raises(error, match=rf"y: row 2 of column {field} \(answer(_start)?\):? .*{message}"):
        answer_columns(y, ROWS)
    frame = pd.DataFrame(
        {"answer": [row[0] for row in y], "answer_start": pd.Series([row[1] for row in y], dtype=object)}
    )
    frame.index = [5, 6, 7, 8]
    column = ["answer", "answer_start"][field]
    with pytest.raises(error, match=rf"y: row 2 \(index 7\) of column '{column}':? .*") as told:
        answer_columns(frame, ROWS)
    assert "rows are wrong" not in str(told.value)
    if field == 0:
        with pytest.raises(error, match=rf"y: row 2 \(index 7\) of column 'answer':? .*{message}"):
            answer_texts(frame, 4)
        with pytest.raises(error, match=r"y: row 2 \(index 7\):? "):
            answer_texts(frame.answer, 4)
    dicts = [{"text": text, "answer_start": start} for text, start in y]
    with pytest.raises(error, match="y: row 2 of '(text|answer_start)':? "):
        answer_columns(dicts, ROWS)


FRAME = pd.DataFrame({"answer": ANSWERS, "answer_start": STARTS})


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, ValueError, "requires y to be passed, but the target y is None. Give the answer and the answer_start"),
        ("Paris", ValueError, "y is a single str"),
        (("Paris", 3), ValueError, r"y is one row, \('Paris', 3\). Put it in a list: \[\(answer, answer_start\)\]"),
        ({"text": ["a"], "answer_start": [3]}, TypeError, r"y is the dict of one row. Put it in a list: \[y\]"),
        ({"answer": "Paris", "answer_start": 3}, TypeError, r"y is one row, a dict.*pd.DataFrame\(\[y\]\)"),
        ({"answer": ANSWERS, "answer_start": STARTS}, TypeError, r"Make it a table: pd.DataFrame\(y\)"),
        (FRAME.iloc[0], ValueError, "y is one row of a DataFrame, a Series with the labels 'answer', 'answer_start'"),
        (FRAME[:3], ValueError, "X has 4 rows and y has 3"),
        ([], ValueError, "X has 4 rows and y has 0"),
        (ANSWERS, ValueError, r"y has 1 column, where answer and answer_start.*list\(zip\(answers, starts\)\)"),
        (FRAME.answer, ValueError, "y has 1 column, where answer and answer_start are expected"),
        (FRAME[["answer"]], ValueError, "y has a column 'answer' and none named 'answer_start'.*rename"),
        (FRAME[["answer_start"]], ValueError, "y has a column 'answer_start' and none named 'answer'"),
        (FRAME[["answer", "answer", "answer_start"]], ValueError, "y has 2 columns named 'answer'"),
        (FRAME.assign(x=1).set_axis(list("abc"), axis=1), ValueError, r"y has 3 columns \('a', 'b', 'c'\), where answ"),
        ([("Paris", 3), ("", -1), "Ünal", ("one", 10)], ValueError, r"row 2 is 'Ünal', and row 0 is a pair.*alike"),
        ([("Paris", 3), ("", -1), None, ("one", 10)], ValueError, r"row 2 of column 0 \(answer\) is missing \(None"),
        ([{"text": [], "answer_start": []}, None, {}, {}], ValueError, "y: row 2 is a dict without 'text'.*Give {"),
        ([{"text": []}] * 4, ValueError, "y: row 0 is a dict without 'answer_start'; its keys are 'text'"),
        ([[{"text": "Paris", "answer_start": 3}]] * 4, ValueError, "y has 1 column, where answer and answer_start"),
        (np.array([ANSWERS, STARTS]).T, TypeError, r"column 1 \(answer_start\) is '3', of type str.*Convert it"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_used_are_refused_with_the_remedy(y, error, message):
    with pytest.raises(error, match=message):
        answer_columns(y, ROWS)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, ValueError, "requires y to be passed"),
        (ANSWERS[:2], ValueError, "X has 4 rows and y has 2"),
        (["a", "b", 3, "c"], TypeError, "y: row 2 is 3, of type int. Give a str, or a list of str"),
        (["a", "b", np.nan, "c"], ValueError, "y: row 2 is missing"),
        (["a", "b", " ", "c"], ValueError, "y: row 2 is ' ', white space only"),
        (["a", "b", ["d", 3], "c"], ValueError, r"y: row 0 is 'a', and row 2 is a pair \(answer, answer_start\)"),
        ([["d", "e", 3]] * 4, TypeError, "y: row 0: answer 2 is 3, of type int, and no text. Make it a str"),
        ([[{"text": "Paris", "answer_start": 3}]] * 4, TypeError, "y: row 0: answer 0 is {'text'.*of type dict"),
        (FRAME[["answer_start"]], ValueError, "none named 'answer'"),
    ],
)
def test_texts_that_cannot_be_used_are_named(y, error, message):
    with pytest.raises(error, match=message):
        answer_texts(y, 4)


# --- Published data, and many rows


def test_squad_is_read(data_folder):
    from kbert.datasets import load

    squad = load("squad", "dev", folder=data_folder)
    questions = question_columns(squad)
    answers = answer_columns(squad, questions)
    assert questions.n_missing == 0 and questions.columns == (squad.question.tolist(), squad.context.tolist())
    assert answers.answerable.all() and answer_texts(squad.answer, len(squad)) == answers.texts


def test_many_rows_are_looked_at_once_each():
    n = 100_000  # where each would be compared with each, this would not end
    context = "It was in Paris, they say. " * 30
    X = pd.DataFrame({"question": ["Where?"] * n, "context": [context] * n})
    y = pd.DataFrame({"answer": ["Paris"] * n, "answer_start": [10] * n})
    assert len(answer_columns(y, question_columns(X)).texts) == n
    with pytest.raises(ValueError, match="100000 of 100000 rows are wrong"):
        answer_columns(y.assign(answer_start=11.0), question_columns(X))
