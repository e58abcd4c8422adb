"""What is told of a fit before it is made: the two lines with which one begins, and the whole plan."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbert.data.columns import Columns
from kbert.estimators.parameters import Parameters
from kbert.estimators.recipe import SETTLED
from kbert.model.setup import keras
from kbert.tasks.task import Task
from kbert.training.precision import DTYPES
from kbert.values.printable import percent, printable

# Classes that the text of a plan names; all are in ``classes``.
_CLASSES_SHOWN = 10
# Classes up to so many are named in the first line; of more, the most frequent and the rarest.
_CLASSES_IN_LINE = 2
# Columns of the text.
_WIDTH = 88

C = TypeVar("C", bound=Columns)


class RowFacts(NamedTuple):
    """What the labels and the texts of all rows tell, validation rows included.

    Attributes
    ----------
    classes : dict
        The share of each label, as in `FitPlan`.
    n_duplicates, n_contradictions : int
        As in `FitPlan`.
    n_rows : int

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> texts, labels = ["so good", "so bad", "so so"] * 20, ["pos", "neg", "pos"] * 20
    >>> rows = BertClassifier("minilm-l6").plan(texts, labels).run.rows
    >>> rows.n_duplicates, rows.n_contradictions
    (57, 0)
    """

    classes: dict[Any, float]
    n_duplicates: int = 0
    n_contradictions: int = 0
    n_rows: int = 0

    @classmethod
    def of(cls, task: Task[C, Any, Any, Any], columns: C, numbers: list[tuple[Any, ...]]) -> RowFacts:
        """The facts of rows, whose labels have these numbers (`Task.label_numbers`)."""
        # Their hashes, so that no text is kept: of a million rows two have the same by chance once in forty million
        # times.
        first: dict[int, tuple[Any, ...]] = {}
        contradicting, n_duplicates = set[int](), 0
        for key, of_row in zip(map(hash, columns.keys()), numbers, strict=True):
            n_duplicates += key in first
            if first.setdefault(key, of_row) != of_row:
                contradicting.add(key)
        return cls(task.label_shares(numbers), n_duplicates, len(contradicting), len(numbers))


@dataclass(frozen=True)
class RunFacts:
    """What a run goes by, with what "auto" stands for.

    Attributes
    ----------
    rows : RowFacts or None
        None in tagging, where labels are read together with the words, and would be read twice.
    n_rows, n_sequences : int
        Rows that are trained on, and the sequences that these are: rows, their windows or options.
    n_cut, n_in_windows : int
        How many of them are longer than ``max_length`` and are cut, or read in windows.
    sequence_tokens : tuple of int
        Median and 95th percentile of the tokens of a sequence.
    n_batches, n_updates : int
        Of all epochs. With ``gradient_accumulation`` an update has several batches, and the last one of an epoch may
        have fewer.
    settings : dict
        Parameters by name.
    dtype, backend : str
        What is computed with: "float32", "bfloat16" or "float16"; "torch", "jax" or "tensorflow".

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> texts, labels = ["so good", "so bad", "so so"] * 20, ["pos", "neg", "pos"] * 20
    >>> plan = BertClassifier("minilm-l6", epochs=2, batch_size=16).plan(texts, labels)
    >>> for line in plan.run.lines():
    ...     print(line)
    fit: 60 rows, ..., 8 updates
    fit: ..., epochs=2, batch_size=16, ...
    """

    rows: RowFacts | None
    n_rows: int
    n_sequences: int
    n_cut: int
    n_in_windows: int
    sequence_tokens: tuple[int, int]
    n_batches: int
    n_updates: int
    settings: dict[str, Any]
    dtype: str
    backend: str

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        rows: RowFacts | None,
        *,
        n_rows: int,
        n_sequences: int,
        n_cut: int,
        n_in_windows: int,
        lengths: NDArray[Any],
        whole_rows: bool,
        policy: str,
    ) -> RunFacts:
        """The facts of a run.

        Parameters
        ----------
        parameters : Parameters
            Settled.
        rows : RowFacts or None
        n_rows, n_sequences, n_cut, n_in_windows : int
        lengths : ndarray of int
            Tokens of the sequences, or of some of them.
        whole_rows : bool
            Whether ``batch_size`` counts rows; else sequences.
        policy : str
            Keras's dtype policy.
        """
        steps = -(-(n_rows if whole_rows else n_sequences) // parameters.batch_size)
        settings = {name: getattr(parameters, name, "auto") for name in (*SETTLED, "classifier_pooling")}
        return cls(
            rows,
            n_rows,
            n_sequences,
            n_cut,
            n_in_windows,
            median_and_95(lengths),
            steps * parameters.epochs,
            -(-steps // parameters.gradient_accumulation) * parameters.epochs,
            {name: value for name, value in settings.items() if value != "auto"},  # "auto" is the probe's choice
            next(name for name, of_name in DTYPES.items() if of_name == policy),
            keras.backend.backend(),
        )

    def lines(self) -> Iterator[str]:
        """Two lines."""
        median, long = self.sequence_tokens
        sequences = "" if self.n_sequences == self.n_rows else f" in {self.n_sequences:,} sequences"
        of_each = " of a sequence" if sequences else ""
        tokens = f"{median} tokens{of_each} in the median and {long} at 95%"
        found = [f"{self.n_rows:,} rows{sequences}", *self._of_rows(), tokens]
        for n, what in ((self.n_cut, "cut"), (self.n_in_windows, "in windows")):
            if n:
                found.append(f"{percent(n / self.n_rows)} {what}")
        yield f"fit: {', '.join(found)}, {self.n_updates:,} updates"
        values = {**self.settings, "dtype": self.dtype, "backend": self.backend}
        yield "fit: " + ", ".join(f"{name}={value!r}" for name, value in values.items())

    def _of_rows(self) -> Iterator[str]:
        """Repeated rows if there are any, and the shares of the classes, or of the largest and the smallest."""
        if self.rows is None:
            return
        classes, n_duplicates, n_contradictions, n_all = self.rows
        if n_duplicates:
            of_all = "" if n_all == self.n_rows else f" of {n_all:,}"
            yield f"{n_duplicates:,}{of_all} repeated" + (
                f" ({n_contradictions:,} contradict)" if n_contradictions else ""
            )
        shares = [f"{_label(label)} {percent(share)}" for label, share in _by_share(classes)]
        if len(shares) > _CLASSES_IN_LINE:
            yield f"{len(shares)} labels from {shares[0]} to {shares[-1]}"
        elif shares:
            yield f"labels {' and '.join(shares)}"


def _label(label: Any) -> str:
    """A label in one line, cut if it is long: labels come from files, which may be anybody's."""
    text = printable(str(label))
    return text if len(text) <= 40 else f"{text[:37]}..."


def _by_share(classes: dict[Any, float]) -> list[tuple[Any, float]]:
    """Labels and their shares, the most frequent label first."""
    return sorted(classes.items(), key=lambda item: -item[1])


def median_and_95(lengths: NDArray[Any]) -> tuple[int, int]:
    """Median and 95th percentile, as numbers that occur."""
    median, long = np.quantile(lengths, [0.5, 0.95], method="inverted_cdf").tolist()
    return int(median), int(long)


@dataclass(frozen=True)
class FitPlan:
    """What a fit on some rows would do and take: what the method ``plan`` of an estimator gives.

    It is shown as text, and as a table in a notebook. What "auto" stands for is exactly that of the fit, but for what
    only the probe tells (``settings``). Seconds and memory are estimates.

    Attributes
    ----------
    n_rows : int
        Rows of X.
    n_validation_rows : int
        How many of them would be split off as a validation set.
    n_missing : int
        Texts that are missing or empty.
    n_duplicates : int
        Rows that are the same as an earlier row: the same text, pair, question with its context, words or options.
    n_contradictions : int
        Different texts (or pairs, ...) that occur with more than one label, list of labels, number or answer.
    classes : dict
        The share of each label, from 0 to 1: of the rows, and of the words in tagging. Of question answering, "answer"
        and "no answer". Empty for regression and multiple choice.
    n_rows_tokenized : int
        Rows that lengths and counts of sequences rest on: all, or as many rows at random as have two million
        characters.
    tokens_median, tokens_95, tokens_max : int
        Tokens of a row before anything is cut, special ones included: median, 95th percentile and most. Of multiple
        choice those of the longest option with its context.
    share_longer : dict of int to float
        The share of the rows that are longer than so many tokens: ``max_length``, 64, 128, 256 and 512.
    reads_windows : bool
        Whether longer rows than ``max_length`` are read in windows; else they are cut.
    n_sequences : int
        Sequences that are trained on in an epoch: rows, their windows or options. An estimate where not all rows
        were tokenised.
    n_updates : int
        Of all epochs, by ``n_sequences``.
    settings : dict
        What "auto" stands for in the parameters, and the others of the same kind, by name. Without what the probe of
        the fit decides: ``head_start``, ``classifier_pooling``, and whether the rate of a classifier of pairs is
        twice this one.
    max_length, epochs, batch_size : int
    learning_rate : float
        The same settings as attributes.
    n_parameters : int
        Weights of the encoder.
    seconds_fit : float
        The sum of ``seconds``. Early stopping may end a fit before, and a run that fails starts again.
    seconds_predict : float
        Of predicting 1,000 rows, once compiled.
    seconds_forward : float
        Of a forward pass of a batch of the training, as it was measured.
    seconds : dict of str to float
        Of each part of the fit: "read", "models", "probe", "compile", "train" and "evaluate".
    memory_bytes : int
        What the training takes beyond what the process has: weights, gradients, moments, and what the layers keep for
        backpropagation.
    dtype, backend : str
        What the model computes with.
    rests_on : tuple of str
        What seconds and memory were taken from.
    run : RunFacts
        What ``fit`` says of itself with ``verbose=1``.

    Examples
    --------
    >>> from kbert import BertClassifier
    >>> texts, labels = ["so good", "so bad", "so so"] * 20, ["pos", "neg", "pos"] * 20
    >>> plan = BertClassifier("minilm-l6", epochs=2, batch_size=16).plan(texts, labels)
    >>> plan.n_updates, plan.tokens_max, plan.n_duplicates
    (8, 4, 57)
    >>> print(plan)
    fit: 60 rows, ...
    rows: 60; 57 repeat an earlier one, 0 texts with contradicting labels
    labels: pos 67%, neg 33%
    ...
    time: fit about ...
    memory: about ...
    """

    n_rows: int
    n_validation_rows: int
    n_missing: int
    n_duplicates: int
    n_contradictions: int
    classes: dict[Any, float]
    n_rows_tokenized: int
    tokens_median: int
    tokens_95: int
    tokens_max: int
    share_longer: dict[int, float]
    reads_windows: bool
    n_parameters: int
    seconds_predict: float
    seconds_forward: float
    seconds: dict[str, float]
    memory_bytes: int
    rests_on: tuple[str, ...]
    run: RunFacts

    @property
    def n_sequences(self) -> int:
        """Sequences of an epoch: rows, their windows or options; an estimate where not all rows were tokenised."""
        return self.run.n_sequences

    @property
    def n_updates(self) -> int:
        """Updates of all epochs, by ``n_sequences``."""
        return self.run.n_updates

    @property
    def settings(self) -> dict[str, Any]:
        """What "auto" stands for in the parameters, and the others of the same kind, by name."""
        return self.run.settings

    @property
    def max_length(self) -> int:
        """Tokens of a row, or of a window of it."""
        return int(self.settings["max_length"])

    @property
    def epochs(self) -> int:
        """How often the rows are passed over."""
        return int(self.settings["epochs"])

    @property
    def batch_size(self) -> int:
        """Sequences of a step, or rows of multiple choice."""
        return int(self.settings["batch_size"])

    @property
    def learning_rate(self) -> float:
        """The peak of the schedule."""
        return float(self.settings["learning_rate"])

    @property
    def dtype(self) -> str:
        """What the model computes in: "float32", "bfloat16" or "float16"."""
        return self.run.dtype

    @property
    def backend(self) -> str:
        """The backend: "torch", "jax" or "tensorflow"."""
        return self.run.backend

    @property
    def seconds_fit(self) -> float:
        """The sum of ``seconds``. Early stopping may end a fit before, and a run that fails starts again."""
        return sum(self.seconds.values())

    def as_dict(self) -> dict[str, Any]:
        """All attributes by name but ``run``, in plain numbers, texts, lists and dicts.

        Returns
        -------
        dict
        """
        values = asdict(self)
        del values["run"]
        names = (
            *("n_sequences", "n_updates", "settings", "max_length", "epochs", "batch_size", "learning_rate"),
            *("dtype", "backend", "seconds_fit"),
        )
        return values | {name: getattr(self, name) for name in names} | {"rests_on": list(self.rests_on)}

    def _lines(self) -> Iterator[tuple[str, str]]:
        """What the text says: about what, and what."""
        for line in self.run.lines():
            about, _, what = line.partition(": ")
            yield about, what
        rows = f"{self.n_rows:,}"
        if self.n_validation_rows:
            rows += f", of which {self.n_validation_rows:,} for validation"
        if self.n_missing:
            rows += f"; {self.n_missing:,} texts missing"
        texts = f"{self.n_contradictions:,} text{'s' if self.n_contradictions != 1 else ''}"
        yield "rows", f"{rows}; {self.n_duplicates:,} repeat an earlier one, {texts} with contradicting labels"
        if self.classes:
            shown = _by_share(self.classes)[:_CLASSES_SHOWN]
            more = f", and {len(self.classes) - len(shown)} more" if len(self.classes) > len(shown) else ""
            yield "labels", ", ".join(f"{_label(label)} {percent(share)}" for label, share in shown) + more
        longer = ", ".join(f"{length}: {percent(share)}" for length, share in self.share_longer.items())
        what = "read in windows" if self.reads_windows else "cut"
        most = f"{self.tokens_median} in the median, {self.tokens_95} at 95%, {self.tokens_max} at most"
        yield "tokens", f"{most}; longer than {longer}; beyond {self.max_length} they are {what}"
        parts = ", ".join(f"{part} {_seconds(value)}" for part, value in self.seconds.items() if value >= 0.05)
        yield "time", f"fit about {_seconds(self.seconds_fit)} ({parts}); 1,000 rows {_seconds(self.seconds_predict)}"
        yield "memory", f"about {self.memory_bytes / 1e9:.1f} GB; {self.n_parameters / 1e6:.1f} million weights"
        yield "rests on", "; ".join(self.rests_on)

    def __str__(self) -> str:
        lines = (f"{about}: {what}" for about, what in self._lines())
        return "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = "".join(
            f"<tr><th>{html.escape(about)}</th><td style='text-align:left'>{html.escape(what)}</td></tr>"
            for about, what in self._lines()
        )
        return f"<table>{rows}</table>"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:.1f} h"
