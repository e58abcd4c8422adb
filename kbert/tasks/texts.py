"""Tasks whose X is texts or pairs of texts: reading, tokenising, and one vector of outputs for each row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbert import model as models
from kbert import weights
from kbert.config import BertConfig
from kbert.data.columns import Columns, is_empty
from kbert.data.mistakes import check_y_in_X, refuse_swapped
from kbert.data.texts import TextColumns, text_columns
from kbert.errors import DivergedError
from kbert.learning_rates import factor_if_narrow
from kbert.tasks.explaining import Explained, Part, ToExplain, chosen_numbers
from kbert.tasks.linear_head import FitHead
from kbert.tasks.probe import MOST_ROWS, Fitting, best_probe, rows_to_probe, tells_little, varies_little
from kbert.tasks.row_lengths import PieceCounts, RowLengths
from kbert.tasks.row_notices import USUAL_POSITIONS, MissingTexts, warn_cut_texts
from kbert.tasks.task import Probed, RowTask, mean_one
from kbert.text import TokenSequences, WordPieceTokenizer, build_sequences, build_windows
from kbert.text.chunks import chunks
from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.sequences import room_for_texts, tokenize
from kbert.text.tracing import TracingTokenizer
from kbert.text.windows import window_counts
from kbert.training.attributions import Targets
from kbert.training.labelled_batches import TrainingData
from kbert.training.predict import predict_logits
from kbert.values.printable import shown

if TYPE_CHECKING:
    import keras

# How much text is tokenised, and when predicting computed, at a time: bounded, since a column may hold any number of
# rows of any length.
CHUNK_ROWS = 8192
CHUNK_CHARACTERS = 4_000_000

C = TypeVar("C", bound=Columns)


def chunks_of(columns: C) -> Iterator[tuple[slice, C]]:
    """Some rows at a time: which, and their columns."""
    for rows in chunks(columns.n_characters, CHUNK_ROWS, CHUNK_CHARACTERS):
        yield rows, columns.rows(rows)


def noting_cut_rows(chunks: Iterable[TokenSequences], cut: list[NDArray[np.int64]] | None) -> Iterator[TokenSequences]:
    """The same chunks; the numbers of the rows that were cut are appended to a list, if there is one."""
    first_row = 0
    for chunk in chunks:
        if cut is not None:
            cut.append(first_row + chunk.cut_rows)
        first_row += chunk.n_rows
        yield chunk


@dataclass(kw_only=True)
class TextReader(MissingTexts):
    """Texts or pairs of texts to tokens: for every task whose X is texts, and for `BertVectorizer`.

    Parameters
    ----------
    max_length, long_text, stride
        As in `kbert.BertClassifier`.
    """

    max_length: int = 128
    long_text: str = "truncate"
    stride: int | None = None

    def read(self, X: Any, name: str = "X") -> TextColumns:
        """Plain columns of texts."""
        return text_columns(X, name=name)

    def chunks(self, columns: TextColumns, tokenizer: ColumnTokenizer) -> Iterator[TokenSequences]:
        """All rows as tokens, some rows at a time."""
        for rows, some in chunks_of(columns):
            first, second = some.columns[0], (*some.columns, None)[1]
            if self.long_text == "window":
                yield build_windows(tokenizer, first, second, self.max_length, self.stride, first_row=rows.start)
            else:
                yield build_sequences(tokenizer, first, second, self.max_length, first_row=rows.start)

    def piece_counts(self, columns: TextColumns, tokenizer: WordPieceTokenizer) -> PieceCounts:
        """The word pieces of all rows."""

        def counted(some: TextColumns, first_row: int) -> PieceCounts:
            first, second = tokenize(tokenizer, some.columns[0], (*some.columns, None)[1], first_row)
            texts = [first.lengths] if second is None else [first.lengths, second.lengths]
            return PieceCounts(texts, np.arange(some.n_rows), some.n_rows)

        return PieceCounts.concatenate(counted(some, rows.start) for rows, some in chunks_of(columns))

    def lengths(self, counts: PieceCounts) -> RowLengths:
        """The lengths of the rows."""
        in_windows, stride = self.long_text == "window", self.stride
        if not in_windows and stride is not None:  # which is not used, so a large one is no error
            stride = min(stride, room_for_texts(self.max_length, len(counts.texts) > 1))
        kept, _, n_windows = window_counts(counts.texts, self.max_length, stride)
        cut = np.sum(kept, axis=0) + counts.n_specials
        return RowLengths.of(counts, cut, n_windows, in_windows)

    def cut_rows(self, columns: TextColumns, tokenizer: WordPieceTokenizer) -> NDArray[np.int64]:
        """The numbers of the rows that are cut."""
        if self.long_text == "window":
            return np.array([], np.int64)
        cut: list[NDArray[np.int64]] = []
        for _ in noting_cut_rows(self.chunks(columns, tokenizer), cut):
            pass
        return np.concatenate(cut)

    def warn_cut(self, n_cut: int, n_rows: int, details: str) -> None:
        """Say that rows were cut."""
        remedy = (
            "long_text='window' reads all of them, a larger max_length, of up to the model's positions (512 as a "
            "rule), more of them; both cost time."
            if self.max_length < USUAL_POSITIONS
            else "long_text='window' reads all of them, which costs time."
        )
        warn_cut_texts(n_cut, n_rows, self.max_length, details, remedy)

    def warn_missing(self, columns: Columns, n_missing: int, n_rows: int, details: str) -> None:
        """Say that texts are missing, and of pairs, whether a whole column is."""
        pair = columns.columns if isinstance(columns, TextColumns) and len(columns.columns) > 1 else ()
        for i, texts in enumerate(pair):
            if all(map(is_empty, texts)):
                name = shown(columns.names[i]) if columns.names else f"number {i + 1}"
                details = f"all of column {name}; {details}"
        super().warn_missing(columns, n_missing, n_rows, details)

    def predict(
        self,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        columns: TextColumns,
        cut: list[NDArray[np.int64]] | None = None,
    ) -> np.ndarray:
        """The model's outputs for each row, float32, shape (n_rows, n_outputs): the mean over the row's windows.

        Rows are tokenised while those before them are computed, so memory does not grow with their number. The numbers
        of those that were cut are appended to ``cut``.
        """
        chunks = noting_cut_rows(self.chunks(columns, tokenizer), cut)
        return predict_logits(model, chunks, columns.n_rows)


class TextExamples(NamedTuple):
    """Rows of texts as tokens, with their labels.

    Attributes
    ----------
    sequences : TokenSequences
        One for each row, or several windows of it.
    labels : ndarray, shape (n_rows, ...)
    weights : ndarray of float32, shape (n_rows,)
        Only the ratios count.
    """

    sequences: TokenSequences
    labels: np.ndarray
    weights: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def cut_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows that were cut."""
        return self.sequences.cut_rows

    def take(self, rows: np.ndarray) -> TextExamples:
        """Some rows, given by their numbers in ascending order."""
        return TextExamples(self.sequences.of_rows(rows), self.labels[rows], self.weights[rows])


@dataclass(kw_only=True)
class TextTask(TextReader, RowTask[TextColumns, np.ndarray, TextExamples, np.ndarray]):
    """A task that reads texts or pairs of texts and gives each row ``n_outputs`` numbers.

    Base of single label, several labels and regression. A subclass says what y means: see `kbert.tasks.task.Task`. Its
    model is `BertForSequenceClassification`; outputs are a float64 array of shape (n_rows, n_outputs).

    Parameters
    ----------
    classifier_pooling, head_start
        As in `kbert.BertClassifier`.
    """

    classifier_pooling: str = "auto"
    head_start: str = "auto"

    architecture: ClassVar[str] = "BertForSequenceClassification"

    # --- What a subclass says besides the methods of every task

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Outputs of the head."""

    @property
    def output_names(self) -> dict[int, str]:
        """The name of each output: the ``id2label`` of a config.json."""
        return {i: str(label) for i, label in enumerate(self.output_labels)}

    @property
    def output_labels(self) -> list[Any]:
        """What each output is called in an explanation."""
        return [f"LABEL_{i}" for i in range(self.n_outputs)]

    # Fits the head to vectors: one of `kbert.tasks.linear_head`. Without one the head always starts at random.
    fit_head: ClassVar[FitHead | None] = None
    # From so many pairs on, a head that starts at random reads [CLS], and of fewer the mean.
    rows_of_cls: ClassVar[float] = np.inf
    # On the learning rate of a small model, for such pairs.
    rate_factor_of_pairs: ClassVar[float] = 2.0
    # What the config.json says of the outputs, as transformers knows it.
    problem_type: ClassVar[str | None] = None

    @property
    def most_probed(self) -> int | None:
        """The most rows to whose vectors the head is fitted before training; None for all."""
        return MOST_ROWS

    # --- What holds for all of them

    def check(self, X: Any, y: Any, call: str) -> None:
        """Refuse an X that holds y, and X and y that are exchanged. ``call`` is what messages write: "clf.fit"."""
        refuse_swapped(X, y, call)
        check_y_in_X(X, y, call)

    def examples(
        self, columns: TextColumns, labels: np.ndarray, weights: np.ndarray, tokenizer: WordPieceTokenizer
    ) -> TextExamples:
        """Rows as tokens."""
        return TextExamples(TokenSequences.concatenate(self.chunks(columns, tokenizer)), labels, weights)

    def new_model(self, config: BertConfig, encoder: models.BertEncoder) -> models.BertForSequenceClassification:
        """BERT with a linear layer on one vector of each text."""
        return models.BertForSequenceClassification(config, self.n_outputs, encoder=encoder)

    def probe(self, config: BertConfig, encoder: models.BertEncoder, examples: TextExamples, seed: int) -> Probed:
        """Fit the head to the vectors of some rows; of two poolings the one that is better in a cross-validation."""
        pooling = self.classifier_pooling
        at_random = Probed(replace(config, classifier_pooling="cls" if pooling == "auto" else pooling))
        if self.head_start == "random" or self.fit_head is None:
            return at_random
        some = examples.take(rows_to_probe(examples.weights, seed, most=self.most_probed))
        try:
            vectors = self.outputs(models.BertForTextVectors(config, encoder=encoder), some)
        except DivergedError:  # what overflows in float16 may do so in training too, which tells of it
            return at_random
        by_pooling = dict(zip(("mean", "cls"), np.split(vectors, 2, axis=1), strict=True))
        is_flat = varies_little(by_pooling["cls"], beside=by_pooling["mean"])
        if is_flat and pooling == "cls" and self.head_start == "auto":
            return at_random
        if pooling != "auto" or is_flat:
            kept = "mean" if pooling == "auto" else pooling
            by_pooling = {kept: by_pooling[kept]}
        data, first_window = self.training_data(some), np.unique(some.sequences.rows, return_index=True)[1]
        fitting = Fitting(
            data.targets[first_window],
            mean_one(np.bincount(some.sequences.rows, data.weights)),  # a row counts once, in however many windows
            self.n_outputs,
            self.fit_head,
            lambda outputs, rows: self.mean_loss(outputs, some.take(rows)),
        )
        probe = best_probe(by_pooling, fitting)
        if self.head_start == "auto" and some.sequences.are_pairs and tells_little(probe, fitting):
            if pooling == "auto":
                pooling = "cls" if examples.n_rows >= self.rows_of_cls else "mean"
            config = replace(config, classifier_pooling=pooling)
            return Probed(config, None, probe.loss, factor_if_narrow(config, self.rate_factor_of_pairs))
        return Probed(replace(config, classifier_pooling=probe.pooling), probe.head, probe.loss)

    def n_probed(self, numbers: list[tuple[Any, ...]]) -> int:
        """All rows, up to a number."""
        if self.head_start == "random" or self.fit_head is None:
            return 0
        return len(numbers) if self.most_probed is None else min(len(numbers), self.most_probed)

    def training_data(self, examples: TextExamples) -> TrainingData:
        """Every window of a row with the row's label."""
        return self._training_data(examples, examples.labels, examples.weights)

    @staticmethod
    def _training_data(examples: TextExamples, targets: np.ndarray, weights: np.ndarray) -> TrainingData:
        """Targets and weights of the rows, given to their windows."""
        row = examples.sequences.rows
        # A row counts as much in several windows as it would in one.
        return TrainingData(examples.sequences, targets[row], mean_one((weights / np.bincount(row))[row]))

    def outputs(self, model: keras.Model, examples: TextExamples) -> np.ndarray:
        """The model's outputs for each row, the mean over its windows."""
        return predict_logits(model, [examples.sequences], examples.n_rows).astype("float64")

    def chosen_outputs(self, labels: Any, n_rows: int) -> NDArray[np.int64]:
        """The outputs to be explained, shape (n_rows, n): those called ``labels``, or all where that is None."""
        if labels is None:
            return np.tile(np.arange(self.n_outputs), (n_rows, 1))
        return chosen_numbers(labels, self.output_labels, n_rows, "labels")[:, None]

    def to_explain(
        self,
        columns: TextColumns,
        tokenizer: WordPieceTokenizer,
        outputs: NDArray[np.int64],
        cut: list[NDArray[np.int64]],
        first_row: int,
    ) -> ToExplain:
        """Outputs of some rows, each the mean over the row's windows, and the words of these.

        Parameters
        ----------
        columns : TextColumns
            Few enough for one chunk.
        tokenizer : WordPieceTokenizer
        outputs : ndarray of int64, shape (n_rows, n)
            The numbers of the n outputs of each row.
        cut : list
            The numbers of the rows that were cut are appended.
        first_row : int
            The number of the first of these rows in X.
        """
        trace = TracingTokenizer(tokenizer)
        (chunk,) = self.chunks(columns, trace)
        cut.append(first_row + chunk.cut_rows)
        sequences, words = trace.ids_and_words(chunk)
        names: list[Any] = columns.names or list(range(len(columns.columns)))
        labels, n = self.output_labels, outputs.shape[1]
        explained = []
        for row in range(columns.n_rows):
            parts = [
                Part(name, texts[row], slice(*traced.splits[row : row + 2].tolist()))
                for name, texts, traced in zip(names, columns.columns, trace.columns, strict=True)
            ]
            explained += [Explained(row, labels[output], parts) for output in outputs[row].tolist()]
        n_targets = n * len(sequences)
        return ToExplain(
            sequences,
            words,
            np.concatenate([traced.offsets for traced in trace.columns]),
            explained,
            (sequences.rows[:, None] * n + np.arange(n)).ravel(),
            Targets(
                np.repeat(np.arange(len(sequences)), n), outputs[sequences.rows].ravel(), np.zeros(n_targets, np.int64)
            ),
        )

    def save_model(self, model: models.BertForSequenceClassification, folder: Path) -> None:
        """As transformers' BertForSequenceClassification."""
        weights.save_sequence_classifier(model, folder, self.output_names, self.problem_type)

    @staticmethod
    def load_model(folder: Path, dtype: str) -> models.BertForSequenceClassification:
        """From a folder of transformers' BertForSequenceClassification."""
        return weights.load_sequence_classifier(folder, dtype=dtype)
