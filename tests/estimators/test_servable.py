"""warm_up: what the requests of a service need is compiled before the first one."""

from collections import OrderedDict

import keras
import numpy as np
import pytest

from kbert import BertClassifier, BertMultipleChoice, BertQA, BertTagger, BertVectorizer
from kbert.training import compiled, predict

pytestmark = pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")

TEXTS = ["a great table", "the chair", "a sad room", "it was hot"] * 2
LONG = ["a", "the table was red and " * 3, "this room with the sad chair and it was awful " * 5]
VALUES = dict(max_length=24, epochs=1, batch_size=8, dtype="float32", random_state=0)


COMPILED = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="PyTorch compiles nothing, and its batches have any shape"
)


def classifier(folder):
    return BertClassifier(weights=folder, **VALUES).fit(TEXTS, [0, 1] * 4), lambda text: [text]


def tagger(folder):
    words = [text.split() for text in TEXTS]
    tags = [["B-X", *["O"] * (len(row) - 1)] for row in words]
    return BertTagger(weights=folder, **VALUES).fit(words, tags), lambda text: [text]


def answerer(folder):
    X = [("what", text) for text in TEXTS]
    y = [(text.split()[0], 0) for text in TEXTS]
    return BertQA(weights=folder, stride=8, **VALUES).fit(X, y), lambda text: [("what", text)]


def chooser(folder):
    X = [("what", [text, "a chair"]) for text in TEXTS]
    return BertMultipleChoice(weights=folder, **VALUES).fit(X, [0, 1] * 4), lambda text: [("what", [text, "a chair"])]


@pytest.mark.backend
@COMPILED
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=[] if make is classifier else pytest.mark.thorough, id=make.__name__)
        for make in (classifier, tagger, answerer, chooser)
    ],
)
def test_requests_meet_no_new_shape_after_it(toy_folder, monkeypatch, make):
    estimator, request = make(toy_folder)
    shapes = []

    def noting(model):
        run = predictor(model)
        return lambda inputs: shapes.append(compiled.shapes_key(inputs)) or run(inputs)

    predictor = predict.predictor
    monkeypatch.setattr(predict, "predictor", noting)
    # The long text has up to 8 windows, and a question two options.
    assert estimator.warm_up(n_texts=8) is estimator
    warm, n_compiled = set(shapes), len(compiled._cache)
    assert len(warm) == len(shapes) == 2 * 4  # rows of 16 and 24 tokens; 1, 2, 4 and 8 of them
    for text in LONG:
        estimator.predict(request(text))
    assert len(shapes) >= 8 + len(LONG) and set(shapes) == warm and len(compiled._cache) == n_compiled


@pytest.mark.backend
def test_some_lengths_alone_can_be_compiled(toy_folder, monkeypatch):
    vectorizer = BertVectorizer(weights=toy_folder, max_length=48, dtype="float32").fit(TEXTS)
    expected = vectorizer.transform(TEXTS)
    shapes = []
    predictor = predict.predictor
    monkeypatch.setattr(
        predict, "predictor", lambda model: lambda x: shapes.append(x["token_ids"].shape) or predictor(model)(x)
    )
    vectorizer.warm_up(lengths=[10, np.int64(16), 20])
    assert shapes == [(1, 16), (1, 24)]
    np.testing.assert_array_equal(vectorizer.transform(TEXTS), expected)
    for wrong, message in (
        (dict(lengths=[49]), "lengths holds 49, and no text has more tokens than max_length=48"),
        (dict(lengths=[0]), "each of lengths must be a whole number of at least 1, got 0"),
        (dict(n_texts=1.5), "n_texts must be a whole number of at least 1, got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            vectorizer.warm_up(**wrong)


@pytest.mark.backend
@COMPILED
def test_what_a_request_needs_is_compiled(toy_folder, monkeypatch):
    monkeypatch.setattr(compiled, "_cache", OrderedDict())  # the one that there is may be full
    vectorizer = BertVectorizer(weights=toy_folder, max_length=40, layers="second_to_last", dtype="float32").fit(TEXTS)
    before = len(compiled._cache)
    vectorizer.warm_up()
    after = len(compiled._cache)
    assert after - before == 4
    for text in LONG[:2]:
        vectorizer.transform([text])
    assert len(compiled._cache) == after


def test_what_is_not_fitted_cannot_be_warmed():
    with pytest.raises(Exception, match="not fitted yet"):
        BertVectorizer().warm_up()
