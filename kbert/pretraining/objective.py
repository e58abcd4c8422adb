"""The objective: the losses of the masked language model and of the next sentence, and the scores of each.

The targets and the weights of a batch (`PretrainingBatch`) are two dicts of arrays, which the training step of every
backend takes as they are:

- ``mlm`` (B, M): the tokens that the masks hide (int32), and what each weighs in the loss (float32);
- ``nsp`` (B, K): of each text of a row, 0 where its second part follows the first and 1 where that comes from elsewhere
  (int32), and its weight (float32). It is not read for a model without the head.

Empty slots have target 0 and weight 0. Letter key: B batch, V vocabulary, K texts per row, M masked tokens per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kbert.model.setup import ops
from kbert.training.step import Tensor

# Arrays of the backend by name.
Tensors: TypeAlias = Mapping[str, Tensor]
TASKS = ("mlm", "nsp")
REPORTED = ("loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")


def pretraining_losses(outputs: Tensors, targets: Tensors, weights: Tensors) -> Tensor:
    """The sum of both losses, in nats, and the loss and the accuracy of each task: a vector in the order of `REPORTED`.

    Parameters
    ----------
    outputs : dict of tensor
        Of `BertForPreTraining`: ``mlm_logits`` (B, M, V) and, with the next sentence, ``nsp_logits`` (B, K, 2). Without
        its head the two numbers of the next sentence are 0.
    targets, weights : dict of tensor
        ``mlm`` and, with the next sentence, ``nsp``. All numbers are weighted sums, means where the weights add up to
        1. As they are not divided here, those of a batch's parts, on several devices, add up to those of the batch.
    """
    parts: list[Tensor] = []
    for task in TASKS:
        if f"{task}_logits" in outputs:
            parts += _loss_and_right(outputs[f"{task}_logits"], targets[task], weights[task])
        else:
            parts += [ops.zeros(()), ops.zeros(())]
    return ops.stack([parts[0] + parts[2], *parts])


def score_sums(outputs: Tensors, targets: Tensors, weights: Tensors) -> dict[str, Tensor]:
    """Sums of the losses and of the right answers of one batch, for each task; `mean_scores` makes means of them.

    Every slot with a weight counts once, whatever the weights add up to, so that the weights of training serve too.

    Parameters
    ----------
    outputs, targets, weights : dict of tensor
        As in `pretraining_losses`.

    Returns
    -------
    dict of tensor, scalars
        ``mlm_loss`` and ``mlm_accuracy`` (sums) and ``mlm_count``; the same of ``nsp`` where the model has the head.
    """
    sums = {}
    for task in (task for task in TASKS if f"{task}_logits" in outputs):
        logits, wanted = outputs[f"{task}_logits"], ops.convert_to_tensor(targets[task])
        counted = ops.cast(ops.convert_to_tensor(weights[task]) > 0, "float32")
        sums[f"{task}_loss"], sums[f"{task}_accuracy"] = _loss_and_right(logits, wanted, counted)
        sums[f"{task}_count"] = ops.sum(counted)
    return sums


def mean_scores(batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """The scores of many batches from the `score_sums` of each.

    Returns
    -------
    dict of float
        ``mlm_loss`` in nats and ``mlm_accuracy``, means over all masked tokens, whose number is ``mlm_count``; the same
        of ``nsp`` over all texts. NaN where nothing was counted. ``loss`` is the sum of both losses.
    """
    totals: dict[str, float] = {}
    for sums in batches:
        for name, value in sums.items():
            # In double precision: float32 would lose single tokens among millions.
            totals[name] = totals.get(name, 0.0) + float(value)
    scores = {"loss": 0.0}
    for task in TASKS:
        if f"{task}_count" in totals:
            count = totals[f"{task}_count"]
            for name in (f"{task}_loss", f"{task}_accuracy"):
                scores[name] = totals[name] / count if count else float("nan")
            scores[f"{task}_count"] = count
            scores["loss"] += scores[f"{task}_loss"]
    return scores


def _loss_and_right(logits: Tensor, wanted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted sums of the losses and of the right answers, two scalars."""
    right = ops.equal(ops.cast(ops.argmax(logits, axis=-1), wanted.dtype), wanted)
    return ops.sum(_cross_entropy(logits, wanted) * weights), ops.sum(ops.cast(right, "float32") * weights)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of each slot in nats, shape (...), of logits (..., C) and targets (...).

    Keras's sparse form. A one-hot array of the targets would be as large as the logits, (B, M, V), which are the
    largest array of a step; PyTorch and TensorFlow have fused kernels for this, and XLA makes the one-hot rows inside
    the loop that sums them, on the fly. Of matrices, since Keras moves the classes of other arrays to the second axis,
    for which PyTorch copies all logits into another order.
    """
    losses = ops.sparse_categorical_crossentropy(
        ops.reshape(targets, (-1,)), ops.reshape(logits, (-1, logits.shape[-1])), from_logits=True
    )
    return ops.reshape(losses, ops.shape(targets))
