"""Rows of words: how estimators read them, and those to train on or to watch."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from kbert.data.tags import WordColumn, word_column
from kbert.errors import MissingTextWarning
from kbert.estimators.base import check_names
from kbert.estimators.fitting import mean_one
from kbert.metrics import entity_scores, is_bio
from kbert.text.words import WordSequences
from kbert.training.predict import predict_words


class ReadsWords:
    """Mixin of the estimators whose rows are words."""

    def _read_words(self, X: Any, stacklevel: int = 4, name: str = "X") -> WordColumn:
        """The words of X, with one warning that counts the empty ones, at the user's line."""
        words = word_column(X, name)
        if words.n_missing:
            what = "texts" if words.raw_texts is not None else "words"
            warnings.warn(
                f"{words.n_missing} of the {what} in {words.n_rows} rows {'are' if words.n_missing > 1 else 'is'} "
                "empty. Every row and every word still gets a result.",
                MissingTextWarning,
                stacklevel=stacklevel,
            )
        return words

    def _check_words(self, words: WordColumn) -> None:
        """Refuse a column of another name than that of fit."""
        check_names(words.names, list(getattr(self, "feature_names_in_", [])) or None)


class WordRows(NamedTuple):
    """Rows of words to train on or to watch, as `fitting.Rows` are rows of texts.

    Attributes
    ----------
    words : WordSequences
    targets : ndarray of int32, shape (n_words,)
        The number of each word's tag.
    row_weights : ndarray of float32, shape (n_rows,)
    classes : ndarray of str
    """

    words: WordSequences
    targets: np.ndarray
    row_weights: np.ndarray
    classes: np.ndarray

    whole_rows = False  # the windows of a row may be in several steps

    @property
    def sequences(self):
        """The windows."""
        return self.words.sequences

    @property
    def n_rows(self) -> int:
        """How many."""
        return self.words.n_rows

    @property
    def weights(self) -> np.ndarray:
        """Of each word."""
        return np.repeat(self.row_weights, np.diff(self.words.splits))

    def take(self, rows: np.ndarray) -> WordRows:
        """Some rows, given in ascending order."""
        of_word = np.repeat(np.arange(self.n_rows), np.diff(self.words.splits))
        kept = np.isin(of_word, rows)
        return WordRows(self.words.of_rows(rows), self.targets[kept], self.row_weights[rows], self.classes)

    def logits(self, model, pad_id: int) -> np.ndarray:
        """The model's present output for each word, in float64."""
        return predict_words(model, self.words, pad_id).astype("float64")

    def examples(self) -> dict[str, np.ndarray | str]:
        """What `train` is to know of them: each word counts in its place."""
        place = self.words.words
        targets = np.where(place >= 0, self.targets[place], 0)
        weights = np.where(place >= 0, self.weights[place], 0)
        return {"targets": targets.astype("int32"), "weights": mean_one(weights), "level": "token"}

    def score(self, task, logits: np.ndarray) -> float:
        """F1 of the entities where tags are BIO tags, else the share of words whose tag is right."""
        found = logits.argmax(axis=1)
        if not is_bio([self.classes]):
            return float(np.average(found == self.targets, weights=self.weights))
        rows = [np.split(self.classes[numbers], self.words.splits[1:-1]) for numbers in (self.targets, found)]
        return entity_scores(*rows, sample_weight=self.row_weights).f1
