"""TrainingDisplay: the learning curves of a fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kbert.plots.curves import axes_of, history_of, legend_above, plot_known, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D


class TrainingDisplay:
    """The learning curves of a fine-tuning: the loss by update, and what the validation set gave after each epoch.

    `from_estimator` and `from_history` make one and draw it. All parameters are stored as attributes.

    Parameters
    ----------
    update_loss : ndarray of shape (n_updates,)
        Training loss of each update; NaN for updates that were skipped.
    epoch_ends : ndarray of int64, shape (n_epochs,)
        Number of updates up to the end of each epoch.
    val_loss : ndarray of shape (n_epochs,), optional
        Loss on the validation set; NaN for epochs after which it was not computed.
    val_score : ndarray of shape (n_epochs,), optional
        The estimator's score on the validation set; NaN likewise.
    smoothing : int, optional
        Number of updates over which the training loss is averaged. None is one fiftieth of all updates, and at least
        10. A smaller number shows more detail, and 1 the values themselves.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes with the losses.
    score_ax_ : matplotlib Axes or None
        The second vertical axis, with the score.
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
        The smoothed training loss.
    val_line_ : matplotlib Line2D or None
        The points of the validation loss.
    score_line_ : matplotlib Line2D or None
        The points of the score.
    epoch_lines_ : matplotlib LineCollection
        A vertical line at the end of each epoch.

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> from kbert.plots import TrainingDisplay
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> held_out = ["good", "bad"], ["pos", "neg"]
    >>> classifier = BertClassifier("minilm-l6", epochs=2)
    >>> classifier = classifier.fit(texts, labels, eval_set=held_out)
    >>> TrainingDisplay.from_estimator(classifier).figure_.savefig("training.png")
    """

    ax_: Axes
    score_ax_: Axes | None
    figure_: Figure | SubFigure
    line_: Line2D
    val_line_: Line2D | None
    score_line_: Line2D | None
    epoch_lines_: LineCollection

    def __init__(
        self,
        update_loss: np.ndarray,
        epoch_ends: np.ndarray,
        *,
        val_loss: np.ndarray | None = None,
        val_score: np.ndarray | None = None,
        smoothing: int | None = None,
    ):
        self.update_loss = update_loss
        self.epoch_ends = epoch_ends
        self.val_loss = val_loss
        self.val_score = val_score
        self.smoothing = smoothing

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, smoothing: int | None = None, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the last fit of an estimator.

        Parameters
        ----------
        estimator : BertClassifier, BertRegressor, BertTagger, BertQA or BertMultipleChoice
            A fitted one.
        smoothing, ax, **kwargs
            As in `from_history`.

        Returns
        -------
        TrainingDisplay

        Raises
        ------
        TypeError
            If it is no estimator of kbert, such as a pipeline or a search that holds one.
        """
        return cls.from_history(history_of(estimator), smoothing=smoothing, ax=ax, **kwargs)

    @classmethod
    def from_history(
        cls, history: Mapping[str, Any], *, smoothing: int | None = None, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the history of a fine-tuning.

        Parameters
        ----------
        history : dict of list, or DataFrame
            ``history_`` of an estimator, or ``pd.DataFrame(history_)``.
        smoothing : int, optional
            Number of updates over which the training loss is averaged. None is one fiftieth of all updates, and at
            least 10.
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        TrainingDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the history is not that of a fine-tuning.
        """
        if "update_loss" not in history or not len(history["update_loss"]):
            raise ValueError(
                "history has no update_loss: it is not that of a fine-tuning. It has "
                f"{', '.join(map(str, history)) or 'nothing'}. PretrainingDisplay draws a pre-training; a folder that "
                "another program saved has no history."
            )
        of_epochs = [np.asarray(values, "float64") for values in history["update_loss"]]
        validation = {
            name: np.asarray(history[name], "float64") for name in ("val_loss", "val_score") if name in history
        }
        ends = np.cumsum([len(values) for values in of_epochs])
        display = cls(np.concatenate(of_epochs), ends, smoothing=smoothing, **validation)
        return display.plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        line_kw: dict[str, Any] | None = None,
        val_line_kw: dict[str, Any] | None = None,
        score_line_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        line_kw, val_line_kw, score_line_kw : dict, optional
            Arguments of matplotlib's ``plot`` for the training loss, the validation loss and the score: colours and
            labels, for instance.

        Returns
        -------
        TrainingDisplay
            This one, with the attributes that end in "_".

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_of(ax, self)
        self.epoch_lines_ = ax.vlines(
            self.epoch_ends, 0, 1, transform=ax.get_xaxis_transform(), color="0.5", linewidth=0.5, label="End of epoch"
        )
        kw = {"label": "Training loss", "color": "C0", **(line_kw or {})}
        updates = np.arange(1, len(self.update_loss) + 1)
        (self.line_,) = ax.plot(updates, smoothed(self.update_loss, self.smoothing), **kw)
        handles: list[Any] = [self.line_]
        self.val_line_ = self.score_line_ = self.score_ax_ = None
        if self.val_loss is not None:
            kw = {"label": "Validation loss", "color": "C1", "marker": "o", **(val_line_kw or {})}
            self.val_line_ = plot_known(ax, self.epoch_ends, self.val_loss, **kw)
            handles.append(self.val_line_)
        ax.set_xlabel("Updates")
        ax.set_ylabel("Loss")
        if self.val_score is not None:
            self.score_ax_ = ax.twinx()
            kw = {
                "label": "Validation score", "color": "C2", "marker": "s", "linestyle": "--", **(score_line_kw or {})
            }  # fmt: skip
            self.score_line_ = plot_known(self.score_ax_, self.epoch_ends, self.val_score, **kw)
            self.score_ax_.set_ylabel("Score")
            handles.append(self.score_line_)
        legend_above(ax, [*handles, self.epoch_lines_])
        self.ax_, self.figure_ = ax, ax.figure
        return self
