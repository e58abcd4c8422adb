"""What a plan says of a fit: what the fit then does, what the rows are, and nothing that changes the estimator."""

import copy
import itertools
import math
import pickle
import re
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from kbert import BertClassifier, BertConfig, BertMultipleChoice, BertQA, BertRegressor, BertTagger
from kbert.estimators import planning
from kbert.training import cost

pytestmark = pytest.mark.slow

LONG = "the table and a chair with this room was it and the chair this was a table " * 6  # three windows or so
SETTLED = ("max_length", "long_text", "epochs", "batch_size", "learning_rate")


def texts_of(n):
    return [
        ("great " if i % 2 else "awful ") + (LONG if i % 3 == 0 else f"table chair {'it ' * (i % 5)}") for i in range(n)
    ]


def rows_for(kind, n=40):
    """X and y of n rows: a third of them is too long for the 64 positions of the toy."""
    texts = texts_of(n)
    if kind is BertTagger:
        return [text.split() for text in texts], [["B-SIGN", *["O"] * (len(text.split()) - 1)] for text in texts]
    if kind is BertQA:
        X = pd.DataFrame({"question": ["was it"] * n, "context": texts})
        answers = [text.split()[0] if i % 5 else "" for i, text in enumerate(texts)]
        return X, pd.DataFrame({"answer": answers, "answer_start": [0 if i % 5 else -1 for i in range(n)]})
    if kind is BertMultipleChoice:
        options = [["great", "awful", "red"][: 2 + i % 2] for i in range(n)]
        return pd.DataFrame({"context": texts, "options": options}), [1 - i % 2 for i in range(n)]
    if kind is BertRegressor:
        return texts, np.arange(n) % 2 * 1.5
    return texts, [["good"] if i % 2 else ["bad", "sad"][: 1 + i % 4 // 2] for i in range(n)]


class Counter:
    """Counts the updates of a fit."""

    def __new__(cls):
        import keras

        return keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: setattr(cls, "n", 0),
            on_train_batch_end=lambda batch, logs: setattr(cls, "n", cls.n + 1),
        )


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (BertClassifier, {}),
        (BertClassifier, {"early_stopping": True, "n_iter_no_change": 99, "tune_thresholds": True}),
        (BertRegressor, {"epochs": 2}),
        (BertTagger, {"batch_size": 7, "epochs": 2}),
        (BertQA, {"stride": 8, "epochs": 2}),
        (BertMultipleChoice, {"epochs": "auto", "early_stopping": True, "n_iter_no_change": 99}),
    ],
    ids=["several labels", "held out", "regressor", "tagger", "questions", "choice"],
)
def test_the_fit_does_what_the_plan_says(quick_folder, kind, changes, capsys):
    X, y = rows_for(kind)
    if kind in (BertTagger, BertQA, BertMultipleChoice):
        changes = {"max_length": 32, **changes}
    estimator = kind(weights=quick_folder, random_state=3, **changes)
    plan = estimator.plan(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.set_params(verbose=1).fit(X, y, callbacks=Counter())
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == next(plan.run.lines()) and second.startswith("fit: max_length=")
    for name in SETTLED:
        if hasattr(estimator, f"{name}_"):
            assert plan.settings[name] == getattr(estimator, f"{name}_"), name
    if kind is BertMultipleChoice:  # the width of the model tells it
        assert plan.settings["classifier_pooling"] == estimator.config_.classifier_pooling == "mean"
    assert plan.epochs == estimator.n_iter_ and plan.learning_rate == estimator.learning_rate_
    assert plan.n_updates == Counter.n
    assert plan.n_rows == 40 and plan.n_validation_rows == (4 if changes.get("early_stopping") or kind is BertQA else 0)


def test_one_label_a_row_and_few_labels(quick_folder, reviews):
    few = BertClassifier(weights=quick_folder, few_labels=True, random_state=0)
    plan = few.plan(reviews.text[:16], reviews.label[:16])
    few.fit(reviews.text[:16], reviews.label[:16])
    assert (plan.epochs, plan.learning_rate) == (few.epochs_, few.learning_rate_)
    assert plan.classes == {"bad": 0.5, "good": 0.5}


def test_updates_of_accumulated_batches(toy, reviews):
    parameters = dict(gradient_accumulation=4, epochs=3, batch_size=16)
    plan = toy(**parameters).plan(reviews.text, reviews.label)
    history = toy(**parameters).fit(reviews.text, reviews.label).history_
    assert plan.n_updates == sum(map(len, history["update_loss"])) == 12


@pytest.fixture
def planted():
    """60 different rows; 5 repeat one with its label, 3 repeat one with another, and 2 of these the same one."""
    texts = [f"the {'great ' * (i // 8)}table {'was ' * (i % 8)}" for i in range(60)]
    labels = ["bad", "good", "bad"] * 20
    again = [texts[i] for i in (0, 0, 3, 4, 9)] + [texts[i] for i in (20, 20, 30)]
    other = {"bad": "good", "good": "bad"}
    labels_again = [labels[i] for i in (0, 0, 3, 4, 9)] + [other[labels[i]] for i in (20, 20, 30)]
    return pd.DataFrame({"text": texts + again, "label": labels + labels_again})


def test_duplicates_contradictions_and_shares(toy, planted):
    plan = toy().plan(planted.text, planted.label)
    assert (plan.n_rows, plan.n_duplicates, plan.n_contradictions) == (68, 8, 2)
    assert plan.n_duplicates == planted.text.duplicated().sum()
    assert plan.classes == planted.label.value_counts(normalize=True).to_dict()
    (line, _) = plan.run.lines()
    assert line.startswith("fit: 68 rows, 8 repeated (2 contradict), labels bad 65% and good 35%, ")
    pairs = toy().plan(pd.DataFrame({"a": planted.text, "b": range(68)}).astype(str), planted.label)
    assert (pairs.n_duplicates, pairs.n_contradictions) == (0, 0)
    numbers = BertRegressor(weights=toy().weights).plan(planted.text, planted.label == "good")
    assert (numbers.n_duplicates, numbers.n_contradictions, numbers.classes) == (8, 2, {})


def test_shares_of_several_labels_tags_and_answers(toy_folder):
    X, y = rows_for(BertClassifier)
    several = BertClassifier(weights=toy_folder).plan(X, y)
    assert several.classes == pytest.approx({"bad": 0.5, "good": 0.5, "sad": 0.25})
    words, tags = [["great", "table"], ["table"], []], [["B-SIGN", "O"], ["O"], []]
    tagger = BertTagger(weights=toy_folder, max_length=16).plan(words * 4, tags * 4)
    assert tagger.classes == pytest.approx({"B-SIGN": 1 / 3, "O": 2 / 3})
    assert (tagger.n_rows, tagger.n_sequences, tagger.n_duplicates) == (12, 8, 9)
    assert tagger.run.n_rows == 8  # without those of no words
    assert "labels" not in next(tagger.run.lines())  # they are read with the words
    assert ", 3 labels from bad 50% to sad 25%, " in next(several.run.lines())
    X, y = rows_for(BertQA)
    answers = BertQA(weights=toy_folder, max_length=32, stride=8).plan(X, y)
    assert answers.classes == pytest.approx({"answer": 0.8, "no answer": 0.2})


def test_lengths_and_cut_rows(toy, reviews):
    X = [*reviews.text[:30], *[LONG] * 10]
    plan = toy(max_length=16).plan(X, reviews.label[:40])
    longest = max(len(toy().fit(X[-2:], ["a", "b"]).tokenizer_.encode(text).ids) for text in X)
    assert plan.tokens_median == 8 and plan.tokens_95 == plan.tokens_max == longest > 64
    assert plan.share_longer == {16: 0.25, 64: 0.25, 128: 0.0, 256: 0.0, 512: 0.0}
    assert (plan.reads_windows, plan.n_sequences, plan.max_length) == (False, 40, 16)
    assert ", 25% cut, " in next(plan.run.lines())
    windows = toy(max_length=16, long_text="window").plan(X, reviews.label[:40])
    assert windows.reads_windows and windows.n_sequences > 40 and windows.seconds_predict > 0
    assert ", 25% in windows, " in next(windows.run.lines())


def test_of_many_characters_some_rows_are_tokenised(toy, reviews, monkeypatch):
    all_of_them = toy(epochs="auto").plan(reviews.text, reviews.label)
    monkeypatch.setattr(planning, "_CHARACTERS", 2000)
    some = toy(epochs="auto", early_stopping=True).plan(reviews.text, reviews.label)
    assert all_of_them.n_rows_tokenized == 200 and 20 < some.n_rows_tokenized < 100
    assert some.n_rows == 200 and some.n_sequences == 180 and some.classes == all_of_them.classes
    assert some.tokens_median == all_of_them.tokens_median and some.n_duplicates == all_of_them.n_duplicates
    assert f"{some.n_rows_tokenized} of 200 rows tokenised" in str(some)


def test_a_vocabulary_of_some_rows_stands_for_one_of_all(toy, toy_folder, reviews, monkeypatch):
    """With a clock by which everything takes a second."""
    monkeypatch.setattr(planning, "_CHARACTERS", 2000)
    plans = []
    for changes in ({}, {"size": BertConfig.from_folder(toy_folder), "weights": None}):
        monkeypatch.setattr(planning, "time", SimpleNamespace(perf_counter=itertools.count().__next__))
        plans.append(toy(**changes).plan(reviews.text, reviews.label))
    of_weights, at_random = plans
    assert of_weights.n_rows_tokenized == at_random.n_rows_tokenized < 100
    longer = at_random.seconds["read"] - of_weights.seconds["read"]
    assert longer == pytest.approx(200 / at_random.n_rows_tokenized - 1)


def test_a_row_with_more_characters_than_are_tokenised(toy_folder, monkeypatch):
    monkeypatch.setattr(planning, "_CHARACTERS", 50)
    words, tags = [[], ["great", "table"] * 40, [], []], [[], ["B-SIGN", "O"] * 40, [], []]
    plan = BertTagger(weights=toy_folder, max_length=16).plan(words, tags)
    assert plan.n_rows == 4 and plan.tokens_max == 82


@pytest.mark.parametrize("kind", [BertClassifier, BertTagger, BertQA, BertMultipleChoice])
def test_some_rows_of_every_kind(toy_folder, monkeypatch, kind):
    monkeypatch.setattr(planning, "_CHARACTERS", 1500)
    X, y = rows_for(kind)
    plan = kind(weights=toy_folder, max_length=32, random_state=0).plan(X, y)
    assert plan.n_rows_tokenized < plan.n_rows == 40 and plan.n_sequences >= 36


@pytest.mark.parametrize(
    ("X", "y", "changes"),
    [
        (["a", "b"], [0, 0], {}),
        ("a text", [0, 1], {}),
        (["a", "b"], [0, 1, 1], {}),
        ([], [], {}),
        (["a", 3], [0, 1], {}),
        (["a", "b"], [0, 1], {"epochs": 0}),
        (["a", "b"], [0, 1], {"freeze": 9}),
        (["a", "b"], [0, 1], {"max_length": 4000}),
        (["a", "b"], [0, 1], {"weights": "no such folder"}),
        (["a", "b"], [0, 1], {"early_stopping": True}),
        ([["a"], ["b"]], [[0, 1], [1, 0]], {"few_labels": True}),
        (["a", "b"], [[0, 1], [1, 0]], {"few_labels": True, "head_start": "probe"}),
    ],
)
def test_what_cannot_be_used_raises_what_fit_raises(toy, X, y, changes):
    with pytest.raises((ValueError, TypeError, OSError)) as of_fit:
        toy(**changes).fit(X, y)
    with pytest.raises(type(of_fit.value), match=re.escape(str(of_fit.value))):
        toy(**changes).plan(X, y)


def test_tags_that_do_not_fit_raise_what_fit_raises(toy_folder):
    with pytest.raises(ValueError, match="has 1 tags, and X has 2 words"):
        BertTagger(weights=toy_folder, max_length=16).plan([["a", "b"]], [["O"]])


def test_the_estimator_and_its_random_state_stay_as_they_were(toy, fitted, reviews):
    generator = np.random.RandomState(5)
    state = copy.deepcopy(generator.get_state())
    estimator = toy(random_state=generator, epochs="auto")
    before = dict(vars(estimator))
    estimator.plan(reviews.text, reviews.label)
    assert vars(estimator) == before and estimator.random_state is generator
    assert all(np.array_equal(a, b) for a, b in zip(generator.get_state(), state, strict=True))
    assert not estimator.__sklearn_is_fitted__()
    before, weights = dict(vars(fitted)), [np.array(variable) for variable in fitted.model_.get_weights()]
    fitted.plan(reviews.text[:20], reviews.label[:20])
    assert vars(fitted) == before
    assert all(np.array_equal(a, b) for a, b in zip(fitted.model_.get_weights(), weights, strict=True))


def test_a_warm_start_plans_with_what_was_learned(fitted, reviews):
    warm = copy.deepcopy(fitted).set_params(warm_start=True)
    assert warm.plan(reviews.text[:20], reviews.label[:20]).seconds["probe"] == 0
    warm.set_params(head_start="probe")
    assert warm.plan(reviews.text[:20], reviews.label[:20]).seconds["probe"] == 0  # it has its head
    first = clone(warm).set_params(head_start="probe")  # whose next fit is its first
    assert first.plan(reviews.text[:20], reviews.label[:20]).seconds["probe"] > 0
    with pytest.raises(ValueError, match="labels that y of fit did not"):
        warm.plan(reviews.text[:20], ["good", "new"] * 10)


def test_a_random_start_has_a_vocabulary_of_the_rows(reviews):
    size = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=32,
        vocab_size=80,
    )  # fmt: skip
    estimator = BertClassifier(size, weights=None, epochs=1, random_state=0)
    plan = estimator.plan(reviews.text, reviews.label)
    estimator.fit(reviews.text, reviews.label)
    assert plan.n_updates == math.ceil(200 / estimator.batch_size_) and plan.max_length == estimator.max_length_
    assert plan.tokens_max == max(len(estimator.tokenizer_.encode(text).ids) for text in reviews.text)


def test_more_work_takes_longer(toy, reviews, monkeypatch):
    """With a forward pass that always takes the same."""

    def measured(make_model, config, layout):
        return cost.Forward(config, layout, layout.rows, 1, 0.1, 0.0)

    monkeypatch.setattr(planning, "measure_forward", measured)
    plain = toy(epochs=2).plan(reviews.text, reviews.label)
    step = cost.step_seconds(measured(None, toy_config(toy), plan_layout(plain)), 0, cost.backend_cost("float32"))
    assert plain.seconds["train"] == pytest.approx(plain.n_updates * step, rel=0.05)
    twice = toy(epochs=4).plan(reviews.text, reviews.label)
    assert twice.seconds["train"] == pytest.approx(2 * plain.seconds["train"])
    stopping = toy(epochs=2, early_stopping=True).plan(reviews.text, reviews.label)
    assert stopping.seconds["evaluate"] > 0 == plain.seconds["evaluate"]
    longer = toy(epochs=4, early_stopping=True).plan(reviews.text, reviews.label)
    assert longer.seconds["evaluate"] == pytest.approx(2 * stopping.seconds["evaluate"])
    # As many batches, though the last update of an epoch has one of them: it had counted as one of twelve.
    accumulating = toy(epochs=2, gradient_accumulation=12).plan(reviews.text, reviews.label)
    assert (plain.n_updates, accumulating.n_updates) == (26, 4)
    assert accumulating.seconds["train"] == pytest.approx(plain.seconds["train"], rel=0.05)
    frozen = toy(epochs=2, freeze=1).plan(reviews.text, reviews.label)
    assert frozen.seconds["train"] < plain.seconds["train"] and frozen.memory_bytes < plain.memory_bytes
    assert plain.seconds_fit == sum(plain.seconds.values()) and plain.seconds_predict > 0
    assert toy(head_start="probe").plan(reviews.text, reviews.label).seconds["probe"] > 0 == plain.seconds["probe"]


def toy_config(toy):
    return BertConfig.from_folder(toy().weights)


def plan_layout(plan):
    """The shape of its batches, as the text says it."""
    from kbert.data.packing import Layout

    rows, length = re.search(r"of (\d+) rows of (\d+) tokens", " ".join(str(plan).split())).groups()
    return Layout(int(rows), int(length), 1)


def test_of_rows_that_are_held_out_the_repeated_ones_are_counted_too(toy, planted):
    plan = toy(early_stopping=True, random_state=0).plan(planted.text, planted.label)
    assert next(plan.run.lines()).startswith("fit: 61 rows, 8 of 68 repeated (2 contradict), labels ")


def test_what_the_probe_chooses_is_no_setting(toy, reviews):
    plan = toy(head_start="probe", classifier_pooling="auto").plan(reviews.text, reviews.label)
    assert "auto" not in plan.settings.values() and "classifier_pooling" not in plan.settings


def test_long_labels_many_labels_and_long_fits_are_told_in_short(toy, reviews):
    plan = toy(epochs=1).plan(reviews.text, reviews.label)
    ten, eleven = ({f"{i:02}{'x' * 60}": 0.05 for i in range(n)} for n in (10, 11))
    text = " ".join(str(replace(plan, classes=ten, seconds={"read": 0.04, "train": 99.0})).split())
    assert f" 00{'x' * 35}... 5%, 01" in text and " more tokens: " not in text
    assert "time: fit about 99.0 s (train 99.0 s); 1,000 rows " in text
    text = " ".join(str(replace(plan, classes=eleven, seconds={"train": 5400.0})).split())
    assert "5%, and 1 more tokens: " in text and "fit about 90 min (train 90 min)" in text
    assert "fit about 2.5 h (train 2.5 h)" in " ".join(str(replace(plan, seconds={"train": 9000.0})).split())


def test_what_it_looks_like(toy, reviews):
    plan = toy(epochs=2).plan(reviews.text, [f"<{label}>" for label in reviews.label])
    text = " ".join(str(plan).split())
    assert repr(plan) == str(plan) and text.startswith(" ".join(plan.run.lines()))
    assert max(map(len, str(plan).splitlines())) <= 88
    assert "labels: <bad> 50%, <good> 50%" in text and f"backend={plan.backend!r}" in text
    assert "&lt;bad&gt; 50%" in plan._repr_html_() and "<bad>" not in plan._repr_html_()
    values = plan.as_dict()
    assert {name: values[name] for name in ("n_rows", "n_updates", "seconds_fit")} == {
        "n_rows": 200, "n_updates": 26, "seconds_fit": plan.seconds_fit,
    }  # fmt: skip
    assert all(getattr(plan, name) == value or name == "rests_on" for name, value in values.items())
    public = {name for name in dir(plan) if not name.startswith("_") and not callable(getattr(plan, name))}
    assert values.keys() == public - {"run"}
    assert pickle.loads(pickle.dumps(plan)) == plan
