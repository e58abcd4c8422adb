"""Weights of rows and classes, random states, callbacks, and early stopping."""

import copy
import pickle
import random
import threading
import warnings

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

from kbert import BertRegressor
from kbert.errors import DivergedError, WeightsMismatchError
from kbert.estimators import preparing

pytestmark = pytest.mark.slow

# The same words in every row: the model can learn nothing but how often each label occurs.
SAME = ["the table"] * 48
UNEVEN = np.array(["a"] * 36 + ["b"] * 12)


@pytest.fixture(scope="module")
def share_of_b(toy):
    """A function that gives the probability of "b" that a classifier learns from uneven labels."""

    def learn(y=UNEVEN, sample_weight=None, **parameters):
        classifier = toy(epochs=8, learning_rate=1e-2, **parameters).fit(SAME, y, sample_weight)
        return classifier.predict_proba(SAME[:1])[0, 1]

    return learn


@pytest.fixture(scope="module")
def plain_share(share_of_b):
    return share_of_b()


@pytest.mark.compiles
@pytest.mark.backend
def test_class_weight_moves_the_probabilities(share_of_b, plain_share):
    balanced, heavy = share_of_b(class_weight="balanced"), share_of_b(class_weight={"b": 60})
    assert plain_share < 0.4 < balanced < 0.6 < 0.8 < heavy


@pytest.mark.compiles
@pytest.mark.backend
def test_sample_weight_moves_the_probabilities(share_of_b, plain_share):
    assert share_of_b(sample_weight=np.where(UNEVEN == "b", 60, 1)) > 0.8
    assert share_of_b(sample_weight=np.where(UNEVEN == "b", 0.1, 1)) < plain_share


def test_class_weight_is_the_sample_weight_of_its_rows(share_of_b):
    by_row = share_of_b(sample_weight=compute_sample_weight("balanced", UNEVEN))
    assert share_of_b(class_weight="balanced") == pytest.approx(by_row, abs=1e-5)
    # Rows of weight 0 are as good as absent: what counts is half "a", half "b".
    counts = np.where(UNEVEN == "b", 1, np.cumsum(UNEVEN == "a") <= (UNEVEN == "b").sum()).astype(float)
    assert share_of_b(class_weight="balanced", sample_weight=counts) == pytest.approx(
        share_of_b(sample_weight=counts), abs=1e-5
    )
    # A row of weight 3 is the row three times: these weights balance the classes already.
    balancing = np.where(UNEVEN == "b", 3.0, 1.0)
    by_row = share_of_b(sample_weight=balancing)
    assert share_of_b(class_weight="balanced", sample_weight=balancing) == pytest.approx(by_row, abs=1e-5)
    by_row = share_of_b(sample_weight=np.where(UNEVEN == "b", 6.0, 2.0))
    assert share_of_b(class_weight={"b": 3}, sample_weight=2) == pytest.approx(by_row, abs=1e-5)


def test_rows_of_weight_zero_are_as_good_as_absent(toy, reviews):
    texts, labels, weight = reviews.text[:200], reviews.label[:200], np.zeros(200)
    weight[::9] = 2.0
    masked = toy(epochs="auto", batch_size="auto").fit(texts, labels, weight)
    alone = toy(epochs="auto", batch_size="auto").fit(texts[::9], labels[::9])
    assert masked.epochs_ == alone.epochs_ == 40  # 80 updates of two batches
    assert np.isfinite(np.concatenate(masked.history_["update_loss"])).all()
    np.testing.assert_allclose(masked.predict_proba(texts), alone.predict_proba(texts), atol=1e-5)
    plan = masked.plan(texts, labels, weight)
    assert (plan.n_rows, plan.n_updates, plan.n_validation_rows) == (200, 80, 0)


def test_rows_of_a_class_of_weight_zero_are_as_good_as_absent(toy, reviews):
    """Their sample of rows, which tells what a run has learned, would hold none that counts."""
    texts, labels = reviews.text[:150].tolist() * 2, np.array(["a"] * 300)
    labels[1:9:2] = ["b", "c", "b", "c"]
    others = labels != "a"
    parameters = dict(learning_rate=1e-6, epochs=2, batch_size=16)
    masked = toy(class_weight={"a": 0, "b": 1, "c": 1}, **parameters).fit(texts, labels)
    alone = toy(**parameters).fit(np.array(texts)[others], labels[others])
    n_updates = [len(np.concatenate(fitted.history_["update_loss"])) for fitted in (masked, alone)]
    assert n_updates == [2, 2]


def test_only_the_ratios_of_sample_weight_count(toy, reviews):
    X, y, weight = reviews.text[:32], reviews.label[:32], np.linspace(0.1, 2, 32)
    once, thousandfold = (toy().fit(X, y, w).predict_proba(X) for w in (weight, weight * 1024))
    assert np.abs(once - toy().fit(X, y).predict_proba(X)).max() > 1e-4
    np.testing.assert_allclose(thousandfold, once, atol=1e-6)
    np.testing.assert_allclose(toy().fit(X, y, 5).predict_proba(X), toy().fit(X, y).predict_proba(X), atol=1e-6)


def test_labels_of_rows_without_weight_do_not_matter(toy, reviews):
    X, y, weight = reviews.text[:32], reviews.label[:32], np.tile([1, 1, 0, 0], 8)
    other = np.where(weight == 0, np.where(y == "bad", "good", "bad"), y)
    assert (other != y).sum() == 16
    assert np.array_equal(toy().fit(X, y, weight).predict_proba(X), toy().fit(X, other, weight).predict_proba(X))
    assert not np.array_equal(toy().fit(X, y).predict_proba(X), toy().fit(X, other).predict_proba(X))


# --- Random states


@pytest.mark.backend
def test_the_same_random_state_gives_the_same_predictions(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    classifier = toy(random_state=3)
    first = classifier.fit(X, y).predict_proba(X)
    assert np.array_equal(classifier.fit(X, y).predict_proba(X), first)
    assert np.array_equal(toy(random_state=np.int64(3)).fit(X, y).predict_proba(X), first)
    assert not np.array_equal(toy(random_state=4).fit(X, y).predict_proba(X), first)


def test_no_random_state_differs_from_fit_to_fit(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    np.random.seed(0)
    first = toy(random_state=None).fit(X, y).predict_proba(X)
    np.random.seed(0)
    assert not np.array_equal(toy(random_state=None).fit(X, y).predict_proba(X), first)


def test_a_random_generator_is_used_up_from_fit_to_fit(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    classifier = toy(random_state=np.random.RandomState(3))
    first, second = (classifier.fit(X, y).predict_proba(X) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(toy(random_state=np.random.RandomState(3)).fit(X, y).predict_proba(X), first)


@pytest.mark.backend
def test_the_largest_random_state_works(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    probabilities = toy(random_state=2**32 - 1).fit(X, y).predict_proba(X)
    assert np.isfinite(probabilities).all()


def torch_state():
    if keras.backend.backend() != "torch":
        return None
    import torch

    return torch.get_rng_state().tolist()


@pytest.mark.backend
def test_the_global_random_states_stay_as_they_are(toy, reviews):
    plain, numpys, torchs = random.getstate(), np.random.get_state(), torch_state()
    toy(random_state=None, early_stopping=True).fit(reviews.text[:64], reviews.label[:64]).predict(reviews.text[:8])
    assert random.getstate() == plain
    assert all(np.array_equal(now, then) for now, then in zip(np.random.get_state(), numpys, strict=True))
    assert torch_state() == torchs


def test_the_callers_data_stay_as_they_are(toy, pairs):
    X, y = pairs[["left", "right"]][:32].copy(), pairs.both[:32].copy()
    X.iloc[3, 1] = None
    weight, seen = np.linspace(1, 2, 32), (X.copy(deep=True), y.copy(deep=True))
    with pytest.warns(match="missing"):
        toy(class_weight="balanced").fit(X, y, weight, eval_set=(X, y)).predict(X)
    pd.testing.assert_frame_equal(X, seen[0])
    pd.testing.assert_series_equal(y, seen[1])
    assert np.array_equal(weight, np.linspace(1, 2, 32))


def test_numbers_of_numpy_are_taken_for_what_they_are(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    for plain, numpys in [({"warmup": 0.5}, {"warmup": np.float32(0.5)}), ({"warmup": 2}, {"warmup": np.int64(2)})]:
        expected = toy(epochs=2, **plain).fit(X, y).predict_proba(X)
        assert np.array_equal(toy(epochs=np.int64(2), **numpys).fit(X, y).predict_proba(X), expected)
        assert not np.array_equal(toy(epochs=2).fit(X, y).predict_proba(X), expected)


# --- Callbacks and held-out rows


def test_callbacks_see_each_epoch_and_its_weights(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append((epoch, dict(logs), self.model.classifier.get_weights()[0]))

    classifier = toy(epochs=3).fit(X, y, eval_set=(X, y), callbacks=Watch())
    assert [epoch for epoch, _, _ in seen] == [0, 1, 2]
    history = {name: [logs[name] for _, logs, _ in seen] for name in ("loss", "val_loss", "val_score")}
    assert history == {name: classifier.history_[name] for name in history}
    assert not np.array_equal(seen[0][2], seen[1][2])
    assert np.array_equal(seen[2][2], classifier.model_.classifier.get_weights()[0])


def test_a_callback_may_stop_the_training(toy, reviews):
    stop = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(stop.model, "stop_training", True))
    classifier = toy(epochs=3).fit(reviews.text[:32], reviews.label[:32], callbacks=[stop])
    assert classifier.n_iter_ == len(classifier.history_["loss"]) == 1


def test_an_eval_set_is_scored_after_each_epoch(toy, reviews):
    train, held_out = reviews[:160], reviews[160:]
    classifier = toy(epochs=3).fit(train.text, train.label, eval_set=(held_out.text, held_out.label))
    assert list(classifier.history_) == ["loss", "val_loss", "val_score", "update_loss"]
    assert {len(values) for values in classifier.history_.values()} == {3}
    updates = classifier.history_["update_loss"]
    assert {len(values) for values in updates} == {-(-160 // classifier.batch_size_)}
    assert np.mean(updates, axis=1) == pytest.approx(classifier.history_["loss"], rel=1e-5)
    table = pd.DataFrame(classifier.history_)  # a row for each epoch
    assert table.shape == (3, 4) and table["loss"].dtype == "float64" and table["update_loss"][2] == updates[2]
    probability = classifier.predict_proba(held_out.text)[range(40), (held_out.label == "good").astype(int)]
    assert classifier.history_["val_loss"][-1] == pytest.approx(-np.log(probability).mean(), rel=1e-3)
    assert classifier.history_["val_score"][-1] == classifier.score(held_out.text, held_out.label)


def test_an_eval_set_does_not_change_the_training(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    without, evaluated = toy().fit(X, y), toy().fit(X, y, eval_set=(reviews.text[32:], reviews.label[32:]))
    assert np.array_equal(without.predict_proba(X), evaluated.predict_proba(X))


@pytest.mark.backend
def test_early_stopping_restores_the_best_weights(toy, reviews):
    train, held_out = reviews[:160], reviews[160:]
    # Labels of the held-out rows turned round: the more is learned, the worse the score.
    wrong = held_out.label.map({"good": "bad", "bad": "good"})
    classifier = toy(epochs=12, early_stopping=True, n_iter_no_change=3)
    classifier.fit(train.text, train.label, eval_set=(held_out.text, wrong))
    scores = classifier.history_["val_score"]
    assert scores[-1] < max(scores)
    assert classifier.score(held_out.text, wrong) == max(scores)
    assert classifier.n_iter_ == len(scores) == np.argmax(scores) + 1 + 3 < 12


def test_without_early_stopping_the_last_weights_stay(toy, reviews):
    train, held_out = reviews[:160], reviews[160:]
    wrong = held_out.label.map({"good": "bad", "bad": "good"})
    classifier = toy(epochs=6).fit(train.text, train.label, eval_set=(held_out.text, wrong))
    scores = classifier.history_["val_score"]
    assert classifier.score(held_out.text, wrong) == scores[-1] < max(scores)


@pytest.fixture
def splits(monkeypatch):
    """The training rows and the validation rows of each fit."""
    seen, split = [], preparing.split_rows

    def spy(*args):
        seen.append(split(*args))
        return seen[-1]

    monkeypatch.setattr(preparing, "split_rows", spy)
    return seen


def test_early_stopping_splits_off_rows_of_every_class(toy, reviews, splits):
    classifier = toy(epochs=4, early_stopping=True, validation_fraction=0.2)
    classifier.fit(reviews.text, reviews.label)
    ((training, validation),) = splits
    assert sorted([*training, *validation]) == list(range(200))
    assert reviews.label[validation].value_counts().to_dict() == {"bad": 20, "good": 20}
    score = classifier.score(reviews.text[validation], reviews.label[validation])
    assert score == max(classifier.history_["val_score"])


def test_rows_that_are_split_off_are_not_trained_on(toy, reviews, splits):
    def fit(texts):
        return toy(early_stopping=True, validation_fraction=0.5).fit(texts, reviews.label[:64])

    texts = reviews.text[:64]
    first = fit(texts)
    training, validation = splits[0]
    others = texts.copy()
    others[validation] = "plain usual fine plain usual fine"
    second = fit(others)
    assert np.array_equal(first.predict_proba(texts), second.predict_proba(texts))
    assert first.history_["val_loss"] != second.history_["val_loss"]
    others = texts.copy()
    others[training] = "plain usual fine plain usual fine"
    assert not np.array_equal(first.predict_proba(texts), fit(others).predict_proba(texts))


def test_early_stopping_watches_rows_that_have_a_weight(toy, reviews, splits):
    weight = np.zeros(64)
    weight[:8] = 1
    classifier = toy(early_stopping=True, validation_fraction=0.25).fit(reviews.text[:64], reviews.label[:64], weight)
    ((training, validation),) = splits
    assert len(validation) == 2 and set(validation) < set(range(8))
    assert sorted([*training, *validation]) == list(range(8))
    assert np.isfinite([classifier.history_["loss"], classifier.history_["val_loss"]]).all()


@pytest.mark.parametrize("class_weight", ["balanced", {"bad": 0.2, "good": 9}])
def test_held_out_rows_count_without_class_weight_and_with_their_own(toy, reviews, splits, class_weight):
    texts, labels = reviews.text[:64], np.where(np.arange(64) % 4, "bad", "good")
    weight = np.linspace(1, 3, 64)
    parameters = dict(class_weight=class_weight, early_stopping=True, validation_fraction=0.25)
    classifier = toy(**parameters).fit(texts, labels, weight)
    ((_, validation),) = splits
    probability = classifier.predict_proba(texts[validation])[range(16), (labels[validation] == "good").astype(int)]
    expected = np.average(-np.log(probability), weights=weight[validation])
    assert classifier.history_["val_loss"] == [pytest.approx(expected, rel=1e-5)]
    score = classifier.score(texts[validation], labels[validation], weight[validation])
    assert classifier.history_["val_score"] == [pytest.approx(score)]


@pytest.mark.parametrize(
    "weights", [dict(sample_weight=np.arange(32) % 2), dict(class_weight={"a": 1, "b": 0})], ids=["rows", "class"]
)
def test_one_class_that_has_a_weight_is_refused(toy, reviews, weights):
    labels = np.where(np.arange(32) % 2, "a", "b")
    with pytest.raises(ValueError, match="All rows whose weight is not 0 are of one class, 'a'"):
        toy(class_weight=weights.get("class_weight")).fit(reviews.text[:32], labels, weights.get("sample_weight"))


def test_a_warm_start_may_have_rows_of_one_class(toy, reviews):
    texts, labels = reviews.text[:16], reviews.label[:16]
    classifier = toy(epochs=1, warm_start=True).fit(texts, labels)
    classifier.fit(texts, labels, (labels == "good").astype(float))
    assert classifier.classes_.tolist() == ["bad", "good"]


def test_a_part_of_the_rows_may_lack_a_class_that_has_a_weight(toy, reviews):
    texts, labels = reviews.text[:32], reviews.label[:32]
    plain = toy(class_weight={"good": 3, "bad": 1}).fit(texts, labels)
    rare = toy(class_weight={"good": 3, "bad": 1, "rare": 9}).fit(texts, labels)
    assert np.array_equal(plain.predict_proba(texts), rare.predict_proba(texts))


@pytest.mark.parametrize("callbacks", [3, [3], [keras.callbacks.Callback]])
def test_what_is_no_callback_is_refused(toy, reviews, callbacks):
    with pytest.raises(TypeError, match="callbacks must be a keras.callbacks.Callback or a list of them, got"):
        toy().fit(reviews.text[:32], reviews.label[:32], callbacks=callbacks)


def test_going_on_keeps_the_dropout_of_the_fit_before(toy, reviews):
    texts, labels = reviews.text[:32], reviews.label[:32]
    classifier = toy(warm_start=True, dropout=0.5).fit(texts, labels).set_params(dropout=None).fit(texts, labels)
    assert classifier.config_.hidden_dropout_prob == 0.5
    assert classifier.set_params(dropout=0.1).fit(texts, labels).config_.hidden_dropout_prob == 0.1


def test_a_model_with_adapters_is_no_start(fitted, reviews, tmp_path):
    adapted = copy.deepcopy(fitted).set_params(warm_start=True)
    layer = adapted.model_.encoder.transformer_layers[0].intermediate
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.1))
    with pytest.raises(WeightsMismatchError, match="adapters.*weights=folder"):
        adapted.fit(reviews.text[:8], reviews.label[:8])
    adapted.save(tmp_path / "merged")
    again = clone(fitted).set_params(weights=tmp_path / "merged", epochs=1, freeze=fitted.config_.num_hidden_layers)
    again.fit(reviews.text[:8], reviews.label[:8])
    merged, kernel = layer.kernel, again.model_.encoder.transformer_layers[0].intermediate.kernel
    np.testing.assert_allclose(*(keras.ops.convert_to_numpy(array) for array in (kernel, merged)), rtol=1e-6)


def test_a_fit_that_fails_leaves_the_estimator_as_it_was(fitted, reviews):
    classifier = copy.deepcopy(fitted)
    before = classifier.predict_proba(reviews.text)
    with pytest.raises(ValueError, match="one class only"):
        classifier.fit(reviews[["text", "label"]], ["same"] * len(reviews))
    np.testing.assert_array_equal(classifier.predict_proba(reviews.text), before)


def test_max_length_beyond_the_models_positions_is_refused_when_predicting_too(fitted, reviews):
    classifier = copy.deepcopy(fitted).set_params(max_length=65)
    with pytest.raises(ValueError, match="max_length must be at most 64"):
        classifier.predict(reviews.text)


# --- What is not finite


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_training_that_destroys_the_weights_is_an_error(toy, fitted, reviews, epochs):
    # One update: its loss is that of the weights before it.
    X, y = reviews.text[:16], reviews.label[:16]
    with pytest.raises(DivergedError, match="not finite"):
        toy(learning_rate=1e30, epochs=epochs).fit(X, y)
    regressor = BertRegressor(weights=toy().weights, max_length=16, epochs=1, learning_rate=1e30, random_state=0)
    with pytest.raises(DivergedError, match="not finite"):
        regressor.fit(X, np.arange(16.0))
    assert not hasattr(regressor, "model_")
    again = copy.deepcopy(fitted).set_params(learning_rate=1e30, epochs=1)
    with pytest.raises(DivergedError, match="not finite"):
        again.fit(X, y)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X)) and again.n_iter_ == fitted.n_iter_


def test_activations_that_overflow_in_float16_are_an_error(fitted, reviews):
    # Each weight is finite in float16, and so is the loss of the one update, which is that before it.
    again = copy.deepcopy(fitted).set_params(warm_start=True, dtype="float16", learning_rate=100.0, epochs=1, warmup=0)
    with warnings.catch_warnings(), pytest.raises(DivergedError, match="not finite"):
        warnings.simplefilter("ignore", UserWarning)
        again.fit(reviews.text[:8], reviews.label[:8])
    assert np.array_equal(again.predict_proba(reviews.text[:8]), fitted.predict_proba(reviews.text[:8]))


@pytest.mark.backend
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_prediction_that_is_not_finite_is_an_error(fitted, reviews, wrong):
    broken = copy.deepcopy(fitted)
    broken.model_.classifier.bias.assign(np.array([wrong, 0], "float32"))
    with pytest.raises(DivergedError, match="not finite for 5 of 5 rows, first for row 0.*lower learning_rate"):
        broken.predict(reviews.text[:5])


def test_adapters_fit_into_a_pickle(fitted, reviews):
    adapted = copy.deepcopy(fitted)
    layer = adapted.model_.encoder.transformer_layers[0].intermediate
    layer.enable_lora(2, lora_alpha=6)
    layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.1))
    again = pickle.loads(pickle.dumps(adapted))
    assert np.array_equal(again.predict_proba(reviews.text[:8]), adapted.predict_proba(reviews.text[:8]))
    assert not np.array_equal(again.predict_proba(reviews.text[:8]), fitted.predict_proba(reviews.text[:8]))
    assert [v.trainable for v in again.model_.weights] == [v.trainable for v in adapted.model_.weights]


def test_going_on_with_another_pooling_is_refused(toy, reviews):
    texts, labels = reviews.text[:16], reviews.label[:16]
    classifier = toy(classifier_pooling="cls", epochs=1).fit(texts, labels).set_params(warm_start=True)
    with pytest.raises(ValueError, match="had classifier_pooling='cls', and classifier_pooling is 'mean' now"):
        classifier.set_params(classifier_pooling="mean").fit(texts, labels)
    assert classifier.set_params(classifier_pooling="auto").fit(texts, labels).config_.classifier_pooling == "cls"


def test_a_fit_that_diverges_leaves_no_thread(toy, reviews):
    before = set(threading.enumerate())
    errors = []
    for _ in range(2):
        with pytest.raises(DivergedError) as error:
            toy(learning_rate=1e30, batch_size=4).fit(reviews.text, reviews.label)
        errors.append(error.value)  # whose tracebacks keep what was local
    assert set(threading.enumerate()) <= before


def test_a_callback_that_stops_before_the_first_epoch_is_told(toy, reviews):
    class Stop(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.stop_training = True

    with pytest.raises(ValueError, match="stopped the training before its first epoch"):
        toy().fit(reviews.text[:16], reviews.label[:16], callbacks=[Stop()])


def test_weights_near_the_largest_number_are_as_good_as_others(toy, reviews):
    texts, labels = reviews.text[:16], reviews.label[:16]
    fits = [
        toy(epochs=1, class_weight={"good": 10}).fit(texts, labels, sample_weight=np.full(16, weight))
        for weight in (1.0, 3e38)
    ]
    np.testing.assert_allclose(*(one.predict_proba(texts) for one in fits), atol=1e-5)
