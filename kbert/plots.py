"""Displays in scikit-learn's manner: what was learned, as curves. They need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Updates over which lines are smoothed where it is not said: a share of all, and no fewer than so many.
_SMOOTHED, _LEAST_SMOOTHED = 0.02, 10
_X_LABELS = {"tokens": "Tokens", "step": "Updates"}


class PretrainingDisplay:
    """The curves of a pre-training.

    `from_estimator` and `from_history` make one and draw it. All parameters are stored as attributes.

    Parameters
    ----------
    x : ndarray of shape (n_updates,)
        Tokens or updates so far.
    mlm_loss : ndarray of shape (n_updates,)
        Masked-LM loss of each update in nats; NaN where an update was skipped.
    val_mlm_loss : ndarray of shape (n_updates,), optional
        That of held-out text, NaN where it was not looked at.
    nsp_accuracy : ndarray of shape (n_updates,), optional
        Share of the pairs whose label was told, in each update.
    x_name : {"tokens", "step"}, default="tokens"
        What x counts.
    smoothing : int, optional
        Updates over which the lines of training are averaged; None is one in fifty of them, and ten at least.

    Attributes
    ----------
    ax_ : matplotlib Axes
        With the losses.
    nsp_ax_ : matplotlib Axes or None
        The second axis, with the accuracy.
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
        The smoothed loss of training.
    val_line_ : matplotlib Line2D or None
        The points of held-out text.
    nsp_line_ : matplotlib Line2D or None
        The smoothed accuracy.

    Examples
    --------
    >>> from kbert.plots import PretrainingDisplay
    >>> PretrainingDisplay.from_estimator(pretrainer)
    >>> PretrainingDisplay.from_history(pd.read_csv("run/history.csv"), x="step")
    """

    ax_: Axes
    nsp_ax_: Axes | None
    figure_: Figure
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
        cls, estimator: Any, *, x: str = "tokens", smoothing: int | None = None, ax: Axes | None = None, **kwargs
    ) -> Self:
        """Draw the last fit of a `BertPretrainer`.

        Parameters
        ----------
        estimator : BertPretrainer
            Fitted.
        x, smoothing, ax, **kwargs
            As in `from_history`.

        Returns
        -------
        PretrainingDisplay
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator)
        return cls.from_history(estimator.history_, x=x, smoothing=smoothing, ax=ax, **kwargs)

    @classmethod
    def from_history(
        cls,
        history: Mapping[str, Any],
        *,
        x: str = "tokens",
        smoothing: int | None = None,
        ax: Axes | None = None,
        **kwargs,
    ) -> Self:
        """Draw a history.

        Parameters
        ----------
        history : dict of list of float, or DataFrame
            ``history_`` of a `BertPretrainer`, what `kbert.pretraining.Pretraining.run` returns, or its history.csv.
        x : {"tokens", "step"}, default="tokens"
            What the horizontal axis counts.
        smoothing : int, optional
            Updates over which the lines of training are averaged; None is one in fifty of them, and ten at least.
        ax : matplotlib Axes, optional
            Where to draw; a new figure otherwise.
        **kwargs
            Of `plot`.

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
        # Without the task its numbers are all 0.
        has_nsp = bool(np.any(found.get("nsp_loss", 0.0)))
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
        line_kw: dict | None = None,
        val_line_kw: dict | None = None,
        nsp_line_kw: dict | None = None,
    ) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure otherwise.
        line_kw, val_line_kw, nsp_line_kw : dict, optional
            For matplotlib's ``plot``, of the loss, of the points of held-out text, and of the accuracy.

        Returns
        -------
        PretrainingDisplay
            This one.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                f"PretrainingDisplay needs matplotlib ({error}). Install it with: pip install 'kbert[plots]'"
            ) from None

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        width = self.smoothing or max(_LEAST_SMOOTHED, round(_SMOOTHED * len(self.x)))
        kw = {"label": "Training", "color": "C0", **(line_kw or {})}
        (self.line_,) = ax.plot(self.x, _smoothed(self.mlm_loss, width), **kw)
        lines = [self.line_]
        self.val_line_ = self.nsp_line_ = self.nsp_ax_ = None
        if self.val_mlm_loss is not None:
            looked_at = np.isfinite(self.val_mlm_loss)
            kw = {"label": "Held-out text", "color": "C1", "marker": "o", **(val_line_kw or {})}
            (self.val_line_,) = ax.plot(self.x[looked_at], self.val_mlm_loss[looked_at], **kw)
            lines.append(self.val_line_)
        ax.set_xlabel(_X_LABELS[self.x_name])
        ax.set_ylabel("Masked-LM loss (nats)")
        if self.nsp_accuracy is not None:
            self.nsp_ax_ = ax.twinx()
            kw = {"label": "Next sentence", "color": "C2", "linestyle": "--", **(nsp_line_kw or {})}
            (self.nsp_line_,) = self.nsp_ax_.plot(self.x, _smoothed(self.nsp_accuracy, width), **kw)
            self.nsp_ax_.set_ylabel("Next-sentence accuracy")
            self.nsp_ax_.set_ylim(0, 1)
            lines.append(self.nsp_line_)
        # On the axis that is drawn last, so that no line crosses it.
        (self.nsp_ax_ or ax).legend(handles=lines)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _smoothed(values: np.ndarray, width: int) -> np.ndarray:
    """Of each value the mean with those before it, ``width`` in all; NaN, of skipped updates, is left out."""
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    n = counts[ends] - counts[starts]
    return np.where(n > 0, (sums[ends] - sums[starts]) / np.maximum(n, 1), np.nan)
