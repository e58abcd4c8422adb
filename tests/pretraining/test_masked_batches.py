"""Batches for pre-training: one shape, every instance once, little padding, and masks that can be undone."""

import numpy as np
import pytest

from kbert import WordPieceTokenizer
from kbert.pretraining.batches import batches_of, most_masked
from kbert.pretraining.instances import Documents, draw_pairs, draw_runs
from kbert.pretraining.masking import Masking
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
    for batch in batches_of(instances, Masking(tokenizer), 8, 64, tokenizer.pad_id, seed=3):
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
    n_random = 0
    for batch in batches_of(instances, masking, 8, 64, tokenizer.pad_id, seed=3):
        text_ids, first = batch.inputs["text_ids"], batch.inputs["first_positions"]
        weights = batch.weights["mlm"]
        assert weights.shape == (8, most_masked(64, 0.15)) and weights.sum() == pytest.approx(1)
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
        batches = list(batches_of(instances, Masking(tokenizer), 8, 64, tokenizer.pad_id, seed=0))
        assert sum(batch.n_tokens for batch in batches[:-1]) > 0.93 * 8 * 64 * (len(batches) - 1)


def test_a_seed_gives_the_same_batches_and_another_other_masks(instances, tokenizer):
    def drawn(seed):
        return list(batches_of(instances, Masking(tokenizer), 8, 64, tokenizer.pad_id, seed))

    one, same, other = drawn([0, 1]), drawn([0, 1]), drawn([0, 2])
    for a, b in zip(one, same, strict=True):
        assert all(np.array_equal(a.inputs[name], b.inputs[name]) for name in a.inputs)
    assert not np.array_equal(one[0].inputs["token_ids"], other[0].inputs["token_ids"])


@pytest.mark.parametrize("rate", [0.01, 0.15, 0.5])
@pytest.mark.parametrize("length", [16, 64, 128, 512])
def test_there_is_room_for_all_masks_of_a_row(length, rate, tokenizer):
    masking = Masking(tokenizer, rate)
    rng = np.random.default_rng(0)
    for _ in range(200):
        lengths = rng.multinomial(length, rng.dirichlet(np.ones(max(2, length // 64))))
        assert masking.number(lengths[lengths > 0]).sum() <= most_masked(length, rate)
