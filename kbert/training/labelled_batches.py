"""What a fine-tuning is given, texts with their targets and weights, and the arrays that each of its steps takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from kbert.data.batches import Batch
from kbert.text.sequences import Sequences
from kbert.training.step import StepBatch

Level = Literal["text", "token", "position"]


class Counts(NamedTuple):
    """Of a batch: its texts, and how many of its texts or tokens have a weight in the loss."""

    texts: int
    weighted: int


class TrainingData(NamedTuple):
    """The texts that a model is trained on, with the targets and weights of these, or of their tokens.

    Attributes
    ----------
    sequences : Sequences
        The texts: one or several for each row of X.
    targets : ndarray, shape (n, ...)
        What the loss compares the model's outputs with, for each of n texts, or of all n tokens.
    weights : ndarray of float32, shape (n,)
        Of each in the loss; 0 leaves it out.
    level : {"text", "token", "position"}
        What has targets and weights. With "position" it is each text, and the targets are tokens of the text, counted
        from its first.
    """

    sequences: Sequences
    targets: np.ndarray
    weights: np.ndarray
    level: Level = "text"

    def labels_of(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, int]:
        """The targets and the weights of a batch, and how many weights are not 0.

        They have the shape of the batch's slots, (B, K, ...), or of its tokens, (B, T, ...), with 0 in empty ones. The
        weights are divided by how many are not 0. With "position" the targets are positions in the row.
        """
        indices = batch.tokens if self.level == "token" else batch.texts
        weights = np.where(indices >= 0, self.weights[indices], 0).astype("float32")
        n_weighted = int(np.count_nonzero(weights))
        targets = self.targets[indices]
        if self.level == "position":
            targets += batch.inputs["first_positions"][..., None]
        targets[indices < 0] = 0
        return targets, weights / np.float32(max(1, n_weighted)), n_weighted


def labelled_batches(
    batches: Iterable[Batch],
    data: TrainingData,
    inputs_of: Callable[[Batch], dict[str, np.ndarray]],
) -> Iterator[tuple[Counts, StepBatch]]:
    """The arrays of each step, and its counts.

    Parameters
    ----------
    batches : iterable of Batch
        Of the data's sequences.
    data : TrainingData
    inputs_of : callable
        From a batch to what the model takes.
    """
    for batch in batches:
        targets, weights, n_weighted = data.labels_of(batch)
        yield Counts(batch.n_texts, n_weighted), StepBatch(inputs_of(batch), targets, weights)
