"""Predicting a column of texts, in the given order, in memory that does not grow with it."""

from collections import deque
from collections.abc import Iterable

import keras
import numpy as np

from kbert.data.batches import prediction_batches
from kbert.text import TokenSequences
from kbert.text.words import WordSequences
from kbert.training.loop import backend_step
from kbert.training.prefetch import prefetched

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
    predict = backend_step().predict
    results = np.zeros((n_rows, model.output_shape[-1]), "float32")
    under_way: deque = deque()

    def collect():
        rows, shares, filled, outputs = under_way.popleft()
        outputs = keras.ops.convert_to_numpy(outputs)[filled]
        # Not `results[rows] += ...`, which counts one only of several windows of a row.
        np.add.at(results, rows, outputs * shares[:, None])

    for inputs, *where in prefetched(_batches(parts, pad_id)):
        under_way.append((*where, predict(model, inputs)))
        if len(under_way) >= _UNDER_WAY:
            collect()
    while under_way:
        collect()
    return results


def _batches(parts: Iterable[TokenSequences], pad_id: int):
    """The inputs of each batch; of its texts the rows in the whole column and their shares in the result; its slots."""
    start = 0
    for part in parts:
        shares = (1 / np.bincount(part.rows)).astype("float32")
        for batch in prediction_batches(part, pad_id):
            filled = batch.texts >= 0
            rows = part.rows[batch.texts[filled]]
            yield batch.inputs, start + rows, shares[rows], filled
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
    predict = backend_step().predict
    results = np.zeros((words.n_words, model.output_shape[-1]), "float32")
    if not words.n_words:
        return results
    names = [tensor.name for tensor in model.inputs]
    under_way: deque = deque()

    def collect():
        numbers, outputs = under_way.popleft()
        here = numbers >= 0
        results[numbers[here]] = keras.ops.convert_to_numpy(outputs)[here]

    for batch in prefetched(prediction_batches(words.sequences, pad_id)):
        numbers = np.where(batch.tokens >= 0, words.words[batch.tokens], -1)
        under_way.append((numbers, predict(model, {name: batch.inputs[name] for name in names})))
        if len(under_way) >= _UNDER_WAY:
            collect()
    while under_way:
        collect()
    return results
