"""Which rows `fit` splits off: as many as asked for, from each stratum its share, and never a stratum's last row."""

import numpy as np
import pytest

from kbert.estimators.validation import split_rows


def split(sizes, fraction, seed=0):
    """How many rows of each stratum are split off, where these have so many."""
    strata = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    training, validation = split_rows(strata, np.ones(len(strata)), fraction, seed, "early_stopping")
    assert sorted([*training, *validation]) == list(range(len(strata)))
    assert np.array_equal(training, np.sort(training)) and np.array_equal(validation, np.sort(validation))
    return np.bincount(strata[validation], minlength=len(sizes))


@pytest.mark.parametrize(
    "sizes, fraction", [([60, 20, 10, 5, 5], 0.1), ([8] * 6, 0.1), ([2] * 17, 0.1), ([50], 0.3), ([100, 100], 0.75)]
)
def test_as_many_as_are_asked_for(sizes, fraction):
    for seed in range(5):
        counts = split(sizes, fraction, seed)
        assert counts.sum() == np.ceil(fraction * sum(sizes))
        assert (np.abs(counts - fraction * np.array(sizes)) < 1.5).all()


def test_a_rare_class_is_split_off_as_often_as_its_share_says():
    """Of 97 rows and 3, a tenth: 0.3 of the three rows. scikit-learn's split takes none in any draw."""
    counts = np.array([split([97, 3], 0.1, seed) for seed in range(400)])
    assert counts[:, 1].max() == 1
    assert counts[:, 1].mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 400))


def test_each_row_of_a_stratum_has_the_same_chance():
    found = np.concatenate([split_rows(None, np.ones(20), 0.2, seed, "calibrate")[1] for seed in range(500)])
    assert len(found) == 2000
    assert np.abs(np.bincount(found, minlength=20) - 100).max() < 4 * np.sqrt(500 * 0.2 * 0.8)


def test_a_row_of_each_class_is_left_to_train_on():
    for seed in range(20):
        assert (split([1, 1, 1, 30], 0.9, seed) == [0, 0, 0, 29]).all()
        assert (split([2] * 10, 0.9, seed) == 1).all()


def test_rows_of_weight_0_are_on_neither_side():
    weights = np.repeat([0.0, 2.0], 20)
    training, validation = split_rows(None, weights, 0.25, 0, "calibrate")
    assert len(validation) == 5 and sorted([*training, *validation]) == list(range(20, 40))


@pytest.mark.parametrize("strata", [None, np.arange(3)])
def test_where_none_can_be_spared_it_says_so(strata):
    weights = np.array([1.0, 0, 0]) if strata is None else np.ones(3)
    with pytest.raises(ValueError, match="calibrate splits validation_fraction=0.2 of . rows off.*Give an eval_set"):
        split_rows(strata, weights, 0.2, 0, "calibrate")
