"""Predicting a column of texts, in the given order, in memory that does not grow with it."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np

from kbert.data.batches import Batch, prediction_batches
from kbert.data.packing import Layout
from kbert.data.spans import SpanReader
from kbert.model.base import INPUT_NAMES
from kbert.text.sequences import Sequences
from kbert.text.words import WordSequences
from kbert.training.backends import backend_step
from kbert.training.distribution import prediction_devices
from kbert.training.finite_outputs import require_finite
from kbert.training.memory import memory_kept
from kbert.training.prefetch import prefetched
from kbert.training.progress import count_predicted, is_counted
from kbert.training.segments import check_segments
from kbert.training.step import Predictor, Tensor

# Batches that each device may be computing at once.
_IN_FLIGHT = 4

Note = TypeVar("Note")


def predict_logits(model: keras.Model, chunks: Iterable[Sequences], n_rows: int, pad_id: int) -> np.ndarray:
    """The model's output for each row: for a row in several windows, the mean of theirs.

    Parameters
    ----------
    model : keras.Model
        Gives (B, K, n_outputs) for the texts of a batch.
    chunks : iterable of TokenSequences
        The column, some thousand rows at a time. The next chunk is made while the batches of this one are computed.
    n_rows : int
        Rows in all chunks together.
    pad_id : int
        Token id of the padding.

    Returns
    -------
    ndarray of float32, shape (n_rows, n_outputs)

    Raises
    ------
    DivergedError
        When an output is not a finite number; so also from the two functions below.
    """
    results = np.zeros((n_rows, model.output_shape[-1]), "float32")
    for texts, outputs in batch_outputs(model, _batches(chunks, pad_id)):
        # Not `results[rows] += ...`, which counts one only of several windows of a row.
        np.add.at(results, texts.rows, outputs[texts.slots] * texts.shares[:, None])
        count_predicted(float(texts.shares.sum()), of=n_rows)
    require_finite(np.asarray(np.isfinite(results).all(axis=1)))
    return results


class _Texts(NamedTuple):
    """The texts of a batch: their rows in the whole column, their shares in the rows' results, and the filled slots."""

    rows: np.ndarray
    shares: np.ndarray
    slots: np.ndarray


def _batches(chunks: Iterable[Sequences], pad_id: int) -> Iterator[tuple[_Texts, dict[str, np.ndarray]]]:
    first_row = 0
    for chunk in chunks:
        share_of_row = (1 / np.bincount(chunk.rows)).astype("float32")
        for batch in prediction_batches(chunk, pad_id):
            slots = batch.texts >= 0
            rows = chunk.rows[batch.texts[slots]]
            yield _Texts(first_row + rows, share_of_row[rows], slots), batch.inputs
        first_row += chunk.n_rows


def predict_words(model: keras.Model, words: WordSequences, pad_id: int, first_row: int = 0) -> np.ndarray:
    """The model's output for each word, at its first token.

    Parameters
    ----------
    model : keras.Model
        Gives (B, T, n_outputs).
    words : WordSequences
    pad_id : int
        Token id of the padding.
    first_row : int, default=0
        What errors call the first row.

    Returns
    -------
    ndarray of float32, shape (n_words, n_outputs)
    """
    results = np.zeros((words.n_words, model.output_shape[-1]), "float32")
    if not words.n_words:
        return results
    batches = ((batch, batch.inputs) for batch in prediction_batches(words.sequences, pad_id))
    for batch, outputs in batch_outputs(model, batches):
        numbers = np.where(batch.tokens >= 0, words.words[batch.tokens], -1)
        is_word = numbers >= 0
        results[numbers[is_word]] = outputs[is_word]
        _count_windows(batch, words.sequences)
    finite = np.isfinite(results).all(axis=1)
    if not finite.all():
        row_of_word = np.repeat(np.arange(words.n_rows), np.diff(words.splits))
        require_finite(np.bincount(row_of_word, ~finite, words.n_rows) == 0, first_row)
    return results


def predict_spans(model: keras.Model, reader: SpanReader, pad_id: int, first_row: int = 0) -> None:
    """Let a reader take in the model's outputs for all of its windows.

    Parameters
    ----------
    model : keras.Model
        Gives (B, T, 2).
    reader : SpanReader
    pad_id : int
        Token id of the padding.
    first_row : int, default=0
        What errors call the first row.
    """
    batches = ((batch, batch.inputs) for batch in prediction_batches(reader.windows, pad_id))
    for batch, outputs in batch_outputs(model, batches):
        row, position = np.nonzero(~np.isfinite(outputs).all(axis=-1) & (batch.tokens >= 0))
        if len(row):
            finite = np.ones(reader.windows.n_rows, bool)
            finite[reader.windows.rows[batch.texts[row, batch.inputs["text_ids"][row, position] - 1]]] = False
            require_finite(finite, first_row)
        reader.read(batch, outputs)
        _count_windows(batch, reader.windows)


def _count_windows(batch: Batch, windows: Sequences) -> None:
    """Tell the progress bar of a batch of windows, each of which is a share of its row."""
    if is_counted():
        rows = windows.rows[batch.texts[batch.texts >= 0]]
        count_predicted(float((1 / np.bincount(windows.rows)[rows]).sum()))


def predict_padding(model: keras.Model, layout: Layout) -> None:
    """Let a model compute a batch of padding alone, so that what such batches need is compiled."""
    shapes = dict.fromkeys(INPUT_NAMES, (layout.rows, layout.length)) | {"first_positions": (layout.rows, layout.slots)}
    inputs = {tensor.name: np.zeros(shapes[tensor.name], "int32") for tensor in model.inputs}
    keras.ops.convert_to_numpy(predictor(model)(inputs))


def predictor(model: keras.Model | Predictor) -> Predictor:
    """A function from a batch's inputs to a model's outputs; one that stands in for a Keras model is called itself."""
    return backend_step().predictor(model, prediction_devices()) if isinstance(model, keras.Model) else model


def batch_outputs(
    model: Any, batches: Iterable[tuple[Note, dict[str, np.ndarray]]]
) -> Iterator[tuple[Note, np.ndarray]]:
    """The model's output for each batch, beside what came with it, in order; some are computed ahead."""
    predict = predictor(model)
    names = [tensor.name for tensor in model.inputs]
    in_flight: deque[tuple[Note, Tensor]] = deque()
    most_in_flight = _IN_FLIGHT * max(1, len(prediction_devices()))

    def oldest() -> tuple[Note, np.ndarray]:
        note, outputs = in_flight.popleft()
        return note, keras.ops.convert_to_numpy(outputs)

    with ExitStack() as stack:
        for i, (note, inputs) in enumerate(prefetched(batches)):
            if i == 1:  # one batch, perhaps of one text, is done before this would pay
                stack.enter_context(memory_kept(trim=False))
            check_segments(model, inputs["segment_ids"])
            in_flight.append((note, predict({name: inputs[name] for name in names})))
            if len(in_flight) >= most_in_flight:
                yield oldest()
        while in_flight:
            yield oldest()
