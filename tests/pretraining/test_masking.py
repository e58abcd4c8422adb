"""Masks: how many, which, and what stands there instead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbert import WordPieceTokenizer
from kbert.pretraining.masking import Masking
from kbert.text.ragged import row_splits

LENGTHS = st.lists(st.integers(2, 70), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def tokenizer():
    words = [f"{a}{b}" for a in ("house", "tree", "green", "old") for b in ("", "s", "er", "ish", "less", "ings")]
    return WordPieceTokenizer.train([" ".join(words)] * 3, vocab_size=90)


def texts_of(tokenizer, lengths, seed=0):
    """Texts of these lengths, [CLS] and [SEP] included, and sometimes a second [SEP]; any pieces."""
    rng = np.random.default_rng(seed)
    specials = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), [*specials, tokenizer.mask_id])
    texts = []
    for i, length in enumerate(lengths):
        ids = rng.choice(ordinary, length)
        ids[0], ids[-1] = tokenizer.cls_id, tokenizer.sep_id
        if i % 2 and length > 4:
            ids[length // 2] = tokenizer.sep_id
        texts.append(ids)
    return np.concatenate(texts), row_splits(np.array(lengths))


@pytest.mark.parametrize("whole_word", [False, True])
@given(lengths=LENGTHS, seed=st.integers(0, 9), rate=st.sampled_from([0.15, 0.4]))
@settings(deadline=None, max_examples=40)
def test_the_number_is_that_of_the_formula(tokenizer, lengths, seed, rate, whole_word):
    token_ids, splits = texts_of(tokenizer, lengths, seed)
    before = token_ids.copy()
    masking = Masking(tokenizer, rate, whole_word)
    masked = masking.draw(token_ids, splits, np.random.default_rng(seed))
    assert np.array_equal(token_ids, before)
    specials = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id}
    assert not specials & set(token_ids[masked.chosen])
    assert (np.diff(masked.chosen) > 0).all()
    untouched = np.setdiff1d(np.arange(len(token_ids)), masked.chosen)
    assert np.array_equal(masked.token_ids[untouched], token_ids[untouched])
    for text, length in enumerate(lengths):
        wanted = max(1, round(rate * length))
        there = sum(int(i) not in specials for i in token_ids[splits[text] : splits[text + 1]])
        found = int(((masked.chosen >= splits[text]) & (masked.chosen < splits[text + 1])).sum())
        assert found <= min(wanted, there) if whole_word else found == min(wanted, there)


def test_eighty_ten_ten_and_every_place_alike(tokenizer):
    token_ids, splits = texts_of(tokenizer, [50] * 8000)
    masked = Masking(tokenizer).draw(token_ids, splits, np.random.default_rng(0))
    old, new = token_ids[masked.chosen], masked.token_ids[masked.chosen]
    assert len(old) == 8000 * 8
    is_mask, same = new == tokenizer.mask_id, new == old
    # A token may also be replaced by itself, or by the mask.
    by_any = 0.1 / tokenizer.vocab_size
    assert (is_mask & ~same).mean() == pytest.approx(0.8 + by_any, abs=0.005)
    assert (same & ~is_mask).mean() == pytest.approx(0.1 + by_any, abs=0.004)
    others = new[~is_mask & ~same]
    counts = np.bincount(others, minlength=tokenizer.vocab_size)
    assert np.count_nonzero(counts) >= tokenizer.vocab_size - 1  # any of the vocabulary
    # In 4,000 texts without a [SEP] in the middle, 48 places.
    places = masked.chosen % 50
    even = masked.chosen // 50 % 2 == 0
    share = np.bincount(places[even], minlength=50)[1:49] / 4000
    assert share.mean() == pytest.approx(8 / 48) and share.std() < 0.01


def test_whole_words_are_chosen_with_all_their_pieces(tokenizer):
    token_ids, splits = texts_of(tokenizer, [60, 33, 12] * 20)
    pieces = {i: piece for piece, i in tokenizer.vocab.items()}
    specials = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id}
    masking = Masking(tokenizer, rate=0.3, whole_word=True)
    chosen = set(masking.draw(token_ids, splits, np.random.default_rng(0)).chosen.tolist())
    n_several = 0
    for place in range(1, len(token_ids)):
        here, before = int(token_ids[place]), int(token_ids[place - 1])
        if pieces[here].startswith("##") and before not in specials:
            assert (place in chosen) == (place - 1 in chosen)
            n_several += place in chosen
    assert n_several > 20
    # Nearly the number of the formula: room is left only where no word is small enough.
    found = np.bincount(np.searchsorted(splits, sorted(chosen), "right") - 1, minlength=60)
    wanted = masking.number(np.diff(splits))
    assert (found <= wanted).all() and found.sum() > 0.9 * wanted.sum()


def test_whole_words_do_not_join_over_a_special_token(tokenizer):
    going_on = next(i for piece, i in tokenizer.vocab.items() if piece.startswith("##"))
    ids = np.array([tokenizer.cls_id, going_on, going_on, tokenizer.sep_id, going_on, tokenizer.sep_id])
    masking = Masking(tokenizer, rate=1 / 6, whole_word=True)
    # One token is wanted, and the one word of one piece is the one after [SEP].
    for seed in range(5):
        assert masking.draw(ids, np.array([0, 6]), np.random.default_rng(seed)).chosen.tolist() == [4]


def test_the_same_generator_gives_the_same_masks(tokenizer):
    token_ids, splits = texts_of(tokenizer, [30] * 9)
    one, same, other = (
        Masking(tokenizer).draw(token_ids, splits, np.random.default_rng(s)) for s in ([1, 0], [1, 0], 2)
    )
    assert np.array_equal(one.token_ids, same.token_ids) and np.array_equal(one.chosen, same.chosen)
    assert not np.array_equal(one.chosen, other.chosen)


def test_a_vocabulary_without_a_mask_is_refused(tokenizer):
    class NoMask:
        mask_id = None

    with pytest.raises(ValueError, match="no mask token"):
        Masking(NoMask())
