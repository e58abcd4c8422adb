"""Saved estimators of every kind, and their reports."""

from pathlib import Path

import numpy as np
import pytest
from report_rows import rows_of

import kbert

SAVED = Path(__file__).parents[1] / "estimators" / "saved"


@pytest.fixture(scope="session")
def estimator():
    """A saved estimator, by the name of its kind. Tests must not change it."""
    loaded = {}

    def get(kind):
        if kind not in loaded:
            loaded[kind] = kbert.load(SAVED / kind)
            if kind == "multilabel":  # it is sure of nothing: of each label, half of the rows get it
                loaded[kind].thresholds_ = np.median(loaded[kind].predict_proba(rows_of(kind)[0]), axis=0)
        return loaded[kind]

    return get


@pytest.fixture(scope="session")
def reports(estimator):
    """The report of each kind with its default arguments."""
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = estimator(kind).report(*rows_of(kind))
        return made[kind]

    return get
