"""The curves and histograms that matplotlib draws: what they show."""

import builtins

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from kbert import BertClassifier, BertPretrainer, BertVectorizer
from kbert.plots import LayerDisplay, LengthDisplay, PretrainingDisplay, TrainingDisplay

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
    assert display.nsp_ax_.get_ylim() == (0, 1)
    labels = [text.get_text() for text in display.nsp_ax_.get_legend().get_texts()]
    assert labels == ["Training", "Held-out text", "Next sentence"]
    by_default = PretrainingDisplay.from_history(history).line_.get_ydata()
    assert np.isfinite(by_default).all() and by_default[99] == pytest.approx(loss[90:].mean())


def test_by_step_with_what_there_is(history):
    plain = {name: history[name] for name in ("mlm_loss", "tokens")} | {"nsp_loss": [0.0] * 100}
    skipped = {"mlm_loss": [3, np.nan, 2], "nsp_loss": [0, np.nan, 0], "nsp_accuracy": [0, np.nan, 0]}
    assert PretrainingDisplay.from_history({"tokens": [1, 2, 3], **skipped}).nsp_line_ is None
    display = PretrainingDisplay.from_history(plain, x="step", smoothing=1, line_kw={"color": "red"})
    np.testing.assert_array_equal(display.line_.get_xdata(), np.arange(1, 101))
    np.testing.assert_allclose(display.line_.get_ydata(), plain["mlm_loss"])
    assert display.line_.get_color() == "red" and display.ax_.get_xlabel() == "Updates"
    assert display.val_line_ is display.nsp_line_ is display.nsp_ax_ is None and len(display.figure_.axes) == 1


@pytest.mark.parametrize("smoothing", [-1, 0, 2.5])
def test_a_smoothing_that_is_no_number_of_updates_is_refused(history, smoothing):
    with pytest.raises(ValueError, match="smoothing must be"):
        PretrainingDisplay.from_history(history, smoothing=smoothing)


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


DISPLAYS = {
    "PretrainingDisplay": PretrainingDisplay(np.arange(3), np.ones(3)),
    "TrainingDisplay": TrainingDisplay(np.ones(3), np.array([3])),
    "LengthDisplay": LengthDisplay(np.array([3, 4]), 128),
    "LayerDisplay": LayerDisplay({"last": [0.5]}),
}


@pytest.mark.parametrize("name", DISPLAYS)
def test_without_matplotlib_the_command_is_told(name, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=rf"{name} needs matplotlib .* pip install matplotlib"):
        DISPLAYS[name].plot()


@pytest.mark.parametrize("name", DISPLAYS)
def test_all_draw_on_given_axes_and_give_themselves(name):
    _, ax = matplotlib.pyplot.subplots()
    display = DISPLAYS[name].plot(ax=ax)
    assert display is DISPLAYS[name] and display.ax_ is ax and display.figure_ is ax.figure
    assert display.plot().ax_ is not ax and len(matplotlib.pyplot.get_fignums()) == 2


# --- Fine-tuning


@pytest.fixture
def fine_tuning():
    """Three epochs of 20, 20 and 10 updates, one of them skipped; the second epoch has no score."""
    updates = np.linspace(2, 1, 50)
    updates[5] = np.nan
    return {
        "loss": [1.9, 1.5, 1.1],
        "val_loss": [1.8, 1.4, 1.2],
        "val_score": [0.5, np.nan, 0.75],
        "update_loss": [updates[:20].tolist(), updates[20:40].tolist(), updates[40:].tolist()],
    }


def test_losses_by_update_and_scores_at_the_ends_of_epochs(fine_tuning):
    display = TrainingDisplay.from_history(fine_tuning, smoothing=2)
    updates = np.concatenate(fine_tuning["update_loss"])
    x, y = display.line_.get_data()
    np.testing.assert_array_equal(x, np.arange(1, 51))
    np.testing.assert_allclose(
        y[[0, 1, 5, 6, 49]], [2, updates[:2].mean(), updates[4], updates[6], updates[48:].mean()]
    )
    np.testing.assert_array_equal(display.val_line_.get_data(), [[20, 40, 50], [1.8, 1.4, 1.2]])
    np.testing.assert_array_equal(display.score_line_.get_data(), [[20, 50], [0.5, 0.75]])
    assert [segment[0, 0] for segment in display.epoch_lines_.get_segments()] == [20, 40, 50]
    assert display.score_line_.axes is display.score_ax_ and display.score_ax_.get_ylabel() == "Score"
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("Updates", "Loss")
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["Training loss", "Validation loss", "Validation score", "End of epoch"]
    by_default = TrainingDisplay.from_history(fine_tuning).line_.get_ydata()
    assert by_default[49] == pytest.approx(updates[40:].mean())
    many = np.random.default_rng(0).random(2000)  # one fiftieth of them
    of_many = TrainingDisplay.from_history({"update_loss": [many.tolist()]}).line_.get_ydata()
    assert of_many[1999] == pytest.approx(many[1960:].mean())


def test_a_table_without_a_validation_set(fine_tuning):
    table = pd.DataFrame(fine_tuning)[["loss", "update_loss"]]
    display = TrainingDisplay.from_history(table, smoothing=1, line_kw={"label": "ours"})
    np.testing.assert_allclose(display.line_.get_ydata(), np.concatenate(fine_tuning["update_loss"]))
    assert display.val_line_ is display.score_line_ is display.score_ax_ is None and len(display.figure_.axes) == 1
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["ours", "End of epoch"]


def test_what_is_no_fine_tuning_is_refused(history):
    with pytest.raises(NotFittedError):
        TrainingDisplay.from_estimator(BertClassifier())
    for display in (TrainingDisplay, PretrainingDisplay):
        with pytest.raises(TypeError, match="estimator of kbert is needed, got Pipeline.*pipeline.-1"):
            display.from_estimator(make_pipeline(BertClassifier()))
    with pytest.raises(ValueError, match="no update_loss.*It has mlm_loss, .*PretrainingDisplay"):
        TrainingDisplay.from_history(history)
    vectorizer = BertVectorizer()
    vectorizer.model_ = None
    with pytest.raises(ValueError, match="no update_loss.*It has nothing"):
        TrainingDisplay.from_estimator(vectorizer)


# --- Lengths


def counts_of(display):
    """What the bars say: how many rows have each length, and which bars have the colour of long ones."""
    edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in display.bars_]
    colours = [matplotlib.colors.same_color(bar.get_facecolor(), "C1") for bar in display.bars_]
    return edges, [bar.get_height() for bar in display.bars_], colours


def test_a_bar_for_each_length_and_another_colour_beyond_max_length():
    display = LengthDisplay(np.array([4, 5, 5, 7, 8, 8, 8]), 6, windows_cost=1.25).plot()
    edges, counts, long = counts_of(display)
    assert edges == [(i + 0.5, i + 1.5) for i in range(3, 8)]
    assert counts == [1, 2, 0, 1, 3] and long == [False, False, False, True, True]
    assert display.share_longer_ == pytest.approx(4 / 7)
    assert display.line_.get_xdata() == [6.5, 6.5]
    assert display.line_.get_label() == "max_length=6:\n57% of the rows\nare longer, and cut"
    assert "1.25 times" in display.ax_.get_title() and display.ax_.get_xlabel() == "Tokens in a row, up to 8"


@pytest.mark.parametrize("max_length", [1, 128, 600])
def test_the_last_bar_holds_the_longest_rows(max_length):
    rng = np.random.default_rng(0)
    lengths = np.append(rng.integers(20, 400, 2000), 100_000)
    display = LengthDisplay(lengths, max_length, in_windows=True).plot()
    edges, counts, long = counts_of(display)
    assert sum(counts) == 2001 and 30 < len(counts) < 70
    assert all(a[1] == b[0] for a, b in zip(edges, edges[1:], strict=False)) and edges[0][0] < lengths.min()
    # The colours tell exactly which rows are longer.
    assert sum(count for count, is_long in zip(counts, long, strict=True) if is_long) == (lengths > max_length).sum()
    assert display.ax_.get_xlabel().endswith("100,000") and display.ax_.get_title() == ""
    assert display.line_.get_label().endswith("read in windows")


def test_rows_of_one_length_and_shares_that_are_nearly_all_or_nothing():
    assert counts_of(LengthDisplay(np.full(5, 9), 128).plot())[1] == [5]
    of_many = np.append(np.full(9_999, 9), 200)
    assert ":\n0.01% of" in LengthDisplay(of_many, 128).plot().line_.get_label()
    assert ":\n100% of" in LengthDisplay(of_many, 8).plot().line_.get_label()
    assert ":\n99.9% of" in LengthDisplay(np.append(np.full(999, 200), 9), 128).plot().line_.get_label()


# --- Layers


def test_means_folds_and_their_spread():
    scores = {"embeddings": [0.5, 0.7], "last": [0.9, 0.7], "sum_all": [0.8]}
    display = LayerDisplay(scores, score_name="Accuracy").plot()
    np.testing.assert_allclose(display.line_.get_data(), [[0.6, 0.8, 0.8], [0, 1, 2]])
    np.testing.assert_array_equal(display.fold_line_.get_data(), [[0.5, 0.7, 0.9, 0.7, 0.8], [0, 0, 1, 1, 2]])
    spread = [segment.tolist() for segment in display.spread_.get_segments()]
    np.testing.assert_allclose(spread, [[[0.5, 0], [0.7, 0]], [[0.7, 1], [0.9, 1]], [[0.8, 2], [0.8, 2]]])
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == list(scores)
    bottom, top = display.ax_.get_ylim()
    assert bottom > top and display.ax_.get_xlabel() == "Accuracy"
    table = LayerDisplay(pd.DataFrame({"last": [0.9, 0.9, 0.6]})).plot()
    assert table.line_.get_xdata() == pytest.approx([0.8])


@pytest.mark.parametrize("scores", [{}, {"last": []}])
def test_no_scores_are_refused(scores):
    with pytest.raises(ValueError, match="at least one fold"):
        LayerDisplay(scores)
