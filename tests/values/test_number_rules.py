"""What is a number, or a whole number, among what functions and estimators are given."""

from fractions import Fraction

import numpy as np
import pytest

from kbert.pretraining import Corpus
from kbert.values.number_rules import is_real, whole_number


@pytest.mark.parametrize("value", [0, -3, 2.5, np.int64(7), np.float32(0.5), Fraction(1, 3)])
def test_finite_numbers_are_real(value):
    assert is_real(value)


@pytest.mark.parametrize("value", [float("nan"), np.inf, 10**400, True, np.bool_(False), "1", None, 1j, [1]])
def test_other_values_are_not(value):
    assert not is_real(value)


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)])
def test_a_whole_number_becomes_pythons_own(value):
    assert type(whole_number(value, "n", 2)) is int


@pytest.mark.parametrize("value", [1, True, np.True_, 2.0, "2", None, [2]])
def test_other_values_are_no_whole_numbers(value):
    with pytest.raises(ValueError, match="n must be a whole number of at least 2 for a pair, got "):
        whole_number(value, "n", 2, " for a pair")


def test_a_corpus_takes_numpys():
    assert Corpus(["a\nb"], split="lines", max_segments=np.int64(1)).fingerprint()
