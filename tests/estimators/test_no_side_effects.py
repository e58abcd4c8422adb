"""What an estimator leaves as it was: files, logging, generators of random numbers, and the caller's data."""

import copy
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest

from kbert import BertClassifier

ROWS = 32


@pytest.fixture(scope="module")
def findings(toy_folder, tmp_path_factory):
    """What look_around.py found in a process of its own, in an empty home."""
    base = tmp_path_factory.mktemp("surroundings")
    folders = {"HOME": base / "home", "XDG_CACHE_HOME": base / "cache", "TMPDIR": base / "tmp"}
    for folder in (*folders.values(), base / "here"):
        folder.mkdir()
    own = ("HOME", "USERPROFILE", "KERAS_HOME", "HF_HOME", "MPLCONFIGDIR", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    environment |= {name: str(folder) for name, folder in folders.items()}
    environment |= {"KERAS_BACKEND": keras.backend.backend(), "TEMP": str(base / "tmp"), "TMP": str(base / "tmp")}
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("look_around.py"), toy_folder, base / "findings.json"],
        cwd=base / "here",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((base / "findings.json").read_text(encoding="utf-8"))
    return {**found, "stdout": done.stdout}


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        *("import kbert", "import BertClassifier", "plan", "fit", "early stopping", "a random start"),
        *("BertTagger", "BertRegressor", "load a BertTagger", "load a BertRegressor"),
    ],
)
def test_nothing_around_an_estimator_changes(findings, part):
    assert findings[part] == {}


@pytest.mark.slow
def test_nothing_is_printed_where_verbose_is_0(findings):
    # By the backend's C++ code either.
    assert findings["stdout"] == ""


# --- The caller's data


class Quiet(keras.callbacks.Callback):
    pass


def read_only(array):
    array.setflags(write=False)
    return array


def assert_untouched(now, before):
    """That containers still hold what they did, each of the same type, and arrays are still read-only."""
    assert type(now) is type(before)
    if isinstance(now, pd.DataFrame):
        pd.testing.assert_frame_equal(now, before)
    elif isinstance(now, pd.Series):
        pd.testing.assert_series_equal(now, before)
    elif isinstance(now, np.ndarray):
        assert now.dtype == before.dtype and not now.flags.writeable
        np.testing.assert_array_equal(now, before)
    elif isinstance(now, (list, tuple)) and now and not isinstance(now[0], str):
        assert len(now) == len(before)
        for item, item_before in zip(now, before, strict=True):
            assert_untouched(item, item_before)
    elif not isinstance(now, keras.callbacks.Callback):
        assert now == before


def texts_in(container, reviews, pairs):
    """The same rows in another container; those of numpy must not be written to."""
    texts = reviews.text[:ROWS]
    table = pairs[["left", "right"]][:ROWS]
    kinds = {
        "list": texts.tolist,
        "tuple": lambda: tuple(texts),
        "Series": lambda: texts.set_axis([f"row {i // 2}" for i in range(ROWS)]).astype(object),
        "DataFrame": lambda: texts.to_frame(),
        "object array": lambda: read_only(texts.to_numpy(dtype=object, copy=True)),
        "str array": lambda: read_only(np.array(texts.tolist())),
        "column": lambda: read_only(texts.to_numpy(dtype=object, copy=True).reshape(-1, 1)),
        "list of pairs": lambda: [list(row) for row in table.itertuples(index=False)],
        "DataFrame of pairs": lambda: table.rename(index=lambda i: 2 * i),
        "array of pairs": lambda: read_only(table.to_numpy(dtype=object, copy=True)),
    }
    return kinds[container]()


def labels_in(container):
    values = np.arange(ROWS) % 2
    kinds = {
        "list": values.tolist,
        "Series": lambda: pd.Series(values, dtype="category", name="label"),
        "int array": lambda: read_only(values.copy()),
        "bool array": lambda: read_only(values == 1),
        "object array": lambda: read_only(np.array(["no", "yes"], dtype=object)[values]),
        "DataFrame": lambda: pd.DataFrame({"label": pd.array(values, dtype="Int64")}),
    }
    return kinds[container]()


@pytest.mark.backend
@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning", "ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize(
    "texts, labels, weights",
    [
        ("list", "list", list),
        ("tuple", "int array", pd.Series),
        ("Series", "Series", np.asarray),
        ("DataFrame", "DataFrame", pd.Series),
        ("object array", "object array", np.asarray),
        ("str array", "bool array", np.asarray),
        ("column", "list", list),
        ("list of pairs", "int array", np.asarray),
        ("DataFrame of pairs", "Series", np.asarray),
        ("array of pairs", "object array", pd.Series),
    ],
)
def test_the_callers_data_stay_as_they_were(toy, reviews, pairs, texts, labels, weights):
    X, y = texts_in(texts, reviews, pairs), labels_in(labels)
    sample_weight = weights(read_only(np.linspace(0.5, 2, ROWS)))
    eval_set = (texts_in(texts, reviews, pairs), labels_in(labels))
    class_weight = {label: 2.0 for label in np.asarray(y).ravel().tolist()[:1]}
    callbacks = [Quiet()]
    given = (X, y, sample_weight, eval_set, class_weight, callbacks)
    before = copy.deepcopy((X, y, sample_weight, eval_set, class_weight)) + (list(callbacks),)

    classifier = toy(class_weight=class_weight)
    classifier.fit(X, y, sample_weight, eval_set=eval_set, callbacks=callbacks)
    classifier.predict(X)
    classifier.predict_proba(X)
    classifier.score(X, y, sample_weight)
    assert_untouched(given, before)
    assert callbacks[0] is before[-1][0]
    assert classifier.class_weight is class_weight and classifier.get_params()["class_weight"] is class_weight


@pytest.mark.backend
def test_what_predict_gives_is_the_callers_own(fitted, reviews):
    texts = reviews.text[:ROWS]
    first = [fitted.predict(texts), fitted.predict_proba(texts), fitted.decision_function(texts)]
    again = copy.deepcopy(first)
    for array in first:
        assert array.flags.writeable
        array[:] = array[0]
    now = [fitted.predict(texts), fitted.predict_proba(texts), fitted.decision_function(texts)]
    for array, expected in zip(now, again, strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.backend
def test_saving_writes_nothing_but_the_folder(fitted, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fitted.save(tmp_path / "models" / "first")
    assert os.listdir(tmp_path / "here") == [] and os.listdir(tmp_path / "models") == ["first"]
    assert sorted(os.listdir(tmp_path)) == ["here", "models"]


def test_without_standard_error_nothing_is_shown(toy, reviews, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert toy(verbose=1).fit(reviews.text, reviews.label).n_iter_ == 1


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="a setting of PyTorch")
@pytest.mark.parametrize("name", ["no_grad", "inference_mode"])
def test_a_fit_learns_where_pytorch_is_told_to_record_no_gradients(toy, reviews, name):
    import torch

    expected = toy().fit(reviews.text, reviews.label).predict_proba(reviews.text)
    with getattr(torch, name)():
        found = toy().fit(reviews.text, reviews.label)
        assert not torch.is_grad_enabled()
        further = toy(warm_start=True).fit(reviews.text, reviews.label).fit(reviews.text, reviews.label)
    np.testing.assert_allclose(found.predict_proba(reviews.text), expected, atol=1e-6)
    assert further.history_["loss"][0] < found.history_["loss"][0]


@pytest.mark.slow
def test_nothing_deprecated_is_used(toy, reviews, tmp_path):
    """As under ``python -W error``: by kbert, or by Keras for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        classifier = toy().fit(reviews.text, reviews.label)
        expected = classifier.predict_proba(reviews.text)
        classifier.save(tmp_path / "model")
        loaded = BertClassifier.load(tmp_path / "model", verify=True)
        copied = pickle.loads(pickle.dumps(classifier))
    for other in (loaded, copied):
        assert np.array_equal(other.predict_proba(reviews.text), expected)
