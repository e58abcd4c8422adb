"""Which rows are doubtful, and how much, of each kind of task: by hand."""

import numpy as np
import pytest

from kbert.reports.doubts import doubts
from kbert.reports.given import Found, Given


def test_a_label_is_the_more_doubtful_the_less_probable_it_is():
    classes, answers = np.array(["a", "b", "c"]), np.array(["c", "a", "c", "b"])
    probabilities = np.array([[0.1, 0.2, 0.7], [0.45, 0.35, 0.2], [0.1, 0.1, 0.8], [0.0, 0.6, 0.4]])
    found = doubts(Given("labels", np.array(["a", "b", "c", "unknown"]), Found(answers, probabilities, classes)))
    np.testing.assert_allclose(found.doubt, [0.9, 0.65, 0, 1])
    np.testing.assert_allclose(found.probabilities, [[0.1, 0.7], [0.35, 0.45], [0.8, 0.8], [0, 0.6]])
    assert found.explain == {"labels": ["c", "a", "c", "b"]}


def test_an_option_is_the_more_doubtful_the_less_probable_it_is():
    probabilities = np.array([[0.3, 0.5, 0.2], [0.1, 0.9, np.nan], [0.2, 0.2, 0.6]])
    found = doubts(Given("choices", np.array([0, 0, 2]), Found(np.array([1, 1, 2]), probabilities)))
    np.testing.assert_allclose(found.doubt, [0.7, 0.9, 0])
    np.testing.assert_allclose(found.probabilities, [[0.3, 0.5], [0.1, 0.9], [0.6, 0.6]])


def test_of_several_labels_the_most_doubtful_one_is_named():
    truth, answers = np.array([[1, 0], [0, 0], [1, 1]]), np.array([[0, 0], [1, 1], [1, 1]])
    shares = np.array([[0.2, 0.4], [0.6, 0.9], [0.8, 0.7]])
    found = doubts(Given("several labels", truth, Found(answers, shares, np.array(["hot", "red"]))))
    np.testing.assert_allclose(found.doubt, [0.8, 0.9, 0])
    assert found.explain["labels"][:2] == ["hot", "red"]
    assert found.given == [["hot"], [], ["hot", "red"]] and found.predicted == [[], ["hot", "red"], ["hot", "red"]]
    # That a row has the named label as it is given, and as it is predicted.
    np.testing.assert_allclose(found.probabilities[:2], [[0.2, 0.8], [0.1, 0.9]])


def test_of_the_tags_of_a_row_the_most_doubtful_one_is_named():
    probabilities = [np.array([[0.4, 0.6], [0.9, 0.1], [0.2, 0.8]]), np.zeros((0, 2)), np.array([[0.3, 0.7]])]
    truth, answers = [["O", "O", "O"], [], ["X"]], [["X", "O", "X"], [], ["X"]]
    found = doubts(Given("tags", truth, Found(answers, probabilities, np.array(["O", "X"]))))
    np.testing.assert_allclose(found.doubt, [0.8, 0, 0])
    np.testing.assert_allclose(found.probabilities[0], [0.2, 0.8])
    assert found.explain["word"][0] == 2 and (found.given[0], found.predicted[0]) == ("O", "X")


def test_numbers_are_doubtful_by_their_largest_error_in_units_of_its_column():
    truth = np.array([[1.0, 50.0, 7.0], [2.0, 60.0, 8.0]])
    found = doubts(Given("numbers", truth, Found(truth + [[1, 100, 0], [-3, 100, 0]])))
    np.testing.assert_allclose(found.doubt, [1, 3 / np.sqrt(5)])
    assert found.given == truth.tolist()
    assert doubts(Given("numbers", truth[:, :1], Found(truth[:, :1] + 1))).predicted == [2.0, 3.0]


def test_an_answer_is_doubtful_that_is_probable_and_has_little_in_common_with_the_right_ones():
    right = [["red hot"], ["red"], ["red", "blue"], ["red"], []]
    given = Given("answers", right, Found(np.array(["red", "blue", "blue", "hot", "hot"]), [0.9, 0.5, 0.8, 0.4, 1.0]))
    found = doubts(given)
    assert found.doubt == pytest.approx([0.3, 0.5, 0, 0.4, 1])
    np.testing.assert_array_equal(found.probabilities, [[np.nan, share] for share in given.found.probabilities])
