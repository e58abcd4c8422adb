"""Instances to batches of one shape: packed into rows, dealt at random, and masked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kbert.data.batches import Batch, make_batch
from kbert.data.packing import Layout
from kbert.pretraining.instances import Instances, Seed
from kbert.pretraining.masking import Masking
from kbert.pretraining.rows import RowShape, choose_row_shape, packed_rows

# Instances that are packed and dealt together: enough for full rows, few enough to be quick.
POOL = 8192


class PretrainingBatch(NamedTuple):
    """Rows of packed instances.

    Attributes
    ----------
    inputs : dict of ndarray of int32
        The arrays of `BertForPreTraining`: BertEncoder's four (B, T), ``first_positions`` (B, K) and
        ``masked_positions`` (B, M).
    targets : dict of ndarray of int32
        ``mlm`` (B, M), the tokens that were there, and ``nsp`` (B, K), 1 where b is random.
    weights : dict of ndarray of float32
        Of the targets: each kind has the same weight throughout, and 1 in sum; 0 in empty slots.
    """

    inputs: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]

    @property
    def n_tokens(self) -> int:
        """Tokens that are no padding."""
        return int(np.count_nonzero(self.inputs["text_ids"]))

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return int(self.inputs["position_ids"].max()) + 1

    @property
    def n_masked(self) -> int:
        """Tokens to predict. There may be none where no whole word fits into their number."""
        return int(np.count_nonzero(self.weights["mlm"]))


def batches_of(
    instances: Instances,
    masking: Masking,
    batch_size: int,
    max_length: int,
    seed: Seed,
    shape: RowShape | None = None,
) -> Iterator[PretrainingBatch]:
    """Every instance once, in random order; all batches have the same shape.

    Parameters
    ----------
    instances : Instances
    masking : Masking
    batch_size : int
        Rows of a batch (B). Where the last one has too few, the others are padding.
    max_length : int
        Tokens of a row (T), at least as many as the longest instance has.
    seed : int or sequence of int
        The same seed gives the same batches and masks.
    shape : RowShape, optional
        Of the rows; by default one that suits these instances.

    Yields
    ------
    PretrainingBatch
    """
    rng = np.random.default_rng(seed)
    if shape is None:
        shape = choose_row_shape(instances.lengths[:POOL], masking, max_length)
    layout = Layout(batch_size, shape.length, shape.texts)
    rows: list[np.ndarray] = []
    for packed in _pools(instances, masking, shape, rng):
        rows += [packed[i] for i in rng.permutation(len(packed))]
        n_full = len(rows) // batch_size * batch_size
        for first in range(0, n_full, batch_size):
            batch = make_batch(instances, rows[first : first + batch_size], layout)
            yield _masked(batch, instances, masking, shape.masked, rng)
        rows = rows[n_full:]
    if rows:
        yield _masked(make_batch(instances, rows, layout), instances, masking, shape.masked, rng)


def n_batches_of(instances: Instances, masking: Masking, batch_size: int, seed: Seed, shape: RowShape) -> int:
    """How many batches `batches_of` gives. The instances are packed for it; no arrays are made."""
    n_rows = sum(len(rows) for rows in _pools(instances, masking, shape, np.random.default_rng(seed)))
    return -(-n_rows // batch_size)


def _pools(
    instances: Instances, masking: Masking, shape: RowShape, rng: np.random.Generator
) -> Iterator[list[np.ndarray]]:
    """The instances in random order, so many at a time, packed into rows."""
    order = rng.permutation(len(instances))
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        yield [pool[row] for row in packed_rows(instances.lengths[pool], masking, shape)]


def _masked(
    batch: Batch, instances: Instances, masking: Masking, most_masked: int, rng: np.random.Generator
) -> PretrainingBatch:
    token_ids = batch.inputs["token_ids"].copy()
    B, M = len(token_ids), most_masked
    # The texts' tokens stand one text after the other, row by row.
    real = batch.inputs["text_ids"] > 0
    filled = batch.texts >= 0
    lengths = instances.lengths[batch.texts[filled]]
    masked = masking.draw(token_ids[real], np.concatenate([[0], np.cumsum(lengths)]), rng)
    row, position = (indices[masked.chosen] for indices in np.nonzero(real))
    slot = np.arange(len(row)) - np.searchsorted(row, row)  # which of its row's
    positions, targets, weights = np.zeros((B, M), np.int32), np.zeros((B, M), np.int32), np.zeros((B, M), np.float32)
    positions[row, slot] = position
    targets[row, slot] = token_ids[row, position]
    weights[row, slot] = 1 / max(1, len(row))  # none are masked where no whole word fits
    token_ids[real] = masked.token_ids
    is_random = np.where(filled, instances.is_random[batch.texts], 0).astype(np.int32)
    return PretrainingBatch(
        {**batch.inputs, "token_ids": token_ids, "masked_positions": positions},
        {"mlm": targets, "nsp": is_random},
        {"mlm": weights, "nsp": (filled / filled.sum()).astype(np.float32)},
    )
