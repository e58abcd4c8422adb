"""How much each token of a text speaks for an output of the model: integrated gradients over the word embeddings.

Every word embedding goes on a straight line from that of a baseline token to its own, all at once; position and segment
embeddings stay, and so do the special tokens, which therefore have no part in the difference. The score of a token is
the integral over the way of the output's derivative by this token's share of the way (Sundararajan, Taly and Yan, 2017,
"Axiomatic Attribution for Deep Networks", equation 1, summed over the numbers of a vector). The scores of a text add up
to the difference of the output between text and baseline, as nearly as the integral is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kbert.data.batches import Batch, prediction_batches
from kbert.text.sequences import Sequences, TokenSequences
from kbert.training.backends import backend_step
from kbert.training.memory import memory_kept
from kbert.training.predict import input_names
from kbert.training.segments import check_segments

if TYPE_CHECKING:
    import keras

# Tokens of a batch: fewer than when predicting, since backpropagation keeps what every layer computes. Batches of up to
# 4,096 were no faster on a CPU.
_BATCH_TOKENS = 1024
# Points on the ways of all outputs that are worked on at a time.
_POINTS_AT_ONCE = 4096


class Path(NamedTuple):
    """The points on the way from the baseline to the text at which derivatives are taken, and their weights.

    Attributes
    ----------
    shares : ndarray of float32, shape (n_points,)
        0 is the baseline and 1 the text.
    weights : ndarray of float64, shape (n_points,)
    """

    shares: NDArray[np.float32]
    weights: NDArray[np.float64]

    @classmethod
    def integral(cls, n_points: int) -> Path:
        """The trapezoidal rule, with at least 2 points.

        On BERT it came as near as Gauss-Legendre's rule with as many points, and its ends are baseline and text, whose
        outputs tell how near (docs/benchmarks/explanations.md).
        """
        weights = np.full(n_points, 1 / (n_points - 1))
        weights[[0, -1]] /= 2
        return cls(np.linspace(0, 1, n_points, dtype="float32"), weights)

    @classmethod
    def end(cls) -> Path:
        """The text alone, which gives gradient x input, the input being counted from the baseline."""
        return cls(np.ones(1, "float32"), np.ones(1))


class Tokens(NamedTuple):
    """The token ids that are not words.

    Attributes
    ----------
    baseline, cls, sep : int
    """

    baseline: int
    cls: int
    sep: int


class Targets(NamedTuple):
    """Outputs to be explained, one for each entry.

    Attributes
    ----------
    sequences : ndarray of int, shape (n_targets,)
        The number of the sequence.
    outputs : ndarray of int, shape (n_targets,)
        Which of the model's outputs.
    tokens : ndarray of int, shape (n_targets,)
        The token of the sequence whose output it is; of no meaning where the model has outputs for whole texts.
    """

    sequences: NDArray[np.int64]
    outputs: NDArray[np.int64]
    tokens: NDArray[np.int64]


class Attributions(NamedTuple):
    """What some targets owe to the tokens of their sequences.

    Attributes
    ----------
    scores : list of ndarray of float64, shape (n_tokens,)
        For each target, of the tokens of its sequence; 0 on the special ones.
    start, end : ndarray of float64, shape (n_targets,)
        The output at the first point of the path and at the last one, which is the text.
    """

    scores: list[NDArray[np.float64]]
    start: NDArray[np.float64]
    end: NDArray[np.float64]


def attributions(
    model: keras.Model, sequences: Sequences, targets: Targets, path: Path, tokens: Tokens
) -> Attributions:
    """Follow each target along the path.

    All points of all targets are texts of their own: they are packed into batches as texts are when predicting, which
    serves one short text as well as a column.

    Parameters
    ----------
    model : keras.Model
        Gives (B, K, n_outputs) for the texts of a batch, or (B, T, n_outputs) for its tokens.
    sequences : TokenSequences or QuestionWindows
    targets : Targets
    path : Path
    tokens : Tokens
    """
    run = _Run(model, tokens)
    n_targets, n_points = len(targets.sequences), len(path.shares)
    scores: list[NDArray[np.float64]] = []
    outputs = np.zeros((n_targets, n_points))
    step = max(1, _POINTS_AT_ONCE // n_points)
    with memory_kept(trim=False):
        for first in range(0, n_targets, step):
            some = Targets(*(array[first : first + step] for array in targets))
            found, derivatives = run.points(sequences.take(np.repeat(some.sequences, n_points)), some, path.shares)
            outputs[first : first + step] = found
            scores += [path.weights @ of_target for of_target in derivatives]
    return Attributions(scores, outputs[:, 0], outputs[:, -1])


class _Run:
    """One call's way through the backend."""

    def __init__(self, model: keras.Model, tokens: Tokens):
        self.model, self.tokens = model, tokens
        self.names = input_names(model)
        self.of_texts = "first_positions" in self.names
        self.n_outputs = model.output_shape[-1]
        from kbert.model.parts import blended_model

        self.differentiate = backend_step().differentiator(blended_model(model), "shares")

    def points(
        self, texts: TokenSequences, targets: Targets, shares: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], Iterator[NDArray[np.float64]]]:
        """Outputs (n_targets, n_points), and for each target the derivatives (n_points, n_tokens) by its tokens.

        ``texts`` are the targets' sequences, each once for every point.
        """
        from kbert.model.base import to_numpy

        n_targets, n_points = len(targets.sequences), len(shares)
        outputs = np.zeros((n_targets, n_points))
        derivatives = np.zeros(len(texts.tokens.values))
        for batch in prediction_batches(texts, _BATCH_TOKENS):
            row, slot = np.nonzero(batch.texts >= 0)
            target, point = np.divmod(batch.texts[row, slot], n_points)
            position = slot if self.of_texts else batch.inputs["first_positions"][row, slot] + targets.tokens[target]
            chosen = np.zeros(
                (*(batch.texts if self.of_texts else batch.tokens).shape, self.n_outputs), dtype="float32"
            )
            chosen[row, position, targets.outputs[target]] = 1
            inputs = self._inputs(batch, shares)
            found, by_share = map(to_numpy, self.differentiate(inputs, chosen))
            outputs[target, point] = found[row, position]
            is_token = batch.tokens >= 0
            derivatives[batch.tokens[is_token]] = by_share[is_token]
        bounds = texts.splits[::n_points]
        of_targets = (
            derivatives[start:end].reshape(n_points, -1) for start, end in zip(bounds[:-1], bounds[1:], strict=True)
        )
        return outputs, of_targets

    def _inputs(self, batch: Batch, shares: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
        """What `BlendedModel` takes of a batch."""
        check_segments(self.model, batch.inputs["segment_ids"])
        ids = batch.inputs["token_ids"]
        # No word of a text has these ids: a tokenizer reads "[SEP]" in a text as characters.
        stays = np.isin(ids, (self.tokens.cls, self.tokens.sep))
        of_slots = np.where(batch.texts >= 0, shares[batch.texts % len(shares)], 0)
        of_tokens = np.take_along_axis(of_slots, np.maximum(batch.inputs["text_ids"] - 1, 0), axis=1)
        return {
            **batch.inputs_of(self.names),
            "baseline_ids": np.where(stays, ids, self.tokens.baseline).astype("int32"),
            "shares": of_tokens.astype("float32"),
        }
