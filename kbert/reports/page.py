"""Report: scores, baselines and the rows to look at, as a page of HTML, as a dict, and as a DataFrame."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from kbert.plots.attributions import AttributionDisplay
from kbert.plots.page import HtmlPage, escaped, marked, section
from kbert.reports.parts import STYLE, bar, interval, number, reliability, shaded_table, table
from kbert.values.printable import printable

# What a line about a doubtful row has beside the texts.
OWN_NAMES = ("row", "given", "predicted", "doubt", "probability_given", "probability", "label", "word", "position")
_WORDS = {
    "estimator": "this estimator",
    "most_frequent": "the most frequent label",
    "mean": "the mean of y",
    "tfidf_linear": "TF-IDF and a linear model",
    "most_frequent_tag": "the most frequent tag of each word",
    "no_answer": "no answer to any question",
    "f1": "F1",
    "f1_micro": "F1 over all labels",
    "f1_macro": "F1, mean of labels",
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "mean absolute error",
    "exact": "exact answers",
}
# Labels, or kinds of mistakes, that a table on the page has at most.
_MOST_LABELS = 30
_CHECK = "Where what is predicted has a high probability, what is given is often wrong."
# What is said of the rows at the end of the page.
_LOOK = {
    "labels": f"The given label is not the predicted one; beside each stands its probability. {_CHECK}",
    "several labels": "A label is given that is not predicted, or the other way round. The probabilities are those of "
    "the named label: that the row has it as given, and as predicted.",
    "numbers": "The predicted numbers that are furthest from the given ones.",
    "tags": f"The given tag of a word is not the predicted one; beside each stands its probability. {_CHECK}",
    "answers": "The predicted answer has a high probability, and little in common with the given ones.",
    "choices": f"The given option is not the predicted one; beside each stands its probability. {_CHECK}",
}


class Report(HtmlPage):
    """What an estimator is worth on some rows. An estimator's ``report`` makes one.

    A notebook shows it; `html` and `save` make a page of its own, and `as_dict` gives its values.

    Parameters
    ----------
    kind : str
        What the estimator predicts: "labels", "several labels", "numbers", "tags", "answers" or "choices".
    values : dict
        What `as_dict` gives.
    doubtful : DataFrame
        A line for each row whose prediction is not what is given, the most surely wrong first: ``row`` (position in X,
        from 0), ``given``, ``predicted``, ``doubt`` (what the lines are sorted by), ``probability_given`` and
        ``probability`` (of what is predicted; NaN where it is unknown, and no such columns where numbers are
        predicted), the ``label`` in question where a row has several, of tags the ``word`` in question and its
        ``position`` in the row, and the texts of X. The index of a line is that of its row in X.
    why : AttributionDisplay or None
        What the words of the first of these rows speak for.
    max_rows : int
        How many of them the page shows.

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
    >>> report = classifier.report(["good", "bad", "so bad"], ["pos", "neg", "pos"])
    >>> report.save("report.html")
    >>> report.as_dict()["score"]["name"]
    'accuracy'
    """

    _title = "Report"
    _own_style = STYLE

    def __init__(
        self, kind: str, values: dict[str, Any], doubtful: pd.DataFrame, why: AttributionDisplay | None, max_rows: int
    ):
        self.kind, self.values, self.doubtful, self.why, self.max_rows = kind, values, doubtful, why, max_rows

    def as_dict(self) -> dict[str, Any]:
        """The values, as JSON can hold them; None stands for what is no number.

        Returns
        -------
        dict
            ``estimator``; ``evaluated_by`` ("predict" or "cross-validation"); ``rows`` (how many ``rows``, how many are
            ``empty``, ``cut``, or read ``in_windows``, and ``max_length`` in tokens); ``score`` (``name``, ``value``,
            and the ends ``low`` and ``high`` of its 95% interval); ``baselines`` (by name, each with ``value``, ``low``
            and ``high``); further ``scores``; ``by_label`` and ``confusion``, where there are labels; ``by_length``
            (groups of rows ``from`` so many tokens ``to`` so many, with their score); ``calibration`` (``learned``:
            whether the estimator is calibrated; ``before`` and ``after``, each with its ``error``, ``error_by_chance``
            and ``bins``);
            ``n_doubtful``, and ``doubtful``, the first ``max_rows`` lines of the DataFrame without the texts.
        """
        lines = self.doubtful.head(self.max_rows)
        doubtful = lines[[name for name in OWN_NAMES if name in lines]].to_dict("records")
        plain: dict[str, Any] = _plain({**self.values, "n_doubtful": len(self.doubtful), "doubtful": doubtful})
        return plain

    def __str__(self) -> str:
        """The scores as text: those of the estimator, of what is simpler, and of each label."""
        values = self.values
        found = {_words("estimator"): values["score"]}
        found |= {self._words_of_baseline(name): of_name for name, of_name in values["baselines"].items()}
        width = max(map(len, found))
        lines = [f"{_words(values['score']['name'])} on {values['rows']['rows']:,} rows"]
        for name, score in found.items():
            ends = f"{number(score['low'])} to {number(score['high'])} (95%)"
            lines.append(f"  {name:<{width}}  {number(score['value'])}, {ends}")
        if values["scores"]:
            lines.append(", ".join(f"{_words(name)} {number(value)}" for name, value in values["scores"].items()))
        if by_label := values.get("by_label"):
            shown = pd.DataFrame.from_dict(dict(list(by_label.items())[:_MOST_LABELS]), orient="index")
            lines.append(shown.rename(index=lambda label: printable(str(label))).round(3).to_string())
        return "\n".join([*lines, f"{len(self.doubtful):,} rows to look at: doubtful; the page: save(...)"])

    # --- The page

    def _body(self) -> str:
        parts = (self._summary(), self._by_label(), self._by_length(), self._calibration(), self._rows_to_look_at())
        return "".join(section(body) for part in parts for body in part)

    def _summary(self) -> Iterator[str]:
        rows, score = self.values["rows"], self.values["score"]
        notes = [f"{rows['rows']:,} rows"]
        for key, words in (
            ("empty", "with an empty text"),
            ("cut", f"cut at {rows['max_length']} tokens"),
            ("in_windows", f"longer than {rows['max_length']} tokens, and read in windows"),
        ):
            notes += [f"{rows[key]:,} {words}"] if rows[key] else []
        crossed = self.values["evaluated_by"] == "cross-validation"
        by = " Each row was predicted by a model that was fitted without it." if crossed else ""
        lines = [
            (name, bar(**found), number(found["value"]), interval(found))
            for name, found in [
                (f"<b>{_words('estimator')}</b>", {key: score[key] for key in ("value", "low", "high")}),
                *((self._words_of_baseline(name), found) for name, found in self.values["baselines"].items()),
            ]
        ]
        others = ", ".join(f"{_words(name)} {number(value)}" for name, value in self.values["scores"].items())
        yield (
            f"<h2>Report</h2><p><code>{escaped(self.values['estimator'])}</code></p><p>{', '.join(notes)}.{by}</p>"
            + table(("", "", _words(score["name"]), "95% interval"), lines)
            + (f"<p>{others}</p>" if others else "")
        )

    def _words_of_baseline(self, name: str) -> str:
        return "the most frequent option" if (self.kind, name) == ("choices", "most_frequent") else _words(name)

    def _by_label(self) -> Iterator[str]:
        if by_label := self.values.get("by_label"):
            shown, note = list(by_label.items()), ""
            if len(shown) > _MOST_LABELS:
                shown = sorted(shown, key=lambda item: item[1]["f1"])[:_MOST_LABELS]
                note = f"<p>The {_MOST_LABELS} labels of {len(by_label)} with the lowest F1.</p>"
            lines = [(escaped(label), *map(number, row.values())) for label, row in shown]
            yield f"<h2>By label</h2>{note}" + table(("", *map(_words, shown[0][1])), lines)
        if confusion := self.values.get("confusion"):
            yield "<h2>What was taken for what</h2>" + self._confusion(confusion)

    def _confusion(self, confusion: dict[str, dict[str, float]]) -> str:
        """The matrix, or of many labels the most frequent mistakes."""
        if len(confusion) <= _MOST_LABELS:
            return "<p>Each line is a given label, each column a predicted one.</p>" + shaded_table(confusion)
        mistakes = [
            (count, given, predicted)
            for given, line in confusion.items()
            for predicted, count in line.items()
            if count and given != predicted
        ]
        most = sorted(mistakes, key=lambda mistake: -mistake[0])[:_MOST_LABELS]
        lines = [(escaped(given), escaped(predicted), number(count)) for count, given, predicted in most]
        return f"<p>The most frequent of {len(mistakes)} kinds of mistakes.</p>" + table(
            ("given", "predicted", ""), lines
        )

    def _by_length(self) -> Iterator[str]:
        groups = self.values["by_length"]
        lines = [
            (
                _tokens(group),
                bar(group["value"], group["low"], group["high"]),
                number(group["value"]),
                interval(group),
                f"{group['rows']:,}",
            )
            for group in groups
        ]
        name = _words(self.values["score"]["name"])
        yield "<h2>By length</h2>" + table(("tokens", "", name, "95% interval", "rows"), lines)

    def _calibration(self) -> Iterator[str]:
        found = self.values["calibration"]
        figures = [
            reliability(found[when], f"{when} calibration" if "before" in found else "calibrated")
            for when in ("before", "after")
            if when in found
        ]
        if not figures:
            return
        how = (
            "The estimator was fitted with calibrate=&quot;temperature&quot;."
            if found["learned"]
            else "After: as with calibrate=&quot;temperature&quot;, learned from the other half of these rows."
        )
        yield (
            "<h2>Probabilities</h2><p>Across: the predicted probability; upwards: the share that is right; both from 0 "
            "to 1. Below the line, probabilities are too high. With few rows, points lie off the line by chance: "
            f"only an error well above that by chance says something. {how}</p>"
            f'<div class="figures">{"".join(figures)}</div>'
        )

    # --- The rows

    def _rows_to_look_at(self) -> Iterator[str]:
        n = len(self.doubtful)
        if not n:
            return
        shades = ""
        if self.why is not None:
            what = {"several labels": "the named label", "numbers": "a higher number"}.get(
                self.kind, "what is predicted"
            )
            shades = f" Words on blue speak for {what}, those on orange and underlined against it."
        which = f"These are all {n:,}" if n <= self.max_rows else f"These are the first {self.max_rows:,} of {n:,}"
        which = "There is one such row" if n == 1 else which
        yield f"<h2>Rows to look at</h2><p>{_LOOK[self.kind]} {which}.{shades}</p>"
        shaded = self.why.shaded() if self.why is not None else []
        for i, (index, line) in enumerate(islice(self.doubtful.iterrows(), self.max_rows)):
            outputs = shaded[i] if i < len(shaded) else []
            yield self._head(index, line) + ("".join(_output(outputs)) or self._texts(line))

    def _head(self, index: Any, line: Any) -> str:
        """Which row it is, what is given and what is predicted."""
        row = f"row {line['row']}"
        if not _same(index, line["row"]) and not isinstance(self.doubtful.index, pd.RangeIndex):
            row += f", index {escaped(index)}"
        if "label" in line and self.kind == "several labels":
            row += f', <b dir="auto">{escaped(line["label"])}</b>'
        if self.kind == "tags":
            row += f', word {line["position"]} <b dir="auto">{escaped(line["word"])}</b>'
        pieces = [row]
        for name, probability in (("given", "probability_given"), ("predicted", "probability")):
            share = line.get(probability, math.nan)
            value = "" if math.isnan(share) else f' <span class="value">{share:.3f}</span>'
            pieces.append(f'{name} <b dir="auto">{escaped(self._told(line, name))}</b>{value}')
        return f'<p class="row">{" · ".join(pieces)}</p>'

    def _told(self, line: Any, name: str) -> str:
        value = line[name]
        if self.kind == "choices":
            options = [line[name] for name in self._text_names()][-1]
            return f"{value}: {options[value]}"
        if self.kind == "answers":
            answers = value if isinstance(value, list) else [value]
            return " / ".join(dict.fromkeys(answer for answer in answers if answer)) or "no answer"
        if isinstance(value, list):
            return ", ".join(map(_short, value)) or "none"
        return _short(value)

    def _text_names(self) -> list[Any]:
        return [name for name in self.doubtful.columns if name not in OWN_NAMES]

    def _texts(self, line: Any) -> str:
        """The texts of a row under the names of their columns."""
        names, pieces = self._text_names(), []
        for name in names:
            text = "\n".join(line[name]) if isinstance(line[name], list) else str(line[name])
            pieces.append((f'<p dir="auto">{escaped(name)}</p>' if len(names) > 1 else "") + marked(text, []))
        return "".join(pieces)


def _output(outputs: Sequence[tuple[Any, float, str]]) -> Iterator[str]:
    """The shaded texts of a row; with the names of the outputs where there are several."""
    for label, _, html in outputs:
        yield (f'<p dir="auto">for {escaped(label)}</p>' if len(outputs) > 1 else "") + html


def _same(index: Any, row: int) -> bool:
    return isinstance(index, int | np.integer) and index == row


def _tokens(group: dict[str, Any]) -> str:
    """From how many tokens to how many the rows of a group have."""
    low, high = group["from"], group["to"]
    lengths = str(low) if low == high else f"{low} – {high}"
    return f'<span class="interval">{lengths}</span>{", cut" if group["cut"] else ""}'


def _words(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | bool | int | float | None) else str(value)
