"""LayerDisplay: which layers of BERT a linear model learns most from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kbert.data.frames import readable_again, require_y
from kbert.metrics import entity_f1, is_bio
from kbert.plots.curves import axes_of, legend_above

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.lines import Line2D


class LayerDisplay:
    """The score of a linear model on the vectors of each choice of layers (Devlin et al., 2018, Table 7).

    `from_estimator` makes one and draws it. All parameters are stored as attributes.

    Parameters
    ----------
    scores : dict of array-like, or DataFrame
        The scores of each choice, one a fold, by its name.
    score_name : str, default="Score"
        What the horizontal axis is called.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
        The mean of each choice, a point.
    fold_line_ : matplotlib Line2D
        The scores of all folds, smaller points.
    spread_ : matplotlib LineCollection
        From one standard deviation of the folds below the mean to one above it.

    Examples
    --------
    >>> from kbert import BertVectorizer
    >>> from kbert.plots import LayerDisplay
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> display = LayerDisplay.from_estimator(BertVectorizer("tiny"), texts, labels)
    >>> display.figure_.savefig("layers.png")
    """

    ax_: Axes
    figure_: Figure | SubFigure
    line_: Line2D
    fold_line_: Line2D
    spread_: LineCollection

    def __init__(self, scores: Mapping[str, ArrayLike], *, score_name: str = "Score"):
        self.scores: dict[str, NDArray[np.float64]] = {
            name: np.atleast_1d(np.asarray(scores[name], "float64")) for name in scores
        }
        self.score_name = score_name
        if not self.scores or not all(len(values) for values in self.scores.values()):
            raise ValueError("scores must have a score of at least one fold for each of its choices.")

    @classmethod
    def from_estimator(
        cls,
        vectorizer: Any,
        X: Any,
        y: Any,
        *,
        cv: Any = 5,
        model: Any = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Cross-validate a linear model on the vectors of each choice, and draw its scores.

        The vectors of a choice are computed once for all folds, which are the same for all choices. So this costs as
        much as six calls of ``transform``, and the linear models.

        Parameters
        ----------
        vectorizer : BertVectorizer
            Fitted or not; its own ``layers`` is not used. With ``level="word"`` each word is a row of the linear model,
            and folds are made of whole rows of X.
        X : array-like
            As for its ``fit``.
        y : array-like, shape (n_rows,)
            Labels, or numbers: floats that are not all whole ones. With ``level="word"`` a list of tags for each row.
        cv : int, cross-validation splitter or iterable, default=5
            As in scikit-learn's ``cross_val_score``: an int is a number of folds, stratified for labels of texts.
        model : estimator, optional
            A classifier or regressor of scikit-learn's. None is ``LogisticRegression(C=0.01, max_iter=1000)`` for
            labels and ``RidgeCV`` for numbers, each after a ``StandardScaler``, so that one strength of regularisation
            suits all choices.
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        LayerDisplay
            Its scores are accuracies of labels, R² of numbers, and of tags the F1 of entities where they are BIO tags.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        TypeError
            If the estimator is no `BertVectorizer`.
        """
        from kbert.model import LAYER_CHOICES

        if not hasattr(vectorizer, "_with_layers"):
            raise TypeError(f"LayerDisplay needs a BertVectorizer, got {type(vectorizer).__name__}.")
        X, y = readable_again(X), readable_again(y)
        require_y(y, "a label, a number or a list of tags for each row")
        fitted = _fitted(vectorizer, X)
        score, name = (_of_words if fitted._is_of_words else _of_texts)(y, cv, model)
        scores = {layers: score(fitted._with_layers(layers).transform(X)) for layers in LAYER_CHOICES}
        return cls(scores, score_name=name).plot(ax=ax, **kwargs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        line_kw: dict[str, Any] | None = None,
        fold_line_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the scores.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            The axes to draw on. None makes a new figure.
        line_kw, fold_line_kw : dict, optional
            Arguments of matplotlib's ``plot`` for the means and for the scores of the folds.

        Returns
        -------
        LayerDisplay
            This one, with the attributes that end in "_".

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = axes_of(ax, self)
        folds = list(self.scores.values())
        places = np.arange(len(folds))
        means, spreads = (np.array([statistic(values) for values in folds]) for statistic in (np.mean, np.std))
        kw = {"label": "A fold", "color": "C0", "marker": ".", "linestyle": "", "alpha": 0.4, **(fold_line_kw or {})}
        of_folds = np.repeat(places, [len(values) for values in folds])
        (self.fold_line_,) = ax.plot(np.concatenate(folds), of_folds, **kw)
        kw = {"label": "Mean ± std", "color": "C0", "marker": "o", "linestyle": "", **(line_kw or {})}
        (self.line_,) = ax.plot(means, places, **kw)
        self.spread_ = ax.hlines(places, means - spreads, means + spreads, color=self.line_.get_color())
        ax.set_yticks(places, list(self.scores))
        ax.invert_yaxis()  # the first choice is the uppermost
        ax.set_xlabel(self.score_name)
        legend_above(ax, [self.line_, self.fold_line_])
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _fitted(vectorizer: Any, X: Any) -> Any:
    """The vectorizer, or a fitted copy of it."""
    from sklearn.base import clone

    return vectorizer if vectorizer.__sklearn_is_fitted__() else clone(vectorizer).fit(X)


def _linear(numbers: bool) -> Any:
    """The linear model. Its classifier is that of examples/features.py."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = RidgeCV(np.logspace(0, 6, 13)) if numbers else LogisticRegression(C=0.01, max_iter=1000)
    return make_pipeline(StandardScaler(), linear)


def _of_texts(y: Any, cv: Any, model: Any) -> tuple[Callable[[Any], NDArray[np.float64]], str]:
    """What scores the vectors of texts, fold by fold, and what the score is called."""
    from sklearn.base import is_regressor
    from sklearn.model_selection import check_cv, cross_val_score
    from sklearn.utils.multiclass import type_of_target

    y = np.asarray(y)
    model = _linear(type_of_target(y).startswith("continuous")) if model is None else model
    numbers = is_regressor(model)
    folds = list(check_cv(cv, y, classifier=not numbers).split(np.zeros(len(y)), y))

    def score(vectors: Any) -> NDArray[np.float64]:
        return cross_val_score(model, np.asarray(vectors), y, cv=folds)

    return score, "R²" if numbers else "Accuracy"


def _of_words(y: Any, cv: Any, model: Any) -> tuple[Callable[[Any], NDArray[np.float64]], str]:
    """The same for the vectors of words."""
    from sklearn.base import clone
    from sklearn.model_selection import check_cv

    tags = [list(row) for row in y]
    model = _linear(numbers=False) if model is None else model
    folds = list(check_cv(cv).split(np.zeros(len(tags))))
    of_entities = is_bio(tags)

    def fold_score(vectors: list[NDArray[np.float32]], train: NDArray[Any], test: NDArray[Any]) -> float:
        learned = clone(model).fit(
            np.concatenate([vectors[row] for row in train]), np.concatenate([tags[row] for row in train])
        )
        found = learned.predict(np.concatenate([vectors[row] for row in test]))
        right = [tags[row] for row in test]
        if of_entities:
            rows = np.split(found, np.cumsum([len(row) for row in right])[:-1])
            return entity_f1(right, [row.tolist() for row in rows])
        return float(np.mean(found == np.concatenate(right)))

    def score(vectors: list[NDArray[np.float32]]) -> NDArray[np.float64]:
        n_words, n_tags = [len(row) for row in vectors], [len(row) for row in tags]
        if n_words != n_tags:
            raise ValueError("y must have one tag for each word of each row of X.")
        return np.array([fold_score(vectors, train, test) for train, test in folds])

    return score, "Entity F1" if of_entities else "Accuracy of words"
