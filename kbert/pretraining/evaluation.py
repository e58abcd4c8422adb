"""The scores of a model on text that it is not trained on, under instances and masks that are always the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kbert.model import BertForPreTraining
from kbert.pretraining.batches import PretrainingBatch, batches_of
from kbert.pretraining.instances import Documents, draw_pairs, draw_runs
from kbert.pretraining.masking import NO_WORD_FITS, Masking
from kbert.pretraining.objective import REPORTED, TASKS, mean_scores, score_sums
from kbert.text import WordPieceTokenizer
from kbert.training.backends import backend_step
from kbert.training.step import StepBatch, Tensor

# Tells the seeds of instances and masks from those of training.
_SEED = 10**6


def require_words_that_fit(
    tokenizer: WordPieceTokenizer, documents: Documents, masking: Masking, max_length: int, nsp: bool, name: str
) -> None:
    """Raise a ValueError where no word of a text, which the message calls ``name``, can be masked as a whole."""
    if masking.whole_word:
        batches = held_out_batches(tokenizer, documents, masking, 32, max_length, nsp)
        if not any(batch.n_masked for batch in batches):
            raise ValueError(f"{name}: there is no word to predict. {NO_WORD_FITS}")


def held_out_scores(
    model: BertForPreTraining,
    tokenizer: WordPieceTokenizer,
    documents: Documents,
    masking: Masking,
    batch_size: int,
    max_length: int,
) -> dict[str, float]:
    """Losses and accuracies on documents, under instances and masks that are always the same.

    Returns
    -------
    dict of float
        ``loss``, ``mlm_loss``, ``mlm_accuracy`` and, with the next sentence, ``nsp_loss`` and ``nsp_accuracy``.
    """
    return scores_on(
        model, held_out_batches(tokenizer, documents, masking, batch_size, max_length, model.choices["nsp"])
    )


def scores_on(model: BertForPreTraining, batches: Iterable[PretrainingBatch]) -> dict[str, float]:
    """The same losses and accuracies on given batches."""
    predict = backend_step().predictor(model)

    def sums(batch: PretrainingBatch) -> dict[str, Tensor]:
        return score_sums(predict(step_batch(model, batch).inputs), batch.targets, batch.weights)

    scores = mean_scores(sums(batch) for batch in batches)
    return {name: scores[name] for name in REPORTED if name in scores}


def held_out_batches(
    tokenizer: WordPieceTokenizer,
    documents: Documents,
    masking: Masking,
    batch_size: int,
    max_length: int,
    nsp: bool = True,
) -> Iterator[PretrainingBatch]:
    """The batches under which documents are evaluated: always the same."""
    draw = draw_pairs if nsp else draw_runs
    instances = draw(documents, tokenizer, max_length, [_SEED, 0])
    return batches_of(instances, masking, batch_size, max_length, [_SEED, 1])


def step_batch(model: BertForPreTraining, batch: PretrainingBatch) -> StepBatch:
    """Inputs, targets and weights, as far as the model has heads for them."""
    tasks = TASKS if model.choices["nsp"] else TASKS[:1]
    return StepBatch(
        {tensor.name: batch.inputs[tensor.name] for tensor in model.inputs},
        {task: batch.targets[task] for task in tasks},
        {task: batch.weights[task] for task in tasks},
    )
