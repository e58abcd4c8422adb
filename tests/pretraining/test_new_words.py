"""Which new words texts need, and what they start from."""

import warnings

import numpy as np
import pytest
from keras import ops

from kbert import BertConfig, WordPieceTokenizer
from kbert.errors import NewWordsWarning
from kbert.model import BertForPreTraining
from kbert.pretraining.new_words import add_new_words, frequent_split_words, start_new_words
from kbert.text.files import bert_spec

pytestmark = pytest.mark.slow


PLACES, SPECIALS = [f"[unused{i}]" for i in range(3)], ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "cdehot12"


def made_of(*pieces):
    return WordPieceTokenizer(bert_spec({piece: i for i, piece in enumerate(pieces)}, "[UNK]", True, False, True))


@pytest.fixture(scope="module")
def tokenizer():
    """Its whole words are "the" and "code"; others of their letters are split, and "ж" is unknown. Three places."""
    return made_of("[PAD]", *PLACES, *SPECIALS, "the", "code", *LETTERS, *(f"##{letter}" for letter in LETTERS))


def test_the_most_frequent_split_words_in_order(tokenizer):
    texts = [
        "the tod tod tod, code; hoe hoe ced",
        "TOD deco deco 12 12 12 12 ж ж ж ж c-t c-t e2 e2 the the the the the",
    ]
    assert frequent_split_words(iter(texts), tokenizer, 10) == ["tod", "deco", "e2", "hoe", "ced"]
    assert frequent_split_words(texts[::-1], tokenizer, 2) == ["tod", "deco"]
    assert frequent_split_words(texts, tokenizer, 0) == [] == frequent_split_words([], tokenizer, 3)


def test_marks_belong_to_letters():
    tokenizer = made_of("[PAD]", *SPECIALS, "ह", "##ि", "##न", "##द", "##ी")
    assert frequent_split_words(["हिनदी हिनदी"], tokenizer, 1) == ["हिनदी"]


def test_many_words_are_looked_up_in_parts(tokenizer, monkeypatch):
    texts = ["tod tod tod the the the the hoe hoe ced"]
    monkeypatch.setattr("kbert.pretraining.new_words._CHUNK", 2)
    assert frequent_split_words(texts, tokenizer, 3) == ["tod", "hoe", "ced"]


def test_a_number_takes_what_there_is_and_a_list_does_not(tokenizer):
    texts = ["tod tod hoe hoe hoe ced deco"]
    with pytest.warns(NewWordsWarning, match="new_words=4, and the vocabulary has 3 .* the 3 most frequent"):
        new = add_new_words(tokenizer, 4, texts)
    assert [new.id_to_token(i) for i in (1, 2, 3)] == ["hoe", "tod", "ced"] and new.n_unused == 0
    with warnings.catch_warnings():  # there is room for all words that these texts have
        warnings.simplefilter("error", NewWordsWarning)
        assert add_new_words(tokenizer, 50, ["tod hoe the"]).n_unused == 1
    with pytest.warns(NewWordsWarning, match="has no unused tokens: no word is added"):
        assert add_new_words(new, np.int64(2), texts) is new
    with pytest.raises(ValueError, match="there are 4 new ones, and the vocabulary has 3"):
        add_new_words(tokenizer, ["tod", "hoe", "ced", "deco"], texts)


@pytest.mark.backend
def test_a_new_word_starts_as_the_mean_of_its_pieces(tokenizer):
    config = BertConfig(tokenizer.vocab_size, 32, 1, 2, 64, max_position_embeddings=16)
    model = BertForPreTraining(config, dtype="float32", seed=3)
    table, bias = model.encoder.embeddings.word, model.mlm_head.bias
    bias.assign(np.arange(tokenizer.vocab_size, dtype="float32"))
    rows, biases = np.array(ops.convert_to_numpy(table.value)), np.array(ops.convert_to_numpy(bias.value))
    new = tokenizer.with_words(["Tod", "ж"])
    assert start_new_words(model, tokenizer, new) == ["tod", "ж"]
    after, biases_after = ops.convert_to_numpy(table.value), ops.convert_to_numpy(bias.value)
    pieces = tokenizer.encode("tod").ids[1:-1]
    assert len(pieces) == 3
    np.testing.assert_allclose(after[1], rows[pieces].mean(axis=0), rtol=1e-6)
    assert biases_after[1] == pytest.approx(biases[pieces].mean())
    np.testing.assert_array_equal(after[2], rows[tokenizer.unk_id])
    others = np.arange(tokenizer.vocab_size) > 2
    np.testing.assert_array_equal(after[others], rows[others])
    np.testing.assert_array_equal(biases_after[others], biases[others])
    assert start_new_words(model, new, new) == []
