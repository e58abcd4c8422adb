"""Answering questions: spans of the context are learned, found in windows, ranked, and exact slices of the text."""

import copy
import pickle
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import ops
from scipy.special import log_softmax, softmax
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_predict

from kbert import BertClassifier, BertConfig, BertQA
from kbert.data.batches import TrainingBatches
from kbert.data.spans import SpanReader, pieces_of, span_targets
from kbert.errors import (
    FailedRunWarning,
    KbertWarning,
    MissingTextWarning,
    ParameterWarning,
    TruncationWarning,
    WeightsMismatchError,
)
from kbert.metrics import answer_scores, best_null_threshold, squad_scores
from kbert.tasks.questions import BestSpans, Questions
from kbert.text import build_question_windows
from kbert.training.losses import span_cross_entropy

pytestmark = pytest.mark.slow

COLOURS, FILLERS = ("red", "blue"), "the a table chair room was and it this".split()


def riddles_of(n, seed=0, unanswerable=0.0, length=8):
    """The answer is the one word of the context that is a colour, with the word that follows it."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        words = rng.choice(FILLERS, length).tolist()
        if i % 10 >= 10 * unanswerable:
            place = int(rng.integers(length - 1))
            words[place] = str(rng.choice(COLOURS))
            answer, start = " ".join(words[place : place + 2]), len(" ".join([*words[:place], ""]))
        else:
            answer, start = "", -1
        rows.append(("was it", " ".join(words), answer, start))
    return pd.DataFrame(rows, columns=["question", "context", "answer", "answer_start"])


@pytest.fixture(scope="module")
def make(quick_folder):
    """A function that makes a BertQA on toy weights that learn."""
    values = dict(weights=quick_folder, max_length=16, stride=4, epochs=15, batch_size=16, learning_rate=3e-3)
    values |= dict(dropout=0.0, dtype="float32", random_state=0)
    return lambda **changes: BertQA(**{**values, **changes})


@pytest.fixture(scope="module")
def fitted(make):
    """It has learned to find the colours. Tests must not change it."""
    riddles = riddles_of(240)
    return make().fit(riddles, riddles)


@pytest.fixture(scope="module")
def fitted_with_null(make):
    """It has seen questions without answers. Tests must not change it."""
    riddles = riddles_of(200, unanswerable=0.3)
    return make().fit(riddles, riddles)


@pytest.fixture(scope="module")
def new():
    """Rows that are not learned from."""
    return riddles_of(40, seed=1)


# --- What is learned


@pytest.mark.backend
def test_spans_are_learned(fitted, new):
    predicted = fitted.predict(new)
    assert predicted.dtype == object and predicted.shape == (40,)
    assert fitted.score(new, new) > 0.9 and np.mean(predicted == new.answer) > 0.8
    assert fitted.score(new, new.answer) == squad_scores(new.answer, predicted)["f1"]
    assert fitted.history_["loss"][-1] < 0.3 < 1.5 < fitted.history_["loss"][0]
    assert fitted.null_threshold_ == np.inf and fitted.n_iter_ == 15
    assert fitted.feature_names_in_.tolist() == ["question", "context"] and not hasattr(fitted, "n_features_in_")
    assert not is_classifier(fitted) and not is_regressor(fitted)


@pytest.mark.backend
def test_no_answer_is_learned_and_its_threshold_tuned(fitted_with_null):
    assert np.isfinite(fitted_with_null.null_threshold_)
    rows = riddles_of(60, seed=2, unanswerable=0.5)
    predicted = fitted_with_null.predict(rows)
    assert np.mean((predicted == "") == (rows.answer == "")) > 0.8
    assert fitted_with_null.score(rows, rows) > 0.75
    assert len(fitted_with_null.history_["val_score"]) == 15


def test_a_threshold_of_ones_own_is_taken(make):
    riddles = riddles_of(32, unanswerable=0.3)
    never, always = (make(epochs=1, null_threshold=threshold).fit(riddles, riddles) for threshold in (1e3, -1e3))
    assert (never.null_threshold_, always.null_threshold_) == (1e3, -1e3)
    assert all(never.predict(riddles)) and not any(always.predict(riddles))
    assert "val_loss" not in never.history_


def test_the_threshold_is_the_best_for_the_eval_set(make):
    train, held_out = riddles_of(160, unanswerable=0.3), riddles_of(40, seed=3, unanswerable=0.5)
    qa = make(epochs=6).fit(train, train, eval_set=(held_out, held_out))
    tuned = qa.score(held_out, held_out)
    assert tuned == pytest.approx(qa.history_["val_score"][-1])
    margins = [group.score[group.answer == ""].max() - group.score[group.answer != ""].max()
               for _, group in qa.answers(held_out).groupby("row")]  # fmt: skip
    at = qa.null_threshold_
    for threshold in np.add(margins, at):
        qa.null_threshold_ = threshold
        assert qa.score(held_out, held_out) <= tuned + 1e-9


def test_every_answer_is_a_slice_of_its_context(fitted_with_null):
    contexts = [
        "Ünlüğ RED  chair,\ttable",
        "the 🙂 blue\u0301 room…",
        "中文 red 中",
        "red",
        "",
        "\x00\x01",
        "it " * 90 + "RED it",
    ]
    rows = [("was it", context) for context in contexts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingTextWarning)
        found = fitted_with_null.answers(rows, n_best=50)
        predicted = fitted_with_null.predict(rows)
    for line in found.itertuples():
        if line.answer == "":
            assert (line.start, line.end) == (-1, -1)
        else:
            assert contexts[line.row][line.start : line.end] == line.answer
    assert found.row.unique().tolist() == list(range(len(contexts)))
    assert predicted.tolist() == found[found["rank"] == 1].answer.tolist()
    assert predicted[4] == "" and any(predicted)


def test_answers_are_ranked_with_probabilities(fitted_with_null, new):
    found = fitted_with_null.answers(new, n_best=200)
    for _, lines in found.groupby("row"):
        assert lines["rank"].tolist() == list(range(1, len(lines) + 1))
        assert (np.diff(lines.score) <= 0).all() and lines.answer.is_unique and (lines.answer == "").sum() == 1
        assert lines.probability.sum() <= 1 + 1e-9
        # Spans of the same text have one line.
        assert lines.probability.tolist() == sorted(lines.probability, reverse=True)
    first = fitted_with_null.answers(new, n_best=3)
    assert first.groupby("row").size().eq(3).all() and list(first) == list(found)
    # An answer's probability does not depend on how many others are asked for.
    pd.testing.assert_frame_equal(first, found[found["rank"] <= 3])
    assert fitted_with_null.answers(new).groupby("row").size().max() <= 20


def test_answers_have_the_index_of_their_rows(fitted, new):
    some = new[:3].set_axis(["a", "b", "c"])
    table = fitted.answers(some, n_best=2)
    assert table.index.tolist() == ["a", "a", "b", "b", "c", "c"] and table.row.tolist() == [0, 0, 1, 1, 2, 2]
    of_tuples = fitted.answers(list(zip(some.question, some.context, strict=True)), n_best=2)
    assert isinstance(of_tuples.index, pd.RangeIndex)
    pd.testing.assert_frame_equal(table.reset_index(drop=True), of_tuples)


def test_probabilities_are_the_softmax_of_all_spans(fitted):
    # One word has one span, two words have three.
    found = fitted.answers([("was it", "red"), ("was it", "red chair")], n_best=9)
    assert found.answer[0] == "red" and found.probability[0] == 1
    scores = found.score[1:].to_numpy()
    assert len(scores) == 3
    np.testing.assert_allclose(found.probability[1:], softmax(scores))


def test_long_contexts_are_read_to_their_end(fitted):
    rng = np.random.default_rng(5)
    for words_before in (0, 3, 40, 301):
        words = [*rng.choice(FILLERS, words_before), "blue", "chair", *rng.choice(FILLERS, 200)]
        assert fitted.predict([("was it", " ".join(words))])[0] == "blue chair"


def test_several_right_answers_learn_the_first_and_count_all(make, fitted):
    riddles = riddles_of(16)
    several = riddles.assign(
        answer=[[a, a.split()[0]] for a in riddles.answer], answer_start=[[s, s] for s in riddles.answer_start]
    )
    one, other = (make(epochs=2).fit(rows, rows) for rows in (riddles, several))
    assert one.history_ == other.history_
    wrong_first = [["no such thing", answer] for answer in riddles.answer]
    assert fitted.score(riddles, wrong_first) == fitted.score(riddles, riddles) > 0.9


def test_weighted_rows_are_no_failure(make):
    riddles = riddles_of(200, unanswerable=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FailedRunWarning)
        make(epochs=5, null_threshold=0.0).fit(riddles, riddles, sample_weight=(riddles.answer != "").astype(float))


def test_a_few_questions_are_enough_for_the_defaults(make):
    """A tenth of them is one row, held out at random: where it has an answer no threshold is taken from it."""
    riddles = riddles_of(8, unanswerable=0.25)
    assert (riddles.answer == "").sum() == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbertWarning)
        qa = make(epochs=1).fit(riddles, riddles)
    assert len(qa.predict(riddles)) == 8


def test_questions_without_answers_that_have_weight_0_are_as_good_as_absent(make):
    riddles = riddles_of(40, unanswerable=0.5)
    weight = (riddles.answer != "").astype(float)
    qa = make(epochs=1, null_threshold="tune").fit(riddles, riddles, sample_weight=weight)
    assert "val_loss" not in qa.history_ and qa.null_threshold_ == np.inf  # no row is held out for a threshold
    with pytest.raises(ValueError, match="No question of y has an answer"):
        make(epochs=1).fit(riddles, riddles, sample_weight=1 - weight)


def test_an_answer_has_its_accents(fitted):
    # Uncased models drop combining marks, which then belong to no piece.
    assert fitted.predict([("was it", "re\u0301d\u0301")])[0] in ("re\u0301d\u0301", "re\u0301")
    assert fitted.predict([("was it", "red\u0301")]).tolist() == ["red\u0301"]


@pytest.mark.thorough
def test_answers_across_windows_are_learned_whatever_the_stride(make):
    riddles = riddles_of(160, length=40)
    for stride in (128, None):
        assert make(stride=stride).fit(riddles, riddles).score(riddles, riddles) > 0.9


def test_answers_that_fit_into_no_window_are_told(make):
    rows = riddles_of(8, length=30)
    with pytest.warns(TruncationWarning, match="8 of 8 answers"):
        make(epochs=1).fit(rows, rows.assign(answer=rows.context, answer_start=0))


def test_columns_of_other_names_keep_their_order(make):
    riddles = riddles_of(16).rename(columns={"question": "ask", "context": "passage"})
    qa = make(epochs=1).fit(riddles[["ask", "passage"]], riddles[["answer", "answer_start"]])
    qa.predict(riddles[["ask", "passage"]])
    with pytest.raises(ValueError, match="feature names should match"):
        qa.predict(riddles[["passage", "ask"]])


def test_a_table_may_have_other_columns(fitted, new):
    wide = new.assign(id=range(len(new)))[["id", *new.columns]]
    assert fitted.feature_names_in_.tolist() == ["question", "context"]
    assert fitted.predict(wide).tolist() == fitted.predict(new[["question", "context"]]).tolist()


def test_a_bad_eval_set_is_told_before_training(make):
    riddles = riddles_of(16)
    # pyarrow's strings, which pandas takes where it is installed, cannot hold such text.
    bad = riddles.astype({"context": object})
    bad.loc[3, "context"] = "a \ud83d b"
    with pytest.raises(ValueError, match="eval_set's X: row 3 of column 'context' holds a lone surrogate"):
        make(epochs=10**6).fit(riddles, riddles, eval_set=(bad, riddles))


@pytest.mark.parametrize("threshold", [np.inf, -np.inf, np.float32(1.5), np.int64(1)])
def test_a_threshold_that_was_set_is_saved(fitted, tmp_path, threshold):
    qa = copy.copy(fitted)
    qa.null_threshold_ = threshold
    qa.save(tmp_path / "saved")
    assert BertQA.load(tmp_path / "saved").null_threshold_ == threshold


def threshold_of(null_scores, texts, right, weights=None):
    """What "tune" takes from these validation questions."""
    weights = np.ones(len(texts), "float32") if weights is None else np.array(weights, "float32")
    examples = SimpleNamespace(
        weights=weights, answers=SimpleNamespace(texts=[[text] if text else [] for text in right],
                                                 answerable=np.array([bool(text) for text in right]))
    )  # fmt: skip
    outputs = BestSpans(texts, np.array(null_scores, "float64"), np.zeros(len(texts)))
    return Questions()._best_threshold(outputs, examples)


def test_of_thresholds_that_are_equally_good_the_one_nearest_to_0_is_taken():
    """The lowest of them is the score of an answered question, above which the next one may well be."""
    right = ["a", "b", "c", ""]
    assert threshold_of([-18.0, -15.0, -10.0, 5.0], ["a", "b", "c", "x"], right) == 0
    assert threshold_of([-18.0, -15.0, 3.0, 5.0], ["a", "b", "c", "x"], right) == 4  # in the middle between both
    assert threshold_of([-18.0, -15.0, -10.0, -6.0], ["a", "b", "c", "x"], right) == -8
    assert threshold_of([-3.0, -2.0], ["x", "y"], ["", ""]) == -4  # nothing is answered
    assert threshold_of([2.0, 3.0], ["a", "b"], ["a", "b"]) == 4


def test_the_threshold_has_the_best_score_there_is():
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(2, 30))
        null_scores, weights = rng.normal(size=n).round(1) * 4, rng.random(n).round(2) + 0.1
        right = rng.choice(["", "red", "red table"], n).tolist()
        texts = rng.choice(["red", "red table", "blue"], n).tolist()
        best = best_null_threshold(
            [[text] if text else [] for text in right], texts, null_scores, sample_weight=weights.astype("float32")
        )
        said = ["" if score > threshold_of(null_scores, texts, right, weights) else text
                for score, text in zip(null_scores, texts, strict=True)]  # fmt: skip
        _, f1 = answer_scores([[text] if text else [] for text in right], said)
        assert np.average(f1, weights=weights) == pytest.approx(best.score, abs=1e-6)


def test_a_warm_start_keeps_the_threshold_and_a_given_one_is_scored(make, fitted_with_null):
    answerable = riddles_of(16)
    further = copy.copy(fitted_with_null).set_params(warm_start=True, epochs=1, learning_rate=1e-6)
    assert further.fit(answerable, answerable).null_threshold_ == fitted_with_null.null_threshold_
    held_out = riddles_of(20, seed=3, unanswerable=0.5)
    for threshold in (1e3, "tune"):
        qa = make(epochs=3, null_threshold=threshold).fit(answerable, answerable, eval_set=(held_out, held_out))
        assert qa.history_["val_score"][-1] == pytest.approx(qa.score(held_out, held_out))


def test_no_limits_cost_no_memory(fitted):
    qa = copy.copy(fitted).set_params(max_answer_length=10**9)
    assert qa.predict([("was it", "the red chair")])[0].startswith("red")
    assert len(qa.answers([("was it", "the red chair")], n_best=10**9)) == 6


# --- Windows and targets


@pytest.fixture(scope="module")
def tokenizer(fitted):
    return fitted.tokenizer_


def test_windows_hold_the_question_and_every_piece_of_the_context(tokenizer):
    questions = ["was it", "", "the room and " * 40, "it"]
    contexts = ["red chair", " ".join(FILLERS * 9), " ".join(FILLERS * 9), ""]
    windows, offsets = build_question_windows(tokenizer, questions, contexts, max_length=20, stride=5)
    assert len(windows.contexts) == 3  # the same text once
    assert np.unique(windows.rows).tolist() == [0, 1, 2, 3] and windows.truncated_rows.tolist() == [False] * 2 + [
        True,
        False,
    ]
    sequences = windows.take(slice(None))
    assert sequences.lengths.tolist() == windows.lengths.tolist() and windows.lengths.max() <= 20
    pieces = tokenizer.tokenize_column(contexts)
    for row in range(4):
        seen = np.zeros(pieces.lengths[row], bool)
        for window in np.flatnonzero(windows.rows == row):
            ids = sequences.tokens.row(window)
            first, start, kept = windows.first_length[window], windows.starts[window], windows.kept[window]
            assert ids[0] == tokenizer.cls_id and ids[first - 1] == ids[-1] == tokenizer.sep_id
            assert ids[first:-1].tolist() == pieces.row(row)[start : start + kept].tolist()
            seen[start : start + kept] = True
        assert seen.all()
    # A question takes at most half of the room of 17.
    assert windows.first_length[windows.rows == 2][0] == 8 + 2
    part = windows.of_rows(np.array([1, 3]))
    for one, other in zip(np.flatnonzero(np.isin(windows.rows, [1, 3])), range(len(part)), strict=True):
        assert sequences.tokens.row(one).tolist() == part.take([other]).tokens.row(0).tolist()


def test_concatenated_parts_are_the_whole(tokenizer):
    rows = riddles_of(9, length=30)
    whole, _ = build_question_windows(tokenizer, rows.question.tolist(), rows.context.tolist(), 16, 4)
    parts = [
        build_question_windows(tokenizer, rows.question[a:b].tolist(), rows.context[a:b].tolist(), 16, 4)[0]
        for a, b in ((0, 4), (4, 5), (5, 9))
    ]
    joined = type(whole).concatenate(parts)
    everything, other = whole.take(slice(None)), joined.take(slice(None))
    assert everything.tokens.values.tolist() == other.tokens.values.tolist()
    assert everything.rows.tolist() == other.rows.tolist() and joined.n_rows == 9
    assert everything.tokens.splits.tolist() == whole.splits.tolist()


def test_targets_are_the_answers_pieces_or_the_first_token(tokenizer):
    context = " ".join(["the", "room", "was", "red", "and", "it"] * 5)
    start = context.index("red and", 60)
    windows, offsets = build_question_windows(tokenizer, ["was it"] * 2, [context] * 2, max_length=14, stride=3)
    first, last = pieces_of(start, start + len("red and"), offsets)
    targets = span_targets(windows, np.array([first, -1]), np.array([last, -1]))
    found = 0
    for window, (begin, end, own_first, own_last) in enumerate(targets):
        ids = windows.take([window]).tokens.row(0)
        assert (own_first, own_last) == (0, len(ids) - 1)
        if begin:
            found += 1
            assert windows.rows[window] == 0 and tokenizer.decode(ids[begin : end + 1]) == "red and"
        else:
            inside = windows.starts[window] <= first and last < windows.starts[window] + windows.kept[window]
            assert end == 0 and (windows.rows[window] == 1 or not inside)
    assert found >= 2


@pytest.mark.parametrize(("n_best", "longest"), [(1, 1), (5, 3), (40, 30)])
def test_the_best_spans_are_those_of_all_pairs(tokenizer, n_best, longest):
    """Against a loop over every pair of pieces in every window, each start in the window with most context."""
    rng = np.random.default_rng(0)
    contexts = [" ".join(rng.choice(FILLERS, n)) for n in (1, 7, 40, 23)]
    windows, _ = build_question_windows(tokenizer, ["was it"] * 4, contexts, max_length=16, stride=4)
    logits = rng.normal(size=(len(windows), 16, 2))
    reader = SpanReader(windows, n_best, longest)
    for window in range(len(windows)):
        reader._read(window, logits[window, : windows.lengths[window]])
    spans = reader.of_rows()
    for row in range(4):
        mine = np.flatnonzero(windows.rows == row)
        pairs = []
        for piece in range(windows.contexts.lengths[windows.context_of[row]]):
            places = piece - windows.starts[mine]
            context = np.where((places >= 0) & (places < windows.kept[mine]),
                               np.minimum(places, windows.kept[mine] - 1 - places), -1)  # fmt: skip
            window = mine[np.argmax(context)]
            at, first = piece - windows.starts[window], windows.first_length[window]
            for end in range(at, min(at + longest, windows.kept[window])):
                score = logits[window, first + at, 0] + logits[window, first + end, 1]
                pairs.append((-score, piece, piece + end - at))
        expected = sorted(pairs)[:n_best]
        there = np.isfinite(spans.scores[row])
        assert there.sum() == len(expected)
        np.testing.assert_allclose(spans.scores[row][there], [-pair[0] for pair in expected])
        assert spans.starts[row][there].tolist() == [pair[1] for pair in expected]
        assert spans.ends[row][there].tolist() == [pair[2] for pair in expected]
        assert spans.null[row] == pytest.approx(logits[mine, 0].sum(axis=1).min())


@pytest.mark.backend
def test_the_loss_is_that_of_each_text_by_itself():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 12, 2)).astype("float32")
    # A row of two texts with two empty slots' worth of room, and one text in the other row.
    targets = np.array([[[1, 3, 0, 4], [5, 5, 5, 9]], [[2, 7, 0, 11], [0, 0, 0, 0]]], "int32")
    weights = np.array([[0.5, 0.25], [0.25, 0.0]], "float32")
    expected = 0.0
    for (row, slot), weight in np.ndenumerate(weights):
        start, end, first, last = targets[row, slot]
        own = log_softmax(logits[row, first : last + 1], axis=0)
        expected -= weight * (own[start - first, 0] + own[end - first, 1]) / 2
    loss = span_cross_entropy(*map(ops.convert_to_tensor, (logits, targets, weights)))
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_batches_are_those_of_the_sequences(tokenizer):
    rows = riddles_of(20, length=30)
    windows, _ = build_question_windows(tokenizer, rows.question.tolist(), rows.context.tolist(), 16, 4)
    lazy, made = (TrainingBatches(s, 8, 3) for s in (windows, windows.take(slice(None))))
    for one, other in zip(lazy.epoch(1), made.epoch(1), strict=True):
        assert all(np.array_equal(one.inputs[name], other.inputs[name]) for name in one.inputs)
        assert np.array_equal(one.texts, other.texts) and np.array_equal(one.tokens, other.tokens)


# --- A scikit-learn citizen


@pytest.mark.backend
def test_containers_row_order_and_batches_make_no_difference(fitted, new, monkeypatch):
    expected = fitted.answers(new)
    tuples = list(zip(new.question, new.context, strict=True))
    for same in (tuples, np.array(tuples, dtype=object), new[["context", "question"]], new.set_index(new.index + 7)):
        pd.testing.assert_frame_equal(fitted.answers(same).reset_index(drop=True), expected.reset_index(drop=True))
    monkeypatch.setattr("kbert.tasks.texts.CHUNK_ROWS", 7)
    in_parts = fitted.answers(new)
    assert in_parts.drop(columns=["score", "probability"]).equals(expected.drop(columns=["score", "probability"]))
    np.testing.assert_allclose(in_parts.score, expected.score, atol=1e-4)
    order = np.random.default_rng(0).permutation(len(new))
    assert fitted.predict(new.iloc[order]).tolist() == fitted.predict(new)[order].tolist()


def test_y_in_other_containers_gives_the_same_fit(make):
    riddles = riddles_of(32)
    fits = [
        make(epochs=1).fit(X, y).history_
        for X, y in (
            (riddles, riddles),
            (riddles[["question", "context"]], riddles[["answer_start", "answer"]]),
            (riddles[["question", "context"]].to_numpy(), list(zip(riddles.answer, riddles.answer_start, strict=True))),
        )
    ]
    assert fits[0] == fits[1] == fits[2]


@pytest.mark.thorough
def test_searches_and_cross_validation_work(make):
    riddles = riddles_of(64)
    X, y = riddles[["question", "context"]], riddles[["answer", "answer_start"]]
    search = GridSearchCV(make(), {"epochs": [1, 15]}, cv=2).fit(X, y)
    assert search.best_params_ == {"epochs": 15}
    assert len(cross_val_predict(make(epochs=1), X, y, cv=2)) == 64


def test_weights_of_rows_count(make):
    riddles = riddles_of(48)
    halves = np.repeat([1.0, 0.0], 24)
    weighted = make(epochs=1, batch_size=48).fit(riddles, riddles, sample_weight=halves)
    alone = make(epochs=1, batch_size=48).fit(riddles[:24], riddles[:24])
    assert weighted.history_["loss"][0] == pytest.approx(alone.history_["loss"][0], abs=1e-4)


def test_copies_and_saved_ones_answer_the_same(fitted_with_null, new, tmp_path):
    expected = fitted_with_null.answers(new, n_best=2)
    copy = pickle.loads(pickle.dumps(fitted_with_null))
    fitted_with_null.save(tmp_path / "saved")
    loaded = BertQA.load(tmp_path / "saved", verify=True)
    for same in (copy, loaded):
        pd.testing.assert_frame_equal(same.answers(new, n_best=2), expected, atol=1e-5)
        assert same.null_threshold_ == fitted_with_null.null_threshold_
    assert clone(loaded).get_params() == loaded.get_params()
    with pytest.raises(WeightsMismatchError):
        BertClassifier.load(tmp_path / "saved")


def test_a_saved_one_goes_on_warm(make, fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    assert BertQA.load(tmp_path / "saved").null_threshold_ == np.inf
    riddles = riddles_of(32)
    further = (
        BertQA.load(tmp_path / "saved").set_params(warm_start=True, epochs=1, learning_rate=1e-5).fit(riddles, riddles)
    )
    assert further.history_["loss"][0] < 0.6


def test_early_stopping_restores_the_best(make):
    riddles, held_out = riddles_of(64), riddles_of(30, seed=4)
    # So high a rate that the score goes up and down.
    qa = make(epochs=12, early_stopping=True, n_iter_no_change=12, learning_rate=0.05)
    qa.fit(riddles, riddles, eval_set=(held_out, held_out))
    assert qa.history_["val_score"][-1] < max(qa.history_["val_score"]) == pytest.approx(qa.score(held_out, held_out))


def test_rows_are_split_off_for_early_stopping(make):
    riddles = riddles_of(40)
    qa = make(epochs=2, early_stopping=True, validation_fraction=0.25).fit(riddles, riddles)
    assert len(qa.history_["val_loss"]) == 2 and qa.null_threshold_ == np.inf


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200), st.sampled_from(["", " \n", "red it", "\x00"])
)


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8), data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_texts_get_their_answers_in_order(fitted_with_null, rows, data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KbertWarning)
        predicted = fitted_with_null.predict(rows)
        order = data.draw(st.permutations(range(len(rows))))
        elsewhere = fitted_with_null.answers([rows[i] for i in order], n_best=1)
    assert all(answer in context for answer, (_, context) in zip(predicted, rows, strict=True))
    # Rounding may tell equal scores apart in another company.
    near = elsewhere.probability.to_numpy() > 0.51
    assert (elsewhere.answer.to_numpy() == predicted[order])[near].all()


# --- transformers


@pytest.mark.parity
def test_transformers_opens_it_with_the_same_scores(fitted, new, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    fitted.save(tmp_path / "saved")
    model = transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "saved").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    found = fitted.answers(new[:10], n_best=1)
    for line in found.itertuples():
        encoded = tokenizer(new.question[line.row], new.context[line.row], return_tensors="pt")
        with torch.no_grad():
            output = model(**encoded)
        start = encoded.char_to_token(0, line.start, 1)
        end = encoded.char_to_token(0, line.end - 1, 1)
        score = output.start_logits[0, start] + output.end_logits[0, end]
        assert line.score == pytest.approx(float(score), abs=1e-4)


@pytest.mark.parity
def test_what_transformers_saved_is_opened(tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    config = transformers.BertConfig(
        vocab_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertForQuestionAnswering(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "red"]))
    qa = BertQA.load(tmp_path)
    assert qa.null_threshold_ == np.inf
    assert qa.predict([("the", "red the")])[0] in {"red", "the", "red the"}


# --- Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(answer_start=[99] * 16), "row 0"),
        (dict(answer=[""] * 16, answer_start=[-1] * 16), "No question of y has an answer"),
        (dict(answer=[None] * 16), "row 0"),
    ],
)
def test_wrong_answers_are_refused(make, change, message):
    riddles = riddles_of(16)
    with pytest.raises(ValueError, match=re.escape(message)):
        make().fit(riddles, riddles.assign(**change))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(n_best=0), "n_best must be"),
        (dict(max_answer_length=0), "max_answer_length must be"),
        (dict(null_threshold="auto"), "null_threshold must be"),
        (dict(max_length=65), "max_length must be at most 64"),
    ],
)
def test_wrong_parameters_are_refused(make, parameters, message):
    riddles = riddles_of(16)
    with pytest.raises(ValueError, match=message):
        make(**parameters).fit(riddles, riddles)


def test_a_question_longer_than_its_room_is_cut_with_one_warning(fitted, new):
    rows = [("the room and " * 30, new.context[0]), ("was it", new.context[1])]
    with pytest.warns(TruncationWarning, match="1 of 2 questions") as caught:
        fitted.predict(rows)
        fitted.score(rows, ["", ""])
    ours = [warning for warning in caught if warning.category is TruncationWarning]
    assert len(ours) == 2 and {warning.filename for warning in ours} == {__file__}


def test_missing_texts_are_empty_ones_with_one_warning(fitted):
    with pytest.warns(MissingTextWarning, match="2 of the texts in 3 rows") as caught:
        predicted = fitted.predict([(None, "red chair"), ("was it", None), ("was it", "red chair")])
    ours = [warning for warning in caught if warning.category is MissingTextWarning]
    assert len(ours) == 1 and ours[0].filename == __file__
    assert predicted[1] == "" and predicted[2] in ("red chair", "red")


@pytest.mark.thorough
def test_a_context_of_100_000_words_is_read(fitted):
    context = "the room was " * 33_000 + "red chair " + "it and this " * 333
    assert fitted.predict([("was it", context)])[0].startswith("red")


def test_a_random_start_learns_its_vocabulary(make):
    riddles = riddles_of(32)
    size = BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    qa = make(weights=None, size=size, epochs=1).fit(riddles, riddles)
    assert {"was", "it", *COLOURS} <= set(qa.tokenizer_.vocab)


def test_a_single_question_without_an_answer_is_no_reason_to_fail(make):
    riddles = riddles_of(40)
    riddles.loc[3, ["answer", "answer_start"]] = ["", -1]
    for parameters in ({}, {"early_stopping": True}):
        with pytest.warns(ParameterWarning, match='null_threshold="tune" takes a few'):
            answerer = make(epochs=1, **parameters).fit(riddles, riddles)
        assert answerer.null_threshold_ == np.inf


def test_answers_that_no_window_holds_are_told_of_the_rows_that_are_trained_on(make, tmp_path):
    riddles = riddles_of(20, length=30)
    riddles["answer"], riddles["answer_start"] = riddles.context, 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        make(epochs=1, early_stopping=True, validation_fraction=0.25, checkpoint=tmp_path).fit(riddles, riddles)
    about = [str(one.message) for one in told if "are longer than what two" in str(one.message)]
    assert len(about) == 1 and about[0].startswith("15 of 15 answers")


@pytest.mark.parametrize("held_out_has_an_answer", [True, False])
def test_a_threshold_is_taken_from_both_kinds_of_questions(make, held_out_has_an_answer):
    """Else one question without an answer would make "" the answer to all, or one with an answer the answer to none."""
    riddles = riddles_of(40, unanswerable=0.2)
    held_out = riddles_of(4, unanswerable=0.0 if held_out_has_an_answer else 1.0)
    with pytest.warns(ParameterWarning, match="in the validation set, and found too few. It is 0: at 0 the model's"):
        qa = make(epochs=1).fit(riddles, riddles, eval_set=(held_out, held_out))
    assert qa.null_threshold_ == 0


@pytest.mark.parametrize("seed", range(4))
def test_one_question_without_an_answer_sets_no_threshold(make, seed):
    """Wherever the split puts it."""
    riddles = riddles_of(20)
    riddles.loc[3, ["answer", "answer_start"]] = ["", -1]
    with pytest.warns(ParameterWarning, match='null_threshold="tune" takes a few'):
        qa = make(epochs=1, early_stopping=True, validation_fraction=0.5, random_state=seed).fit(riddles, riddles)
    assert qa.null_threshold_ == np.inf


@pytest.mark.parametrize("fraction", [0.1, 0.9])
def test_few_rows_can_be_split(make, fraction):
    """Of 15 rows a side of 0.1 has two, and one of 0.9 leaves two, one with an answer and one without."""
    riddles = riddles_of(15)
    riddles.loc[:3, ["answer", "answer_start"]] = ["", -1]
    qa = make(epochs=1, early_stopping=True, validation_fraction=fraction)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        qa.fit(riddles, riddles)
    assert len(qa.history_["val_loss"]) == 1
