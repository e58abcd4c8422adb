"""Frozen layers: they stay as they are, and are computed once for each text."""

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from kbert import BertClassifier, BertConfig, BertMultipleChoice, BertQA, BertRegressor, BertTagger
from kbert.training import frozen, loop

pytestmark = pytest.mark.slow

SMALL = dict(vocab_size=90, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
TEXTS = ["the table was great", "a sad chair", "the room and the sad table", "this room was lovely"]
QUESTIONS = pd.DataFrame({"question": ["was it"] * 4, "context": TEXTS})
ROWS = {
    BertClassifier: (TEXTS, ["a", "b", "b", "a"]),
    BertRegressor: (pd.DataFrame({"one": TEXTS, "two": TEXTS[::-1]}), [1.0, 2.0, 2.5, 0.0]),
    BertTagger: ([text.split() for text in TEXTS], [["O"] * (len(text.split()) - 1) + ["B-X"] for text in TEXTS]),
    BertQA: (QUESTIONS, pd.DataFrame({"answer": ["great", "sad", "sad", "lovely"], "answer_start": [14, 2, 17, 14]})),
    BertMultipleChoice: (
        pd.DataFrame({"context": TEXTS, "options": [["a table", "a room", "a chair"]] * 4}),
        [0, 1, 2, 0],
    ),
}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(frozen, "_last", frozen._Last())


@pytest.fixture
def make(two_layer_folder):
    def make(estimator=BertClassifier, **changes):
        values = dict(weights=two_layer_folder, freeze=1, max_length=32, epochs=2, batch_size=2, learning_rate=3e-3)
        return estimator(**{**values, "dropout": 0.0, "dtype": "float32", "random_state": 0, **changes})

    return make


@pytest.fixture
def computed(monkeypatch):
    """How many texts each fit computed the lower part of."""
    counts, keep = [], frozen.Vectors.keep

    def counting(self, texts, lengths, room):
        counts.append(len(texts))
        keep(self, texts, lengths, room)

    monkeypatch.setattr(frozen.Vectors, "keep", counting)
    return counts


def weights_of(estimator):
    return [keras.ops.convert_to_numpy(variable.value) for variable in estimator.model_.weights]


def same_weights(one, other, **tolerance):
    pairs = zip(weights_of(one), weights_of(other), strict=True)
    return all(np.allclose(a, b, **tolerance) for a, b in pairs)


@pytest.mark.compiles
@pytest.mark.backend
def test_it_is_training_of_the_whole_model(make, monkeypatch):
    kept = make().fit(*ROWS[BertClassifier])
    monkeypatch.setattr(loop, "frozen_part", lambda *_: None)
    whole = make().fit(*ROWS[BertClassifier])
    np.testing.assert_allclose(kept.history_["loss"], whole.history_["loss"], rtol=1e-5)
    assert same_weights(kept, whole, atol=1e-4)


@pytest.mark.parametrize("freeze", [1, 2])
@pytest.mark.parametrize("estimator", ROWS)
def test_so_it_is_for_every_estimator(make, monkeypatch, estimator, freeze):
    kept = make(estimator, freeze=freeze).fit(*ROWS[estimator])
    monkeypatch.setattr(loop, "frozen_part", lambda *_: None)
    whole = make(estimator, freeze=freeze).fit(*ROWS[estimator])
    np.testing.assert_allclose(kept.history_["loss"], whole.history_["loss"], rtol=1e-4)


@pytest.mark.parametrize(
    "changes", [{"classifier_pooling": "cls"}, {"dtype": "bfloat16"}, {"few_labels": True, "batch_size": 4}]
)
def test_with_other_parameters_too(make, monkeypatch, changes):
    kept = make(**changes).fit(*ROWS[BertClassifier])
    monkeypatch.setattr(loop, "frozen_part", lambda *_: None)
    whole = make(**changes).fit(*ROWS[BertClassifier])
    np.testing.assert_allclose(kept.history_["loss"], whole.history_["loss"], rtol=0.02 if "dtype" in changes else 1e-4)


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.parametrize("changes", [{}, {"freeze": 0, "weights": None, "size": BertConfig(**SMALL)}])
def test_in_bfloat16_a_validation_set_is_predicted_by_the_weights_of_its_epoch(make, reviews, tmp_path, changes):
    """Also where the model itself is trained, and no copy with fewer tokens."""
    X, y = reviews.text[:64], reviews.label[:64]
    classifier = make(dtype="bfloat16", epochs=4, batch_size=8, **changes).fit(X, y, eval_set=(X, y))
    classifier.save(tmp_path / "model")
    saved = BertClassifier.load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(classifier.predict_proba(X), saved.predict_proba(X))
    assert classifier.history_["val_score"][-1] == pytest.approx(saved.score(X, y))


def test_the_layers_above_have_dropout(make):
    without, with_it = (make(dropout=dropout).fit(*ROWS[BertClassifier]) for dropout in (0.0, 0.5))
    assert not same_weights(without, with_it, atol=1e-4)


def test_a_text_is_computed_once(make, computed, reviews):
    X, y = reviews.text, reviews.label
    assert X[:48].is_unique
    first = make().fit(X[:32], y[:32])
    assert computed == [32]
    make(random_state=1).fit(X[16:48], y[16:48])
    assert computed == [32, 16]
    make(freeze=2).fit(X[:32], y[:32])  # other vectors
    again = make().fit(X[:32], y[:32])
    assert computed == [32, 16, 32, 32] and same_weights(first, again, atol=0)


def test_a_search_computes_it_once(make, computed, reviews):
    search = GridSearchCV(make(epochs=1, batch_size=8), {"learning_rate": [1e-3, 3e-3]}, cv=2)
    search.fit(reviews.text[:32], reviews.label[:32])
    assert sum(computed) == reviews.text[:32].nunique()


def test_other_weights_have_other_vectors(make, computed, quick_folder):
    make().fit(*ROWS[BertClassifier])
    make(weights=quick_folder).fit(*ROWS[BertClassifier])
    assert computed == [4, 4]


def test_pairs_are_told_by_where_the_second_text_starts(make, computed):
    pairs = pd.DataFrame({"one": ["the table", "the"], "two": ["was", "table was"]})
    make().fit(pairs, ["a", "b"])
    assert computed == [2]


def test_beyond_its_memory_it_is_a_file(make, monkeypatch):
    in_memory = make().fit(*ROWS[BertClassifier])
    monkeypatch.setattr(frozen, "_last", frozen._Last())
    monkeypatch.setattr(frozen, "MOST_IN_MEMORY", 0)
    in_file = make().fit(*ROWS[BertClassifier])
    kept = frozen._last.vectors
    assert all(isinstance(kept[name], np.memmap) for name in kept._of)
    assert same_weights(in_memory, in_file, atol=0)


def test_beyond_its_memory_it_forgets_the_texts_of_earlier_fits(make, monkeypatch, computed):
    make().fit(*ROWS[BertClassifier])
    kept = frozen._last.vectors
    monkeypatch.setattr(frozen, "MOST_IN_MEMORY", kept.n_bytes)
    one_more = [*TEXTS[1:], "a great chair"]
    make().fit(one_more, ["a", "b", "b", "a"])  # some of them are needed, and all were made at once
    assert computed == [4, 1] and len(kept._of) == 5
    others = [text.replace("a ", "the ") + " and" for text in TEXTS]
    make().fit(others, ["a", "b", "b", "a"])
    assert computed == [4, 1, 4] and len(kept._of) == 4
    assert kept.n_bytes == sum(vectors.nbytes for vectors in kept._of.values())


def test_nothing_is_kept_of_a_computation_that_failed(make, monkeypatch):
    def failing(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(frozen, "batch_outputs", failing)
        make().fit(*ROWS[BertClassifier])
    again = make().fit(*ROWS[BertClassifier])
    monkeypatch.setattr(loop, "frozen_part", lambda *_: None)
    assert same_weights(again, make().fit(*ROWS[BertClassifier]), atol=1e-4)


def test_a_full_disk_is_told_before_anything_is_written(make, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(frozen, "MOST_IN_MEMORY", 0)
    monkeypatch.setattr(frozen.os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="frozen layers.*could not be had.*No space left.*Set TMPDIR"):
        make().fit(*ROWS[BertClassifier])
