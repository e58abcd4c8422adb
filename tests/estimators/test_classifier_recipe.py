"""What keeps small data sets safe and probabilities honest: restarts, calibration, going on with more data."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax
from scipy.stats import norm
from sklearn.metrics import log_loss

from kbert import BertClassifier
from kbert.errors import FailedRunWarning
from kbert.estimators import runs
from kbert.estimators.outcome import Kind, Outcome

pytestmark = pytest.mark.slow

# --- Runs that failed


@pytest.fixture
def failing(toy, reviews):
    """A classifier whose learning rate wrecks every run, and its rows."""
    return toy(epochs=3, learning_rate=1.0), reviews.text[:64], reviews.label[:64]


@pytest.mark.compiles
@pytest.mark.backend
def test_a_failed_run_is_told(failing):
    classifier, X, y = failing
    with pytest.warns(
        FailedRunWarning, match=r"after epoch 3.*gives 0\.693.*Nothing was learned. Try n_restarts=3"
    ) as seen:
        classifier.fit(X, y)
    assert [warning.filename for warning in seen if warning.category is FailedRunWarning] == [__file__]
    assert len(np.unique(classifier.predict(X))) == 1


def test_a_run_that_learns_is_not(toy, reviews, quick_folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FailedRunWarning)
        toy(weights=quick_folder, epochs=6, n_restarts=2).fit(reviews.text, reviews.label)


def test_a_failed_run_is_started_again_as_often_as_asked(failing):
    classifier, X, y = failing
    seeds = []

    def note(task, model, *_):
        seeds.append(model.seed)
        return Outcome(Kind.NOTHING, 0.7, 0.693)

    with pytest.MonkeyPatch.context() as patch, pytest.warns(FailedRunWarning) as seen:
        patch.setattr(runs, "outcome_of", note)
        classifier.set_params(n_restarts=2).fit(X, y)
    messages = [str(warning.message) for warning in seen if warning.category is FailedRunWarning]
    assert [text.split("Nothing was learned. ")[1][:40] for text in messages] == [
        "It is started again with another seed (1",
        "It is started again with another seed (2",
        "Try n_restarts=3, more epochs, or anothe",
    ]
    assert len(set(seeds)) == 3 and seeds[0] == 0


def test_the_first_run_that_did_not_fail_is_kept(toy, reviews, monkeypatch):
    X, y = reviews.text[:64], reviews.label[:64]
    plain = toy().fit(X, y).predict_proba(X)
    outcomes = [Outcome(Kind.NOTHING, 0.7, 0.693), Outcome(Kind.ENOUGH, 0.1, 0.693)]
    answers = iter(outcomes)
    monkeypatch.setattr(runs, "outcome_of", lambda *_: next(answers))
    classifier = toy(n_restarts=5)
    with pytest.warns(FailedRunWarning, match="1 of n_restarts=5"):
        found = classifier.fit(X, y).predict_proba(X)
    assert not np.array_equal(found, plain)
    # The further seeds follow from the first, so that the result can be had again.
    answers = iter(outcomes)
    with pytest.warns(FailedRunWarning):
        assert np.array_equal(toy(n_restarts=1).fit(X, y).predict_proba(X), found)


def test_uneven_labels_that_are_rightly_guessed_alike_are_no_failure(toy):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FailedRunWarning)
        toy(epochs=3).fit(["the table"] * 200, ["rare"] * 4 + ["usual"] * 196)


def test_several_labels_may_fail_too(toy):
    matrix = np.zeros((64, 3), int)
    matrix[::2, 0] = matrix[::3, 1] = matrix[::4, 2] = 1
    with pytest.warns(FailedRunWarning):
        toy(epochs=5, learning_rate=1e-2).fit(["the table"] * 64, matrix)


# --- Calibration


@pytest.fixture(scope="module")
def noisy(reviews):
    """Rows of which every fifth label is wrong: who is sure of the others is too sure."""
    wrong = np.random.default_rng(0).random(200) < 0.2
    return reviews.text, np.where(wrong, np.where(reviews.label == "good", "bad", "good"), reviews.label)


def test_the_temperature_is_the_most_probable_for_the_validation_set(toy, noisy, quick_folder):
    X, y = noisy
    parameters = dict(weights=quick_folder, epochs=12)
    plain = toy(**parameters).fit(X[:120], y[:120])
    calibrated = toy(**parameters, calibrate="temperature").fit(X[:120], y[:120], eval_set=(X[120:], y[120:]))
    temperature = calibrated.temperature_
    assert temperature != 1.0 and plain.temperature_ == 1.0
    logits = np.stack([np.zeros(200), plain.decision_function(X)], axis=1).astype("float64")
    np.testing.assert_allclose(calibrated.predict_proba(X), softmax(logits / temperature, axis=1), atol=1e-5)
    assert np.array_equal(calibrated.predict(X), plain.predict(X))

    def surprise(t):
        losses = -log_softmax(logits[120:] / t, axis=1)[np.arange(80), (y[120:] == "good").astype(int)]
        return losses.sum() - norm.logpdf(np.log(t), np.log(1.5), 0.5)

    assert surprise(temperature) <= min(map(surprise, np.geomspace(0.05, 20, 400))) + 1e-6
    after, before = (log_loss(y[120:], each.predict_proba(X[120:])) for each in (calibrated, plain))
    assert after < before


def test_a_few_rows_that_are_all_right_make_no_answer_certain(toy, reviews, quick_folder):
    """The temperature with the lowest loss would be 0.05."""
    X, y = reviews.text, reviews.label
    parameters = dict(weights=quick_folder, epochs=12, calibrate="temperature")
    classifier = toy(**parameters).fit(X[:150], y[:150], eval_set=(X[150:154], y[150:154]))
    assert classifier.history_["val_score"][-1] == 1 and 1 < classifier.temperature_ < 1.5
    # Only the ratios of weights count.
    parameters = dict(weights=quick_folder, epochs=1, calibrate="temperature", validation_fraction=0.1)
    temperatures = [toy(**parameters).fit(X[:40], y[:40], [weight] * 40).temperature_ for weight in (0.5, 8)]
    assert temperatures[0] == pytest.approx(temperatures[1], rel=1e-3)


def test_rows_are_split_off_for_it(toy, noisy):
    X, y = noisy
    classifier = toy(calibrate="temperature", validation_fraction=0.25).fit(X, y)
    assert classifier.temperature_ != 1.0 and len(classifier.history_["val_score"]) == 1
    with pytest.raises(ValueError, match="calibrate splits validation_fraction=0.1 of 2 rows off"):
        toy(calibrate="temperature").fit(X[:2], ["good", "bad"])


def test_it_travels_with_the_weights(toy, noisy, tmp_path):
    X, y = noisy
    classifier = toy(calibrate="temperature", epochs=4).fit(X, y)
    classifier.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved", verify=True)
    assert loaded.temperature_ == classifier.temperature_
    np.testing.assert_allclose(loaded.predict_proba(X), classifier.predict_proba(X), atol=1e-6)
    # A folder without kbert.json, as transformers reads it, gives the same.
    (tmp_path / "saved" / "kbert.json").unlink()
    np.testing.assert_allclose(
        BertClassifier.load(tmp_path / "saved").set_params(dtype="float32").predict_proba(X),
        classifier.predict_proba(X),
        atol=1e-5,
    )


def test_several_labels_are_calibrated_before_their_thresholds_are_tuned(toy):
    rng = np.random.default_rng(0)
    matrix = (rng.random((64, 3)) < 0.5).astype(int)
    classifier = toy(calibrate="temperature", tune_thresholds=True, epochs=2)
    classifier.fit(["the table"] * 64, matrix)
    assert classifier.temperature_ != 1.0 and classifier.thresholds_.shape == (3,)


# --- Going on


@pytest.mark.compiles
@pytest.mark.backend
def test_a_warm_start_goes_on_from_the_weights(toy, reviews, quick_folder):
    X, y = reviews.text, reviews.label
    classifier = toy(weights=quick_folder, epochs=6, warm_start=True).fit(X, y)
    first, tokenizer = classifier.history_["loss"], classifier.tokenizer_
    cold = toy(weights=quick_folder, epochs=6).fit(X, y)
    assert cold.history_["loss"] == first
    with pytest.raises(ValueError, match="which had weights='.*', and weights is 'auto' now. Set warm_start=False"):
        classifier.set_params(epochs=1, learning_rate=1e-4, weights="auto").fit(X[:100], y[:100])
    classifier.set_params(weights=quick_folder).fit(X[:100], y[:100])
    assert classifier.history_["loss"][0] < first[0] / 2 and classifier.n_iter_ == 1
    assert classifier.tokenizer_ is tokenizer
    # Without it every fit starts from its weights.
    assert cold.fit(X, y).history_["loss"] == first


def test_a_warm_start_keeps_the_classes(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    classifier = toy(warm_start=True).fit(X, y)
    only_good = X[y == "good"]
    before = classifier.predict_proba(only_good)[:, 1].mean()
    classifier.set_params(class_weight="balanced", epochs=4).fit(only_good, ["good"] * 16)
    assert classifier.classes_.tolist() == ["bad", "good"]
    assert classifier.predict_proba(only_good)[:, 1].mean() > before
    with pytest.raises(ValueError, match=r"y holds labels that y of fit did not: \['meh'\]"):
        classifier.fit(X[:2], ["good", "meh"])
    with pytest.raises(ValueError, match="X has 2 features, but BertClassifier is expecting 1"):
        classifier.fit(pd.DataFrame({"a": X, "b": X}), y)


def test_a_loaded_one_goes_on(toy, reviews, quick_folder, tmp_path):
    X, y = reviews.text, reviews.label
    toy(weights=quick_folder, epochs=15).fit(X[:100], y[:100]).save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved").set_params(warm_start=True, epochs=1, learning_rate=1e-4)
    before = loaded.predict_proba(X)
    with pytest.raises(ValueError, match="which had size='.*', and size is 'large' now"):
        loaded.set_params(size="large").fit(X, y)
    loaded.set_params(size=toy().size).fit(X[100:], y[100:])
    assert 0 < np.abs(loaded.predict_proba(X) - before).max()
    assert loaded.score(X, y) > 0.8


def test_a_failed_warm_start_leaves_the_weights(toy, reviews):
    X, y = reviews.text[:32], reviews.label[:32]
    classifier = toy(warm_start=True).fit(X, y)
    before = classifier.predict_proba(X)

    class Interrupt:
        """Not a Keras callback: fails when training begins."""

    with pytest.raises(Exception):  # noqa: B017
        classifier.fit(X, y, callbacks=Interrupt())
    assert np.array_equal(classifier.predict_proba(X), before)


# --- Long texts


@pytest.fixture(scope="module")
def long_reviews(reviews):
    """Rows whose telling words stand far behind the first 16 tokens."""
    return "the table and a chair with this room was it " * 2 + reviews.text, reviews.label


def test_windows_read_what_truncation_cuts(toy, long_reviews, quick_folder):
    X, y = long_reviews
    parameters = dict(weights=quick_folder, epochs=8)
    with pytest.warns(match="200 of 200 rows have more than max_length=16"):
        cut = toy(**parameters).fit(X, y)
    assert cut.score(X, y) < 0.7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        windowed = toy(**parameters, long_text="window").fit(X, y)
        assert windowed.score(X, y) > 0.85


def test_a_rows_logits_are_the_mean_of_its_windows(fitted, reviews, long_reviews):
    long = long_reviews[0].iloc[0]
    reader = BertClassifier(**{**fitted.get_params(), "long_text": "window", "stride": 5})
    for name in ("model_", "tokenizer_", "config_", "classes_", "y_type_", "n_features_in_"):
        setattr(reader, name, getattr(fitted, name))
    pieces = fitted.tokenizer_.encode(long).ids[1:-1]
    room = 14
    last = len(pieces) - room
    # Every piece of these texts is a word, so that the windows can be had as texts.
    words = long.split()
    assert len(words) == len(pieces)
    windows = [" ".join(words[start : start + room]) for start in [*range(0, last, 5), last]]
    expected = fitted.decision_function(windows).mean()
    assert reader.decision_function([long])[0] == pytest.approx(expected, abs=1e-5)
    # Short texts are what they are without windows.
    np.testing.assert_allclose(
        reader.decision_function([long, *reviews.text[:9]])[1:], fitted.decision_function(reviews.text[:9]), atol=1e-5
    )


@pytest.mark.thorough
def test_pairs_are_read_in_windows(toy, pairs, quick_folder):
    filler = "the table and a chair with this room was it "
    X = pd.DataFrame({"left": filler + pairs.left, "right": filler * 2 + pairs.right})
    classifier = toy(weights=quick_folder, epochs=10, long_text="window").fit(X, pairs.both)
    assert classifier.score(X, pairs.both) > 0.7
    assert len(classifier.predict(X)) == 200


def test_a_stride_that_skips_words_is_refused(toy, reviews):
    with pytest.raises(ValueError, match="stride must be a whole number from 1 to 14, got 15"):
        toy(long_text="window", stride=15).fit(reviews.text[:32], reviews.label[:32])


def test_early_stopping_and_calibration_see_whole_rows(toy, long_reviews):
    X, y = long_reviews
    classifier = toy(long_text="window", early_stopping=True, calibrate="temperature", epochs=2).fit(X, y)
    assert len(classifier.history_["val_score"]) == 2
    assert (np.array(classifier.history_["val_score"]) * 20 % 1 < 1e-6).all()
