"""PretrainingDisplay: the learning curves of a pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kbert.plots.curves import axes_of, history_of, plot_known, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

_X_LABELS = {"tokens": "Tokens", "step": "Updates"}


class PretrainingDisplay:
    """The learning curves of a pre-training.

    `from_estimator` and `from_history` make one and draw it. All parameters are stored as attributes.

    Parameters
    ----------
    x : ndarray of shape (n_updates,)
        Number of tokens, or of updates, up to each update.
    mlm_loss : ndarray of shape (n_updates,)
        Training loss of the masked language model in each update, in nats; NaN for updates that were skipped.
    val_mlm_loss : ndarray of shape (n_updates,), optional
        Loss on the validation texts, in nats; NaN for updates after which it was not computed.
    nsp_accuracy : ndarray of shape (n_updates,), optional
        Accuracy of next sentence prediction in each update, from 0 to 1.
    x_name : {"tokens", "step"}, default="tokens"
        Whether ``x`` is a number of tokens or of updates.
    smoothing : int, optional
        Number of updates over which training loss and accuracy are averaged. None is one fiftieth of all updates, and
        at least 10. A smaller number shows more detail, and 1 the values themselves.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The axes with the losses.
    nsp_ax_ : matplotlib Axes or None
        The second vertical axis, with the accuracy.
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
        The smoothed training loss.
    val_line_ : matplotlib Line2D or None
        The points of the validation loss.
    nsp_line_ : matplotlib Line2D or None
        The smoothed accuracy.

    Examples
    --------
    >>> from kbert import BertPretrainer
    >>> from kbert.plots import PretrainingDisplay
    >>> notes = ["It rained. We stayed in.", "The sun shone. We went out."] * 10
    >>> pretrainer = BertPretrainer("tiny", weights=None, max_steps=5, batch_size=4)
    >>> display = PretrainingDisplay.from_estimator(pretrainer.fit(notes))
    >>> display.figure_.savefig("tokens.png")
    >>> display = PretrainingDisplay.from_history(pretrainer.history_, x="step")
    >>> display.figure_.savefig("steps.png")
    """

    ax_: Axes
    nsp_ax_: Axes | None
    figure_: Figure | SubFigure
    line_: Line2D
    val_line_: Line2D | None
    nsp_line_: Line2D | None

    def __init__(
        self,
        x: np.ndarray,
        mlm_loss: np.ndarray,
        *,
        val_mlm_loss: np.ndarray | None = None,
        nsp_accuracy: np.ndarray | None = None,
        x_name: str = "tokens",
        smoothing: int | None = None,
    ):
        self.x = x
        self.mlm_loss = mlm_loss
        self.val_mlm_loss = val_mlm_loss
        self.nsp_accuracy = nsp_accuracy
        self.x_name = x_name
        self.smoothing = smoothing

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, x: str = "tokens", smoothing: int | None = None, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the last fit of a `BertPretrainer`.

        Parameters
        ----------
        estimator : BertPretrainer
            A fitted one.
        x, smoothing, ax, **kwargs
            As in `from_history`.

        Returns
        -------
        PretrainingDisplay

        Raises
        ------
        TypeError
            If it is no estimator of kbert, such as a pipeline or a search that holds one.
        """
        return cls.from_history(history_of(estimator), x=x, smoothing=smoothing, ax=ax, **kwargs)

    @classmethod
    def from_history(
        cls,
        history: Mapping[str, Any],
        *,
        x: str = "tokens",
        smoothing: int | None = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the history of a pre-training.

        Parameters
        ----------
        history : dict of list of float, or DataFrame
            ``history_`` of a `BertPretrainer`, what `kbert.pretraining.Pretraining.run` returns, or its history.csv.
        x : {"tokens", "step"}, default="tokens"
            The horizontal axis: the number of tokens, or of updates.
        smoothing : int, optional
            Number of updates over which training loss and accuracy are averaged. None is one fiftieth of all updates,
            and at least 10.
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        PretrainingDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If the history has no update, or is not that of a pre-training.
        """
        if x not in _X_LABELS:
            raise ValueError(f'x must be "tokens" or "step", got {x!r}.')
        found = {name: np.asarray(history[name], "float64") for name in history}
        missing = [name for name in ("mlm_loss", "tokens") if name not in found]
        if missing:
            raise ValueError(
                f"history has no {' and no '.join(missing)}: is it that of a pre-training? It has "
                f"{', '.join(map(str, found)) or 'nothing'}."
            )
        n_updates = len(found["mlm_loss"])
        if n_updates == 0:
            raise ValueError("history has no update: nothing was trained.")
        found.setdefault("step", np.arange(1.0, n_updates + 1))
        # A pre-training without next sentence prediction has zeros there, and NaN in updates that were skipped.
        has_nsp = bool(np.any(np.nan_to_num(found.get("nsp_loss", 0.0))))
        display = cls(
            found[x],
            found["mlm_loss"],
            val_mlm_loss=found.get("val_mlm_loss"),
            nsp_accuracy=found.get("nsp_accuracy") if has_nsp else None,
            x_name=x,
            smoothing=smoothing,
        )
        return display.plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        line_kw: dict[str, Any] | None = None,
        val_line_kw: dict[str, Any] | None = None,
        nsp_line_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        line_kw, val_line_kw, nsp_line_kw : dict, optional
            Arguments of matplotlib's ``plot`` for the training loss, the validation loss and the accuracy: colours and
            labels, for instance.

        Returns
        -------
        PretrainingDisplay
            This one, with the attributes that end in "_".

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_of(ax, self)
        kw = {"label": "Training", "color": "C0", **(line_kw or {})}
        (self.line_,) = ax.plot(self.x, smoothed(self.mlm_loss, self.smoothing), **kw)
        lines = [self.line_]
        self.val_line_ = self.nsp_line_ = self.nsp_ax_ = None
        if self.val_mlm_loss is not None:
            kw = {"label": "Held-out text", "color": "C1", "marker": "o", **(val_line_kw or {})}
            self.val_line_ = plot_known(ax, self.x, self.val_mlm_loss, **kw)
            lines.append(self.val_line_)
        ax.set_xlabel(_X_LABELS[self.x_name])
        ax.set_ylabel("Masked-LM loss (nats)")
        if self.nsp_accuracy is not None:
            self.nsp_ax_ = ax.twinx()
            kw = {"label": "Next sentence", "color": "C2", "linestyle": "--", **(nsp_line_kw or {})}
            (self.nsp_line_,) = self.nsp_ax_.plot(self.x, smoothed(self.nsp_accuracy, self.smoothing), **kw)
            self.nsp_ax_.set_ylabel("Next-sentence accuracy")
            self.nsp_ax_.set_ylim(0, 1)
            lines.append(self.nsp_line_)
        # On the axes that are drawn last, so that no line crosses the legend.
        (self.nsp_ax_ or ax).legend(handles=lines)
        self.ax_, self.figure_ = ax, ax.figure
        return self
