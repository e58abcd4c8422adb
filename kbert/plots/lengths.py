"""LengthDisplay: how long rows are, and what max_length leaves of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from kbert.plots.curves import axes_of
from kbert.values.printable import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D

# About how many bars there are. The last one holds the longest rows too, beyond this quantile.
_BARS = 40
_QUANTILE = 0.99


class LengthDisplay:
    """How many tokens rows have, and how many of the rows are longer than ``max_length``.

    `from_estimator` makes one and draws it, before any fit too. All parameters are stored as attributes.

    Parameters
    ----------
    lengths : ndarray of int64, shape (n_rows,)
        Tokens of each row before anything is cut, special ones included. Of multiple choice they are those of the
        longest option with its context.
    max_length : int
        The estimator's: longer rows are cut, or read in windows.
    windows_cost : float, optional
        Tokens that are computed where all rows are read in windows, divided by those where all are cut: about how many
        times as long training and predicting take. None where there are no windows, as in multiple choice.
    in_windows : bool, default=False
        Whether the estimator reads rows in windows; else it cuts them.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    bars_ : matplotlib BarContainer
        The histogram. The bars to the right of the line have another colour. The last bar holds the longest rows,
        however long they are.
    line_ : matplotlib Line2D
        At ``max_length``.
    share_longer_ : float
        The share of the rows that are longer than ``max_length``, from 0 to 1.

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> from kbert.plots import LengthDisplay
    >>> texts = ["so good", "so bad", "much too long a story"] * 20
    >>> classifier = BertClassifier("minilm-l6", max_length=5)
    >>> display = LengthDisplay.from_estimator(classifier, texts)
    >>> round(display.share_longer_, 2)
    0.33
    >>> display.figure_.savefig("lengths.png")
    """

    ax_: Axes
    figure_: Figure | SubFigure
    bars_: BarContainer
    line_: Line2D
    share_longer_: float

    def __init__(
        self,
        lengths: NDArray[np.int64],
        max_length: int,
        *,
        windows_cost: float | None = None,
        in_windows: bool = False,
    ):
        self.lengths = lengths
        self.max_length = max_length
        self.windows_cost = windows_cost
        self.in_windows = in_windows

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Count the tokens of the rows of X, and draw how many there are.

        Parameters
        ----------
        estimator : BertClassifier, BertRegressor, BertTagger, BertQA, BertMultipleChoice or BertVectorizer
            Fitted or not. Before a fit the tokenizer of its ``size`` and ``weights`` counts, and no model is loaded;
            with ``weights=None`` a vocabulary is learned from X, as a fit does.
        X : array-like
            As for its ``fit``.
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        LengthDisplay

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        TypeError
            If the estimator does not read rows of texts or words.
        """
        from kbert.estimators.lengths import lengths_of_rows

        found, max_length = lengths_of_rows(estimator, X)
        cost = None if found.windowed is None else float(found.windowed.sum() / max(1, found.cut.sum()))
        return cls(found.whole, max_length, windows_cost=cost, in_windows=found.in_windows).plot(ax=ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, bar_kw: dict[str, Any] | None = None, line_kw: dict[str, Any] | None = None
    ) -> Self:
        """Draw the histogram.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        bar_kw, line_kw : dict, optional
            Arguments of matplotlib's ``bar`` and ``axvline``.

        Returns
        -------
        LengthDisplay
            This one, with the attributes that end in "_".

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_of(ax, self)
        self.share_longer_ = float(np.mean(self.lengths > self.max_length))
        edges = self._edges()
        counts, _ = np.histogram(np.minimum(self.lengths, int(edges[-1])), edges)
        longer = edges[:-1] > self.max_length
        kw = {"width": np.diff(edges), "align": "edge", "color": np.where(longer, "C1", "C0"), **(bar_kw or {})}
        self.bars_ = ax.bar(edges[:-1], counts, **kw)
        what = "read in windows" if self.in_windows else "cut"
        label = f"max_length={self.max_length}:\n{percent(self.share_longer_)} of the rows\nare longer, and {what}"
        kw = {"label": label, "color": "0.5", "linestyle": "--", **(line_kw or {})}
        self.line_ = ax.axvline(self.max_length + 0.5, **kw)
        ax.set_xlabel(f"Tokens in a row, up to {self.lengths.max():,}")
        ax.set_ylabel("Rows")
        if self.windows_cost is not None:
            ax.set_title(f"In windows: {self.windows_cost:.2f} times the tokens of cut rows")
        ax.legend(handles=[self.line_])
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _edges(self) -> NDArray[np.float64]:
        """Where bars begin and end: between two whole numbers, and one edge just above ``max_length``."""
        least, most = int(self.lengths.min()), int(np.quantile(self.lengths, _QUANTILE))
        if self.share_longer_:  # a bar of their own colour, however few they are
            most = max(most, self.max_length + 1)
        width = max(1, -(-(most - least) // _BARS))
        first = (self.max_length - least) // width + 1
        last = -(-(most - self.max_length) // width)
        steps: NDArray[np.float64] = np.arange(-first, max(last, 1 - first) + 1, dtype="float64")
        return steps * width + (self.max_length + 0.5)
