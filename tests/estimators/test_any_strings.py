"""Any list of strings goes through fit and predict: every row gets its answer, in order."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbert import BertRegressor, BertTagger, BertVectorizer
from kbert.errors import KbertWarning

pytestmark = pytest.mark.slow

# Lone surrogates, which are in no valid text, are refused with an error that names the row.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
CONTROL = st.text(st.characters(categories=["Cc", "Cf"]), min_size=1, max_size=20)
ROW = st.one_of(TEXT, TEXT, st.sampled_from(["", " ", "\u3000\t\n", None, float("nan"), pd.NA]), CONTROL)
CONTAINERS = [list, tuple, lambda rows: pd.Series(rows, dtype=object), lambda rows: np.array(rows, dtype=object)]


@pytest.fixture(autouse=True)
def quiet():
    """Missing and cut texts are told in warnings, which are tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbertWarning)
        yield


@given(rows=st.lists(ROW, min_size=1, max_size=20), data=st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_predict_answers_row_by_row(fitted, rows, data):
    container = data.draw(st.sampled_from(CONTAINERS))
    found = fitted.predict_proba(container(rows))
    assert found.shape == (len(rows), 2)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert fitted.predict(container(rows)).tolist() == fitted.classes_[found.argmax(axis=1)].tolist()
    # In order: the answers go with the rows when these change their places.
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    np.testing.assert_allclose(fitted.predict_proba([rows[i] for i in order]), found[order], atol=1e-5)


@pytest.mark.thorough
@given(rows=st.lists(ROW, min_size=4, max_size=12))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_fit_takes_them_too(toy, rows):
    labels = np.arange(len(rows)) % 2
    # One row a step and the longest text among them: one shape for all examples.
    classifier = toy(batch_size=1).fit([*rows, "the table " * 20], [*labels, 0])
    assert classifier.classes_.tolist() == [0, 1]
    assert np.isfinite(classifier.history_["loss"]).all()
    assert classifier.predict(rows).shape == (len(rows),)


@given(rows=st.lists(ROW, min_size=1, max_size=6))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_windows_answer_row_by_row(fitted, rows):
    reader = copy.copy(fitted).set_params(long_text="window")
    found = reader.predict_proba(rows)
    assert found.shape == (len(rows), 2) and np.isfinite(found).all()
    alone = np.concatenate([reader.predict_proba([row]) for row in rows])
    np.testing.assert_allclose(found, alone, atol=1e-5)


# --- The other estimators


@pytest.fixture(scope="module")
def values(toy_folder):
    """The parameters of a toy; one row a step, so that few shapes occur."""
    return dict(weights=toy_folder, max_length=16, epochs=1, batch_size=1, dtype="float32", random_state=0)


@pytest.mark.thorough
@given(rows=st.lists(ROW, min_size=3, max_size=8))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_regressor_takes_them(values, rows):
    numbers = np.arange(len(rows) + 1.0)
    regressor = BertRegressor(**values).fit([*rows, "the table " * 20], numbers)
    found = regressor.predict(rows)
    assert found.shape == (len(rows),) and np.isfinite(found).all()
    np.testing.assert_allclose(regressor.predict(rows[::-1]), found[::-1], atol=1e-4)


WORD = st.one_of(TEXT, st.sampled_from(["", " ", "\u3000", None, "red"]), CONTROL)


@pytest.mark.thorough
@given(rows=st.lists(st.lists(WORD, max_size=8), min_size=1, max_size=6))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_tagger_takes_them_as_words(values, rows):
    rows = [*rows, ["the", "table"] * 20]
    tags = [["O", "B-X"] * (len(row) // 2) + ["O"] * (len(row) % 2) for row in rows]
    tagger = BertTagger(**values).fit(rows, tags)
    found = tagger.predict_proba(rows)
    assert [array.shape for array in found] == [(len(row), 2) for row in rows]
    assert all(np.isfinite(array).all() for array in found)
    assert list(map(len, tagger.predict(rows))) == list(map(len, rows))
    for one, other in zip(tagger.predict_proba(rows[::-1]), found[::-1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.fixture(scope="module")
def vectorizer(values):
    return BertVectorizer(weights=values["weights"], max_length=16, dtype="float32").fit(["the table"])


@given(rows=st.lists(ROW, min_size=1, max_size=8))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_vectorizer_takes_them(vectorizer, rows):
    found = vectorizer.transform(rows)
    assert found.shape == (len(rows), 32) and np.isfinite(found).all()
    np.testing.assert_allclose(vectorizer.transform(rows[::-1]), found[::-1], atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("piece", ["a", "word ", "\u4e2d", "\U0001f600 ", "e\u0301", "\x00", "."], ids=ascii)
def test_a_megabyte_in_one_text(fitted, toy, piece):
    large = piece * (2**20 // len(piece.encode()))
    short = "the table is great"
    found = fitted.predict_proba([short, large, short])
    np.testing.assert_allclose(found[[0, 2]], fitted.predict_proba([short, short]), atol=1e-5)
    assert np.isfinite(found).all()
    if piece == "word ":
        # 200,000 words are 30,000 windows; each word is read.
        reader = copy.copy(fitted).set_params(long_text="window", stride=14)
        assert np.isfinite(reader.predict_proba([large, short])).all()
        assert toy(batch_size=2).fit([short, large, short], [0, 1, 0]).predict([large]).shape == (1,)


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.integers(0, 5))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_lone_surrogate_is_the_one_thing_refused(fitted, rows, place):
    rows = [row.encode("utf-8", "ignore").decode() for row in rows]
    place = min(place, len(rows))
    with pytest.raises(ValueError, match=f"row {place}.*surrogate"):
        fitted.predict([*rows[:place], "a \ud83d b", *rows[place:]])
