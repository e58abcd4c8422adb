"""How much each word of a text speaks for an output of the model: Shapley values, by taking words away.

The words of a text are put into a random order and replaced by the baseline token, one after the other. What the output
loses when a word goes is the word's score in this order; the score is the mean over some orders (Castro, Gómez and
Tejada, 2009, "Polynomial calculation of the Shapley value based on sampling"). In each order the losses add up to the
difference of the output between text and baseline, so the scores do too, whatever the number of orders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.text.ragged import Ragged
from kbert.text.sequences import Sequences, TokenSequences
from kbert.training.attributions import Attributions, Targets, Tokens
from kbert.training.predict import batch_outputs, batches_for, input_names

if TYPE_CHECKING:
    import keras


class Orders(NamedTuple):
    """In how many orders the words are taken away.

    Attributes
    ----------
    n : int
    """

    n: int

    def ranks(self, n_words: int) -> NDArray[np.int64]:
        """For each order, when each word goes; shape (n, n_words).

        They are the same for all texts of so many words, so that scores depend on nothing but the text. Every second
        order is the one before it, reversed: a word that goes early in one goes late in the other, and scores vary less
        (Mitchell et al., 2022, "Sampling Permutations for Shapley Value Estimation").
        """
        rng = np.random.default_rng(0)
        drawn = np.array([rng.permutation(n_words) for _ in range(-(-self.n // 2))], np.int64)
        return np.stack([drawn, n_words - 1 - drawn], axis=1).reshape(2 * len(drawn), n_words)[: self.n]


def shapley_values(
    model: keras.Model,
    sequences: Sequences,
    words: NDArray[np.int64],
    targets: Targets,
    orders: Orders,
    tokens: Tokens,
) -> Attributions:
    """Take the words of each target's sequence away.

    Parameters
    ----------
    model : keras.Model
        Gives (B, K, n_outputs) for the texts of a batch, or (B, T, n_outputs) for its tokens.
    sequences : TokenSequences or QuestionWindows
    words : ndarray of int64, shape (n_tokens,)
        The word of each token of all sequences; -1 on special tokens.
    targets : Targets
    orders : Orders
    tokens : Tokens

    Returns
    -------
    Attributions
        The score of a word stands at its first token.
    """
    scores: list[NDArray[np.float64]] = [np.zeros(0)] * len(targets.sequences)
    start, end = np.zeros((2, len(scores)))
    for sequence in np.unique(targets.sequences).tolist():
        numbers = np.flatnonzero(targets.sequences == sequence)
        of_tokens = words[slice(*sequences.splits[sequence : sequence + 2])]
        # The first is -1, since every sequence has special tokens.
        found, first, number = np.unique(of_tokens, return_index=True, return_inverse=True)
        ranks = orders.ranks(len(found) - 1)
        copies = _without(sequences.take(np.array([sequence])), number - 1, ranks, tokens.baseline)
        outputs = _outputs(model, copies, targets.outputs[numbers], targets.tokens[numbers])
        end[numbers], start[numbers] = outputs[:2]
        # Before the first word goes there is the text, and after the last one the baseline.
        course = np.empty((orders.n, ranks.shape[1] + 1, len(numbers)))
        course[:, -1], course[:, 0] = outputs[1], outputs[0]
        course[:, 1:-1] = outputs[2:].reshape(-1, orders.n, len(numbers)).swapaxes(0, 1)
        losses = np.take_along_axis(course[:, :-1] - course[:, 1:], ranks[..., None], axis=1).mean(axis=0)
        for i, of_words in zip(numbers.tolist(), losses.T, strict=True):
            scores[i] = np.zeros(len(of_tokens))
            scores[i][first[1:]] = of_words
    return Attributions(scores, start, end)


def _without(text: TokenSequences, words: NDArray[np.int64], ranks: NDArray[np.int64], baseline: int) -> TokenSequences:
    """Copies of a text: itself, the baseline, and the text without one word in each order, without two, and so on.

    ``words`` (n_tokens,) numbers the words from 0, and is -1 on special tokens.
    """
    n_words = ranks.shape[1]
    some = [ranks < n_gone for n_gone in range(1, n_words)]  # for each number, of all orders
    gone = np.concatenate([np.zeros((1, n_words), bool), np.ones((1, n_words), bool), *some])
    gone = np.concatenate([gone, np.zeros((len(gone), 1), bool)], axis=1)[:, words]  # the last column: special tokens
    copies = text.take(np.zeros(len(gone), np.int64))
    ids = np.where(gone.ravel(), baseline, copies.tokens.values)
    return TokenSequences(Ragged(ids, copies.splits), copies.first_length, copies.truncated, np.arange(len(gone)))


def _outputs(
    model: keras.Model, copies: TokenSequences, outputs: NDArray[np.int64], tokens: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Chosen outputs of each copy, each at its token where the model has outputs for tokens; (n_copies, n_outputs)."""
    of_texts = "first_positions" in input_names(model)
    chosen = np.zeros((len(copies), len(outputs)))
    batches = ((batch, batch.inputs) for batch in batches_for(model, copies))
    for batch, found in batch_outputs(model, batches):
        row, slot = np.nonzero(batch.texts >= 0)
        place = slot[:, None] if of_texts else batch.inputs["first_positions"][row, slot][:, None] + tokens
        chosen[batch.texts[row, slot]] = found[row[:, None], place, outputs]
    return chosen
