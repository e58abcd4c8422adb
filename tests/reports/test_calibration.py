"""Reliability: what is overconfident is said to be, and a temperature mends it."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import log_loss

from kbert.reports.calibration import calibration
from kbert.reports.given import Found, Given
from kbert.tasks.calibration import best_temperature


def drawn(temperature, n_rows=4000):
    """Labels drawn with the probabilities of some logits, and the probabilities of these logits times a number."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (n_rows, 3))
    truth = (softmax(logits, axis=1).cumsum(axis=1) > rng.random((n_rows, 1))).argmax(axis=1)
    names = np.array(["a", "b", "c"])
    return Given("labels", names[truth], Found(names[truth], softmax(logits * temperature, axis=1), names))


def test_right_probabilities_have_no_error():
    found = calibration(drawn(1.0), 1.0)
    assert found["before"]["error"] < 0.02 and found["after"]["error"] < 0.02
    assert sum(part["rows"] for part in found["before"]["bins"]) == 4000
    assert all(part["from"] <= part["probability"] <= part["to"] for part in found["before"]["bins"])


@pytest.mark.parametrize("temperature", [0.4, 3.0])
def test_a_temperature_mends_what_is_too_sure_or_not_sure_enough(temperature):
    found = calibration(drawn(temperature), 1.0)
    assert found["before"]["error"] > 0.1 and found["after"]["error"] < 0.02


def test_each_half_of_the_rows_has_the_temperature_that_is_best_for_the_other():
    given = drawn(3.0, 40)
    logits, truth = np.log(given.found.probabilities), np.searchsorted(["a", "b", "c"], given.truth)
    half, scaled = np.random.default_rng(0).permutation(40) % 2 == 0, logits.copy()
    for some, others in ((half, ~half), (~half, half)):

        def loss(temperature, others=others):
            return log_loss(truth[others], softmax(logits[others] / temperature, axis=1), labels=[0, 1, 2])

        scaled[some] /= best_temperature(loss, 20)
    by_hand = given._replace(found=given.found._replace(probabilities=softmax(scaled, axis=1)))
    found, expected = calibration(given, 1.0)["after"], calibration(by_hand, None)["after"]
    assert found["error"] == pytest.approx(expected["error"], abs=1e-6)


def test_a_learned_temperature_is_undone():
    """Probabilities that were divided by 3 came from those that are too sure by a factor of 3."""
    found = calibration(drawn(1.0), 3.0)
    assert found["after"] == calibration(drawn(1.0), 1.0)["before"]
    assert found["before"]["error"] == pytest.approx(calibration(drawn(3.0), 1.0)["before"]["error"])
    assert set(calibration(drawn(1.0), None)) == {"after"}


def test_of_several_labels_each_is_a_question_of_its_own():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (3000, 2))
    truth = (rng.random((3000, 2)) < expit(logits)).astype(int)
    unknown = np.zeros((3000, 1))  # a label that the classifier does not know
    given = Given(
        "several labels",
        np.hstack([truth, unknown.astype(int)]),
        Found(None, np.hstack([expit(3 * logits), unknown]), np.array(["a", "b", "c"])),
    )
    found = calibration(given, 1.0)
    assert found["before"]["error"] > 0.1 and found["after"]["error"] < 0.02
    assert sum(part["rows"] for part in found["after"]["bins"]) == 6000


def test_true_probabilities_have_the_error_of_chance_and_others_a_larger_one():
    """On 40 rows true probabilities have an error of 0.1 and more, which would look like a bad model."""
    rng, errors, by_chance = np.random.default_rng(0), [], []
    for _ in range(200):
        said = rng.uniform(0.5, 1, 40)
        truth = np.where(rng.random(40) < said, "a", "b")
        found = calibration(
            Given("labels", truth, Found(truth, np.stack([said, 1 - said], axis=1), np.array(["a", "b"]))), None
        )["after"]
        errors.append(found["error"])
        by_chance.append(found["error_by_chance"])
    assert np.mean(errors) == pytest.approx(np.mean(by_chance), abs=4 * np.std(errors) / np.sqrt(200))
    assert np.mean(by_chance) > 0.1
    many = calibration(drawn(3.0), 1.0)["before"]
    assert many["error_by_chance"] < 0.02 < 0.1 < many["error"]


def test_two_rows_of_which_each_is_right_or_not_by_half():
    """Of both right, both wrong, and one right, twice: errors of 0.5, 0.5, 0 and 0."""
    half = np.full((2, 2), 0.5)
    found = calibration(Given("labels", np.array(["a", "b"]), Found(None, half, np.array(["a", "b"]))), None)["after"]
    assert found["error_by_chance"] == pytest.approx(0.25, abs=0.07)  # four standard deviations of 200 draws


def test_labels_that_the_classifier_does_not_know_do_not_count():
    given = drawn(1.0, 100)
    truth = np.where(np.arange(100) < 40, "d", given.truth)
    found = calibration(given._replace(truth=truth), 1.0)
    assert sum(part["rows"] for part in found["before"]["bins"]) == 60
    assert calibration(given._replace(truth=np.full(100, "d")), 1.0) == {}
    assert calibration(drawn(1.0, 1), 1.0) == {}


def test_bins_and_their_error_by_hand():
    shares = np.array([1.0, 1.0, 0.74, 0.72])
    found = Found(None, np.stack([shares, 1 - shares], axis=1), np.array(["a", "b"]))
    found = calibration(Given("labels", np.array(["a", "b", "a", "a"]), found), None)["after"]
    low, high = found["bins"]
    assert low == pytest.approx({"from": 0.7, "to": 0.8, "rows": 2, "probability": 0.73, "right": 1.0})
    assert high == pytest.approx({"from": 0.9, "to": 1.0, "rows": 2, "probability": 1.0, "right": 0.5})
    assert found["error"] == pytest.approx(0.27 / 2 + 0.5 / 2)
    # Of several labels, one that a row surely has not counts too.
    several = Given("several labels", np.array([[0, 1], [1, 1]]), Found(None, np.array([[0.0, 0.5], [0.8, 0.5]]), None))
    assert [part["rows"] for part in calibration(several, None)["after"]["bins"]] == [1, 2, 1]
