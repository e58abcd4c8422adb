"""Report: scores, baselines and doubtful rows as a page of HTML, as a dict, and as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kbert.plots.page import HtmlPage, escaped, marked, section
from kbert.reports.scores import Scores

_WORDS = {
    "most_frequent": "the most frequent label", "mean": "the mean", "tfidf_linear": "TF-IDF and a linear model",
    "by_label": "By label", "f1_micro": "F1 over all labels",
}  # fmt: skip


class Report(HtmlPage):
    """What an estimator is worth on some rows. An estimator's ``report`` makes one.

    A notebook shows it; `html` and `save` make a page, `as_dict` gives the values.

    Parameters
    ----------
    values : dict
        What `as_dict` gives.
    scores : Scores
        By label, and what was taken for what.
    doubtful : DataFrame
        A line for each row whose answer is not what is given, the most surely wrong first: ``row`` (position in X, from
        0), ``given``, ``answer``, ``doubt`` (how surely they contradict each other), where there are probabilities
        ``probability_given`` and ``probability`` (of the answer), and the texts. The index of a line is that of its row
        in X.
    explained : list of str
        The HTML of the first of them.
    max_rows : int
        How many of them the page shows.
    """

    _title = "Report"

    def __init__(
        self, values: dict[str, Any], scores: Scores, doubtful: pd.DataFrame, explained: list[str], max_rows: int
    ):
        self.values, self.scores, self.doubtful = values, scores, doubtful
        self.explained, self.max_rows = explained, max_rows

    def as_dict(self) -> dict[str, Any]:
        """The values, as JSON can hold them.

        Returns
        -------
        dict
            ``score`` (``name``, ``value``, and the ends ``low`` and ``high`` of its 95% interval), ``baselines``,
            ``values`` of further scores, ``by_label``, ``confusion``, ``rows`` (how many, how many are ``empty``,
            ``cut``, or read ``in_windows``), ``by_length``, ``calibration`` and ``doubtful_rows``: positions in X.
        """
        return {**self.values, "doubtful_rows": self.doubtful.row.tolist()}

    def _body(self) -> str:
        return "".join(map(section, (*self._summary(), *self._tables(), *self._doubtful_rows())))

    def _summary(self) -> Iterator[str]:
        score, rows = self.values["score"], self.values["rows"]
        name = _words(score["name"])
        lines = [(f"<b>{name}</b>", f"<b>{score['value']:.3f}</b>", f"{score['low']:.3f} to {score['high']:.3f}")]
        lines += [(f"{_words(key)}", f"{value:.3f}", "") for key, value in self.values.get("baselines", {}).items()]
        lines += [(_words(key), f"{value:.3f}", "") for key, value in self.scores.values.items() if key != "rows"]
        notes = f"{rows['rows']} rows"
        for key, words in (("empty", "with an empty text"), ("cut", "cut"), ("in_windows", "read in windows")):
            notes += f", {rows[key]} {words}" if rows[key] else ""
        by = "Each row was answered by a model that was fitted without it." if self._is_crossed() else ""
        yield (
            f"<h2>Report</h2><p>{escaped(self.values['estimator'])}</p><p>{notes}. {by}</p>"
            + _table(("", "score", "95% interval"), lines)
        )

    def _is_crossed(self) -> bool:
        return bool(self.values["judged_by"] == "cross-validation")

    def _tables(self) -> Iterator[str]:
        if self.scores.by_label is not None:
            table = self.scores.by_label
            lines = [(escaped(label), *map(_number, row)) for label, row in zip(table.index, table.to_numpy(), strict=True)]
            yield f"<h2>By label</h2>{_table(('', *table.columns), lines)}"
        if self.scores.confusion is not None:
            table = self.scores.confusion
            lines = [(escaped(label), *map(_number, row)) for label, row in zip(table.index, table.to_numpy(), strict=True)]
            yield f"<h2>What was taken for what</h2><p>given (rows), answered (columns)</p>" + _table(
                ("", *map(escaped, table.columns)), lines
            )
        groups = self.values["by_length"]
        lines = [
            (f"{group['from']} to {group['to']}", str(group["rows"]), f"{group['value']:.3f}",
             f"{group['low']:.3f} to {group['high']:.3f}")
            for group in groups
        ]  # fmt: skip
        yield f"<h2>By length</h2>{_table(('tokens', 'rows', _words(self.values['score']['name']), '95% interval'), lines)}"
        for when, found in self.values.get("calibration", {}).items():
            lines = [
                (f"{part['from']:.1f} to {part['to']:.1f}", str(part["rows"]), f"{part['probability']:.3f}",
                 f"{part['right']:.3f}")
                for part in found["bins"]
            ]  # fmt: skip
            yield (
                f"<h2>Probabilities, {when} calibration</h2><p>expected calibration error {found['error']:.3f}</p>"
                + _table(("probability", "rows", "mean", "right"), lines)
            )

    def _doubtful_rows(self) -> Iterator[str]:
        n, shown = len(self.doubtful), min(len(self.doubtful), self.max_rows)
        if not n:
            return
        yield (
            f"<h2>Rows to look at</h2><p>The answer to {n} rows is not what is given. The first {shown}, the most surely "
            "wrong first: an answer with a high probability is often right, and the given one an error.</p>"
        )
        texts = [name for name in self.doubtful.columns if name not in _NOT_TEXTS]
        for i, (_, line) in zip(range(shown), self.doubtful.iterrows(), strict=False):
            shares = ""
            if "probability" in line:
                shares = f' <span class="value">{_pair(line.probability_given, line.probability)}</span>'
            head = (
                f'<p>row {line.row}: given <b dir="auto">{escaped(line.given)}</b>, answer '
                f'<b dir="auto">{escaped(line.answer)}</b>{shares}</p>'
            )
            body = self.explained[i] if i < len(self.explained) else "".join(marked(str(line[name]), []) for name in texts)
            yield head + body


_NOT_TEXTS = ("row", "given", "answer", "doubt", "probability_given", "probability")


def _words(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))


def _number(value: Any) -> str:
    """A count as it is, a share with three digits."""
    return str(int(value)) if float(value).is_integer() and value > 1 else f"{value:.3f}"


def _pair(given: float, answer: float) -> str:
    return f"probability {answer:.3f}" if np.isnan(given) else f"probabilities {given:.3f} and {answer:.3f}"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first of each line is its head."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{line[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in line[1:]) + "</tr>" for line in lines
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
