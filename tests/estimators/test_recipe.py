"""Parameters that are "auto": what they stand for, where that is kept, and the paper's recipe."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

from kbert import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
)
from kbert.config import BertConfig
from kbert.errors import TruncationWarning
from kbert.estimators.parameters import Parameters
from kbert.estimators.recipe import settle_lengths, settle_training
from kbert.sizes import SIZES
from kbert.tasks import Choice, Questions, Regression, SingleLabel, Tagging

pytestmark = pytest.mark.slow


def settled(n_rows, recipe=SingleLabel.recipe, **values):
    parameters = Parameters(
        **{
            "size": "minilm-l6",
            "weights": "auto",
            "epochs": "auto",
            "batch_size": "auto",
            "learning_rate": "auto",
            "gradient_accumulation": 1,
        }
        | values
    )
    settle_training(parameters, recipe, BertConfig.from_size(parameters.size), n_rows)
    return parameters


@pytest.mark.parametrize("n_rows", [2, 16, 100, 500, 999, 1000, 5000, 100_000])
def test_small_data_gets_enough_updates_and_large_data_few_passes(n_rows):
    found = settled(n_rows)
    updates = -(-n_rows // found.batch_size) * found.epochs
    assert updates >= SingleLabel.recipe.updates or found.epochs >= SingleLabel.recipe.epochs
    assert found.epochs >= SingleLabel.recipe.epochs
    one_less = -(-n_rows // found.batch_size) * (found.epochs - 1)
    assert found.epochs == SingleLabel.recipe.epochs or one_less < SingleLabel.recipe.updates
    assert found.batch_size == (16 if n_rows < 1000 else 32)


@pytest.mark.parametrize(("task", "epochs"), [(SingleLabel, 12), (Choice, 12), (Tagging, 29), (Questions, 29)])
def test_small_data_of_each_task_get_its_own_number_of_updates(task, epochs):
    assert settled(100, task.recipe).epochs == epochs


def test_several_batches_in_an_update_count_as_one_that_is_larger():
    assert settled(200_000, batch_size=8, gradient_accumulation=4).epochs == settled(200_000, batch_size=32).epochs == 3
    assert settled(100, batch_size=8, gradient_accumulation=4).epochs == settled(100, batch_size=32).epochs


@pytest.mark.parametrize("n_rows", [10, 999, 1000, 100_000])
def test_rows_with_options_come_in_batches_of_16(n_rows):
    assert settled(n_rows, Choice.recipe).batch_size == 16


@pytest.mark.parametrize(("n_rows", "epochs"), [(392_702, 3), (500_000, 2), (1_000_000, 1), (100_000_000, 1)])
def test_more_rows_than_the_papers_largest_data_set_get_fewer_passes(n_rows, epochs):
    assert settled(n_rows).epochs == epochs


def test_what_is_given_stays_and_the_rest_follows_it():
    found = settled(100, batch_size=50)
    assert found.epochs == SingleLabel.recipe.updates // 2
    assert settled(100, epochs=7).epochs == 7 and settled(100, learning_rate=1e-3).learning_rate == 1e-3
    assert settled(10).learning_rate == 5e-5 and settled(10, size="large").learning_rate == 2e-5


@pytest.mark.parametrize(
    ("long_text", "max_length", "expected"),
    [
        ("auto", "auto", ("window", 256)),
        ("window", "auto", ("window", 256)),
        ("truncate", "auto", ("truncate", 512)),
        ("auto", 100, ("window", 100)),
        (None, "auto", (None, 512)),
    ],
)
def test_where_nothing_reads_the_rest_a_row_has_all_positions(long_text, max_length, expected):
    values = {} if long_text is None else {"long_text": long_text}  # multiple choice has no windows
    parameters, reader = Parameters(max_length=max_length, **values), SimpleNamespace()
    settle_lengths(parameters, reader, BertConfig.from_size("minilm-l6"))
    assert (getattr(parameters, "long_text", None), parameters.max_length) == expected
    assert vars(reader) == vars(parameters)


@pytest.mark.parametrize(
    ("task", "size", "expected"),
    [
        (Tagging, "minilm-l6", 2e-4),
        (Tagging, "base", 3e-5),
        (Regression, "minilm-l6", 1e-4),
        (Regression, "large", 2e-5),
        (Questions, "minilm-l6", 2e-4),
        (Choice, "tiny", 12e-4),
        (Choice, "base", 3e-5),
    ],
)
def test_narrow_models_are_trained_at_the_rate_of_their_task(task, size, expected):
    assert settled(100, task.recipe, size=size).learning_rate == pytest.approx(expected)
    of_paper = settled(100, task.recipe, size=size, learning_rate="paper").learning_rate
    assert of_paper == SIZES[size].learning_rate
    assert settled(100, size=size).learning_rate == pytest.approx(of_paper * (3 if size == "tiny" else 1))
    assert settled(100, task.recipe, size=size, learning_rate=1e-3).learning_rate == 1e-3
    # Many questions with options make enough updates.
    of_many = expected if task is not Choice else of_paper * (3 if size == "tiny" else 1)
    assert settled(501, task.recipe, size=size).learning_rate == pytest.approx(of_many)
    assert settled(500, task.recipe, size=size).learning_rate == pytest.approx(expected)


@pytest.fixture(scope="module")
def fitted(quick_folder, reviews):
    """A classifier with the defaults; its weights have 64 positions."""
    return BertClassifier(weights=quick_folder, random_state=0).fit(reviews.text[:48], reviews.label[:48])


def test_what_auto_stood_for_is_kept(fitted):
    assert (fitted.max_length_, fitted.long_text_, fitted.batch_size_) == (64, "window", 16)
    assert fitted.epochs_ == fitted.n_iter_ == -(
        -SingleLabel.recipe.updates // 3
    ) and fitted.learning_rate_ == pytest.approx(3e-4)
    assert (fitted.max_length, fitted.epochs, fitted.learning_rate) == ("auto",) * 3
    assert not hasattr(clone(fitted), "epochs_")


def test_it_is_saved_and_the_parameters_stay_auto(fitted, reviews, tmp_path):
    fitted.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved")
    assert loaded.get_params() == {**fitted.get_params(), "weights": str(fitted.weights)}
    kept = ("max_length_", "long_text_", "batch_size_", "epochs_", "learning_rate_")
    assert [getattr(loaded, name) for name in kept] == [getattr(fitted, name) for name in kept]
    text = (tmp_path / "saved" / "kbert.json").read_text()
    for name, value, wanted in [("max_length", "long", "a whole number of at least 5"),
                                ("learning_rate", "paper", "a number over 0")]:  # fmt: skip
        values = json.loads(text)
        values["settled"][name] = value
        (tmp_path / "saved" / "kbert.json").write_text(json.dumps(values))
        with pytest.raises(ValueError, match=rf"settled\.{name} must be {wanted}"):
            BertClassifier.load(tmp_path / "saved")


def test_a_length_that_is_set_after_fit_is_used(fitted, reviews):
    long = " ".join(reviews.text[:40])
    whole = clone_of_fit(fitted).predict_proba([long])
    cut = clone_of_fit(fitted).set_params(max_length=16, long_text="truncate")
    with pytest.warns(UserWarning, match="max_length=16"):
        assert not np.allclose(cut.predict_proba([long]), whole)


def clone_of_fit(fitted):
    other = object.__new__(type(fitted))
    other.__dict__.update(vars(fitted))
    return other


@pytest.mark.parametrize("make", [BertClassifier, BertRegressor])
def test_no_default_cuts_a_text(quick_folder, reviews, make):
    X = [" ".join(reviews.text[i : i + 30]) for i in range(16)]  # some 180 tokens, and the model has 64 positions
    with warnings.catch_warnings():
        warnings.simplefilter("error", TruncationWarning)
        model = make(weights=quick_folder, epochs=1, random_state=0).fit(X, [0, 1] * 8)
        model.predict(X)
    assert model.n_truncated_ == 0


def test_vectors_are_of_whole_texts(quick_folder, reviews):
    text = " ".join(reviews.text[:30])
    vectorizer = BertVectorizer(weights=quick_folder).fit([text])
    assert (vectorizer.max_length_, vectorizer.long_text_) == (64, "window")
    assert not np.allclose(vectorizer.transform([text]), vectorizer.transform([text + " awful" * 30]), atol=1e-4)


def test_auto_is_for_parameters_whose_default_it_is(quick_folder, reviews):
    with pytest.raises(ValueError, match="stride must be None, or a whole number of at least 1, got 'auto'"):
        BertClassifier(weights=quick_folder, stride="auto").fit(reviews.text, reviews.label)
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 5, got 'auto'"):
        BertTagger(weights=quick_folder, max_length="auto").fit([["a", "b"]], [["X", "Y"]])
    with pytest.raises(ValueError, match=r'learning_rate must be "auto", "paper" or a number over 0, got .fast'):
        BertClassifier(weights=quick_folder, learning_rate="fast").fit(reviews.text, reviews.label)
    with pytest.raises(ValueError, match=r'learning_rate must be "auto" or a number over 0, got .paper'):
        BertPretrainer(weights=quick_folder, learning_rate="paper", max_steps=1).fit(reviews.text)
    with pytest.raises(ValueError, match="epochs must be \"auto\" or a whole number of at least 1, got 'many'"):
        BertClassifier(weights=quick_folder, epochs="many").fit(reviews.text, reviews.label)


@pytest.mark.parametrize("make", [BertClassifier, BertRegressor, BertTagger, BertQA, BertMultipleChoice])
def test_the_papers_recipe(make):
    estimator = make.paper("tiny", random_state=3)
    found = estimator.get_params()
    assert (found["epochs"], found["size"], found["random_state"]) == (3, "tiny", 3)
    assert found["batch_size"] == (16 if make is BertMultipleChoice else 32)
    assert found["learning_rate"] == "paper"
    assert found.get("head_start", "random") == "random" and found.get("classifier_pooling", "cls") == "cls"
    if "long_text" in found:
        assert (found["max_length"], found["long_text"]) == (128, "truncate")
    assert make.paper(epochs=4).epochs == 4 and make.paper().size == "base"
