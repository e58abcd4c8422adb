"""Several labels a row: which containers are read as what, and what is refused."""

from collections import deque

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from kbert.data.label_sets import kind_of_labels, label_sets

MATRIX = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
LISTS = [["a", "c"], [], ["b"]]


def objects(rows):
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["a", "b"], "labels"),
        ([1, 0, 1], "labels"),
        (["ab", None], "labels"),
        (pd.Series(["a", "b"]), "labels"),
        (pd.Series(["a", "b"], dtype="category"), "labels"),
        (np.array([[1], [0]]), "labels"),
        (np.array([["a"], ["b"]], object), "labels"),
        (np.array([["a"], ["b"]]), "labels"),
        ([[1], [0]], "labels"),
        (pd.Series(["a", "b"], dtype=pd.ArrowDtype(pa.string())), "labels"),
        (pd.DataFrame({"label": ["a", "b"]}), "labels"),
        ([], "labels"),
        (MATRIX, "indicator"),
        (MATRIX.tolist(), "indicator"),
        (MATRIX.astype(bool), "indicator"),
        (pd.DataFrame(MATRIX), "indicator"),
        (sparse.csr_matrix(MATRIX), "indicator"),
        (sparse.csr_array(MATRIX), "indicator"),
        (sparse.csr_matrix(MATRIX[:, :1]), "indicator"),
        ([(1, 0), (0, 1)], "indicator"),
        (LISTS, "lists"),
        ([["a"], ["b"]], "lists"),
        ([[1, 2], [0, 1]], "lists"),
        ([[1, 0], [1]], "lists"),
        ([{1, 0}, {1, 0}], "lists"),
        ([[], []], "lists"),
        (pd.Series(LISTS), "lists"),
        (pd.DataFrame({"labels": LISTS}), "lists"),
        (objects(LISTS), "lists"),
        (objects(LISTS)[:, None], "lists"),
        (pd.Series(LISTS, dtype=pd.ArrowDtype(pa.list_(pa.string()))), "lists"),
        (deque(LISTS), "lists"),
        ([("a", "b"), {"c"}], "lists"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_how_y_gives_the_labels(y, kind):
    assert kind_of_labels(y) == kind


@pytest.mark.parametrize(
    "y",
    [MATRIX, np.matrix(MATRIX), MATRIX.tolist(), MATRIX.astype(bool), MATRIX.astype(float), sparse.csr_matrix(MATRIX)],
    ids=str,
)
def test_matrices_number_their_columns(y):
    sets = label_sets(y, 3)
    assert np.array_equal(sets.indicator, MATRIX) and sets.indicator.dtype == bool
    assert sets.classes.tolist() == [0, 1, 2]


def test_a_table_names_its_columns_in_their_order():
    sets = label_sets(pd.DataFrame(MATRIX, columns=["x", "a", "m"], index=[9, 7, 8]), 3)
    assert sets.classes.tolist() == ["x", "a", "m"]
    assert np.array_equal(sets.indicator, MATRIX)


@pytest.mark.parametrize("y", [LISTS, [{"c", "a"}, set(), ("b",)], pd.Series(LISTS, index=[5, 5, 5]), objects(LISTS)])
def test_lists_sort_their_labels(y):
    sets = label_sets(y, 3)
    assert sets.classes.tolist() == ["a", "b", "c"]
    assert np.array_equal(sets.indicator, MATRIX)


def test_numbers_in_lists_stay_numbers_and_count_once():
    sets = label_sets([[7, 7, 3], [np.int64(3)], []], 3)
    assert sets.classes.dtype == np.int64 and sets.classes.tolist() == [3, 7]
    assert sets.indicator.tolist() == [[True, True], [True, False], [False, False]]


def test_lists_without_any_label_have_no_classes():
    sets = label_sets([[], [], []], 3)
    assert sets.indicator.shape == (3, 0) and len(sets.classes) == 0
    assert not sets.under(np.array(["a", "b"], object)).any()


def test_lists_of_0_and_1_are_labels_where_that_is_known():
    assert label_sets([[0, 1], [1, 0]], 2).indicator.tolist() == [[False, True], [True, False]]
    assert label_sets([[0, 1], [1, 0]], 2, lists=True).indicator.all()


@pytest.mark.parametrize(
    ("columns", "classes"),
    [
        ([30, 10, 20], [30, 10, 20]),
        (["x", 1, "m"], ["x", 1, "m"]),
        (["x", "x", "m"], [0, 1, 2]),
        ([0.5, 1, 2], [0, 1, 2]),
    ],
)
def test_columns_are_named_by_strings_and_whole_numbers(columns, classes):
    sets = label_sets(pd.DataFrame(MATRIX, columns=columns), 3)
    assert sets.classes.tolist() == classes
    assert (sets.columns is None) == (columns != classes)


def test_a_set_of_labels_under_other_classes():
    sets = label_sets(LISTS, 3)
    assert sets.under(np.array(["c", "z", "a", "b"], object)).astype(int).tolist() == [
        [1, 0, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1],
    ]
    with pytest.raises(ValueError, match=r"y holds labels that y of fit did not: \['c'\]"):
        sets.under(np.array(["a", "b"], object))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (MATRIX[:2], "X has 3 rows and y has 2 labels"),
        (LISTS[:2], "X has 3 rows and y has 2 labels"),
        (np.array([[1, 0], [0, 2], [1, 1]]), "array of shape.*column 1 is 2 in row 1"),
        (np.array([[1, 0], [0, np.nan], [1, 1]]), "contains NaN: column 1 in row 1"),
        (pd.DataFrame({"u": ["a", "b", "c"], "v": ["a", "b", "c"]}), "column 'u' is 'a' in row 0"),
        ([["a"], None, ["b"]], "row 1 is missing"),
        ([["a"], "b", ["b"]], "row 1 is 'b', which is no list"),
        ([["a"], [None], ["b"]], "contains NaN: 1 label is missing, at a label of row 1"),
        (pd.Series([["a"], "b", ["b"]], index=[4, 5, 6]), r"row 1 \(index 5\) is 'b'"),
    ],
)
def test_what_cannot_be_read_is_named(y, message):
    with pytest.raises(ValueError, match=message):
        label_sets(y, 3)


def test_labels_of_several_types_are_refused():
    with pytest.raises(TypeError, match="types: a label of row 0 is .a. .str., a label of row 2"):
        label_sets([["a"], ["b"], [1]], 3)


def test_y_is_left_as_it_was():
    y, lists = MATRIX.copy(), [list(row) for row in LISTS]
    y.setflags(write=False)
    label_sets(y, 3), label_sets(lists, 3)
    assert lists == LISTS
