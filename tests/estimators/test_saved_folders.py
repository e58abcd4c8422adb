"""Folders that an earlier version saved, and the signatures that it had: `save_examples.py` made both."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from save_examples import ESTIMATORS, predictions, signatures

SAVED = Path(__file__).parent / "saved"
EXPECTED = json.loads((SAVED / "expected.json").read_text(encoding="utf-8"))
CLASSES = {estimator.__name__: estimator for estimator in ESTIMATORS}


def assert_same(found, expected):
    """Equal structures, whose numbers may differ by what backends do."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert np.isclose(found, expected, rtol=1e-3, atol=1e-4)
    else:
        assert found == expected


@pytest.mark.backend
@pytest.mark.parametrize("name", EXPECTED["predictions"])
def test_a_folder_of_an_earlier_version_predicts_the_same(name, tmp_path):
    # A copy: to load completes an interrupted save, which is nothing for the repository's own files.
    folder = shutil.copytree(SAVED / name, tmp_path / name)
    kind = json.loads((folder / "kbert.json").read_text(encoding="utf-8"))["estimator"]
    estimator = CLASSES[kind].load(folder, verify=True)
    assert_same(json.loads(json.dumps(predictions(name, estimator))), EXPECTED["predictions"][name])
    estimator.save(tmp_path / "again")
    again = CLASSES[kind].load(tmp_path / "again", verify=True)
    assert_same(json.loads(json.dumps(predictions(name, again))), EXPECTED["predictions"][name])


@pytest.mark.parametrize("estimator", CLASSES)
def test_signatures_have_what_the_earlier_version_had(estimator):
    """In the same order, with the same defaults. What is new is keyword-only, and has a default."""
    methods = signatures()[estimator]
    for name, before in EXPECTED["signatures"][estimator].items():
        assert [parameter for parameter in methods[name] if parameter in before] == before, name
        new = [parameter for parameter in methods[name] if parameter not in before]
        assert all(re.match("keyword-only .*=", parameter) for parameter in new), name
