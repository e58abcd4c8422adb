import copy
import inspect
from collections import UserList, deque, namedtuple
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from kbert.data.arrow_texts import ArrowTexts
from kbert.data.frames import readable_again
from kbert.data.label_sets import label_sets
from kbert.data.labels import label_column, sample_weights
from kbert.data.texts import text_columns

TEXTS = ["One text.", " ", "Ünïcode 中文 🙂", "", "[SEP] is text"]
SECONDS = ["a", "b", "", "d", "e"]


class Foreign:
    """A container of another library, which converts itself."""

    def __init__(self, inner):
        self.inner = inner

    def to_pandas(self):
        return self.inner


class ForeignArray:
    """The same by way of NumPy; its conversion to pandas lacks a dependency."""

    def __init__(self, inner):
        self.inner = inner

    def to_pandas(self):
        raise ModuleNotFoundError("pyarrow is required")

    def __array__(self, dtype=None, copy=None):
        return np.array(self.inner, dtype=object)


class Loud(str):
    """A str that shows itself as something else, as the members of an Enum do."""

    def __str__(self):
        return self.upper()


def pyarrow_series(values):
    pytest.importorskip("pyarrow")
    return pd.Series(values, dtype="string[pyarrow]")


def polars_frame(data):
    return pytest.importorskip("polars").DataFrame(data)


ONE_COLUMN = {
    "list": lambda t: list(t),
    "tuple": lambda t: tuple(t),
    "deque": lambda t: deque(t),
    "userlist": lambda t: UserList(t),
    "numpy_str": lambda t: [np.str_(text) for text in t],
    "array_str": lambda t: np.array(t),
    "array_object": lambda t: np.array(t, dtype=object),
    "array_column": lambda t: np.array(t, dtype=object).reshape(-1, 1),
    "array_strided": lambda t: np.array([t, t], dtype=object).T[:, :1],
    "rows_of_one": lambda t: [[text] for text in t],
    "series": lambda t: pd.Series(t),
    "series_object": lambda t: pd.Series(t, dtype=object),
    "series_string": lambda t: pd.Series(t, dtype="string"),
    "series_pyarrow": pyarrow_series,
    "series_categorical": lambda t: pd.Series(t, dtype="category"),
    "series_index": lambda t: pd.Series(t, index=[7] * len(t), name="text"),
    "pandas_array": lambda t: pd.array(t, dtype="string"),
    "pandas_index": lambda t: pd.Index(t),
    "frame": lambda t: pd.DataFrame({"text": t}),
    "frame_int_name": lambda t: pd.DataFrame({0: t}),
    "to_pandas": lambda t: Foreign(pd.Series(t)),
    "to_array": lambda t: ForeignArray(t),
    "polars": lambda t: polars_frame({"text": t}),
    "polars_series": lambda t: polars_frame({"text": t})["text"],
}
if hasattr(np.dtypes, "StringDType"):
    ONE_COLUMN["array_stringdtype"] = lambda t: np.array(t, dtype=np.dtypes.StringDType())

Pair = namedtuple("Pair", ["first", "second"])
TWO_COLUMNS = {
    "tuples": lambda a, b: list(zip(a, b, strict=True)),
    "lists": lambda a, b: [list(pair) for pair in zip(a, b, strict=True)],
    "tuple_of_tuples": lambda a, b: tuple(zip(a, b, strict=True)),
    "namedtuples": lambda a, b: [Pair(*pair) for pair in zip(a, b, strict=True)],
    "arrays": lambda a, b: [np.array(pair, dtype=object) for pair in zip(a, b, strict=True)],
    "array": lambda a, b: np.array([a, b], dtype=object).T,
    "array_str": lambda a, b: np.array([a, b]).T,
    "series_of_tuples": lambda a, b: pd.Series(list(zip(a, b, strict=True)), index=range(3, 3 + len(a))),
    "frame": lambda a, b: pd.DataFrame({"first": a, "second": b}),
    "frame_mixed": lambda a, b: pd.DataFrame(
        {"first": pd.Series(a, dtype="category"), "second": pd.Series(b, dtype="string")}
    ),
    "frame_same_name": lambda a, b: pd.DataFrame(list(zip(a, b, strict=True)), columns=["text", "text"]),
    "to_pandas": lambda a, b: Foreign(pd.DataFrame({"first": a, "second": b})),
    "to_array": lambda a, b: ForeignArray(list(zip(a, b, strict=True))),
    "polars": lambda a, b: polars_frame({"first": a, "second": b}),
}


def all_plain(found):
    return all(type(text) is str for column in found.columns for text in column)


@pytest.mark.parametrize("kind", ONE_COLUMN)
def test_every_container_of_texts_is_equal(kind):
    found = text_columns(ONE_COLUMN[kind](TEXTS))
    assert found.columns == (TEXTS,) and all_plain(found)
    assert found.n_rows == len(TEXTS)
    assert found.n_missing == 2
    assert found.missing_rows().tolist() == [1, 3]


@pytest.mark.parametrize("kind", TWO_COLUMNS)
def test_every_container_of_pairs_is_equal(kind):
    found = text_columns(TWO_COLUMNS[kind](TEXTS, SECONDS))
    assert found.columns == (TEXTS, SECONDS) and all_plain(found)
    assert found.n_rows == len(TEXTS)
    assert found.n_missing == 3
    assert found.missing_rows().tolist() == [1, 2, 3]


def test_two_rows_are_two_rows():
    assert text_columns([("a", "b"), ("c", "d")]).columns == (["a", "c"], ["b", "d"])
    assert text_columns(("a", "b")).columns == (["a", "b"],)


def test_column_names_of_a_frame():
    frame = pd.DataFrame({"a": ["x"], "b": ["y"]})
    assert text_columns(frame).names == ["a", "b"]
    assert text_columns(frame[["b"]]).names == ["b"]
    assert text_columns(frame["a"]).names is None
    assert text_columns(frame.rename(columns={"b": 1})).names is None
    assert text_columns([("x", "y")]).names is None
    assert text_columns(Foreign(frame)).names == ["a", "b"]


def test_subclasses_of_str_count_by_their_value():
    found = text_columns([Loud("yes")])
    assert found.columns == (["yes"],) and all_plain(found)


# --- Missing texts

MISSING = [None, float("nan"), np.nan, np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "ns"), Decimal("NaN"), ""]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_what_is_missing(missing):
    found = text_columns(["a", missing])
    assert found.columns == (["a", ""],) and found.n_missing == 1


@pytest.mark.parametrize("blank", [" ", "\t\n", "\u00a0"])
def test_white_space_is_kept_and_counted(blank):
    found = text_columns([blank])
    assert found.columns == ([blank],) and found.n_missing == 1


@pytest.mark.parametrize("text", ["nan", "None", "NA"])
def test_what_is_not_missing(text):
    found = text_columns([text])
    assert found.columns == ([text],) and found.n_missing == 0


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_missing_in_a_series(dtype):
    for series in (pd.Series(["a", None, "b"], dtype=dtype), pd.Series(["a", None, "b"]).astype(dtype)):
        found = text_columns(series)
        assert found.columns == (["a", "", "b"],) and found.n_missing == 1


def test_a_column_that_is_missing_altogether():
    found = text_columns(pd.DataFrame({"a": ["x", "y"], "b": [np.nan, np.nan]}))
    assert found.columns == (["x", "y"], ["", ""]) and found.n_missing == 2


def test_a_masked_array():
    masked = np.ma.MaskedArray(np.array(["a", "b"], dtype=object), mask=[False, True])
    assert text_columns(masked).columns == (["a", ""],)


@given(st.lists(st.one_of(st.text(), st.sampled_from(MISSING)), min_size=1))
def test_missing_texts_are_counted(values):
    expected = [value if isinstance(value, str) else "" for value in values]
    for X in (
        values,
        np.array(values, dtype=object),
        pd.Series(values, dtype=object),
        pd.DataFrame({"a": values}, dtype=object),
    ):
        found = text_columns(X)
        assert found.columns == (expected,)
        assert found.n_missing == sum(not text.strip() for text in expected)


@given(st.lists(st.tuples(st.text(), st.one_of(st.none(), st.text())), min_size=1))
def test_missing_texts_of_pairs_are_counted(rows):
    found = text_columns(rows)
    assert list(zip(*found.columns, strict=True)) == [(first, second or "") for first, second in rows]
    assert found.n_missing == sum(not (text or "").strip() for row in rows for text in row)
    assert found == text_columns(pd.Series(rows))


# --- Errors

FRAME = pd.DataFrame({"a": ["x", "y"], "b": ["p", "q"], "n": [1, 2]}, index=["first", "second"])
FRAME_OF_TEXTS = FRAME.assign(a=["one text", "another text"], b=["this too", "and this"])


@pytest.mark.parametrize(
    ("X", "error", "parts"),
    [
        ("a text", ValueError, ["single str", "Put it in a list: ['a text']"]),
        (np.str_("t"), ValueError, ["['t']"]),
        (b"t", TypeError, ["bytes", "decode"]),
        (
            [],
            ValueError,
            ["Found array with 0 sample(s) (shape=(0,)) while a minimum of 1 is required.", "at least one"],
        ),
        (np.empty((0, 2), dtype=object), ValueError, ["0 sample(s) (shape=(0, 2))"]),
        (pd.Series([], dtype=object), ValueError, ["0 sample(s) (shape=(0,))"]),
        (FRAME.iloc[:0], ValueError, ["0 sample(s) (shape=(0, 3))"]),
        (FRAME[[]], ValueError, ["0 feature(s) (shape=(2, 0)) while a minimum of 1 is required."]),
        (FRAME, ValueError, ["3 columns ('a', 'b', 'n')", "1 or 2", "Choose those that hold the texts"]),
        (FRAME_OF_TEXTS, ValueError, ["3 columns ('a', 'b', 'n')", "1 or 2", "df[['a', 'b']]"]),
        ([("a", "b", "c")], ValueError, ["3 columns", "list(zip("]),
        (FRAME["n"], TypeError, ["row 0 (index 'first') of column 'n' (dtype int64)", "int", "df['n'].astype(str)"]),
        (FRAME[["a", "n"]], TypeError, ["column 'n'", "df['n'].astype(str)", "another column"]),
        (pd.Series(["a", 3], index=[5, 6]), TypeError, ["row 1 (index 6)", "type int", "X.astype(str)"]),
        (pd.Series(["a", 3]), TypeError, ["row 1 (dtype", "type int"]),
        (["a", 2.5], TypeError, ["row 1 is of type float", "2.5", "[str(value) for value in X]"]),
        (["a", True], TypeError, ["row 1", "bool"]),
        (np.arange(3), TypeError, ["row 0 (dtype int64)", "X.astype(str)"]),
        (np.zeros((2, 2)), TypeError, ["row 0 of column 0 (dtype float64)", "X.astype(str)"]),
        ([["a", "b"], ["c", 4]], TypeError, ["row 1 of column 1", "int"]),
        (["a", b"b"], TypeError, ["row 1", "bytes", "decode"]),
        (np.array([b"b"]), TypeError, ["row 0", "bytes", "decode"]),
        (pd.Series([1, 2], dtype="category"), TypeError, ["dtype category", "int"]),
        (pd.Series(pd.to_datetime(["2020-01-01"])), TypeError, ["Timestamp", "astype(str)"]),
        ([{"text": "a"}], TypeError, ["row 0", "dict", "one str for each row"]),
        ([FRAME["a"], FRAME["b"]], TypeError, ["row 0", "Series", "one str for each row"]),
        ([("a", "b"), ("c",)], ValueError, ["ragged", "row 0 is ('a', 'b') (length 2)", "row 1 is ('c',) (length 1)"]),
        ([("a", "b"), "c"], ValueError, ["ragged", "row 1 is 'c'"]),
        ([("a", "b"), None], ValueError, ["ragged", "row 1 is None"]),
        (sparse.csr_matrix(np.eye(2)), TypeError, ["Sparse data was passed", "dense data is required"]),
        (sparse.csr_array(np.eye(2)), TypeError, ["Sparse data was passed", "dense data is required"]),
        ({"a": ["x"]}, TypeError, ["dict", "pd.DataFrame(X)"]),
        ((text for text in "ab"), TypeError, ["generator", "list(X)"]),
        (iter(["a"]), TypeError, ["list_iterator", "list(X)"]),
        ({"a", "b"}, TypeError, ["set", "order"]),
        (None, TypeError, ["Expected array-like", "got None"]),
        (5, TypeError, ["Expected array-like", "got 5"]),
        (np.int64(5), TypeError, ["Expected array-like", "got 5"]),
        (np.array("t"), TypeError, ["Expected array-like"]),
        (pd.DataFrame, TypeError, ["Expected array-like"]),
        (np.zeros((2, 2, 2)), ValueError, ["Found array with dim 3", "(rows, columns)"]),
    ],
)
def test_errors_say_what_where_and_what_to_do(X, error, parts):
    with pytest.raises(error) as caught:
        text_columns(X)
    for part in parts:
        assert part in str(caught.value)


def test_what_is_read_once_only_becomes_a_list_and_nothing_else_does():
    class Rows:
        def __iter__(self):
            return iter("ab")

    for once in ((letter for letter in "ab"), iter("ab"), map(str, "ab"), Rows()):
        assert readable_again(once) == ["a", "b"]
    kept = [["a"], ("a",), "ab", {"a": 1}, {"a"}, None, 5, FRAME, FRAME["a"], FRAME.index, np.array("t"), pd.DataFrame]
    for X in (*kept, sparse.csr_matrix(np.eye(2)), sparse.csr_array(np.eye(2))):
        assert readable_again(X) is X


def test_errors_use_the_name_that_the_caller_uses():
    with pytest.raises(TypeError, match=r"^eval_set: row 0 .* for value in eval_set\]"):
        text_columns([1], name="eval_set")


@pytest.mark.parametrize("X", [["a"], pd.Series(["a"]), FRAME[["a"]]])
def test_too_few_columns(X):
    with pytest.raises(ValueError, match="1 column.*where 2 are expected"):
        text_columns(X, columns=(2,))


def test_another_number_of_columns():
    assert len(text_columns([("a", "b", "c")], columns=(3,)).columns) == 3
    with pytest.raises(ValueError, match=r"where 1 are expected.*df\['a'\]"):
        text_columns(FRAME_OF_TEXTS.drop(columns="b").assign(m=0), columns=(1,))


# --- The caller's data stays as it is


@pytest.mark.parametrize("kind", ["list", "rows_of_one", "array_object", "series", "series_categorical", "frame"])
def test_nothing_of_the_callers_is_changed(kind):
    X = ONE_COLUMN[kind](TEXTS)
    before = copy.deepcopy(X)
    column = text_columns(X).columns[0]
    if isinstance(column, ArrowTexts):  # of which only copies can be had
        column = column[:]
    column[0] = "changed"
    if isinstance(X, pd.Series | pd.DataFrame):
        assert X.equals(before)
    else:
        np.testing.assert_array_equal(X, before)


def test_nothing_of_y_and_the_weights_is_changed():
    y, w = np.array([1, 2]), np.array([1, 2], dtype=np.float32)
    label_column(y, 2)[:] = 7
    sample_weights(w, 2)[:] = 7
    assert y.tolist() == w.tolist() == [1, 2]


# --- Labels

STRINGS, WHOLE, BOOLS = ["b", "a", "b"], [3, 1, 3], [True, False, True]
LABELS = [
    (["b", "a", "b"], STRINGS, object),
    (("b", "a", "b"), STRINGS, object),
    (np.array(STRINGS), STRINGS, object),
    (np.array(STRINGS, dtype=object), STRINGS, object),
    (pd.Series(STRINGS, index=[9, 9, 9]), STRINGS, object),
    (pd.Series(STRINGS, dtype="string"), STRINGS, object),
    (pd.Series(STRINGS, dtype="category"), STRINGS, object),
    (pd.Categorical(STRINGS), STRINGS, object),
    (pd.Index(STRINGS), STRINGS, object),
    (["", "a", " "], ["", "a", " "], object),
    (WHOLE, WHOLE, np.int64),
    (np.array(WHOLE, dtype=np.int8), WHOLE, np.int64),
    (np.array(WHOLE, dtype=object), WHOLE, np.int64),
    (pd.Series(WHOLE), WHOLE, np.int64),
    (pd.Series(WHOLE, dtype="Int64"), WHOLE, np.int64),
    (pd.Series(WHOLE, dtype="category"), WHOLE, np.int64),
    ([np.int16(3), 1, 3], WHOLE, np.int64),
    (BOOLS, BOOLS, bool),
    (np.array(BOOLS), BOOLS, bool),
    (pd.Series(BOOLS, dtype="boolean"), BOOLS, bool),
    ([3.0, 1.0, 3.0], WHOLE, np.float64),
    (pd.Series(WHOLE, dtype="Float64"), WHOLE, np.float64),
    ([3, 1.0, 3], WHOLE, np.float64),
    ([2**63, 2**63 + 1, 1], [2**63, 2**63 + 1, 1], object),
]


@pytest.mark.parametrize(("y", "values", "dtype"), LABELS)
def test_labels_keep_their_type(y, values, dtype):
    found = label_column(y, 3)
    assert isinstance(found, np.ndarray) and found.shape == (3,) and found.dtype == dtype
    assert found.tolist() == values
    assert {type(label) for label in found.tolist()} == {
        type(value) for value in np.array(values, dtype=dtype).tolist()
    }


@pytest.mark.parametrize("whole", [2**53 + 1, np.int64(2**53 + 1)])
def test_whole_numbers_among_floats_that_no_float_holds_are_refused(whole):
    """They would become the label beside them."""
    with pytest.raises(ValueError, match=r"a float cannot hold 9007199254740993 in row 1: different labels"):
        label_column([1.0, whole, 2**53], 3)
    with pytest.raises(ValueError, match="a float cannot hold 9007199254740993"):
        label_sets([[1.0], [whole, 2**53], [1]], 3)
    assert label_column([1.0, 2**53, 2], 3).tolist() == [1, 2**53, 2]


@pytest.mark.parametrize("y", [pd.DataFrame({"y": WHOLE}), np.array([WHOLE]).T, [[3], [1], [3]]], ids=type)
def test_a_column_of_labels_warns(y):
    with pytest.warns(
        DataConversionWarning, match="A column-vector y was passed when a 1d array was expected"
    ) as caught:
        assert label_column(y, 3).tolist() == WHOLE
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("y", "error", "parts"),
    [
        (None, ValueError, ["requires y to be passed, but the target y is None", "3 rows"]),
        ("abc", ValueError, ["single str", "list"]),
        (["a", "b"], ValueError, ["Found input variables with inconsistent numbers of samples: [3, 2]", "same rows"]),
        ([], ValueError, ["inconsistent numbers of samples: [3, 0]"]),
        (["a", None, "b"], ValueError, ["Input y contains NaN", "1 label is missing, at row 1.", "Drop these rows"]),
        (pd.Series(["a", np.nan, None], index=[7, 8, 9]), ValueError, ["2 labels", "row 1 (index 8), row 2 (index 9)"]),
        (pd.Series([1, None, 3], dtype="Int64"), ValueError, ["row 1"]),
        (pd.Series(["a", None, "b"], dtype="category"), ValueError, ["row 1"]),
        (np.array([1.0, np.nan, 2.0]), ValueError, ["Input y contains NaN", "row 1"]),
        (
            [1.0, np.inf, 2.0],
            ValueError,
            ["Input y contains infinity or a value too large for dtype('float64')", "row 1"],
        ),
        ([1.0, 0.5, 2.0], ValueError, ["Unknown label type: continuous", "0.5 in row 1", "regressor"]),
        (["a", 1, "b"], TypeError, ["mixes", "row 0 is 'a' (str)", "row 1 is 1 (int)", "[str(value) for value in y]"]),
        (pd.Series([True, 1, 0], dtype=object), TypeError, ["mixes", "bool", "int", "y.astype(str)"]),
        ([b"a", b"b", b"c"], TypeError, ["bytes", "decode"]),
        (pd.Series(pd.to_datetime(["2020-01-01"] * 3)), TypeError, ["Timestamp", "y.astype(str)"]),
        (np.array(["2020-01-01"] * 3, "M8[ns]"), TypeError, ["datetime64", "row 0 is 2020-01-01", "y.astype(str)"]),
        (np.array([1, 2, 3], "m8[ns]"), TypeError, ["timedelta64", "row 0 is", "y.astype(str)"]),
        (pd.cut([1, 2, 3], 2), TypeError, ["Interval", "astype(str)"]),
        (np.zeros((3, 2)), ValueError, ["y should be a 1d array, got an array of shape (3, 2) instead", "df['label']"]),
        (FRAME, ValueError, ["y should be a 1d array", "df['label']"]),
        ([["a"], ["b", "c"], []], ValueError, ["ragged"]),
        ([["a", "b"]] * 3, ValueError, ["y should be a 1d array"]),
        (sparse.eye(3).tocsr(), TypeError, ["Sparse data was passed for y"]),
        ({"a": 1}, TypeError, ["dict"]),
        ((label for label in "abc"), TypeError, ["generator", "list(y)"]),
    ],
)
def test_label_errors(y, error, parts):
    with pytest.raises(error) as caught:
        label_column(y, 3)
    for part in parts:
        assert part in str(caught.value)


def test_only_the_first_missing_labels_are_named():
    with pytest.raises(ValueError, match=r"100 labels are missing, at row 0, row 1, row 2, row 3, row 4 and 95 more\."):
        label_column([None] * 100, 100)


# --- Weights


@pytest.mark.parametrize(
    "given", [[1, 0, 2.5], (1, 0, 2.5), np.array([1, 0, 2.5]), pd.Series([1, 0, 2.5], index=[4, 4, 4])]
)
def test_weights(given):
    found = sample_weights(given, 3)
    assert found.dtype == np.float32 and found.tolist() == [1, 0, 2.5]


def test_one_weight_for_all():
    assert sample_weights(None, 3) is None
    assert sample_weights(2, 3).tolist() == [2, 2, 2]
    assert sample_weights(np.float64(0.5), 2).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ([1, 2], ["sample_weight.shape == (2,), expected (3,)!", "one weight for each row"]),
        ([[1, 2, 3]], ["Sample weights must be 1D array or scalar, got 2D array", "length 3"]),
        ([1, np.nan, 1], ["Input sample_weight contains NaN", "row 1"]),
        ([1, 1, np.inf], ["contains infinity", "row 2"]),
        ([1, 1e300, 1], ["too large for dtype('float32')", "row 1"]),
        ([-1, 1, 1], ["Negative values in data passed to `sample_weight`", "row 0"]),
        (-1, ["Negative values"]),
        ([0, 0, 0], ["Sample weights must contain at least one non-zero number"]),
        (0, ["at least one non-zero number"]),
        ([1e-300] * 3, ["at least one non-zero number"]),
        (["a", "b", "c"], ["one number for each row"]),
        (pd.Series([1, pd.NA, 2], dtype=object), ["fillna(0)"]),
    ],
)
def test_weight_errors(given, parts):
    with pytest.raises(ValueError) as caught:
        sample_weights(given, 3)
    for part in parts:
        assert part in str(caught.value)


# --- Texts that pyarrow holds


def test_texts_in_arrow_are_read_as_they_are_needed():
    pa = pytest.importorskip("pyarrow")
    rows = ["a", None, "", "ä b", "last"] * 500
    held = pd.Series(rows, dtype=pd.StringDtype("pyarrow"))
    texts = text_columns(held)
    column = texts.columns[0]
    assert isinstance(column, ArrowTexts) and texts.n_missing == 1000
    plain = [row or "" for row in rows]
    assert column == plain and list(column) == plain and column[3:7] == plain[3:7] and column[-1] == "last"
    assert column != plain[:-1] and column != [*plain[:-1], "other"]
    assert texts.n_characters.tolist() == list(map(len, plain)) and list(texts.texts()) == plain
    assert column.take([4, 1]) == ["last", ""]
    with pytest.raises(IndexError):
        column[2500]
    # Other dtypes of pandas that hold strings, and a column of several.
    dtypes = [pd.ArrowDtype(pa.string()), object]
    if "na_value" in inspect.signature(pd.StringDtype).parameters:  # from pandas 2.3 on
        dtypes.append(pd.StringDtype("pyarrow", na_value=np.nan))
    for dtype in dtypes:
        frame = pd.DataFrame({"a": pd.Series(rows, dtype=dtype), "b": pd.Series(rows, dtype=dtype)})
        both = text_columns(frame)
        assert both.columns == (plain, plain) and both.n_missing == 2000
        assert isinstance(both.columns[0], ArrowTexts) == (dtype is not object)


def test_numbers_in_arrow_are_no_texts():
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match="row 0 .*not a text"):
        text_columns(pd.Series([1, 2], dtype=pd.ArrowDtype(pa.int64())))


def test_texts_as_arrows_string_view():
    dtype = pd.ArrowDtype(pytest.importorskip("pyarrow").string_view())
    found = text_columns(pd.Series(["a", None, "c"], dtype=dtype))
    assert (found.columns, found.n_missing) == ((["a", "", "c"],), 1)
    found = text_columns(pd.DataFrame({"x": ["a", "b"], "y": ["c", "d"]}).astype(dtype))
    assert found.columns == (["a", "b"], ["c", "d"]) and found.names == ["x", "y"]
    assert label_column(pd.Series(["a", "c", "a"], dtype=dtype), 3, "y").tolist() == ["a", "c", "a"]


def test_a_table_that_is_not_computed_yet_is_told_what_to_do():
    lazy = pytest.importorskip("polars").DataFrame({"text": ["a", "b"]}).lazy()
    with pytest.raises(TypeError, match=r"X is a LazyFrame, whose rows are not there yet. Give X.collect\(\)."):
        text_columns(lazy)
