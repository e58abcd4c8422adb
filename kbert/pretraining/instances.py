"""Tokenised documents to training instances: pairs for next-sentence prediction, or runs of text without it.

Instances are numbers: where they begin among the documents' tokens, and how long they are. So new ones can be drawn for
every epoch.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from kbert.errors import UnknownWordsWarning
from kbert.text.ragged import Ragged, Selection, ranges, row_splits
from kbert.text.sequences import TokenSequences, assemble, truncated_lengths
from kbert.values.printable import percent, shown
from kbert.warn import warn_user

if TYPE_CHECKING:
    from kbert.text import WordPieceTokenizer

# What NumPy's generators take as a seed.
Seed: TypeAlias = int | Sequence[int]
# Share of the documents whose instances get a random shorter length (short_seq_prob of create_pretraining_data.py).
SHORT_SHARE = 0.1
# Share of a text's tokens that are unknown, from which on a warning says so. A vocabulary for its language lacks fewer.
_MUCH_UNKNOWN = 0.05
# Tokens that are counted: more tell nothing new of how often each occurs.
_ENOUGH = 10_000_000
_NEEDS_TWO = (
    "Next-sentence prediction needs text from another document, and there is only {} here. Give more documents (in "
    "text files a blank line is between two), or train without it: nsp=False."
)


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents as tokens.

    Attributes
    ----------
    tokens : ndarray of int, shape (n_tokens,)
        Word pieces without special tokens, one document's after the other's.
    segments : ndarray of int64, shape (n_segments + 1,)
        Where each segment, a sentence for instance, begins and ends among the tokens. None is empty.
    documents : ndarray of int64, shape (n_documents + 1,)
        Where each document begins and ends among the segments. None is empty.
    """

    tokens: np.ndarray
    segments: np.ndarray
    documents: np.ndarray

    def __len__(self) -> int:
        return len(self.documents) - 1


class DocumentSource(Protocol):
    """Documents in elements that are read one at a time: `kbert.pretraining.Shards`, or a list of `Documents`."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Documents: ...


@dataclass(frozen=True, eq=False)
class Instances:
    """Training instances "[CLS] a [SEP] b [SEP]", or "[CLS] a [SEP]". Batches are made of them as of `TokenSequences`.

    Attributes
    ----------
    tokenizer : WordPieceTokenizer
    source : ndarray of int
        The tokens of the documents.
    starts, kept : ndarray of int64, shape (n_instances, 1 or 2)
        Of a, and of b if there is one: the first token, and how many.
    is_random : ndarray of int32, shape (n_instances,)
        The label of next-sentence prediction: 0 where b is what follows a, 1 where it is from another document (in this
        order in the original, and in ``cls.seq_relationship``). Zeros where there is no b.
    """

    tokenizer: WordPieceTokenizer
    source: np.ndarray
    starts: np.ndarray
    kept: np.ndarray
    is_random: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each, special ones included."""
        lengths: np.ndarray = self.kept.sum(axis=1) + self.kept.shape[1] + 1
        return lengths

    @cached_property
    def splits(self) -> np.ndarray:
        """Where each begins and ends if all of them are concatenated."""
        return row_splits(self.lengths)

    @property
    def rows(self) -> np.ndarray:
        """Each is a row of its own."""
        return np.arange(len(self))

    def take(self, selection: Selection) -> TokenSequences:
        """The selected ones, in the order of the selection."""
        starts, kept = self.starts[selection], self.kept[selection]
        pieces = []
        for part in range(kept.shape[1]):
            pieces += [self.source[ranges(starts[:, part], kept[:, part])], kept[:, part]]
        return assemble(self.tokenizer, self.rows[selection], np.zeros(len(starts), bool), *pieces)


def require_tokens(source: DocumentSource, name: str, nsp: bool = False) -> None:
    """Raise where there is nothing to draw instances from.

    Parameters
    ----------
    source : sequence of Documents
    name : str
        What the message calls it.
    nsp : bool, default=False
        Whether pairs are drawn, for which an element needs two documents: at least one element must have them.

    Raises
    ------
    ValueError
        If there is no token in any element, or one document alone where there must be two.
    """
    # Documents without tokens are left out, so that an element that has one has tokens.
    if not any(len(source[i]) for i in range(len(source))):
        raise ValueError(f"{name}: there is no token in the text. Is it the right file or column?")
    if nsp and all(len(source[i]) < 2 for i in range(len(source))):
        raise ValueError(f"{name}: {_NEEDS_TWO.format(1)}")


def require_documents(source: Any, held_out: Any) -> None:
    """Raise a TypeError that says what to give, unless both are text in tokens."""
    give = "Give the Shards that write_shards returns, or a list of Documents"
    if isinstance(source, str | os.PathLike):
        raise TypeError(f"source is a path. {give}: kbert.pretraining.Shards({shown(str(source))}).")
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise TypeError(f"source is of type {type(source).__name__}, which has no tokens. {give}.")
    if len(source) and not isinstance(source[0], Documents):
        raise TypeError(f"source has elements of type {type(source[0]).__name__}. {give}.")
    if held_out is not None and not isinstance(held_out, Documents):
        raise TypeError(
            f"held_out is of type {type(held_out).__name__}. Give the Documents of one element: Shards(folder)[0]."
        )


def first_tokens(source: DocumentSource) -> Iterator[np.ndarray]:
    """The tokens of each element, until there are 10 million."""
    n_tokens = 0
    for number in range(len(source)):
        yield source[number].tokens
        n_tokens += len(source[number].tokens)
        if n_tokens > _ENOUGH:
            return


def warn_of_unknown(source: DocumentSource, tokenizer: WordPieceTokenizer, name: str) -> None:
    """Issue an UnknownWordsWarning where much of a text is [UNK], of which a model learns nothing."""
    n_tokens = n_unknown = 0
    for tokens in first_tokens(source):
        n_tokens += len(tokens)
        n_unknown += int(np.count_nonzero(tokens == tokenizer.unk_id))
    if n_unknown > _MUCH_UNKNOWN * n_tokens:
        warn_user(
            f"{percent(n_unknown / n_tokens)} of the tokens of {name} are [UNK]: words that the vocabulary lacks. A "
            "model learns nothing from them, and guesses them without effort, so that its scores look good. Learn a "
            "vocabulary from this text (weights=None, `kbert vocab`), or take weights for its language.",
            UnknownWordsWarning,
        )


def draw_pairs(documents: Documents, tokenizer: WordPieceTokenizer, max_length: int, seed: Seed) -> Instances:
    """Pairs of neighbouring and of random texts (Devlin et al., 2018, appendix A.2; ``create_pretraining_data.py``).

    A document is read in chunks, as many segments as fill ``max_length`` tokens, or, in one document of ten, a random
    shorter length. A chunk is cut between two segments at random. In half of the cases, and always where the chunk is
    one segment, b is text from a random position of another document and the chunk's second part is read again; in the
    others it is that second part. A document that is alone is its own other document, as in the original code. Pairs
    that are too long lose tokens of the longer text, from its front or its end.

    Parameters
    ----------
    documents : Documents
    tokenizer : WordPieceTokenizer
    max_length : int
        Greatest length in tokens, special ones included: at least 5.
    seed : int or sequence of int
        The same seed gives the same pairs.

    Returns
    -------
    Instances
    """
    sequence = np.random.SeedSequence(seed)
    draw = Random(int(sequence.generate_state(1, "uint64")[0])).random
    room, n_documents = max_length - 3, len(documents)
    segments, bounds = documents.segments.tolist(), documents.documents.tolist()
    found = []
    for document in range(n_documents):
        at, end = bounds[document], bounds[document + 1]
        target = room if draw() >= SHORT_SHARE else 2 + int(draw() * (room - 1))
        while at < end:
            # Segments from `at` to `stop` have at least `target` tokens, or are the rest of the document.
            stop = min(bisect_left(segments, segments[at] + target, at + 1, end), end)
            cut = at + 1 + int(draw() * (stop - at - 1))
            length = segments[cut] - segments[at]
            if stop - at == 1 or draw() < 0.5:
                other = int(draw() * (n_documents - 1))
                other += other >= document and n_documents > 1
                first, last = bounds[other], bounds[other + 1]
                begin = first + int(draw() * (last - first))
                finish = min(bisect_left(segments, segments[begin] + target - length, begin + 1, last), last)
                found.append((segments[at], length, segments[begin], segments[finish] - segments[begin], 1))
                at = cut
            else:
                found.append((segments[at], length, segments[cut], segments[stop] - segments[cut], 0))
                at = stop
    table = np.array(found, np.int64).reshape(-1, 5)
    starts, lengths = table[:, [0, 2]], table[:, [1, 3]]
    kept = np.stack(truncated_lengths(lengths[:, 0], lengths[:, 1], room), axis=1)
    # Each token that is removed is removed from the front or from the end, by the toss of a coin.
    starts = starts + np.random.default_rng(sequence).binomial(lengths - kept, 0.5)
    return Instances(tokenizer, documents.tokens, starts, kept, table[:, 4].astype(np.int32))


def draw_runs(documents: Documents, tokenizer: WordPieceTokenizer, max_length: int, seed: Seed) -> Instances:
    """Runs of text, each of one document, that together have every token once: for the masked LM alone.

    A document that is longer than ``max_length`` is cut into runs of that length; where the first cut is, is drawn.

    Parameters
    ----------
    documents : Documents
    tokenizer : WordPieceTokenizer
    max_length : int
        Greatest length in tokens, special ones included: at least 3.
    seed : int or sequence of int
        The same seed gives the same runs.

    Returns
    -------
    Instances
    """
    room = max_length - 2
    bounds = documents.segments[documents.documents]
    lengths = np.diff(bounds)
    rng = np.random.default_rng(seed)
    # By how many tokens the first run of a long document is shorter than the others.
    missing = np.where(lengths > room, rng.integers(0, room, len(lengths)), 0)
    n_runs = -((-lengths - missing) // room)
    document = np.repeat(np.arange(len(lengths)), n_runs)
    number = np.arange(len(document)) - row_splits(n_runs)[document]
    begins = np.maximum(number * room - missing[document], 0)
    ends = np.minimum((number + 1) * room - missing[document], lengths[document])
    starts, kept = bounds[document] + begins, ends - begins
    return Instances(tokenizer, documents.tokens, starts[:, None], kept[:, None], np.zeros(len(starts), np.int32))


def documents_of(texts: list[list[str]], tokenizer: WordPieceTokenizer) -> Documents:
    """Tokenise documents, each a list of its segments; segments and documents without a token are left out."""
    pieces: Ragged = tokenizer.tokenize_column([segment for document in texts for segment in document])
    of_document = np.repeat(np.arange(len(texts)), [len(document) for document in texts])
    kept = pieces.lengths > 0
    counts = np.bincount(of_document[kept], minlength=len(texts))
    return Documents(pieces.values, row_splits(pieces.lengths[kept]), row_splits(counts[counts > 0]))
