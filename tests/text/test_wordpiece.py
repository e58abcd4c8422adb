"""The tokenizer: pieces, offsets, text as data, immutability, errors."""

import copy
import gzip
import json
import pickle
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from unusual_texts import NASTY

from kbert.text import WordPieceTokenizer


@pytest.fixture(scope="module")
def minilm(minilm_folder):
    return WordPieceTokenizer.from_pretrained(minilm_folder)


@pytest.fixture(scope="module")
def small():
    return WordPieceTokenizer.train(["the cat [SEP] sat [MASK] on the mat"] * 3)


def test_known_ids(minilm):
    encoding = minilm.encode("Unaffable cats, naïve!", "Yes")
    assert encoding.tokens == "[CLS] una ##ffa ##ble cats , naive ! [SEP] yes [SEP]".split()
    assert encoding.ids == [101, 14477, 20961, 3468, 8870, 1010, 15743, 999, 102, 2748, 102]
    assert encoding.segment_ids == [0] * 9 + [1] * 2
    assert encoding.word_ids == [None, 0, 0, 0, 1, 2, 3, 4, None, 0, None]
    assert encoding.offsets[1:4] == [(0, 3), (3, 6), (6, 9)] and encoding.offsets[-2:] == [(0, 3), (0, 0)]
    assert (minilm.vocab_size, minilm.lowercase, minilm.model_max_length) == (30522, True, 512)
    assert (minilm.pad_id, minilm.unk_id, minilm.cls_id, minilm.sep_id, minilm.mask_id) == (0, 100, 101, 102, 103)
    assert minilm.decode(encoding.ids) == "unaffable cats, naive! yes"


def _normalised(text):
    """What BERT's uncased normaliser makes of characters, by Python's own Unicode tables."""
    kept = (c for c in text if unicodedata.category(c)[0] != "C" and c != "\ufffd")
    bare = (c for c in unicodedata.normalize("NFD", "".join(kept)) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in bare)


def _assert_offsets_point_at_pieces(tokenizer, text):
    encoding = tokenizer.encode(text)
    for token, (start, end), word in zip(encoding.tokens, encoding.offsets, encoding.word_ids, strict=True):
        if word is not None and token != "[UNK]":
            piece, characters = token.removeprefix("##" if len(token) > 2 else ""), _normalised(text[start:end])
            # One character can become several, such as the letters of a Korean syllable, and then several pieces.
            assert piece == characters or (end - start == 1 and piece in characters), text


@pytest.mark.parametrize("text", NASTY)
def test_offsets_of_unusual_characters(minilm, text):
    _assert_offsets_point_at_pieces(minilm, text)


def test_offsets_of_sst2(minilm, data_folder):
    with gzip.open(data_folder / "sst2" / "dev.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            _assert_offsets_point_at_pieces(minilm, line)


def test_special_tokens_in_texts_are_characters(small):
    expected = ["[CLS]", "[", "sep", "]", "[", "mask", "]", "[SEP]"]
    for tokenizer in (small, pickle.loads(pickle.dumps(small)), copy.deepcopy(small), copy.copy(small)):
        assert tokenizer == small and hash(tokenizer) == hash(small)
        assert tokenizer.encode("[SEP] [MASK]").tokens == expected
        assert tokenizer(["[SEP] [MASK]"])["token_ids"].tolist() == [tokenizer.encode("[SEP] [MASK]").ids]


def test_added_tokens_are_found_in_texts(small, tmp_path):
    small.save(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    marker = spec["added_tokens"][0] | {"id": small.vocab_size, "content": "[E1]", "special": True}
    spec["added_tokens"].append(marker)
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    tokenizer = WordPieceTokenizer.from_pretrained(tmp_path)
    assert tokenizer.vocab_size == small.vocab_size + 1
    assert pickle.loads(pickle.dumps(tokenizer)).encode("[E1] [SEP]").tokens == "[CLS] [E1] [ sep ] [SEP]".split()
    tokenizer.save(tmp_path)
    assert marker in json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]


def test_column_equals_single_texts(small, monkeypatch):
    texts = ["the cat", "", "sat on the mat " * 20, "\u4e16 the", "mat"] * 7
    expected = [small.encode(text).ids[1:-1] for text in texts]
    for chunk_rows, chunk_characters in ((1024, 1_000_000), (3, 1_000_000), (1024, 50), (1, 1)):
        monkeypatch.setattr("kbert.text.batch_encoder._CHUNK_ROWS", chunk_rows)
        monkeypatch.setattr("kbert.text.batch_encoder._CHUNK_CHARACTERS", chunk_characters)
        column = small.tokenize_column(texts)
        assert [column.row(i).tolist() for i in range(len(column))] == expected
        assert column.values.dtype == np.int32 and column.splits.dtype == np.int64


def test_any_column_of_strings(small):
    texts = ["the cat", "sat"]
    expected = small(texts)["token_ids"]
    for column in (tuple(texts), np.array(texts), np.array(texts, object), pd.Series(texts), iter(texts)):
        np.testing.assert_array_equal(small(column)["token_ids"], expected)


def test_threads_share_a_tokenizer(small):
    texts = [f"the cat sat {'on the mat ' * (i % 7)}" for i in range(500)]
    expected = small(texts)["token_ids"]
    with ThreadPoolExecutor(8) as threads:
        for result in threads.map(lambda _: small(texts)["token_ids"], range(40)):
            np.testing.assert_array_equal(result, expected)


def test_vocabulary_is_a_copy(small):
    small.vocab.clear()
    assert len(small.vocab) == small.vocab_size
    assert list(small.vocab.values()) == list(range(small.vocab_size))
    assert small.token_to_id("cat") == small.vocab["cat"] and small.id_to_token(small.vocab["cat"]) == "cat"
    assert small.token_to_id("no such piece") is None and small.id_to_token(10**6) is None


def test_lone_surrogates_name_row_and_repair(small):
    texts = ["the cat"] * 2000 + ["mat \ud83d"]
    with pytest.raises(ValueError, match=r"texts: row 2000 holds a lone surrogate, '\\ud83d' at character 4") as error:
        small(texts)
    repair = str(error.value).split("Repair the text: ")[1].rstrip(".")
    repaired = eval(repair, {"text": texts[-1]})
    assert small([repaired])["token_ids"].tolist() == small(["mat"])["token_ids"].tolist()
    with pytest.raises(ValueError, match="pairs: row 1 holds a lone surrogate"):
        small(["a", "b"], ["c", "\udc00"])
    with pytest.raises(ValueError, match="pair holds a lone surrogate"):
        small.encode("a", "\udc00")


@pytest.mark.parametrize("bad", [None, 3, float("nan"), b"cat", ("the", "cat"), ["the", "cat"]])
def test_rows_that_are_no_strings(small, bad):
    with pytest.raises(TypeError, match=f"texts: row 1 is of type {type(bad).__name__}"):
        small(["the cat", bad])
    with pytest.raises(TypeError, match="text must be a str"):
        small.encode(bad)


def test_what_is_no_column(small):
    with pytest.raises(ValueError, match=r"texts is a single str.*\[texts\]"):
        small("the cat")
    for table in (pd.DataFrame({"a": ["the cat"]}), {"a": "the cat"}, np.array([["the", "cat"]])):
        with pytest.raises(ValueError, match="one column of texts is wanted"):
            small(table)
