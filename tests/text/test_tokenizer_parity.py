"""The same tokens as transformers on released vocabularies."""

import gzip
import lzma
from itertools import islice

import numpy as np
import pytest
from unusual_texts import NASTY

from kbert.text import WordPieceTokenizer

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module", params=["minilm_folder", "bert_tiny_folder"])
def both(request):
    """Our tokenizer and theirs, from the same folder."""
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    folder = request.getfixturevalue(request.param)
    # With special tokens in a text as characters, as ours are. Set on the backend, it would be set back in each call.
    theirs = transformers.AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    return WordPieceTokenizer.from_pretrained(folder), theirs


def _assert_same_columns(ours, theirs, texts):
    column = ours.tokenize_column(texts)
    ids = theirs(texts, add_special_tokens=False, truncation=False, padding=False)["input_ids"]
    np.testing.assert_array_equal(column.lengths, list(map(len, ids)))
    np.testing.assert_array_equal(column.values, np.concatenate(ids))


def test_unusual_characters(both):
    ours, theirs = both
    # In one batch: called with a single pair, they take an empty second text for none.
    expected = theirs(NASTY, NASTY[::-1], return_offsets_mapping=True, truncation=False, padding=False)
    for i, (text, pair) in enumerate(zip(NASTY, reversed(NASTY), strict=True)):
        encoding = ours.encode(text, pair)
        assert encoding.ids == expected["input_ids"][i], text
        assert encoding.segment_ids == expected["token_type_ids"][i]
        assert encoding.offsets == expected["offset_mapping"][i]
        assert encoding.word_ids == expected.word_ids(i)
    _assert_same_columns(ours, theirs, NASTY)


def test_padded_batches(both):
    ours, theirs = both
    expected = theirs(NASTY, truncation=True, max_length=40, padding=True, return_tensors="np")
    batch = ours(NASTY, max_length=40)
    np.testing.assert_array_equal(batch["token_ids"], expected["input_ids"])
    np.testing.assert_array_equal(batch["segment_ids"], expected["token_type_ids"])
    np.testing.assert_array_equal(batch["text_ids"], expected["attention_mask"])


def test_sst2(both, data_folder):
    with gzip.open(data_folder / "sst2" / "dev.tsv.gz", "rt", encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in islice(file, 1, None)]
    assert len(texts) == 872
    _assert_same_columns(*both, texts)


@pytest.mark.thorough
def test_wikipedia(both, data_folder):
    with lzma.open(data_folder / "wiki_en" / "train-00-of-08.txt.xz", "rt", encoding="utf-8") as file:
        texts = list(islice((line for line in map(str.strip, file) if line), 20_000))
    assert len(texts) == 20_000
    _assert_same_columns(*both, texts)
