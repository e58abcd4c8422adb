"""Intervals cover what they should."""

import numpy as np
import pytest

from kbert.reports.intervals import bootstrap_interval, share_interval


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
