"""What the shared fit asks of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from kbert.config import BertConfig
from kbert.data.columns import Columns
from kbert.tasks.linear_head import LinearHead
from kbert.tasks.row_lengths import PieceCounts, RowLengths
from kbert.text import WordPieceTokenizer
from kbert.text.sequences import Sequences
from kbert.training.labelled_batches import TrainingData
from kbert.training.step import Loss
from kbert.values.saved import SavedValues

if TYPE_CHECKING:
    import keras

    from kbert.model import BertEncoder


class Examples(Protocol):
    """Rows as tokens with their labels: to train on, or to evaluate on."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def weights(self) -> np.ndarray:
        """Weight of each row, float32, shape (n_rows,)."""
        ...

    @property
    def cut_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows that lost tokens because they were too long, ascending."""
        ...

    @property
    def sequences(self) -> Sequences:
        """The rows as tokens: one sequence or several for each row."""
        ...

    def take(self, rows: np.ndarray) -> Self:
        """Some rows, given by their numbers in ascending order."""
        ...


# Training rows that tell what a model has learned.
_ROWS_LOOKED_AT = 256


def some_rows(examples: Examples) -> NDArray[np.int64]:
    """The numbers of rows from all over, few enough to predict quickly, without those of weight 0."""
    rows = np.flatnonzero(examples.weights > 0)
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), _ROWS_LOOKED_AT)).astype(int)]


class Recipe(NamedTuple):
    """What "auto" stands for in a task's parameters. docs/benchmarks/defaults.md has the measurements.

    Attributes
    ----------
    updates : int
        The least number of updates: small data sets are passed over as often as that takes.
    epochs : int
        The number of passes over larger ones.
    most_updates : int
        Data sets for which that takes more updates are passed over less often, but once at least. The paper's largest
        fine-tuning, three passes over the 392,702 pairs of MNLI in batches of 32, has 36,816.
    rows_of_large_batches : float
        From so many rows on, a batch has 32 of them, as in the paper; with fewer, 16.
    least_batch : int
        A batch has so many rows at least.
    rate_factor : float
        On the learning rate of the size.
    narrow_rate_factor : float
        The same, for models narrower than base alone.
    most_rows_of_narrow_rate : float
        With more rows it is 1: they make enough updates at the rate of the size.
    narrow_pooling : {"mean", "cls"}, optional
        ``classifier_pooling`` for models narrower than base, where the others read [CLS]. None: the probe tells.
    """

    updates: int = 80
    epochs: int = 3
    most_updates: int = 36_816
    rows_of_large_batches: float = 1000
    least_batch: int = 16
    rate_factor: float = 1.0
    narrow_rate_factor: float = 1.0
    most_rows_of_narrow_rate: float = inf
    narrow_pooling: str | None = None


class Contrast(NamedTuple):
    """How ``few_labels`` tunes an encoder.

    Attributes
    ----------
    loss : callable
        The loss of the vectors of a batch.
    recipe : Recipe
    """

    loss: Loss
    recipe: Recipe


class Probed(NamedTuple):
    """What a head reads, and where it starts.

    Attributes
    ----------
    config : BertConfig
        Of the model to train: its ``classifier_pooling`` is what the head reads.
    head : LinearHead or None
        The weights that the head starts with; None for random ones.
    loss : float or None
        The loss of such a head in a cross-validation; None where it is not known.
    further_rate_factor : float
        On the learning rate that "auto" stands for by the recipe.
    """

    config: BertConfig
    head: LinearHead | None = None
    loss: float | None = None
    further_rate_factor: float = 1.0


C = TypeVar("C", bound=Columns)
L = TypeVar("L")
E = TypeVar("E", bound=Examples)
O = TypeVar("O")  # noqa: E741


class Task(ABC, Generic[C, L, E, O]):
    """What X and y mean: one for each kind of task, generic in its columns, labels, examples and outputs.

    A task is a dataclass. Its fields are the estimator's parameters that it reads, under the same names, and what it
    learns in ``fit``, under names that end in an underscore, empty before; the estimator gets these as its fitted
    attributes. `task_of` makes the task of an estimator. What is not abstract here is what most tasks need: nothing is
    learned besides the weights, and nothing is changed after training.

    Attributes
    ----------
    loss : callable
        The loss of a batch: one of `kbert.training.losses`.
    baseline : str
        What the constant predictor goes by, for the warning about a failed run: "how often each label occurs".
    architecture : str
        The class of transformers that opens what `save_model` writes.
    recipe : Recipe
        What "auto" stands for.
    kind : str or None
        What a report compares with y, as `kbert.reports.given.Given` has it: "labels", say. None if it cannot.
    score_name : str or None
        What `score` is, where it is not the estimator's own score.
    whole_rows : bool
        Whether all sequences of a row have to be in one step, as the options of a question do. ``batch_size`` then
        counts rows.
    splits_words : bool
        Whether labels are of words, so that they can be told only once a tokenizer has split these.
    """

    loss: Loss
    baseline: ClassVar[str]
    architecture: ClassVar[str]
    recipe: ClassVar[Recipe] = Recipe()
    kind: ClassVar[str | None] = None
    score_name: ClassVar[str | None] = None
    whole_rows: ClassVar[bool] = False
    splits_words: ClassVar[bool] = False

    @property
    def contrast(self) -> Contrast | None:
        """How ``few_labels`` tunes the encoder; None without it, and for tasks that do not have it."""
        return None

    # --- X and y to examples

    def check(self, X: Any, y: Any, call: str) -> None:
        """Refuse an X and a y of ``fit`` that cannot be meant. ``call`` is what messages write: "clf.fit"."""

    @abstractmethod
    def read(self, X: Any, name: str = "X") -> C:
        """X as plain columns. ``name`` is what errors call X."""

    @abstractmethod
    def read_labels(self, y: Any, columns: C, name: str = "y") -> L:
        """y as plain labels. A new task learns from the first y what labels there are; others are refused."""

    def learn(self, labels: L, weights: np.ndarray) -> None:
        """Learn from the labels and weights of the rows of fit; refuse what nothing can be learned from."""

    def row_weights(self, labels: L, weights: np.ndarray) -> np.ndarray:
        """The weights of the rows of fit, once `learn` was called: 0 for those that teach nothing."""
        return weights

    @abstractmethod
    def examples(self, columns: C, labels: L, weights: np.ndarray, tokenizer: WordPieceTokenizer) -> E:
        """Rows as tokens."""

    @abstractmethod
    def piece_counts(self, columns: C, tokenizer: WordPieceTokenizer) -> PieceCounts:
        """The word pieces of all rows, before anything is cut."""

    @abstractmethod
    def lengths(self, counts: PieceCounts) -> RowLengths:
        """The lengths of the rows, with the present ``max_length``, ``long_text`` and ``stride``."""

    @abstractmethod
    def warn_cut(self, n_cut: int, n_rows: int, details: str) -> None:
        """Say that rows were cut, and what to do. ``details``: their share, and which they are."""

    @abstractmethod
    def warn_missing(self, columns: C, n_missing: int, n_rows: int, details: str) -> None:
        """Say that texts are missing."""

    def require_learnable(self, labels: L, weights: np.ndarray) -> None:
        """Refuse rows of which no first fit could learn anything. A warm start may have them."""

    def strata(self, labels: L, weights: np.ndarray) -> np.ndarray | None:
        """The stratum of each row, for a stratified split; None for a random one."""
        return None

    def needs_validation(self, labels: L, weights: np.ndarray) -> str | None:
        """What asks for a validation set besides ``early_stopping``: a parameter, or None."""
        return None

    # --- What a plan tells of the rows

    def label_numbers(self, columns: C, labels: L, tokenizer: WordPieceTokenizer) -> list[tuple[Any, ...]]:
        """The labels of each row, equal for two rows if these are labelled the same: numbers of classes, if any."""
        array = np.asarray(labels)
        return list(map(tuple, array.reshape(len(array), -1).tolist()))

    def label_shares(self, numbers: list[tuple[Any, ...]]) -> dict[Any, float]:
        """How often each label occurs, from 0 to 1, by `label_numbers`; empty where y has no classes."""
        return {}

    def n_probed(self, numbers: list[tuple[Any, ...]]) -> int:
        """How many rows `probe` looks at."""
        return 0

    # --- Training

    @abstractmethod
    def new_model(self, config: BertConfig, encoder: BertEncoder) -> keras.Model:
        """The task's head, on an encoder of this architecture."""

    def probe(self, config: BertConfig, encoder: BertEncoder, examples: E, seed: int) -> Probed:
        """Choose what the head reads, and fit it to the encoder as it is, before all weights are trained."""
        return Probed(config)

    def before_training(self, model: keras.Model) -> None:
        """Undo what `after_training` did to the weights of the model that a warm start begins with."""

    def warn_unlearnable(self, examples: E) -> None:
        """Warn of rows to train on whose labels the model cannot learn."""

    @abstractmethod
    def training_data(self, examples: E) -> TrainingData:
        """Examples as `kbert.training.loop.train` takes them. The mean of the weights that are not 0 is 1.

        The head's fit (`TextTask.fit_head`) and the constant predictor's loss (`baseline_loss`) read the targets too.
        """

    def after_training(self, model: keras.Model, examples: E, validation: E | None) -> None:
        """Learn what the trained model's outputs tell: temperature, thresholds.

        Those on the validation set, or on rows that were trained on where there is none.
        """

    # --- Outputs of the model

    @abstractmethod
    def outputs(self, model: keras.Model, examples: E) -> O:
        """The model's present outputs for the examples, in float64."""

    @abstractmethod
    def mean_loss(self, outputs: O, examples: E) -> float:
        """The weighted mean of the loss over the examples."""

    @abstractmethod
    def score(self, outputs: O, examples: E) -> float:
        """What early stopping maximises: the estimator's own score, where the labels allow it."""

    @abstractmethod
    def baseline_loss(self, data: TrainingData) -> float:
        """The mean loss of the constant predictor: of the best outputs that are the same for all rows."""

    def training_loss(self, outputs: O, examples: E) -> float:
        """What training minimises: `mean_loss`, with the weights of classes, and of all targets of a row."""
        return self.mean_loss(outputs, examples)

    @property
    def n_answers(self) -> int:
        """How many answers, such as a yes or no for each label, the loss of a row is the mean of."""
        return 1

    @abstractmethod
    def ranking(self, outputs: O, examples: E) -> float | None:
        """How well the outputs rank what is true above what is not: 1 is perfect, 0 is chance (`kbert.tasks.ranking`).

        None where a loss as high as `baseline_loss` alone tells that nothing was learned.
        """

    # --- Folders

    @abstractmethod
    def save_model(self, model: keras.Model, folder: Path) -> None:
        """Write a folder that transformers opens, with the names of the outputs."""

    @staticmethod
    @abstractmethod
    def load_model(folder: Path, dtype: str) -> keras.Model:
        """The model that `save_model` wrote."""

    def learned_to_json(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        return {}

    def learn_from_json(self, values: SavedValues, model: keras.Model, folder: Path) -> None:
        """Take back what `learned_to_json` gave; refuse what does not fit the model's head."""

    def learn_from_config(self, values: dict[str, Any], model: keras.Model, folder: Path) -> None:
        """Learn it from the keys of the config.json of a folder that transformers saved."""


class RowTask(Task[C, L, E, O]):
    """A task whose answer to a row comes from one vector of outputs."""

    @abstractmethod
    def predict(
        self,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        columns: C,
        cut: list[NDArray[np.int64]] | None = None,
    ) -> np.ndarray:
        """The model's outputs for each row, float32, shape (n_rows, n_outputs).

        The numbers of the rows that were cut are appended to ``cut``.
        """


T = TypeVar("T")


def task_of(task_type: type[T], values: Mapping[str, Any]) -> T:
    """Make a task, or a reader such as `TextReader`, from an estimator's values.

    Parameters
    ----------
    task_type : type
        A dataclass.
    values : mapping
        Parameters by name and, of a fitted estimator, its attributes: ``vars(estimator)``. Values that
        the task has no field for are ignored.
    """
    names = [field.name for field in fields(task_type) if field.init]  # type: ignore[arg-type]
    return task_type(**{name: plain(values[name]) for name in names if name in values})


def plain(value: Any) -> Any:
    """A parameter's value, a NumPy scalar as the Python number that it stands for."""
    return value.item() if isinstance(value, np.generic) else value


def shares_of_classes(classes: np.ndarray, numbers: list[tuple[int, ...]], n: int) -> dict[Any, float]:
    """How often each class occurs among n things that may have it, by the numbers of classes of each row."""
    counts = np.bincount(np.fromiter(chain.from_iterable(numbers), np.int64), minlength=len(classes))
    return dict(zip(classes.tolist(), (counts / n).tolist(), strict=True))


def entropy_of_classes(data: TrainingData) -> float:
    """The loss of who knows only how often each class occurs, in nats; targets are numbers of classes."""
    shares = np.bincount(data.targets, data.weights) / data.weights.sum()
    return float(-xlogy(shares, shares).sum())


def learned_attributes(task: Task[C, L, E, O]) -> dict[str, Any]:
    """What a task has learned, by the names of the estimator's fitted attributes."""
    return {
        field.name: getattr(task, field.name)
        for field in fields(task)  # type: ignore[arg-type]
        if field.name.endswith("_")
    }


def nothing_learned() -> np.ndarray:
    """An empty array: the value of a learned array before ``fit``."""
    return np.array([])


def mean_one(weights: np.ndarray) -> np.ndarray:
    """Scale weights so that the mean of those that are not 0 is 1; float32."""
    weights = weights.astype("float64")  # in which the sum of large ones is finite
    mean: np.ndarray = weights / weights[weights > 0].mean()
    return mean.astype("float32")
