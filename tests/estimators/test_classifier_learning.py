import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from scipy.special import softmax
from sklearn.metrics import accuracy_score

from kbert import BertClassifier, BertConfig

pytestmark = pytest.mark.slow


@pytest.mark.backend
def test_learns_what_a_word_in_the_text_tells(fitted, reviews):
    assert fitted.score(reviews.text, reviews.label) >= 0.98
    assert fitted.predict(["the happy chair was it a", "a sad room it was the"]).tolist() == ["good", "bad"]
    assert fitted.history_["loss"][-1] < 0.2 < fitted.history_["loss"][0]


def test_learns_from_a_random_start_with_a_vocabulary_of_its_own(reviews):
    size = BertConfig(vocab_size=120, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    classifier = BertClassifier(size, weights=None, max_length=16, epochs=6, learning_rate=5e-3, random_state=0)
    classifier.fit(reviews.text, reviews.label)
    assert classifier.score(reviews.text, reviews.label) >= 0.95
    assert classifier.config_.vocab_size == classifier.tokenizer_.vocab_size <= 120


@pytest.mark.backend
def test_learns_what_only_both_texts_of_a_pair_tell(toy, pairs):
    X = pairs[["left", "right"]]
    classifier = toy(epochs=10).fit(X, pairs.both)
    assert classifier.score(X, pairs.both) >= 0.95
    questions = [("the red", "a hot"), ("the red", "a cold"), ("the blue", "a hot"), ("the blue", "a cold")]
    assert classifier.predict(questions).tolist() == [True, False, False, False]


def test_fine_tunes_released_weights(bert_tiny_folder, reviews):
    classifier = BertClassifier(
        weights=bert_tiny_folder, max_length=16, epochs=3, batch_size=16, learning_rate=1e-3, random_state=0
    )
    classifier.fit(reviews.text, reviews.label)
    assert classifier.score(reviews.text, reviews.label) >= 0.95


LABELS = {
    "strings": (["bad", "good"], np.array(["bad", "good"]), object, str),
    "whole numbers": ([7, -3], np.array([7, -3], "int32"), np.int64, int),
    "booleans": ([False, True], np.array([False, True]), bool, bool),
    "whole floats": ([1.0, 2.0], np.array([1.0, 2.0], "float32"), np.float64, float),
    "categories": (["bad", "good"], pd.Categorical(["bad", "good"], categories=["good", "bad", "never"]), object, str),
    "nullable strings": (["bad", "good"], pd.array(["bad", "good"], dtype="string"), object, str),
    "nullable numbers": ([0, 1], pd.array([0, 1], dtype="Int64"), np.int64, int),
    "nullable booleans": ([False, True], pd.array([False, True], dtype="boolean"), bool, bool),
    "numbers too large for NumPy": ([2**70, 2**70 + 1], [2**70, 2**70 + 1], object, int),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_with_their_type(toy, reviews, kind):
    plain, given, dtype, python_type = LABELS[kind]
    y = given * 16 if isinstance(given, list) else pd.Series(given).take([0, 1] * 16)
    classifier = toy().fit(reviews.text[:32], y)
    predicted = classifier.predict(reviews.text[:32])
    assert classifier.classes_.dtype == predicted.dtype == dtype
    assert classifier.classes_.tolist() == sorted(plain)
    assert {type(label) for label in predicted.tolist()} == {python_type}
    assert set(predicted.tolist()) <= set(plain)


@pytest.mark.backend
def test_two_classes_have_one_decision_value_a_row(fitted, reviews):
    X = reviews.text[:20]
    decision, probabilities = fitted.decision_function(X), fitted.predict_proba(X)
    assert decision.shape == (20,)
    assert probabilities.shape == (20, 2)
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-decision.astype("float64"))), atol=1e-6)
    assert np.array_equal(fitted.predict(X), fitted.classes_[(decision > 0).astype(int)])


@pytest.mark.compiles
@pytest.mark.backend
def test_three_classes_have_a_decision_value_for_each(fitted_three, three_classes):
    X = three_classes[["text"]][:20]
    decision = fitted_three.decision_function(X)
    assert decision.shape == (20, 3)
    np.testing.assert_allclose(fitted_three.predict_proba(X), softmax(decision.astype("float64"), axis=1), atol=1e-6)
    assert np.array_equal(fitted_three.predict(X), fitted_three.classes_[decision.argmax(axis=1)])


@pytest.mark.backend
def test_probabilities_sum_to_one_in_the_order_of_the_classes(fitted, reviews):
    assert fitted.classes_.tolist() == ["bad", "good"]
    probabilities = fitted.predict_proba(reviews.text)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert probabilities[reviews.label == "good", 1].mean() > 0.9
    assert probabilities[reviews.label == "good", 0].mean() < 0.1
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(reviews.text)), probabilities, atol=1e-12)


def test_score_is_the_accuracy(fitted_three, three_classes):
    X, y = three_classes[["text"]], three_classes.label
    weight = np.linspace(0, 1, len(y))
    predicted = fitted_three.predict(X)
    assert fitted_three.score(X, y) == accuracy_score(y, predicted)
    assert fitted_three.score(X, y, weight) == pytest.approx(accuracy_score(y, predicted, sample_weight=weight))


def test_score_is_of_what_a_subclass_predicts(fitted_three, three_classes, answering):
    always_good = answering(fitted_three, ["good"] * 48)
    assert always_good.score(three_classes[["text"]], three_classes.label) == pytest.approx(1 / 3)


def test_score_reads_labels_and_weights_as_fit_does(fitted_three, three_classes):
    X, y = three_classes[["text"]], three_classes.label
    score = fitted_three.score(X, y)
    assert fitted_three.score(X, y, 2) == fitted_three.score(X, y.astype("category")) == score
    assert fitted_three.score(X, ["none of them"] * 48) == 0
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`, first in row 3"):
        fitted_three.score(X, y, [1, 1, 1, -1] * 12)
    with pytest.raises(ValueError, match="y contains NaN: 1 label is missing, at row 1"):
        fitted_three.score(X[:2], ["good", None])
    with pytest.raises(TypeError, match="y holds 3, and y of fit held 'bad': give one type"):
        fitted_three.score(X[:2], [3, 4])


HUGE = {"int": [10**30, 10**30 + 1] * 16, "uint64": np.array([2**64 - 1, 3] * 16, "uint64")}
if hasattr(np.dtypes, "StringDType"):
    HUGE["StringDType"] = np.array(["good", "bad"] * 16, dtype=np.dtypes.StringDType())


@pytest.mark.parametrize("kind", HUGE)
def test_labels_that_numpy_has_no_plain_type_for(toy, reviews, kind, tmp_path):
    texts, labels = reviews.text[:32], HUGE[kind]
    classifier = toy(epochs=3, warm_start=True).fit(texts, labels, eval_set=(texts, labels))
    assert classifier.score(texts, labels) == classifier.history_["val_score"][-1]
    classifier.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved")
    assert loaded.classes_.tolist() == sorted(set(labels.tolist() if kind != "int" else labels))
    assert loaded.fit(texts, labels).score(texts, classifier.predict(texts)) > 0


def test_fitted_attributes_say_what_was_done(fitted):
    assert fitted.n_iter_ == 6
    assert list(fitted.history_) == ["loss", "update_loss"]
    assert len(fitted.history_["loss"]) == 6
    assert fitted.n_features_in_ == 1
    assert fitted.config_.hidden_size == 32
    assert fitted.tokenizer_.vocab_size == fitted.config_.vocab_size


def test_bfloat16_learns_with_weights_of_float32(toy, reviews):
    classifier = toy(epochs=6, dtype="bfloat16").fit(reviews.text, reviews.label)
    assert classifier.model_.compute_dtype == "bfloat16"
    assert classifier.score(reviews.text, reviews.label) >= 0.95
    assert {weight.dtype for weight in classifier.model_.trainable_weights} == {"float32"}


@pytest.mark.backend
def test_frozen_layers_keep_their_weights(toy, two_layer_folder, reviews, tmp_path):
    classifier = toy(weights=two_layer_folder, freeze=1).fit(reviews.text[:32], reviews.label[:32])
    classifier.model_.encoder.save_pretrained(tmp_path)
    before, after = load_file(two_layer_folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    moved = {name for name, array in before.items() if not np.array_equal(array, after[name])}
    assert moved == {name for name in before if name.startswith(("encoder.layer.1.", "pooler."))}
