"""Batches of texts with the targets and weights of what is in them: what a step of fine-tuning takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from kbert.data.batches import Batch
from kbert.training.step import StepBatch

Level = Literal["text", "token", "position"]


class Counts(NamedTuple):
    """Of a batch: its texts, and how many of its texts or tokens have a weight in the loss."""

    texts: int
    weighted: int


@dataclass(frozen=True)
class Labels:
    """The targets and weights of all texts, or of all tokens, of a fit.

    Attributes
    ----------
    targets : ndarray, shape (n, ...)
    weights : ndarray of float32, shape (n,)
        Of each in the loss; 0 leaves it out.
    level : {"text", "token", "position"}
        What has targets and weights. With "position" it is each text, and the targets are tokens of the text, counted
        from its first.
    """

    targets: np.ndarray
    weights: np.ndarray
    level: Level = "text"

    def of(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, int]:
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
    labels: Labels,
    inputs_of: Callable[[Batch], dict[str, np.ndarray]],
) -> Iterator[tuple[Counts, StepBatch]]:
    """The arrays of each step, and its counts.

    Parameters
    ----------
    batches : iterable of Batch
    labels : Labels
    inputs_of : callable
        From a batch to what the model takes.
    """
    for batch in batches:
        targets, weights, n_weighted = labels.of(batch)
        yield Counts(batch.n_texts, n_weighted), StepBatch(inputs_of(batch), targets, weights)
