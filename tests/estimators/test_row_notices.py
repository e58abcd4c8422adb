"""Rows that are cut or empty are told once in fit, and again only where their share is much higher."""

import pickle
import warnings

import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from kbert import BertClassifier, BertMultipleChoice, BertQA, BertRegressor, BertTagger, BertVectorizer
from kbert.data.texts import text_columns
from kbert.errors import MissingTextWarning, TruncationWarning, UnknownWordsWarning
from kbert.tasks.row_notices import RowShares, RowsRead, tell_missing
from kbert.tasks.texts import TextReader

pytestmark = pytest.mark.slow

LONG = "the chair was great " * 9
TEXTS = ["the chair was great", "the table was awful"] * 10
LABELS = ["good", "bad"] * 10


def told(call, *, category=(TruncationWarning, MissingTextWarning)):
    """The messages of the warnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught if issubclass(warning.category, category)]


def with_rows(value, *positions):
    return [value if i in positions else text for i, text in enumerate(TEXTS)]


def test_fit_tells_number_share_and_first_rows_once(toy):
    classifier = toy(early_stopping=True, epochs=2)
    (message,) = told(lambda: classifier.fit(with_rows(LONG, 3, 8), LABELS))
    assert "2 of 20 rows have more than max_length=16 tokens and were cut (10% of the rows: rows 3, 8)." in message
    assert classifier.n_truncated_ == 2


def test_no_larger_max_length_is_advised_than_models_have_positions():
    (message,) = told(lambda: TextReader(max_length=512).warn_cut(1, 2, ""))
    assert message.endswith("long_text='window' reads all of them, which costs time.")
    (message,) = told(lambda: TextReader(max_length=256).warn_cut(1, 2, ""))
    assert "a larger max_length" in message


def test_rows_of_pandas_are_told_by_their_index(toy):
    df = pd.DataFrame({"text": with_rows(LONG, *range(1, 8)), "label": LABELS}, index=[f"r{i}" for i in range(20)])
    (message,) = told(lambda: toy().fit(df.text, df.label))
    assert "(35% of the rows: index 'r1', 'r2', 'r3', 'r4', 'r5' and 2 more)" in message
    (message,) = told(lambda: toy().fit(df[["text"]][1:], df.label[1:]))
    assert "(37% of the rows: index 'r1', 'r2'" in message
    df.index = [5] * 20  # which tells no row from another
    (message,) = told(lambda: toy().fit(df.text, df.label))
    assert "(35% of the rows: rows 1, 2, 3, 4, 5 and 2 more)" in message


def test_a_column_of_pairs_that_is_missing_is_named(toy):
    df = pd.DataFrame({"a": TEXTS, "b": [None] * 20})
    (message,) = told(lambda: toy().fit(df, LABELS))
    assert "(all of column 'b'; 100% of the rows: index 0, 1" in message
    df.loc[7, "b"] = "the table"
    (message,) = told(lambda: toy().fit(df, LABELS))
    assert "all of column" not in message


def test_training_and_validation_rows_are_told_together_by_kind(toy):
    classifier = toy()
    messages = told(
        lambda: classifier.fit(
            with_rows(LONG, 3), LABELS, eval_set=(pd.Series([LONG, None, "", *TEXTS], name="text"), ["good"] * 23)
        )
    )
    assert len(messages) == 2
    assert "2 of 43 rows have more than" in messages[0]
    assert "(4.7% of the rows: row 3; of eval_set's X index 0)" in messages[0]
    assert "2 of the texts in 43 rows are missing" in messages[1]
    assert "read as empty (4.7% of the rows: of eval_set's X index 1, 2)" in messages[1]
    assert classifier.n_truncated_ == 1


def test_predictions_repeat_only_a_much_higher_share(toy):
    classifier = toy().fit(with_rows(LONG, 3, 8), LABELS)
    assert told(lambda: classifier.predict(with_rows(LONG, 1, 2, 5))) == []
    assert told(lambda: classifier.predict_proba(with_rows(LONG, 1, 2))) == []
    (message,) = told(lambda: classifier.predict(with_rows(LONG, 1, 2, 5, 6)))
    assert "(20% of the rows, and in fit 10%: rows 1, 2, 5, 6)" in message
    assert len(told(lambda: classifier.score([LONG], ["good"]))) == 1
    # Twice as high, and no 5 points higher.
    rare = toy().fit([LONG, *TEXTS * 3], ["good", *LABELS * 3])
    assert told(lambda: rare.predict([LONG, LONG, *TEXTS * 3])) == []


def test_predictions_tell_what_fit_had_none_of(toy):
    classifier = toy().fit(TEXTS, LABELS)
    assert classifier.n_truncated_ == 0
    assert len(told(lambda: classifier.predict([LONG, *TEXTS * 3]))) == 1
    assert len(told(lambda: classifier.predict([None, *TEXTS * 3]))) == 1


def test_empty_rows_are_told_as_cut_ones_are(toy):
    classifier = toy()
    (message,) = told(lambda: classifier.fit(with_rows(None, 0, 9), LABELS))
    assert "2 of the texts in 20 rows are missing" in message and "(10% of the rows: rows 0, 9)" in message
    assert told(lambda: classifier.predict(with_rows("", 4))) == []
    assert len(told(lambda: classifier.predict([None, *TEXTS[:2]]))) == 1


def test_a_loaded_estimator_knows_the_shares_of_its_fit(toy, tmp_path):
    classifier = toy().fit(with_rows(LONG, 3, 8), with_rows("good", *range(0, 20, 2)))
    classifier.save(tmp_path / "model")
    loaded = BertClassifier.load(tmp_path / "model")
    for copy in (loaded, pickle.loads(pickle.dumps(classifier))):
        assert copy.n_truncated_ == 2
        assert told(lambda copy=copy: copy.predict(with_rows(LONG, 1, 2))) == []
        assert len(told(lambda copy=copy: copy.predict([LONG]))) == 1


def test_a_model_of_transformers_has_no_shares_and_predictions_tell_all(toy, tmp_path):
    toy(classifier_pooling="cls").fit(with_rows(LONG, 3, 8), LABELS).save(tmp_path / "model")
    (tmp_path / "model" / "kbert.json").unlink()
    loaded = BertClassifier.load(tmp_path / "model").set_params(long_text="truncate", max_length=16)
    assert not hasattr(loaded, "n_truncated_")
    assert len(told(lambda: loaded.predict(with_rows(LONG, 1)))) == 1


def test_a_cross_validation_tells_once_a_fit(toy):
    df = pd.DataFrame({"text": with_rows(LONG, 3, 4, 5, 12, 13, 14), "label": LABELS})
    assert len(told(lambda: cross_val_score(toy(), df.text, df.label, cv=3))) == 3


@pytest.mark.thorough
def test_every_estimator_counts_what_it_cut(toy_folder):
    common = {"weights": toy_folder, "max_length": 16, "random_state": 0}
    short = {**common, "epochs": 1}
    regressor = BertRegressor(**short, long_text="truncate")
    assert len(told(lambda: regressor.fit(with_rows(LONG, 1), range(20)))) == 1
    assert regressor.n_truncated_ == 1 and told(lambda: regressor.predict(with_rows(LONG, 1))) == []
    choice = BertMultipleChoice(**short)
    rows = [(LONG, ["great", "awful"]), *[("the chair", ["great", "awful"])] * 9]
    assert len(told(lambda: choice.fit(rows, [0, 1] * 5))) == 1
    assert choice.n_truncated_ == 1 and told(lambda: choice.predict(rows)) == []
    qa = BertQA(**{**short, "max_length": 24, "stride": 4})
    rows = [(LONG, "the chair was great"), *[("what", "the chair was great")] * 9]
    assert len(told(lambda: qa.fit(rows, [("great", 14)] * 10))) == 1
    assert qa.n_truncated_ == 1 and told(lambda: qa.predict(rows)) == []
    tagger = BertTagger(**short)
    assert told(lambda: tagger.fit([LONG.split(), ["a"]], [["A"] * 36, ["B"]])) == []
    assert tagger.n_truncated_ == 0
    vectorizer = BertVectorizer(**common, long_text="truncate")
    assert len(told(lambda: vectorizer.fit_transform(with_rows(LONG, 1)))) == 1
    assert vectorizer.n_truncated_ == 1 and told(lambda: vectorizer.transform(with_rows(LONG, 7))) == []
    windows = BertVectorizer(**common, long_text="window")
    assert told(lambda: windows.fit_transform(with_rows(LONG, 1))) == [] and windows.n_truncated_ == 0
    words = BertVectorizer(**common, level="word")
    assert told(lambda: words.fit_transform([LONG.split()])) == [] and words.n_truncated_ == 0
    pipeline = make_pipeline(BertVectorizer(**common, long_text="truncate"), FunctionTransformer())
    assert len(told(lambda: pipeline.fit(with_rows(LONG, 1)).transform(with_rows(LONG, 1)))) == 1


def test_shares_that_are_worth_telling():
    reader, columns = TextReader(), text_columns(["", "", *["a"] * 18])
    for of_fit, expected in ((None, 1), (0.0, 1), (0.04, 1), (0.05, 1), (0.051, 0), (0.06, 0), (0.9, 0)):
        assert len(told(lambda of_fit=of_fit: tell_missing(reader, [RowsRead([], columns)], of_fit))) == expected
    assert RowShares(0.5, 0.25)._asdict() == {"cut": 0.5, "empty": 0.25}


def test_words_that_the_vocabulary_lacks_are_told_in_fit(toy, toy_folder):
    X = with_rows("the chair was \N{THUMBS UP SIGN}", 3, 8)
    (message,) = told(lambda: toy().fit(X, LABELS), category=UnknownWordsWarning)
    assert "2 of 20 rows have words that the vocabulary lacks, such as '\N{THUMBS UP SIGN}' (10% of the rows" in message
    assert "rows 3, 8" in message
    words, tags = [text.split() for text in X], [["O", "B-X", "O", "O"] for text in X]
    tagger = BertTagger(weights=toy_folder, epochs=1, max_length=16)
    assert told(lambda: tagger.fit(words, tags), category=UnknownWordsWarning)
    qa = BertQA(weights=toy_folder, epochs=1, max_length=24, stride=4)
    questions = [("what", text) for text in X]
    questions[14] = ("which \N{THUMBS DOWN SIGN}", TEXTS[0])
    answers = [("chair" if "chair" in text else "table", 4) for text in X]
    (message,) = told(lambda: qa.fit(questions, answers), category=UnknownWordsWarning)
    assert "3 of 20 rows" in message and "rows 3, 8, 14" in message
    # Of a few rows, or words that a released vocabulary has, nothing is said.
    for quiet in (X * 2 + TEXTS * 4, with_rows("the chair was unheard of", 3, 8)):
        assert not told(lambda quiet=quiet: toy().fit(quiet, (LABELS * 6)[: len(quiet)]), category=UnknownWordsWarning)
