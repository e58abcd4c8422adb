"""What ``verbose=1`` shows: a bar over rows, one line an epoch, what "auto" stood for, and long predictions."""

import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from kbert import BertVectorizer
from kbert.training import progress

pytestmark = pytest.mark.slow


def bars(text):
    """The last state of each bar of standard error: what it is of, the rows that are done, and all."""
    found = {}
    for name, done, total in re.findall(r"(\w+): +\d+%\|.*?\| (\d+)/(\d+) ", text):
        found[name] = (int(done), int(total))
    return found


@pytest.mark.parametrize("batch_size, gradient_accumulation", [(4, 5), (20, 1)])
def test_the_bar_shows_a_loss_from_the_second_update_on(toy, reviews, capfd, batch_size, gradient_accumulation):
    """Whatever batches an update has."""
    batches = {"batch_size": batch_size, "gradient_accumulation": gradient_accumulation}
    toy(epochs=2, verbose=1, **batches).fit(reviews.text[:40], reviews.label[:40])
    assert re.search(r"loss=\d", capfd.readouterr().err)


def test_the_bar_counts_rows_and_not_their_windows(toy, reviews, capfd):
    long = "the table and a chair with this room was it " * 3 + reviews.text[:40]
    toy(long_text="window", epochs=2, verbose=1).fit(long, reviews.label[:40])
    assert bars(capfd.readouterr().err) == {"fit": (80, 80)}


def test_each_epoch_leaves_a_line_with_its_score_and_seconds(toy, reviews, capfd):
    X, y = reviews.text, reviews.label
    fitted = toy(epochs=3, verbose=1).fit(X[:100], y[:100], eval_set=(X[100:], y[100:]))
    shown = capfd.readouterr()
    lines = shown.out.splitlines()
    for i, line in enumerate(lines[2:]):
        values = ", ".join(f"{name} {fitted.history_[name][i]:.3f}" for name in ("loss", "val_loss", "val_score"))
        assert re.fullmatch(rf"epoch {i + 1}/3: {values}, \d+\.\d s", line)
    assert len(lines) == 5
    assert f"val_score={fitted.history_['val_score'][1]:.3f}" in shown.err


def test_the_first_lines_tell_what_is_done_and_what_auto_stood_for(toy, reviews, capfd):
    parameters = dict.fromkeys(("max_length", "long_text", "batch_size", "learning_rate"), "auto")
    fitted = toy(**parameters, epochs=1, verbose=1).fit(reviews.text[:48], reviews.label[:48])
    assert capfd.readouterr().out.splitlines()[:2] == [
        "fit: 48 rows, labels bad 50% and good 50%, 8 tokens in the median and 8 at 95%, 3 updates",
        "fit: max_length=64, long_text='window', epochs=1, batch_size=16, learning_rate=0.0003, head_start='random', "
        f"classifier_pooling={fitted.config_.classifier_pooling!r}, dtype='float32', "
        f"backend={keras.backend.backend()!r}",
    ]


def test_a_long_prediction_shows_a_bar_and_a_short_one_nothing(toy, reviews, capfd, monkeypatch):
    classifier = toy(verbose=1).fit(reviews.text, reviews.label)
    capfd.readouterr()
    for method in (classifier.predict, classifier.predict_proba, classifier.decision_function):
        method(reviews.text)
    classifier.score(reviews.text, reviews.label)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(progress, "_LONG", 0)
    classifier.predict(reviews.text)
    assert bars(capfd.readouterr().err) == {"predict": (200, 200)}
    classifier.set_params(verbose=0).predict(reviews.text)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("level", ["text", "word"])
def test_so_does_a_long_transformation(toy_folder, reviews, capfd, monkeypatch, level):
    monkeypatch.setattr(progress, "_LONG", 0)
    vectorizer = BertVectorizer(weights=toy_folder, level=level, max_length=12, verbose=1).fit(reviews.text)
    rows = [*("the table was great " * 10 + reviews.text[:30]), *[""] * 3]
    with pytest.warns(match="empty|missing"):
        vectorizer.transform(rows)
    assert bars(capfd.readouterr().err) == {"transform": (33, 33)}


def test_rows_are_counted_while_they_are_predicted(monkeypatch, capfd):
    monkeypatch.setattr(progress, "_LONG", 0)
    with progress.PredictionProgress(10, 1) as shown:
        for _ in range(9):
            progress.count_predicted(1 / 3)
        assert shown.bar.n == 3 and progress.is_counted()
        progress.count_predicted(6, of=12)  # half of all, which are options here
        assert shown.bar.n == 8
        with progress.PredictionProgress(5, 0):
            progress.count_predicted(5)
        assert shown.bar.n == 8
    assert not progress.is_counted()
    progress.count_predicted(1)
    assert bars(capfd.readouterr().err) == {"predict": (10, 10)}


def test_searches_follow_scikit_learns_conventions(toy, reviews, capfd):
    loud = toy(verbose=2)
    assert clone(loud).verbose == 2
    GridSearchCV(toy(), {"epochs": [1, 2]}, cv=2, refit=False, verbose=2).fit(reviews.text[:40], reviews.label[:40])
    quiet = capfd.readouterr()
    assert "Fitting 2 folds" in quiet.out and "epoch 1/" not in quiet.out and "fit:" not in quiet.err
    GridSearchCV(loud, {"epochs": [1, 2]}, cv=2, refit=False).fit(reviews.text[:40], reviews.label[:40])
    assert re.findall(r"^epoch (./.):", capfd.readouterr().out, re.MULTILINE) == ["1/1"] * 2 + ["1/2", "2/2"] * 2


@pytest.mark.thorough
def test_no_widget_is_asked_for():
    """In a notebook tqdm.auto makes a widget, of which a static page has nothing, or warns that it has none."""
    code = "import sys, kbert.training.loop, kbert.pretraining.trainer; print('tqdm.notebook' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


NOTEBOOK_WITHOUT_WIDGETS = """
import sys, types
shell = type("ZMQInteractiveShell", (), {})
sys.modules["ipykernel.zmqshell"] = types.ModuleType("ipykernel.zmqshell")
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=shell)
sys.modules["ipywidgets"] = None
"""


def test_a_notebook_without_widgets_is_not_told_to_install_them():
    """huggingface_hub asks tqdm for widgets, which warns where there are none; kbert shows text."""
    use = "import kbert.hub\nfrom huggingface_hub import snapshot_download"  # what a fit does, without a backend
    done = subprocess.run([sys.executable, "-c", NOTEBOOK_WITHOUT_WIDGETS + use], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_words_are_counted_by_their_rows(monkeypatch, capfd, toy_folder):
    from kbert import BertTagger

    monkeypatch.setattr(progress, "_LONG", 0)
    X = [["the", "chair"] * n for n in (1, 9, 20)] * 4
    y = [["O", "B-x"] * n for n in (1, 9, 20)] * 4
    tagger = BertTagger(weights=toy_folder, epochs=2, batch_size=4, max_length=12, verbose=1, random_state=0).fit(X, y)
    assert bars(capfd.readouterr().err) == {"fit": (24, 24)}
    tagger.predict([*X, []])
    assert bars(capfd.readouterr().err) == {"predict": (13, 13)}
    assert np.isfinite(tagger.score(X, y))
