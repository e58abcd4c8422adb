"""Entity F1 against seqeval; SQuAD's scores against the cases that the official evaluation settles."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbert.metrics import (
    EntityScores,
    answer_scores,
    best_null_threshold,
    bio_spans,
    entity_f1,
    entity_scores,
    is_bio,
    normalize_answer,
    squad_scores,
)

# --- Entities

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-a-b", "I-a-b", "B", "I"]
pairs_of_rows = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=8), min_size=1, max_size=6
)


def _seqeval(y_true, y_pred, average, strict):
    """Precision, recall, F1 and support as seqeval has them, by type in alphabetical order where average is None."""
    pytest.importorskip("seqeval", reason="seqeval is not installed; run: pip install seqeval")
    from seqeval.metrics import sequence_labeling, v1
    from seqeval.scheme import IOB2

    if strict:
        return v1.precision_recall_fscore_support(y_true, y_pred, average=average, zero_division=0, scheme=IOB2)
    return sequence_labeling.precision_recall_fscore_support(y_true, y_pred, average=average, zero_division=0)


@pytest.mark.parametrize("strict", [False, True])
@settings(deadline=None)
@given(rows=pairs_of_rows)
def test_any_tags_score_as_in_seqeval(strict, rows):
    y_true, y_pred = ([[pair[k] for pair in row] for row in rows] for k in (0, 1))
    ours = entity_scores(y_true, y_pred, strict=strict)
    np.testing.assert_allclose(ours, _seqeval(y_true, y_pred, "micro", strict), rtol=1e-12)
    by_label = entity_scores(y_true, y_pred, strict=strict, by_label=True)
    # seqeval calls the type of a bare B or I "_".
    by_label = [by_label[kind] for kind in sorted(by_label, key=lambda kind: kind or "_")]
    theirs = np.transpose(_seqeval(y_true, y_pred, None, strict))
    np.testing.assert_allclose(np.reshape(by_label, (-1, 4)), theirs, rtol=1e-12)
    assert ours.f1 == entity_f1(y_true, y_pred, strict=strict)


def test_an_entity_counts_only_with_both_ends_and_its_type():
    truth = [["B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "B-ORG"]]
    guess = [["B-PER", "I-PER", "O", "B-LOC", "O", "O", "B-LOC"]]
    assert entity_scores(truth, guess) == EntityScores(1 / 3, 1 / 3, 1 / 3, 3)
    assert entity_scores(truth, guess, by_label=True) == {
        "LOC": EntityScores(0.0, 0.0, 0.0, 1),
        "ORG": EntityScores(0.0, 0.0, 0.0, 1),
        "PER": EntityScores(1.0, 1.0, 1.0, 1),
    }


def test_an_entity_does_not_reach_into_the_next_row():
    assert entity_f1([["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]]) == 1.0
    assert entity_scores([["B-PER"], ["I-PER"]], [["O"], ["O"]]).support == 2


def test_an_inside_tag_that_continues_nothing_starts_an_entity_unless_strict():
    tags = ["I-PER", "I-LOC", "I-LOC", "O", "I-PER", "B-PER", "I-LOC"]
    assert bio_spans(tags) == [(0, 1, "PER"), (1, 3, "LOC"), (4, 5, "PER"), (5, 6, "PER"), (6, 7, "LOC")]
    assert bio_spans(tags, strict=True) == [(5, 6, "PER")]


def test_without_entities_every_share_is_zero():
    assert entity_scores([["O"]], [["O"]]) == EntityScores(0.0, 0.0, 0.0, 0)
    assert entity_scores([], []) == EntityScores(0.0, 0.0, 0.0, 0)
    assert entity_scores([["O"]], [["O"]], by_label=True) == {}


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_row_that_is_no_list_is_named(missing):
    with pytest.raises(ValueError, match=f"y_true, row 1 is {missing}. Give a list for each row"):
        entity_scores(pd.Series([["O"], missing]), [["O"], ["O"]])
    with pytest.raises(ValueError, match="y_pred, row 0 is"):
        entity_scores([["O"], ["O"]], [missing, ["O"]])


def test_a_weight_counts_like_so_many_copies_of_a_row():
    truth = [["B-PER", "O"], ["B-LOC", "I-LOC"], ["O", "B-LOC"]]
    guess = [["B-PER", "O"], ["B-LOC", "O"], ["B-PER", "O"]]
    copies = [0, 0, 0, 1, 2, 2]
    weighted = entity_scores(truth, guess, sample_weight=[3, 1, 2])
    assert weighted == entity_scores([truth[i] for i in copies], [guess[i] for i in copies])
    assert entity_f1(truth, guess, sample_weight=[1, 0, 0]) == 1.0


def test_arrays_and_tuples_of_tags_score_like_lists():
    truth, guess = [["B-PER", "O"], ["O", "B-LOC"]], [["B-PER", "O"], ["O", "O"]]
    expected = entity_scores(truth, guess)
    assert entity_scores(np.array(truth), np.array(guess)) == expected
    assert entity_scores(map(tuple, truth), (np.array(row) for row in guess)) == expected
    by_sentence = (pd.Series(row, index=[7, 8]) for row in truth), [pd.Series(row, index=[7, 8]) for row in guess]
    assert entity_scores(*by_sentence) == expected


@pytest.mark.parametrize(
    ("y_true", "y_pred", "options", "message"),
    [
        ([["O"]], [["O"], ["O"]], {}, "y_true has 1 rows and y_pred 2"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], {}, "Row 1 has 2 tags in y_true and 1 in y_pred"),
        ([["O"], ["O", "NNP"]], [["O"], ["O", "O"]], {}, "y_true, row 1: tag 1 is 'NNP'"),
        ([["O"]], [["E-PER"]], {}, "y_pred, row 0: tag 0 is 'E-PER'"),
        ([["O"]], [[None]], {}, "y_pred, row 0: tag 0 is None"),
        (["O O"], [["O"]], {}, "y_true, row 0 is a str"),
        ([["O"]], [["O"]], {"sample_weight": [1, 2]}, "a weight of 0 or more for each of 1 rows"),
        ([["O"]], [["O"]], {"sample_weight": [-1]}, "a weight of 0 or more"),
    ],
)
def test_unusable_tags_are_an_error_that_names_the_row(y_true, y_pred, options, message):
    with pytest.raises(ValueError, match=message):
        entity_scores(y_true, y_pred, **options)


def test_a_table_of_entities_is_refused():
    """Of which a list has the names of its columns."""
    table = pd.DataFrame({"row": [0], "start": [0], "end": [3], "label": ["PER"]})
    with pytest.raises(ValueError, match="y_pred is a table. Give the tags or the spans of each row"):
        entity_scores([[(0, 3, "PER")]] * 4, table)


def test_spans_score_like_the_tags_that_mark_them():
    truth = [[(0, 12, "PER"), (22, 28, "LOC")], [], [(3, 7, "ORG")]]
    found = [[(0, 12, "PER"), (22, 29, "LOC")], [(0, 2, "ORG")], [{"start": 3, "end": 7, "label": "ORG"}]]
    assert entity_scores(truth, found) == (2 / 4, 2 / 3, 4 / 7, 3)
    assert entity_f1(truth, found) == 4 / 7
    by_label = entity_scores(truth, found, by_label=True)
    assert list(by_label) == ["LOC", "ORG", "PER"] and by_label["ORG"] == (0.5, 1.0, 2 / 3, 1)
    assert entity_scores(truth, found, sample_weight=[0, 0, 2]).f1 == 1
    # Texts without a span may be all that is found.
    assert entity_f1(truth, [[], [], []]) == entity_f1([[], [], []], truth) == 0


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([["B-PER"]], [[(0, 3, "PER")]], "y_true holds tags and y_pred spans. Give both of one kind"),
        ([[], [{"start": 0}]], [["O"], ["O"]], "y_true holds spans and y_pred tags"),
        ([[(0, 3, "PER")]], [[(0, 3)]], r"y_pred, row 0 holds \(0, 3\), which is no span"),
        ([[(0, 3, "PER")], ["O"]], [[], []], "y_true, row 1 holds 'O', which is no span"),
        ([[(0, 3, "PER")]], [[{"start": 0, "end": 3}]], "y_pred, row 0 holds .*which is no span"),
    ],
)
def test_spans_and_tags_are_not_mixed(y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        entity_scores(y_true, y_pred)


def test_whether_tags_are_bio_can_be_asked():
    assert is_bio([["O", "B-PER", "I-PER"], [], ["B", "I"]])
    assert not is_bio([["O"], ["DT", "NN"]])
    assert not is_bio([["BANK"]]) and not is_bio([["E-PER"]]) and not is_bio([[""]]) and not is_bio([[3]])


# --- Answers


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Denver Broncos", "denver broncos"),
        ("a.m.", "am"),  # punctuation goes before the articles
        ("an apple, a day; the doctor", "apple day doctor"),
        ("Theory of another anthem", "theory of another anthem"),
        ("  two\n spaces\t", "two spaces"),
        ("$400,000", "400000"),
        ("the a AN", ""),
        ("...", ""),
        ("“quoted” – dash", "“quoted” – dash"),  # only ASCII punctuation goes
        ("Éa the", "éa"),  # an article ends at a letter of any alphabet
        ("rock-and-roll", "rockandroll"),
    ],
)
def test_normalising_follows_the_official_order(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("right", "predicted", "exact", "f1"),
    [
        ("1976", "1976", 1, 1),
        ("Denver Broncos", "the Denver Broncos!", 1, 1),
        ("Santa Clara, California", "Santa Clara", 0, 2 * 1 * (2 / 3) / (1 + 2 / 3)),
        ("cat cat dog", "cat cat cat", 0, 2 / 3),  # words count with their multiplicity
        ("cat", "dog", 0, 0),
        (["dog", "black cat", "cat"], "the cat", 1, 1),  # the best of several
        (["a black cat", "dog"], "cat", 0, 2 / 3),
        ("", "", 1, 1),
        ("", "cat", 0, 0),
        ("cat", "", 0, 0),
        ([], "", 1, 1),
        (["", ""], "", 1, 1),
        (["...", "cat"], "", 0, 0),  # an answer of punctuation does not count beside others
        (["."], ".", 1, 1),
        ("", "the", 1, 1),  # what normalises to nothing is nothing
    ],
)
def test_answers_score_as_in_the_official_evaluation(right, predicted, exact, f1):
    ours = answer_scores([right], [predicted])
    np.testing.assert_allclose(np.ravel(ours), [exact, f1], rtol=1e-15)


def test_scores_of_answerable_and_unanswerable_questions_are_also_given_alone():
    truth = ["cat", ["black dog", "dog"], "", ""]
    scores = squad_scores(truth, ["cat", "black", "", "mouse"])
    assert scores == pytest.approx(
        {
            **{"exact": 0.5, "f1": (1 + 2 / 3 + 1) / 4, "n": 4},
            **{"answerable_exact": 0.5, "answerable_f1": (1 + 2 / 3) / 2, "answerable_n": 2},
            **{"unanswerable_exact": 0.5, "unanswerable_f1": 0.5, "unanswerable_n": 2},
        }
    )
    assert list(squad_scores(["cat"], ["cat"])) == ["exact", "f1", "n"]
    assert squad_scores(truth, ["cat", "black", "", "mouse"], sample_weight=[1, 0, 0, 1])["f1"] == 0.5
    without = squad_scores(["Oslo", ""], ["Oslo", ""], sample_weight=[1, 0])  # no question that has no answer counts
    assert "answerable_f1" in without and "unanswerable_f1" not in without


def test_a_threshold_is_a_number():
    with pytest.raises(ValueError, match="threshold is NaN"):
        squad_scores(["a"], ["a"], null_scores=[0.5], threshold=float("nan"))


def test_a_null_score_above_the_threshold_silences_the_prediction():
    truth, guess = ["cat", ""], ["cat", "mouse"]
    at = {"null_scores": [0.2, 0.7]}
    assert squad_scores(truth, guess, **at, threshold=0.7)["f1"] == 0.5  # not above
    assert squad_scores(truth, guess, **at, threshold=0.5)["f1"] == 1.0
    assert squad_scores(truth, guess, **at, threshold=0.1)["f1"] == 0.5
    with pytest.raises(ValueError, match="go together"):
        squad_scores(truth, guess, **at)


questions = st.lists(
    st.tuples(
        st.sampled_from(["", "cat", "black cat", ("dog", "cat")]),
        st.sampled_from(["", "cat", "black dog", "fish"]),
        st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0]),
        st.sampled_from([1, 1, 2, 0.5]),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(questions, st.sampled_from(["f1", "exact"]))
def test_the_best_threshold_is_the_best_of_all_thresholds(rows, metric):
    truth, guess, null_scores, weights = map(list, zip(*rows, strict=True))
    best = best_null_threshold(truth, guess, null_scores, metric=metric, sample_weight=weights)

    def score(threshold):
        given = {"null_scores": null_scores, "threshold": threshold, "sample_weight": weights}
        return squad_scores(truth, guess, **given)[metric]

    assert best.score == pytest.approx(score(best.threshold), abs=1e-12)
    others = {threshold: score(threshold) for threshold in [-math.inf, *sorted(set(null_scores))]}
    assert best.score == pytest.approx(max(others.values()), abs=1e-12)
    assert best.threshold in others


def test_the_best_threshold_is_that_of_the_official_search():
    # Worked by hand: from 2 unanswerable ones, each question in the order of its null score adds +1, +0.5, -1, 0, +1.
    truth = ["cat", "black cat", "", "", "dog"]
    guess = ["cat", "red cat", "mouse", "", "dog"]
    null_scores = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert best_null_threshold(truth, guess, null_scores) == (0.2, 3.5 / 5)
    assert best_null_threshold(truth, guess, null_scores, metric="exact") == (0.1, 3 / 5)
    assert best_null_threshold(["", ""], ["x", "y"], [0.1, 0.2]) == (-math.inf, 1.0)


def test_questions_of_equal_null_score_are_answered_together_or_not_at_all():
    assert best_null_threshold(["cat", ""], ["cat", "dog"], [0.5, 0.5]) == (-math.inf, 0.5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: answer_scores(["a"], ["a", "b"]), ValueError, "y_true has 1 rows and y_pred 2"),
        (lambda: answer_scores(["a", None], ["a", "b"]), TypeError, "y_true, row 1 is None"),
        (lambda: answer_scores(["a", [1]], ["a", "b"]), TypeError, r"y_true, row 1 is \[1\]"),
        (lambda: answer_scores(["a"], [float("nan")]), TypeError, "y_pred, row 0 is nan"),
        (lambda: squad_scores([], []), ValueError, "There are no questions"),
        (lambda: best_null_threshold(["a"], ["a"], [float("nan")]), ValueError, "a finite number for each of 1"),
        (lambda: best_null_threshold(["a"], ["a"], [0, 1]), ValueError, r"null_scores has shape \(2,\)"),
        (lambda: best_null_threshold(["a"], ["a"], [0], metric="em"), ValueError, "metric='em' is not known"),
        (lambda: best_null_threshold(["a"], ["a"], [0], sample_weight=[0]), ValueError, "a weight above 0"),
    ],
)
def test_unusable_answers_are_an_error_that_says_which(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_single_text_is_not_read_letter_by_letter():
    for wrong in (("Paris", ["Paris"]), (["Paris"], "Paris")):
        for score in (answer_scores, squad_scores):
            with pytest.raises(ValueError, match="is a single text, 'Paris'. Give a list"):
                score(*wrong)
