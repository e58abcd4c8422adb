"""BertPretrainer(new_words=...): words of the texts replace a checkpoint's unused tokens."""

import re
import warnings

import numpy as np
import pytest
from keras import ops
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from kbert import BertClassifier, BertConfig, BertPretrainer, WordPieceTokenizer
from kbert.errors import NewWordsWarning
from kbert.model import BertForPreTraining
from kbert.pretraining import Corpus
from kbert.weights import save_pretraining

pytestmark = pytest.mark.slow
TEXTS = Corpus(
    ["the remdesivir test\nwas remdesivir here", "a test was the dexa\nthe dexa and remdesivir"] * 4, split="lines"
)


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A checkpoint with four unused tokens, whose vocabulary has letters and some whole words."""
    folder = tmp_path_factory.mktemp("released") / "weights"
    common = "the a test was here and".split()
    letters = list("abcdefghijklmnopqrstuvwxyz")
    tokenizer = WordPieceTokenizer.train(
        [" ".join([*common, *letters, "xabcdefghijklmnopqrstuvwxyz"])] + [" ".join(common)] * 9,
        vocab_size=120, min_frequency=5, n_unused=4,
    )  # fmt: skip
    config = BertConfig(tokenizer.vocab_size, 32, 1, 2, 64, max_position_embeddings=32)
    save_pretraining(BertForPreTraining(config, dtype="float32", seed=5), folder)
    tokenizer.save(folder)
    return folder


def make(weights, **changes):
    values = dict(max_length=32, max_steps=2, batch_size=4, learning_rate=1e-5, dtype="float32", random_state=0)
    return BertPretrainer(weights=weights, **{**values, **changes})


def test_the_words_that_the_texts_need_most(released, tmp_path):
    before = WordPieceTokenizer.from_pretrained(released)
    run = make(released, new_words=2).fit(TEXTS)
    assert run.new_words_ == ["remdesivir", "dexa"]
    assert run.tokenizer_.encode("Remdesivir dexa").ids[1:-1] == [1, 2] and run.config_.vocab_size == before.vocab_size
    run.save(tmp_path / "mine")
    loaded = BertPretrainer.load(tmp_path / "mine", verify=True)
    assert loaded.new_words_ == run.new_words_ and loaded.tokenizer_ == run.tokenizer_ and loaded.new_words == 2
    # Goes on with the same words, in place or from the folder, and serves other estimators.
    assert loaded.set_params(warm_start=True).fit(TEXTS).new_words_ == run.new_words_
    assert make(tmp_path / "mine").fit(TEXTS).tokenizer_ == run.tokenizer_
    classifier = BertClassifier(weights=tmp_path / "mine", max_length=16, epochs=1, random_state=0)
    assert classifier.fit(["remdesivir", "dexa"] * 4, [0, 1] * 4).tokenizer_ == run.tokenizer_


def test_words_start_from_their_pieces(released):
    plain = make(released)
    model, tokenizer = plain._model_and_tokenizer()
    table = np.array(ops.convert_to_numpy(model.encoder.embeddings.word.value))
    run = make(released, new_words=["Dexa", "the"], max_steps=1, learning_rate=1e-9, nsp=False).fit(TEXTS)
    assert run.new_words_ == ["dexa"]
    pieces = tokenizer.encode("dexa").ids[1:-1]
    after = ops.convert_to_numpy(run.model_.encoder.embeddings.word.value)
    assert len(pieces) > 1
    np.testing.assert_allclose(after[1], table[pieces].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(after[2:], table[2:], atol=1e-6)
    assert make(released).fit(TEXTS).new_words_ == []


def test_fewer_places_than_words(released):
    with pytest.warns(NewWordsWarning, match="new_words=50, and the vocabulary has 4 unused tokens"):
        run = make(released, new_words=50).fit([*TEXTS, "dexb dexc dexd"])
    assert len(run.new_words_) == 4 and {"remdesivir", "dexa"} < set(run.new_words_)
    with warnings.catch_warnings():  # there are places for both
        warnings.simplefilter("error", NewWordsWarning)
        assert set(make(released, new_words=50).fit(TEXTS).new_words_) == {"remdesivir", "dexa"}
    with pytest.raises(ValueError, match="there are 5 new ones, and the vocabulary has 4"):
        make(released, new_words=["dexa", "dexb", "dexc", "dexd", "dexe"]).fit(TEXTS)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (dict(weights=None, new_words=3), ValueError, "with weights=None the whole vocabulary is learned"),
        (dict(new_words=0), ValueError, "new_words must be None, a whole number of at least 1, or a list of words"),
        (dict(new_words=True), ValueError, "new_words must be"),
        (dict(new_words="dexa"), ValueError, "new_words must be"),
        (dict(new_words=["dexa", 3]), TypeError, "new_words must be"),
        (dict(new_words=["covid-19"]), ValueError, "'covid-19' cannot be one entry"),
    ],
)
def test_what_cannot_be_done_is_told(released, changes, error, message):
    run = make(**{"weights": released, **changes})
    with pytest.raises(error, match=re.escape(message)):
        run.fit(TEXTS)
    with pytest.raises(NotFittedError):
        run._check_fitted()
    assert clone(run).get_params()["new_words"] == changes["new_words"]
