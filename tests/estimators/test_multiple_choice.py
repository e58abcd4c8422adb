"""Choosing among options: learned from the context, whatever their number, the container and the company of a row."""

import copy
import json
import pickle
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from keras import ops
from safetensors.numpy import load_file
from scipy.special import log_softmax
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from kbert import BertClassifier, BertConfig, BertMultipleChoice
from kbert.data.batches import TrainingBatches, make_batch
from kbert.data.packing import Layout
from kbert.errors import (
    DivergedError,
    FailedRunWarning,
    MissingTextWarning,
    TruncationWarning,
    UnderfitWarning,
    WeightsMismatchError,
)
from kbert.estimators.parameters import Parameters
from kbert.estimators.recipe import settle_head
from kbert.model import BertForSequenceClassification
from kbert.tasks.choice import Choice
from kbert.text import build_choices, build_sequences
from kbert.training.backends import backend_step
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.losses import choice_cross_entropy
from kbert.training.step import StepBatch
from kbert.weights import save_sequence_classifier
from kbert.weights.convert import convert

pytestmark = pytest.mark.slow

KINDS = ("red", "blue", "hot", "cold")


def riddles_of(n, seed=0):
    """Rows of two to four options, of which the context names the right one: without it nothing could be told.

    All sequences have the same length, and 16 rows have 48 options, so that one compiled step serves most fits.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        options = rng.permutation(KINDS)[: (2, 3, 4, 3)[i % 4]].tolist()
        right = int(rng.integers(len(options)))
        rows.append((" ".join(rng.permutation(["the", options[right]])), "was it", options, right))
    return pd.DataFrame(rows, columns=["context", "question", "options", "label"])


@pytest.fixture(scope="module")
def make(quick_folder):
    """A function that makes a BertMultipleChoice on toy weights that learn."""
    values = dict(weights=quick_folder, max_length=16, epochs=40, batch_size=16, learning_rate=3e-3, dropout=0.0)
    return lambda **changes: BertMultipleChoice(**{**values, "dtype": "float32", "random_state": 0, **changes})


@pytest.fixture(scope="module")
def riddles():
    return riddles_of(160)


@pytest.fixture(scope="module")
def new():
    """Rows that are not learned from."""
    return riddles_of(60, seed=1)


@pytest.fixture(scope="module")
def fitted(make, riddles):
    """It has learned the riddles. Tests must not change it."""
    return make().fit(riddles, riddles.label)


def tuples(table):
    return list(zip(table.context, table.question, table.options, strict=True))


# --- What is learned


@pytest.mark.parametrize(("given", "narrow", "base"), [("auto", "mean", "cls"), ("cls", "cls", "cls"), ("mean",) * 3])
def test_the_head_reads_the_mean_of_narrow_models(given, narrow, base):
    for size, expected in (("minilm-l6", narrow), ("base", base), ("large", base)):
        # Whatever a checkpoint was trained with.
        for config in (BertConfig.from_size(size), replace(BertConfig.from_size(size), classifier_pooling="mean")):
            task, parameters = Choice(classifier_pooling=given), Parameters(classifier_pooling=given)
            settle_head(parameters, task, config)
            assert parameters.classifier_pooling == expected
            assert task.probe(config, None, None, 0).config.classifier_pooling == expected


def test_a_chooser_made_of_a_classifier_that_reads_the_mean_is_saved_and_loaded(make, riddles, new, tmp_path):
    classifier = BertClassifier(weights=make().weights, classifier_pooling="mean", max_length=16, epochs=1)
    classifier.fit(["the red", "the blue"] * 8, [0, 1] * 8).save(tmp_path / "classifier")
    for pooling in ("cls", "mean"):
        chooser = make(weights=tmp_path / "classifier", epochs=1, classifier_pooling=pooling)
        chooser.fit(riddles[:48], riddles.label[:48]).save(tmp_path / pooling)
        assert chooser.config_.classifier_pooling == pooling
        loaded = BertMultipleChoice.load(tmp_path / pooling, verify=True)
        np.testing.assert_array_equal(loaded.predict_proba(new), chooser.predict_proba(new))


@pytest.mark.compiles
@pytest.mark.backend
def test_the_right_option_is_learned_from_the_context(fitted, new):
    assert fitted.score(new, new.label) > 0.9
    predicted = fitted.predict(new)
    assert predicted.dtype == np.int64 and (predicted == new.label).mean() == fitted.score(new, new.label)
    elsewhere = new.assign(context=np.roll(new.context, 1))
    assert fitted.score(elsewhere, new.label) < 0.6
    assert fitted.n_iter_ == 40 and fitted.history_["loss"][-1] < 0.2 < 0.9 < fitted.history_["loss"][0]
    assert fitted.feature_names_in_.tolist() == ["context", "question", "options"] and fitted.n_features_in_ == 3
    assert fitted.model_.num_labels == 1 and not hasattr(fitted, "classes_")


@pytest.mark.compiles
@pytest.mark.backend
def test_probabilities_are_a_softmax_over_a_rows_own_options_and_nan_past_them(fitted, new):
    probabilities = fitted.predict_proba(new)
    n_options = new.options.map(len).to_numpy()
    assert set(n_options) == {2, 3, 4}
    assert probabilities.shape == (60, 4) and probabilities.dtype == np.float64
    own = np.arange(4) < n_options[:, None]
    assert np.array_equal(np.isnan(probabilities), ~own)
    np.testing.assert_allclose(np.nansum(probabilities, axis=1), 1)
    assert np.array_equal(np.nanargmax(probabilities, axis=1), fitted.predict(new))
    assert fitted.predict_proba(new[n_options == 2]).shape[1] == 2


def test_scores_that_are_not_finite_are_told_by_row(fitted, new):
    broken = copy.deepcopy(fitted)
    bias = broken.model_.weights[-1]
    assert bias.shape == (1,)
    bias.assign(np.array([np.nan], "float32"))
    with pytest.raises(DivergedError, match="not finite for 60 of 60 rows, first for row 0"):
        broken.predict(new)


@pytest.mark.thorough
def test_without_questions_the_context_decides_too(make, riddles, new):
    chooser = make().fit(riddles[["context", "options"]], riddles.label)
    assert chooser.score(list(zip(new.context, new.options, strict=True)), new.label) > 0.9
    assert chooser.feature_names_in_.tolist() == ["context", "options"] and chooser.n_features_in_ == 2


def test_from_a_random_start_the_vocabulary_has_the_words_of_all_columns(make, riddles):
    size = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    chooser = make(weights=None, size=size, epochs=1).fit(riddles, riddles.label)
    assert {"the", "was", "it", *KINDS} <= set(chooser.tokenizer_.vocab)


# --- Sequences


def test_a_sequence_is_context_then_question_and_option(fitted):
    tokenizer = fitted.tokenizer_
    contexts, questions = ["the table", "", "a red chair " * 9], ["was it", "is", ""]
    options = [["red", "blue hot"], ["it", "the chair", "cold"], ["room", "the table " * 9]]
    built = build_choices(tokenizer, contexts, questions, options, max_length=16)
    assert built.rows.tolist() == [0, 0, 1, 1, 1, 2, 2]
    first = [contexts[row] for row in built.rows]
    second = ["was it red", "was it blue hot", "is it", "is the chair", "is cold", "room", "the table " * 9]
    pairs = build_sequences(tokenizer, first, second, max_length=16)
    assert built.tokens.values.tolist() == pairs.tokens.values.tolist()
    assert built.tokens.splits.tolist() == pairs.tokens.splits.tolist()
    assert built.first_length.tolist() == pairs.first_length.tolist()
    assert built.truncated.tolist() == pairs.truncated.tolist() == [False] * 5 + [True] * 2
    alone = build_choices(tokenizer, contexts, None, options, max_length=16)
    plain = build_choices(tokenizer, contexts, [""] * 3, options, max_length=16)
    assert alone.tokens.values.tolist() == plain.tokens.values.tolist()


def test_rows_that_were_cut_are_counted_once(fitted, new):
    long = [("the red chair " * 9, "was it", ["red", "blue", "hot"]), *tuples(new[:3])]
    with pytest.warns(TruncationWarning, match="1 of 4 rows have more than max_length=16.*A larger max_length") as told:
        assert fitted.predict(long).shape == (4,)
    (warning,) = [warning for warning in told if warning.category is TruncationWarning]
    assert "long_text" not in str(warning.message) and warning.filename == __file__


def test_cut_rows_of_an_eval_set_are_told_at_the_users_line(make, new):
    long = [("the red chair " * 9, "was it", ["red", "blue", "hot"])]
    with pytest.warns(TruncationWarning) as told:
        make(epochs=1).fit(new[:8], new.label[:8], eval_set=(long, [0]))
    assert [one.filename for one in told if one.category is TruncationWarning] == [__file__]


def test_a_missing_context_or_question_is_an_empty_text(fitted):
    options = ["red", "blue"]
    with pytest.warns(MissingTextWarning, match="4 of the texts in 3 rows") as told:
        found = fitted.predict_proba([(None, "was it", options), ("the red", np.nan, options), (pd.NA, "", options)])
    assert [warning.filename for warning in told if warning.category is MissingTextWarning] == [__file__]
    with pytest.warns(MissingTextWarning):
        np.testing.assert_allclose(
            found, fitted.predict_proba([("", "was it", options), ("the red", "", options), ("", "", options)])
        )


# --- The loss


def reference_loss(scores, questions, weights):
    """The weighted cross-entropy in nats, question by question."""
    total = 0.0
    for question in np.unique(questions[questions > 0]):
        own = questions == question
        total -= (log_softmax(scores[own]) * weights[own]).sum()
    return total


@pytest.mark.backend
@pytest.mark.parametrize("scale", [1, 300])
def test_the_loss_is_the_softmax_of_each_question_wherever_its_options_are(scale):
    rng = np.random.default_rng(0)
    questions = np.repeat([3, 8, 9, 41], [2, 3, 4, 7])
    right = [0, 4, 6, 15]
    weights = np.zeros(16, "float32")
    weights[right] = [0.25, 0.5, 0.0, 1.5]
    # In any places of 5 rows of 6 slots, the rest empty, with scores that would show.
    places = rng.permutation(30)[:16]
    scores, of_slot, at_slot = rng.normal(size=30) * scale + 1000, np.zeros(30, "int32"), np.zeros(30, "float32")
    of_slot[places], at_slot[places] = questions, weights
    found = choice_cross_entropy(
        ops.convert_to_tensor(scores.astype("float32").reshape(5, 6, 1)),
        ops.convert_to_tensor(of_slot.reshape(5, 6)),
        ops.convert_to_tensor(at_slot.reshape(5, 6)),
    )
    expected = reference_loss(scores.astype("float32").astype("float64"), of_slot, at_slot)
    assert float(found) == pytest.approx(expected, rel=1e-4) and expected > 0


@pytest.fixture(scope="module")
def step(fitted):
    """A function that gives loss and gradients of a step on some options, packed in some way."""
    options = [["red", "blue"], ["hot", "cold", "red"], ["blue", "cold", "red", "hot"]]
    sequences = build_choices(fitted.tokenizer_, ["the red", "it was hot", "a blue room"], None, options)
    right = [0, 2, 7]  # among all options
    model = BertForSequenceClassification(fitted.config_, 1, dtype="float32", seed=3)
    n = len(model.trainable_variables)
    hyper = Hyperparameters(
        np.zeros(n, "float32"), np.zeros(n, "float32"), *map(np.float32, (0.1, 0.001, 1.0)), np.zeros(2, "uint32")
    )

    def run(packed, layout, questions):
        batch = make_batch(sequences, [np.array(row) for row in packed], layout)
        weights = np.where(np.isin(batch.texts, [right[i] for i in questions]), 1 / len(questions), 0)
        targets = np.where(batch.texts >= 0, sequences.rows[batch.texts] + 1, 0)
        trainer = backend_step().Trainer(model, choice_cross_entropy)
        arrays = (targets.astype("int32"), weights.astype("float32"))
        gradients, loss = trainer.accumulate(StepBatch(batch.inputs, *arrays), hyper)
        return float(loss), [np.array(ops.convert_to_numpy(gradient)) for gradient in gradients]

    return run


@pytest.mark.compiles
@pytest.mark.backend
def test_a_question_trains_the_same_alone_and_among_others_however_its_options_are_packed(step):
    one, two = Layout(9, 16, 2), Layout(4, 48, 6)
    alone = [step([[i] for i in options], one, [k]) for k, options in enumerate(([0, 1], [2, 3, 4], [5, 6, 7, 8]))]
    expected = np.mean([loss for loss, _ in alone])
    together = step([[i] for i in range(9)], one, [0, 1, 2])
    packed = step([[8, 0, 2], [1, 7, 4], [3, 5, 6]], two, [0, 1, 2])  # and a row of padding
    for loss, gradients in (together, packed):
        assert loss == pytest.approx(expected, abs=1e-6)
        for found, *each in zip(gradients, *(gradients for _, gradients in alone), strict=True):
            np.testing.assert_allclose(found, np.mean(each, axis=0), atol=2e-6)
    assert max(np.abs(gradient).max() for gradient in packed[1]) > 1e-3


@pytest.mark.backend
def test_the_loss_of_an_epoch_is_the_mean_over_questions(make, riddles):
    some = riddles[:40]  # two steps of 16 and one of 8
    chooser = make(learning_rate=1e-12, epochs=1).fit(some, some.label)
    probabilities = chooser.predict_proba(some)[np.arange(40), some.label]
    assert chooser.history_["loss"] == pytest.approx([-np.log(probabilities).mean()], abs=1e-5)


def test_every_step_has_whole_rows_and_exactly_batch_size_of_them(fitted, riddles):
    task = fitted._task()
    columns = task.read(riddles[:50])
    examples = task.examples(columns, riddles.label[:50].to_numpy(), np.ones(50), fitted.tokenizer_)
    data = task.training_data(examples)
    texts = data.sequences
    steps = TrainingBatches(texts, 16, seed=0, whole_rows=task.whole_rows).deal(0)
    of_steps = [set(texts.rows[step]) for step in steps]
    assert [len(rows) for rows in of_steps] == [16, 16, 16, 2] and set.union(*of_steps) == set(range(50))
    assert [len(step) for step in steps] == [riddles.options[list(rows)].map(len).sum() for rows in of_steps]


# --- Containers, order, company


@pytest.mark.parametrize(
    "container",
    [
        tuples,
        lambda table: [list(row) for row in tuples(table)],
        lambda table: pd.Series(tuples(table), index=range(7, 7 + len(table))),
        lambda table: table[["context", "question", "options"]].to_numpy(),
        lambda table: table[["label", "options", "question", "context"]],
        lambda table: table[["context", "question", "options"]].set_axis([0, 1, 2], axis=1),
        lambda table: table.assign(options=table.options.map(tuple)),
        lambda table: table.assign(options=table.options.map(np.array)),
        lambda table: table.assign(options=table.options.map(lambda o: np.array(o, object))),
        lambda table: table.convert_dtypes(),
    ],
)
def test_every_container_gives_the_same(fitted, new, container):
    assert np.array_equal(fitted.predict_proba(container(new)), fitted.predict_proba(new), equal_nan=True)
    assert fitted.score(container(new), new.label) == fitted.score(new, new.label)


def test_columns_are_known_by_their_place_where_none_has_its_name(make, riddles, new):
    renamed = riddles[:48].drop(columns="label").set_axis(["passage", "ask", "choices"], axis=1)
    chooser = make(epochs=1).fit(renamed, riddles.label[:48])
    expected = make(epochs=1).fit(tuples(riddles[:48]), riddles.label[:48].tolist())
    assert not hasattr(expected, "feature_names_in_") and expected.n_features_in_ == 3
    assert np.array_equal(chooser.predict_proba(tuples(new)), expected.predict_proba(tuples(new)), equal_nan=True)
    assert chooser.feature_names_in_.tolist() == ["passage", "ask", "choices"]
    with pytest.raises(ValueError, match="(?s)feature names should match those.*'passage', 'ask', 'choices'"):
        chooser.predict(new)


def test_a_table_may_have_other_columns(make, riddles, new):
    chooser = make(epochs=1).fit(riddles[["context", "options"]], riddles.label)
    other = new[["context", "options"]]
    np.testing.assert_array_equal(chooser.predict(other.assign(id=range(len(new)))), chooser.predict(other))


def test_nothing_that_is_handed_over_is_changed(make, riddles):
    table = riddles[:32]
    before = pickle.dumps((table.to_dict("list"), table.index.tolist()))
    make(epochs=1).fit(table, table.label).predict_proba(table)
    assert pickle.dumps((table.to_dict("list"), table.index.tolist())) == before


@pytest.mark.backend
def test_a_row_gets_the_same_alone_and_in_any_order(fitted, new):
    expected = fitted.predict_proba(new)
    order = np.random.default_rng(0).permutation(len(new))
    np.testing.assert_allclose(fitted.predict_proba(new.iloc[order]), expected[order], atol=1e-5)
    for i in (0, 7, 31):
        alone = fitted.predict_proba(new.iloc[[i]])
        np.testing.assert_allclose(alone[0], expected[i, : len(new.options[i])], atol=1e-5)


@pytest.mark.parametrize("part", [1, 7])
def test_the_parts_of_a_long_column_join_in_order(fitted, new, monkeypatch, part):
    expected = fitted.predict_proba(new)
    monkeypatch.setattr("kbert.tasks.texts.CHUNK_ROWS", part)
    np.testing.assert_allclose(fitted.predict_proba(new), expected, atol=1e-5)


def test_options_change_places_with_their_probabilities(fitted, new):
    turned = new.assign(options=new.options.map(lambda options: options[::-1]))
    n_options = new.options.map(len)
    found, expected = fitted.predict_proba(turned), fitted.predict_proba(new)
    for row, other, n in zip(found, expected, n_options, strict=True):
        np.testing.assert_allclose(row[:n], other[:n][::-1], atol=1e-5)


# --- Weights, early stopping, going on


@pytest.mark.thorough
def test_rows_of_weight_zero_are_as_good_as_absent(make, riddles, new):
    wrong = np.arange(160) % 4 == 0
    labels = np.where(wrong, (riddles.label + 1) % riddles.options.map(len), riddles.label)
    assert make().fit(riddles, labels, ~wrong).score(new, new.label) > 0.9


def test_in_one_step_a_weight_counts_as_that_many_rows(make, riddles, new):
    some, weight = riddles[:16], np.tile([0, 1, 0, 3], 4)

    def learned(*rows):
        return make(epochs=4).fit(*rows).predict_proba(new)

    weighted = learned(some, some.label, weight)
    repeated = some.loc[some.index.repeat(weight)]
    np.testing.assert_allclose(weighted, learned(repeated, repeated.label), atol=1e-4)
    assert not np.allclose(weighted, learned(some, some.label), atol=1e-3, equal_nan=True)


def test_the_score_is_of_what_predict_gives_and_takes_weights(fitted, new, answering):
    right = fitted.predict(new)
    wrong = np.where(np.arange(60) < 20, (right + 1) % new.options.map(len), right)
    assert fitted.score(new, wrong) == pytest.approx(2 / 3)
    assert fitted.score(new, wrong, np.arange(60) >= 20) == 1
    assert answering(fitted, np.zeros(60)).score(new, [0] * 15 + [1] * 45) == 0.25


def test_early_stopping_watches_the_accuracy_and_restores_the_best(make, riddles, new):
    wrong = (new.label + 1) % new.options.map(len)
    chooser = make(early_stopping=True).fit(riddles, riddles.label, eval_set=(new, wrong))
    scores = chooser.history_["val_score"]
    assert chooser.n_iter_ == len(scores) < 15 and max(scores) > scores[-1]
    assert chooser.score(new, wrong) == pytest.approx(max(scores))
    # Without an eval_set a validation set is split off, whatever the indices of the rows.
    assert len(make(early_stopping=True, epochs=2).fit(riddles[:20], [0, 1] * 9 + [0, 0]).history_["val_score"]) == 2


@pytest.mark.backend
def test_an_eval_set_is_scored_after_each_epoch(make, riddles, new):
    chooser = make(epochs=2).fit(riddles[:48], riddles.label[:48], eval_set=(new, new.label))
    assert chooser.history_["val_score"][-1] == pytest.approx(chooser.score(new, new.label))
    likely = chooser.predict_proba(new)[np.arange(60), new.label]
    assert chooser.history_["val_loss"][-1] == pytest.approx(-np.log(likely).mean(), abs=1e-5)
    with pytest.raises(ValueError, match="eval_set's y is 2 in row 0, which has 2 options"):
        make(epochs=1).fit(riddles[:48], riddles.label[:48], eval_set=([("a", "b", ["c", "d"])], [2]))
    with pytest.raises(ValueError, match="eval_set must be a pair .*got a list with 1 such"):
        make(epochs=1).fit(riddles[:48], riddles.label[:48], eval_set=[(new, new.label)])
    with pytest.raises(
        ValueError, match="eval_set's X has 2 features, but BertMultipleChoice is expecting 3.*context, question"
    ):
        make(epochs=1).fit(riddles[:48], riddles.label[:48], eval_set=([("a", ["c", "d"])], [0]))


@pytest.mark.thorough
def test_a_warm_start_goes_on(make, riddles, new):
    chooser = make(warm_start=True).fit(riddles, riddles.label)
    before = chooser.predict_proba(new)
    chooser.set_params(epochs=1, learning_rate=1e-9).fit(riddles[:48], riddles.label[:48])
    np.testing.assert_allclose(chooser.predict_proba(new), before, atol=1e-4)


def test_a_run_that_learned_nothing_is_told_and_started_again(make):
    rows = [("the red", "was it", ["red"] * 3)] * 32
    with pytest.warns(FailedRunWarning, match="guessing alone gives 1.099") as told:
        make(epochs=1, n_restarts=1).fit(rows, [0, 1] * 16)
    told = [str(warning.message) for warning in told if warning.category is FailedRunWarning]
    assert ["n_restarts=1" in message for message in told] == [True, False]


# --- scikit-learn


@pytest.mark.thorough
def test_it_works_in_searches_and_cross_validation(make, riddles):
    search = GridSearchCV(make(), {"epochs": [1, 15]}, cv=2).fit(riddles, riddles.label)
    assert search.best_params_ == {"epochs": 15} and search.best_score_ > 0.8
    assert search.predict(riddles).shape == (160,)
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()
    scores = cross_val_score(make(epochs=1), tuples(riddles), riddles.label, cv=2, scoring="accuracy")
    assert scores.shape == (2,) and np.isfinite(scores).all()
    assert cross_val_predict(make(epochs=1), riddles, riddles.label, cv=2).shape == (160,)


def test_it_is_no_classifier_whose_folds_were_stratified_by_the_index(make, riddles):
    assert not is_classifier(make()) and not is_regressor(make())
    rare = riddles[:8].assign(options=[["red", "blue", "hot", "cold", "a", "the", "it", "was"]] * 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for category in (FailedRunWarning, UnderfitWarning):
            warnings.simplefilter("ignore", category)
        assert len(cross_val_score(make(epochs=1), rare, np.arange(8), cv=2)) == 2


# --- Folders


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    """A folder with the fitted estimator. Tests must not change it."""
    folder = tmp_path_factory.mktemp("saved") / "riddles"
    fitted.save(folder)
    return folder


@pytest.mark.backend
def test_saved_and_loaded_or_pickled_it_predicts_the_same(fitted, saved, new):
    for again in (BertMultipleChoice.load(saved, verify=True), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(again.predict_proba(new), fitted.predict_proba(new), equal_nan=True)
        assert again.get_params() == {**fitted.get_params(), "weights": again.weights}
        assert (again.history_, again.n_iter_, again.n_features_in_) == (fitted.history_, 40, 3)
        assert again.feature_names_in_.tolist() == ["context", "question", "options"]


def test_other_weights_in_the_folder_are_noticed(make, riddles, saved, tmp_path):
    other = make(epochs=1).fit(riddles[["context", "options"]][:48], riddles.label[:48])
    other.save(tmp_path / "other")
    BertMultipleChoice.load(tmp_path / "other", verify=True)
    (tmp_path / "other" / "model.safetensors").write_bytes((saved / "model.safetensors").read_bytes())
    with pytest.raises(WeightsMismatchError, match="model.safetensors is not the file that was saved"):
        BertMultipleChoice.load(tmp_path / "other", verify=True)
    # Without the checksum, as in folders of earlier versions, the outputs tell.
    path = tmp_path / "other" / "kbert.json"
    values = json.loads(path.read_text())
    del values["golden"]["weights"]
    path.write_text(json.dumps(values))
    with pytest.raises(WeightsMismatchError, match="does not predict what it did"):
        BertMultipleChoice.load(tmp_path / "other", verify=True)


def test_a_folder_of_another_task_is_refused(saved, fitted, tmp_path):
    with pytest.raises(WeightsMismatchError, match="load it with kbert.BertMultipleChoice.load"):
        BertClassifier.load(saved)
    classifier = BertForSequenceClassification(fitted.config_, 2, dtype="float32")
    save_sequence_classifier(classifier, tmp_path / "classifier", {0: "bad", 1: "good"}, "single_label_classification")
    with pytest.raises(WeightsMismatchError, match="holds a BertForSequenceClassification"):
        BertMultipleChoice.load(tmp_path / "classifier")
    config = tmp_path / "regressor" / "config.json"
    fitted.save(config.parent)
    (config.parent / "kbert.json").unlink()
    config.write_text(config.read_text().replace("BertForMultipleChoice", "BertForSequenceClassification"))
    with pytest.raises(WeightsMismatchError, match="holds a BertForSequenceClassification.*weights=folder"):
        BertMultipleChoice.load(config.parent)


def test_without_kbert_json_any_number_of_columns_is_taken(fitted, new, tmp_path):
    fitted.save(tmp_path / "saved")
    (tmp_path / "saved" / "kbert.json").unlink()
    loaded = BertMultipleChoice.load(tmp_path / "saved")
    assert (loaded.max_length, loaded.max_length_) == ("auto", 64) and (loaded.history_, loaded.n_iter_) == ({}, 0)
    np.testing.assert_allclose(loaded.predict_proba(new), fitted.predict_proba(new), atol=1e-5)
    assert loaded.predict([("the red", ["red", "blue"])]).shape == (1,)
    loaded.save(tmp_path / "again")
    assert BertMultipleChoice.load(tmp_path / "again", verify=True).predict(new).shape == (60,)


def their_logits(transformers, model, folder, table):
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    logits = []
    for context, question, options in tuples(table):
        pairs = [f"{question} {option}" for option in options]
        encoded = tokenizer([context] * len(options), pairs, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits.append(model(**{name: values[None] for name, values in encoded.items()}).logits[0].numpy())
    return logits


def assert_same_scores(chooser, logits, table):
    """Softmax tells logits but for a constant; the scores themselves are compared."""
    found = chooser._outputs(table)
    for row, theirs in zip(found, logits, strict=True):
        np.testing.assert_allclose(row[: len(theirs)], theirs, atol=2e-5)


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.parity
def test_transformers_opens_it_with_the_same_scores(make, riddles, new, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    chooser = make(epochs=2, classifier_pooling="cls").fit(riddles, riddles.label)
    chooser.save(tmp_path / "saved")
    model, report = transformers.BertForMultipleChoice.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert model.config.architectures == ["BertForMultipleChoice"]
    assert_same_scores(chooser, their_logits(transformers, model.eval(), tmp_path / "saved", new[:12]), new[:12])
    automatic = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "saved")
    assert type(automatic).__name__ == "BertForMultipleChoice"


@pytest.mark.parity
def test_of_a_head_on_the_mean_transformers_takes_the_encoder_and_says_so(saved):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    model, report = transformers.BertForMultipleChoice.from_pretrained(saved, output_loading_info=True)
    assert set(report["missing_keys"]) == {"classifier.weight", "classifier.bias"}
    assert set(report["unexpected_keys"]) == {"mean_classifier.weight", "mean_classifier.bias"}
    words = load_file(saved / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(model.bert.embeddings.word_embeddings.weight.detach().numpy(), words)


def test_a_head_on_the_mean_is_exported_and_converted(fitted, saved, new, tmp_path):
    convert(saved, tmp_path / "converted", "hf")
    assert json.loads((tmp_path / "converted" / "config.json").read_text())["architectures"] == [
        "BertForMultipleChoice"
    ]
    pytest.importorskip("onnxruntime", reason="to export, run: pip install 'kbert-learn[onnx]'")
    report = fitted.export(tmp_path / "out", X=new)
    assert report.max_difference < 1e-5 and report.agreement == 1
    np.testing.assert_array_equal(BertMultipleChoice.load(tmp_path / "out").predict(new), fitted.predict(new))


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.parity
def test_a_folder_that_transformers_saved_opens_with_its_scores(fitted, saved, new, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    torch.manual_seed(0)
    # Its config.json keeps kbert's "classifier_pooling": "mean", which is not what its new head reads.
    model = transformers.BertForMultipleChoice.from_pretrained(saved).eval()
    torch.nn.init.normal_(model.classifier.weight)
    model.save_pretrained(tmp_path / "theirs")
    transformers.AutoTokenizer.from_pretrained(saved).save_pretrained(tmp_path / "theirs")
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["classifier_pooling"] == "mean"
    chooser = BertMultipleChoice.load(tmp_path / "theirs")
    assert chooser.config_.classifier_pooling == "cls"
    convert(tmp_path / "theirs", tmp_path / "converted", "hf")
    converted = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert (converted["architectures"], converted["classifier_pooling"]) == (["BertForMultipleChoice"], "cls")
    assert_same_scores(chooser, their_logits(transformers, model, saved, new[:12]), new[:12])


# --- Bad input


GOOD = ("the red chair", "was it", ["red", "blue"])


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        (("a", "b", ["red"]), ValueError, r"row 2 of column 2 has one option, \['red'\], and at least two"),
        (("a", "b", []), ValueError, r"row 2 of column 2 has no options, \[\], and at least two"),
        (("a", "b", None), ValueError, "row 2 of column 2 has no options, but None"),
        (("a", "b", np.nan), ValueError, "row 2 of column 2 has no options, but nan"),
        (("a", "b", ["red", ""]), ValueError, "row 2 of column 2 has an empty option: option 1 is ''"),
        (("a", "b", ["red", " \t"]), ValueError, "row 2 of column 2 has an empty option: option 1 is ' "),
        (("a", "b", ["red", None]), ValueError, "row 2 of column 2 has an empty option: option 1 is None"),
        (("a", "b", [3, 4]), TypeError, "row 2 of column 2: option 0 is of type int, not a text: 3"),
        (("a", "b", "red"), TypeError, "row 2 of column 2 is no list of options but of type str: 'red'. Give a list"),
        (("a", "b", "['x', 'y']"), TypeError, "of type str.*ast.literal_eval"),
        (("a", "b", {"text": ["x", "y"]}), TypeError, r"of type dict.*str\['text'\]"),
        (("a", "b", 7), TypeError, "row 2 of column 2 is no list of options but of type int"),
        (("a", ["b"], ["x", "y"]), TypeError, "row 2 of column 1 is of type list, not a text"),
        ((5, "b", ["x", "y"]), TypeError, "row 2 of column 0 is of type int, not a text"),
        (("a", "b", ["x", "\udce9"]), ValueError, "row 2 of column 2: option 1 holds a lone surrogate"),
    ],
)
def test_rows_that_cannot_be_used_are_named(fitted, make, row, error, message):
    with pytest.raises(error, match=message):
        make().fit([GOOD, GOOD, row], [0, 0, 0])
    with pytest.raises(error, match=message):
        fitted.predict([GOOD, GOOD, row])
    table = pd.DataFrame([GOOD, GOOD, row], columns=["context", "question", "options"], index=[5, 6, 7])
    with pytest.raises(error, match=r"row 2 \(index 7\) of column '(context|question|options)'"):
        fitted.predict(table)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("text", ValueError, "X is a single str"),
        ([], ValueError, "Found array with 0 sample"),
        (["the red chair"], ValueError, "X has 1 column, where context and options, or context, question and options"),
        ([("a", "b", "c", "d")], ValueError, "X has 4 columns, where.*the options of a row in one list"),
        ([GOOD, ("a", ["x", "y"])], ValueError, "X is ragged"),
        ({"context": ["a"]}, TypeError, "Make it a table"),
        (dict(zip(("context", "question", "options"), GOOD, strict=True)), TypeError, r"pd.DataFrame\(\[X\]\)"),
        (pd.Series(dict(zip(("context", "question", "options"), GOOD, strict=True))), ValueError, r"df.iloc\[\[i\]\]"),
        (GOOD, TypeError, r"X is one row, a tuple. Put it in a list: \[X\]"),
        (pd.DataFrame({"context": ["a"], "choices": [["x", "y"]]}), ValueError, "none named 'options'.*rename"),
        (pd.DataFrame({"question": ["a"], "options": [["x", "y"]]}), ValueError, "none named 'context'"),
        (pd.DataFrame([["a", ["x", "y"], ["z"]]], columns=["context", *["options"] * 2]), ValueError, "columns named"),
        (pd.DataFrame([list("abcd")], columns=list("efgh")), ValueError, r"X has 4 columns \('e', 'f', 'g', 'h'\)"),
        (pd.DataFrame({"context": ["a"], "options": [["x", "y"]]}), ValueError, "X has 2 features.*is expecting 3"),
        ([("a", "b", ["x", "\ud800"])], ValueError, "X: row 0 of column 2: option 1 holds a lone"),
        ([("a", "\ud800", ["x", "y"])], ValueError, "X: row 0 of column 1 holds a lone surrogate"),
        ([("\ud800", "a", ["x", "y"])], ValueError, "X: row 0 of column 0 holds a lone surrogate"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used_are_refused_with_the_remedy(fitted, X, error, message):
    with pytest.raises(error, match=message):
        fitted.predict(X)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, ValueError, "requires y to be passed"),
        ([0, 1], ValueError, "X has 3 rows and y has 2"),
        ([0, 1, 2], ValueError, "y is 2 in row 2, which has 2 options: 0 to 1. Indices count from 0"),
        ([0, -1, 0], ValueError, "y is -1 in row 1, which has 2 options.*leave out rows"),
        ([0, 0.5, 0], ValueError, "y is 0.5 in row 1, and the index of an option is a whole number"),
        ([0, np.inf, 0], ValueError, "y is inf in row 1"),
        ([0, None, 0], ValueError, "y contains NaN: 1 missing, at row 1"),
        (["red", "red", "red"], TypeError, r"row 0 is 'red', of type str.*options.index\(text\)"),
        ([True, False, True], TypeError, "row 0 is True, of type bool"),
        ([[0, 1]] * 3, ValueError, "y should be a 1d array"),
        (pd.Series([0, 1, 9], index=[5, 6, 7]), ValueError, r"row 2 \(index 7\)"),
    ],
)
def test_y_that_cannot_be_used_is_named(fitted, make, y, error, message):
    with pytest.raises(error, match=message):
        make().fit([GOOD] * 3, y)
    with pytest.raises(error, match=message):
        fitted.score([GOOD] * 3, y)


@pytest.mark.parametrize(
    "container",
    [list, tuple, np.array, lambda y: y.astype(float), lambda y: y.astype("Int64"), lambda y: y.to_frame(), pd.Index],
)
def test_every_container_of_indices_gives_the_same(fitted, new, container):
    assert fitted.score(new, container(new.label)) == fitted.score(new, new.label)


@pytest.mark.parametrize(("name", "value"), [("max_length", 4), ("epochs", 0), ("batch_size", 1.5), ("freeze", 9)])
def test_parameters_that_cannot_be_used_are_named(make, riddles, name, value):
    with pytest.raises((TypeError, ValueError), match=f"BertMultipleChoice: {name} must be"):
        make(**{name: value}).fit(riddles, riddles.label)


def test_texts_cannot_be_longer_than_the_positions(fitted, riddles):
    longer = pickle.loads(pickle.dumps(fitted)).set_params(max_length=65)
    with pytest.raises(ValueError, match=re.escape("max_length must be at most 64, the positions of this model")):
        longer.predict(riddles)


# --- Published data


def test_dream_fits(data_folder, make):
    from kbert.datasets import read_choices

    dream = read_choices(data_folder / "dream" / "train.jsonl.gz")[:32]
    with pytest.warns(TruncationWarning, match="32 rows have more than max_length=64"):
        chooser = make(max_length=64, epochs=1, batch_size=8).fit(dream, dream.label)
    assert chooser.n_truncated_ == 32
    assert chooser.predict_proba(dream).shape == (32, 3)


def test_weights_near_the_largest_number_serve(make):
    rows = [("a b", ["c d", "e f"])] * 16
    fits = [make(epochs=1).fit(rows, [0, 1] * 8, sample_weight=[weight] * 16) for weight in (1.0, 3e37)]
    np.testing.assert_allclose(*(one.predict_proba(rows) for one in fits), atol=1e-5)


@pytest.mark.parametrize(
    "options, hint",
    [
        ({"text": ["red", "blue"], "label": ["A", "B"]}, "df['options'].str['text'], for example"),
        ({"label": ["A", "B"], "text": ["red", "blue"]}, "df['options'].str['text'], for example"),
        ({"A": "red", "B": "blue"}, "df['options'].map(lambda options: list(options.values()))"),
    ],
)
def test_the_advice_for_a_dict_of_options_works(make, options, hint):
    df = pd.DataFrame({"context": ["which"] * 4, "options": [options] * 4})
    with pytest.raises((TypeError, ValueError), match=re.escape(hint)):
        make().fit(df, [0, 1] * 2)
    df["options"] = eval(hint.removesuffix(", for example"), {"df": df})
    assert df.options.tolist() == [["red", "blue"]] * 4
