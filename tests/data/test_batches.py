"""Batches: which texts go together, and the arrays made of them."""

import numpy as np
import pytest

from kbert.data.batches import TrainingBatches, make_batch, prediction_batches, prediction_layouts
from kbert.data.packing import Layout


def _texts(batch):
    return batch.texts[batch.texts >= 0].tolist()


@pytest.mark.parametrize("n, batch_size", [(100, 16), (96, 16), (5, 16), (1, 1), (70, 1)])
def test_each_text_comes_once_an_epoch_in_steps_of_exactly_batch_size(sequences_of, n, batch_size):
    sequences = sequences_of(np.random.default_rng(0).integers(3, 40, n))
    batches = TrainingBatches(sequences, batch_size, seed=0)
    for epoch in range(2):
        steps = [_texts(batch) for batch in batches.epoch(epoch)]
        assert len(steps) == batches.steps_per_epoch == -(-n // batch_size)
        assert sorted(text for step in steps for text in step) == list(range(n))
        assert [len(step) for step in steps[:-1]] == [batch_size] * (len(steps) - 1)
        assert len(steps[-1]) == (n % batch_size or batch_size)


def _deals(sequences, seed, epoch):
    return [_texts(batch) for batch in TrainingBatches(sequences, 16, seed=seed).epoch(epoch)]


def test_the_same_seed_and_epoch_give_the_same_batches_and_others_give_others(sequences_of, realistic_lengths):
    sequences = sequences_of(realistic_lengths[:200])
    first = _deals(sequences, seed=1, epoch=0)
    assert _deals(sequences, seed=1, epoch=0) == first

    def groups(deal):
        return {frozenset(step) for step in deal}

    assert not groups(first) & groups(_deals(sequences, seed=1, epoch=1))
    assert not groups(first) & groups(_deals(sequences, seed=2, epoch=0))


def test_texts_of_the_same_length_are_not_kept_together(sequences_of):
    lengths = np.repeat([5, 50], 320)
    batches = TrainingBatches(sequences_of(lengths), 16, seed=0)
    assert all(0 < (lengths[_texts(batch)] == 5).sum() < 16 for batch in batches.epoch(0))


@pytest.mark.parametrize("batch_size", [16, 32])
def test_batches_hardly_hold_padding_and_keep_one_shape(sequences_of, realistic_lengths, batch_size):
    batches = TrainingBatches(sequences_of(realistic_lengths), batch_size, seed=0)
    made = [batch for epoch in range(3) for batch in batches.epoch(epoch)]
    tokens = sum(batch.n_tokens for batch in made)
    assert tokens == 3 * realistic_lengths.sum()
    assert tokens / sum(batch.inputs["token_ids"].size for batch in made) >= 0.85
    shapes = [batch.inputs["token_ids"].shape for batch in made]
    usual = max(set(shapes), key=shapes.count)
    assert shapes.count(usual) >= 0.97 * len(shapes) and len(set(shapes)) <= 4


def test_the_arrays_of_a_batch_are_the_texts_one_after_the_other(sequences_of):
    sequences = sequences_of([5, 3, 7, 6, 9])
    rows = [np.array([3, 1, 0]), np.array([4])]
    batch = make_batch(sequences, rows, Layout(rows=3, length=16, slots=4))
    assert batch.texts.tolist() == [[3, 1, 0, -1], [4, -1, -1, -1], [-1] * 4]
    assert (batch.n_texts, batch.n_tokens) == (4, 23)
    assert batch.inputs["first_positions"].tolist() == [[0, 6, 9, 0], [0] * 4, [0] * 4]
    assert {array.dtype for array in batch.inputs.values()} == {np.dtype("int32")}

    first = {name: array[0].tolist() for name, array in batch.inputs.items()}
    assert first["text_ids"] == [1] * 6 + [2] * 3 + [3] * 5 + [0] * 2
    assert first["position_ids"] == [*range(6), *range(3), *range(5), 0, 0]
    assert first["segment_ids"] == [0] * 4 + [1] * 2 + [0] * 2 + [1] + [0] * 4 + [1] + [0] * 2
    ids = [sequences.tokens.row(text).tolist() for text in (3, 1, 0)]
    assert first["token_ids"] == sum(ids, []) + [0, 0]

    padding = {name: array[2].tolist() for name, array in batch.inputs.items() if name != "first_positions"}
    empty = [0] * 16
    assert padding == {"token_ids": empty, "segment_ids": empty, "position_ids": empty, "text_ids": empty}


def test_a_step_that_needs_more_rows_than_the_layout_has_loses_none(sequences_of):
    batch = make_batch(sequences_of([9, 9, 9]), [np.array([i]) for i in range(3)], Layout(2, 16, 2))
    assert _texts(batch) == [0, 1, 2] and batch.n_tokens == 27


def test_rows_are_a_multiple_of_the_devices(sequences_of):
    sequences = sequences_of([5, 3, 9, 4, 7, 2, 8, 6, 3, 5])
    plain, batches = (TrainingBatches(sequences, 3, 0, row_multiple=multiple) for multiple in (1, 4))
    for epoch in range(3):
        for one, other in zip(plain.epoch(epoch), batches.epoch(epoch), strict=True):
            assert len(other.texts) % 4 == 0
            assert (
                np.array_equal(one.texts, other.texts[: len(one.texts)]) and (other.texts[len(one.texts) :] < 0).all()
            )


def test_texts_of_every_slot_are_found_again_at_their_first_positions(sequences_of, realistic_lengths):
    sequences = sequences_of(realistic_lengths[:300])
    for batch in TrainingBatches(sequences, 32, seed=3).epoch(0):
        for row, slot in np.argwhere(batch.texts >= 0):
            ids = sequences.tokens.row(batch.texts[row, slot])
            start = batch.inputs["first_positions"][row, slot]
            np.testing.assert_array_equal(batch.inputs["token_ids"][row, start : start + len(ids)], ids)
            assert (batch.inputs["text_ids"][row, start : start + len(ids)] == slot + 1).all()


@pytest.mark.parametrize("n", [1, 3, 2000])
def test_prediction_takes_each_text_once_in_one_shape(sequences_of, realistic_lengths, n):
    batches = list(prediction_batches(sequences_of(realistic_lengths[:n])))
    assert sorted(text for batch in batches for text in _texts(batch)) == list(range(n))
    assert len({batch.inputs["token_ids"].shape for batch in batches}) == 1
    assert sum(batch.n_tokens for batch in batches) == realistic_lengths[:n].sum()


@pytest.mark.parametrize("n", [1, 3, 2000])
def test_in_any_shape_hardly_anything_is_padding(sequences_of, realistic_lengths, n):
    sequences = sequences_of(realistic_lengths[:n])
    batches = list(prediction_batches(sequences, n_tokens=512, any_shape=True))
    assert sorted(text for batch in batches for text in _texts(batch)) == list(range(n))
    for batch in batches:
        (rows, length), used = batch.inputs["token_ids"].shape, (batch.inputs["text_ids"] > 0).sum(axis=1)
        assert used.max() <= length < used.max() + 16
        assert rows == 1 or rows * length <= 512
        assert (used > 0).all() and batch.inputs["first_positions"].shape[1] == (batch.texts >= 0).sum(axis=1).max()
    one_shape = sum(batch.inputs["token_ids"].size for batch in prediction_batches(sequences))
    assert sum(batch.inputs["token_ids"].size for batch in batches) <= one_shape
    for batch in batches:
        for row, slot in np.argwhere(batch.texts >= 0):
            ids = sequences.tokens.row(batch.texts[row, slot])
            start = batch.inputs["first_positions"][row, slot]
            np.testing.assert_array_equal(batch.inputs["token_ids"][row, start : start + len(ids)], ids)


@pytest.mark.parametrize("longest", [2, 16, 17, 70, 128, 129, 384, 385, 512, 1000])
def test_rows_to_predict_are_at_most_half_as_long_again_as_the_longest_text(sequences_of, longest):
    (batch,) = prediction_batches(sequences_of([1, longest]))
    length = batch.inputs["token_ids"].shape[1]
    assert longest <= length <= max(16, 1.5 * longest)


def test_any_number_of_texts_of_any_length_is_predicted_in_few_shapes(sequences_of):
    columns = [[n] * k for n in (1, 16, 17, 24, 25, 48, 49, 64, 96, 97, 128, 192, 256, 384, 512) for k in range(1, 300)]
    batches = [next(prediction_batches(sequences_of(lengths))) for lengths in columns]
    assert len({batch.inputs["token_ids"].shape for batch in batches}) <= 74


def test_predicting_few_texts_does_not_cost_a_whole_batch(sequences_of):
    (batch,) = prediction_batches(sequences_of([5, 6, 7]))
    assert batch.inputs["token_ids"].size <= 32


@pytest.mark.parametrize("n_texts", [1, 3, 40, 300])
def test_the_layouts_for_predicting_are_those_of_all_batches(sequences_of, n_texts):
    layouts = prediction_layouts(range(2, 101), n_texts)
    assert len(set(layouts)) == len(layouts)
    rng = np.random.default_rng(0)
    for _ in range(200):
        lengths = rng.integers(2, rng.integers(3, 102), rng.integers(1, n_texts + 1))
        for batch in prediction_batches(sequences_of(lengths)):
            (rows, length), slots = batch.inputs["token_ids"].shape, batch.texts.shape[1]
            assert Layout(rows, length, slots) in layouts
    # Nor are there any others: of one text of each length, and of as many as fill rows of their own.
    found = set()
    for length in range(2, 101):
        for n in range(1, n_texts + 1) if n_texts < 50 else ():
            for batch in prediction_batches(sequences_of([length] * n)):
                found.add(Layout(*batch.inputs["token_ids"].shape, batch.texts.shape[1]))
    assert found == set(layouts) or n_texts > 50
