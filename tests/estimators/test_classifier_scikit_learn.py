import copy
import inspect
import pickle
import subprocess
import sys
from importlib.util import find_spec

import joblib
import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from kbert import BertClassifier, BertConfig

pytestmark = pytest.mark.slow

# --- Parameters


def test_init_only_assigns():
    given = {name: object() for name in inspect.signature(BertClassifier).parameters}
    assert vars(BertClassifier(**given)) == given


def test_all_parameters_but_the_first_are_keywords():
    first, *others = inspect.signature(BertClassifier).parameters.values()
    assert first.name == "size" and first.kind is first.POSITIONAL_OR_KEYWORD
    assert {parameter.kind for parameter in others} == {inspect.Parameter.KEYWORD_ONLY}


def test_params_are_read_and_set():
    classifier = BertClassifier("tiny", epochs=5)
    assert classifier.get_params()["epochs"] == 5
    assert classifier.set_params(epochs=7, size="mini") is classifier
    assert (classifier.epochs, classifier.size) == (7, "mini")
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        classifier.set_params(epoch=1)


def test_a_clone_has_the_parameters_and_is_not_fitted(fitted):
    size = BertConfig(hidden_size=24)
    assert clone(BertClassifier(size)).size == size
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "model_")


def test_fit_leaves_the_parameters_and_adds_learned_attributes_only(toy, reviews):
    classifier = toy(class_weight="balanced", early_stopping=True)
    before = dict(vars(classifier))
    assert classifier.fit(reviews.text[:64], reviews.label[:64]) is classifier
    after = vars(classifier)
    assert {name: after[name] for name in before} == before
    assert all(name.endswith("_") and not name.startswith("_") for name in after.keys() - before.keys())


def test_repr_shows_what_differs_from_the_default():
    assert repr(BertClassifier("tiny", epochs=5)) == "BertClassifier(epochs=5, size='tiny')"


def test_tags_say_that_it_classifies_strings():
    tags = get_tags(BertClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.input_tags.string and not tags.input_tags.two_d_array
    assert tags.target_tags.required
    assert tags.non_deterministic and not get_tags(BertClassifier(random_state=0)).non_deterministic


# --- Names and numbers of columns


def test_column_names_are_kept_and_checked(fitted_three, three_classes):
    assert fitted_three.feature_names_in_.tolist() == ["text"]
    assert fitted_three.predict(three_classes.text.tolist()).shape == (48,)
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*\['text'\].*\['body'\]"):
        fitted_three.predict(three_classes[["text"]].rename(columns={"text": "body"}))


def test_the_order_of_named_columns_is_checked(toy, pairs):
    classifier = toy().fit(pairs[["left", "right"]][:32], pairs.both[:32])
    assert classifier.feature_names_in_.tolist() == ["left", "right"]
    with pytest.raises(ValueError, match=r"Select X\[\['left', 'right'\]\]"):
        classifier.predict(pairs[["right", "left"]])


def test_columns_beside_those_of_fit_are_refused_with_what_to_select(toy, pairs):
    classifier = toy().fit(pairs[["left"]][:32], pairs.both[:32])
    for others in (pairs, pairs[["right", "left"]]):
        with pytest.raises(ValueError, match=r"is expecting 1 features as input.*Select X\[\['left'\]\]"):
            classifier.predict(others)
    pa = pytest.importorskip("pyarrow", reason="run: pip install pyarrow")
    with pytest.raises(ValueError, match="columns"):
        classifier.predict(pa.Table.from_pandas(pairs))


def test_a_column_of_another_name_is_refused_with_how_to_rename_it(toy, pairs):
    classifier = toy().fit(pairs[["left"]][:32], pairs.both[:32])
    with pytest.raises(ValueError, match=r"X.rename\(columns=\{'right': 'left'\}\)"):
        classifier.predict(pairs[["right"]])


def test_a_fit_without_names_forgets_those_before(toy, reviews):
    classifier = toy().fit(reviews[["text"]][:32], reviews.label[:32])
    classifier.fit(reviews.text[:32].tolist(), reviews.label[:32])
    assert not hasattr(classifier, "feature_names_in_")


def test_another_number_of_columns_is_refused(fitted, fitted_three, three_classes):
    # Columns of numbers too: it is not that they should be made texts.
    stars = three_classes.assign(stars=1.5)
    for X, told in (
        (stars, r"X has 3 features.*expecting 1 features.*Select X\[\['text'\]\]"),
        (stars[["stars"]], r"in fit: \['text'\]; X has \['stars'\]. Give the columns of fit"),
    ):
        with pytest.raises(ValueError, match=told):
            fitted_three.predict(X)
    with pytest.raises(ValueError, match="X has 2 features, but BertClassifier is expecting 1 features"):
        fitted.predict([("the table", "a chair")])


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "decision_function", "save"])
def test_nothing_works_before_fit(method, tmp_path):
    classifier = BertClassifier()
    with pytest.raises(NotFittedError, match=r"not fitted yet. Call 'fit'.*BertClassifier.load"):
        getattr(classifier, method)(tmp_path / "x" if method == "save" else ["a text"])
    with pytest.raises(NotFittedError):
        check_is_fitted(classifier)


def test_a_fitted_one_counts_as_fitted(fitted):
    check_is_fitted(fitted)


# --- Pipelines and searches


def test_works_in_a_pipeline(toy, reviews):
    marked = reviews.text[:64].str.replace(" ", "_")
    spaces = FunctionTransformer(lambda texts: texts.str.replace("_", " "))
    pipeline = Pipeline([("spaces", spaces), ("bert", toy(epochs=2))]).fit(marked, reviews.label[:64])
    alone = toy(epochs=2).fit(reviews.text[:64], reviews.label[:64])
    assert np.array_equal(pipeline.predict_proba(marked), alone.predict_proba(reviews.text[:64]))
    assert pipeline.score(marked, reviews.label[:64]) == alone.score(reviews.text[:64], reviews.label[:64])


def test_works_behind_a_choice_of_columns(toy, reviews):
    table = reviews.assign(stars=3)
    choice = ColumnTransformer([("text", "passthrough", ["text"])])
    pipeline = Pipeline([("choice", choice), ("bert", toy())]).fit(table[:32], reviews.label[:32])
    alone = toy().fit(reviews.text[:32], reviews.label[:32])
    assert np.array_equal(pipeline.predict_proba(table[:32]), alone.predict_proba(reviews.text[:32]))


@pytest.fixture(scope="module")
def search(toy, reviews):
    """A search in which one learning rate learns and the other does not."""
    grid = {"learning_rate": [1e-7, 3e-3], "n_iter_no_change": [1]}
    return GridSearchCV(toy(epochs=12), grid, cv=2, refit=False).fit(reviews.text, reviews.label)


def test_grid_search_finds_the_better_parameters(search):
    useless, good = search.cv_results_["mean_test_score"]
    assert useless < 0.8 < 0.9 < good
    assert search.best_params_["learning_rate"] == 3e-3


@pytest.mark.thorough
def test_grid_search_in_two_processes_gives_the_same(search, reviews):
    parallel = clone(search).set_params(n_jobs=2).fit(reviews.text, reviews.label)
    np.testing.assert_allclose(
        parallel.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"], atol=0.03
    )


def test_grid_search_refits_and_predicts_strings(toy, reviews):
    search = GridSearchCV(toy(), {"epochs": [1, 8]}, cv=2, scoring="roc_auc").fit(reviews[["text"]], reviews.label)
    assert search.best_params_ == {"epochs": 8}
    assert search.classes_.tolist() == ["bad", "good"]
    assert set(search.predict(reviews[["text"]])) == {"bad", "good"}


@pytest.mark.thorough
def test_cross_val_score_passes_weights_on(toy, reviews):
    scores = cross_val_score(toy(epochs=12), reviews.text, reviews.label, cv=2)
    assert scores.shape == (2,) and scores.min() > 0.9
    # With all the weight on the one label, that is what is predicted.
    weight = np.where(reviews.label == "good", 1, 1e-6)
    scores = cross_val_score(toy(epochs=4), reviews.text, reviews.label, cv=2, params={"sample_weight": weight})
    assert scores.tolist() == [0.5, 0.5]


# --- Copies


@pytest.fixture(params=["pickle", "joblib", "deepcopy"])
def copied(request, fitted, tmp_path):
    if request.param == "pickle":
        return pickle.loads(pickle.dumps(fitted))
    if request.param == "joblib":
        joblib.dump(fitted, tmp_path / "fitted.joblib")
        return joblib.load(tmp_path / "fitted.joblib")
    return copy.deepcopy(fitted)


@pytest.mark.backend
def test_a_copy_predicts_the_same_and_stands_alone(copied, fitted, reviews):
    X, y = reviews.text, reviews.label
    expected = fitted.predict_proba(X)
    assert np.array_equal(copied.predict_proba(X), expected)
    assert copied.get_params() == fitted.get_params()
    assert copied.history_ == fitted.history_
    # Neither the other's weights nor its dropout go along with a change of one.
    copied.set_params(epochs=1).fit(X[:32], y[:32])
    assert not np.array_equal(copied.predict_proba(X), expected)
    assert np.array_equal(fitted.predict_proba(X), expected)


def test_a_classifier_that_is_not_fitted_can_be_pickled():
    assert pickle.loads(pickle.dumps(BertClassifier("tiny", epochs=5))).epochs == 5


READ = """
import joblib, sys
classifier, texts = joblib.load(sys.argv[1])
joblib.dump((classifier.predict(texts), classifier.predict_proba(texts)), sys.argv[2])
"""


@pytest.mark.parametrize("where", ["this backend", "another backend"])
def test_a_pickle_opens_in_another_process(fitted, reviews, tmp_path, monkeypatch, where):
    backend = keras.backend.backend()
    if where == "another backend":
        others = [name for name in ("jax", "torch", "tensorflow") if name != backend and find_spec(name) is not None]
        if not others:
            pytest.skip("needs two backends; run: pip install 'kbert-learn[jax]'")
        monkeypatch.setenv("KERAS_BACKEND", others[0])
    else:
        monkeypatch.setenv("KERAS_BACKEND", backend)
    texts = reviews.text[:20].tolist()
    joblib.dump((fitted, texts), tmp_path / "in")
    subprocess.run([sys.executable, "-c", READ, str(tmp_path / "in"), str(tmp_path / "out")], check=True)
    labels, probabilities = joblib.load(tmp_path / "out")
    assert labels.tolist() == fitted.predict(texts).tolist()
    np.testing.assert_allclose(probabilities, fitted.predict_proba(texts), atol=1e-5)


@pytest.mark.backend
def test_threads_share_a_fitted_classifier(fitted, reviews):
    parts = [reviews.text[start : start + 25] for start in range(0, 200, 25)]
    expected = [fitted.predict_proba(part) for part in parts]
    found = joblib.Parallel(n_jobs=4, prefer="threads")(joblib.delayed(fitted.predict_proba)(part) for part in parts)
    for here, there in zip(expected, found, strict=True):
        assert np.array_equal(here, there)
