"""Predicting a column of texts, in the given order, in memory that does not grow with it."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import keras
import numpy as np

from kbert.data.batches import prediction_batches
from kbert.data.spans import SpanReader
from kbert.text import TokenSequences
from kbert.text.words import WordSequences
from kbert.training.memory import memory_kept
from kbert.training.prefetch import prefetched
from kbert.training.segments import check_segments
from kbert.training.step import backend_step

# Batches whose results may be under way at once.
_UNDER_WAY = 4


def predict_logits(model: keras.Model, parts: Iterable[TokenSequences], n_rows: int, pad_id: int) -> np.ndarray:
    """The model's output for each row: of a row in several windows, the mean of theirs.

    Parameters
    ----------
    model : keras.Model
        Gives (B, K, n_outputs) for the texts of a batch.
    parts : iterable of TokenSequences
        The column, some thousand rows at a time; made while the batches before are computed.
    n_rows : int
        Rows in all parts together.
    pad_id : int
        Token id of the padding.

    Returns
    -------
    ndarray of float32, shape (n_rows, n_outputs)
    """
    results = np.zeros((n_rows, model.output_shape[-1]), "float32")
    for (rows, shares, filled), outputs in _outputs(model, _batches(parts, pad_id)):
        # Not `results[rows] += ...`, which counts one only of several windows of a row.
        np.add.at(results, rows, outputs[filled] * shares[:, None])
    return results


def _batches(parts: Iterable[TokenSequences], pad_id: int):
    """Of each batch's texts the rows in the whole column, their shares in the result, and the slots; and the inputs."""
    start = 0
    for part in parts:
        shares = (1 / np.bincount(part.rows)).astype("float32")
        for batch in prediction_batches(part, pad_id):
            filled = batch.texts >= 0
            rows = part.rows[batch.texts[filled]]
            yield (start + rows, shares[rows], filled), batch.inputs
        start += part.n_rows


def predict_words(model: keras.Model, words: WordSequences, pad_id: int) -> np.ndarray:
    """The model's output at each word's place.

    Parameters
    ----------
    model : keras.Model
        Gives (B, T, n_outputs).
    words : WordSequences
    pad_id : int
        Token id of the padding.

    Returns
    -------
    ndarray of float32, shape (n_words, n_outputs)
    """
    results = np.zeros((words.n_words, model.output_shape[-1]), "float32")
    if not words.n_words:
        return results
    batches = ((batch, batch.inputs) for batch in prediction_batches(words.sequences, pad_id))
    for batch, outputs in _outputs(model, batches):
        numbers = np.where(batch.tokens >= 0, words.words[batch.tokens], -1)
        here = numbers >= 0
        results[numbers[here]] = outputs[here]
    return results


def predict_spans(model: keras.Model, reader: SpanReader, pad_id: int) -> None:
    """Let a reader take in the model's outputs for all of its windows.

    Parameters
    ----------
    model : keras.Model
        Gives (B, T, 2).
    reader : SpanReader
    pad_id : int
        Token id of the padding.
    """
    batches = ((batch, batch.inputs) for batch in prediction_batches(reader.windows, pad_id))
    for batch, outputs in _outputs(model, batches):
        reader.read(batch, outputs)


def predictor(model):
    """A function from a batch's inputs to a model's outputs; one that stands in for a Keras model is called itself."""
    return backend_step().predictor(model) if isinstance(model, keras.Model) else model


def _outputs(model: keras.Model, batches: Iterable[tuple[Any, dict[str, np.ndarray]]]) -> Iterator:
    """What belongs to each batch, and the model's output for it, in order; some are computed ahead."""
    predict = predictor(model)
    names = [tensor.name for tensor in model.inputs]
    under_way: deque = deque()

    def collect():
        what, outputs = under_way.popleft()
        return what, keras.ops.convert_to_numpy(outputs)

    with ExitStack() as stack:
        for i, (what, inputs) in enumerate(prefetched(batches)):
            if i == 1:  # one batch, perhaps of one text, is done before this would pay
                stack.enter_context(memory_kept(trim=False))
            check_segments(model, inputs["segment_ids"])
            under_way.append((what, predict({name: inputs[name] for name in names})))
            if len(under_way) >= _UNDER_WAY:
                yield collect()
        while under_way:
            yield collect()
