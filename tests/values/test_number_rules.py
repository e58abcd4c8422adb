"""What is a number among the parameters."""

from fractions import Fraction

import numpy as np
import pytest

from kbert.values.number_rules import is_real


@pytest.mark.parametrize("value", [0, -3, 2.5, np.int64(7), np.float32(0.5), Fraction(1, 3)])
def test_finite_numbers_are_real(value):
    assert is_real(value)


@pytest.mark.parametrize("value", [float("nan"), np.inf, 10**400, True, np.bool_(False), "1", None, 1j, [1]])
def test_other_values_are_not(value):
    assert not is_real(value)
