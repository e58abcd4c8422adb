"""AnswerDisplay: contexts with the answers to their questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from kbert.data.frames import readable_again
from kbert.data.questions import QuestionColumns, question_columns
from kbert.plots.page import HtmlDisplay, Mark, escaped, lines_of_rows, marked, require_columns, require_rows


class AnswerDisplay(HtmlDisplay):
    """Questions, and their contexts with the best answers marked and listed, "no answer" among them.

    A part of the context is shaded by the probability of the answers that it belongs to. `from_estimator` and
    `from_predictions` make one. A notebook shows it, `html` and `save` make a page. All parameters are stored as
    attributes.

    Parameters
    ----------
    columns : QuestionColumns
    answers : DataFrame
        What `BertQA.answers` gave.
    max_rows : int, default=50
        How many rows are shown.

    Examples
    --------
    >>> import pandas as pd
    >>> from kbert import BertQA
    >>> from kbert.plots import AnswerDisplay
    >>> row = ("Where did Mia move?", "Mia moved to Lisbon.", "Lisbon", 13)
    >>> columns = ["question", "context", "answer", "answer_start"]
    >>> df = pd.DataFrame([row] * 20, columns=columns)
    >>> qa = BertQA("minilm-l6", epochs=1, random_state=0).fit(df, df)
    >>> AnswerDisplay.from_estimator(qa, df[:1], n_best=3).save("answers.html")
    """

    _title = "Answers"

    def __init__(self, columns: QuestionColumns, answers: Any, *, max_rows: int = 50):
        super().__init__(max_rows)
        self.columns = columns
        self.answers = answers

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, n_best: int = 3, max_rows: int = 50) -> Self:
        """Answer the questions of X, and show the answers.

        Parameters
        ----------
        estimator : BertQA
            A fitted one.
        X : DataFrame or array-like, shape (n_rows, 2)
            Questions and contexts.
        n_best : int, default=3
            At most how many answers for each question.
        max_rows : int, default=50
            How many rows are shown.

        Returns
        -------
        AnswerDisplay
        """
        X = readable_again(X)
        return cls.from_predictions(estimator.answers(X, n_best), X, max_rows=max_rows)

    @classmethod
    def from_predictions(cls, answers: Any, X: Any, *, max_rows: int = 50) -> Self:
        """Show answers.

        Parameters
        ----------
        answers : DataFrame
            What `BertQA.answers` gave for X.
        X : DataFrame or array-like, shape (n_rows, 2)
            The same rows.
        max_rows : int, default=50
            How many rows are shown.

        Returns
        -------
        AnswerDisplay

        Raises
        ------
        ValueError
            If ``answers`` are no answers, or not of these rows.
        """
        require_columns(answers, ("row", "rank", "answer", "start", "end", "probability"), "BertQA.answers")
        columns = question_columns(X)
        require_rows(answers, columns.n_rows)
        return cls(columns, answers, max_rows=max_rows)

    def _n_rows(self) -> int:
        return self.columns.n_rows

    def _sections(self) -> Iterator[str]:
        of_rows = dict(lines_of_rows(self.answers))
        for row, (question, context) in enumerate(zip(*self.columns.columns, strict=True)):
            lines = list(of_rows[row].sort_values("rank").itertuples()) if row in of_rows else []
            listed = "".join(
                f'<li value="{line.rank}" data-rank="{line.rank}"><bdi>{escaped(line.answer or "no answer")}</bdi> '
                f'<span class="value">{line.probability:.3f}</span></li>'
                for line in lines
            )
            body = marked(question, []) + f"<p>context</p>{marked(context, _marks(lines))}<ol>{listed}</ol>"
            yield f"<p>row {row}</p>{body}"


def _marks(lines: list[Any]) -> Iterator[Mark]:
    """The pieces of a context between the bounds of all answers, which may overlap."""
    spans = [line for line in lines if line.start >= 0]
    bounds = sorted({int(bound) for line in spans for bound in (line.start, line.end)})
    for start, end in zip(bounds[:-1], bounds[1:], strict=True):
        inside = [line for line in spans if line.start <= start and end <= line.end]
        if inside:
            probability = min(1.0, sum(line.probability for line in inside))
            ranks = " ".join(str(line.rank) for line in inside)
            strength = f"--strength:{0.25 + 0.75 * probability:.3f}"
            yield Mark(start, end, "for", {"ranks": ranks}, strength, f"answer {ranks}: {probability:.3f}")
