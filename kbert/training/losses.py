"""Losses over the slots of a packed batch. Each gives the mean over the batch's texts."""

from __future__ import annotations

from kbert.training.step import Tensor


def softmax_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy in nats.

    Parameters
    ----------
    logits : tensor, shape (B, K, C)
    targets : tensor of int32, shape (B, K)
        Class of each slot.
    weights : tensor of float32, shape (B, K)
        The text's weight divided by the number of weighted texts in the batch; 0 in empty slots.
    """
    from kbert.model.base import one_hot
    from kbert.model.setup import ops

    log_probabilities = ops.log_softmax(logits, axis=-1)
    right = one_hot(targets, logits.shape[-1], log_probabilities.dtype)
    return -ops.sum(ops.sum(log_probabilities * right, axis=-1) * weights)


def binary_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy of each label's own yes or no in nats, its mean over the labels.

    Parameters
    ----------
    logits : tensor, shape (B, K, C)
    targets : tensor of float32, shape (B, K, C)
        The weight of each label, positive where the text has the label and negative where it has not.
    weights : tensor of float32, shape (B, K)
        As in `softmax_cross_entropy`.
    """
    from kbert.model.setup import ops

    losses = ops.abs(targets) * ops.softplus(-ops.sign(targets) * logits)
    return ops.sum(ops.mean(losses, axis=-1) * weights)


# Stands for minus infinity, under which the loss of an empty slot would be NaN.
_NEVER = -1e9


def choice_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy in nats of the softmax over each question's options, which may be in any slots.

    Parameters
    ----------
    logits : tensor, shape (B, K, 1)
        The score of each option.
    targets : tensor of int32, shape (B, K)
        The number of each option's question, from 1; 0 in empty slots.
    weights : tensor of float32, shape (B, K)
        The question's weight in the slot of its right option; 0 in all other slots.
    """
    from kbert.model.base import constant
    from kbert.model.setup import ops

    scores, questions, weights = (ops.reshape(values, (-1,)) for values in (logits, targets, weights))  # (B * K,)
    # Every slot with every other. Sums by question would be smaller, but a GPU adds them up in an order of its own.
    together = ops.equal(questions[:, None], questions[None])  # (B * K, B * K)
    totals = ops.logsumexp(ops.where(together, scores[None], constant(_NEVER, "float32")), axis=1)
    return ops.sum((totals - scores) * weights)


# Over which the cosines are divided: the one of Khosla et al. (2020), section 4.
_CONTRAST_TEMPERATURE = 0.1


def supervised_contrast(vectors: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Supervised contrastive loss in nats: each text's vector is to be near those of its class (Khosla et al., 2020).

    For each text: the mean, over the other texts of its class in the batch, of the cross-entropy of telling that one
    from all other texts by its cosine. Only the directions of the vectors count.

    Parameters
    ----------
    vectors : tensor, shape (B, K, D)
    targets : tensor of int32, shape (B, K)
        Class of each slot.
    weights : tensor of float32, shape (B, K)
        As in `softmax_cross_entropy`. Texts without weight, or alone with their class, have no loss.
    """
    from kbert.model.base import constant
    from kbert.model.setup import ops

    vectors = ops.reshape(vectors, (-1, vectors.shape[-1]))  # (B * K, D)
    classes, weights = ops.reshape(targets, (-1,)), ops.reshape(weights, (-1,))  # (B * K,)
    # At least 1e-12, since the square root of 0, in slots without a text, has no derivative.
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    vectors = vectors / ops.sqrt(ops.maximum(squares, constant(1e-12, "float32")))
    cosines = ops.matmul(vectors, ops.transpose(vectors)) / _CONTRAST_TEMPERATURE  # (B * K, B * K)
    numbers = ops.arange(ops.shape(classes)[0])
    is_other = ops.logical_and(numbers[:, None] != numbers[None], weights[None] > 0)
    log_probabilities = ops.log_softmax(ops.where(is_other, cosines, constant(_NEVER, "float32")), axis=-1)
    alike = ops.cast(ops.logical_and(is_other, ops.equal(classes[:, None], classes[None])), "float32")
    n_alike = ops.sum(alike, axis=-1)
    sums = ops.sum(ops.where(alike > 0, log_probabilities, ops.zeros((), "float32")), axis=-1)
    losses = -sums / ops.maximum(n_alike, constant(1, "float32"))
    return ops.sum(losses * weights)


def squared_error(outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted squared error, its mean over the columns of numbers.

    Parameters
    ----------
    outputs : tensor, shape (B, K, C)
    targets : tensor of float32, shape (B, K, C)
    weights : tensor of float32, shape (B, K)
        As in `softmax_cross_entropy`.
    """
    from kbert.model.setup import ops

    return ops.sum(ops.mean(ops.square(outputs - targets), axis=-1) * weights)


def span_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy in nats of the answer's first and last token, the mean of both, each text by itself.

    Parameters
    ----------
    logits : tensor, shape (B, T, 2)
        Each token's score as the first and as the last token of the answer.
    targets : tensor of int32, shape (B, K, 4)
        For the text in each slot, positions in the row: first and last token of the answer, first and last token of the
        text. Without an answer, the first token of the text stands for both.
    weights : tensor of float32, shape (B, K)
        As in `softmax_cross_entropy`.
    """
    from kbert.model.base import constant
    from kbert.model.setup import ops

    never, nothing = constant(_NEVER, "float32"), ops.zeros((), "float32")
    positions = ops.arange(ops.shape(logits)[1], dtype="int32")  # (T,)
    inside = ops.logical_and(positions >= targets[:, :, 2:3], positions <= targets[:, :, 3:4])  # (B, K, T)
    losses = 0.0
    for side in (0, 1):
        scores = logits[:, None, :, side]  # (B, 1, T)
        own = ops.where(inside, scores, never)  # (B, K, T)
        right = ops.equal(positions, targets[:, :, side : side + 1])
        losses += ops.logsumexp(own, axis=-1) - ops.sum(ops.where(right, scores, nothing), axis=-1)
    return ops.sum(losses / 2 * weights)
