"""EntityDisplay: texts with their entities marked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from kbert.data.frames import readable_again
from kbert.data.tags import word_column
from kbert.plots.page import HtmlDisplay, Mark, hue, lines_of_rows, marked, require_columns, require_rows


class EntityDisplay(HtmlDisplay):
    """Texts with the entities in them, each with its label behind it.

    `from_estimator` and `from_predictions` make one. A notebook shows it, `html` and `save` make a page. All parameters
    are stored as attributes.

    Parameters
    ----------
    texts : list of str
    entities : DataFrame
        What `BertTagger.entities` gave.
    max_rows : int, default=50
        How many rows are shown.

    Examples
    --------
    >>> from kbert import BertTagger
    >>> from kbert.plots import EntityDisplay
    >>> texts, spans = ["Ada left.", "It rained."] * 10, [[(0, 3, "PER")], []] * 10
    >>> tagger = BertTagger("minilm-l6", epochs=1, random_state=0).fit(texts, spans)
    >>> EntityDisplay.from_estimator(tagger, ["Ada came."]).save("names.html")
    """

    _title = "Entities"

    def __init__(self, texts: list[str], entities: Any, *, max_rows: int = 50):
        super().__init__(max_rows)
        self.texts = texts
        self.entities = entities

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, max_rows: int = 50) -> Self:
        """Find the entities in X, and show them.

        Parameters
        ----------
        estimator : BertTagger
            A fitted one, whose tags are BIO tags.
        X : array-like, shape (n_rows,)
            Lists of words, or texts.
        max_rows : int, default=50
            How many rows are shown.

        Returns
        -------
        EntityDisplay
        """
        X = readable_again(X)
        return cls.from_predictions(estimator.entities(X), X, max_rows=max_rows)

    @classmethod
    def from_predictions(cls, entities: Any, X: Any, *, max_rows: int = 50) -> Self:
        """Show entities.

        Parameters
        ----------
        entities : DataFrame
            What `BertTagger.entities` gave for X, or another DataFrame with the columns row, start, end and label.
        X : array-like, shape (n_rows,)
            The same rows.
        max_rows : int, default=50
            How many rows are shown.

        Returns
        -------
        EntityDisplay

        Raises
        ------
        ValueError
            If ``entities`` are no entities, or not of these rows.
        """
        require_columns(entities, ("row", "start", "end", "label"), "BertTagger.entities")
        texts = list(word_column(X).texts())
        require_rows(entities, len(texts))
        return cls(texts, entities, max_rows=max_rows)

    def _n_rows(self) -> int:
        return len(self.texts)

    def _sections(self) -> Iterator[str]:
        of_rows = dict(lines_of_rows(self.entities))
        number = {label: i for i, label in enumerate(sorted(set(self.entities.label), key=str))}
        for row, text in enumerate(self.texts):
            lines = of_rows[row].sort_values(["start", "end"]).itertuples() if row in of_rows else ()
            yield f"<p>row {row}</p>" + marked(text, (_mark(line, number[line.label]) for line in lines))


def _mark(line: Any, number: int) -> Mark:
    """An entity with its label and, where it is known, its probability."""
    score = getattr(line, "score", None)
    values = {"label": line.label} if score is None else {"label": line.label, "score": repr(float(score))}
    title = str(line.label) if score is None else f"{line.label}, probability {score:.3f}"
    return Mark(int(line.start), int(line.end), "labelled", values, hue(number), title)
