"""Predicting a column of texts, in the given order, in memory that does not grow with it."""

from collections import deque

import keras
import numpy as np

from kbert.data.batches import prediction_batches
from kbert.text import TokenSequences
from kbert.training.loop import backend_step

# Batches whose results may be under way at once.
_UNDER_WAY = 4


def predict_logits(model: keras.Model, sequences: TokenSequences, pad_id: int) -> np.ndarray:
    """The model's output for each text, float32, shape (n_texts, n_outputs); row i is text i."""
    predict = backend_step().predict
    results = np.empty((len(sequences), model.num_labels), "float32")
    under_way: deque = deque()

    def collect():
        texts, outputs = under_way.popleft()
        filled = texts >= 0
        results[texts[filled]] = keras.ops.convert_to_numpy(outputs)[filled]

    for batch in prediction_batches(sequences, pad_id):
        under_way.append((batch.texts, predict(model, batch.inputs)))
        if len(under_way) >= _UNDER_WAY:
            collect()
    while under_way:
        collect()
    return results
