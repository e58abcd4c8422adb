"""Multiple choice: one right option for each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from kbert import model as models
from kbert import weights
from kbert.config import BertConfig
from kbert.data.choices import NAMES, ChoiceColumns, choice_columns, option_indices
from kbert.tasks.explaining import Explained, Part, ToExplain
from kbert.tasks.ranking import option_ranking
from kbert.tasks.row_lengths import PieceCounts, RowLengths
from kbert.tasks.row_notices import USUAL_POSITIONS, MissingTexts, warn_cut_texts
from kbert.tasks.task import Probed, Recipe, RowTask, mean_one
from kbert.tasks.texts import chunks_of, noting_cut_rows
from kbert.text import TokenSequences, WordPieceTokenizer, build_choices
from kbert.text.choices import tokenize_choices
from kbert.text.column_tokenizer import ColumnTokenizer
from kbert.text.sequences import room_for_texts, truncated_lengths
from kbert.text.tracing import TracingTokenizer
from kbert.training.attributions import Targets
from kbert.training.labelled_batches import TrainingData
from kbert.training.losses import choice_cross_entropy
from kbert.training.predict import predict_logits

if TYPE_CHECKING:
    import keras


class ChoiceExamples(NamedTuple):
    """Rows with one sequence for each option.

    Attributes
    ----------
    sequences : TokenSequences
    right : ndarray of int64, shape (n_rows,)
        The index of each row's right option.
    n_options : ndarray of int64, shape (n_rows,)
    weights : ndarray of float32, shape (n_rows,)
    """

    sequences: TokenSequences
    right: np.ndarray
    n_options: np.ndarray
    weights: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.right)

    @property
    def cut_rows(self) -> NDArray[np.int64]:
        """The numbers of the rows that were cut."""
        return self.sequences.cut_rows

    def take(self, rows: np.ndarray) -> ChoiceExamples:
        """Some rows, given by their numbers in ascending order."""
        return ChoiceExamples(self.sequences.of_rows(rows), self.right[rows], self.n_options[rows], self.weights[rows])


@dataclass(kw_only=True)
class Choice(MissingTexts, RowTask[ChoiceColumns, np.ndarray, ChoiceExamples, np.ndarray]):
    """One right option for each row, by a softmax over the scores of its options.

    The model is `BertForSequenceClassification` with one output, the score of an option. Outputs are a float64 array
    of shape (n_rows, most options), -inf past a row's own options.

    Parameters
    ----------
    max_length, classifier_pooling
        As in `kbert.BertMultipleChoice`.
    """

    max_length: int = 128
    classifier_pooling: str = "auto"

    loss = staticmethod(choice_cross_entropy)
    recipe: ClassVar[Recipe] = Recipe(
        rows_of_large_batches=inf,  # a row is a sequence for each option; section 4.4 of the paper has 16 rows for SWAG
        # docs/benchmarks/defaults.md, "Questions and options": measured with 64, 250 and 1,000 rows
        narrow_rate_factor=4.0,
        most_rows_of_narrow_rate=500,
        narrow_pooling="mean",
    )
    kind: ClassVar[str | None] = "choices"
    baseline: ClassVar[str] = "guessing"
    architecture: ClassVar[str] = "BertForMultipleChoice"
    whole_rows: ClassVar[bool] = True

    # --- X and y to examples

    def read(self, X: Any, name: str = "X") -> ChoiceColumns:
        """Contexts, questions and options."""
        return choice_columns(X, name)

    def read_labels(self, y: Any, columns: ChoiceColumns, name: str = "y") -> np.ndarray:
        """The index of each row's right option."""
        return option_indices(y, columns.n_options, name)

    def examples(
        self, columns: ChoiceColumns, labels: np.ndarray, weights: np.ndarray, tokenizer: WordPieceTokenizer
    ) -> ChoiceExamples:
        """Rows as tokens."""
        sequences = TokenSequences.concatenate(self._chunks(columns, tokenizer))
        return ChoiceExamples(sequences, labels, columns.n_options, weights)

    def _chunks(self, columns: ChoiceColumns, tokenizer: ColumnTokenizer) -> Iterator[TokenSequences]:
        """All rows as tokens, some rows at a time."""
        for rows, some in chunks_of(columns):
            yield build_choices(
                tokenizer, some.contexts, some.questions, some.options, self.max_length, first_row=rows.start
            )

    def piece_counts(self, columns: ChoiceColumns, tokenizer: WordPieceTokenizer) -> PieceCounts:
        """The word pieces of each option and its context."""

        def counted(some: ChoiceColumns, first_row: int) -> PieceCounts:
            rows, first, second = tokenize_choices(tokenizer, some.contexts, some.questions, some.options, first_row)
            return PieceCounts([first.lengths[rows], second.lengths], rows, some.n_rows)

        return PieceCounts.concatenate(counted(some, rows.start) for rows, some in chunks_of(columns))

    def lengths(self, counts: PieceCounts) -> RowLengths:
        """The lengths of the rows."""
        first, second = counts.texts
        kept, kept_second = truncated_lengths(first, second, room_for_texts(self.max_length, pairs=True))
        return RowLengths.of(counts, kept + kept_second + counts.n_specials, None, in_windows=False)

    def warn_cut(self, n_cut: int, n_rows: int, details: str) -> None:
        """Say that rows were cut."""
        remedy = "Shorten the contexts."
        if self.max_length < USUAL_POSITIONS:
            remedy += (
                " A larger max_length, of up to the model's positions (512 as a rule), reads more of them, and costs "
                "time."
            )
        warn_cut_texts(n_cut, n_rows, self.max_length, details, remedy)

    # --- Training

    def new_model(self, config: BertConfig, encoder: models.BertEncoder) -> models.BertForSequenceClassification:
        """BERT with one output for each sequence."""
        return models.BertForSequenceClassification(config, 1, encoder=encoder)

    def probe(self, config: BertConfig, encoder: models.BertEncoder, examples: ChoiceExamples, seed: int) -> Probed:
        """The head starts at random, and reads what was set, or what the width of the model told."""
        return Probed(replace(config, classifier_pooling=self.classifier_pooling))

    def training_data(self, examples: ChoiceExamples) -> TrainingData:
        """The targets and weights of `choice_cross_entropy`: the number of each option's row, from 1."""
        sequences, n_options = examples.sequences, examples.n_options
        weights = np.zeros(len(sequences), "float32")
        weights[np.cumsum(n_options) - n_options + examples.right] = examples.weights
        rows = (sequences.rows + 1).astype("int32")
        return TrainingData(sequences, rows, mean_one(weights))

    # --- Outputs

    def predict(
        self,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        columns: ChoiceColumns,
        cut: list[NDArray[np.int64]] | None = None,
    ) -> np.ndarray:
        """The scores of each row's options, float32, shape (n_rows, most options).

        The numbers of the rows that were cut are appended to ``cut``.
        """
        chunks = noting_cut_rows(self._chunks(columns, tokenizer), cut)
        scores = _scores(model, chunks, columns.n_options)
        return _by_row(scores, columns.n_options)

    def to_explain(
        self,
        columns: ChoiceColumns,
        tokenizer: WordPieceTokenizer,
        option: NDArray[np.int64] | None,
        cut: list[NDArray[np.int64]],
        first_row: int,
    ) -> ToExplain:
        """The score of one option of each row, by its index, or of all where ``option`` is None.

        The numbers of the rows that were cut are appended to ``cut``.
        """
        n_options = columns.n_options
        if option is not None and (outside := np.flatnonzero((option < 0) | (option >= n_options))).size:
            row = int(outside[0])
            raise ValueError(
                f"option is {option[row]} in row {first_row + row}, which has {n_options[row]} options: give the index "
                "of one, from 0."
            )
        trace = TracingTokenizer(tokenizer)
        (chunk,) = self._chunks(columns, trace)
        cut.append(first_row + chunk.cut_rows)
        sequences, words = trace.ids_and_words(chunk)
        first = np.cumsum(n_options) - n_options
        wanted = np.arange(len(sequences)) if option is None else first + option
        of_contexts, of_options = trace.columns
        offsets = np.concatenate([of_contexts.offsets, of_options.offsets])
        names = columns.names or [name for name in NAMES if name != "question" or columns.questions is not None]
        explained = []
        for sequence in wanted.tolist():
            row = int(sequences.rows[sequence])
            number = sequence - int(first[row])
            question = columns.questions[row] if columns.questions is not None else ""
            before = len(question) + 1 if question else 0  # "question option" is one text: see `build_choices`
            start, end = of_options.splits[sequence : sequence + 2].tolist()
            middle = start + int((offsets[start:end, 0] < before).sum())
            parts = [Part(names[0], columns.contexts[row], slice(*of_contexts.splits[row : row + 2].tolist()))]
            if columns.questions is not None:
                parts.append(Part(names[1], question, slice(start, middle)))
            parts.append(Part(names[-1], columns.options[row][number], slice(middle, end), before))
            explained.append(Explained(row, number, parts))
        n = len(wanted)
        return ToExplain(
            sequences, words, offsets, explained, np.arange(n), Targets(wanted, np.zeros(n, int), np.zeros(n, int))
        )

    def outputs(self, model: keras.Model, examples: ChoiceExamples) -> np.ndarray:
        """The scores of each row's options."""
        scores = _scores(model, [examples.sequences], examples.n_options)
        return _by_row(scores.astype("float64"), examples.n_options)

    def mean_loss(self, outputs: np.ndarray, examples: ChoiceExamples) -> float:
        """Cross-entropy in nats."""
        losses = -log_softmax(outputs, axis=1)[np.arange(examples.n_rows), examples.right]
        return float(np.average(losses, weights=examples.weights))

    def score(self, outputs: np.ndarray, examples: ChoiceExamples) -> float:
        """Accuracy."""
        return float(np.average(outputs.argmax(axis=1) == examples.right, weights=examples.weights))

    def baseline_loss(self, data: TrainingData) -> float:
        """The mean loss where all options of a row have the same score."""
        n_options = np.bincount(data.targets)[data.targets]
        return float(np.average(np.log(n_options), weights=data.weights))

    def ranking(self, outputs: np.ndarray, examples: ChoiceExamples) -> float:
        """Of the right option above the others of its row."""
        return option_ranking(outputs, examples.right)

    # --- Folders

    def save_model(self, model: models.BertForSequenceClassification, folder: Path) -> None:
        """As transformers' BertForMultipleChoice. Of a head on the mean it reads the encoder alone."""
        weights.save_multiple_choice(model, folder)

    @staticmethod
    def load_model(folder: Path, dtype: str) -> models.BertForSequenceClassification:
        """From a folder of transformers' BertForMultipleChoice."""
        return weights.load_multiple_choice(folder, dtype=dtype)


def _scores(model: keras.Model, sequences: Iterable[TokenSequences], n_options: np.ndarray) -> np.ndarray:
    """The model's output for each option, in the order of the sequences, of which each row has ``n_options``."""

    def by_option(chunk: TokenSequences) -> TokenSequences:
        # `predict_logits` takes the mean over a row's sequences: let each option be a row.
        return replace(chunk, rows=np.arange(len(chunk)))

    rows = np.repeat(np.arange(len(n_options)), n_options)
    return predict_logits(model, map(by_option, sequences), len(rows), rows)[:, 0]


def _by_row(scores: np.ndarray, n_options: np.ndarray) -> np.ndarray:
    """Scores of all options, one row's after the other's, as (n_rows, most options); -inf past a row's own options."""
    own = np.arange(n_options.max()) < n_options[:, None]
    outputs = np.full(own.shape, -np.inf, scores.dtype)
    outputs[own] = scores
    return outputs
