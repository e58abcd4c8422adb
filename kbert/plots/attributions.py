"""AttributionDisplay: texts with their words shaded by what they speak for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kbert.data.choices import NAMES, choice_columns
from kbert.data.frames import column_names, first_values, readable_again
from kbert.data.questions import question_columns
from kbert.data.tags import word_column
from kbert.data.texts import text_columns
from kbert.plots.page import HtmlDisplay, Mark, escaped, lines_of_rows, marked, require_columns, require_rows


class AttributionDisplay(HtmlDisplay):
    """Texts whose words are shaded by their scores: blue speaks for the label, orange and underlined against it.

    `from_estimator` and `from_predictions` make one. A notebook shows it, `html` and `save` make a page. All parameters
    are stored as attributes.

    Parameters
    ----------
    texts : list of dict
        For each row its texts by the columns of X; the key of a single text is "".
    explanation : DataFrame
        What an estimator's ``explain`` gave.
    probabilities : ndarray of shape (n_rows,), optional
        Of the label that is explained.
    max_rows : int, default=50
        How many rows are shown.

    Examples
    --------
    >>> from kbert.plots import AttributionDisplay
    >>> from kbert import BertClassifier
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
    >>> AttributionDisplay.from_estimator(classifier, ["very good"]).save("why.html")
    """

    _title = "What the words speak for"

    def __init__(
        self,
        texts: list[dict[Any, Any]],
        explanation: Any,
        *,
        probabilities: NDArray[np.float64] | None = None,
        max_rows: int = 50,
    ):
        super().__init__(max_rows)
        self.texts = texts
        self.explanation = explanation
        self.probabilities = probabilities

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, max_rows: int = 50, **kwargs: Any) -> Self:
        """Explain rows of X, and show why.

        Parameters
        ----------
        estimator : BertClassifier, BertRegressor, BertTagger, BertQA or BertMultipleChoice
            A fitted one.
        X : array-like
            As for its ``explain``.
        max_rows : int, default=50
            How many rows are shown.
        **kwargs
            Arguments of ``explain``. Without ``labels`` a classifier of one label a row explains the label that it
            predicts, and shows its probability; without ``option`` the option that is chosen is explained.

        Returns
        -------
        AttributionDisplay
        """
        X = readable_again(X)
        probabilities = None
        if hasattr(estimator, "predict_proba") and not {"labels", "option", "word"} & set(kwargs):
            found = estimator.predict_proba(X)
            best = np.nanargmax(found, axis=1) if len(found) and not isinstance(found, list) else None
            if best is not None and getattr(estimator, "y_type_", "labels") == "labels":
                classes = getattr(estimator, "classes_", None)
                kwargs |= {"option": best} if classes is None else {"labels": classes[best]}
                probabilities = found[np.arange(len(best)), best]
        return cls.from_predictions(estimator.explain(X, **kwargs), X, probabilities=probabilities, max_rows=max_rows)

    @classmethod
    def from_predictions(cls, explanation: Any, X: Any, *, probabilities: Any = None, max_rows: int = 50) -> Self:
        """Show an explanation.

        Parameters
        ----------
        explanation : DataFrame
            What an estimator's ``explain`` gave for X.
        X : array-like
            The same rows.
        probabilities : array-like of shape (n_rows,), optional
            Of the label that is explained in each row.
        max_rows : int, default=50
            How many rows are shown.

        Returns
        -------
        AttributionDisplay

        Raises
        ------
        ValueError
            If ``explanation`` is no explanation, or not of these rows.
        """
        require_columns(explanation, ("row", "start", "end", "label", "score"), "explain")
        given = None if probabilities is None else np.asarray(probabilities, "float64")
        texts = _texts_of(X, explanation)
        require_rows(explanation, len(texts))
        if given is not None and given.shape != (len(texts),):
            raise ValueError(
                f"probabilities must hold a number for each of the {len(texts)} rows, and has the shape {given.shape}."
            )
        return cls(texts, explanation, probabilities=given, max_rows=max_rows)

    def _n_rows(self) -> int:
        return len(self.texts)

    def _sections(self) -> Iterator[str]:
        for row, outputs in enumerate(self.shaded()):
            if outputs:
                yield "".join(self._head(row, label, total) + html for label, total, html in outputs)
            else:
                texts = self.texts[row].values()
                yield f"<p>row {row}: no words</p>" + "".join(marked(str(text), []) for text in texts)

    def _head(self, row: int, label: Any, total: float) -> str:
        """What is explained."""
        probability = ""
        if self.probabilities is not None:
            probability = f' <span class="value">probability {self.probabilities[row]:.3f}</span>'
        sums = f' <span class="value">sum {total:+.2f}</span>'
        return f'<p>row {row}: <b dir="auto">{escaped(label)}</b>{probability}{sums}</p>'

    def shaded(self) -> list[list[tuple[Any, float, str]]]:
        """The texts of each row as HTML, once for each output: its label, the sum of its scores, and the HTML.

        Returns
        -------
        list of list of (label, float, str)
            Empty for a row without words.
        """
        of_rows = dict(lines_of_rows(self.explanation))
        largest = float(np.abs(self.explanation.score).max()) if len(self.explanation) else 0.0
        return [
            [
                (label, float(lines.score.sum()), _texts_shaded(texts, label, lines, largest))
                for label, lines in of_rows[row].groupby("label", sort=False)
            ]
            if row in of_rows
            else []
            for row, texts in enumerate(self.texts)
        ]


def _texts_shaded(texts: dict[Any, Any], label: Any, lines: Any, largest: float) -> str:
    """The texts of a row under the names of their columns, with the lines of one output."""
    pieces = []
    for column, text in texts.items():
        own = lines if column == "" else lines[lines.column == column]
        if isinstance(text, list):  # the options of a row: the one that is explained
            text = text[label]
        if column != "":
            pieces.append(f'<p dir="auto">{escaped(column)}</p>')
        pieces.append(marked(text, (_mark(line, largest) for line in own.itertuples())))
    return "".join(pieces)


def _mark(line: Any, largest: float) -> Mark:
    """A word with its score, as strong as its share of the largest score of all."""
    score = float(line.score)
    strength = abs(score) / largest if largest else 0.0
    kind = "against" if score < 0 else "for"
    return Mark(
        int(line.start), int(line.end), kind, {"score": repr(score)}, f"--strength:{strength:.3f}", f"{score:+.3f}"
    )


def _texts_of(X: Any, explanation: Any) -> list[dict[Any, Any]]:
    """The texts of each row of X, by the columns that an explanation names."""
    if "column" not in explanation:
        return [{"": text} for text in word_column(X).texts()]
    named, names, of_X = set(explanation.column), list[Any](), column_names(X)
    if _holds_options(X, named):
        choices = choice_columns(X)
        names = choices.names or [name for name in NAMES if name != "question" or choices.questions is not None]
        columns = choices.columns
    elif named <= {"question", "context"} and (not of_X or {"question", "context"} <= set(of_X)):
        questions = question_columns(X)
        names, columns = questions.names or ["question", "context"], questions.columns
    else:
        pairs = text_columns(X)
        names, columns = pairs.names or [0, 1], pairs.columns
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _holds_options(X: Any, named: set[Any]) -> bool:
    """Whether a column of X that an explanation names has lists. Names alone do not tell: texts may be "options"."""
    return any(isinstance(value, list | tuple | np.ndarray) for value in first_values(X, named))
