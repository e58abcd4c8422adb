"""Batches for training and for predicting: which texts go together, and the arrays that BertEncoder takes."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kbert.data.packing import Layout, choose_layout, pack, slots_of
from kbert.text import TokenSequences
from kbert.text.ragged import ranges

# Texts among which one batch is balanced against another.
_POOL = 64

# Tokens of a batch when predicting: enough to keep the matrix products busy, little enough to stay in the cache.
_PREDICT_TOKENS = 4096


class Batch(NamedTuple):
    """Some texts, packed.

    Attributes
    ----------
    inputs : dict of ndarray of int32
        BertEncoder's four arrays (B, T), and ``first_positions`` (B, K): where the texts of each row start.
    texts : ndarray of int64, shape (B, K)
        The text of each slot, by its number among the sequences; -1 where a slot is empty.
    tokens : ndarray of int64, shape (B, T)
        Each token's number among those of all sequences; -1 on padding.
    """

    inputs: dict[str, np.ndarray]
    texts: np.ndarray
    tokens: np.ndarray

    @property
    def n_texts(self) -> int:
        """Texts in the batch."""
        return int((self.texts >= 0).sum())

    @property
    def n_tokens(self) -> int:
        """Tokens that are no padding."""
        return int((self.inputs["text_ids"] > 0).sum())


class TrainingBatches:
    """The steps of every epoch: each text once an epoch, exactly ``batch_size`` of them a step, but in the last.

    Texts are dealt at random, but so that the steps of an epoch have nearly the same number of tokens: then a batch
    can be packed into one shape that hardly leaves room for padding. Every step sees short and long texts.

    Parameters
    ----------
    sequences : TokenSequences or QuestionWindows
    batch_size : int
        Texts a step.
    seed : int
        The same seed gives the same batches.
    pad_id : int
        Token id of the padding.
    whole_rows : bool
        Whether ``batch_size`` counts rows, whose sequences are to stay in one step: the options of a question.
    """

    def __init__(self, sequences: TokenSequences, batch_size: int, seed: int, pad_id: int, whole_rows: bool = False):
        self.sequences, self.batch_size, self.seed, self.pad_id = sequences, batch_size, seed, pad_id
        # Four bytes each, here and below: among millions of texts these are most of what a fit holds.
        self.lengths = sequences.lengths.astype(np.int32)
        # What is dealt: the numbers of these sequences, from one boundary to the next.
        self.bounds = np.arange(len(sequences) + 1, dtype=np.int32)
        if whole_rows:
            self.bounds = np.concatenate([[0], np.cumsum(np.bincount(sequences.rows))]).astype(np.int32)
        self.steps_per_epoch = -(-(len(self.bounds) - 1) // batch_size)
        self.layout = choose_layout([self.lengths[texts] for texts in self.deal(0)])

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch, counted from 0."""
        for texts in self.deal(epoch):
            yield make_batch(self.sequences, self._packed(texts), self.layout, self.pad_id)

    def _packed(self, texts: np.ndarray) -> list[np.ndarray]:
        rows = pack(self.lengths[texts], self.layout.length, self.layout.slots)
        return [texts[row] for row in rows]

    def deal(self, epoch: int) -> list[np.ndarray]:
        """The texts of each step of an epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.bounds) - 1).astype(np.int32)
        sizes = np.add.reduceat(self.lengths, self.bounds[:-1])
        size, pool = self.batch_size, self.batch_size * _POOL
        n_full = len(order) // size * size
        steps = []
        for start in range(0, n_full, pool):
            steps += _balanced(order[start : min(start + pool, n_full)], sizes, size)
        # The incomplete step is the last, as in every loop that users know.
        steps = [steps[i] for i in rng.permutation(len(steps))] + [order[n_full:]] * (n_full < len(order))
        return [ranges(self.bounds[step], self.bounds[step + 1] - self.bounds[step]).astype(np.int32) for step in steps]


def _balanced(texts: np.ndarray, lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """Deal texts to steps of ``size``, the longest first, each round's longest to the step that has fewest tokens."""
    n_steps = len(texts) // size
    rounds = texts[np.argsort(-lengths[texts], kind="stable")].reshape(size, n_steps)
    steps = np.empty((n_steps, size), texts.dtype)
    totals = np.zeros(n_steps, np.int64)
    for i, longest_first in enumerate(rounds):
        emptiest_first = np.argsort(totals, kind="stable")
        steps[emptiest_first, i] = longest_first
        totals[emptiest_first] += lengths[longest_first]
    return list(steps)


def prediction_batches(sequences: TokenSequences, pad_id: int) -> Iterator[Batch]:
    """All texts, once, in batches of one shape: for predicting.

    The texts of a batch are in no particular order; `Batch.texts` says which is which.
    """
    lengths = sequences.lengths
    length = prediction_row_length(int(lengths.max()))
    slots = slots_of(length)
    rows = pack(lengths, length, slots)
    # Few texts should not pay for a whole batch, nor for one shape each.
    size = min(1 << (len(rows) - 1).bit_length(), max(1, _PREDICT_TOKENS // length))
    for start in range(0, len(rows), size):
        members = [np.asarray(row) for row in rows[start : start + size]]
        yield make_batch(sequences, members, Layout(size, length, slots), pad_id)


def prediction_row_length(longest: int) -> int:
    """The shortest row that takes a text of ``longest`` tokens and is 16, 24, 32, 48, 64, 96, ... tokens long.

    Few of them, so that XLA has few shapes to compile, and beyond 16 none more than half as long again as the text
    (docs/performance.md).
    """
    return next(length for n in itertools.count(4) for length in (2**n, 3 * 2 ** (n - 1)) if length >= longest)


def make_batch(sequences: TokenSequences, rows: list[np.ndarray], layout: Layout, pad_id: int) -> Batch:
    """Put the texts of each row one after the other; rows that the layout has beyond these are padding.

    Where more rows are needed than the layout has, the batch gets them, in a shape of its own.
    """
    B, T = max(layout.rows, len(rows)), layout.length
    K = layout.slots
    texts = np.full((B, K), -1, np.int64)
    for row, members in enumerate(rows):
        texts[row, : len(members)] = members
    row, slot = np.nonzero(texts >= 0)
    chosen = texts[row, slot]
    some = sequences.take(chosen)  # where the windows of a question are put together
    lengths = some.lengths

    # Where each text starts in its row: the lengths before it, counted from the row's first text.
    room = np.zeros((B, K + 1), np.int64)
    room[row, slot + 1] = lengths
    starts = room.cumsum(axis=1)[row, slot]  # (n_texts,)

    inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # position in its text
    place = np.repeat(row * T + starts, lengths) + inside

    def filled(values, empty=0, dtype=np.int32):
        flat = np.full(B * T, empty, dtype)
        flat[place] = values
        return flat.reshape(B, T)

    first_positions = np.zeros((B, K), np.int32)
    first_positions[row, slot] = starts
    inputs = {
        "token_ids": filled(some.tokens.values, pad_id),
        "segment_ids": filled(inside >= np.repeat(some.first_length, lengths)),
        "position_ids": filled(inside),
        "text_ids": filled(np.repeat(slot + 1, lengths)),
        "first_positions": first_positions,
    }
    return Batch(inputs, texts, filled(ranges(sequences.splits[chosen], lengths), -1, np.int64))
