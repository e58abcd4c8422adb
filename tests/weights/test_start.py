"""Starts: at random, the vocabulary that goes with a size; from released weights, the revision."""

from pathlib import Path

import pytest

from kbert import BertConfig
from kbert.weights.start import pretrained_start, random_start

SAVED = Path(__file__).parents[1] / "estimators" / "saved"

SIZES = [
    ("base-cased", False),
    ("large-cased", False),
    ("Google-BERT/bert-base-Cased", False),
    ("base", True),
    ("google-bert/bert-base-uncased", True),
    (BertConfig.from_size("base-cased"), True),
]


@pytest.mark.parametrize(("size", "lowercase"), SIZES, ids=lambda value: str(value)[:30])
def test_a_random_start_of_a_cased_size_tells_upper_and_lower_case_apart(size, lowercase):
    start = random_start(size, ["Oslo is the capital"] * 5, vocab_size=60)
    assert start.tokenizer.lowercase is lowercase
    same = start.tokenizer.encode("Oslo").ids == start.tokenizer.encode("oslo").ids
    assert same is lowercase and start.config.vocab_size == start.tokenizer.vocab_size


def test_a_vocabulary_has_as_many_pieces_as_were_asked_for_or_as_the_architecture_has():
    texts = [" ".join(f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ijkl")] * 3
    config = BertConfig.from_dict({**BertConfig.from_size("tiny").to_dict(), "vocab_size": 50})
    for size, vocab_size, most in ((config, None, 50), (config, 40, 40), ("tiny", 45, 45)):
        start = random_start(size, texts, vocab_size=vocab_size)
        assert start.tokenizer.vocab_size == start.config.vocab_size == most


def test_weights_of_the_hub_are_those_of_the_revision(monkeypatch):
    asked = []
    monkeypatch.setattr("kbert.hub.names.find_in_cache", lambda name, revision: None)
    monkeypatch.setattr("kbert.hub.names.download", lambda *name: asked.append(name) or SAVED / "pretrainer")
    start = pretrained_start("base", "somebody/some-bert", "v2", "BertClassifier")
    assert asked == [("somebody/some-bert", "v2")] and start.folder == SAVED / "pretrainer"
