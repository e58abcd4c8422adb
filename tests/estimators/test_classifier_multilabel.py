"""Several labels a row: indicator matrices and lists, thresholds, early stopping on a ranking."""

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, average_precision_score, f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import get_tags

import kbert
from kbert import BertClassifier
from kbert.errors import FailedRunWarning, ParameterWarning
from kbert.estimators.validation import split_rows
from kbert.tasks import SeveralLabels
from kbert.tasks.texts import TextExamples

pytestmark = pytest.mark.slow

NAMES = np.array(["blue", "happy", "hot"])
FILLERS = "the a table chair room with was and it this".split()


@pytest.fixture(scope="module")
def tagged():
    """Texts of which each holds none to three words, and the matrix that says which."""
    rng = np.random.default_rng(1)
    matrix = (rng.random((160, 3)) < [0.5, 0.4, 0.3]).astype(int)
    texts = []
    for row in matrix:
        words = [*NAMES[row == 1], *rng.choice(FILLERS, 6 - row.sum())]
        texts.append(" ".join(rng.permutation(words)))
    return pd.Series(texts), matrix


@pytest.fixture(scope="module")
def lists(tagged):
    return [NAMES[row == 1].tolist() for row in tagged[1]]


@pytest.fixture(scope="module")
def quick(toy, quick_folder):
    """A function that makes a classifier which learns."""
    return lambda **changes: toy(**{"weights": quick_folder, "epochs": 40, "dropout": 0, **changes})


@pytest.fixture(scope="module")
def by_matrix(quick, tagged):
    return quick().fit(*tagged)


@pytest.fixture(scope="module")
def by_lists(quick, tagged, lists):
    return quick().fit(tagged[0], lists)


@pytest.mark.compiles
@pytest.mark.backend
def test_a_matrix_is_learned_and_predicted(by_matrix, tagged):
    texts, matrix = tagged
    predicted = by_matrix.predict(texts.tolist())
    assert predicted.shape == (160, 3) and predicted.dtype == np.int64 and set(predicted.ravel()) == {0, 1}
    assert by_matrix.score(texts, matrix) == (predicted == matrix).all(axis=1).mean() > 0.9
    assert by_matrix.classes_.tolist() == [0, 1, 2]
    assert by_matrix.y_type_ == "indicator" and by_matrix.thresholds_.tolist() == [0.5] * 3


def test_probabilities_are_each_labels_own(by_matrix, tagged):
    texts, matrix = tagged
    probabilities, logits = by_matrix.predict_proba(texts), by_matrix.decision_function(texts)
    assert probabilities.shape == logits.shape == (160, 3)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-logits.astype("float64"))))
    np.testing.assert_allclose(by_matrix.predict_log_proba(texts), np.log(probabilities))
    assert average_precision_score(matrix, probabilities) > 0.95
    assert np.abs(probabilities.sum(axis=1) - 1).max() > 0.5


@pytest.mark.thorough
def test_lists_give_the_same_model_and_lists(by_lists, by_matrix, tagged, lists):
    texts, _ = tagged
    assert by_lists.classes_.tolist() == NAMES.tolist() and by_lists.y_type_ == "lists"
    assert np.array_equal(by_lists.predict_proba(texts), by_matrix.predict_proba(texts))
    predicted = by_lists.predict(texts)
    assert isinstance(predicted, list) and [] in predicted
    assert predicted == [NAMES[row == 1].tolist() for row in by_matrix.predict(texts.tolist())]
    assert by_lists.score(texts, lists) == by_matrix.score(texts, tagged[1])


@pytest.mark.parametrize(
    "container",
    [
        lambda m: m.tolist(),
        lambda m: m.astype(bool),
        lambda m: m.astype(float),
        sparse.csr_matrix,
        lambda m: pd.DataFrame(m, columns=["x", "y", "z"]),
    ],
    ids=["list", "bool", "float", "sparse", "DataFrame"],
)
def test_every_kind_of_matrix_gives_the_same(toy, tagged, container):
    texts, matrix = tagged[0][:32], tagged[1][:32]
    expected = toy().fit(texts, matrix).predict_proba(texts)
    found = toy().fit(texts, container(matrix))
    assert np.array_equal(found.predict_proba(texts), expected)
    assert found.score(texts, container(matrix)) == toy().fit(texts, matrix).score(texts, matrix)


def test_the_columns_of_a_table_are_the_classes(toy, tagged):
    classifier = toy().fit(tagged[0][:32], pd.DataFrame(tagged[1][:32], columns=["x", "a", "m"]))
    assert classifier.classes_.tolist() == ["x", "a", "m"]


def test_the_order_of_labels_in_a_list_does_not_matter(by_lists, tagged, lists):
    backwards = [tuple(row[::-1]) for row in lists]
    assert by_lists.score(tagged[0], backwards) == by_lists.score(tagged[0], lists)


def test_score_of_labels_that_were_not_seen_and_with_weights(by_lists, tagged, lists, answering):
    texts = tagged[0][:2]
    right = by_lists.predict(texts)
    assert by_lists.score(texts, right) == 1
    assert by_lists.score(texts, [right[0], [*right[1], "new"]]) == 0.5
    assert by_lists.score(texts, [right[0], [*right[1], "new"]], sample_weight=[3, 1]) == 0.75
    assert answering(by_lists, [right[1][::-1], right[1]]).score(texts, right) == 0.5 + 0.5 * (right[0] == right[1])
    # Labels that cannot be compared would all count as new, and each row as wrong.
    with pytest.raises(TypeError, match="y is a matrix whose columns have no names.*DataFrame with a column for each"):
        by_lists.score(texts, np.zeros((2, 3), int))
    with pytest.raises(TypeError, match="y holds 1, and y of fit held 'blue'"):
        by_lists.score(texts, [[1], [2]])


def test_rows_without_any_label_are_rows_too(toy, tagged, lists):
    texts = tagged[0]
    classifier = toy(epochs=2, warm_start=True).fit(texts, lists, eval_set=(texts[:2], [[], []]))
    assert np.isnan(classifier.history_["val_score"]).all() and np.isfinite(classifier.history_["val_loss"]).all()
    classifier.thresholds_ = np.ones(len(NAMES))  # which no probability reaches
    assert classifier.predict(["the table"] * 4) == [[]] * 4
    assert classifier.score(["the table"] * 4, [[]] * 4) == 1
    assert classifier.score(["the table"] * 2, [[], ["hot"]]) == 0.5
    assert classifier.fit(texts[:16], [[]] * 16).classes_.tolist() == NAMES.tolist()
    with pytest.raises(ValueError, match="No row of y has a label: nothing could be learned"):
        toy().fit(texts[:4], [[]] * 4)


def test_lists_of_the_labels_0_and_1_are_no_matrix(toy):
    rows = [[0, 1], [1], [2], []] * 8
    classifier = toy().fit(["the table"] * 32, rows)
    classifier.thresholds_ = np.array([0.0, 0.0, 1.0])
    assert classifier.predict(["the table"] * 2) == [[0, 1]] * 2
    assert classifier.score(["the table"] * 2, [[0, 1], [1, 0]]) == 1


# --- The columns of a table


@pytest.mark.parametrize("names", [["x", "a", "m"], [30, 10, 20], [2, 0, 1]])
def test_columns_are_found_by_their_names(toy, tagged, names):
    texts, matrix = tagged[0][:32], pd.DataFrame(tagged[1][:32], columns=names)
    backwards = matrix[names[::-1]]
    classifier = toy(warm_start=True).fit(texts, matrix, eval_set=(texts, matrix))
    assert classifier.classes_.tolist() == names
    assert toy().fit(texts, matrix, eval_set=(texts, backwards)).history_ == classifier.history_
    classifier.thresholds_ = np.array([0.0, 1.0, 1.0])
    truth = pd.DataFrame(classifier.predict(texts), columns=names)
    assert classifier.score(texts, truth) == classifier.score(texts, truth[names[::-1]]) == 1
    # An array, and a table whose columns pandas has numbered, count by their places.
    assert classifier.score(texts, truth.to_numpy()) == 1
    assert names == [2, 0, 1] or classifier.score(texts, pd.DataFrame(truth.to_numpy())) == 1
    again = copy.deepcopy(classifier).fit(texts, matrix)
    assert np.array_equal(classifier.fit(texts, backwards).predict_proba(texts), again.predict_proba(texts))


def test_columns_of_other_names_are_refused(toy, tagged):
    texts, matrix = tagged[0][:32], pd.DataFrame(tagged[1][:32], columns=[10, 20, 30])
    other = matrix.rename(columns={30: 40})
    with pytest.raises(ValueError, match="eval_set's y has the columns 10, 20, 40, and y of fit had 10, 20, 30"):
        toy().fit(texts, matrix, eval_set=(texts, other))
    classifier = toy(warm_start=True).fit(texts, matrix)
    with pytest.raises(ValueError, match="y has the columns 10, 20, 40"):
        classifier.score(texts, other)
    with pytest.raises(ValueError, match="y has the columns 10, 20, 40"):
        classifier.fit(texts, other)


def test_the_names_of_columns_are_saved(toy, tagged, tmp_path):
    classifier = toy().fit(tagged[0][:32], pd.DataFrame(tagged[1][:32], columns=[10, 20, 30]))
    classifier.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved", verify=True)
    assert loaded.classes_.tolist() == [10, 20, 30] and loaded.classes_.dtype == np.int64


def test_tags_say_so():
    assert get_tags(BertClassifier()).classifier_tags.multi_label


def test_what_is_predicted_of_a_series_is_a_table_with_its_index_and_the_names(toy, tagged):
    texts, matrix = tagged[0][:32], tagged[1][:32]
    texts = texts.set_axis([f"row {i}" for i in range(32)])
    classifier = toy().fit(texts, pd.DataFrame(matrix, columns=["x", "a", "m"], index=texts.index))
    expected = classifier.predict(texts.tolist())
    assert isinstance(expected, np.ndarray)
    for X in (texts, texts.to_frame()):
        table = classifier.predict(X)
        pd.testing.assert_frame_equal(table, pd.DataFrame(expected, texts.index, ["x", "a", "m"]))
        assert table.dtypes.eq("int64").all()


def test_a_matrix_without_names_gives_matrices_and_takes_tables_by_their_places(toy, tagged):
    texts, binarizer = tagged[0][:32], MultiLabelBinarizer()
    matrix = binarizer.fit_transform([np.flatnonzero(row).tolist() for row in tagged[1][:32]])
    table = pd.DataFrame(matrix, columns=["x", "a", "m"])
    classifier = toy().fit(texts, matrix, eval_set=(texts, table))
    predicted = classifier.predict(texts)
    assert isinstance(predicted, np.ndarray) and len(binarizer.inverse_transform(predicted)) == 32
    assert classifier.score(texts, table) == classifier.score(texts, matrix) == accuracy_score(matrix, predicted)
    # Columns that are numbered in another order are found by their numbers.
    other = pd.DataFrame(matrix)[[2, 0, 1]]
    assert classifier.score(texts, other) == classifier.score(texts, matrix)


@pytest.mark.thorough
def test_tables_of_predictions_go_through_cross_validation(toy, tagged):
    texts = tagged[0][:48].set_axis(range(100, 148))
    table = pd.DataFrame(tagged[1][:48], columns=["x", "a", "m"], index=texts.index)
    folds = KFold(2, shuffle=True, random_state=0)
    found = cross_val_predict(toy(), texts, table, cv=folds)
    assert found.shape == (48, 3)
    for train, test in folds.split(texts):
        expected = toy().fit(texts.iloc[train], table.iloc[train]).predict(texts.iloc[test])
        assert np.array_equal(np.asarray(found)[test], expected)
    scores = cross_validate(toy(), texts, table, cv=folds, scoring=["f1_micro", "accuracy"])
    expected = [
        (np.asarray(found)[test] == table.to_numpy()[test]).all(axis=1).mean() for _, test in folds.split(texts)
    ]
    assert np.allclose(scores["test_accuracy"], expected) and np.isfinite(scores["test_f1_micro"]).all()
    search = GridSearchCV(toy(), {"epochs": [1, 2]}, cv=folds, scoring="f1_macro").fit(texts, table)
    assert search.predict(texts).index.equals(texts.index)


@pytest.mark.thorough
def test_grid_search_scores_a_matrix(quick, tagged):
    search = GridSearchCV(quick(), {"epochs": [1, 40]}, cv=2, scoring="f1_micro").fit(*tagged)
    assert search.best_params_ == {"epochs": 40} and search.best_score_ > 0.6


@pytest.mark.thorough
def test_one_label_alone_can_be_learned(quick, tagged):
    rows = [["hot"] if row[2] else [] for row in tagged[1]]
    classifier = quick().fit(tagged[0], rows)
    assert classifier.predict_proba(tagged[0]).shape == (160, 1)
    assert classifier.score(tagged[0], rows) > 0.9


# --- Weights


def test_sample_weight_counts(quick, tagged):
    texts, matrix = tagged[0][:64], tagged[1][:64]
    flipped = np.where(np.arange(64)[:, None] % 2, 1 - matrix, matrix)
    weight = np.where(np.arange(64) % 2, 0, 1)
    classifier = quick(epochs=40).fit(texts, flipped, weight)
    assert (classifier.predict(texts.tolist()) == matrix).mean() > 0.85


@pytest.mark.parametrize("class_weight", ["balanced", {2: 30}])
def test_class_weight_moves_a_rare_label_up(toy, class_weight):
    texts, matrix = ["the table"] * 60, np.zeros((60, 3), int)
    matrix[:, 0], matrix[::2, 1], matrix[:6, 2] = np.arange(60) % 3 == 0, 1, 1
    plain = toy(epochs=10, learning_rate=1e-2).fit(texts, matrix).predict_proba(texts[:1])[0]
    heavy = toy(epochs=10, learning_rate=1e-2, class_weight=class_weight).fit(texts, matrix).predict_proba(texts[:1])[0]
    assert plain[2] < 0.25 < 0.35 < heavy[2]


def test_balanced_weights_count_no_rows_of_weight_0():
    task = SeveralLabels(class_weight="balanced")
    task.classes_ = np.array(["a", "b"])
    labels = np.array([[1, 0], [0, 1], [1, 1], [1, 0], [1, 0]], bool)
    of_all = SimpleNamespace(labels=labels, weights=np.array([1, 1, 1, 0, 0.0]))
    of_some = SimpleNamespace(labels=labels[:3], weights=np.ones(3))
    found, expected = _learned_weights(task, of_all), _learned_weights(task, of_some)
    np.testing.assert_allclose(found[:3], expected)
    assert len(np.unique(np.abs(expected))) > 1


def test_balanced_weights_count_a_row_of_weight_two_twice():
    task = SeveralLabels(class_weight="balanced")
    task.classes_ = np.array(["a", "b"])
    labels = np.array([[1, 0], [0, 1], [1, 1], [1, 0]], bool)
    weighted = SimpleNamespace(labels=labels, weights=np.array([2, 1, 3, 1.0]))
    repeated = SimpleNamespace(labels=np.repeat(labels, [2, 1, 3, 1], axis=0), weights=np.ones(7))
    found, expected = _learned_weights(task, weighted), _learned_weights(task, repeated)
    np.testing.assert_allclose(found, expected[[0, 2, 3, 6]], rtol=1e-6)
    assert len(np.unique(np.abs(expected))) > 1


def _learned_weights(task, examples):
    task.learn(examples.labels, examples.weights)
    return task._signed_weights(examples)


def test_thresholds_may_be_set_by_label(quick, tagged, lists):
    classifier = quick().fit(tagged[0], lists)
    first, *_, last = classifier.classes_
    by_label = dict.fromkeys(classifier.classes_, 0.5) | {first: -np.inf, last: np.inf}
    for thresholds in (by_label, pd.Series(by_label)[::-1], pd.Series(list(by_label.values()))):
        classifier.thresholds_ = thresholds
        assert all(first in labels and last not in labels for labels in classifier.predict(tagged[0]))


@pytest.mark.parametrize("thresholds", [[0.5] * 4, [0.5, np.nan, 0.5], {"none": 0.5}, {0: 0.5}, "0.5, 0.5"])
def test_thresholds_that_do_not_fit_the_labels_are_refused(quick, tagged, thresholds, tmp_path):
    classifier = quick().fit(*tagged)
    classifier.thresholds_ = thresholds
    for use in (lambda: classifier.predict(tagged[0]), lambda: classifier.save(tmp_path / "model")):
        with pytest.raises(ValueError, match="should be one number for each of the labels"):
            use()


def test_thresholds_may_be_set_to_a_list(toy, tagged, tmp_path):
    classifier = toy(epochs=1).fit(tagged[0][:16], tagged[1][:16])
    classifier.thresholds_ = [0.0, 1.1, 0.0]
    assert classifier.predict(tagged[0][:2].tolist()).tolist() == [[1, 0, 1]] * 2
    classifier.save(tmp_path / "model")
    assert kbert.load(tmp_path / "model").thresholds_.tolist() == [0.0, 1.1, 0.0]
    classifier.thresholds_ = [0.0, np.inf, -np.inf]  # always, and never
    classifier.save(tmp_path / "model")
    assert kbert.load(tmp_path / "model").thresholds_.tolist() == [0.0, np.inf, -np.inf]


def test_one_label_a_row_is_no_matrix(toy, tagged):
    classifier = toy(epochs=1).fit(tagged[0][:16], tagged[1][:16])
    with pytest.raises(ValueError, match="y has one label a row, and y of fit was a matrix with a column for each of"):
        classifier.score(tagged[0][:4], ["a", "b", "a", "b"])


@pytest.mark.parametrize("class_weight", ["balanced", {0: 5, 2: 30}])
def test_held_out_rows_count_without_class_weight(toy, tagged, monkeypatch, class_weight):
    data, losses = [], []
    training_data, mean_loss = SeveralLabels.training_data, SeveralLabels.mean_loss

    def note_data(task, examples):
        data.append(training_data(task, examples))
        return data[-1]

    def note_loss(task, outputs, examples):
        losses.append((outputs, examples, mean_loss(task, outputs, examples)))
        return losses[-1][-1]

    monkeypatch.setattr(SeveralLabels, "training_data", note_data)
    monkeypatch.setattr(SeveralLabels, "mean_loss", note_loss)
    toy(class_weight=class_weight, tune_thresholds=True).fit(*tagged)
    assert len(np.unique(np.abs(data[0].targets))) > 1
    outputs, examples, loss = losses[0]
    assert loss == pytest.approx(np.log1p(np.exp(np.where(examples.labels, -outputs, outputs))).mean())


def test_weights_of_unknown_labels_are_refused(toy, tagged):
    with pytest.raises(ValueError, match="class_weight names .'cold'."):
        toy(class_weight={"cold": 2}).fit(tagged[0][:4], [["hot"], ["blue"], [], ["happy"]])
    with pytest.raises(ValueError, match="more than 0, got 0"):
        toy(class_weight={1: 0}).fit(tagged[0][:16], tagged[1][:16])


# --- Held-out rows


def test_early_stopping_watches_the_average_precision(toy, tagged):
    texts, matrix = tagged
    classifier = toy(epochs=6, learning_rate=1e-2, early_stopping=True, n_iter_no_change=6)
    classifier.fit(texts[:100], matrix[:100], eval_set=(texts[100:], matrix[100:]))
    best = max(classifier.history_["val_score"])
    scored = average_precision_score(matrix[100:].ravel(), classifier.predict_proba(texts[100:]).ravel())
    assert scored == pytest.approx(best, abs=1e-6)
    # At the start no probability reaches 0.5, so that F1 says nothing, and the ranking does.
    assert classifier.history_["val_score"][0] < best


def test_tuned_thresholds_are_better_on_their_rows(toy, tagged):
    texts, matrix = tagged
    plain = toy(epochs=3, learning_rate=2e-3).fit(texts[:100], matrix[:100])
    tuned = toy(epochs=3, learning_rate=2e-3, tune_thresholds=True)
    tuned.fit(texts[:100], matrix[:100], eval_set=(texts[100:], matrix[100:]))
    assert np.array_equal(plain.predict_proba(texts), tuned.predict_proba(texts))
    before, after = (
        f1_score(matrix[100:], each.predict(texts[100:]), average="macro", zero_division=0) for each in (plain, tuned)
    )
    assert before < after and not np.array_equal(tuned.thresholds_, plain.thresholds_)


def test_rows_are_split_off_for_thresholds(toy, tagged):
    classifier = toy(tune_thresholds=True, validation_fraction=0.25).fit(*tagged)
    assert classifier.thresholds_.shape == (3,) and "val_score" in classifier.history_


@pytest.mark.parametrize("fraction", [0.1, 0.8])
def test_rows_are_split_off_however_rare_the_labels_are(tagged, fraction):
    """As many labels as rows, and labels that only rows without weight have."""
    rng = np.random.default_rng(0)
    labels = np.hstack([rng.random((60, 2)) < 0.5, np.eye(60, 40, dtype=bool)])
    weights = np.where(np.arange(60) < 20, 0.0, 1.0)
    strata = SeveralLabels().strata(labels, weights)
    training, validation = split_rows(strata, weights, fraction, 0, "early_stopping")
    assert len(validation) == round(40 * fraction)
    assert sorted([*training, *validation]) == list(range(20, 60))


def test_rows_with_a_rare_label_are_on_both_sides():
    labels = np.zeros((200, 2), bool)
    labels[:10, 0] = labels[:100, 1] = True
    strata = SeveralLabels().strata(labels, np.ones(200))
    for seed in range(5):
        training, validation = split_rows(strata, np.ones(200), 0.1, seed, "early_stopping")
        assert labels[validation, 0].sum() == 1 and labels[training, 0].sum() == 9


def test_a_matrix_without_any_label_is_refused_as_lists_are(toy, tagged):
    for nothing in (np.zeros((16, 3), int), [[]] * 16):
        with pytest.raises(ValueError, match="No row of y has a label: nothing could be learned"):
            toy().fit(tagged[0][:16], nothing)


def test_labels_of_rows_without_weight_are_none(toy, tagged):
    has_label = tagged[1][:16].any(axis=1)
    assert 0 < has_label.sum() < 16
    with pytest.raises(ValueError, match="No row of y whose weight is not 0 has a label"):
        toy().fit(tagged[0][:16], tagged[1][:16], (~has_label).astype(float))


def test_a_label_that_few_held_out_rows_have_is_told(toy):
    """One such row makes any threshold below its probability the best one, and many rows may get the label."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["good", "bad", "table", "chair", "fine"], 6)) for _ in range(200)]
    matrix = rng.random((200, 3)) < [0.5, 0.4, 0.05]
    with pytest.warns(ParameterWarning, match=r"the thresholds of 1 labels by fewer than 5 .*: \[2\]"):
        toy(epochs=1, tune_thresholds=True).fit(texts, matrix.astype(int))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParameterWarning)
        toy(epochs=1, tune_thresholds=True).fit(texts, matrix.astype(int), eval_set=(texts, matrix.astype(int)))


def test_a_threshold_is_not_the_probability_of_a_row():
    """So a row that is read beside others, with logits that round differently, gets the same labels."""
    task = SeveralLabels()
    task.classes_ = np.array(["low", "high", "around"])
    labels = np.zeros((40, 3), bool)
    labels[:10], labels[30] = True, [True, False, True]
    logits = np.linspace(-3, -1, 40)[::-1, None] + [0, 4, 2]
    examples = SimpleNamespace(labels=labels, weights=np.ones(40))
    thresholds = task.best_thresholds(logits, examples)
    assert (np.abs(expit(logits) - thresholds).min(axis=0) > 1e-4).all()
    assert ((expit(logits) >= thresholds).sum(axis=0) == 10).all()


def test_thresholds_are_for_several_labels(toy, reviews):
    texts, labels = reviews.text[:32], reviews.label[:32]
    with pytest.raises(ValueError, match="tune_thresholds is for several labels a row"):
        toy(tune_thresholds=True).fit(texts, labels)
    classifier = toy(warm_start=True).fit(texts, labels).set_params(tune_thresholds=True)
    with pytest.raises(ValueError, match="tune_thresholds is for several labels a row"):
        classifier.fit(texts, labels)


def test_best_thresholds_by_trial_of_all():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 4))
    indicator = rng.random((60, 4)) < 1 / (1 + np.exp(-logits + 1))
    indicator[:, 3] = False
    weights = rng.random(60)
    task = SeveralLabels(classes_=np.arange(4))
    found = task.best_thresholds(logits, TextExamples(None, indicator, weights))
    probabilities = 1 / (1 + np.exp(-logits))
    for label in range(3):
        scores = {
            t: f1_score(indicator[:, label], probabilities[:, label] >= t, sample_weight=weights, zero_division=0)
            for t in [0.0, 0.5, found[label], *probabilities[:, label]]
        }
        assert scores[found[label]] == pytest.approx(max(scores.values()))
        if scores[0.5] == max(scores.values()):
            assert found[label] == 0.5
    assert found[3] == 0.5


# --- Going on, saving, refusing


def test_a_saved_one_predicts_the_same(toy, tagged, lists, tmp_path):
    classifier = toy(epochs=3, tune_thresholds=True, learning_rate=1e-2).fit(tagged[0], lists)
    classifier.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved", verify=True)
    assert loaded.predict(tagged[0]) == classifier.predict(tagged[0])
    assert np.array_equal(loaded.thresholds_, classifier.thresholds_)
    assert loaded.classes_.tolist() == classifier.classes_.tolist() and loaded.y_type_ == "lists"


def test_a_fit_with_one_label_a_row_forgets_thresholds(toy, tagged, reviews):
    classifier = toy().fit(tagged[0][:32], tagged[1][:32]).fit(reviews.text[:32], reviews.label[:32])
    assert classifier.y_type_ == "labels" and not hasattr(classifier, "thresholds_")


def test_it_goes_on_with_the_same_labels_only(toy, tagged, lists):
    classifier = toy(warm_start=True).fit(tagged[0][:48], lists[:48])
    classifier.fit(tagged[0][:16], [["hot"], []] * 8)
    assert classifier.classes_.tolist() == NAMES.tolist()
    with pytest.raises(ValueError, match=r"y holds labels that y of fit did not: \['cold'\]"):
        classifier.fit(tagged[0][:2], [["cold"], ["hot"]])
    classifier = toy(warm_start=True).fit(tagged[0][:32], tagged[1][:32])
    with pytest.raises(ValueError, match="y has 2 columns, and y of fit had 3"):
        classifier.fit(tagged[0][:32], tagged[1][:32, :2])


def test_nothing_is_predicted_before_fit():
    with pytest.raises(NotFittedError):
        BertClassifier().score(["a"], [["b"]])


def test_where_half_would_leave_rows_without_their_labels_the_thresholds_are_lower(toy, tagged):
    texts, matrix = tagged
    matrix = matrix * [1, 1, 0] * (np.arange(len(matrix)) % 4 == 0)[:, None]  # few rows have a label, and one none
    learned = toy(epochs=2).fit(texts, matrix)
    probabilities = learned.predict_proba(texts)
    assert not learned.at_least_one_ and (probabilities < 0.5).all()
    assert (learned.thresholds_[:2] < 0.5).all() and learned.thresholds_[2] == 0.5
    predicted = np.asarray(learned.predict(texts))
    assert predicted[:, :2].any(axis=0).all() and not predicted[:, 2].any()
    # No other threshold has a higher F1 on the rows of the fit.
    for label in range(2):
        scores = [f1_score(matrix[:, label], probabilities[:, label] >= t) for t in probabilities[:, label]]
        assert f1_score(matrix[:, label], predicted[:, label]) == pytest.approx(max(scores))
    # Not where weights of the classes ask for few labels, nor for a label that hardly any row has.
    assert (toy(epochs=2, class_weight={1: 0.9}).fit(texts, matrix).thresholds_ == 0.5).all()
    rare = matrix * (np.arange(len(matrix)) < 12)[:, None]
    assert 0 < rare[:, 0].sum() < 5 and (toy(epochs=2).fit(texts, rare).thresholds_ == 0.5).all()
    # A warm start on labels that the texts tell brings back 0.5.
    warm = copy.deepcopy(learned).set_params(warm_start=True, epochs=40, dropout=0, learning_rate=1e-3)
    assert (warm.fit(texts, tagged[1]).thresholds_ == 0.5).all()


@pytest.fixture
def rarely():
    """Sixty tags of four rows each, and a row without any: a label is 1.7% of the rows."""
    rng = np.random.default_rng(0)
    texts = [f"the table {' '.join(rng.choice(['was', 'and', 'it', 'a'], 4))} {i}" for i in range(241)]
    return texts, [[], *([f"tag {i % 60}"] for i in range(240))]


def test_rare_labels_have_a_lower_threshold_together(toy, rarely):
    texts, labels = rarely
    classifier = toy(epochs=2).fit(texts, labels)
    assert not classifier.at_least_one_ and len(set(classifier.thresholds_)) == 1
    assert classifier.thresholds_[0] < 0.5 and any(classifier.predict(texts))


def test_rows_without_weight_do_not_tell_that_rows_have_no_label(toy, rarely):
    texts, labels = rarely
    weights = np.r_[0.0, np.ones(240)]
    assert toy(epochs=1).fit(texts, labels, sample_weight=weights).at_least_one_


def test_a_run_that_learned_nothing_of_rare_labels_is_told(toy, rarely):
    texts, labels = rarely
    with pytest.warns(FailedRunWarning, match="Nothing was learned"):
        toy(epochs=1, learning_rate=1e-30, head_start="random").fit(texts, labels)


def test_a_row_gets_a_label_where_each_row_of_fit_had_one(toy, tagged, tmp_path):
    texts, matrix = tagged
    some = matrix.any(axis=1)
    learned = toy().fit(texts[some], matrix[some])
    learned.thresholds_ = np.array([1.0, 1.0, 1.0])  # which no probability reaches
    learned.save(tmp_path / "saved")
    for model in (learned, BertClassifier.load(tmp_path / "saved")):
        predicted = model.predict(texts.tolist())
        assert model.at_least_one_ and (predicted.sum(axis=1) == 1).all()
        np.testing.assert_array_equal(predicted.argmax(axis=1), model.predict_proba(texts.tolist()).argmax(axis=1))
    others = toy().fit(texts, matrix)
    others.thresholds_ = np.array([1.0, 1.0, 1.0])
    assert not others.at_least_one_ and not others.predict(texts.tolist()).any()
