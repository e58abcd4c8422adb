"""The scores of each kind of task: by hand, and by scikit-learn."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, mean_squared_error, r2_score

from kbert.reports.given import Found, Given
from kbert.reports.scores import scores


def test_scores_of_labels_and_what_was_taken_for_what():
    truth, answers = np.array(["a", "a", "a", "b", "c"]), np.array(["a", "b", "b", "b", "b"])
    found = scores(Given("labels", truth, Found(answers))).as_dict()
    assert (found["accuracy"], found["rows"]) == (0.4, 5)
    assert found["f1_macro"] == pytest.approx(f1_score(truth, answers, average="macro"))
    assert found["by_label"]["a"] == pytest.approx({"precision": 1, "recall": 1 / 3, "f1": 0.5, "rows": 3})
    assert found["confusion"]["a"] == {"a": 1, "b": 2, "c": 0}


def test_rows_are_counted_in_whole_numbers_where_nothing_is_right():
    found = scores(Given("labels", np.array(["a", "b"]), Found(np.array(["b", "a"]))))
    assert found.by_label["rows"].tolist() == [1, 1] and found.by_label["rows"].dtype.kind == "i"
    wrong = Given(
        "several labels", np.array([[1, 0]]), Found(np.array([[0, 1]]), np.array([[0.4, 0.6]]), np.array(["a", "b"]))
    )
    assert scores(wrong).by_label["rows"].dtype.kind == "i"


def test_scores_of_several_labels():
    truth, answers = np.array([[1, 0], [1, 1], [0, 0], [1, 0]]), np.array([[1, 0], [0, 1], [0, 1], [0, 0]])
    shares = np.array([[0.9, 0.3], [0.4, 0.8], [0.1, 0.7], [0.2, 0.1]])
    given = Given("several labels", truth, Found(answers, shares, np.array(["hot", "red"])))
    found = scores(given).as_dict()
    assert found["f1_micro"] == pytest.approx(f1_score(truth, answers, average="micro"))
    assert found["f1_macro"] == pytest.approx(f1_score(truth, answers, average="macro"))
    assert found["average_precision"] == pytest.approx(average_precision_score(truth.ravel(), shares.ravel()))
    assert found["rows_all_right"] == 0.25
    assert found["by_label"]["hot"] == pytest.approx({"precision": 1, "recall": 1 / 3, "f1": 0.5, "rows": 3})
    assert scores(given._replace(truth=0 * truth)).as_dict()["average_precision"] is None  # none to be found


def test_scores_of_numbers():
    truth, answers = np.array([[1.0], [2.0], [3.0], [9.0]]), np.array([[1.5], [2.0], [1.0], [5.0]])
    pair = truth[:, 0], answers[:, 0]
    assert scores(Given("numbers", truth, Found(answers))).values == pytest.approx(
        {
            "r2": r2_score(*pair), "rmse": mean_squared_error(*pair) ** 0.5, "mae": mean_absolute_error(*pair),
            "pearson": pearsonr(*pair)[0], "spearman": spearmanr(*pair)[0], "rows": 4,
        }
    )  # fmt: skip
    # Equal numbers go up and down with none, and nor do those of several columns.
    for found in (Found(0 * answers), Found(np.hstack([answers, answers]))):
        values = scores(Given("numbers", np.hstack([truth] * found.answers.shape[1]), found)).values
        assert set(values) == {"r2", "rmse", "mae", "rows"}


def test_scores_of_tags():
    truth, answers = [["B-X", "O", "B-X"], ["B-X", "B-X"]], [["B-X", "O", "O"], ["B-X", "B-X"]]
    found = scores(Given("tags", truth, Found(answers))).as_dict()
    assert (found["precision"], found["recall"], found["f1"]) == (1.0, 0.75, pytest.approx(6 / 7))
    assert found["by_label"]["X"]["entities"] == 4 and "confusion" not in found
    words = scores(Given("tags", [["N", "N", "V"]], Found([["N", "V", "V"]]))).as_dict()
    assert words["accuracy"] == pytest.approx(2 / 3) and words["confusion"]["N"] == {"N": 1, "V": 1}


def test_scores_of_answers_and_of_options():
    found = scores(Given("answers", [["red hot"], ["blue"]], Found(["red", "blue"]))).values
    assert found == pytest.approx({"f1": 5 / 6, "exact": 0.5, "rows": 2})
    shares = np.array([[0.5, 0.3, 0.2], [0.2, 0.8, np.nan]])
    found = scores(Given("choices", np.array([1, 1]), Found(np.array([0, 1]), shares))).values
    assert found == pytest.approx({"accuracy": 0.5, "guessing": (1 / 3 + 1 / 2) / 2, "rows": 2})
