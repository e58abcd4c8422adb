"""Whole numbers that functions are given."""

import numpy as np
import pytest

from kbert.pretraining import Corpus
from kbert.values.whole_numbers import whole_number


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)])
def test_a_whole_number_becomes_pythons_own(value):
    assert type(whole_number(value, "n", 2)) is int


@pytest.mark.parametrize("value", [1, True, np.True_, 2.0, "2", None, [2]])
def test_others_are_refused(value):
    with pytest.raises(ValueError, match="n must be a whole number of at least 2 for a pair, got "):
        whole_number(value, "n", 2, " for a pair")


def test_a_corpus_takes_numpys():
    assert Corpus(["a\nb"], split="lines", max_segments=np.int64(1)).fingerprint()
