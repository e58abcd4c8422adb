"""A keyword that is no parameter is refused with the one that was probably meant."""

import copy
import inspect
import pickle
import re

import pytest
from sklearn.base import clone

import kbert
from kbert import (
    BertClassifier,
    BertConfig,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
)

ESTIMATORS = [getattr(kbert, name) for name in kbert.__all__ if hasattr(getattr(kbert, name), "get_params")]


@pytest.mark.parametrize(
    "keyword, meant",
    [
        ({"lr": 5e-5}, "learning_rate"),
        ({"n_epochs": 3}, "epochs"),
        ({"num_epochs": 3}, "epochs"),
        ({"num_train_epochs": 3}, "epochs"),
        ({"epoch": 3}, "epochs"),
        ({"model": "bert-base-uncased"}, "size='bert-base-uncased'"),
        ({"model": "user/my-bert"}, "weights"),
        ({"model_name": "roberta-base"}, "weights"),
        ({"model_name": None}, "weights"),
        ({"max_len": 64}, "max_length"),
        ({"max_seq_length": 64}, "max_length"),
        ({"seed": 0}, "random_state"),
        ({"learningrate": 0}, "learning_rate"),
    ],
    ids=str,
)
def test_a_wrong_keyword_is_refused_with_the_one_that_is_meant(keyword, meant):
    with pytest.raises(TypeError) as refused:
        BertClassifier(**keyword)
    (name,) = keyword
    assert str(refused.value) == (f"BertClassifier got an unexpected keyword argument {name!r}. Did you mean {meant}?")


def test_the_class_is_the_users_and_only_its_own_parameters_are_named():
    class Mine(BertTagger):
        pass

    with pytest.raises(TypeError, match=r"^Mine got an unexpected keyword argument 'lr'. Did you mean learning_rate"):
        Mine(lr=1)
    with pytest.raises(TypeError, match="'mlm_probability'. Did you mean mask_rate"):
        BertPretrainer(mlm_probability=0.2)
    with pytest.raises(TypeError, match=r"'lr'. Its parameters are size, weights, .*verbose"):
        BertVectorizer(lr=1)  # it trains nothing


def test_a_part_of_a_value_cannot_be_set():
    with pytest.raises(ValueError, match=r"size is one value, BertConfig.*size__hidden_size.*\{'size': \[...\]\}"):
        BertClassifier(BertConfig.from_size("tiny")).set_params(size__hidden_size=64)


def test_set_params_says_it_too():
    with pytest.raises(
        ValueError, match=r"Invalid parameter 'lr' for estimator BertClassifier\(epochs=2\). Did you mean"
    ):
        BertClassifier(epochs=2).set_params(lr=1e-4)
    with pytest.raises(ValueError, match="Invalid parameter 'colour' for estimator"):
        BertClassifier().set_params(colour=1)
    assert BertClassifier().set_params(epochs=7).epochs == 7


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_signature_parameters_clones_and_pickles_are_as_without_the_check(estimator):
    names = [name for name in inspect.signature(estimator).parameters]
    assert names[:2] == ["size", "weights"] and sorted(names) == sorted(estimator().get_params())
    made = estimator("tiny", verbose=1)
    for copied in (clone(made), copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(copied) is estimator and copied.get_params() == made.get_params()


@pytest.mark.slow
def test_a_subclass_with_parameters_of_its_own_is_fitted_and_saved(toy_folder, reviews, tmp_path):
    class Mine(BertClassifier):
        def __init__(self, weights=toy_folder, *, extra=1, epochs="auto"):
            super().__init__(weights=weights, epochs=epochs)
            self.extra = extra

    mine = Mine(extra=5, epochs=1).fit(reviews.text[:16], reviews.label[:16])
    mine.save(tmp_path / "mine")
    loaded = Mine.load(tmp_path / "mine")
    assert loaded.extra == 5 and (loaded.predict(reviews.text) == mine.predict(reviews.text)).all()
    with pytest.raises(ValueError, match='Mine: epochs must be "auto" or a whole number of at least 1, got 0'):
        Mine(epochs=0).fit(reviews.text, reviews.label)


def test_a_subclass_may_have_parameters_of_its_own():
    class WithOne(BertClassifier):
        def __init__(self, size="tiny", *, extra=1, epochs=2):
            super().__init__(size, epochs=epochs)
            self.extra = extra

    class PassesOn(BertClassifier):
        def __init__(self, extra=1, **others):
            super().__init__(**others)
            self.extra = extra

    assert WithOne(extra=5).extra == 5
    assert PassesOn(extra=5, epochs=9).epochs == 9
    with pytest.raises(TypeError, match="'lr'. Its parameters are size, extra, epochs"):
        WithOne(lr=3)


# Parameters that mean the same in every estimator that is fine-tuned.
SHARED = {
    *("size", "weights", "revision", "warmup", "weight_decay", "layer_decay", "freeze", "bias_correction"),
    *("gradient_accumulation", "n_iter_no_change", "checkpoint", "dtype", "distribution", "random_state", "verbose"),
}


def texts_of_parameters(estimator):
    section = inspect.getdoc(estimator).partition("Parameters\n----------\n")[2].partition("\n\nAttributes\n")[0]
    return dict(re.findall(r"^(\w+) : (.*(?:\n    .*|\n(?=    ))*)", section, re.M))


@pytest.mark.parametrize("estimator", [BertRegressor, BertTagger, BertQA, BertMultipleChoice])
def test_a_parameter_that_means_the_same_is_documented_in_the_same_words(estimator):
    """A change in one of five docstrings is easily left out of the others."""
    expected, found = (texts_of_parameters(one) for one in (BertClassifier, estimator))
    assert found.keys() == set(inspect.signature(estimator).parameters)
    assert {name: found[name] for name in SHARED} == {name: expected[name] for name in SHARED}
