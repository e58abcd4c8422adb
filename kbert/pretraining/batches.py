"""Instances to batches of one shape: packed into rows, dealt at random, and masked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kbert.data.batches import Batch, make_batch
from kbert.data.packing import Layout, pack
from kbert.pretraining.instances import Instances
from kbert.pretraining.masking import Masking

# Instances that are packed and dealt together: enough for full rows, few enough to be quick.
_POOL = 8192


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
        Of the targets: each kind has the same weight throughout, and 1 in sum; 0 in empty places.
    """

    inputs: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]

    @property
    def n_tokens(self) -> int:
        """Tokens that are no padding."""
        return int(np.count_nonzero(self.inputs["text_ids"]))


def slots_of(max_length: int) -> int:
    """Most instances in a row. Nearly all are as long as the row; a few short ones share one."""
    return max(2, max_length // 64)


def most_masked(max_length: int, rate: float) -> int:
    """Most tokens to predict in a row (M): those of a full row, and what rounding adds for each of its instances.

    ``max(1, round(rate * length))`` is less than 1 over ``rate * length``.
    """
    return int(rate * max_length) + slots_of(max_length)


def batches_of(
    instances: Instances, masking: Masking, batch_size: int, max_length: int, pad_id: int, seed
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
    pad_id : int
        Token id of the padding.
    seed : int or sequence of int
        The same seed gives the same batches and masks.

    Yields
    ------
    PretrainingBatch
    """
    rng = np.random.default_rng(seed)
    layout = Layout(batch_size, max_length, slots_of(max_length))
    order = rng.permutation(len(instances))
    rows: list[np.ndarray] = []
    for start in range(0, len(order), _POOL):
        pool = order[start : start + _POOL]
        packed = pack(instances.lengths[pool], max_length, layout.slots)
        rows += [pool[packed[i]] for i in rng.permutation(len(packed))]
        n_full = len(rows) // batch_size * batch_size
        for first in range(0, n_full, batch_size):
            yield _masked(
                make_batch(instances, rows[first : first + batch_size], layout, pad_id), instances, masking, rng
            )
        rows = rows[n_full:]
    if rows:
        yield _masked(make_batch(instances, rows, layout, pad_id), instances, masking, rng)


def _masked(batch: Batch, instances: Instances, masking: Masking, rng: np.random.Generator) -> PretrainingBatch:
    token_ids = batch.inputs["token_ids"].copy()
    B, T = token_ids.shape
    M = most_masked(T, masking.rate)
    # The texts' tokens stand one text after the other, row by row.
    real = batch.inputs["text_ids"] > 0
    filled = batch.texts >= 0
    lengths = instances.lengths[batch.texts[filled]]
    masked = masking.draw(token_ids[real], np.concatenate([[0], np.cumsum(lengths)]), rng)
    row, position = (places[masked.chosen] for places in np.nonzero(real))
    slot = np.arange(len(row)) - np.searchsorted(row, row)  # which of its row's
    positions, targets, weights = np.zeros((B, M), np.int32), np.zeros((B, M), np.int32), np.zeros((B, M), np.float32)
    positions[row, slot] = position
    targets[row, slot] = token_ids[row, position]
    weights[row, slot] = 1 / len(row)
    token_ids[real] = masked.token_ids
    is_random = np.where(filled, instances.is_random[batch.texts], 0).astype(np.int32)
    return PretrainingBatch(
        {**batch.inputs, "token_ids": token_ids, "masked_positions": positions},
        {"mlm": targets, "nsp": is_random},
        {"mlm": weights, "nsp": (filled / filled.sum()).astype(np.float32)},
    )
