"""Batches for training and for predicting: which texts go together, and the arrays that BertEncoder takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kbert.data.packing import Layout, choose_layout, pack, slots_of, sums_of_rows
from kbert.text.ragged import ranges
from kbert.text.sequences import Sequences, SequenceSource

# The token of padding, whatever the vocabulary calls [PAD]: no other token attends to it, and no loss reads it.
PADDING_ID = 0

# Batches among which the numbers of tokens are balanced.
_POOL = 64

# Tokens of a batch in prediction: enough to keep the matrix products busy, and few enough to stay in the cache.
_PREDICT_TOKENS = 4096
# The same where rows hold one text each.
_PADDED_TOKENS = 1024
# Where each batch may have a shape of its own, its rows have a multiple of so many tokens: matrices of other sides take
# up to twice as long to multiply in bfloat16.
_STEP = 16


class Batch(NamedTuple):
    """Some texts, packed into rows. A text is one of the sequences that a batch is made of.

    Letter key: B rows, T tokens of a row, K slots for texts in a row.

    Attributes
    ----------
    inputs : dict of ndarray of int32
        BertEncoder's four arrays (B, T), and ``first_positions`` (B, K): the position of the first token of each text
        in its row, 0 for unused slots.
    texts : ndarray of int64, shape (B, K)
        The number of the text in each slot, counted among all sequences; -1 for unused slots.
    tokens : ndarray of int64, shape (B, T)
        The number of each token, counted among the tokens of all sequences; -1 for padding.
    """

    inputs: dict[str, NDArray[np.int32]]
    texts: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def inputs_of(self, names: Iterable[str]) -> dict[str, NDArray[np.int32]]:
        """Those of the inputs that a model takes."""
        return {name: self.inputs[name] for name in names}

    @property
    def n_texts(self) -> int:
        """Number of texts in the batch."""
        return int((self.texts >= 0).sum())

    @property
    def n_tokens(self) -> int:
        """Number of tokens that are not padding."""
        return int((self.inputs["text_ids"] > 0).sum())


class DealtTexts:
    """Which texts are in each batch of every epoch, and the shape that fits all batches: their lengths tell.

    Each text is in one batch of an epoch. Each batch has exactly ``batch_size`` texts, except for the last one of an
    epoch. Texts are dealt to batches at random, but so that all batches of an epoch have nearly the same number of
    tokens. So one shape fits all of them with little padding, and every batch has short and long texts.

    Parameters
    ----------
    lengths : ndarray of int, shape (n_texts,)
        Tokens of each text.
    rows : ndarray of int, shape (n_texts,), or None
        The row of X of each text, ascending, where ``batch_size`` counts rows, and all texts of a row are in one batch.
        This is needed if the loss compares them, as for the options of a question. None where it counts texts.
    batch_size : int
        Texts in each batch.
    seed : int
        The same seed gives the same batches.

    Attributes
    ----------
    steps_per_epoch : int
        Batches of an epoch.
    layout : Layout
        The shape.
    """

    def __init__(self, lengths: NDArray[Any], rows: NDArray[Any] | None, batch_size: int, seed: int):
        self.batch_size, self.seed = batch_size, seed
        # Four bytes each, here and below: with millions of texts these arrays are most of the memory of a fit.
        self.lengths = lengths.astype(np.int32)
        # Unit i is dealt as one: sequences bounds[i] to bounds[i + 1], which are one, or all of a row.
        self.bounds = np.arange(len(lengths) + 1, dtype=np.int32)
        if rows is not None:
            self.bounds = np.concatenate([[0], np.cumsum(np.bincount(rows))]).astype(np.int32)
        self.steps_per_epoch = -(-(len(self.bounds) - 1) // batch_size)
        self.layout = choose_layout([self.lengths[texts] for texts in self.deal(0)])

    def deal(self, epoch: int) -> list[NDArray[np.int32]]:
        """The numbers of the texts in each batch of an epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.bounds) - 1).astype(np.int32)
        sizes = np.add.reduceat(self.lengths, self.bounds[:-1])
        size, pool = self.batch_size, self.batch_size * _POOL
        n_full = len(order) // size * size
        batches: list[NDArray[np.int32]] = []
        for start in range(0, n_full, pool):
            batches += _balanced(order[start : min(start + pool, n_full)], sizes, size)
        # The incomplete batch is the last one, as in Keras and PyTorch.
        batches = [batches[i] for i in rng.permutation(len(batches))] + [order[n_full:]] * (n_full < len(order))
        return [
            ranges(self.bounds[batch], self.bounds[batch + 1] - self.bounds[batch]).astype(np.int32)
            for batch in batches
        ]


class TrainingBatches(DealtTexts):
    """The batches of every epoch. A batch makes one training step.

    Parameters
    ----------
    sequences : TokenSequences or QuestionWindows
        The texts.
    batch_size, seed : int
        As in `DealtTexts`.
    whole_rows : bool, default=False
        Whether ``batch_size`` counts rows of X.
    row_multiple : int, default=1
        The number of rows of a batch is a multiple of it, so that so many devices can have the same number each.
    """

    def __init__(
        self,
        sequences: Sequences,
        batch_size: int,
        seed: int,
        whole_rows: bool = False,
        row_multiple: int = 1,
    ):
        super().__init__(sequences.lengths, sequences.rows if whole_rows else None, batch_size, seed)
        self.sequences, self.row_multiple = sequences, row_multiple

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, both counted from 0, from ``start`` on."""
        for texts in self.deal(epoch)[start:]:
            rows = self._packed(texts)
            n_rows = -(-max(len(rows), self.layout.rows) // self.row_multiple) * self.row_multiple
            yield make_batch(self.sequences, rows, self.layout._replace(rows=n_rows))

    def _packed(self, texts: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        rows = pack(self.lengths[texts], self.layout.length, self.layout.slots)
        return [texts[row] for row in rows]


def _balanced(texts: NDArray[np.int32], lengths: NDArray[np.int32], size: int) -> list[NDArray[np.int32]]:
    """Deal texts to batches of ``size`` so that all have nearly the same number of tokens.

    Each batch gets one text in each of ``size`` rounds. The longest texts are dealt in the first round, and in each
    round the longest one goes to the batch that has fewest tokens so far.
    """
    n_batches = len(texts) // size
    rounds = texts[np.argsort(-lengths[texts], kind="stable")].reshape(size, n_batches)
    batches = np.empty((n_batches, size), texts.dtype)
    totals = np.zeros(n_batches, np.int64)
    for i, longest_first in enumerate(rounds):
        emptiest_first = np.argsort(totals, kind="stable")
        batches[emptiest_first, i] = longest_first
        totals[emptiest_first] += lengths[longest_first]
    return list(batches)


def prediction_batches(sequences: Sequences, n_tokens: int | None = None, any_shape: bool = False) -> Iterator[Batch]:
    """All texts, once, in batches for predicting.

    The texts are in no particular order: `Batch.texts` gives their numbers. A batch has at most about ``n_tokens``
    tokens; None is 4,096. All batches have one shape, unless they may have ``any_shape``: then each is as small as its
    texts allow.
    """
    lengths = sequences.lengths
    length = prediction_row_length(int(lengths.max()))
    slots = slots_of(length)
    rows = pack(lengths, length, slots)
    if any_shape:
        groups = _by_fullness(sums_of_rows(lengths, rows), rows, length, n_tokens or _PREDICT_TOKENS)
    else:
        size = _prediction_size(len(rows), length, n_tokens)
        groups = ((rows[at : at + size], Layout(size, length, slots)) for at in range(0, len(rows), size))
    for members, layout in groups:
        yield make_batch(sequences, [np.asarray(row) for row in members], layout)


def _by_fullness(
    used: NDArray[Any], rows: list[list[int]], longest: int, n_tokens: int
) -> Iterator[tuple[list[list[int]], Layout]]:
    """Rows with about as many tokens each, and a shape as long as the fullest of them, rounded up to `_STEP`.

    ``used`` are the tokens of each row. ``longest`` is a length that holds every row; no shape is longer.
    """
    fullest_first = np.argsort(-used, kind="stable")
    start = 0
    while start < len(rows):
        length = min(-(-int(used[fullest_first[start]]) // _STEP) * _STEP, longest)
        members = [rows[i] for i in fullest_first[start : start + max(1, n_tokens // length)]]
        yield members, Layout(len(members), length, max(map(len, members)))
        start += len(members)


def padded_batches(sequences: Sequences, n_tokens: int = _PADDED_TOKENS) -> Iterator[Batch]:
    """All texts, once, each in a row of its own, for programs that do not know packed rows.

    Texts of about the same length are together, the longest first, and a batch is as long as its longest one. It has
    about ``n_tokens`` tokens.
    """
    lengths = sequences.lengths
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(longest_first):
        length = int(lengths[longest_first[start]])
        texts = longest_first[start : start + max(1, n_tokens // length)]
        yield make_batch(sequences, np.split(texts, len(texts)), Layout(len(texts), length, 1))
        start += len(texts)


def _prediction_size(n_rows: int, length: int, n_tokens: int | None = None) -> int:
    """How many rows the batches have. For few rows it is a power of two, so that there are few shapes to compile."""
    return min(1 << (n_rows - 1).bit_length(), max(1, (n_tokens or _PREDICT_TOKENS) // length))


def prediction_layouts(lengths: Iterable[int], n_texts: int, n_tokens: int | None = None) -> list[Layout]:
    """The shapes of all batches that `prediction_batches` makes of up to ``n_texts`` texts of these lengths.

    ``n_tokens`` is as there. This is without its ``any_shape``, under which there are many more.
    """
    return [
        Layout(size, length, slots_of(length))
        for length in sorted({prediction_row_length(longest) for longest in lengths})
        for size in sorted({_prediction_size(n_rows, length, n_tokens) for n_rows in range(1, n_texts + 1)})
    ]


def prediction_row_length(longest: int) -> int:
    """The length of rows that hold a text of ``longest`` tokens: the shortest that does of 16, 24, 32, 48, 64, 96, ...

    These are few, so that XLA has few shapes to compile. Beyond 16, none is more than half as long again as the text
    (docs/project/performance_notes.md).
    """
    lengths = (length for n in itertools.count(4) for length in (1 << n, 3 << (n - 1)))
    return next(length for length in lengths if length >= longest)


def make_batch(sequences: SequenceSource, rows: Sequence[NDArray[Any]], layout: Layout) -> Batch:
    """Put the texts of each row one after the other.

    Parameters
    ----------
    sequences : TokenSequences, QuestionWindows or another `SequenceSource`
    rows : list of ndarray of int
        The numbers of the texts in each row.
    layout : Layout
        The shape of the batch. Rows beyond those given are padding. If more rows are given than the layout has, the
        batch has more rows too.
    """
    B, T = max(layout.rows, len(rows)), layout.length
    K = layout.slots
    texts = np.full((B, K), -1, np.int64)
    for i, members in enumerate(rows):
        texts[i, : len(members)] = members
    row, slot = np.nonzero(texts >= 0)
    chosen = texts[row, slot]
    some = sequences.take(chosen)  # QuestionWindows builds the sequences now
    lengths = some.lengths

    # Where each text starts in its row: after all texts that come before it in the row.
    before = np.zeros((B, K + 1), np.int64)
    before[row, slot + 1] = lengths
    starts = before.cumsum(axis=1)[row, slot]  # (n_texts,)

    position = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # of each token in its text
    flat_index = np.repeat(row * T + starts, lengths) + position  # of each token in the (B * T) array

    def filled(values: ArrayLike, padding: int = 0, dtype: DTypeLike = np.int32) -> NDArray[Any]:
        flat = np.full(B * T, padding, dtype)
        flat[flat_index] = values
        return flat.reshape(B, T)

    first_positions = np.zeros((B, K), np.int32)
    first_positions[row, slot] = starts
    inputs = {
        "token_ids": filled(some.tokens.values, PADDING_ID),
        "segment_ids": filled(position >= np.repeat(some.first_length, lengths)),
        "position_ids": filled(position),
        "text_ids": filled(np.repeat(slot + 1, lengths)),
        "first_positions": first_positions,
    }
    return Batch(inputs, texts, filled(ranges(sequences.splits[chosen], lengths), -1, np.int64))
