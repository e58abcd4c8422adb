"""Predicting a column: row i in, row i out, in parts, from several threads."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import keras
import numpy as np
import pytest

from kbert.data.batches import prediction_batches
from kbert.text import Ragged, TokenSequences
from kbert.training import memory, predict
from kbert.training.predict import predict_logits

pytestmark = pytest.mark.backend


@pytest.fixture(scope="module")
def column():
    """Fifty texts of 2 to 16 tokens."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 17, 50)
    tokens = Ragged(rng.integers(0, 100, lengths.sum()).astype("int32"), np.concatenate([[0], lengths.cumsum()]))
    return TokenSequences(tokens, lengths, np.zeros(50, bool), np.arange(50))


@pytest.fixture(scope="module")
def model(model_of):
    return model_of()


@pytest.fixture(scope="module")
def expected(model, column):
    inputs = column.padded(length=16)
    logits = model({**inputs, "first_positions": np.zeros((50, 1), "int32")})
    return keras.ops.convert_to_numpy(logits)[:, 0]


def test_row_i_of_the_logits_belongs_to_text_i(model, column, expected):
    logits = predict_logits(model, [column], 50)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_it_makes_no_difference_which_token_stands_on_padding(model, column):
    (batch,) = prediction_batches(column)
    is_padding = batch.inputs["text_ids"] == 0
    assert is_padding.any()
    other = {**batch.inputs, "token_ids": np.where(is_padding, 57, batch.inputs["token_ids"])}
    run = predict.predictor(model)
    logits, of_other = (keras.ops.convert_to_numpy(run(inputs))[batch.texts >= 0] for inputs in (batch.inputs, other))
    np.testing.assert_array_equal(logits, of_other)


def test_a_column_may_come_in_parts(model, column, expected):
    parts = (column.of_rows(rows) for rows in np.split(np.arange(50), [12, 24, 36, 48]))
    np.testing.assert_allclose(predict_logits(model, parts, 50), expected, rtol=0, atol=1e-5)


def test_a_row_in_several_windows_gets_their_mean(model, column, expected):
    windows = replace(column, rows=np.repeat([0, 1, 2, 3], [1, 20, 9, 20]))
    means = [expected[windows.rows == row].mean(axis=0) for row in range(4)]
    np.testing.assert_allclose(predict_logits(model, [windows], 4), means, rtol=0, atol=1e-5)
    parts = [windows.of_rows(np.array([0, 1])), windows.of_rows(np.array([2, 3]))]
    np.testing.assert_allclose(predict_logits(model, parts, 4), means, rtol=0, atol=1e-5)


def test_threads_may_predict_with_one_model(model, column, expected):
    with ThreadPoolExecutor(4) as pool:
        for logits in pool.map(lambda _: predict_logits(model, [column], 50), range(8)):
            np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("own_allocator")
def test_memory_is_kept_from_the_second_batch_on_and_no_longer_than_the_call(model, column, monkeypatch):
    monkeypatch.setattr("kbert.data.batches._PREDICT_TOKENS", 64)
    run, kept = predict.predictor(model), []

    def recorded(inputs):
        kept.append(memory._users)
        return run(inputs)

    monkeypatch.setattr(predict, "predictor", lambda model: recorded)
    predict_logits(model, [column], 50)
    keeps = int(keras.backend.backend() != "tensorflow")
    assert kept[0] == 0 and set(kept[1:]) == {keeps} and memory._users == 0
    with pytest.raises(ZeroDivisionError):
        for _ in predict.batch_outputs(model, ((None, batch.inputs) for batch in prediction_batches(column))):
            raise ZeroDivisionError
    assert kept[-1] == keeps and memory._users == 0
