"""What belongs to a fit is kept with it: a new fit replaces it at once, and parameters set since do not bend it."""

import copy

import numpy as np
import pytest

from kbert import BertClassifier, BertTagger, BertVectorizer

pytestmark = pytest.mark.slow

TEXTS = ["the table was great", "a sad chair", "the room and the sad table"]


def test_a_new_fit_replaces_the_one_before_at_once(toy, reviews, three_classes):
    class Watched(BertClassifier):
        """It predicts after each of its attributes that is written: what another thread may find at any moment."""

        seen: list = []

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if self is watched:
                self.seen.append(self.predict(TEXTS).tolist())

    watched = None
    classifier = Watched(**toy(epochs=6).get_params()).fit(reviews.text, reviews.label)
    before = classifier.predict(TEXTS).tolist()
    watched = classifier
    classifier.fit(three_classes.text, three_classes.label)
    after = classifier.predict(TEXTS).tolist()
    assert before != after and after in Watched.seen
    assert all(answers in (before, after) for answers in Watched.seen)


def test_a_prediction_is_of_one_fit(toy, reviews, three_classes):
    classifier = toy().fit(reviews.text, reviews.label)
    expected = classifier.predict_proba(TEXTS)

    class TextsDuringAFit(list):
        """Texts that are read while another thread fits."""

        def __iter__(self):
            if len(classifier.classes_) == 2:
                classifier.fit(three_classes.text, three_classes.label)
            return super().__iter__()

    np.testing.assert_array_equal(classifier.predict_proba(TextsDuringAFit(TEXTS)), expected)
    assert len(classifier.classes_) == 3 and classifier.predict_proba(TEXTS).shape == (3, 3)


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("long_text", "windows", ValueError, 'long_text must be "auto", "truncate" or "window", got \'windows\''),
        ("max_length", "64", ValueError, 'max_length must be "auto" or a whole number of at least 5, got .64.'),
        ("max_length", None, TypeError, 'max_length must be "auto" or a whole number of at least 5, got None'),
        ("stride", 2.5, ValueError, "stride must be None, or a whole number of at least 1, got 2.5"),
    ],
)
def test_parameters_that_are_set_after_fit_are_checked_where_they_are_used(
    fitted, reviews, tmp_path, name, value, error, message
):
    other = copy.copy(fitted).set_params(**{name: value})
    calls = [
        *(lambda method=method: getattr(other, method)(TEXTS) for method in ("predict", "predict_proba")),
        lambda: other.decision_function(TEXTS),
        lambda: other.score(reviews.text, reviews.label),
        lambda: other.save(tmp_path / "saved"),
        lambda: other.export(tmp_path / "exported"),
    ]
    for call in calls:
        with pytest.raises(error, match=f"^BertClassifier: {message}"):
            call()
    assert not any(tmp_path.iterdir())


def test_parameters_that_are_not_read_after_fit_may_be_anything_but_are_not_saved(fitted, tmp_path):
    other = copy.copy(fitted).set_params(epochs=0)
    assert other.predict(TEXTS).tolist() == fitted.predict(TEXTS).tolist()
    with pytest.raises(ValueError, match='epochs must be "auto" or a whole number of at least 1, got 0'):
        other.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="learning_rate must be"):
        other.set_params(epochs=1, learning_rate=-1).save(tmp_path / "saved")


def test_a_decoding_that_there_is_not_is_refused(toy_folder):
    tagger = BertTagger(weights=toy_folder, max_length=16, epochs=1, dtype="float32", random_state=0)
    tagger.fit([["great", "table"], ["a", "chair"]] * 4, [["B-A", "O"], ["O", "O"]] * 4)
    for method in (tagger.predict, tagger.entities):
        with pytest.raises(ValueError, match='decoding must be "auto", "argmax" or "bio", got \'BIO\''):
            tagger.set_params(decoding="BIO")
            method([["great", "chair"]])


@pytest.mark.parametrize(
    ("fitted_with", "set_since"),
    [
        ({}, {"pooling": "cls"}),
        ({"pooling": "cls"}, {"pooling": "mean"}),
        ({}, {"normalize": True}),
        ({}, {"layers": "concat_last_4"}),
        ({"layers": "concat_last_4"}, {"layers": "last"}),
        ({}, {"level": "word"}),
        ({"level": "word"}, {"level": "text", "layers": "embeddings"}),
    ],
)
def test_a_vectorizer_is_saved_as_it_was_fitted(two_layer_folder, tmp_path, fitted_with, set_since):
    values = dict(weights=two_layer_folder, max_length=32, dtype="float32")
    vectorizer = BertVectorizer(**values, **fitted_with).fit(TEXTS)
    expected = vectorizer.transform(TEXTS)
    vectorizer.set_params(**set_since).save(tmp_path / "saved")
    vectorizer.export(tmp_path / "exported", X=TEXTS)
    loaded = BertVectorizer.load(tmp_path / "saved", verify=True)
    for found in (vectorizer.transform(TEXTS), loaded.transform(TEXTS)):
        for row, of_row in zip(found, expected, strict=True):
            np.testing.assert_allclose(row, of_row, atol=1e-6)
    assert loaded.get_params().items() >= fitted_with.items() and vectorizer.get_params().items() >= set_since.items()
