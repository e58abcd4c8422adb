"""BertClassifier inside what scikit-learn builds out of estimators: routing, ensembles, searches, scorers, displays.

Nearly all fits have 100 rows of one length, half of `reviews`, so that one compiled step serves them.
"""

import re

import keras
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier, HistGradientBoostingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (makes HalvingGridSearchCV importable)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    RocCurveDisplay,
    accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    make_scorer,
    roc_auc_score,
)
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import estimator_html_repr

from kbert import BertClassifier

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@pytest.fixture(scope="module")
def quick(toy, quick_folder):
    """A function that makes a classifier which learns from 100 rows."""
    return lambda **changes: toy(**{"weights": quick_folder, "epochs": 12, **changes})


@pytest.fixture(scope="module")
def old(reviews):
    """100 rows to learn from."""
    return reviews[:100]


@pytest.fixture(scope="module")
def new(reviews):
    """100 rows to predict."""
    return reviews[100:]


@pytest.fixture(scope="module")
def learned(quick, old):
    """A classifier that has learned the old rows. Tests must not change it."""
    return quick().fit(old.text, old.label)


@pytest.fixture
def bag_of_words():
    return make_pipeline(TfidfVectorizer(), LogisticRegression())


def clean(texts):
    """What a step before the classifier may do; without it, `marked` texts are unknown words to the toy."""
    return texts.apply(clean) if isinstance(texts, pd.DataFrame) else texts.str.replace("_", " ")


def marked(texts):
    return texts.str.replace(" ", "_")


def all_on_good(labels):
    """Weights under which "good" is what is learned for every row."""
    return np.where(labels == "good", 1, 1e-6)


def mistaken(labels, share):
    """Labels of which some "bad" are called "good"."""
    return labels.mask((labels == "bad") & (np.random.default_rng(0).random(len(labels)) < share), "good")


# --- Metadata routing


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_requested_weights_are_cut_to_the_rows_of_each_fold(quick, reviews):
    X, y = reviews.text, reviews.label
    weight = pd.Series(np.random.default_rng(0).uniform(0, 3, 200), index=X.index)
    # Under a name of their own, so that nothing but the request leads them to fit.
    classifier = quick(epochs=4).set_fit_request(sample_weight="importance").set_score_request(sample_weight=False)
    found = cross_validate(
        classifier, X, y, cv=2, params={"importance": weight}, return_estimator=True, return_indices=True
    )
    rows = found["indices"]["train"][1]
    alone = quick(epochs=4).fit(X[rows], y[rows], weight[rows])
    assert np.array_equal(found["estimator"][1].predict_proba(X), alone.predict_proba(X))
    assert not np.array_equal(alone.predict_proba(X), quick(epochs=4).fit(X[rows], y[rows]).predict_proba(X))


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("in_score", [False, True])
def test_a_search_routes_weights_to_fit_and_where_wanted_to_score(quick, reviews, in_score):
    X, y = reviews.text, reviews.label
    classifier = quick(epochs=4).set_fit_request(sample_weight=True).set_score_request(sample_weight=in_score)
    search = GridSearchCV(classifier, {"epochs": [4]}, cv=2).fit(X, y, sample_weight=all_on_good(y))
    assert set(search.predict(X)) == {"good"}
    # Half of the rows are right, and all that count.
    assert search.best_score_ == pytest.approx(1 if in_score else 0.5, abs=1e-3)


@pytest.mark.usefixtures("routing")
def test_weights_can_go_to_score_alone(quick, reviews):
    X, y = reviews.text, mistaken(reviews.label, 0.3)
    classifier = quick(epochs=20).set_fit_request(sample_weight=False).set_score_request(sample_weight=True)
    # On the rows that are called something else than they are.
    weight = np.where(y == reviews.label, 1e-6, 1)
    found = cross_validate(
        classifier, X, y, cv=2, params={"sample_weight": weight}, return_estimator=True, return_indices=True
    )
    rows = found["indices"]["test"][0]
    answers = found["estimator"][0].predict(X[rows])
    assert set(answers) == {"bad", "good"}
    assert found["test_score"][0] == pytest.approx(np.average(answers == y[rows], weights=weight[rows]))
    assert found["test_score"][0] < 0.5 < accuracy_score(y[rows], answers)


@pytest.mark.usefixtures("routing")
def test_pipelines_and_ensembles_route_weights(quick, old):
    asking = quick(epochs=4).set_fit_request(sample_weight=True)
    for whole in (
        make_pipeline(FunctionTransformer(clean), asking),
        VotingClassifier([("one", asking), ("other", clone(asking).set_params(random_state=1))], voting="soft"),
        CalibratedClassifierCV(asking, cv=2),
    ):
        whole.fit(old.text, old.label, sample_weight=all_on_good(old.label))
        assert set(whole.predict(old.text)) == {"good"}, type(whole).__name__


@pytest.mark.usefixtures("routing")
def test_weights_that_were_not_asked_for_are_refused(quick, old):
    weight = np.ones(100)
    for whole in (make_pipeline(FunctionTransformer(clean), quick()), GridSearchCV(quick(), {"epochs": [1]})):
        with pytest.raises(UnsetMetadataPassedError, match=r"sample_weight.*BertClassifier\.fit"):
            whole.fit(old.text, old.label, sample_weight=weight)
    with pytest.raises(UnsetMetadataPassedError, match=r"sample_weight.*BertClassifier\.score"):
        cross_validate(
            quick().set_fit_request(sample_weight=True), old.text, old.label, params={"sample_weight": weight}
        )


def test_a_pipeline_passes_weights_to_its_step_without_routing(quick, old):
    pipeline = make_pipeline(FunctionTransformer(clean), quick(epochs=4))
    weight = all_on_good(old.label)
    pipeline.fit(marked(old.text), old.label, bertclassifier__sample_weight=weight)
    alone = quick(epochs=4).fit(old.text, old.label, weight)
    assert set(alone.predict(old.text)) == {"good"}
    assert np.array_equal(pipeline.predict_proba(marked(old.text)), alone.predict_proba(old.text))
    with pytest.raises(ValueError, match="Pipeline.fit does not accept the sample_weight parameter"):
        pipeline.fit(old.text, old.label, sample_weight=weight)


class Epochs(keras.callbacks.Callback):
    """Keeps the score of each epoch."""

    def __init__(self):
        super().__init__()
        self.scores = []

    def on_epoch_end(self, epoch, logs=None):
        self.scores.append(logs["val_score"])


def test_a_pipeline_passes_held_out_rows_and_callbacks(quick, old, new):
    pipeline = Pipeline([("clean", FunctionTransformer(clean)), ("bert", quick(epochs=6))])
    seen = Epochs()
    # The steps before it see X alone, so that an eval_set is given as the classifier is to read it.
    pipeline.fit(marked(old.text), old.label, bert__eval_set=(new.text, new.label), bert__callbacks=[seen])
    alone = quick(epochs=6).fit(old.text, old.label, eval_set=(new.text, new.label))
    assert pipeline["bert"].history_ == alone.history_
    assert seen.scores == alone.history_["val_score"] and len(seen.scores) == 6
    assert seen.scores[-1] == pipeline.score(marked(new.text), new.label)


def test_a_search_passes_held_out_rows_whole_and_callbacks_to_every_fit(quick, old, new):
    seen = Epochs()
    search = GridSearchCV(quick(early_stopping=True, epochs=2), {"n_iter_no_change": [5]}, cv=2)
    search.fit(old.text, old.label, eval_set=(new.text, new.label), callbacks=seen)
    assert len(seen.scores) == (2 + 1) * 2
    assert seen.scores[-2:] == search.best_estimator_.history_["val_score"]
    assert max(seen.scores[-2:]) == search.score(new.text, new.label)


# --- What is shown


def test_html_shows_name_and_parameters_before_and_after_fit(learned):
    for classifier, state in ((clone(learned), "Not fitted"), (learned, "Fitted")):
        html = classifier._repr_html_()
        assert "BertClassifier" in html and f"<span>{state}</span>" in html
        assert re.search(r"epochs.{0,200}?\b12\b", html, re.DOTALL)
        # The model is many megabytes, of which nothing belongs there.
        assert len(html) < 200_000


def test_html_of_a_pipeline_shows_the_classifier(learned):
    html = estimator_html_repr(make_pipeline(FunctionTransformer(clean), learned))
    assert "FunctionTransformer" in html and "BertClassifier" in html
    assert re.search(r"learning_rate.{0,200}?0\.003", html, re.DOTALL)


def test_repr_stays_the_same_in_fit_and_in_a_pipeline(learned):
    assert repr(learned) == repr(clone(learned))
    assert "BertClassifier(epochs=5, size='tiny')" in repr(make_pipeline(BertClassifier("tiny", epochs=5)))
    with config_context(print_changed_only=False):
        assert "gradient_accumulation=1" in repr(BertClassifier("tiny"))


# --- Columns


def test_column_names_are_seen_through_a_search_and_a_vote(quick, old):
    X, y = old[["text"]], old.label
    search = GridSearchCV(quick(), {"epochs": [1]}, cv=2).fit(X, y)
    vote = VotingClassifier([("bert", quick(epochs=1))], voting="soft").fit(X, y)
    for whole in (search, vote):
        assert whole.feature_names_in_.tolist() == ["text"] and whole.n_features_in_ == 1
        with pytest.raises(ValueError, match="feature names should match"):
            whole.predict(X.rename(columns={"text": "body"}))


def test_a_column_transformer_prepares_pairs(quick, pairs):
    X, y = pairs[["left", "right"]], pairs.both
    columns = ColumnTransformer(
        [("clean", FunctionTransformer(clean), ["left"]), ("as_is", "passthrough", ["right"])]
    ).set_output(transform="pandas")
    pipeline = make_pipeline(columns, quick(epochs=4))
    dirty = pairs.assign(left=marked(pairs.left), stars=3)
    pipeline.fit(dirty, y)
    alone = quick(epochs=4).fit(X, y)
    assert pipeline[-1].feature_names_in_.tolist() == ["clean__left", "as_is__right"]
    assert np.array_equal(pipeline.predict_proba(dirty), alone.predict_proba(X))
    # Its columns are chosen by name, so that their order in the table does not matter.
    assert np.array_equal(pipeline.predict_proba(dirty[["stars", "right", "left"]]), alone.predict_proba(X))


def test_shuffling_the_column_that_tells_the_label_costs_the_score(quick, pairs):
    X, y = pairs[["left", "right"]][:100], pairs.left.str.contains("red")[:100]
    classifier = quick().fit(X, y)
    importance = permutation_importance(classifier, X, y, n_repeats=3, random_state=0).importances_mean
    assert importance[0] > 0.2 and abs(importance[1]) < 0.1


def test_predictions_go_back_into_a_shuffled_table(learned, new):
    table = new.sample(frac=1, random_state=0)
    assert table.index[0] != new.index[0]
    table["predicted"] = learned.predict(table.text)
    table["probability"] = learned.predict_proba(table.text)[:, 1]
    assert (table.predicted == table.label).mean() > 0.9
    back = table.sort_index()
    np.testing.assert_allclose(back.probability, learned.predict_proba(new.text)[:, 1], atol=1e-5)


# --- Ensembles


def test_a_soft_vote_is_the_mean_of_the_probabilities(learned, bag_of_words, old, new):
    vote = VotingClassifier([("bert", clone(learned)), ("words", bag_of_words)], voting="soft", weights=[3, 1])
    vote.fit(old.text, old.label)
    words = clone(bag_of_words).fit(old.text, old.label)
    expected = (3 * learned.predict_proba(new.text) + words.predict_proba(new.text)) / 4
    np.testing.assert_allclose(vote.predict_proba(new.text), expected, atol=1e-6)
    assert vote.classes_.tolist() == ["bad", "good"]
    assert vote.score(new.text, new.label) > 0.9


def test_a_hard_vote_is_the_majority(learned, bag_of_words, old, new):
    # Of two voters that are right and one that says "bad" of everything.
    vote = VotingClassifier(
        [("bert", clone(learned)), ("words", bag_of_words), ("constant", DummyClassifier(strategy="prior"))]
    )
    vote.fit(old.text, old.label)
    assert np.array_equal(vote.transform(new.text)[:, 0], vote.classes_.searchsorted(learned.predict(new.text)))
    assert set(vote.transform(new.text)[:, 2]) == {0}
    assert vote.score(new.text, new.label) > 0.9


def test_a_stack_of_series_and_of_lists(quick, learned, bag_of_words, old, new):
    stack = StackingClassifier([("bert", quick()), ("words", bag_of_words)], cv=2).fit(old.text, old.label)
    assert stack.score(new.text, new.label) > 0.9
    assert (stack.final_estimator_.coef_ > 0).all()
    np.testing.assert_allclose(stack.transform(new.text)[:, 0], learned.predict_proba(new.text)[:, 1], atol=1e-6)
    of_list = clone(stack).fit(old.text.tolist(), old.label.tolist())
    np.testing.assert_allclose(of_list.predict_proba(new.text.tolist()), stack.predict_proba(new.text), atol=1e-6)


def test_a_stack_of_text_and_columns_learns_from_out_of_fold_probabilities(quick, old, new):
    """What docs/howto/columns.md builds, and what benchmarks/columns.py computes once for several cases."""

    def with_columns(rows):
        # The number tells the label of half of the rows.
        number = np.where(np.arange(len(rows)) % 2, rows.label == "good", np.nan)
        return rows[["text"]].assign(number=number, kind=pd.Categorical(["a", "b"] * (len(rows) // 2)))

    columns = make_pipeline(
        make_column_transformer(("passthrough", ["number", "kind"])).set_output(transform="pandas"),
        HistGradientBoostingClassifier(min_samples_leaf=5, max_iter=5),
    )
    text = make_pipeline(make_column_transformer(("passthrough", ["text"])), quick(epochs=4))
    X, X_new = with_columns(old), with_columns(new)
    stack = StackingClassifier([("text", text), ("columns", columns)], LogisticRegression(), cv=2)
    stack.fit(X, old.label)

    alone = quick(epochs=4)
    of_text = cross_val_predict(alone, X[["text"]], old.label, cv=2, method="predict_proba")
    of_columns = cross_val_predict(columns, X, old.label, cv=2, method="predict_proba")
    above = LogisticRegression().fit(np.column_stack([of_text[:, 1], of_columns[:, 1]]), old.label)
    answers = [model.fit(X, old.label).predict_proba(X_new)[:, 1] for model in (clone(text), columns)]
    expected = above.predict_proba(np.column_stack(answers))
    np.testing.assert_allclose(stack.predict_proba(X_new), expected, atol=1e-5)
    np.testing.assert_allclose(stack.final_estimator_.coef_, above.coef_, atol=1e-4)


def test_a_stack_takes_a_loaded_classifier_as_it_is(learned, old, new, tmp_path):
    learned.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved")
    model = loaded.model_
    stack = StackingClassifier([("bert", loaded)], cv="prefit").fit(old.text, old.label)
    assert stack.estimators_[0].model_ is model
    np.testing.assert_allclose(stack.transform(new.text)[:, 0], learned.predict_proba(new.text)[:, 1], atol=1e-5)
    assert stack.score(new.text, new.label) > 0.9


def test_calibration_fits_one_classifier_a_fold(quick, reviews):
    X, y = reviews.text, reviews.label
    halves = [(np.arange(100), np.arange(100, 200)), (np.arange(100, 200), np.arange(100))]
    calibrated = CalibratedClassifierCV(quick(), cv=halves).fit(X, y)
    for (rows, _), of_fold in zip(halves, calibrated.calibrated_classifiers_, strict=True):
        alone = quick().fit(X[rows], y[rows])
        assert np.array_equal(of_fold.estimator.predict_proba(X), alone.predict_proba(X))
    assert calibrated.classes_.tolist() == ["bad", "good"]
    assert calibrated.score(X, y) > 0.9


def test_a_frozen_classifier_is_calibrated_and_not_fitted_again(learned, new):
    # One label in five is wrong, and the classifier does not know that.
    wrong = np.random.default_rng(0).permutation(100) < 20
    labels = np.where(wrong, np.where(new.label == "good", "bad", "good"), new.label)
    model = learned.model_
    calibrated = CalibratedClassifierCV(FrozenEstimator(learned)).fit(new.text, labels)
    assert calibrated.calibrated_classifiers_[0].estimator.estimator is learned and learned.model_ is model
    before, after = (np.max(c.predict_proba(new.text), axis=1).mean() for c in (learned, calibrated))
    assert before > 0.9 and after == pytest.approx(0.8, abs=0.05)
    # The order of the rows is that of the logits.
    ranked = stats.spearmanr(calibrated.predict_proba(new.text)[:, 1], learned.decision_function(new.text))
    assert ranked.statistic > 0.999


def test_bagging_of_a_table_gives_each_its_own_rows_and_seed(quick, old, new):
    bagging = BaggingClassifier(quick(), n_estimators=2, random_state=0).fit(old[["text"]], old.label)
    one, other = bagging.estimators_
    assert one.random_state != other.random_state
    proba = [member.predict_proba(new.text) for member in (one, other)]
    assert not np.allclose(*proba)
    np.testing.assert_allclose(bagging.predict_proba(new[["text"]]), np.mean(proba, axis=0), atol=1e-5)
    assert bagging.score(new[["text"]], new.label) > 0.8


def test_one_against_the_rest(quick, three_classes):
    X, y = three_classes.text, three_classes.label
    whole = OneVsRestClassifier(quick(epochs=24)).fit(X, y)
    assert len(whole.estimators_) == 3 and whole.classes_.tolist() == ["bad", "good", "meh"]
    raw = np.column_stack([part.predict_proba(X)[:, 1] for part in whole.estimators_])
    np.testing.assert_allclose(whole.predict_proba(X), raw / raw.sum(axis=1, keepdims=True), atol=1e-5)
    assert whole.score(X, y) > 0.8


def test_several_outputs_from_one_table(quick, pairs):
    X = pairs[["left", "right"]][:100]
    y = np.column_stack([pairs[column].str.split().str[-1] for column in X])[:100]
    outputs = MultiOutputClassifier(quick()).fit(X, y)
    assert [classes.tolist() for classes in outputs.classes_] == [["blue", "red"], ["cold", "hot"]]
    right = outputs.predict(X) == y
    assert right.mean(axis=0).min() > 0.9


# scikit-learn reads X as numbers here; rows by their number stand for the texts.
def test_self_training_labels_texts_by_row_number(quick, reviews):
    texts, y = reviews.text, reviews.label
    by_number = FunctionTransformer(lambda rows: texts.iloc[rows[:, 0]])
    rows = np.arange(200)[:, None]
    known = np.where(rows[:, 0] < 100, y, -1).astype(object)
    whole = SelfTrainingClassifier(make_pipeline(by_number, quick()), max_iter=1).fit(rows, known)
    added = whole.labeled_iter_ == 1
    assert added.sum() > 50 and not added[:100].any()
    assert (whole.transduction_[added] == y[added]).mean() > 0.9
    assert whole.score(rows, y) > 0.9


# --- Thresholds


def test_a_tuned_threshold_makes_up_for_labels_that_lean_to_one_side(quick, reviews):
    X, y = reviews.text, reviews.label
    tuned = TunedThresholdClassifierCV(quick(), scoring="balanced_accuracy", cv=2).fit(X, mistaken(y, 0.6))
    assert tuned.best_threshold_ > 0.6
    assert tuned.score(X, y) > tuned.estimator_.score(X, y) + 0.03
    above = tuned.estimator_.predict_proba(X)[:, 1] >= tuned.best_threshold_
    assert np.array_equal(tuned.predict(X), np.where(above, "good", "bad"))


def test_a_fixed_threshold_on_a_fitted_classifier(learned, new):
    probability = learned.predict_proba(new.text)[:, 0]
    threshold = np.sort(probability)[89:91].mean()
    fixed = FixedThresholdClassifier(FrozenEstimator(learned), threshold=threshold, pos_label="bad")
    answers = fixed.fit(new.text, new.label).predict(new.text)
    assert (answers == "bad").sum() == 10
    assert np.array_equal(answers, np.where(probability >= threshold, "bad", "good"))


# --- Searches and folds


def test_halving_gives_more_rows_to_fewer_candidates(quick, reviews):
    search = HalvingGridSearchCV(
        quick(), {"learning_rate": [1e-7, 3e-3]}, cv=2, factor=2, min_resources=100, random_state=0
    )
    search.fit(reviews.text, reviews.label)
    assert search.n_resources_ == [100, 200] and search.n_candidates_ == [2, 1]
    assert search.best_params_ == {"learning_rate": 3e-3}
    assert search.score(reviews.text, reviews.label) > 0.9


def test_a_random_search_draws_numpys_numbers_and_its_best_can_be_saved(quick, reviews, tmp_path):
    drawn = {
        "learning_rate": stats.loguniform(2e-3, 5e-3),
        "epochs": stats.randint(10, 14),
        "batch_size": np.array([16]),
        "long_text": np.array(["truncate"]),
        "bias_correction": np.array([True]),
    }
    search = RandomizedSearchCV(quick(), drawn, n_iter=2, cv=2, random_state=0).fit(reviews.text, reviews.label)
    assert search.best_score_ > 0.9
    assert isinstance(search.best_params_["batch_size"], np.integer)
    search.best_estimator_.save(tmp_path / "best")
    loaded = BertClassifier.load(tmp_path / "best")
    assert {name: loaded.get_params()[name] for name in drawn} == search.best_params_
    np.testing.assert_allclose(
        loaded.predict_proba(reviews.text), search.best_estimator_.predict_proba(reviews.text), atol=1e-5
    )


def test_a_search_chooses_among_steps(quick, bag_of_words, reviews):
    steps = Pipeline([("classify", quick())])
    grid = [{"classify": [bag_of_words]}, {"classify": [quick()], "classify__learning_rate": [1e-7, 3e-3]}]
    search = GridSearchCV(steps, grid, cv=2, refit=False).fit(reviews.text, reviews.label)
    words, useless, good = search.cv_results_["mean_test_score"]
    assert useless < 0.8 < 0.9 < min(words, good)


def test_out_of_fold_probabilities_are_in_row_order(quick, reviews):
    table = reviews.sample(frac=1, random_state=1)
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    table[["bad", "good"]] = cross_val_predict(quick(), table.text, table.label, cv=folds, method="predict_proba")
    assert (table[["bad", "good"]].idxmax(axis=1) == table.label).mean() > 0.9
    train, test = next(folds.split(table.text, table.label))
    alone = quick().fit(table.text.iloc[train], table.label.iloc[train])
    expected = alone.predict_proba(table.text.iloc[test])
    np.testing.assert_allclose(table[["bad", "good"]].iloc[test], expected, atol=1e-6)


def test_a_learning_curve_rises(quick, reviews):
    sizes, _, scores = learning_curve(
        quick(), reviews.text, reviews.label, train_sizes=[16, 100], cv=2, shuffle=True, random_state=0
    )
    few, many = scores.mean(axis=1)
    assert sizes.tolist() == [16, 100]
    assert few < 0.85 < 0.9 < many


def test_every_fit_of_a_search_starts_from_a_copy_of_the_random_state(quick, reviews):
    X, y = reviews.text, reviews.label
    state = np.random.RandomState(3)
    classifier = quick(epochs=4, random_state=state)
    first = GridSearchCV(classifier, {"n_iter_no_change": [1, 2]}, cv=2).fit(X, y)
    # A parameter that changes nothing: one seed for both gives one score.
    one, other = first.cv_results_["mean_test_score"]
    assert one == other
    assert state.randint(2**31 - 1) == np.random.RandomState(3).randint(2**31 - 1)
    again = quick(epochs=4, random_state=np.random.RandomState(3)).fit(X, y)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))


# --- Nested parameters


def test_parameters_are_read_and_set_through_pipelines_and_votes(toy):
    bert = toy()
    pipeline = Pipeline([("clean", FunctionTransformer(clean)), ("bert", bert)])
    vote = VotingClassifier([("pipeline", pipeline), ("words", LogisticRegression())])
    assert pipeline.set_params(bert__epochs=2) is pipeline and bert.epochs == 2
    vote.set_params(pipeline__bert__random_state=5)
    assert bert.random_state == 5
    expected = {f"bert__{name}": value for name, value in bert.get_params().items()}
    assert expected.items() <= pipeline.get_params(deep=True).items()
    assert {f"pipeline__{name}": value for name, value in expected.items()}.items() <= vote.get_params().items()
    with pytest.raises(ValueError, match="Invalid parameter 'epoch' for estimator BertClassifier"):
        pipeline.set_params(bert__epoch=1)


def test_a_clone_of_a_fitted_pipeline_has_a_classifier_of_its_own(learned):
    pipeline = Pipeline([("clean", FunctionTransformer(clean)), ("bert", learned)])
    copied = clone(pipeline)
    assert copied["bert"].get_params() == learned.get_params()
    assert not hasattr(copied["bert"], "model_") and hasattr(learned, "model_")
    copied.set_params(bert__epochs=1)
    assert learned.epochs == 12


# --- Scorers


def test_scorers_of_string_labels(quick, reviews):
    X, y = reviews.text, reviews.label
    found = cross_validate(
        quick(epochs=5),  # not enough to be right everywhere, so that the scores differ
        X,
        y,
        cv=2,
        scoring=["accuracy", "neg_log_loss", "roc_auc", "f1_macro"],
        return_estimator=True,
        return_indices=True,
        error_score="raise",
    )
    for fold, (classifier, rows) in enumerate(zip(found["estimator"], found["indices"]["test"], strict=True)):
        answers, probabilities = classifier.predict(X[rows]), classifier.predict_proba(X[rows])
        expected = {
            "accuracy": accuracy_score(y[rows], answers),
            "neg_log_loss": -log_loss(y[rows], probabilities),
            "roc_auc": roc_auc_score(y[rows] == "good", probabilities[:, 1]),
            "f1_macro": f1_score(y[rows], answers, average="macro"),
        }
        for name, value in expected.items():
            assert found[f"test_{name}"][fold] == pytest.approx(value, abs=1e-5), name


def test_a_scorer_of_our_own_gets_the_probability_of_its_label(learned, new):
    for label in ("bad", "good"):
        scorer = make_scorer(
            brier_score_loss, response_method="predict_proba", pos_label=label, greater_is_better=False
        )
        assert -0.1 < scorer(learned, new.text, new.label) < 0
    scores = cross_val_score(FrozenEstimator(learned), new.text, new.label, cv=2, scoring=scorer)
    assert scores.mean() == pytest.approx(scorer(learned, new.text, new.label), abs=1e-6)


# --- Plots


@pytest.fixture
def pyplot():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    yield plt
    plt.close("all")


@pytest.mark.usefixtures("pyplot")
def test_curves_and_matrices_are_drawn_from_texts(learned, new):
    X, y = new.text, new.label
    probabilities = learned.predict_proba(X)
    curve = RocCurveDisplay.from_estimator(learned, X, y, pos_label="bad")
    assert curve.roc_auc == pytest.approx(roc_auc_score(y == "bad", probabilities[:, 0]))
    assert "BertClassifier" in curve.ax_.get_legend().get_texts()[0].get_text()
    matrix = ConfusionMatrixDisplay.from_estimator(learned, X, y)
    assert np.array_equal(matrix.confusion_matrix, confusion_matrix(y, learned.predict(X)))
    assert [tick.get_text() for tick in matrix.ax_.get_xticklabels()] == ["bad", "good"]
    reliability = CalibrationDisplay.from_estimator(learned, X, y, pos_label="bad", n_bins=2)
    assert np.array_equal(reliability.y_prob, probabilities[:, 0])
    assert reliability.prob_true[0] < 0.5 < reliability.prob_true[-1]
