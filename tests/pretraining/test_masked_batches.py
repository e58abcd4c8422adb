"""Batches for pre-training: one shape, every instance once, little padding, and masks that can be undone."""

import numpy as np
import pytest

from kbert import WordPieceTokenizer
from kbert.pretraining import rows as rows_module
from kbert.pretraining.batches import batches_of, n_batches_of
from kbert.pretraining.instances import Documents, draw_pairs, draw_runs
from kbert.pretraining.masking import Masking
from kbert.pretraining.rows import RowShape, choose_row_shape, packed_rows
from kbert.text.ragged import row_splits


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["the old house was red and the new one is green too"] * 20, vocab_size=60)


@pytest.fixture(scope="module")
def documents(tokenizer):
    rng = np.random.default_rng(0)
    segments = rng.integers(3, 30, 3000)
    tokens = rng.integers(tokenizer.mask_id + 1, tokenizer.vocab_size, segments.sum())
    return Documents(tokens, row_splits(segments), row_splits(np.full(150, 20)))


@pytest.fixture(scope="module", params=[draw_pairs, draw_runs], ids=["pairs", "runs"])
def instances(request, documents, tokenizer):
    return request.param(documents, tokenizer, 64, 0)


def undone(batch):
    """The rows as they were before masking."""
    token_ids = batch.inputs["token_ids"].copy()
    for row, (positions, targets, weights) in enumerate(
        zip(batch.inputs["masked_positions"], batch.targets["mlm"], batch.weights["mlm"], strict=True)
    ):
        token_ids[row, positions[weights > 0]] = targets[weights > 0]
    return token_ids


def test_every_instance_is_there_once_and_can_be_read_again(instances, tokenizer):
    expected = sorted(map(tuple, (instances.take([i]).tokens.values.tolist() for i in range(len(instances)))))
    found, shapes, n_tokens = [], set(), 0
    for batch in batches_of(instances, Masking(tokenizer), 8, 64, seed=3):
        shapes.add(tuple((name, array.shape) for name, array in sorted(batch.inputs.items())))
        n_tokens += batch.n_tokens
        token_ids, text_ids = undone(batch), batch.inputs["text_ids"]
        for row in range(8):
            for text in range(1, text_ids[row].max() + 1):
                found.append(tuple(token_ids[row, text_ids[row] == text].tolist()))
    assert sorted(found) == expected and len(shapes) == 1
    assert n_tokens == instances.lengths.sum()


def test_targets_weights_and_labels(instances, tokenizer):
    masking = Masking(tokenizer)
    most_masked = choose_row_shape(instances.lengths, masking, 64).masked
    n_random = 0
    for batch in batches_of(instances, masking, 8, 64, seed=3):
        text_ids, first = batch.inputs["text_ids"], batch.inputs["first_positions"]
        weights = batch.weights["mlm"]
        assert weights.shape == (8, most_masked) and weights.sum() == pytest.approx(1)
        for row in range(8):
            lengths = np.bincount(text_ids[row], minlength=2)[1:]
            lengths = lengths[lengths > 0]
            assert np.count_nonzero(weights[row]) == masking.number(lengths).sum()
            positions = batch.inputs["masked_positions"][row][weights[row] > 0]
            assert len(set(positions)) == len(positions) and (text_ids[row, positions] > 0).all()
            slots = batch.weights["nsp"][row] > 0
            assert slots.sum() == len(lengths)
            assert (batch.inputs["token_ids"][row, first[row][slots]] == tokenizer.cls_id).all()
        assert batch.weights["nsp"].sum() == pytest.approx(1)
        n_random += int(batch.targets["nsp"].sum())
    assert n_random == instances.is_random.sum()


def test_little_is_padding(documents, tokenizer):
    for draw in (draw_pairs, draw_runs):
        instances = draw(documents, tokenizer, 64, 0)
        batches = list(batches_of(instances, Masking(tokenizer), 8, 64, seed=0))
        assert sum(batch.n_tokens for batch in batches[:-1]) > 0.93 * 8 * 64 * (len(batches) - 1)


def test_a_seed_gives_the_same_batches_and_another_other_masks(instances, tokenizer):
    def drawn(seed):
        return list(batches_of(instances, Masking(tokenizer), 8, 64, seed))

    one, same, other = drawn([0, 1]), drawn([0, 1]), drawn([0, 2])
    for a, b in zip(one, same, strict=True):
        assert all(np.array_equal(a.inputs[name], b.inputs[name]) for name in a.inputs)
    assert not np.array_equal(one[0].inputs["token_ids"], other[0].inputs["token_ids"])


def short_texts(n, tokenizer, lengths=(12, 13)):
    """Documents of one segment each."""
    rng = np.random.default_rng(0)
    segments = rng.integers(*lengths, n)
    tokens = rng.integers(tokenizer.mask_id + 1, tokenizer.vocab_size, segments.sum())
    return Documents(tokens, row_splits(segments), np.arange(n + 1))


def test_as_many_short_texts_share_a_row_as_fit(tokenizer):
    instances = draw_runs(short_texts(1000, tokenizer), tokenizer, 128, 0)
    assert set(instances.lengths) == {14}
    batches = list(batches_of(instances, Masking(tokenizer), 8, 128, seed=0))
    # Nine texts of 14 tokens fill a row of 128.
    assert len(batches) == -(-1000 // (9 * 8))
    assert max(batch.inputs["text_ids"].max() for batch in batches) == 9


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.5])
@pytest.mark.parametrize("length", [16, 64, 128, 512])
def test_there_is_room_for_all_masks_of_a_row(length, rate, tokenizer):
    masking = Masking(tokenizer, rate)
    rng = np.random.default_rng(0)
    for sample in (rng.integers(3, length + 1, 300), np.full(300, 5), np.full(300, length)):
        shape = choose_row_shape(sample, masking, length)
        # Of the sample, and of texts that it did not have, which have more masks for their length.
        for lengths in (sample, np.full(100, 3), rng.integers(3, length + 1, 100), np.array([length])):
            rows = packed_rows(lengths, masking, shape)
            assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
            for row in rows:
                assert len(row) <= shape.texts and lengths[row].sum() <= length
                assert masking.number(lengths[row]).sum() <= shape.masked


@pytest.mark.parametrize("masked_cost", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("longest", [6, 40, 128])
def test_the_shape_is_that_of_the_least_computing(longest, masked_cost, tokenizer, monkeypatch):
    masking, lengths = Masking(tokenizer), np.random.default_rng(0).integers(3, longest + 1, 400)

    def cost(shape):
        return len(packed_rows(lengths, masking, shape)) * (128 + masked_cost * shape.masked)

    chosen, others = choose_row_shape(lengths, masking, 128, masked_cost), []
    for texts in rows_module._TEXTS:
        monkeypatch.setattr(rows_module, "_TEXTS", (texts,))
        others.append(choose_row_shape(lengths, masking, 128, masked_cost))
    assert cost(chosen) == min(map(cost, others))


def test_rows_are_divided_where_they_have_more_masks_than_the_shape_has_room_for(tokenizer):
    masking = Masking(tokenizer)
    instances = draw_runs(short_texts(500, tokenizer, (3, 10)), tokenizer, 32, 0)
    shape, n_masked = RowShape(32, 8, 5), 0
    for batch in batches_of(instances, masking, 4, 32, 0, shape):
        assert batch.inputs["masked_positions"].shape == (4, 5) and batch.inputs["first_positions"].shape == (4, 8)
        n_masked += np.count_nonzero(batch.weights["mlm"])
    assert n_masked == masking.number(instances.lengths).sum()
    unlimited = packed_rows(instances.lengths, masking, RowShape(32, 8, 100))
    assert max(masking.number(instances.lengths[row]).sum() for row in unlimited) > 5


def test_long_texts_get_no_room_that_they_do_not_use(documents, tokenizer):
    masking = Masking(tokenizer)
    instances = draw_runs(documents, tokenizer, 64, 0)
    shape = choose_row_shape(instances.lengths, masking, 64)
    assert shape.texts <= 8 and shape.masked <= 11  # a row of one text has 10


def test_batches_are_counted_without_making_them(instances, tokenizer):
    masking = Masking(tokenizer)
    shape = choose_row_shape(instances.lengths, masking, 64)
    for batch_size, seed in ((8, 0), (7, [1, 2])):
        made = list(batches_of(instances, masking, batch_size, 64, seed, shape))
        assert n_batches_of(instances, masking, batch_size, seed, shape) == len(made)


def test_where_no_whole_word_fits_nothing_is_masked(tokenizer):
    """Ten tokens have room for two masks, and the one word has more pieces."""
    inside = [number for piece, number in tokenizer.vocab.items() if piece.startswith("##")]
    word = np.array([tokenizer.vocab["r"], *inside[:1] * 7])
    instances = draw_runs(Documents(word, np.array([0, 8]), np.array([0, 1])), tokenizer, 16, 0)
    (batch,) = batches_of(instances, Masking(tokenizer, 0.15, whole_word=True), 2, 16, seed=0)
    assert not batch.weights["mlm"].any() and batch.n_tokens == 10
