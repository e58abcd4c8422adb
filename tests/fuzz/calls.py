"""Awkward calls of the estimators: wrong types and lengths, odd tables, and parameters of no sense.

Each works, or raises a ValueError, a TypeError or one of kbert's errors, out of kbert's own checks or scikit-learn's.
"""

import json
import random
from collections import OrderedDict, UserList

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.base import clone
from texts import SAVED, fitted

from kbert.estimators.parameters import RULES

WORDS = "red blue hot cold table chair great awful".split()
TEXTS = [" ".join(WORDS[(i + j) % 8] for j in range(4)) for i in range(8)]


def _good(name):
    """X and y that the estimator takes."""
    match name:
        case "multilabel":
            return TEXTS, [["red"] if i % 2 else ["hot", "red"] for i in range(8)]
        case "regressor":
            return TEXTS, [[float(i), 1.0] for i in range(8)]
        case "tagger":
            return [text.split() for text in TEXTS], [["O", "B-X", "I-X", "O"]] * 8
        case "qa":
            return [("red", text) for text in TEXTS], [(text.split()[0], 0) for text in TEXTS]
        case "choice":
            return [(text, ["red", "blue"]) for text in TEXTS], [0, 1] * 4
        case "vectorizer" | "pretrainer":
            return [text.replace(" ", ".\n") for text in TEXTS], None
        case _:
            return TEXTS, [0, 1] * 4


def _with_row(rows, value):
    return [*rows[:3], value, *rows[4:]]


def _object_array(rows):
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


def _frame(rows, **options):
    return pd.DataFrame([row if isinstance(row, tuple) else (row,) for row in rows], **options)


def _renamed(frame, names):
    return frame.set_axis(names, axis=1)


# From good rows to odd ones.
ROWS = {
    "None": lambda rows: None,
    "a number": lambda rows: 5,
    "a text": lambda rows: "text",
    "bytes": lambda rows: b"bytes",
    "a dict": lambda rows: {"a": rows},
    "a set": lambda rows: set(map(str, rows)),
    "a generator": lambda rows: (row for row in rows),
    "an iterator": iter,
    "a range": lambda rows: range(8),
    "an object": lambda rows: object(),
    "a class": lambda rows: str,
    "a tuple": tuple,
    "a list of another class": UserList,
    "an ordered dict": lambda rows: OrderedDict(enumerate(rows)),
    "empty": lambda rows: [],
    "an empty frame": lambda rows: pd.DataFrame(),
    "a frame without rows": lambda rows: _frame(rows).iloc[:0],
    "a frame without columns": lambda rows: pd.DataFrame(index=range(8)),
    "one row": lambda rows: rows[:1],
    "fewer": lambda rows: rows[:-1],
    "more": lambda rows: [*rows, rows[0]],
    "an object array": _object_array,
    "an array": lambda rows: np.array(rows, object),
    "one number": lambda rows: np.array(5),
    "numbers": lambda rows: np.zeros((8, 2)),
    "three dimensions": lambda rows: np.zeros((8, 1, 1), object),
    "complex": lambda rows: np.zeros(8, complex),
    "records": lambda rows: np.zeros(8, [("a", "f4"), ("b", "U3")]),
    "masked": lambda rows: np.ma.masked_array(np.arange(8), np.arange(8) % 2),
    "sparse": lambda rows: scipy.sparse.eye(8),
    "a series": lambda rows: pd.Series(list(rows), dtype=object),
    "an index twice": lambda rows: pd.Series(list(rows), index=[0] * len(rows), dtype=object),
    "a series with a tuple's name": lambda rows: pd.Series(list(rows), name=("a", 1), dtype=object),
    "an index": lambda rows: pd.Index(_object_array(rows)),
    "a frame": _frame,
    "a frame with an index twice": lambda rows: _frame(rows, index=[0] * len(rows)),
    "columns of two levels": lambda rows: _renamed(
        f := _frame(rows), pd.MultiIndex.from_tuples([("a", i) for i in range(f.shape[1])])
    ),
    "a name twice": lambda rows: _renamed(f := _frame(rows), ["a"] * f.shape[1]),
    "a column more": lambda rows: _frame(rows).assign(more=1, again="text"),
    "categories": lambda rows: pd.Series([str(row) for row in rows], dtype="category"),
    "Arrow's strings": lambda rows: pd.Series([str(row) for row in rows], dtype="string[pyarrow]"),
    "strings with NA": lambda rows: pd.Series(_with_row([str(row) for row in rows], pd.NA), dtype="string"),
    "dates": lambda rows: pd.Series(pd.date_range("2020-01-01", periods=len(rows))),
    "periods": lambda rows: pd.period_range("2020-01", periods=len(rows), freq="M"),
    "Int64 with NA": lambda rows: pd.Series([1, pd.NA] * 4, dtype="Int64"),
    "intervals": lambda rows: pd.Series(pd.interval_range(0, len(rows))),
    "sparse pandas": lambda rows: pd.Series([0, 1] * 4, dtype="Sparse[int]"),
    **{
        f"a row that is {value!r:.20}": lambda rows, value=value: _with_row(rows, value)
        for value in (
            *(None, float("nan"), float("inf"), pd.NA, pd.NaT, 5, -1, 2**70, True, b"bytes", "", "text", [], [[]], {}),
            *((), ("a",), ("a", "b", "c", "d"), ["a"], [None], object(), np.array(["a"]), np.str_("a"), np.int64(1)),
            *(
                set(),
                lambda: 1,
                "\ud800",
                [5],
                [b"a"],
                ("a", None),
                (None, None),
                ("a", []),
                ("a", [5]),
                ("a", "b", []),
            ),
        )
    },
}
WEIGHTS = {
    "fewer": [1.0] * 7, "negative": [-1.0] * 8, "NaN": [float("nan")] * 8, "infinite": [float("inf")] * 8,
    "two columns": np.ones((8, 2)), "zeros": [0] * 8, "one": 1.0, "a text": "balanced", "texts": ["1"] * 8, "empty": [],
    "objects": np.array([1, None] * 4, object), "huge": [1e308] * 8, "tiny": [1e-320] * 8, "bool": [True, False] * 4,
    "a series": pd.Series([1.0] * 8, index=range(8, 0, -1)), "NA": pd.Series([1, pd.NA] * 4, dtype="Int64"),
    "complex": [1j] * 8, "a dict": {0: 1.0},
}  # fmt: skip
VALUES = [
    None, True, False, 0, 1, -1, 2, 1.5, -0.1, 0.0, 2**31, 2**70, 1e308, float("nan"), float("inf"), "", "auto", "cls",
    "mean", "last", "balanced", "a" * 1000, b"auto", [], [1], (), {}, {"a": 1}, {0: "x"}, set(), object(), str, len,
    np.float32(0.5), np.int64(4), np.array(3), np.array([1, 2]), pd.NA, pd.NaT, 1j, "1", "\x1b[2J",
]  # fmt: skip
# Of no fit that ends soon: a good value may be large.
UNBOUNDED = {"epochs", "n_restarts", "max_steps", "max_seconds", "weights", "size", "revision", "verbose", "stride"}


def draw(folder, rng, marker):
    """Choose the call."""
    call = {"seed": rng.randrange(2**32), "estimator": rng.choice(sorted(fitted()))}
    call["what"] = rng.choice(("X", "X", "y", "sample_weight", "eval_set", "parameter", "predict", "score"))
    (folder / "call.json").write_text(json.dumps(call))
    return json.dumps(call)


def make(folder):
    """A call of every estimator that works."""
    for name in fitted():
        _call(random.Random(0), name, "nothing")
    (folder / "call.json").write_text(json.dumps({"seed": 0, "estimator": "classifier", "what": "nothing"}))


def check(folder):
    """Make the call that was drawn."""
    call = json.loads((folder / "call.json").read_text())
    _call(random.Random(call["seed"]), call["estimator"], call["what"])


def _call(rng, name, what):
    """Call an estimator with something odd; where it was fitted, it predicts."""
    estimator, (X, y) = fitted()[name], _good(name)
    odd = rng.choice(list(ROWS.values()))
    if what == "predict":
        method = rng.choice(
            [
                m
                for m in ("predict", "predict_proba", "transform", "entities", "answers", "fill_mask")
                if hasattr(estimator, m)
            ]
        )
        return getattr(estimator, method)(odd(X))
    if what == "score" and hasattr(estimator, "score"):
        both = rng.random() < 0.5
        arguments = [odd(X) if both else X] + ([] if y is None else [y if both else odd(y)])
        return estimator.score(*arguments)
    values = {"weights": SAVED / "classifier", "batch_size": 4, "max_length": 16, "epochs": 1, "max_steps": 1}
    new = clone(estimator)
    given = values.keys() & new.get_params().keys() - ({"epochs"} if name == "pretrainer" else set())
    new.set_params(**{key: values[key] for key in given})
    arguments, options = [X] if y is None else [X, y], {}
    if what == "X" or (what == "y" and y is None):
        arguments[0] = odd(X)
    elif what == "y":
        arguments[1] = odd(y)
    elif what == "sample_weight" and name not in ("vectorizer", "pretrainer"):
        options["sample_weight"] = rng.choice(list(WEIGHTS.values()))
    elif what == "eval_set" and name != "vectorizer":
        options["eval_set"] = rng.choice(
            [odd(X), (odd(X), y), (X, odd(y if y is not None else X)), (X,), (X, y, y, y), [], [(X, y)], {"X": X}, X]
        )
    elif what == "parameter":
        names = sorted(set(new.get_params()) & set(RULES) - UNBOUNDED)
        new.set_params(**{rng.choice(names): rng.choice(VALUES)})
    new.fit(*arguments, **options)
    if name == "pretrainer":
        return new.fill_mask("red [MASK]", 2)
    found = new.transform(X) if name == "vectorizer" else new.predict(X)
    assert len(found) == len(X), "another number of rows"
