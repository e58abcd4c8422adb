"""What it means to choose among a row's options: rows, losses and scores, as `kbert.estimators.fitting` takes them."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
from scipy.special import log_softmax

from kbert.estimators.fitting import Rows, mean_one
from kbert.text import TokenSequences
from kbert.training.losses import choice_cross_entropy
from kbert.training.predict import predict_logits

# Scores of a row's options that differ by less are the same.
_SAME_SCORE = 0.05


class ChoiceRows(Rows):
    """Rows with one sequence for each option.

    ``targets``, int64, has the shape (n_rows, 2): the index of the right option, and the number of options.
    """

    # A loss is over all options of a row.
    whole_rows = True

    def logits(self, model: keras.Model, pad_id: int) -> np.ndarray:
        """The present score of each option in float64; see `by_row`."""
        scores = option_scores(model, [self.sequences], len(self.sequences), pad_id)
        return by_row(scores.astype("float64"), self.targets[:, 1])

    def examples(self) -> dict[str, np.ndarray | str]:
        """What `train` is to know of them: the targets and weights of `choice_cross_entropy`."""
        right, n_options = self.targets.T
        weights = np.zeros(len(self.sequences), "float32")
        weights[np.cumsum(n_options) - n_options + right] = self.weights
        questions = (self.sequences.rows + 1).astype("int32")
        return {"targets": questions, "weights": mean_one(weights), "level": "text"}


def option_scores(model: keras.Model, parts, n_options: int, pad_id: int) -> np.ndarray:
    """The model's output for each option, in the order of the sequences; float32, shape (n_options,).

    ``parts`` are `TokenSequences` with one sequence for each option, some thousand rows at a time.
    """

    def by_option(part: TokenSequences) -> TokenSequences:
        # The mean over a row's sequences is taken where they are windows.
        return replace(part, rows=np.arange(len(part)))

    return predict_logits(model, map(by_option, parts), n_options, pad_id)[:, 0]


def by_row(scores: np.ndarray, n_options: np.ndarray) -> np.ndarray:
    """Scores of all options, one row's after the other's, as (n_rows, most options); -inf past a row's own options."""
    own = np.arange(n_options.max()) < n_options[:, None]
    logits = np.full(own.shape, -np.inf, scores.dtype)
    logits[own] = scores
    return logits


class ChoiceTask:
    """One right option for each row, read off a softmax over its scores. The methods are those of `label_tasks`.

    Logits have the shape (n_rows, most options), and are -inf past a row's own options.
    """

    loss = staticmethod(choice_cross_entropy)
    prior_knowledge = "guessing"

    def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Cross-entropy of each row in nats."""
        return -log_softmax(logits, axis=1)[np.arange(len(targets)), targets[:, 0]]

    def score(self, logits: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
        """Accuracy."""
        return float(np.average(logits.argmax(axis=1) == targets[:, 0], weights=weights))

    def prior_loss(self, targets: np.ndarray, weights: np.ndarray) -> float:
        """The mean loss where all options of a row have the same score."""
        return float(np.average(np.log(targets[:, 1]), weights=weights))

    def decides_alike(self, logits: np.ndarray) -> bool:
        """Whether the options of each row have nearly the same score."""
        lowest = np.where(np.isfinite(logits), logits, np.inf).min(axis=1)
        return bool((logits.max(axis=1) - lowest < _SAME_SCORE).all())

    def unfold(self, model: keras.Model) -> None:
        """Nothing: logits are logits (see `RegressionTask`)."""
