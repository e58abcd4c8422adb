"""What cannot be used is refused with an error that names it and says what to do."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import constants

import kbert
from kbert import BertClassifier, BertConfig
from kbert.errors import (
    MissingTextWarning,
    TruncationWarning,
    UnknownSizeError,
    WeightsMismatchError,
    WeightsNotFoundError,
)
from kbert.estimators.parameters import RULES, checked_parameters

pytestmark = pytest.mark.slow

TEXTS = ["so good", "so bad"] * 8
LABELS = ["pos", "neg"] * 8


# --- Rows and labels


@pytest.mark.parametrize("empty", [[], np.array([], dtype=object), pd.Series([], dtype="str"), pd.DataFrame({"a": []})])
def test_an_empty_x_is_refused(toy, empty):
    with pytest.raises(ValueError, match=r"0 sample\(s\).*X is empty: give at least one text"):
        toy().fit(empty, [])


def test_lengths_that_differ_are_named(toy):
    with pytest.raises(ValueError, match="X has 16 rows and y has 15 labels: take both from the same rows"):
        toy().fit(TEXTS, LABELS[:15])


def test_pairs_are_refused_by_a_model_of_one_segment(toy, one_segment_folder, tmp_path):
    classifier = toy(weights=one_segment_folder)
    pairs = [(text, text) for text in TEXTS]
    with pytest.raises(ValueError, match="texts are pairs.*type_vocab_size 1 in its config.json"):
        classifier.fit(pairs, LABELS)
    classifier.fit(TEXTS, LABELS).save(tmp_path)
    (tmp_path / "kbert.json").unlink()  # which says that texts are single
    with pytest.raises(ValueError, match="texts are pairs"):
        BertClassifier.load(tmp_path).predict(pairs)


def test_one_class_only_is_refused(toy):
    with pytest.raises(ValueError, match="at least two classes.*y holds one class only: 'pos'"):
        toy().fit(TEXTS, ["pos"] * 16)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_the_row_of_a_missing_label_is_named(toy, missing):
    labels = [*LABELS[:5], missing, *LABELS[6:]]
    with pytest.raises(ValueError, match="y contains NaN: 1 label is missing, at row 5. Drop these rows"):
        toy().fit(TEXTS, labels)
    index = pd.Series(labels, index=[f"id{i}" for i in range(16)], dtype=object)
    with pytest.raises(ValueError, match=r"at row 5 \(index 'id5'\)"):
        toy().fit(TEXTS, index)


def test_missing_y_is_refused(toy):
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        toy().fit(TEXTS, None)


def test_labels_that_are_arrays_without_a_dimension_are_refused(toy):
    with pytest.raises(TypeError, match="labels of type ndarray are not supported .row 0 is array.*astype"):
        toy().fit(TEXTS, pd.Series([np.array(label) for label in LABELS]))


def test_continuous_labels_are_refused(toy):
    with pytest.raises(ValueError, match="Unknown label type: continuous.*y is 0.5 in row 1"):
        toy().fit(TEXTS, [1.0, 0.5] * 8)


def test_a_text_column_of_numbers_is_named(toy):
    frame = pd.DataFrame({"price": np.arange(16)})
    with pytest.raises(
        TypeError, match=r"row 0 of column 'price' \(dtype int64\) is of type int, not a text: 0.*astype"
    ):
        toy().fit(frame, LABELS)
    with pytest.raises(TypeError, match="row 3 is of type float, not a text: 2.5"):
        toy().fit([*TEXTS[:3], 2.5, *TEXTS[4:]], LABELS)


def test_three_columns_are_refused(toy):
    frame = pd.DataFrame({"title": TEXTS, "body": TEXTS, "label": LABELS})
    with pytest.raises(ValueError, match=r"3 columns \('title', 'body', 'label'\).*df\[\['title', 'body'\]\]"):
        toy().fit(frame, [f"no {label}" for label in LABELS][::-1])
    with pytest.raises(ValueError, match=r"'label' is y.*Give the texts alone: clf.fit\(df\[\['title', 'body'\]\], df"):
        toy().fit(frame, LABELS)


@pytest.mark.parametrize("names", [["text"], ["title", "text"]])
def test_one_row_of_a_table_is_no_column(toy, names):
    table = pd.DataFrame({"title": TEXTS, "text": TEXTS, "label": LABELS})
    classifier = toy().fit(table[names], table.label)
    with pytest.raises(ValueError, match=r"X is one row of a DataFrame.*df.iloc\[\[i\]\]"):
        classifier.predict(table.iloc[0])
    with pytest.raises(TypeError, match=r"X is one row, a dict of single values. Make it a table"):
        classifier.predict(table.iloc[0].to_dict())


def test_a_single_text_is_no_column(fitted):
    with pytest.raises(ValueError, match=r"X is a single str \('so good'\).*Put it in a list: \['so good'\]"):
        fitted.predict("so good")


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0] * 15, r"expected \(16,\)"),
        ([1.0] * 15 + [np.nan], "sample_weight contains NaN, first in row 15"),
        (pd.Series([1.0] * 3 + [-1.0] * 13, index=range(20, 36)), r"Negative values .*, first in row 3 \(index 23\)"),
        ([1.0, -1.0] * 8, "Negative values.*row 1"),
        ([0.0] * 16, "at least one non-zero"),
    ],
)
def test_sample_weights_that_cannot_be_used_are_refused(toy, weight, message):
    with pytest.raises(ValueError, match=message):
        toy().fit(TEXTS, LABELS, weight)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (
            {"pos": 1, "mid": 2},
            r"class_weight names \['mid'\], which y does not hold. The classes are \['neg', 'pos'\]",
        ),
        ({"pos": -1}, "class_weight must be numbers of at least 0, got -1 for 'pos'"),
        ({"pos": "much"}, "class_weight must be numbers of at least 0, got 'much' for 'pos'"),
        ({"pos": float("nan")}, "got nan for 'pos'"),
        ({"pos": 0, "neg": 0}, "All rows have weight 0"),
    ],
)
def test_class_weights_that_cannot_be_used_are_refused(toy, weight, message):
    with pytest.raises(ValueError, match=message):
        toy(class_weight=weight).fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("eval_set", "message"),
    [
        ((TEXTS, ["mid", "pos"] * 8), r"eval_set's y holds labels that y of fit did not: \['mid'\]"),
        ((TEXTS, LABELS[:3]), "16 rows and eval_set's y has 3 labels"),
        ((TEXTS,), r"eval_set must be a pair \(X, y\)"),
        (TEXTS, r"eval_set must be a pair \(X, y\)"),
        ([(TEXTS, LABELS), (TEXTS, LABELS)], "got a list with 2 such. Give the one"),
        ([(TEXTS, LABELS)], "got a list with 1 such. Give the one"),
        ((TEXTS[:3] + [None] + [7], LABELS[:5]), "eval_set's X: row 4 is of type int, not a text"),
        (("text", LABELS), "eval_set's X is a single str"),
        ((["a", "b\ud83d"], LABELS[:2]), "eval_set's X: row 1 holds a lone surrogate"),
        ((TEXTS[:3], LABELS), "eval_set's X has 3 rows and eval_set's y has 16 labels"),
        (([("a", "b")] * 16, LABELS), "eval_set's X has 2 features, but BertClassifier is expecting 1 features"),
    ],
)
@pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")
def test_an_eval_set_that_does_not_fit_is_refused(toy, eval_set, message):
    with pytest.raises((ValueError, TypeError), match=message):
        toy().fit(TEXTS, LABELS, eval_set=eval_set)


def test_early_stopping_with_too_few_rows_says_so(toy):
    classifier = toy(early_stopping=True)
    with pytest.raises(
        ValueError,
        match="early_stopping splits validation_fraction=0.1 of 2 rows off.*one of each class.*Give an eval_set",
    ):
        classifier.fit(TEXTS[:2], LABELS[:2])


LONE = "a \ud83d b"


def table(**columns):
    """A DataFrame whose column names are no Arrow strings, which would not take a lone surrogate."""
    return pd.DataFrame(np.array(list(columns.values()), object).T, columns=pd.Index(list(columns), dtype=object))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (TEXTS, [*LABELS[:3], LONE, *LABELS[4:]], "y: row 3 holds a lone surrogate"),
        (TEXTS, [["pos"], ["neg", LONE]] * 8, "y: a label of row 1 holds a lone surrogate"),
        (TEXTS, table(a=[0, 1] * 8, **{LONE: [1, 0] * 8}), "y: the name of column 1 holds a lone surrogate"),
        ([*TEXTS[:3], LONE, *TEXTS[4:]], LABELS, "X: row 3 holds a lone surrogate"),
        ([*[("a", "b")] * 15, ("a", LONE)], LABELS, "X: row 15 of column 1 holds a lone surrogate"),
        (table(**{LONE: TEXTS}), LABELS, "X: the name of column 0 holds a lone surrogate"),
    ],
)
def test_what_could_not_be_saved_is_refused_in_fit(toy, X, y, message):
    with pytest.raises(ValueError, match=message):
        toy().fit(X, y)


def test_a_cut_text_is_told_at_the_users_line(toy, reviews):
    texts, labels = reviews.text[:16], reviews.label[:16]
    long = texts + " the table" * 9
    classifier = toy()
    for use in (
        lambda: classifier.fit(texts, labels, eval_set=(long, labels)),
        lambda: classifier.score(long, labels),
        lambda: classifier.predict(long),
        lambda: classifier.fit(long, labels),
        lambda: classifier.score([*texts[:15], None], labels),
    ):
        with pytest.warns((TruncationWarning, MissingTextWarning)) as told:
            use()
        of_texts = [one for one in told if one.category in (TruncationWarning, MissingTextWarning)]
        assert [one.filename for one in of_texts] == [__file__]


def test_a_failed_fit_leaves_an_earlier_one_usable(toy, reviews):
    classifier = toy().fit(reviews.text[:32], reviews.label[:32])
    expected = classifier.predict_proba(reviews.text[:8])
    with pytest.raises(ValueError, match="one class only"):
        classifier.fit(TEXTS, ["pos"] * 16)
    assert np.array_equal(classifier.predict_proba(reviews.text[:8]), expected)


# --- Parameters

# Values that each parameter refuses, with something of the message.
WRONG = {
    "size": [7, None],
    "weights": [3, "", b"base"],
    "revision": [1],
    "max_length": [4, 0, 12.5, "128", None, True],
    "long_text": ["cut", None, True],
    "stride": [0, 1.5, "64", True],
    "epochs": [0, -1, 1.5, "3", None, True],
    "batch_size": [0, 2.0, "32", None],
    "learning_rate": [0, -1e-4, "fast", "1e-4", float("nan"), float("inf"), None, True],
    "warmup": [-1, -0.1, 1.5, "auto", None, True],
    "weight_decay": [-0.1, None, "none", float("inf")],
    "layer_decay": [0, 1.1, None],
    "freeze": [-1, 1.0, None, True],
    "dropout": [1, -0.1, "auto", True],
    "bias_correction": ["yes", 1, None],
    "gradient_accumulation": [0, 1.5, None],
    "early_stopping": ["yes", 1, None],
    "validation_fraction": [0, 1, 1.5, None, "auto"],
    "n_iter_no_change": [0, 1.5, None],
    "classifier_pooling": ["max", None, 1],
    "head_start": ["zero", None, True],
    "few_labels": [None, 8, "yes"],
    "class_weight": ["equal", 2, [1, 2], np.array([1, 2])],
    "calibrate": ["isotonic", True, 1],
    "tune_thresholds": [None, 1, "f1"],
    "n_restarts": [-1, None, 1.5, True],
    "warm_start": [None, 1, "yes"],
    "distribution": [2, "all", []],
    "checkpoint": [3, ["folder"]],
    "dtype": ["float64", None, "mixed_bfloat16", np.float32],
    "random_state": [-1, 1.5, "seed", np.random.default_rng(0)],
    "verbose": [-1, "yes", None],
}
RIGHT = {
    "size": ["large-cased", BertConfig()],
    "weights": [None, "auto", "google-bert/bert-base-uncased"],
    "max_length": [5, np.int64(16)],
    "learning_rate": ["auto", "paper", 1, np.float32(1e-4)],
    "warmup": [0, 0.0, 1.0, 100, np.int64(5)],
    "weight_decay": [0, 0.0],
    "layer_decay": [1, 0.9],
    "freeze": [np.int32(0), 2],
    "dropout": [None, 0, 0.5],
    "class_weight": [None, "balanced", {"pos": 2}],
    "random_state": [None, 0, 2**32 - 1, np.int64(5), np.random.RandomState(0)],
    "verbose": [0, 1, True],
}


def test_every_parameter_has_a_rule_and_a_wrong_value():
    assert set(BertClassifier().get_params()) == set(WRONG)
    public = [getattr(kbert, name) for name in kbert.__all__]
    estimators = [each for each in public if hasattr(each, "get_params")]
    assert len(estimators) == 7
    for each in estimators:
        assert set(each().get_params()) - {"random_state"} <= set(RULES), each


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameters_are_refused_in_fit_by_name(toy, name):
    for value in WRONG[name]:
        classifier = toy(**{name: value})
        with pytest.raises((TypeError, ValueError), match=f"BertClassifier: {name} must be .*, got "):
            classifier.fit(TEXTS, LABELS)


@pytest.mark.parametrize("name", RIGHT)
def test_right_parameters_are_taken(name):
    for value in RIGHT[name]:
        checked_parameters(BertClassifier(**{name: value}))


@pytest.mark.parametrize("weights", ["auto", None])
@pytest.mark.parametrize(("size", "near"), [("bas", "'base'"), ("minilm", "'minilm-l6'"), ("Large", "'large'")])
def test_an_unknown_size_comes_with_near_names(weights, size, near):
    with pytest.raises(
        UnknownSizeError, match=f"Unknown size '{size}'. Did you mean .*{near}.*The sizes are tiny, mini"
    ):
        BertClassifier(size, weights=weights).fit(TEXTS, LABELS)


def test_a_config_has_no_released_weights():
    with pytest.raises(ValueError, match="size is a BertConfig, for which there are no released weights.*weights=None"):
        BertClassifier(BertConfig()).fit(TEXTS, LABELS)


def test_max_length_above_the_positions_of_the_model_is_refused(toy):
    with pytest.raises(ValueError, match="max_length must be at most 64, the positions of this model, got 65"):
        toy(max_length=65).fit(TEXTS, LABELS)


def test_freeze_above_the_layers_of_the_model_is_refused(toy):
    with pytest.raises(ValueError, match="freeze must be at most 1, the layers of this model, got 2"):
        toy(freeze=2).fit(TEXTS, LABELS)


# --- Weights


@pytest.fixture
def broken(toy_folder, tmp_path):
    """A copy of the toy's weights folder, to be broken."""
    return shutil.copytree(toy_folder, tmp_path / "broken")


def test_a_folder_without_config_is_refused(toy, broken):
    (broken / "config.json").unlink()
    with pytest.raises(WeightsNotFoundError, match=f"no config.json in {broken}.*subfolders"):
        toy(weights=broken).fit(TEXTS, LABELS)


def test_a_folder_without_weights_is_refused(toy, broken):
    (broken / "model.safetensors").unlink()
    with pytest.raises(WeightsNotFoundError, match=f"no model.safetensors in {broken}"):
        toy(weights=broken).fit(TEXTS, LABELS)


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_truncated_weights_file_is_named(toy, broken, keep):
    path = broken / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WeightsMismatchError, match=f"model.safetensors \\({keep:,} bytes\\) cannot be read.*truncated"):
        toy(weights=broken).fit(TEXTS, LABELS)


def test_a_vocabulary_larger_than_the_embedding_table_is_refused(toy, broken):
    config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
    rows = config["vocab_size"]
    config["vocab_size"] = rows - 1
    (broken / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(WeightsMismatchError, match=f"has {rows} entries.*has {rows - 1} rows.*right tokenizer.json"):
        toy(weights=broken).fit(TEXTS, LABELS)


def test_a_folder_that_is_not_there_is_named(toy, tmp_path):
    with pytest.raises(WeightsNotFoundError, match="There is no such folder.*wieghts"):
        toy(weights=tmp_path / "wieghts").fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"size": "base"}, "google-bert/bert-base-uncased"),
        ({"weights": "nobody/nothing"}, "nobody/nothing"),
        ({"size": "bert-base-uncased"}, "google-bert/bert-base-uncased"),
    ],
)
def test_without_network_and_cache_the_remedies_are_listed(monkeypatch, tmp_path, parameters, name):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsNotFoundError) as error:
        BertClassifier(**parameters).fit(TEXTS, LABELS)
    message = str(error.value)
    assert f"The weights {name!r}" in message and str(tmp_path) in message
    assert "unset HF_HUB_OFFLINE" in message and "weights=None" in message
