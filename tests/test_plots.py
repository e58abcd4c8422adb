"""The display of a pre-training: what its lines show."""

import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from kbert import BertPretrainer
from kbert.plots import PretrainingDisplay

matplotlib = pytest.importorskip("matplotlib", reason="pip install 'kbert-learn[plots]'")
matplotlib.use("Agg")


@pytest.fixture
def history():
    """Of 100 updates, one skipped and two looked at."""
    loss = np.linspace(9, 5, 100)
    loss[3] = np.nan
    val = np.full(100, np.nan)
    val[[49, 99]] = 7.1, 5.2
    return {
        "mlm_loss": loss.tolist(), "nsp_loss": [0.6] * 100, "nsp_accuracy": ([0.5] * 50 + [1.0] * 50),
        "tokens": [500 * i for i in range(1, 101)], "val_mlm_loss": val.tolist(),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def test_losses_and_accuracy_by_tokens(history):
    display = PretrainingDisplay.from_history(history, smoothing=2)
    assert display.figure_ is display.ax_.figure is display.nsp_ax_.figure
    assert display.ax_.get_xlabel() == "Tokens" and "nats" in display.ax_.get_ylabel()
    x, y = display.line_.get_data()
    np.testing.assert_array_equal(x, history["tokens"])
    # Two updates together, without the one that was skipped.
    loss = np.array(history["mlm_loss"])
    expected = [loss[0], loss[1:3].mean(), loss[2], loss[4], loss[98:].mean()]
    np.testing.assert_allclose(y[[0, 2, 3, 4, 99]], expected)
    np.testing.assert_array_equal(display.val_line_.get_data(), [[25_000, 50_000], [7.1, 5.2]])
    assert display.nsp_line_.get_ydata()[[49, 50, 51]].tolist() == [0.5, 0.75, 1.0]
    labels = [text.get_text() for text in display.nsp_ax_.get_legend().get_texts()]
    assert labels == ["Training", "Held-out text", "Next sentence"]
    by_default = PretrainingDisplay.from_history(history).line_.get_ydata()
    assert np.isfinite(by_default).all() and by_default[99] == pytest.approx(loss[90:].mean())


def test_by_step_with_what_there_is(history):
    plain = {name: history[name] for name in ("mlm_loss", "tokens")} | {"nsp_loss": [0.0] * 100}
    display = PretrainingDisplay.from_history(plain, x="step", smoothing=1, line_kw={"color": "red"})
    np.testing.assert_array_equal(display.line_.get_xdata(), np.arange(1, 101))
    np.testing.assert_allclose(display.line_.get_ydata(), plain["mlm_loss"])
    assert display.line_.get_color() == "red" and display.ax_.get_xlabel() == "Updates"
    assert display.val_line_ is display.nsp_line_ is display.nsp_ax_ is None and len(display.figure_.axes) == 1


def test_frames_files_and_given_axes(history, tmp_path):
    pd.DataFrame({"step": range(11, 111), **history}).to_csv(tmp_path / "history.csv", index=False)
    _, ax = matplotlib.pyplot.subplots()
    display = PretrainingDisplay.from_history(pd.read_csv(tmp_path / "history.csv"), x="step", ax=ax)
    assert display.ax_ is ax and display.line_.get_xdata()[0] == 11
    again = PretrainingDisplay(display.x, display.mlm_loss, x_name="step").plot()
    assert again.ax_ is not ax and len(matplotlib.pyplot.get_fignums()) == 2


def test_a_fitted_estimator(history):
    estimator = BertPretrainer("tiny")
    with pytest.raises(NotFittedError):
        PretrainingDisplay.from_estimator(estimator)
    estimator.model_, estimator.history_ = None, history
    display = PretrainingDisplay.from_estimator(estimator, x="step")
    np.testing.assert_array_equal(display.mlm_loss, history["mlm_loss"])


@pytest.mark.parametrize(
    ("changes", "x", "message"),
    [
        ({}, "seconds", 'x must be "tokens" or "step"'),
        ({"mlm_loss": None}, "tokens", "history has no mlm_loss: is it that of a pre-training"),
        ({"mlm_loss": [], "tokens": []}, "tokens", "no update"),
    ],
)
def test_what_cannot_be_drawn(history, changes, x, message):
    history = {name: value for name, value in {**history, **changes}.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        PretrainingDisplay.from_history(history, x=x)


def test_without_matplotlib_the_command_is_told(history, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        PretrainingDisplay.from_history(history)
