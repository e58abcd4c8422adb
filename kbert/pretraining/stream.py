"""The batches of a run, drawn anew in each epoch, from any point on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kbert.config import BertConfig
from kbert.pretraining.batches import POOL, PretrainingBatch, batches_of, n_batches_of
from kbert.pretraining.instances import Documents, DocumentSource, Instances, draw_pairs, draw_runs
from kbert.pretraining.masking import Masking
from kbert.pretraining.rates import flops_per_token
from kbert.pretraining.rows import RowShape, choose_row_shape
from kbert.text import WordPieceTokenizer

# Elements of the source that are looked at for the shape of the rows.
_SAMPLED = 8


class Cursor(NamedTuple):
    """How far a run has read in one phase.

    Attributes
    ----------
    phase : int
        Which phase, whose rows have a length of their own.
    epoch : int
        Epochs of the phase that were read.
    elements : int
        Elements of the source that were read in this epoch.
    batches : int
        Batches of the next element that were read.
    """

    phase: int = 0
    epoch: int = 0
    elements: int = 0
    batches: int = 0


class BatchStream:
    """The batches of a run. The same parameters give the same batches, whatever was read before.

    Parameters
    ----------
    source : sequence of Documents
        In each epoch its elements come in another order. Pairs are drawn from the documents of one element.
    tokenizer : WordPieceTokenizer
    config : BertConfig
        Of the model, whose arithmetic decides how rows are filled (`choose_row_shape`).
    nsp : bool
        Whether instances are pairs for next-sentence prediction, or runs of text.
    masking : Masking
    lengths : sequence of int
        Tokens of a row in each phase.
    batch_sizes : sequence of int
        Rows of a batch in each phase.
    seed : int
    fixed : bool, default=False
        The same instances and masks in every epoch.
    """

    def __init__(
        self,
        source: DocumentSource,
        tokenizer: WordPieceTokenizer,
        config: BertConfig,
        *,
        nsp: bool,
        masking: Masking,
        lengths: Sequence[int],
        batch_sizes: Sequence[int],
        seed: int,
        fixed: bool = False,
    ):
        self.source, self.tokenizer, self.config = source, tokenizer, config
        self.masking, self.lengths, self.batch_sizes = masking, lengths, batch_sizes
        self.seed, self.fixed = seed, fixed
        self._draw = draw_pairs if nsp else draw_runs
        self._shapes: dict[int, RowShape] = {}

    def batches(self, start: Cursor) -> Iterator[tuple[Cursor, PretrainingBatch]]:
        """The batches of a phase from a cursor on, without end; each with the cursor after it."""
        phase, first_epoch, first_element, n_read = start
        for epoch in itertools.count(first_epoch):
            is_empty = first_element == n_read == 0
            order = self._order(phase, epoch)
            for n_elements in range(first_element, len(order)):
                made = self._batches_of_element(int(order[n_elements]), phase, epoch)
                for n_batches, batch in enumerate(itertools.islice(made, n_read, None), n_read + 1):
                    is_empty = False
                    yield Cursor(phase, epoch, n_elements, n_batches), batch
                n_read = 0
            if is_empty:
                raise ValueError("There is no token in the text. Is it the right file or column?")
            first_element = 0

    def first_batch(self) -> PretrainingBatch:
        """The first of all."""
        return next(self.batches(Cursor()))[1]

    def n_batches(self, epochs: int, phase: int = 0) -> int:
        """How many batches the first epochs of a phase have.

        The instances of each epoch are drawn and packed for it, which takes about a tenth of the time in which their
        batches are made (docs/project/performance_notes.md).
        """
        n_batches = 0
        for epoch in range(epochs):
            for number in range(len(self.source)):
                instances, seed = self._instances(number, phase, epoch), [*self._seed(number, phase, epoch), 1]
                n_batches += n_batches_of(instances, self.masking, self.batch_sizes[phase], seed, self.shape(phase))
        return n_batches

    def shape(self, phase: int) -> RowShape:
        """The shape of the rows of a phase: one that suits a sample of the instances."""
        if phase not in self._shapes:
            length = self.lengths[phase]
            found = [len(self.source) * i // _SAMPLED for i in range(_SAMPLED)]
            numbers = sorted(set(found))
            n_tokens = POOL * length // len(numbers)
            drawn = [
                self._draw(_first(self.source[number], n_tokens), self.tokenizer, length, self._seed(number, phase, 0))
                for number in numbers
            ]
            # The cost of predicting one more token, relative to the layers' cost of one token.
            plain, predicted = (flops_per_token(self.config, length, share, nsp=False) for share in (0, 1))
            self._shapes[phase] = choose_row_shape(
                np.concatenate([instances.lengths for instances in drawn]), self.masking, length, predicted / plain - 1
            )
        return self._shapes[phase]

    def _order(self, phase: int, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, phase, epoch]).permutation(len(self.source))

    def _seed(self, number: int, phase: int, epoch: int) -> list[int]:
        return [self.seed, number, *([0, 0] if self.fixed else [phase, epoch])]

    def _instances(self, number: int, phase: int, epoch: int) -> Instances:
        """Those of one element of the source in one epoch."""
        seed = [*self._seed(number, phase, epoch), 0]
        return self._draw(self.source[number], self.tokenizer, self.lengths[phase], seed)

    def _batches_of_element(self, number: int, phase: int, epoch: int) -> Iterator[PretrainingBatch]:
        return batches_of(
            self._instances(number, phase, epoch),
            self.masking,
            self.batch_sizes[phase],
            self.lengths[phase],
            [*self._seed(number, phase, epoch), 1],
            self.shape(phase),
        )


def _first(documents: Documents, n_tokens: int) -> Documents:
    """The first documents, with so many tokens or a little more; two at least, where there are two."""
    ends = documents.segments[documents.documents[1:]]
    n = max(2, int(np.searchsorted(ends, n_tokens)) + 1)
    return Documents(documents.tokens, documents.segments, documents.documents[: n + 1])
