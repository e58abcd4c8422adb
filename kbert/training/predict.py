"""Predicting a column of texts, in the given order, in memory that does not grow with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from kbert.data.batches import Batch, padded_batches, prediction_batches
from kbert.data.packing import Layout
from kbert.data.spans import SpanReader
from kbert.model.names import INPUT_NAMES
from kbert.text.sequences import Sequences
from kbert.text.words import WordSequences
from kbert.training.backends import backend_step, takes_any_shape, tokens_at_once
from kbert.training.distribution import prediction_devices
from kbert.training.finite_outputs import require_finite
from kbert.training.memory import memory_kept
from kbert.training.prefetch import prefetched
from kbert.training.progress import count_predicted, is_counted
from kbert.training.segments import check_segments
from kbert.training.step import Predictor, Tensor
from kbert.weights.runtimes import ExportedModel

if TYPE_CHECKING:
    import keras

# Batches that each device may be computing at once.
_IN_FLIGHT = 4

Note = TypeVar("Note")


def predict_logits(
    model: keras.Model | ExportedModel,
    chunks: Iterable[Sequences],
    n_rows: int,
    rows_in_errors: np.ndarray | None = None,
) -> np.ndarray:
    """The model's output for each row: for a row in several windows, the mean of theirs.

    Parameters
    ----------
    model : keras.Model or ExportedModel
        Gives (B, K, n_outputs) for the texts of a batch.
    chunks : iterable of TokenSequences
        The column, some thousand rows at a time. The next chunk is made while the batches of this one are computed.
    n_rows : int
        Rows in all chunks together.
    rows_in_errors : ndarray of int, shape (n_rows,), optional
        What errors count each row as, ascending from 0; several may be one. By default each is its own.

    Returns
    -------
    ndarray of float32, shape (n_rows, n_outputs)

    Raises
    ------
    DivergedError
        When an output is not a finite number; so also from the two functions below.
    """
    results = np.zeros((n_rows, model.output_shape[-1]), "float32")
    for texts, outputs in batch_outputs(model, _texts_of_batches(model, chunks)):
        # Not `results[rows] += ...`, which counts one only of several windows of a row.
        np.add.at(results, texts.rows, outputs[texts.slots] * texts.shares[:, None])
        count_predicted(float(texts.shares.sum()), of=n_rows)
    finite = np.asarray(np.isfinite(results).all(axis=1))
    require_finite(finite if rows_in_errors is None else np.bincount(rows_in_errors, ~finite) == 0)
    return results


class _Texts(NamedTuple):
    """The texts of a batch: their rows in the whole column, their shares in the rows' results, and the filled slots."""

    rows: np.ndarray
    shares: np.ndarray
    slots: np.ndarray


def _texts_of_batches(
    model: keras.Model | ExportedModel, chunks: Iterable[Sequences]
) -> Iterator[tuple[_Texts, dict[str, np.ndarray]]]:
    first_row = 0
    for chunk in chunks:
        share_of_row = (1 / np.bincount(chunk.rows)).astype("float32")
        for batch in batches_for(model, chunk):
            slots = batch.texts >= 0
            rows = chunk.rows[batch.texts[slots]]
            yield _Texts(first_row + rows, share_of_row[rows], slots), batch.inputs
        first_row += chunk.n_rows


def batches_for(model: keras.Model | ExportedModel, sequences: Sequences) -> Iterator[Batch]:
    """The batches in which a model predicts: packed for a Keras model, padded for an exported one."""
    if isinstance(model, ExportedModel):
        return padded_batches(sequences)
    return prediction_batches(sequences, tokens_at_once(model), takes_any_shape())


def predict_words(model: keras.Model | ExportedModel, words: WordSequences, first_row: int = 0) -> np.ndarray:
    """The model's output for each word, at its first token.

    Parameters
    ----------
    model : keras.Model or ExportedModel
        Gives (B, T, n_outputs).
    words : WordSequences
    first_row : int, default=0
        What errors call the first row.

    Returns
    -------
    ndarray of float32, shape (n_words, n_outputs)
    """
    results = np.zeros((words.n_words, model.output_shape[-1]), "float32")
    if not words.n_words:
        return results
    batches = ((batch, batch.inputs) for batch in batches_for(model, words.sequences))
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


def predict_spans(model: keras.Model | ExportedModel, reader: SpanReader, first_row: int = 0) -> None:
    """Let a reader take in the model's outputs for all of its windows.

    Parameters
    ----------
    model : keras.Model or ExportedModel
        Gives (B, T, 2).
    reader : SpanReader
    first_row : int, default=0
        What errors call the first row.
    """
    batches = ((batch, batch.inputs) for batch in batches_for(model, reader.windows))
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


def predict_padding(model: keras.Model | ExportedModel, layout: Layout) -> None:
    """Let a model compute a batch of padding alone on each device, so that what such batches need is compiled."""
    shapes = dict.fromkeys(INPUT_NAMES, (layout.rows, layout.length)) | {"first_positions": (layout.rows, layout.slots)}
    inputs = {name: np.zeros(shapes[name], "int32") for name in input_names(model)}
    predict = predictor(model)
    for _ in range(_n_devices(model)):  # which it takes in turns
        as_array(predict(inputs))


def input_names(model: keras.Model | ExportedModel) -> list[str]:
    """Which of a batch's inputs the model takes."""
    return list(model.input_names) if isinstance(model, ExportedModel) else [tensor.name for tensor in model.inputs]


def predictor(model: keras.Model | ExportedModel) -> Predictor:
    """A function from a batch's inputs to a model's outputs."""
    return model if isinstance(model, ExportedModel) else backend_step().predictor(model, prediction_devices())


def _n_devices(model: keras.Model | ExportedModel) -> int:
    """The devices that predictions take in turns."""
    return 1 if isinstance(model, ExportedModel) else max(1, len(prediction_devices()))


def as_array(outputs: Tensor) -> np.ndarray:
    """What a predictor gives as an array, once it is computed."""
    return _reading(outputs)()


def _reading(outputs: Tensor) -> Callable[[], np.ndarray]:
    """What gives a predictor's outputs as an array, once they are computed."""
    if isinstance(outputs, np.ndarray):  # of an exported model, which needs no Keras
        return lambda: outputs
    from kbert.training.host_copies import host_copy

    return host_copy(outputs)


def batch_outputs(
    model: keras.Model | ExportedModel, batches: Iterable[tuple[Note, dict[str, np.ndarray]]]
) -> Iterator[tuple[Note, np.ndarray]]:
    """The model's output for each batch, beside what came with it, in order; some are computed ahead."""
    predict = predictor(model)
    names = input_names(model)
    in_flight: deque[tuple[Note, Callable[[], np.ndarray]]] = deque()
    most_in_flight = _IN_FLIGHT * _n_devices(model)

    def oldest() -> tuple[Note, np.ndarray]:
        note, read = in_flight.popleft()
        return note, read()

    with ExitStack() as stack:
        for i, (note, inputs) in enumerate(prefetched(batches)):
            if i == 1:  # one batch, perhaps of one text, is done before this would pay
                stack.enter_context(memory_kept(trim=False))
            check_segments(model, inputs["segment_ids"])
            in_flight.append((note, _reading(predict({name: inputs[name] for name in names}))))
            if len(in_flight) >= most_in_flight:
                yield oldest()
        while in_flight:
            yield oldest()
