"""A tag for each word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from kbert import model as models
from kbert import weights
from kbert.config import BertConfig
from kbert.data.mistakes import warn_of_other_schemes
from kbert.data.tags import WidenedSpans, WordColumn, tag_lists, words_in_texts
from kbert.errors import DivergedError, LabelsWarning
from kbert.metrics import bio_spans, entity_f1, is_bio, is_bio_tag
from kbert.tasks.bio import is_legal, legal_tags
from kbert.tasks.explaining import Explained, Part, ToExplain
from kbert.tasks.linear_head import softmax_head
from kbert.tasks.probe import MOST_WORDS, rows_to_probe
from kbert.tasks.ranking import class_ranking
from kbert.tasks.saved_labels import decode_labels, encode_labels, labels_of_config
from kbert.tasks.task import (
    Probed,
    Recipe,
    Task,
    entropy_of_classes,
    mean_one,
    nothing_learned,
    shares_of_classes,
)
from kbert.tasks.words import WordReader
from kbert.text import WordPieceTokenizer
from kbert.text.sequences import TokenSequences
from kbert.text.words import WordSequences, build_word_windows
from kbert.training.attributions import Targets
from kbert.training.labelled_batches import TrainingData
from kbert.training.losses import softmax_cross_entropy
from kbert.training.predict import predict_words
from kbert.values.printable import shown
from kbert.values.saved import SavedValues, one_of
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras


# The share of the rows of fit that mark an entity, up to which rows with an I- that continues none are taken for slips.
# In IOB1 nearly all rows with an entity have such an I-.
_MOST_ILLEGAL = 0.1


class UnreadTags(NamedTuple):
    """y as it came, and what errors call it: the tags of a text can be read once its words are split."""

    y: Any
    name: str


class TaggingExamples(NamedTuple):
    """Rows of words as tokens, with the words' tags.

    Attributes
    ----------
    words : WordSequences
    labels : ndarray of int32, shape (n_words,)
        The number of each word's tag.
    weights : ndarray of float32, shape (n_rows,)
        0 for rows without words, which could not be scored.
    """

    words: WordSequences
    labels: np.ndarray
    weights: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.words.n_rows

    @property
    def sequences(self) -> TokenSequences:
        """The tokens of the rows."""
        return self.words.sequences

    @property
    def cut_rows(self) -> NDArray[np.int64]:
        """None: rows are read whole, in windows."""
        return np.array([], np.int64)

    @property
    def word_weights(self) -> np.ndarray:
        """Weight of each word: that of its row."""
        return np.repeat(self.weights, np.diff(self.words.splits))

    def take(self, rows: np.ndarray) -> TaggingExamples:
        """Some rows, given by their numbers in ascending order."""
        row_of_word = np.repeat(np.arange(self.n_rows), np.diff(self.words.splits))
        return TaggingExamples(self.words.of_rows(rows), self.labels[np.isin(row_of_word, rows)], self.weights[rows])


@dataclass(kw_only=True)
class Tagging(WordReader, Task[WordColumn, UnreadTags, TaggingExamples, np.ndarray]):
    """A tag for each word, by a softmax over the tags at the word's first piece.

    The model is `BertForTokenClassification`. Outputs are a float64 array of shape (n_words, n_classes).

    Parameters
    ----------
    max_length, stride, head_start, decoding
        As in `kbert.BertTagger`.
    classes_, decoding_
        What is learned: the tags, sorted, and what ``decoding="auto"`` stands for, "" before.
    """

    head_start: str = "probe"
    decoding: str = "auto"
    classes_: np.ndarray = field(default_factory=nothing_learned)
    decoding_: str = ""

    loss = staticmethod(softmax_cross_entropy)
    recipe: ClassVar[Recipe] = Recipe(updates=200, narrow_rate_factor=4.0)  # defaults.md, "Tags"
    kind: ClassVar[str | None] = "tags"
    baseline: ClassVar[str] = "how often each label occurs"
    architecture: ClassVar[str] = "BertForTokenClassification"
    splits_words: ClassVar[bool] = True

    # --- X and y to examples

    def read_labels(self, y: Any, columns: WordColumn, name: str = "y") -> UnreadTags:
        """y as it came, once X was found to have words."""
        if columns.is_split:
            _require_words(columns.n_rows, any(map(len, columns.words)), name)
        return UnreadTags(y, name)

    def learn(self, labels: UnreadTags, weights: np.ndarray) -> None:
        """Nothing yet: these tags, once they are read, tell how tags are to be found."""
        self.decoding_ = ""

    def examples(
        self, columns: WordColumn, labels: UnreadTags, weights: np.ndarray, tokenizer: WordPieceTokenizer
    ) -> TaggingExamples:
        """Rows as tokens and tags as numbers. A new task learns the tags; others are refused later."""
        split, numbers = self._tag_numbers(columns, labels, tokenizer)
        # The words are split already.
        chunks = replace(split, raw_texts=None).chunks(tokenizer.split_words)
        words = WordSequences.concatenate([self.windows(chunk, tokenizer) for chunk in chunks])
        _require_words(words.n_rows, words.n_words > 0, labels.name)
        of_words = np.fromiter(chain.from_iterable(numbers), np.int32, words.n_words)
        of_rows = np.where(np.diff(words.splits) > 0, weights, 0).astype("float32")
        if not of_rows.any():
            raise ValueError("sample_weight is 0 for all rows that have a word: nothing could be learned.")
        return TaggingExamples(words, of_words, of_rows)

    def label_numbers(
        self, columns: WordColumn, labels: UnreadTags, tokenizer: WordPieceTokenizer
    ) -> list[tuple[Any, ...]]:
        """The numbers of the tags of a row's words."""
        split, numbers = self._tag_numbers(columns, labels, tokenizer)
        _require_words(split.n_rows, any(numbers), labels.name)
        return numbers

    def label_shares(self, numbers: list[tuple[Any, ...]]) -> dict[Any, float]:
        """Of the words."""
        return shares_of_classes(self.classes_, numbers, sum(map(len, numbers)))

    def _tag_numbers(
        self, columns: WordColumn, labels: UnreadTags, tokenizer: WordPieceTokenizer
    ) -> tuple[WordColumn, list[tuple[int, ...]]]:
        """The rows split into words, and the numbers of each row's tags. A new task learns what tags there are."""
        split = columns.split(tokenizer.split_words)
        widened = WidenedSpans()
        tags = tag_lists(labels.y, split, labels.name, widened, bio=not len(self.classes_) or self.is_bio)
        widened.warn(labels.name)
        known = {tag for row in tags for tag in row}
        if not len(self.classes_):
            words = {word for row in split.words for word in row}
            mark = min((word for word in words if word.startswith(("B-", "I-"))), default=None)
            if mark and all(map(is_bio_tag, words)) and not all(map(is_bio_tag, known)):
                raise ValueError(
                    f"X and {labels.name} are exchanged: X holds tags ({shown(mark)}), and {labels.name} the words. "
                    f"Words go first: tagger.fit({labels.name}, X)."
                )
            if len(known) < 2:
                raise ValueError(
                    f"BertTagger needs at least two tags to tell apart, and y holds {sorted(known)}. Is it the right "
                    "column?"
                )
            self.classes_ = np.array(sorted(known), dtype=object)
            warn_of_other_schemes(tags, labels.name)
        number = {tag: i for i, tag in enumerate(self.classes_.tolist())}
        unknown = sorted(known - set(number))
        if unknown:
            raise ValueError(f"{labels.name} holds tags that y of fit did not: {unknown[:5]}.")
        numbers = [tuple(map(number.__getitem__, row)) for row in tags]
        if not self.decoding_:
            self._learn_decoding(numbers, labels.name)
        return split, numbers

    def _learn_decoding(self, numbers: list[tuple[int, ...]], name: str) -> None:
        """What "auto" stands for: "bio" for BIO tags, where each I- continues an entity in nearly all rows with one."""
        is_looked_at = self.is_bio or self.decoding == "bio"
        n_illegal = sum(not is_legal(row, self.classes_) for row in numbers) if is_looked_at else 0
        n_marked = sum(any(self.classes_[list(row)] != "O") for row in numbers) if n_illegal else 0
        self.decoding_ = "bio" if self.is_bio and n_illegal <= _MOST_ILLEGAL * n_marked else "argmax"
        if self.decoding == "bio" and n_illegal:
            warn_user(
                f"{name}: {n_illegal} of {len(numbers)} rows have an I- tag that continues no entity, and "
                'decoding="bio" never gives such tags. If y is IOB1, give kbert.datasets.iob1_to_bio(y); else set '
                'decoding="argmax".',
                LabelsWarning,
            )

    # --- Training

    def new_model(self, config: BertConfig, encoder: models.BertEncoder) -> models.BertForTokenClassification:
        """BERT with a linear layer on each token's vector."""
        return models.BertForTokenClassification(config, len(self.classes_), encoder=encoder)

    def probe(self, config: BertConfig, encoder: models.BertEncoder, examples: TaggingExamples, seed: int) -> Probed:
        """Fit the head to the vectors of some rows' words."""
        if self.head_start == "random":
            return Probed(config)
        some = examples.take(rows_to_probe(examples.weights, seed, np.diff(examples.words.splits)))
        try:
            vectors = self.outputs(models.BertForFeatures(config, pooling=None, encoder=encoder), some)
        except DivergedError:
            return Probed(config)
        return Probed(config, softmax_head(vectors, some.labels, mean_one(some.word_weights), len(self.classes_)))

    def n_probed(self, numbers: list[tuple[Any, ...]]) -> int:
        """Rows with words, up to a number of words."""
        sizes = np.fromiter(filter(None, map(len, numbers)), np.int64)
        return 0 if self.head_start == "random" else -(-len(sizes) * min(MOST_WORDS, sizes.sum()) // sizes.sum())

    def training_data(self, examples: TaggingExamples) -> TrainingData:
        """The tag of each word at its first piece."""
        word = examples.words.words  # of each token, -1 where no word has its first piece
        targets = np.where(word >= 0, examples.labels[word], 0).astype("int32")
        weights = np.where(word >= 0, examples.word_weights[word], 0)
        return TrainingData(examples.words.sequences, targets, mean_one(weights), level="token")

    # --- Outputs

    def predict(
        self, model: keras.Model, tokenizer: WordPieceTokenizer, columns: WordColumn
    ) -> Iterator[tuple[WordColumn, list[np.ndarray]]]:
        """As `WordReader.predict`, in float64."""
        for chunk, rows in super().predict(model, tokenizer, columns):
            yield chunk, [outputs.astype("float64") for outputs in rows]

    def to_explain(
        self,
        columns: WordColumn,
        model: keras.Model,
        tokenizer: WordPieceTokenizer,
        word: NDArray[np.int64],
        tag: NDArray[np.int64] | None,
        first_row: int,
    ) -> ToExplain:
        """The output for one word of each row, in the window that gives this word most context.

        Parameters
        ----------
        columns : WordColumn
        model : keras.Model
        tokenizer : WordPieceTokenizer
        word : ndarray of int64, shape (n_rows,)
            The number of the word in its row.
        tag : ndarray of int64, shape (n_rows,), optional
            The number of the tag; None is the one that the model gives the word.
        first_row : int
            What errors call the first of these rows.
        """
        split = columns.split(tokenizer.split_words)
        windows, words = build_word_windows(tokenizer, split.words, self.max_length, self.stride)
        n_words = np.diff(windows.splits)
        if (outside := np.flatnonzero((word < 0) | (word >= n_words))).size:
            row = int(outside[0])
            raise ValueError(
                f"word is {word[row]} in row {first_row + row}, which has {n_words[row]} words: give the number of "
                "one, counted from 0."
            )
        if tag is None:
            outputs = predict_words(model, windows, first_row).astype("float64")
            of_rows = np.split(outputs, windows.splits[1:-1])
            tag = np.array([self.tag_numbers(row)[i] for row, i in zip(of_rows, word, strict=True)], np.int64)
        stands_for_word = np.flatnonzero(windows.words >= 0)
        token = np.empty(windows.n_words, np.int64)
        token[windows.words[stands_for_word]] = stands_for_word
        token = token[windows.splits[:-1] + word]
        sequence = np.searchsorted(windows.sequences.splits, token, "right") - 1
        explained, offsets = [], []
        for row, (_, text, of_words) in enumerate(words_in_texts(split)):
            part = Part("", text, slice(*windows.splits[row : row + 2].tolist()))
            explained.append(Explained(row, self.classes_[tag[row]], [part]))
            offsets += of_words
        targets = Targets(sequence, tag, token - windows.sequences.splits[sequence])
        return ToExplain(
            windows.sequences, words, np.array(offsets, np.int64), explained, np.arange(len(explained)), targets
        )

    def outputs(self, model: keras.Model, examples: TaggingExamples) -> np.ndarray:
        """The model's output for each word."""
        return predict_words(model, examples.words).astype("float64")

    def mean_loss(self, outputs: np.ndarray, examples: TaggingExamples) -> float:
        """Cross-entropy of the words in nats."""
        losses = -log_softmax(outputs, axis=1)[np.arange(len(outputs)), examples.labels]
        return float(np.average(losses, weights=examples.word_weights))

    def score(self, outputs: np.ndarray, examples: TaggingExamples) -> float:
        """F1 of the entities where tags are BIO tags, else the share of words whose tag is right."""
        borders = examples.words.splits[1:-1]
        numbers = np.concatenate([self.tag_numbers(row) for row in np.split(outputs, borders)])
        if not self.is_bio:
            return float(np.average(numbers == examples.labels, weights=examples.word_weights))
        truth, found = (
            [tags.tolist() for tags in np.split(self.classes_[of_words], borders)]
            for of_words in (examples.labels, numbers)
        )
        return entity_f1(truth, found, sample_weight=examples.weights)

    def baseline_loss(self, data: TrainingData) -> float:
        """The entropy of the tags."""
        return entropy_of_classes(data)

    def ranking(self, outputs: np.ndarray, examples: TaggingExamples) -> float:
        """Of each tag against the rest."""
        return class_ranking(log_softmax(outputs, axis=1), examples.labels)

    @property
    def is_bio(self) -> bool:
        """Whether the tags are BIO tags: O, B-... and I-..."""
        return is_bio([self.classes_.tolist()])

    def tag_numbers(self, outputs: np.ndarray) -> np.ndarray:
        """The number of each word's tag in one row, from the row's outputs: as ``decoding`` says."""
        if (self.decoding_ if self.decoding == "auto" else self.decoding) == "bio":
            return legal_tags(outputs, self.classes_)
        return outputs.argmax(axis=1)

    def tags(self, outputs: np.ndarray) -> list[str]:
        """The tags of one row's words."""
        return self.classes_[self.tag_numbers(outputs)].tolist()

    def spans(self, tags: list[str]) -> list[tuple[int, int, str]]:
        """Spans of words, (first, end, label): entities of BIO tags; of other tags one for each word."""
        return bio_spans(tags) if self.is_bio else [(i, i + 1, tag) for i, tag in enumerate(tags)]

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Probability of each tag for each word by itself."""
        return softmax(outputs, axis=1)

    # --- Folders

    def save_model(self, model: models.BertForTokenClassification, folder: Path) -> None:
        """As transformers' BertForTokenClassification."""
        weights.save_token_classifier(model, folder, {i: str(tag) for i, tag in enumerate(self.classes_)})

    @staticmethod
    def load_model(folder: Path, dtype: str) -> models.BertForTokenClassification:
        """From a folder of transformers' BertForTokenClassification."""
        return weights.load_token_classifier(folder, dtype=dtype)

    def learned_to_json(self) -> dict[str, Any]:
        """The tags, and how they are found."""
        return {"classes": encode_labels(self.classes_), "decoding": self.decoding_}

    def learn_from_json(self, values: SavedValues, model: keras.Model, folder: Path) -> None:
        """As many tags as the head has outputs."""
        self.classes_ = decode_labels(values.inner("classes"), model.num_labels, "tags", folder)
        # Folders of earlier versions do not say it.
        self.decoding_ = values.checked("decoding", one_of("argmax", "bio")) if "decoding" in values else "argmax"

    def learn_from_config(self, values: dict[str, Any], model: keras.Model, folder: Path) -> None:
        """The tags of id2label."""
        names = labels_of_config(folder, model.num_labels)
        self.classes_, self.decoding_ = np.array([str(name) for name in names], dtype=object), "argmax"


def _require_words(n_rows: int, has_words: bool, name: str) -> None:
    """Refuse rows that have no word at all; the message begins in scikit-learn's words."""
    if not has_words:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={(n_rows, 0)}) while a minimum of 1 is required. No row of "
            f"{name.removesuffix('y')}X has a word. Is it the right column?"
        )
