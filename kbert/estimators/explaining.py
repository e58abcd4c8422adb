"""The parameters of ``explain`` that all estimators have, and its DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kbert.data.columns import Columns
from kbert.data.frames import indexed_lines
from kbert.tasks.explaining import Explainer, ToExplain, Units, one_for_each_row
from kbert.text import WordPieceTokenizer
from kbert.text.sentences import sentence_splitter
from kbert.training.attributions import Path
from kbert.training.precision import in_float32
from kbert.training.progress import PredictionProgress
from kbert.training.shapley import Orders
from kbert.values.number_rules import whole_number
from kbert.values.printable import shown
from kbert.weights.runtimes import ExportedModel

if TYPE_CHECKING:
    import keras

_UNITS = ("word", "sentence")
_METHODS = ("integrated_gradients", "shapley", "gradient_x_input")
# What n_steps is unless it is given.
_POINTS, _ORDERS = 32, 10
# What an array of int64 holds.
_LARGEST = int(np.iinfo(np.int64).max)

C = TypeVar("C", bound=Columns)


def new_explainer(
    model: keras.Model, tokenizer: WordPieceTokenizer, unit: str, method: str, n_steps: int | None
) -> Explainer:
    """What explains, by the parameters of ``explain``.

    Raises
    ------
    ValueError
        If a parameter has a value that is not allowed.
    """
    if isinstance(model, ExportedModel):
        raise ValueError(
            f"To explain needs the Keras model, and {model.folder} holds an exported one, which only predicts. Load "
            "the folder that `save` wrote."
        )
    for name, value, allowed in (("unit", unit, _UNITS), ("method", method, _METHODS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")
    if n_steps is None:
        n_steps = _ORDERS if method == "shapley" else _POINTS
    steps = whole_number(n_steps, "n_steps", 2)
    path: Path | Orders = Path.end()
    if method == "shapley":
        path = Orders(steps)
    elif method == "integrated_gradients":
        path = Path.integral(steps)
    # In fewer digits scores would not add up, and not be the same on all backends.
    return Explainer(in_float32(model), tokenizer, path, _sentences if unit == "sentence" else None)


def whole_numbers(value: Any, n_rows: int, name: str) -> NDArray[np.int64]:
    """A whole number for every row, or each row's own; shape (n_rows,).

    Raises
    ------
    ValueError
        If there is another number of them than rows, or one is too large for any row.
    TypeError
        If a value is no whole number.
    """
    of_rows = one_for_each_row(value, n_rows, name)
    for i, number in enumerate(of_rows):
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer):
            raise TypeError(f"{name} must be a whole number, got {shown(number)} for row {i}.")
        if abs(int(number)) > _LARGEST:
            raise ValueError(f"{name} is {shown(number)} in row {i}, and no row has so many.")
    return np.array(of_rows, np.int64)


def explanation(
    explainer: Explainer,
    X: Any,
    columns: C,
    to_explain: Callable[[C, slice], ToExplain],
    unit: str,
    has_column: bool,
    verbose: int,
) -> pd.DataFrame:
    """The DataFrame of ``explain``: a line for each word, or sentence, of each output.

    Parameters
    ----------
    explainer : Explainer
    X : array-like
        Whose index the lines have.
    columns : Columns
        X as it was read.
    to_explain : callable
        The task's, for some of these rows.
    unit : {"word", "sentence"}
        What the column of texts is called.
    has_column : bool
        Whether a line names the column of X: where a row of X has several texts.
    verbose : int
        As in the estimators.
    """
    with PredictionProgress(columns.n_rows, verbose, "explain"):
        lines = list(explainer.lines(columns, to_explain))
    explainer.warn()
    types = {"row": int, "column": object, unit: str, "start": int, "end": int, "label": object, "score": float}
    frame = indexed_lines(lines, types, X)
    return frame if has_column else frame.drop(columns="column")


def _sentences(text: str) -> Units:
    """Where the sentences of a text begin and end, without the white space around them."""
    split, spans, start = sentence_splitter("en"), [], 0
    for line in text.split("\n"):
        for sentence in split(line):
            inner = sentence.strip()
            if inner:
                begin = start + sentence.index(inner)
                spans.append((begin, begin + len(inner)))
            start += len(sentence)
        start += 1
    return spans
