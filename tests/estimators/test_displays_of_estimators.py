"""The displays that count and compute with an estimator: what they draw is what it would do."""

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kbert import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    WordPieceTokenizer,
)
from kbert.metrics import entity_f1
from kbert.model import LAYER_CHOICES
from kbert.plots import LayerDisplay, LengthDisplay, TrainingDisplay
from kbert.weights.start import Start

matplotlib = pytest.importorskip("matplotlib", reason="pip install 'kbert-learn[plots]'")
matplotlib.use("Agg")
pytestmark = pytest.mark.slow  # no backend has a part in it


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


TEXTS = ["the table was great", "a sad chair", "", "it was awful and sad " * 5]
PAIRS = pd.DataFrame({"one": TEXTS, "other": TEXTS[::-1]})
WORDS = [text.split() for text in TEXTS]
QUESTIONS = pd.DataFrame({"question": TEXTS, "context": [text * 3 for text in TEXTS]})
OPTIONS = pd.DataFrame({"context": TEXTS, "options": [["a table", "sad sad sad"]] * 4})


def count(tokenizer, *texts):
    return len(tokenizer.encode(*texts).ids)


# --- Lengths

READERS = {
    "texts": (BertClassifier, {}, TEXTS, [(text,) for text in TEXTS]),
    "pairs": (BertRegressor, {}, PAIRS, PAIRS.itertuples(index=False)),
    "words": (BertTagger, {}, WORDS, [(text,) for text in TEXTS]),
    "words of a vectorizer": (BertVectorizer, {"level": "word"}, WORDS, [(text,) for text in TEXTS]),
    "texts of a vectorizer": (BertVectorizer, {}, TEXTS, [(text,) for text in TEXTS]),
    "questions": (BertQA, {"stride": 4}, QUESTIONS, QUESTIONS.itertuples(index=False)),
    "options": (BertMultipleChoice, {}, OPTIONS, [(text, "sad sad sad") for text in TEXTS]),
}


@pytest.mark.parametrize("kind", READERS)
def test_lengths_before_a_fit(kind, toy_folder, monkeypatch):
    def no_model(*arguments):
        raise AssertionError("a model was made")

    monkeypatch.setattr(Start, "new_model", no_model)
    make, parameters, X, texts = READERS[kind]
    estimator = make(weights=toy_folder, max_length=16, **parameters)
    display = LengthDisplay.from_estimator(estimator, X)
    tokenizer = WordPieceTokenizer.from_pretrained(toy_folder)
    expected = [count(tokenizer, *row) if "words" not in kind or row[0] else 0 for row in texts]
    assert display.lengths.tolist() == expected and display.max_length == 16
    assert display.share_longer_ == np.mean(np.array(expected) > 16) > 0
    assert display.in_windows == (kind not in ("options",))
    assert (display.windows_cost is None) == (kind == "options")
    assert not hasattr(estimator, "tokenizer_")
    assert sum(bar.get_height() for bar in display.bars_) == 4


def test_what_windows_cost_and_whether_rows_are_cut(toy_folder):
    X = ["a chair"] * 3 + ["sad " * 28]  # 4 tokens each, and 30: four windows of 14 in steps of 6
    costs = [(12 + 4 * 14) / (12 + 14)] * 2
    for long_text, cost in zip(["truncate", "window"], costs, strict=True):
        classifier = BertClassifier(weights=toy_folder, max_length=14, long_text=long_text, stride=6)
        display = LengthDisplay.from_estimator(classifier, X)
        assert display.windows_cost == pytest.approx(cost) and display.in_windows == (long_text == "window")
    # "auto" is settled as a fit settles it: the positions of this model, and windows.
    display = LengthDisplay.from_estimator(BertClassifier(weights=toy_folder), X)
    assert display.max_length == 64 and display.in_windows and display.windows_cost == 1


def test_lengths_of_a_fitted_estimator_are_those_of_its_own_tokenizer(fitted, toy_folder, tmp_path):
    fitted.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved").set_params(weights="not/there")
    display = LengthDisplay.from_estimator(loaded, TEXTS)
    assert display.lengths.tolist() == [count(fitted.tokenizer_, text) for text in TEXTS]
    with pytest.raises(ValueError, match="expecting 1 features"):
        LengthDisplay.from_estimator(loaded, PAIRS)


def test_lengths_by_a_vocabulary_that_is_learned(toy_folder):
    display = LengthDisplay.from_estimator(BertRegressor("tiny", weights=None), ["ab ab ab"] * 20)
    assert display.lengths.tolist() == [5] * 20 and display.max_length == 256


def test_a_pretrainer_reads_no_rows():
    with pytest.raises(TypeError, match="BertPretrainer does not read rows"):
        LengthDisplay.from_estimator(BertPretrainer("tiny"), TEXTS)


# --- Layers


@pytest.fixture(scope="module")
def vectorizer(two_layer_folder):
    return BertVectorizer(weights=two_layer_folder, max_length=16)


def by_hand(vectorizer, X, **changes):
    """The vectors of each choice, by a vectorizer of its own."""
    values = {**vectorizer.get_params(), **changes}
    return {layers: BertVectorizer(**{**values, "layers": layers}).fit_transform(X) for layers in LAYER_CHOICES}


def test_scores_of_labels_are_those_of_each_choice(vectorizer, three_classes):
    X, y = three_classes.text, three_classes.label
    display = LayerDisplay.from_estimator(vectorizer, X, y, cv=3)
    assert list(display.scores) == list(LAYER_CHOICES) and display.score_name == "Accuracy"
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    for layers, vectors in by_hand(vectorizer, X).items():
        np.testing.assert_allclose(display.scores[layers], cross_val_score(model, vectors, y, cv=3))
    np.testing.assert_allclose(display.line_.get_xdata(), [np.mean(values) for values in display.scores.values()])
    assert len(set(display.line_.get_xdata())) > 1
    assert not hasattr(vectorizer, "model_") and vectorizer.layers == "last"


def test_labels_may_be_read_once_and_are_required(vectorizer, three_classes):
    X, y = three_classes.text[:30], three_classes.label[:30]
    of_iterator = LayerDisplay.from_estimator(vectorizer, X, iter(y), cv=2)
    assert of_iterator.scores.keys() == {*LAYER_CHOICES} and of_iterator.score_name == "Accuracy"
    with pytest.raises(ValueError, match="requires y"):
        LayerDisplay.from_estimator(vectorizer, X, None, cv=2)


def test_numbers_and_models_of_ones_own(vectorizer, reviews):
    X, y = reviews.text, np.random.default_rng(0).normal(0, 0.1, 200) + (reviews.label == "good")
    display = LayerDisplay.from_estimator(vectorizer, X, y, cv=KFold(2))
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 6, 13)))
    for layers, vectors in by_hand(vectorizer, X).items():
        np.testing.assert_allclose(display.scores[layers], cross_val_score(model, vectors, y, cv=KFold(2)))
    assert display.score_name == "R²" and min(display.line_.get_xdata()) > 0.5
    own = LayerDisplay.from_estimator(vectorizer, X, (y > 0).astype(int), cv=2, model=Ridge())
    expected = cross_val_score(Ridge(), by_hand(vectorizer, X)["sum_all"], (y > 0).astype(int), cv=2)
    np.testing.assert_allclose(own.scores["sum_all"], expected)
    assert own.score_name == "R²"


def test_a_fitted_vectorizer_keeps_its_weights_and_choices(vectorizer, three_classes, tmp_path):
    X, y = three_classes.text, three_classes.label
    fitted = BertVectorizer(**{**vectorizer.get_params(), "pooling": "cls", "normalize": True}).fit(X)
    for variable in fitted.model_.weights:
        variable.assign(1.5 * keras.ops.convert_to_numpy(variable.value))
    before = fitted.transform(X)
    expected = cross_val_score(
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)), before, y, cv=2
    )
    fitted.set_params(pooling="mean", weights="not/there")  # which apply from the next fit
    display = LayerDisplay.from_estimator(fitted, X, y, cv=2)
    np.testing.assert_allclose(display.scores["last"], expected)
    np.testing.assert_array_equal(fitted.transform(X), before)


@pytest.mark.parametrize("tags", [("B-X", "O"), ("noun", "other")])
def test_words_are_scored_by_rows(vectorizer, three_classes, tags):
    X = three_classes.text.str.split().tolist()
    y = [[tags[0] if word in ("great", "awful", "chair") else tags[1] for word in row] for row in X]
    display = LayerDisplay.from_estimator(BertVectorizer(**{**vectorizer.get_params(), "level": "word"}), X, y, cv=3)
    vectors = np.concatenate(by_hand(vectorizer, X, level="word")["last"])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    flat, row_of_word, found = np.concatenate(y), np.repeat(np.arange(48), [len(row) for row in X]), []
    for train, test in KFold(3).split(X):
        learned = model.fit(vectors[np.isin(row_of_word, train)], flat[np.isin(row_of_word, train)])
        predicted = [learned.predict(vectors[row_of_word == row]) for row in test]
        right = [y[row] for row in test]
        found.append(
            entity_f1(right, predicted)
            if tags[1] == "O"
            else np.mean(np.concatenate(predicted) == np.concatenate(right))
        )
    np.testing.assert_allclose(display.scores["last"], found)
    assert display.score_name == ("Entity F1" if tags[1] == "O" else "Accuracy of words")
    with pytest.raises(ValueError, match="one tag for each word"):
        LayerDisplay.from_estimator(
            BertVectorizer(**{**vectorizer.get_params(), "level": "word"}), X, [row[1:] for row in y]
        )


def test_what_is_no_vectorizer_is_refused(fitted):
    with pytest.raises(TypeError, match="needs a BertVectorizer, got BertClassifier"):
        LayerDisplay.from_estimator(fitted, TEXTS, TEXTS)


# --- Training


def test_a_fit_is_drawn(toy, reviews):
    held_out = reviews.text[160:], reviews.label[160:]
    classifier = toy(epochs=2).fit(reviews.text[:160], reviews.label[:160], eval_set=held_out)
    display = TrainingDisplay.from_estimator(classifier, smoothing=1)
    np.testing.assert_array_equal(display.line_.get_ydata(), np.concatenate(classifier.history_["update_loss"]))
    np.testing.assert_array_equal(display.score_line_.get_data(), [[10, 20], classifier.history_["val_score"]])
