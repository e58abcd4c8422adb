import warnings

import numpy as np
import pandas as pd
import pytest

from kbert.errors import FailedRunWarning, KbertWarning, MissingTextWarning, TruncationWarning, UnderfitWarning

pytestmark = pytest.mark.slow

MIXED = ["the happy chair", "sad", "a great room with it was this table and the lovely chair", "", "broken and awful"]


def object_array(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


ONE_COLUMN = {
    "list": list,
    "tuple": tuple,
    "object array": object_array,
    "array of fixed width": np.array,
    "two-dimensional array": lambda texts: np.array(texts)[:, None],
    "two-dimensional object array": lambda texts: object_array(texts)[:, None],
    "Series with a shuffled index": lambda texts: pd.Series(texts, index=range(len(texts), 0, -1)),
    "Series of the string dtype": lambda texts: pd.Series(texts, dtype="string"),
    "categorical Series": lambda texts: pd.Series(texts, dtype="category"),
    "DataFrame": lambda texts: pd.DataFrame({"text": texts}),
}
TWO_COLUMNS = {
    "list of tuples": lambda left, right: list(zip(left, right, strict=True)),
    "list of lists": lambda left, right: [list(pair) for pair in zip(left, right, strict=True)],
    "array": lambda left, right: np.array([left, right]).T,
}


def places_of_ours(seen):
    """The files that kbert's own warnings point at; other packages may warn too, and toys learn little in one epoch."""
    ours = [warning for warning in seen if issubclass(warning.category, KbertWarning)]
    learned_little = (FailedRunWarning, UnderfitWarning)
    return [warning.filename for warning in ours if not issubclass(warning.category, learned_little)]


@pytest.fixture(scope="module")
def expected(toy, reviews):
    return toy().fit(reviews.text[:32], reviews.label[:32]).predict_proba(reviews.text[32:48])


# A y of one column of a table draws scikit-learn's own warning, which is not the matter here.
@pytest.mark.filterwarnings("ignore:A column-vector")
@pytest.mark.parametrize("kind", ONE_COLUMN)
def test_every_container_gives_the_same_fit(toy, reviews, expected, kind):
    contain = ONE_COLUMN[kind]
    classifier = toy().fit(contain(reviews.text[:32].tolist()), contain(reviews.label[:32].tolist()))
    assert np.array_equal(classifier.predict_proba(contain(reviews.text[32:48].tolist())), expected)


def test_what_is_read_once_only_gives_the_same_fit(toy, reviews, expected):
    texts, labels = reviews.text.tolist(), reviews.label.tolist()
    held_out = (iter(texts[32:48]), (label for label in labels[32:48]))
    classifier = toy().fit((text for text in texts[:32]), map(str, labels[:32]), eval_set=held_out)
    assert np.array_equal(classifier.predict_proba(text for text in texts[32:48]), expected)
    assert classifier.predict(iter(texts[:3])).shape == (3,)
    assert classifier.score(iter(texts[:32]), iter(labels[:32])) == classifier.score(texts[:32], labels[:32])


def test_every_container_of_pairs_gives_the_same_fit(toy, pairs):
    X, y = pairs[["left", "right"]], pairs.both
    expected = toy().fit(X[:32], y[:32]).predict_proba(X[32:48])
    left, right = pairs.left.tolist(), pairs.right.tolist()
    for kind, contain in TWO_COLUMNS.items():
        classifier = toy().fit(contain(left[:32], right[:32]), y[:32].tolist())
        assert np.array_equal(classifier.predict_proba(contain(left[32:48], right[32:48])), expected), kind


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")
def test_rows_keep_their_order(fitted):
    texts = np.array(MIXED * 4, dtype=object)
    order = np.random.default_rng(0).permutation(len(texts))
    whole = fitted.predict_proba(texts)
    # Texts of several classes and lengths, so that a row in another's place would be seen.
    assert np.ptp(whole[: len(MIXED), 0]) > 0.5
    np.testing.assert_allclose(fitted.predict_proba(texts[order]), whole[order], atol=1e-5)


@pytest.mark.backend
@pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")
def test_a_row_alone_gets_what_it_gets_among_others(fitted):
    whole = fitted.predict_proba(MIXED)
    alone = np.concatenate([fitted.predict_proba([text]) for text in MIXED])
    np.testing.assert_allclose(alone, whole, atol=1e-5)


@pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")
@pytest.mark.parametrize("part", [1, 7, 20])
def test_the_parts_of_a_long_column_join_in_order(fitted, monkeypatch, part):
    texts = MIXED * 4
    whole = fitted.predict_proba(texts)
    monkeypatch.setattr("kbert.tasks.texts.CHUNK_ROWS", part)
    np.testing.assert_allclose(fitted.predict_proba(texts), whole, atol=1e-5)


@pytest.mark.parametrize(
    "column",
    [
        ["a", None, "", "b"],
        ["a", " \n", "\u00a0", "b"],
        pd.Series(["a", np.nan, "", "b"]),
        pd.Series(["a", np.nan, " ", "b"], dtype="string[pyarrow]"),
        [["a"], [pd.NA], [""], ["b"]],
    ],
)
def test_missing_texts_are_read_as_empty_with_one_warning(fitted, column):
    with pytest.warns(MissingTextWarning, match="2 of the texts in 4 rows are missing") as seen:
        probabilities = fitted.predict_proba(column)
    assert places_of_ours(seen) == [__file__]
    assert probabilities.shape == (4, 2)
    assert np.array_equal(probabilities[1], probabilities[2])


def test_missing_texts_train_with_one_warning(toy, reviews):
    texts = reviews.text[:32].tolist()
    texts[3] = None
    with pytest.warns(MissingTextWarning, match="1 of the texts in 32 rows is missing") as seen:
        toy().fit(texts, reviews.label[:32])
    assert places_of_ours(seen) == [__file__]


def test_cut_texts_are_counted_in_one_warning(toy, reviews, monkeypatch):
    texts = reviews.text[:32].tolist()
    texts[2] = texts[9] = "the table " * 20
    with pytest.warns(TruncationWarning, match="2 of 32 rows have more than max_length=8 tokens") as seen:
        classifier = toy(max_length=8).fit(texts, reviews.label[:32])
    assert places_of_ours(seen) == [__file__]
    # In several parts the count is still that of the whole.
    monkeypatch.setattr("kbert.tasks.texts.CHUNK_ROWS", 5)
    texts[20:26] = ["the table " * 20] * 6  # many more than in fit, or nothing would be said
    with pytest.warns(TruncationWarning, match="8 of 32 rows.*: rows 2, 9, 20, 21, 22 and 3 more") as seen:
        assert len(classifier.predict(texts)) == 32
    assert places_of_ours(seen) == [__file__]


def test_what_is_cut_is_not_read(fitted):
    with pytest.warns(TruncationWarning):
        long = fitted.predict_proba(["happy " + "the " * 30 + "awful", "happy " + "the " * 30 + "great"])
    assert np.array_equal(long[0], long[1])


def test_texts_that_fit_draw_no_warning(fitted):
    # [CLS], 14 words and [SEP] are just max_length.
    with warnings.catch_warnings():
        warnings.simplefilter("error", KbertWarning)
        fitted.predict(["the " * 14])
