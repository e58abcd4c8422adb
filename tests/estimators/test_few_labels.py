"""BertClassifier(few_labels=True): the encoder is tuned by contrast, and the head is fitted to its vectors."""

import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax

from kbert import BertClassifier
from kbert.tasks import texts
from kbert.training.losses import supervised_contrast


def test_the_loss_is_that_of_the_paper():
    """Equation 2 of Khosla et al. (2020), L_out^sup, with a plain loop."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 4, 5)).astype("float32")
    classes = np.array([[0, 1, 0, 2], [1, 0, 0, 0]], "int32")
    weights = np.array([[1, 2, 1, 1], [1, 1, 0, 0]], "float32") / 6  # the last two slots are empty
    given = weights.ravel() > 0
    unit = vectors.reshape(-1, 5)[given]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    expected = 0.0
    for i, (of_class, weight) in enumerate(zip(classes.ravel()[given], weights.ravel()[given], strict=True)):
        others = [j for j in range(len(unit)) if j != i]
        logs = log_softmax(unit[others] @ unit[i] / 0.1)
        alike = [n for n, j in enumerate(others) if classes.ravel()[given][j] == of_class]
        if alike:
            expected -= weight * np.mean(logs[alike])
    found = float(ops.convert_to_numpy(supervised_contrast(*map(ops.convert_to_tensor, (vectors, classes, weights)))))
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def make(quick_folder):
    values = dict(weights=quick_folder, few_labels=True, learning_rate=3e-3, dtype="float32", random_state=0)
    return lambda **changes: BertClassifier(**{**values, **changes})


@pytest.mark.compiles
@pytest.mark.slow
@pytest.mark.backend
def test_few_rows_are_learned_in_few_updates(make, reviews, tmp_path):
    few, rest = slice(0, 32), slice(32, None)
    validation = reviews.text[few], reviews.label[few]
    classifier = make().fit(reviews.text[few], reviews.label[few], eval_set=validation)
    assert classifier.epochs_ == 8 and classifier.history_["loss"][-1] < classifier.history_["loss"][0]
    score = classifier.score(*validation)
    assert np.isnan(classifier.history_["val_score"][:-1]).all()
    assert [len(values) for values in classifier.history_["update_loss"]] == [2] * 8
    assert classifier.history_["val_score"][-1] == pytest.approx(score)
    plain = make(few_labels=False, learning_rate=1e-30, epochs=1).fit(reviews.text[few], reviews.label[few])
    assert classifier.score(reviews.text[rest], reviews.label[rest]) > plain.score(
        reviews.text[rest], reviews.label[rest]
    )
    classifier.save(tmp_path / "few")
    loaded = BertClassifier.load(tmp_path / "few", verify=True)
    assert loaded.few_labels and (loaded.predict(reviews.text[rest]) == classifier.predict(reviews.text[rest])).all()


@pytest.mark.slow
def test_the_head_reads_what_was_tuned(make, reviews):
    X, y = reviews.text[:16], reviews.label[:16]
    assert make(epochs=1).fit(X, y).config_.classifier_pooling == "mean"
    assert make(epochs=1, classifier_pooling="cls").fit(X, y).config_.classifier_pooling == "cls"


@pytest.mark.slow
def test_an_encoder_that_is_frozen_whole_is_refused(make, reviews):
    with pytest.raises(ValueError, match="few_labels=True tunes the encoder, and freeze=1 leaves no layer of it"):
        make(freeze=1).fit(reviews.text[:16], reviews.label[:16])


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(make, reviews):
    X, y = reviews.text[:24], reviews.label[:24]
    first, again, other = (make(epochs=2, random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.allclose(first, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes, says",
    [
        (dict(early_stopping=True), "set early_stopping=False"),
        (dict(head_start="random"), 'set head_start="probe"'),
        (dict(y="several"), "y has several labels a row"),
        (dict(few_labels=1), "few_labels must be True or False"),
        (dict(gradient_accumulation=2), "set gradient_accumulation=1: texts are compared within a batch"),
        (dict(batch_size=2), "set batch_size to 3 or more"),
    ],
)
def test_what_does_not_go_with_it_is_refused(make, reviews, changes, says):
    y = reviews.label[:16]
    if changes.pop("y", None):
        y = [[label, "a review"] for label in y]
    with pytest.raises((ValueError, TypeError), match=says):
        make(**changes).fit(reviews.text[:16], y)


@pytest.mark.slow
def test_a_warm_start_is_refused(make, reviews):
    X, y = reviews.text[:16], reviews.label[:16]
    classifier = make(epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="set warm_start=False"):
        classifier.set_params(warm_start=True).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes, batch_size", [(8, 16), (9, 64)])
def test_with_many_classes_a_batch_has_more_rows(make, reviews, n_classes, batch_size):
    """In batches of 16, most rows would meet none of their class."""
    X, y = reviews.text[:72], [f"class {i % n_classes}" for i in range(72)]
    classifier = make(learning_rate="auto").fit(X, y)
    assert classifier.batch_size_ == batch_size and classifier.plan(X, y).run.settings["batch_size"] == batch_size
    assert len(np.concatenate(classifier.history_["update_loss"])) >= 16
    plain = make(learning_rate="auto", few_labels=False, epochs=1).fit(X, y)
    assert plain.batch_size_ == 16 and classifier.learning_rate_ == pytest.approx(4 * plain.learning_rate_)


@pytest.mark.slow
def test_the_head_is_fitted_to_all_rows(make, reviews, monkeypatch, capsys):
    fitted, best_probe = [], texts.best_probe
    monkeypatch.setattr(texts, "MOST_ROWS", 10)
    monkeypatch.setattr(texts, "best_probe", lambda *given: fitted.append(len(given[1].targets)) or best_probe(*given))
    X, y = reviews.text[:32], reviews.label[:32]
    make(epochs=1, verbose=1).fit(X, y, eval_set=(X, y))
    assert "fitted head: val_loss 0." in capsys.readouterr().out
    make(epochs=1, few_labels=False).fit(X, y)
    assert fitted == [32, 10]
