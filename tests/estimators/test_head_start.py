"""Heads that start from a linear probe, what they read, and how these models travel."""

import json
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from kbert import (
    BertClassifier,
    BertConfig,
    BertEncoder,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    WordPieceTokenizer,
)
from kbert.errors import DivergedError
from kbert.tasks import Regression, SingleLabel
from kbert.tasks.linear_head import ridge_head, sigmoid_head, softmax_head
from kbert.tasks.probe import LEAST_EXPLAINED, Fitting, Probe, best_probe, rows_to_probe, tells_little, varies_little

pytestmark = pytest.mark.slow

# So small a rate that training changes nothing: what is predicted is the probe.
FROZEN = dict(learning_rate=1e-30, weight_decay=0.0, epochs=1, batch_size=32, dtype="float32", random_state=0)


@pytest.fixture(scope="module")
def blobs():
    """Vectors of three kinds, far from the origin, and their numbers."""
    rng = np.random.default_rng(0)
    numbers = np.repeat([0, 1, 2], 40)
    return 100 + rng.normal(size=(3, 8))[numbers] * 3 + rng.normal(size=(120, 8)), numbers


# --- Heads -----------------------------------------------------------------------------------------------------------


def test_a_softmax_head_of_many_labels_does_not_warn_of_them():
    """`check_labels` has, in kbert's words."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        softmax_head(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 25, np.ones(40), 25)


def test_a_softmax_head_is_scikit_learns_on_scaled_vectors(blobs):
    vectors, numbers = blobs
    head = softmax_head(vectors, numbers, np.ones(120), 3)
    scaled = vectors - vectors.mean(axis=0)
    scaled /= np.sqrt((scaled**2).sum(axis=1).mean())
    expected = LogisticRegression(C=2.0, max_iter=200).fit(scaled, numbers).decision_function(scaled)
    np.testing.assert_allclose(head(vectors), expected, atol=1e-6)


def test_two_classes_get_opposite_logits(blobs):
    vectors, numbers = blobs[0][:80], blobs[1][:80]
    logits = softmax_head(vectors, numbers, np.ones(80), 2)(vectors)
    np.testing.assert_allclose(logits[:, 0], -logits[:, 1], atol=1e-9)
    assert (logits.argmax(axis=1) == numbers).all()


def test_rows_of_weight_0_do_not_count(blobs):
    vectors, numbers = blobs
    weights = (np.arange(120) % 2).astype(float)
    some = weights > 0
    with_weights = softmax_head(vectors, np.where(some, numbers, (numbers + 1) % 3), weights, 3)
    without = softmax_head(vectors[some], numbers[some], np.ones(60), 3)
    np.testing.assert_allclose(with_weights(vectors), without(vectors), atol=1e-4)


def test_a_class_without_weight_gets_no_odds(blobs):
    vectors, numbers = blobs
    head = softmax_head(vectors, numbers, (numbers != 1).astype(float), 3)
    two = softmax_head(vectors[numbers != 1], numbers[numbers != 1], np.ones(80), 3)
    np.testing.assert_allclose(head(vectors), two(vectors), atol=1e-6)
    assert (head(vectors)[numbers != 1].argmax(axis=1) == numbers[numbers != 1]).all()


def test_a_class_that_no_row_has_is_improbable(blobs):
    logits = softmax_head(blobs[0], blobs[1], np.ones(120), 5)(blobs[0])
    assert np.isfinite(logits).all() and (logits.argmax(axis=1) < 3).all()
    one = softmax_head(blobs[0], np.zeros(120, int), np.ones(120), 2)(blobs[0])
    assert (one.argmax(axis=1) == 0).all()


def test_sigmoid_heads_take_each_label_by_itself(blobs):
    vectors, numbers = blobs
    has = np.stack([numbers == 0, numbers > 0, np.zeros(120, bool), np.ones(120, bool)], axis=1)
    logits = sigmoid_head(vectors, np.where(has, 1.0, -1.0), np.ones(120), 4)(vectors)
    assert ((logits > 0) == has).all()
    # The third label nobody has, the fourth everybody: their odds are those of half a row.
    np.testing.assert_allclose(np.exp(logits[0, 2:]), [0.5 / 120.5, 120.5 / 0.5])


def test_a_ridge_head_finds_a_linear_function(blobs):
    vectors = blobs[0]
    numbers = np.stack([vectors @ np.arange(8.0), vectors[:, 0] - 7], axis=1)
    found = ridge_head(vectors, numbers, np.ones(120), 2)(vectors)
    scaled = vectors - vectors.mean(axis=0)
    scaled /= np.sqrt((scaled**2).sum(axis=1).mean())
    np.testing.assert_allclose(found, Ridge(alpha=0.04 * 120).fit(scaled, numbers).predict(scaled), rtol=1e-6)
    assert all(np.corrcoef(found[:, column], numbers[:, column])[0, 1] > 0.9 for column in range(2))
    np.testing.assert_allclose(found, ridge_head(vectors, numbers, np.full(120, 7.0), 2)(vectors))
    same = np.ones((120, 8))
    np.testing.assert_allclose(ridge_head(same, numbers, np.ones(120), 2)(same)[0], numbers.mean(axis=0))


# --- The probe -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("telling", ["mean", "cls"])
def test_the_pooling_that_tells_the_labels_is_taken(blobs, telling):
    vectors, numbers = blobs
    noise = np.random.default_rng(1).normal(size=vectors.shape)
    both = {name: vectors if name == telling else noise for name in ("mean", "cls")}

    def mean_loss(outputs, rows):
        return float((outputs.argmax(axis=1) != numbers[rows]).mean())

    probe = best_probe(both, Fitting(numbers, np.ones(120), 3, softmax_head, mean_loss))
    assert probe.pooling == telling and (probe.head(vectors).argmax(axis=1) == numbers).mean() > 0.9


def test_of_few_rows_the_mean_is_taken_unless_cls_is_clearly_better():
    rng, numbers = np.random.default_rng(2), np.tile([0, 1], 8)

    def mean_loss(outputs, rows):
        return float(-log_softmax(outputs, axis=1)[np.arange(len(rows)), numbers[rows]].mean())

    def taken():
        neither_tells = {name: rng.normal(size=(16, 8)) for name in ("mean", "cls")}
        return best_probe(neither_tells, Fitting(numbers, np.ones(16), 2, softmax_head, mean_loss)).pooling

    assert [taken() for _ in range(40)].count("mean") >= 28  # 34 are expected, and 20 of the better loss alone


@pytest.mark.parametrize(("explained", "little"), [(LEAST_EXPLAINED - 0.05, True), (LEAST_EXPLAINED + 0.05, False)])
def test_a_probe_tells_little_that_explains_less_than_a_quarter(explained, little):
    targets = np.tile([-1.0, 1.0], 50)[:, None]

    def fit_mean(vectors, targets, weights, n_outputs):
        return lambda vectors: np.full((len(vectors), 1), targets.mean())

    def mean_loss(outputs, rows):
        return float(((targets[rows] - outputs) ** 2).mean())

    assert LEAST_EXPLAINED == 0.25  # as docs/concepts/fit.md says
    probe = Probe("mean", None, 1 - explained)  # of a variance of 1
    assert tells_little(probe, Fitting(targets, np.ones(100), 1, fit_mean, mean_loss)) == little


@pytest.mark.parametrize(("share", "little"), [(0.08, True), (0.15, False)])
def test_vectors_that_hardly_vary_beside_others(share, little):
    vectors = np.random.default_rng(0).normal(size=(50, 8))
    assert varies_little(5 + share * vectors, vectors) == little


def test_from_2000_pairs_with_numbers_on_the_head_reads_cls():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "fit.md").read_text(encoding="utf-8")
    assert f"in regression with {Regression.rows_of_cls:,} pairs or more, `[CLS]`" in page


def test_of_many_rows_some_are_looked_at():
    rows = rows_to_probe(np.r_[np.zeros(10), np.ones(5000)], 0)
    assert len(rows) == 2048 and rows.min() >= 10 and (np.diff(rows) > 0).all() and rows.max() > 4500
    assert rows_to_probe(np.array([1.0, 0.0, 2.0]), 0).tolist() == [0, 2]
    words = np.full(5000, 10)
    assert 8192 <= words[rows_to_probe(np.ones(5000), 0, words)].sum() < 8202


@pytest.mark.compiles
@pytest.mark.backend
def test_a_classifier_starts_as_a_linear_model_on_vectors(quick_folder, three_classes):
    X, y = three_classes.text, three_classes.label
    model = BertClassifier(weights=quick_folder, classifier_pooling="mean", **FROZEN).fit(X, y)
    vectors = BertVectorizer(weights=quick_folder, dtype="float32").fit_transform(X)
    vectors = vectors - vectors.mean(axis=0)
    vectors = vectors / np.sqrt((vectors**2).sum(axis=1).mean())
    expected = LogisticRegression(C=2.0, max_iter=200).fit(vectors, y)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(vectors), atol=2e-3)


def test_a_regressor_starts_as_a_ridge_regression(quick_folder, reviews):
    y = reviews.text.str.count("e") * 10.0 + 1000
    model = BertRegressor(weights=quick_folder, classifier_pooling="mean", **FROZEN).fit(reviews.text, y)
    vectors = BertVectorizer(weights=quick_folder, dtype="float32").fit_transform(reviews.text)
    scaler = StandardScaler(with_std=False).fit(vectors)
    vectors = scaler.transform(vectors)
    vectors = vectors / np.sqrt((vectors**2).sum(axis=1).mean())
    expected = Ridge(alpha=0.04 * len(y)).fit(vectors, y).predict(vectors)
    np.testing.assert_allclose(model.predict(reviews.text), expected, atol=0.05)


@pytest.mark.compiles
@pytest.mark.backend
def test_a_tagger_starts_with_what_vectors_tell(quick_folder):
    words = [["the", "red", "chair"], ["a", "blue", "room"], ["hot", "table"]] * 10
    tags = [["O", "K", "O"], ["O", "K", "O"], ["K", "O"]] * 10
    tagger = BertTagger(weights=quick_folder, max_length=32, **FROZEN).fit(words, tags)
    assert tagger.predict(words) == tags
    at_random = BertTagger(weights=quick_folder, max_length=32, head_start="random", **FROZEN).fit(words, tags)
    assert at_random.predict(words) != tags


def test_several_labels_start_from_a_probe(quick_folder, reviews):
    y = [[word for word in ("awful", "great", "room") if word in text] for text in reviews.text]
    model = BertClassifier(weights=quick_folder, classifier_pooling="mean", **FROZEN).fit(reviews.text, y)
    assert model.score(reviews.text, y) > 0.8


def test_a_warm_start_keeps_head_and_pooling(quick_folder, reviews):
    model = BertClassifier(weights=quick_folder, classifier_pooling="mean", **FROZEN).fit(reviews.text, reviews.label)
    before = model.predict_proba(reviews.text)
    model.set_params(warm_start=True, classifier_pooling="auto").fit(reviews.text, reviews.label[::-1].tolist())
    assert model.config_.classifier_pooling == "mean"
    np.testing.assert_allclose(model.predict_proba(reviews.text), before, atol=1e-6)


def as_pairs(texts):
    return [(text, "The same for all") for text in texts]


@pytest.mark.parametrize(
    ("tells", "pairs", "parameters", "started", "pooling"),
    [
        (True, True, {}, "probe", "mean"),
        (False, True, {}, "random", "mean"),
        (False, True, {"classifier_pooling": "cls"}, "random", "cls"),
        (False, True, {"head_start": "probe", "classifier_pooling": "mean"}, "probe", "mean"),
        (False, True, {"freeze": 1}, "probe", None),
        (False, True, {"few_labels": True, "learning_rate": 1e-6}, "probe", "mean"),
        (False, False, {}, "probe", None),
    ],
    ids=["telling", "not telling", "pooling", "set", "head alone", "few labels", "one text"],
)
def test_of_pairs_a_probe_that_tells_little_is_no_start(quick_folder, tells, pairs, parameters, started, pooling):
    X = ["the red chair", "awful", "a hot room, a hot table", "red chairs", "awful, awful", "a hot table"] * 10
    y = np.arange(60) % 3 if tells else np.random.default_rng(0).permutation(60) % 3
    model = BertClassifier(weights=quick_folder, **FROZEN | {"max_length": 32} | parameters)
    model.fit(as_pairs(X) if pairs else X, y)
    assert model.head_start_ == started
    assert pooling is None or model.config_.classifier_pooling == pooling


@pytest.mark.parametrize(("given", "expected"), [("auto", 6e-4), ("paper", 1e-4), (3e-5, 3e-5)])
def test_such_pairs_get_twice_the_rate_that_auto_stands_for(quick_folder, given, expected):
    X, y = as_pairs(["the red chair", "awful", "hot"] * 10), np.random.default_rng(0).permutation(30) % 3
    model = BertClassifier(weights=quick_folder, random_state=0, epochs=1, learning_rate=given).fit(X, y)
    assert model.head_start_ == "random" and model.learning_rate_ == pytest.approx(expected)
    X = as_pairs(["the red chair", "awful", "hot", "red chairs", "awful, awful", "a hot table"] * 5)
    telling = BertClassifier(weights=quick_folder, random_state=0, epochs=1).fit(X, np.arange(30) % 3)
    assert telling.head_start_ == "probe" and telling.learning_rate_ == pytest.approx(3e-4)


@pytest.mark.parametrize(("make", "rates"), [(BertRegressor, [6e-4] * 4), (BertClassifier, [6e-4] + [3e-4] * 3)])
def test_a_warm_start_keeps_how_the_head_started(quick_folder, tmp_path, make, rates):
    X, y = as_pairs(["the red chair", "awful", "hot"] * 10), np.random.default_rng(0).permutation(30) % 3
    model = make(weights=quick_folder, random_state=0, epochs=1, warm_start=True)
    found = [(model.fit(X, y).head_start_, model.learning_rate_) for _ in range(3)]
    model.save(tmp_path / "saved")
    model = make.load(tmp_path / "saved").set_params(head_start="probe").fit(X, y)
    starts, found_rates = zip(*found, (model.head_start_, model.learning_rate_), strict=True)
    assert set(starts) == {"random"} and found_rates == pytest.approx(rates)


def test_of_many_pairs_with_numbers_a_head_that_starts_at_random_reads_cls(quick_folder, reviews, monkeypatch, capsys):
    X, y = as_pairs(reviews.text[:40]), np.random.default_rng(0).normal(size=40)
    model = BertRegressor(weights=quick_folder, epochs=1, random_state=0, verbose=1).fit(X, y)
    assert (model.head_start_, model.config_.classifier_pooling, model.learning_rate_) == (
        "random",
        "mean",
        pytest.approx(6e-4),
    )
    assert "head_start='random', classifier_pooling='mean'" in capsys.readouterr().out
    monkeypatch.setattr(Regression, "rows_of_cls", 40)
    model.set_params(learning_rate=3e-4).fit(X, y)
    assert (model.head_start_, model.config_.classifier_pooling, model.learning_rate_) == ("random", "cls", 3e-4)
    model.set_params(learning_rate="auto").fit(X, np.ones(40))
    assert (model.head_start_, model.learning_rate_) == ("probe", pytest.approx(6e-4))


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    ("kind", "parameters", "n_told"),
    [
        (BertClassifier, {"classifier_pooling": "cls"}, 1),
        (BertClassifier, {"classifier_pooling": "cls", "head_start": "random"}, 1),
        (BertClassifier, {"classifier_pooling": "cls", "n_restarts": 1, "learning_rate": 1e3}, 1),
        (BertClassifier, {"classifier_pooling": "cls", "few_labels": True}, 1),
        (BertClassifier, {"classifier_pooling": "mean"}, 0),
        (BertTagger, {}, 0),
        (BertVectorizer, {}, 0),
    ],
    ids=["probe", "no probe", "restart", "few labels", "mean", "tagger", "vectorizer"],
)
def test_weights_without_a_pooler_are_told_of_once_by_a_head_that_reads_it(
    kind, parameters, n_told, quick_folder, reviews, tmp_path, recwarn
):
    from safetensors.numpy import load_file, save_file

    folder = shutil.copytree(quick_folder, tmp_path / "weights")
    arrays = load_file(folder / "model.safetensors")
    save_file({name: a for name, a in arrays.items() if "pooler" not in name}, folder / "model.safetensors")
    X, y = reviews.text[:40], reviews.label[:40]
    if kind is BertTagger:
        X = X.str.split()
        y = X.map(lambda words: ["B-A"] + ["O"] * (len(words) - 1))
    small = dict(epochs=1, batch_size=8) if kind is not BertVectorizer else {}
    kind(weights=folder, max_length=16, dtype="float32", random_state=0, **small | parameters).fit(X, y)
    told = [str(warning.message) for warning in recwarn]
    assert sum("has no pooler" in message for message in told) == n_told
    assert any("started again with another seed" in message for message in told) == ("n_restarts" in parameters)


def test_a_cls_that_hardly_varies_starts_no_head(quick_folder, reviews, tmp_path):
    from safetensors.numpy import load_file, save_file

    def fitted(factor, **parameters):
        """A fit from weights whose pooler has so many times the weights."""
        folder = shutil.copytree(quick_folder, tmp_path / str(factor), dirs_exist_ok=True)
        arrays = load_file(quick_folder / "model.safetensors").items()
        scaled = {name: array * np.float32(factor if "pooler" in name else 1) for name, array in arrays}
        save_file(scaled, folder / "model.safetensors")
        return BertClassifier(weights=folder, max_length=16, **FROZEN, **parameters).fit(reviews.text, reviews.label)

    assert fitted(30, classifier_pooling="cls").head_start_ == "probe"
    assert fitted(1e-3, classifier_pooling="cls").head_start_ == "random"
    assert fitted(1e-3, classifier_pooling="cls", head_start="probe").head_start_ == "probe"
    of_both = fitted(1e-3)
    assert (of_both.head_start_, of_both.config_.classifier_pooling) == ("probe", "mean")


@pytest.mark.parametrize("estimator", [BertClassifier, BertTagger])
def test_a_probe_costs_no_encoder_of_its_own(quick_folder, reviews, monkeypatch, estimator):
    made, make = [], BertEncoder.__init__
    monkeypatch.setattr(
        BertEncoder, "__init__", lambda self, *args, **options: made.append(make(self, *args, **options))
    )
    X, y = reviews.text[:16], reviews.label[:16]
    if estimator is BertTagger:
        X = [text.split() for text in X]
        y = [[label] * len(words) for words, label in zip(X, y, strict=True)]
    counts = []
    for head_start in ("random", "probe"):
        fitted = estimator(weights=quick_folder, max_length=16, head_start=head_start, **FROZEN).fit(X, y)
        assert fitted.head_start_ == head_start
        counts.append(len(made))
        made.clear()
    assert counts[0] == counts[1] > 0


def test_vectors_that_are_not_finite_start_no_head(quick_folder, reviews, monkeypatch):
    def diverged(*_):
        raise DivergedError("not finite")

    folder = Path(quick_folder)
    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    task = SingleLabel(max_length=16)
    columns = task.read(reviews.text[:20])
    examples = task.examples(columns, task.read_labels(reviews.label[:20], columns), np.ones(20, "float32"), tokenizer)
    monkeypatch.setattr(SingleLabel, "outputs", diverged)
    probed = task.probe(BertConfig.from_folder(folder), BertEncoder.from_pretrained(folder), examples, 0)
    assert probed.head is None and probed.config.classifier_pooling == "cls"


# --- Files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_means(quick_folder, reviews):
    """A classifier whose head reads the mean over the tokens."""
    make = BertClassifier(weights=quick_folder, classifier_pooling="mean", epochs=1, dtype="float32", random_state=0)
    return make.fit(reviews.text, reviews.label)


def test_a_head_on_means_is_saved_and_pickled(of_means, reviews, tmp_path):
    expected = of_means.predict_proba(reviews.text)
    of_means.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved", verify=True)
    np.testing.assert_allclose(loaded.predict_proba(reviews.text), expected, atol=1e-6)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(of_means)).predict_proba(reviews.text), expected, atol=1e-6)
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["classifier_pooling"] == "mean"


def test_a_fit_may_start_from_the_encoder_of_such_a_folder(of_means, reviews, tmp_path):
    of_means.save(tmp_path / "saved")
    other = BertClassifier.paper(weights=tmp_path / "saved", max_length=32, epochs=1, random_state=0, dtype="float32")
    other.fit(reviews.text[:32], reviews.label[:32])
    assert other.config_.classifier_pooling == "cls"


@pytest.mark.parity
def test_transformers_says_that_it_does_not_know_such_a_head(of_means, tmp_path, caplog):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    of_means.save(tmp_path / "saved")
    _, told = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert {"classifier.weight", "classifier.bias"} <= set(told["missing_keys"])
    assert {"mean_classifier.weight", "mean_classifier.bias"} <= set(told["unexpected_keys"])


def test_a_head_on_means_is_exported(of_means, reviews, tmp_path):
    pytest.importorskip("onnxruntime", reason="pip install 'kbert-learn[onnx]'")
    report = of_means.export(tmp_path / "exported", X=reviews.text[:50])
    assert report.max_difference < 1e-4 and report.agreement == 1.0


def test_a_row_counts_once_in_however_many_windows(quick_folder):
    """Windows of one word repeated are all alike, so that the vector of a row does not depend on their number."""
    rng = np.random.default_rng(0)
    words = np.tile(["great", "lovely", "awful", "broken"], 10)
    labels = np.where(rng.random(40) < 0.25, "good", np.where(np.isin(words, ["great", "lovely"]), "good", "bad"))
    given = {**FROZEN, "classifier_pooling": "mean", "max_length": 16}
    few, many = (
        BertClassifier(weights=quick_folder, stride=stride, **given).fit(
            [" ".join([word] * 60) for word in words], labels
        )
        for stride in (14, 2)
    )
    kernels = (np.asarray(one.model_.get_weights()[-2]) for one in (few, many))
    np.testing.assert_allclose(*kernels, rtol=1e-3, atol=1e-4)
