"""A fit with a checkpoint that is killed, and started again, ends as if it had not been."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import StackingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_validate,
)
from sklearn.pipeline import make_pipeline

from kbert import BertClassifier, BertMultipleChoice, BertPretrainer, BertQA, BertRegressor, BertTagger
from kbert.errors import CheckpointWarning, FailedRunWarning, WeightsMismatchError
from kbert.estimators import runs
from kbert.tasks.linear_head import LinearHead
from kbert.training import checkpoint_folders
from kbert.training.updater import Updater

SCRIPT = Path(__file__).with_name("fit_to_be_killed.py")
TEXTS = ["the table was great", "a sad chair", "the room", "it was awful and sad", "happy", "this was lovely"] * 3
LABELS = ["good", "bad", "good", "bad", "good", "good"] * 3
WORDS = pd.Series([text.split() for text in TEXTS])
TAGS = [["B-X" if word in ("table", "room") else "O" for word in words] for words in WORDS]
QUESTIONS = pd.DataFrame({"question": TEXTS, "context": [f"{text} and it was the room" for text in TEXTS]})
ANSWERS = pd.DataFrame({"answer": ["room"] * len(TEXTS), "answer_start": [len(text) + 16 for text in TEXTS]})
PAIRS = pd.DataFrame({"one": TEXTS, "other": TEXTS[::-1]})
OPTIONS = pd.DataFrame({"context": TEXTS, "options": [["a table", "a sad chair"]] * len(TEXTS)})

# Each with 4 to 6 updates an epoch.
FITS = {
    "early stopping": (
        partial(BertClassifier, early_stopping=True, validation_fraction=0.3, n_iter_no_change=1), (TEXTS, LABELS)
    ),
    "windows": (partial(BertRegressor, max_length=5, long_text="window"), (TEXTS, np.arange(18.0))),
    "frozen": (partial(BertClassifier, freeze=1), (TEXTS, LABELS)),
    "few labels": (partial(BertClassifier, few_labels=True), (TEXTS, LABELS)),
    "pairs": (partial(BertClassifier, learning_rate="auto"), (PAIRS, np.random.default_rng(0).permutation(LABELS))),
    "words": (partial(BertTagger, max_length=16, gradient_accumulation=2, batch_size=2), (WORDS, TAGS)),
    "questions": (partial(BertQA, max_length=16, stride=4), (QUESTIONS, ANSWERS)),
    "options": (partial(BertMultipleChoice, max_length=16), (OPTIONS, [0, 1] * 9)),
}  # fmt: skip


class Killed(BaseException):
    """What no code of kbert's catches."""


@pytest.fixture
def dying_after(monkeypatch):
    """A function that lets fits end after so many updates in all, or go on (None); checkpoints follow every update."""
    monkeypatch.setattr(checkpoint_folders, "SECONDS_BETWEEN", 0.0)
    updates = Updater.updates

    def set_end(after, end=Killed):
        made = 0

        def dying(self, *arguments, **options):
            nonlocal made
            for update in updates(self, *arguments, **options):
                if made == after:
                    if end is Killed:
                        raise Killed
                    os.kill(os.getpid(), end)
                made += 1
                yield update

        monkeypatch.setattr(Updater, "updates", dying)

    return set_end


def made(kind, folder, checkpoint, **changes):
    """An estimator of a kind, and its rows."""
    make, rows = FITS[kind]
    values = dict(weights=folder, batch_size=4, epochs=3, learning_rate=1e-3, random_state=0, checkpoint=checkpoint)
    return make(**{**values, **make.keywords, **changes}), rows


def weights_of(estimator):
    return [np.array(keras.ops.convert_to_numpy(variable.value)) for variable in estimator.model_.weights]


def assert_same(one, other):
    assert one.history_ == other.history_
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("early stopping", marks=[pytest.mark.backend, pytest.mark.compiles]),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(FITS)[1:]),
    ],
)
def test_a_killed_fit_ends_as_if_it_had_not_been(kind, toy_folder, tmp_path, dying_after):
    estimator, rows = made(kind, toy_folder, None)
    estimator.fit(*rows)
    again, _ = made(kind, toy_folder, tmp_path / "fit")
    for n in (1, 3):  # killed in the first epoch, and in a later one
        dying_after(n)
        with pytest.raises(Killed):
            again.fit(*rows)
        assert not hasattr(again, "model_")
    dying_after(None)
    assert_same(again.fit(*rows), estimator)
    dying_after(0)
    assert_same(clone(again).fit(*rows), estimator)  # a finished fit makes no update


@pytest.mark.slow
def test_a_fit_goes_on_on_another_number_of_devices(toy_folder, tmp_path, dying_after, monkeypatch):
    """As on these from its begin: their number changes the rounding alone, and here not even that."""
    whole, rows = made("early stopping", toy_folder, None)
    whole.fit(*rows)
    again, _ = made("early stopping", toy_folder, tmp_path / "fit")
    dying_after(3)
    with pytest.raises(Killed):
        again.fit(*rows)
    dying_after(None)
    monkeypatch.setattr(runs, "description", lambda distribution: 2)
    with pytest.warns(CheckpointWarning, match=r"began on other devices \(was 1, is 2\)"):
        assert_same(again.fit(*rows), whole)


# A fit of any kind makes more updates than these, of which one is drawn to be killed in.
FIRST_UPDATES = 6


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        *((kind, "in an update") for kind in ("early stopping", "windows", "words", "questions", "options")),
        ("early stopping", "in a file of a checkpoint"), ("early stopping", "before a checkpoint has its name"),
        ("early stopping", "when a checkpoint has its name"),
    ],
)  # fmt: skip
def test_a_process_that_is_killed_at_random(kind, where, toy_folder, tmp_path):
    def run(*end):
        command = [sys.executable, str(SCRIPT), str(toy_folder), str(tmp_path / "fit"), kind, *map(str, end)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    number = int(np.random.default_rng().integers(1, FIRST_UPDATES + 1))
    killed = run(where, number)
    assert killed.returncode == -signal.SIGKILL, (number, killed.stderr[-2000:])
    names = [path.name for path in checkpoint_folders.checkpoints_in(tmp_path / "fit")]
    last = number if where == "when a checkpoint has its name" else number - 1
    assert names[-1:] == [f"checkpoint-{last:09d}"] * (last > 0)
    again = run()
    assert again.returncode == 0, (number, again.stderr[-2000:])
    gone_on, whole = again.stdout.split()
    assert gone_on == whole, number


@pytest.fixture
def interrupted(dying_after, monkeypatch):
    """A function that calls ``fit`` of an estimator, in which Ctrl-C comes in the third update."""
    monkeypatch.setattr(checkpoint_folders, "SECONDS_BETWEEN", 1e9)

    def fit(estimator, *rows):
        dying_after(2, signal.SIGINT)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process of xdist ignores it
        try:
            with pytest.raises(KeyboardInterrupt):
                estimator.fit(*rows)
        finally:
            signal.signal(signal.SIGINT, before)
        dying_after(None)

    return fit


@pytest.mark.slow
def test_ctrl_c_leaves_the_estimator_as_it_was_and_a_checkpoint(toy_folder, tmp_path, interrupted):
    estimator, rows = made("frozen", toy_folder, tmp_path / "fit")
    interrupted(estimator, *rows)
    assert not hasattr(estimator, "model_")
    assert [path.name for path in checkpoint_folders.checkpoints_in(tmp_path / "fit")] == ["checkpoint-000000003"]
    assert_same(estimator.fit(*rows), made("frozen", toy_folder, None)[0].fit(*rows))


@pytest.mark.slow
@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_ctrl_c_leaves_a_fitted_estimator_as_it_was(with_checkpoint, warm_start, toy_folder, tmp_path, interrupted):
    estimator, (texts, labels) = made("frozen", toy_folder, None, epochs=1, warm_start=warm_start)
    estimator.fit(texts, labels)
    state, arrays = dict(vars(estimator)), [estimator.predict_proba(texts), *weights_of(estimator)]
    changes = {"epochs": 3, "checkpoint": tmp_path / "fit" if with_checkpoint else None}
    interrupted(estimator.set_params(**changes), texts, labels[::-1])
    found = dict(vars(estimator))
    assert found.keys() == state.keys()
    assert all(found[name] is value for name, value in state.items() if name not in changes)
    for before, after in zip(arrays, [estimator.predict_proba(texts), *weights_of(estimator)], strict=True):
        np.testing.assert_array_equal(before, after)
    assert (tmp_path / "fit").exists() == with_checkpoint


@pytest.mark.slow
def test_without_a_random_state_the_seed_is_that_of_the_checkpoint(toy_folder, tmp_path, dying_after):
    estimator, rows = made("frozen", toy_folder, tmp_path / "fit", random_state=None)
    dying_after(2)
    with pytest.raises(Killed):
        estimator.fit(*rows)
    dying_after(None)
    assert_same(estimator.fit(*rows), clone(estimator).fit(*rows))


@pytest.mark.slow
@pytest.mark.parametrize("warm_start", [False, True])  # a first fit is no warm start either way
def test_a_fit_goes_on_where_the_head_starts_with_other_last_digits(
    warm_start, toy_folder, tmp_path, dying_after, monkeypatch
):
    """As on another processor: the head is fitted anew, and the checkpoint has the one that was trained."""
    estimator, rows = made("frozen", toy_folder, tmp_path / "fit", head_start="probe", warm_start=warm_start)
    dying_after(2)
    with pytest.raises(Killed):
        estimator.fit(*rows)
    dying_after(None)
    assign_to = LinearHead.assign_to

    def nearly(head, layer):
        assign_to(head._replace(bias=head.bias + 1e-6), layer)

    monkeypatch.setattr(LinearHead, "assign_to", nearly)
    estimator.fit(*rows)
    monkeypatch.undo()
    assert_same(estimator, made("frozen", toy_folder, None, head_start="probe")[0].fit(*rows))


@pytest.mark.slow
def test_a_fit_goes_on_in_its_precision_where_auto_would_be_another_one(toy_folder, tmp_path, dying_after, monkeypatch):
    estimator, rows = made("few labels", toy_folder, tmp_path / "fit", dtype="auto")
    monkeypatch.setattr("kbert.estimators.runs.dtype_policy", lambda dtype: "mixed_bfloat16")
    dying_after(2)
    with pytest.raises(Killed):
        estimator.fit(*rows)
    dying_after(None)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"differs in dtype \(was 'mixed_bfloat16', is 'float32'\)"):
        clone(estimator).set_params(dtype="float32").fit(*rows)
    assert estimator.fit(*rows).model_.dtype_policy.name == "mixed_bfloat16"
    assert_same(estimator, made("few labels", toy_folder, None, dtype="bfloat16")[0].fit(*rows))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frozen", "pairs"])
def test_a_run_after_a_failed_one_goes_on_as_that_run(kind, toy_folder, tmp_path, dying_after, monkeypatch):
    from kbert.estimators import runs
    from kbert.estimators.outcome import Kind

    outcome_of = runs.outcome_of
    monkeypatch.setattr(runs, "outcome_of", lambda *a: outcome_of(*a)._replace(kind=Kind.NOTHING, reference=0.5))
    estimator, rows = made(kind, toy_folder, None, n_restarts=1)
    with pytest.warns(UserWarning, match="The run failed"):
        estimator.fit(*rows)
    assert kind != "pairs" or (estimator.head_start_, estimator.learning_rate_) == ("random", 6e-4)
    again, _ = made(kind, toy_folder, tmp_path / "fit", n_restarts=1)
    dying_after(17)  # 15 updates are a run
    with pytest.warns(UserWarning, match="The run failed"), pytest.raises(Killed):
        again.fit(*rows)
    dying_after(None)
    with pytest.warns(UserWarning, match="The run failed") as told:
        assert_same(again.fit(*rows), estimator)
    assert (
        sum(warning.category is FailedRunWarning for warning in told) == 1
    )  # of the second run; that the first failed was told before


@pytest.mark.slow
def test_another_fit_is_refused_with_what_differs(toy_folder, two_layer_folder, tmp_path):
    estimator, (texts, labels) = made("frozen", toy_folder, tmp_path / "fit")
    estimator.fit(texts, labels)

    def refused(match, texts=texts, labels=labels, **changes):
        with pytest.raises(ValueError, match=f"is of another fit, which differs in {match}.*leave checkpoint=None"):
            clone(estimator).set_params(**changes).fit(texts, labels)

    refused(r"n_restarts \(was 0, is 2\)", n_restarts=2)
    refused(r"epochs \(was 3, is 4\)", epochs=4)
    refused(r"random_state \(was 0, is 1\)", random_state=1)
    refused(r"the texts of X\. Give", ["other", *texts[1:]])
    refused(r"y or sample_weight\. Give", labels=["bad", *labels[1:]])
    refused("the weights that training starts from", weights=two_layer_folder)


@pytest.mark.slow
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_searches_are_refused_before_their_first_fit(in_pipeline, toy_folder, tmp_path):
    estimator, (texts, labels) = made("frozen", toy_folder, tmp_path / "fit", epochs=1)
    searched, name = (make_pipeline(estimator), "bertclassifier__epochs") if in_pipeline else (estimator, "epochs")
    calls = (
        GridSearchCV(searched, {name: [1, 2]}, cv=2).fit, GridSearchCV(searched, {name: [1]}, cv=2, refit=False).fit,
        HalvingGridSearchCV(searched, {name: [1, 2]}, cv=2).fit, partial(cross_validate, searched, cv=2),
        partial(cross_val_predict, searched, cv=2), TunedThresholdClassifierCV(searched, cv=2).fit,
        StackingClassifier([("one", searched)], cv=2).fit,
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="checkpoint: all fits of a search.*Set checkpoint=None for it"):
            call(texts, labels)
    assert not (tmp_path / "fit").exists()
    clone(GridSearchCV(searched, {name: [1]}))
    searched.set_params(**{name.replace("epochs", "checkpoint"): None})
    assert np.isfinite(cross_validate(searched, texts, labels, cv=2)["test_score"]).all()


@pytest.mark.slow
def test_what_cannot_be_used_is_refused(toy_folder, tmp_path):
    estimator, rows = made("frozen", toy_folder, tmp_path / "fit", epochs=1)
    estimator.fit(*rows)
    (newest,) = checkpoint_folders.checkpoints_in(tmp_path / "fit")
    (newest / "facts.json").write_text('{"settings": {}}')
    with pytest.raises(ValueError, match="holds checkpoints of a pre-training, or of another version"):
        estimator.fit(*rows)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="checkpoint: .*file is a file"):
        estimator.set_params(checkpoint=tmp_path / "file").fit(*rows)
    with pytest.raises(OSError, match="checkpoint: the folder cannot be made .Not a directory.*file/fit"):
        estimator.set_params(checkpoint=tmp_path / "file" / "fit").fit(*rows)
    with pytest.raises(ValueError, match="checkpoint must be None, or a folder of this fit alone"):
        estimator.set_params(checkpoint=3).fit(*rows)


def cut(path):
    """Leave the first half of a file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def change_a_bit(path):
    """Change a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_a_number(path):
    """Change a number in facts.json to another one that could stand there."""
    before = path.read_text()
    path.write_text(before.replace('"texts": ', '"texts": 1'))
    assert path.read_text() != before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("state.npz", cut), ("state.npz", change_a_bit), ("state.npz", Path.unlink), ("epoch.npz", cut),
        ("best.npz", cut), ("facts.json", cut), ("facts.json", change_a_number),
    ],
)  # fmt: skip
def test_a_fit_goes_on_from_the_checkpoint_before_a_damaged_one(file, damage, toy_folder, tmp_path, dying_after):
    estimator, rows = made("early stopping", toy_folder, tmp_path / "fit")
    dying_after(6)
    with pytest.raises(Killed):
        estimator.fit(*rows)
    dying_after(None)
    before, newest = checkpoint_folders.checkpoints_in(tmp_path / "fit")
    damage(newest / file)
    with pytest.warns(CheckpointWarning, match=f"{newest.name} is damaged.*goes on from {before.name}") as told:
        estimator.fit(*rows)
    assert sum(warning.category is CheckpointWarning for warning in told) == 1
    assert newest.with_name(f"{newest.name}.damaged").is_dir()
    assert_same(estimator, made("early stopping", toy_folder, None)[0].fit(*rows))


@pytest.mark.slow
def test_where_all_checkpoints_are_damaged_the_error_says_what_to_do(toy_folder, tmp_path):
    estimator, rows = made("frozen", toy_folder, tmp_path / "fit")
    estimator.fit(*rows)
    for checkpoint in checkpoint_folders.checkpoints_in(tmp_path / "fit"):
        cut(checkpoint / "state.npz")
    with pytest.raises(WeightsMismatchError, match="is damaged.*no checkpoint before it.*Remove .*fit to begin anew"):
        estimator.fit(*rows)
    assert len(checkpoint_folders.checkpoints_in(tmp_path / "fit")) == 2


@pytest.mark.slow
def test_two_fits_at_once_do_not_share_a_folder(toy_folder, tmp_path):
    pytest.importorskip("fcntl", reason="this system has no locks of this kind")
    from kbert.training.fit_checkpoints import FitCheckpoints

    estimator, rows = made("frozen", toy_folder, tmp_path / "fit", epochs=1)
    with FitCheckpoints(tmp_path / "fit"), pytest.raises(ValueError, match="another fit is using"):
        estimator.fit(*rows)
    estimator.fit(*rows)


@pytest.mark.slow
@pytest.mark.usefixtures("no_compiled_files")
def test_a_full_disk_ends_the_fit_and_leaves_the_checkpoint_before(toy_folder, tmp_path):
    resource = pytest.importorskip("resource", reason="this system limits no sizes of files")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(epoch, logs):
        """From the second epoch on no file can become larger than 512 bytes: what is written beyond that fails."""
        if epoch == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))

    estimator, rows = made("frozen", toy_folder, tmp_path / "fit")
    try:
        with pytest.raises(OSError, match="no checkpoint could be written there .File too large.. Make room") as told:
            estimator.fit(*rows, callbacks=keras.callbacks.LambdaCallback(on_epoch_begin=fill))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert told.value.filename == str(tmp_path / "fit") and not hasattr(estimator, "model_")
    assert len(checkpoint_folders.checkpoints_in(tmp_path / "fit")) == 1
    assert checkpoint_folders.checkpoints_in(tmp_path / "fit") == sorted((tmp_path / "fit").iterdir())
    assert_same(estimator.fit(*rows), made("frozen", toy_folder, None)[0].fit(*rows))


@pytest.mark.slow
def test_a_killed_pre_training_goes_on(tmp_path, dying_after):
    documents = [
        f"the {word} chair was red\nit was a {word} table\nand this" for word in "great sad lovely".split()
    ] * 4

    def pretrainer(checkpoint, **changes):
        values = dict(weights=None, max_steps=6, batch_size=2, max_length=16, vocab_size=60, random_state=0, nsp=False)
        return BertPretrainer("tiny", checkpoint=checkpoint, **{**values, **changes})

    whole = pretrainer(None).fit(documents)
    again = pretrainer(tmp_path / "fit")
    dying_after(3)
    with pytest.raises(Killed):
        again.fit(documents)
    dying_after(None)
    again.fit(documents)
    for a, b in zip(weights_of(again), weights_of(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="with another text"):
        again.fit([*documents[1:], documents[1]])
