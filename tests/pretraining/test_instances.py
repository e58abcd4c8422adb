"""Instances: pairs by the paper's rules, runs in which every token is once, and the same ones under the same seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbert import WordPieceTokenizer
from kbert.data.batches import TrainingBatches
from kbert.pretraining.instances import Documents, documents_of, draw_pairs, draw_runs, require_tokens
from kbert.text.ragged import row_splits


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["the old house was red and the new one is green too"] * 20, vocab_size=60)


def numbered(segment_lengths):
    """Documents whose tokens are all different: the number of each is its place."""
    lengths = [length for document in segment_lengths for length in document]
    return Documents(
        np.arange(sum(lengths)), row_splits(np.array(lengths)), row_splits(np.array([len(d) for d in segment_lengths]))
    )


def parts_of(instances):
    """The tokens of a and b of each instance."""
    return [
        [np.arange(start, start + length) for start, length in zip(*row, strict=True)]
        for row in zip(instances.starts, instances.kept, strict=True)
    ]


DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)


@given(DOCUMENTS, st.integers(5, 60), st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_pairs_are_what_the_rules_allow(tokenizer, lengths, max_length, seed):
    documents = numbered(lengths)
    document_of = np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
    pairs = draw_pairs(documents, tokenizer, max_length, seed)
    assert pairs.lengths.max() <= max_length and (pairs.kept >= 1).all()
    ends = set(documents.segments.tolist())
    for (a, b), is_random in zip(parts_of(pairs), pairs.is_random, strict=True):
        (of_a,), (of_b,) = set(document_of[a]), set(document_of[b])
        if is_random:
            assert of_a != of_b
        else:
            # What follows: where nothing was cut off, b begins where a ends, and that is between two segments.
            assert of_a == of_b and a[-1] < b[0]
            if len(a) + len(b) < max_length - 3:
                assert a[-1] + 1 == b[0] and b[0] in ends


def test_every_segment_is_read_and_unused_ones_are_put_back(tokenizer):
    documents = numbered([[5] * 40, [7] * 30, [3] * 50])
    pairs = draw_pairs(documents, tokenizer, 64, seed=0)
    seen = Counter()
    for (a, b), is_random in zip(parts_of(pairs), pairs.is_random, strict=True):
        seen.update(a.tolist())
        if not is_random:
            seen.update(b.tolist())
    # Nothing is read twice but as another's random b; only what was cut off too long pairs is missing.
    assert max(seen.values()) == 1
    assert len(seen) > 0.9 * len(documents.tokens)


def test_shares_of_random_and_short_pairs(tokenizer):
    documents = numbered([[6] * 60] * 400)
    pairs = draw_pairs(documents, tokenizer, 64, seed=0)
    # Chunks of two segments and more are half random; a document's last chunk may be one segment, always random.
    inside = pairs.starts[:, 0] % 360 < 300
    assert pairs.is_random[inside].mean() == pytest.approx(0.5, abs=0.02)
    assert pairs.is_random.mean() > 0.5
    # One document of ten has shorter ones; those of the others have 58 to 61 tokens of text, or are a document's last.
    short = [np.median(pairs.lengths[pairs.starts[:, 0] // 360 == d]) < 58 for d in range(400)]
    assert np.mean(short) == pytest.approx(0.1, abs=0.04)


def test_a_random_text_may_come_from_any_other_document(tokenizer):
    documents = numbered([[6] * 10] * 6)
    taken = Counter()
    for seed in range(300):
        pairs = draw_pairs(documents, tokenizer, 32, seed)
        chosen = pairs.is_random == 1
        taken.update(zip(pairs.starts[chosen, 0] // 60, pairs.starts[chosen, 1] // 60, strict=True))
    assert len(taken) == 30 and max(taken.values()) < 1.8 * min(taken.values())


def test_too_long_pairs_lose_tokens_at_both_ends_of_the_longer(tokenizer):
    documents = numbered([[1, 99], [1, 99]] * 200)
    pairs = draw_pairs(documents, tokenizer, 53, seed=0)
    long = pairs.kept[:, 1] == 49
    begins = pairs.starts[long, 1] % 100 - 1
    assert pairs.lengths.max() == 53 and long.sum() > 100
    assert (begins >= 0).all() and np.mean(begins) == pytest.approx(25, abs=2)  # half of the 50 that are too many


@given(DOCUMENTS, st.integers(3, 60), st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_runs_have_every_token_once(tokenizer, lengths, max_length, seed):
    documents = numbered(lengths)
    runs = draw_runs(documents, tokenizer, max_length, seed)
    tokens = [tokens for (tokens,) in parts_of(runs)]
    assert np.concatenate(tokens).tolist() == documents.tokens.tolist()
    assert runs.lengths.max() <= max_length and runs.kept.min() >= 1
    document_of = np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
    assert all(len(set(document_of[run])) == 1 for run in tokens)
    # Few runs: at most one more of each document than must be.
    least = sum(-(-sum(document) // (max_length - 2)) for document in lengths)
    assert len(runs) <= least + len(lengths)


@pytest.mark.parametrize("draw", [draw_pairs, draw_runs])
def test_a_seed_gives_the_same_instances_and_another_others(tokenizer, draw):
    documents = numbered([[6] * 40] * 5)
    one, same, other = (draw(documents, tokenizer, 32, [7, epoch]) for epoch in (0, 0, 1))
    assert np.array_equal(one.starts, same.starts) and np.array_equal(one.is_random, same.is_random)
    assert one.starts.shape != other.starts.shape or not np.array_equal(one.starts, other.starts)


def test_sequences_are_the_documents_text(tokenizer):
    texts = [["the old house was red", "and", "the new one is green"], [" ", ""], ["too", "", "one house is old"]]
    documents = documents_of(texts, tokenizer)
    assert len(documents) == 2 and np.diff(documents.documents).tolist() == [3, 2]
    pairs = draw_pairs(documents, tokenizer, 64, seed=1)
    everything = " ".join(" ".join(filter(str.strip, document)) for document in texts)
    sequences = pairs.take(slice(None))
    assert sequences.lengths.tolist() == pairs.lengths.tolist()
    for i in range(len(pairs)):
        ids = sequences.tokens.row(i)
        assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
        cut = sequences.first_length[i]
        assert ids[cut - 1] == tokenizer.sep_id
        assert tokenizer.decode(ids[1 : cut - 1]) in everything and tokenizer.decode(ids[cut:-1]) in everything
    batches = TrainingBatches(pairs, 4, seed=0)
    assert sorted(np.concatenate([b.texts[b.texts >= 0] for b in batches.epoch(0)])) == list(range(len(pairs)))


def test_one_document_has_no_other(tokenizer):
    with pytest.raises(ValueError, match="only 1 here.*nsp=False"):
        require_tokens([numbered([[5, 5]])], "source", nsp=True)
    # Among others it is its own other document.
    require_tokens([numbered([[5, 5]]), numbered([[5, 5], [4]])], "source", nsp=True)
    assert len(draw_pairs(numbered([]), tokenizer, 32, seed=0)) == 0
    pairs = draw_pairs(numbered([[5] * 40]), tokenizer, 32, seed=0)
    assert 0 < pairs.is_random.mean() < 1 and (pairs.kept > 0).all() and pairs.starts.max() < 200
