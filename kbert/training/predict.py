"""Predicting a column of texts, in the given order, in memory that does not grow with it."""

from collections import deque
from collections.abc import Iterable

import keras
import numpy as np

from kbert.data.batches import prediction_batches
from kbert.text import TokenSequences
from kbert.training.loop import backend_step
from kbert.training.prefetch import prefetched

# Batches whose results may be under way at once.
_UNDER_WAY = 4


def predict_logits(model: keras.Model, parts: Iterable[TokenSequences], n_texts: int, pad_id: int) -> np.ndarray:
    """The model's output for each text.

    Parameters
    ----------
    model : keras.Model
    parts : iterable of TokenSequences
        The column, some thousand texts at a time; made while the batches before are computed.
    n_texts : int
        Texts in all parts together.
    pad_id : int
        Token id of the padding.

    Returns
    -------
    ndarray of float32, shape (n_texts, n_outputs)
        Row i is text i.
    """
    predict = backend_step().predict
    results = np.empty((n_texts, model.num_labels), "float32")
    under_way: deque = deque()

    def collect():
        texts, outputs = under_way.popleft()
        filled = texts >= 0
        results[texts[filled]] = keras.ops.convert_to_numpy(outputs)[filled]

    for batch, texts in prefetched(_batches(parts, pad_id)):
        under_way.append((texts, predict(model, batch.inputs)))
        if len(under_way) >= _UNDER_WAY:
            collect()
    while under_way:
        collect()
    return results


def _batches(parts: Iterable[TokenSequences], pad_id: int):
    """Each batch, and its texts by their numbers in the whole column."""
    start = 0
    for part in parts:
        for batch in prediction_batches(part, pad_id):
            yield batch, np.where(batch.texts >= 0, batch.texts + start, -1)
        start += len(part)
