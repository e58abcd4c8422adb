"""Whether a run has learned nothing, less than it could, or enough: by the loss without dropout, and by ranking."""

import warnings

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from kbert import BertClassifier
from kbert.errors import FailedRunWarning, UnderfitWarning
from kbert.estimators import runs
from kbert.estimators.outcome import Kind, outcome_of
from kbert.tasks import SeveralLabels, SingleLabel
from kbert.tasks.ranking import class_ranking, label_ranking, number_ranking, option_ranking
from kbert.tasks.texts import TextExamples
from kbert.text import Ragged, TokenSequences
from kbert.training.labelled_batches import TrainingData

# --- Rankings


def test_labels_are_ranked_as_by_scikit_learns_auc():
    rng = np.random.default_rng(0)
    outputs, has = rng.normal(size=(60, 4)).round(1), rng.random((60, 4)) < [0.5, 0.1, 0.9, 0]
    expected = 2 * roc_auc_score(has[:, :3], outputs[:, :3], average="macro") - 1
    assert label_ranking(outputs, has) == pytest.approx(expected)  # nobody has the fourth
    assert label_ranking(np.zeros((60, 4)), has) == 0 and label_ranking(outputs, has & False) == 0
    classes = rng.integers(0, 3, 60)
    assert class_ranking(np.eye(3)[classes], classes) == 1 and class_ranking(-np.eye(3)[classes], classes) == -1


def test_numbers_are_ranked_as_by_spearmans_correlation():
    rng = np.random.default_rng(0)
    outputs, numbers = rng.normal(size=(2, 40, 2))
    expected = np.mean([spearmanr(a, b).statistic for a, b in zip(outputs.T, numbers.T, strict=True)])
    assert number_ranking(outputs, numbers) == pytest.approx(expected)
    assert number_ranking(outputs * 0, numbers) == 0


def test_options_are_ranked_within_their_rows():
    scores, right = np.array([[3.0, 1, 2], [3, 1, -np.inf], [1, 1, 0]]), np.array([0, 1, 0])
    assert option_ranking(scores, right) == pytest.approx((2 - 1 + 1) / 5)


# --- The outcome of outputs


class Fixed:
    """A task whose model gives these outputs."""

    def __init__(self, task, outputs):
        self.task, self.given = task, outputs

    def outputs(self, model, examples):
        return self.given

    def __getattr__(self, name):
        return getattr(self.task, name)


def judged(task, outputs, labels, last_loss, linear_loss=None, few_updates=False, n_windows=1):
    n = len(labels) * n_windows
    tokens = Ragged(np.zeros(n, np.int32), np.arange(n + 1))
    sequences = TokenSequences(
        tokens, np.ones(n, np.int64), np.zeros(n, bool), np.repeat(np.arange(len(labels)), n_windows)
    )
    examples = TextExamples(sequences, labels, np.ones(len(labels), "float32"))
    task.learn(labels, examples.weights)
    data = task.training_data(examples)
    assert isinstance(data, TrainingData)
    return outcome_of(Fixed(task, outputs), None, data, examples, last_loss, linear_loss, few_updates)


@pytest.fixture
def rare():
    """Labels of which each row has one in six, and outputs of about their frequency that rank them well."""
    rng = np.random.default_rng(0)
    labels = rng.random((200, 5)) < 1 / 6
    outputs = -2.7 + 0.4 * labels + rng.normal(scale=0.3, size=labels.shape)
    task = SeveralLabels(classes_=np.arange(5))
    return task, outputs, labels


def test_several_labels_that_are_ranked_well_are_no_failure(rare):
    """A multi-label fit with an AUC of 0.83 and a loss over that of the frequencies had been called a failure."""
    task, outputs, labels = rare
    assert 0.75 < roc_auc_score(labels, outputs, average="macro") < 0.9 and not (outputs > 0).any()
    found = judged(task, outputs, labels, last_loss=0.453)
    assert found.loss > 0.98 * found.reference and found.kind is Kind.ENOUGH
    assert judged(task, np.random.default_rng(1).permutation(outputs), labels, 0.453).kind is Kind.NOTHING


@pytest.mark.parametrize("n", [16, 64, 256])
def test_few_rows_rank_by_chance_as_often_as_they_should(n):
    """Outputs without any meaning are a failure nearly always: noise alone does not save them."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    task = SingleLabel(classes_=np.array(["a", "b"]))
    kinds = [judged(task, rng.normal(scale=0.01, size=(n, 2)), labels, 0.69).kind for _ in range(60)]
    assert kinds.count(Kind.NOTHING) >= 58


def test_a_low_loss_costs_nothing():
    labels = np.arange(64) % 2
    assert judged(SingleLabel(classes_=np.array(["a", "b"])), None, labels, last_loss=0.3).kind is Kind.ENOUGH


def test_a_linear_model_that_is_better_on_unseen_rows_tells_of_a_bad_run():
    labels = np.arange(64) % 2
    outputs = np.eye(2)[labels]  # the right order, and a loss of 0.31
    task = SingleLabel(classes_=np.array(["a", "b"]))
    assert judged(task, outputs, labels, last_loss=0.4, linear_loss=0.2).kind is Kind.LESS_THAN_LINEAR
    assert judged(task, outputs, labels, last_loss=0.4, linear_loss=0.35).kind is Kind.ENOUGH


def test_few_updates_and_a_high_loss_are_told():
    labels = np.arange(64) % 2
    task, outputs = SingleLabel(classes_=np.array(["a", "b"])), 0.05 * np.eye(2)[np.arange(64) % 2]
    assert judged(task, outputs, labels, 0.688, few_updates=True).kind is Kind.LITTLE
    assert judged(task, outputs, labels, 0.688).kind is Kind.ENOUGH


def test_class_weights_are_those_of_training():
    labels = (np.arange(200) % 10 == 0).astype("int32")
    task = SingleLabel(classes_=np.array(["a", "b"]), class_weight={"b": 9})
    constant = np.zeros((200, 2))  # what is best under these weights
    found = judged(task, constant, labels, last_loss=0.69)
    assert found.kind is Kind.NOTHING
    assert found.loss == pytest.approx(np.log(2)) and found.reference == pytest.approx(np.log(2), abs=1e-3)
    # The rare label is found to be a little more probable where it is right. Without weights the loss is near 0.4.
    little = np.array([[1.1, 0], [0.9, 0]])[labels]
    found = judged(task, little, labels, last_loss=0.8, linear_loss=0.4, few_updates=True)
    assert found.kind is Kind.LITTLE and found.loss > found.reference > 0.69


@pytest.mark.parametrize("task", [SingleLabel, SeveralLabels])
def test_balanced_weights_are_those_of_all_rows(task):
    """Not of the rows that are looked at, which have more or less of a rare label. The best constant has its loss."""
    labels = (np.arange(2000) % 100 == 7).astype("int32")
    looked_at = labels[np.linspace(0, 1999, 256).astype(int)]
    rare, common = 50 * looked_at.sum(), 50 / 99 * (256 - looked_at.sum())
    assert abs(rare / common - 1) > 0.1
    outputs = np.tile(np.log([common, rare]), (256, 1))
    if task is SeveralLabels:
        labels, outputs = labels[:, None] == [0, 1], outputs - outputs[:, ::-1]
    found = judged(task(classes_=np.arange(2), class_weight="balanced"), outputs, labels, last_loss=9)
    assert found.loss == pytest.approx(found.reference, rel=1e-3)


def test_the_loss_of_a_linear_model_is_compared_without_weights_of_classes_and_with_some_room():
    """It knows no weights of classes, and is of rows that it has not seen."""
    labels = (np.arange(200) % 10 == 0).astype("int32")
    logits = np.log(1 / 9) + 0.4 * (labels - 0.1)
    outputs = np.stack([np.zeros(200), logits], axis=1)  # a mean loss of 0.31, and over 0.6 with the weights
    weighted = SingleLabel(classes_=np.array(["a", "b"]), class_weight={"b": 9})
    assert judged(weighted, outputs, labels, last_loss=1.0, linear_loss=0.35).kind is Kind.ENOUGH
    labels = np.arange(64) % 2
    task, outputs = SingleLabel(classes_=np.array(["a", "b"])), np.eye(2)[labels]  # a loss of 0.313
    assert judged(task, outputs, labels, last_loss=0.4, linear_loss=0.305).kind is Kind.ENOUGH
    assert judged(task, outputs, labels, last_loss=0.4, linear_loss=0.295).kind is Kind.LESS_THAN_LINEAR


def test_of_a_constant_y_there_is_nothing_to_learn():
    task = SeveralLabels(classes_=np.arange(2))
    labels = np.zeros((64, 2), bool)
    assert judged(task, np.full((64, 2), -3.0), labels, last_loss=0.05, few_updates=True).kind is Kind.ENOUGH


def test_of_rare_answers_a_constant_may_be_the_best_unless_there_are_many():
    """One row in fifty of two labels; and one in a hundred of each of twenty labels, whose losses add up."""
    two = SingleLabel(classes_=np.array(["a", "b"]))
    labels = (np.arange(200) % 50 == 0).astype("int32")
    assert judged(two, np.tile([0.0, np.log(1 / 49)], (200, 1)), labels, last_loss=0.1).kind is Kind.ENOUGH
    twenty = SeveralLabels(classes_=np.arange(20))
    labels = np.arange(200)[:, None] % 100 == np.arange(20)
    assert judged(twenty, np.full((200, 20), -np.log(99)), labels, last_loss=0.06).kind is Kind.NOTHING


def test_of_many_rows_the_constant_is_that_of_the_rows_that_are_looked_at():
    """Each in two windows; the rows that are looked at, 256 of 600, have more of the first label than all."""
    labels = np.ones(600, "int32")
    labels[np.linspace(0, 599, 256).astype(int)[:200]] = 0
    task = SingleLabel(classes_=np.array(["a", "b"]))
    found = judged(task, np.zeros((256, 2)), labels, last_loss=0.69, n_windows=2)
    share = 200 / 256
    assert found.reference == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share), abs=1e-6)


# --- Fits


@pytest.mark.slow
def test_a_run_of_few_updates_is_told(toy, reviews):
    """Three epochs of few rows, as in the paper, left the training accuracy at 0.688 and said nothing."""
    classifier = BertClassifier.paper(
        **toy().get_params() | {"epochs": 3, "learning_rate": 1e-3, "head_start": "random"}
    )
    with pytest.warns((UnderfitWarning, FailedRunWarning)) as told:
        classifier.fit(reviews.text[:80], reviews.label[:80])
    ours = [warning for warning in told if issubclass(warning.category, (UnderfitWarning, FailedRunWarning))]
    assert [warning.filename for warning in ours] == [__file__]


@pytest.mark.slow
def test_an_early_epoch_that_early_stopping_chose_by_chance_is_judged(toy, reviews, quick_folder):
    """Its loss counts, and not that of the last epoch."""
    X, y = reviews.text[:64], reviews.label[:64]
    wrong = y.map({"good": "bad", "bad": "good"})  # the more is learned, the lower is the score
    stopping = toy(weights=quick_folder, epochs=12, early_stopping=True, n_iter_no_change=8)
    with pytest.warns(UnderfitWarning, match="after epoch 1, to which early_stopping went back, .* by chance") as told:
        stopping.fit(X, y, eval_set=(X, wrong))
    assert len(told) == 1 and np.argmax(stopping.history_["val_score"]) == 0
    assert len(stopping.history_["loss"]) == 9 and stopping.history_["loss"][-1] < 0.6 < stopping.history_["loss"][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnderfitWarning)
        stopping.fit(X, y, eval_set=(X, y))


def test_the_linear_loss_of_the_probe_reaches_the_check(toy, reviews, quick_folder, monkeypatch):
    seen = []
    real = runs.outcome_of

    def note(*arguments):
        seen.append(arguments[5])
        return real(*arguments)

    monkeypatch.setattr(runs, "outcome_of", note)
    both = {"head_start": "probe", "classifier_pooling": "auto"}
    for changes in (both, {**both, "classifier_pooling": "cls"}, {"head_start": "random"}):
        toy(weights=quick_folder, **changes).fit(reviews.text[:64], reviews.label[:64])
    assert seen[0] > 0 and seen[1] > 0 and seen[2] is None


@pytest.mark.slow
def test_a_rate_that_wrecks_a_probe_is_told(toy, quick_folder, reviews):
    with pytest.warns((UnderfitWarning, FailedRunWarning)):
        toy(weights=quick_folder, epochs=4, learning_rate=0.5, head_start="probe").fit(reviews.text, reviews.label)


@pytest.mark.slow
def test_good_fits_are_not_warned_of(toy, quick_folder, reviews):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnderfitWarning)
        warnings.simplefilter("error", FailedRunWarning)
        toy(weights=quick_folder, epochs="auto", head_start="probe").fit(reviews.text, reviews.label)
        toy(weights=quick_folder, epochs="auto", head_start="random").fit(reviews.text, reviews.label)
