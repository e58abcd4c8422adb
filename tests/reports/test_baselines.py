"""What is reached without BERT: by hand, and by scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from kbert.data.texts import text_columns
from kbert.reports.baselines import TrainingRows, baselines, texts_of
from kbert.reports.given import Found, Given


def values_of(*arguments):
    """The values of the baselines, by their names."""
    return {name: score["value"] for name, score in baselines(*arguments).items()}


def test_a_word_has_its_most_frequent_tag_and_an_unknown_word_that_of_all():
    train = TrainingRows([["a", "b"], ["a", "c"], ["a"]], [["X", "O"], ["X", "O"], ["O"]])
    for tags, expected in ((["X", "O", "O"], 1.0), (["O", "X", "O"], 1 / 3)):
        given = Given("tags", [tags], Found([["O"] * 3]))
        assert values_of(given, [["a", "unknown", "b"]], train) == {"most_frequent_tag": pytest.approx(expected)}
    assert baselines(given, [["a", "unknown", "b"]], None) == {}


def test_the_most_frequent_option_is_that_of_the_training_rows_or_else_of_these():
    given = Given("choices", np.array([1, 2, 1, 0]), Found(np.zeros(4, int)))
    assert values_of(given, [None] * 4, None) == {"most_frequent": 0.5}
    assert values_of(given, [None] * 4, TrainingRows([None] * 3, np.array([0, 2, 2]))) == {"most_frequent": 0.25}


def test_no_answer_is_a_baseline_where_a_question_has_none():
    found = Found(np.array(["red", "red"]))
    assert values_of(Given("answers", [["red"], []], found), [None] * 2, None) == {"no_answer": 0.5}
    assert baselines(Given("answers", [["red"], ["blue"]], found), [None] * 2, None) == {}


def test_under_cross_validation_each_part_learns_from_the_others():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["red", "blue", "hot", "cold"], 5)) for _ in range(24)]
    y = np.array([text.count("red") for text in texts]) + rng.normal(0, 0.3, 24)
    given, splits = Given("numbers", y[:, None], Found(np.zeros((24, 1)))), list(KFold(3).split(texts))
    models = {"mean": DummyRegressor(), "tfidf_linear": make_pipeline(TfidfVectorizer(), Ridge())}
    expected = {name: r2_score(y, cross_val_predict(model, texts, y, cv=splits)) for name, model in models.items()}
    assert values_of(given, texts, None, splits) == pytest.approx(expected)
    assert values_of(given, texts, None) == {"mean": pytest.approx(0)}  # nothing to learn from but these rows


def test_both_texts_of_a_pair_are_read():
    pairs = text_columns(pd.DataFrame({"one": ["red", "hot"], "other": ["blue", "cold"]}))
    assert [text.split() for text in texts_of("labels", pairs, None)] == [["red", "blue"], ["hot", "cold"]]
