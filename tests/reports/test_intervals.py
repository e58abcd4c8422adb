"""Intervals cover what they should."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from kbert.reports.given import Found, Given
from kbert.reports.intervals import bootstrap_interval, share_interval
from kbert.reports.main_score import main_score


def test_wilsons_interval_has_the_values_of_its_formula():
    assert share_interval(0, 10) == pytest.approx((0, 0.27753), abs=1e-5)
    assert share_interval(81, 263) == pytest.approx((0.25526, 0.36617), abs=1e-4)


def test_the_bootstrap_is_as_wide_as_the_standard_error_says():
    values = np.random.default_rng(0).normal(5, 2, 400)
    low, high = bootstrap_interval(np.stack([values, np.ones(400)], axis=1), lambda sums: sums[..., 0] / sums[..., 1])
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert low < values.mean() < high


def test_a_score_that_is_nowhere_defined_has_no_interval():
    assert np.isnan(bootstrap_interval(np.ones((3, 1)), lambda sums: sums[..., 0] * np.nan)).all()


def test_a_share_of_rows_has_wilsons_interval_and_no_other_score_has():
    labels, wrong = np.array(["a", "b"] * 10), np.array(["a", "b"] * 9 + ["a", "a"])
    for answers, right in ((labels, 20), (wrong, 19)):
        score = main_score(Given("labels", labels, Found(answers))).of()
        assert (score["value"], score["low"], score["high"]) == (right / 20, *share_interval(right, 20))
    # Answers that are right in part, and rows of several words, of which one is right.
    halves = Given("answers", [["red hot"], ["red cold"]] * 10, Found(["red"] * 20))
    words = Given("tags", [["X", "X", "Y"]] * 20, Found([["Y"] * 3] * 20))
    for given, value in ((halves, 2 / 3), (words, 1 / 3)):
        assert list(main_score(given).of().values()) == pytest.approx([value] * 3)


def test_rows_that_do_not_tell_have_no_interval():
    nothing = Given("tags", [["O", "O"]] * 2, Found([["O", "O"]] * 2, classes=["B-X", "O"]))
    half = Given("answers", [["red hot"]], Found(["red"]))
    for given, value in ((nothing, 0), (half, 2 / 3)):
        score = main_score(given).of()
        assert score["value"] == pytest.approx(value) and np.isnan([score["low"], score["high"]]).all()


@pytest.mark.parametrize("right", [True, False])
def test_a_few_rows_that_are_all_right_or_all_wrong_are_not_sure_to_stay_so(right):
    sets = np.ones((8, 3), bool)
    found = {
        "several labels": (sets, sets if right else ~sets),
        "tags": ([["B-X", "O"]] * 8, [["B-X", "O"]] * 8 if right else [["O", "B-X"]] * 8),
        "answers": ([["red hot"]] * 7 + [["red", "hot"]], ["red hot"] * 7 + ["red"] if right else ["cold"] * 8),
    }
    for kind, (truth, answers) in found.items():
        score = main_score(Given(kind, truth, Found(answers))).of()
        assert (score["value"], score["low"], score["high"]) == (right, *share_interval(8 * right, 8)), kind


def test_r2_has_an_interval_where_some_samples_have_equal_numbers_alone():
    given = Given("numbers", np.array([[1.0], [2.0], [2.0]]), Found(np.array([[1.5], [2.0], [2.5]])))
    score = main_score(given).of()
    assert score["low"] < score["value"] < score["high"]


def test_r2_of_large_numbers_that_differ_little_has_its_digits():
    truth = 1e9 + np.arange(20.0)[:, None]
    answers = truth + np.random.default_rng(0).normal(0, 2, (20, 1))
    assert main_score(Given("numbers", truth, Found(answers))).of()["value"] == pytest.approx(r2_score(truth, answers))
