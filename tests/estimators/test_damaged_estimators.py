"""kbert.json with values that `save` never writes: refused with the key, before anything is predicted."""

import json
import shutil
from pathlib import Path

import pytest
from save_examples import ESTIMATORS

from kbert.errors import DivergedError, WeightsMismatchError
from kbert.estimators import kbert_json

SAVED = Path(__file__).parent / "saved"
CLASSES = {estimator.__name__: estimator for estimator in ESTIMATORS}
INFINITE = float("inf")


def copied(name, tmp_path):
    """A copy of a folder of an earlier version, and the class that opens it."""
    folder = shutil.copytree(SAVED / name, tmp_path / name)
    return folder, CLASSES[json.loads((folder / "kbert.json").read_text(encoding="utf-8"))["estimator"]]


# The saved folder, the key, its value, and what the message says.
DAMAGES = [
    ("classifier", "format", "1", "format must be"),
    ("classifier", "format", True, "format must be"),
    ("classifier", "estimator", None, "estimator must be a text"),
    ("classifier", "parameters", None, "parameters must be an object"),
    ("classifier", "parameters", [1], "parameters must be an object"),
    ("classifier", "parameters.dtype", "foo", "dtype must be"),
    ("classifier", "parameters.max_length", "64", "max_length must be"),
    ("classifier", "parameters.size", {"BertConfig": {"hidden_size": -1}}, "parameters.size is not usable"),
    ("classifier", "parameters.size", {"BertConfig": 5}, "parameters.size is not usable"),
    ("classifier", "parameters.class_weight", {"dict": 5}, "parameters.class_weight is not usable"),
    ("classifier", "parameters.class_weight", {"dict": [[[1], 2]]}, "parameters.class_weight is not usable"),
    ("classifier", "learned", [], "learned must be an object"),
    ("classifier", "learned.classes", None, "learned.classes must be an object"),
    ("classifier", "learned.classes", {"values": [0, 1]}, "lacks learned.classes.dtype"),
    ("classifier", "learned.classes.dtype", "foo", "learned.classes.dtype must be"),
    ("classifier", "learned.classes.dtype", "U1000000000", "learned.classes.dtype must be"),
    ("classifier", "learned.classes.values", [[0], [1]], "learned.classes.values must be"),
    ("classifier", "learned.classes.values", [1, 1], "learned.classes.values must be different"),
    ("classifier", "learned.classes.values", ["a", "b"], "learned.classes.values must be"),
    ("classifier", "learned.classes.values", [0, 2**70], "learned.classes.values must lie"),
    ("classifier", "learned.classes.values", 5, "learned.classes.values must be"),
    ("classifier", "learned.y_type", "foo", "learned.y_type must be"),
    ("classifier", "learned.temperature", 0, "learned.temperature must be"),
    ("classifier", "learned.temperature", "1", "learned.temperature must be"),
    ("classifier", "n_features_in", 10**9, "n_features_in must be"),
    ("classifier", "n_features_in", 1.0, "n_features_in must be"),
    ("classifier", "feature_names_in", [1], "feature_names_in must be"),
    ("classifier", "feature_names_in", ["a", "b"], "feature_names_in must name 1"),
    ("classifier", "history", "abc", "history must be"),
    ("classifier", "history", {"loss": "abc"}, "history must be"),
    ("classifier", "history", {"loss": [[0.5]]}, "history must be"),
    ("classifier", "history", {"loss": [0.5], "update_loss": [0.5]}, "history must be"),
    ("classifier", "history", {"loss": [0.5], "update_loss": "abc"}, "history must be"),
    ("classifier", "golden", [], "golden must be an object"),
    ("classifier", "golden.texts", "abc", "golden.texts must be"),
    ("classifier", "golden.logits", [[INFINITE, 0.0]] * 4, "golden.logits must be"),
    ("classifier", "golden.logits", [[0.0], [0.0, 1.0]], "golden.logits must be"),
    ("classifier", "golden.logits", [["0"]], "golden.logits must be"),
    ("multilabel", "learned.thresholds", [0.5], "learned.thresholds must be"),
    ("multilabel", "learned.at_least_one", 1, "learned.at_least_one must be"),
    ("multilabel", "learned.thresholds", [0.5, INFINITE], "learned.thresholds must be"),
    ("multilabel", "learned.thresholds", None, "learned.thresholds must be"),
    ("regressor", "learned.mean", 5, "learned.mean must be"),
    ("regressor", "learned.scale", [1.0, 0.0], "learned.scale must be"),
    ("regressor", "learned.scale", [1.0], "learned.scale must be"),
    ("regressor", "learned.columns", [1.5, 2.5], "learned.columns must be"),
    ("regressor", "learned.ndim", 1, "learned.ndim must be"),
    ("tagger", "learned.classes.values", [["O"], ["B"]], "learned.classes.values must be"),
    ("qa", "learned.null_threshold", "abc", "learned.null_threshold must be"),
    ("qa", "learned.null_threshold", float("nan"), "learned.null_threshold must be"),
    ("qa", "learned", {}, "lacks learned.null_threshold"),
    ("pretrainer", "learned.new_words", 5, "learned.new_words must be"),
]


@pytest.mark.parametrize("name, key, value, message", DAMAGES)
def test_a_value_that_save_never_writes_is_refused_with_its_key(name, key, value, message, tmp_path):
    folder, estimator = copied(name, tmp_path)
    path = folder / "kbert.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    *outer, last = key.split(".")
    inner = values
    for part in outer:
        inner = inner[part]
    inner[last] = value
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(WeightsMismatchError, match="kbert.json is damaged") as caught:
        estimator.load(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize("logits", [[], [[0.0, 1.0]], [[0.0, 1.0, 2.0]] * 4], ids=len)
def test_golden_logits_of_another_shape_are_refused(logits, tmp_path):
    folder, estimator = copied("classifier", tmp_path)
    values = json.loads((folder / "kbert.json").read_text(encoding="utf-8"))
    values["golden"]["logits"] = logits
    (folder / "kbert.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(WeightsMismatchError, match="golden.logits has shape"):
        estimator.load(folder, verify=True)


@pytest.mark.parametrize(("bound", "message"), [("_MOST_BYTES", "bytes, and at most"), ("_MOST_VALUES", "more values")])
def test_a_kbert_json_that_is_too_large_is_not_parsed(tmp_path, monkeypatch, bound, message):
    folder, estimator = copied("classifier", tmp_path)
    monkeypatch.setattr(kbert_json, bound, 10)
    monkeypatch.setattr(kbert_json, "SavedValues", None)
    with pytest.raises(WeightsMismatchError, match=f"kbert.json.* {message}"):
        estimator.load(folder)


def test_what_load_would_refuse_is_not_saved(tmp_path):
    folder, estimator = copied("classifier", tmp_path)
    loaded = estimator.load(folder)
    with pytest.raises(ValueError, match="max_length"):
        loaded.set_params(max_length=-1).save(tmp_path / "new")
    loaded.set_params(max_length=16)
    loaded.model_.classifier.bias.assign([float("nan"), 0.0])
    with pytest.raises(DivergedError, match="finite"):
        loaded.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("put", [Path.mkdir, lambda path: path.symlink_to(path.name)], ids=["folder", "link to itself"])
def test_something_else_in_the_place_of_kbert_json_is_refused(tmp_path, put):
    folder, estimator = copied("qa", tmp_path)
    (folder / "kbert.json").unlink()
    put(folder / "kbert.json")
    with pytest.raises(WeightsMismatchError, match="kbert.json is no file"):
        estimator.load(folder)
