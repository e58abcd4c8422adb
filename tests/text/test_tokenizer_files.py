"""Opening and saving tokenizers."""

import base64
import errno
import json
import warnings

import pytest

from kbert.errors import VocabularyWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.files import json_files
from kbert.text import WordPieceTokenizer
from kbert.text.files import check_vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def trained():
    return WordPieceTokenizer.train(["Der Bär läuft, the bear runs"] * 3, vocab_size=200)


def _vocab_folder(folder, pieces, **config):
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _edit(folder, change):
    path = folder / "tokenizer.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    change(spec)
    path.write_text(json.dumps(spec), encoding="utf-8")


def _dna_folder(folder):
    """A vocabulary of single bases, cased, with special tokens of other names."""
    vocab = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>", "<pad>", "A", "C", "G", "T"])}
    spec = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": "U"}, "content": "T"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "<unk>",
            "continuing_subword_prefix": "",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    names = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": {"content": "</s>"}, "unk_token": "<unk>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    return folder


def test_round_trip(trained, tmp_path):
    trained.save(tmp_path / "new" / "folder")
    again = WordPieceTokenizer.from_pretrained(tmp_path / "new" / "folder")
    assert again == trained
    assert (tmp_path / "new" / "folder" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1] == list(
        trained.vocab
    )


@pytest.mark.parametrize("lowercase", [True, False])
def test_vocab_txt_alone_says_the_same(trained, tmp_path, lowercase):
    trained = WordPieceTokenizer.train(["Der Bär läuft"] * 3, lowercase=lowercase, strip_accents=False)
    trained.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert WordPieceTokenizer.from_pretrained(tmp_path) == trained


@pytest.mark.parametrize(
    "config, pieces, lowercase",
    [
        ({}, ["bear", "ℝ"], True),  # ℝ counts as upper case and has no lower case; Google's uncased vocabulary holds it
        ({}, ["bear", "<S>", "<T>"], True),  # markers, which Google's Chinese vocabulary holds
        ({}, ["bear", "[E1]"], True),  # a place of [unused0] and so on, with a name of the user's own
        ({}, ["bear", "##S"], False),
        ({"do_lower_case": True}, ["bear", "##S"], True),
        ({"do_lower_case": False}, ["bear"], False),
    ],
)
def test_casing_of_a_vocab_txt(tmp_path, config, pieces, lowercase):
    tokenizer = WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, SPECIALS + pieces, **config))
    assert tokenizer.lowercase is lowercase
    assert tokenizer.encode("BEAR").tokens[1] == ("bear" if lowercase else "[UNK]")


def test_settings_of_a_vocab_txt(tmp_path):
    config = {"strip_accents": False, "tokenize_chinese_chars": False, "model_max_length": 256}
    pieces = [*SPECIALS, "é", "東京", "\x85", "a" * 100]
    tokenizer = WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, pieces, **config))
    assert tokenizer.encode("É 東京").tokens == ["[CLS]", "é", "東京", "[SEP]"]
    assert tokenizer.model_max_length == 256 and tokenizer.vocab_size == 9
    assert tokenizer.encode("a" * 100).ids[1] == 8 and tokenizer.encode("a" * 101).ids[1] == tokenizer.unk_id


def test_tokens_added_to_a_vocab_txt(tmp_path):
    pieces = [*SPECIALS, "the", "cat", "[unused1]", "a", "19"]
    n = len(pieces)
    decoder = {
        str(i): {"content": name, "special": True, "normalized": False} for i, name in enumerate(SPECIALS)
    } | {
        "7": {"content": "[unused1]", "special": True, "normalized": False},
        str(n): {"content": "<User>", "normalized": False, "lstrip": True},
    }  # fmt: skip
    folder = _vocab_folder(tmp_path, pieces, added_tokens_decoder=decoder, additional_special_tokens=["<e>"])
    (folder / "added_tokens.json").write_text(json.dumps({"<User>": n, "Covid-19": n + 1, "<e>": n + 2}))
    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    assert tokenizer.vocab_size == n + 3

    def ids_of(text):
        return tokenizer.encode(text).ids[1:-1]

    assert ids_of("the cat  <User>a [unused1] [SEP]")[:5] == [5, 6, n, 8, 7] and 3 not in ids_of("[SEP]")
    # Those that are not special are found in lower case too, as by transformers.
    assert ids_of("COVID-19 <e>") == [n + 1, n + 2]
    assert n + 2 not in ids_of("<E>") and n not in ids_of("<user>")
    tokenizer.save(tmp_path / "again")
    assert WordPieceTokenizer.from_pretrained(tmp_path / "again") == tokenizer


@pytest.mark.parametrize(
    "added, message",
    [
        ({"<e>": 99}, "do not go on where its vocab.txt ends, at 6"),
        ({"<e>": "6"}, "do not go on where"),
        ({"<e>": 6, "<f>": 6}, "do not go on where"),
        ({"the": 3}, "'the' has the id 3, and the id 5 in vocab.txt"),
    ],
)
def test_added_tokens_that_do_not_fit_a_vocab_txt(tmp_path, added, message):
    folder = _vocab_folder(tmp_path, [*SPECIALS, "the"])
    (folder / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(WeightsMismatchError, match=message):
        WordPieceTokenizer.from_pretrained(folder)


def test_special_ids_are_read(tmp_path):
    tokenizer = WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, ["bear", *SPECIALS[::-1]]))
    assert (tokenizer.mask_id, tokenizer.sep_id, tokenizer.cls_id, tokenizer.unk_id, tokenizer.pad_id) == (
        1,
        2,
        3,
        4,
        5,
    )
    assert tokenizer(["bear", ""])["token_ids"].tolist() == [[3, 0, 2], [3, 2, 5]]


def test_mask_may_be_missing(tmp_path):
    assert WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, SPECIALS[:4])).mask_id is None


def test_stored_truncation_and_padding_are_dropped(trained, tmp_path):
    trained.save(tmp_path)
    stored = {
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
    }
    _edit(tmp_path, lambda spec: spec.update(stored))
    tokenizer = WordPieceTokenizer.from_pretrained(tmp_path)
    assert tokenizer == trained
    assert (
        tokenizer.encode("the bear runs, the bear runs").tokens == trained.encode("the bear runs, the bear runs").tokens
    )
    assert tokenizer(["the", "the bear runs, the bear"])["text_ids"].sum(axis=1).tolist() == [3, 8]


def test_other_normalisers_and_names(tmp_path):
    tokenizer = WordPieceTokenizer.from_pretrained(_dna_folder(tmp_path))
    assert tokenizer.encode("ACGUx").tokens == ["<s>", "A", "C", "G", "T", "<unk>", "</s>"]
    assert tokenizer.mask_id is None and tokenizer.pad_id == 3 and not tokenizer.lowercase
    tokenizer.save(tmp_path / "saved")
    assert WordPieceTokenizer.from_pretrained(tmp_path / "saved") == tokenizer


def test_no_vocab_txt_that_would_say_something_else(trained, tmp_path):
    trained.save(tmp_path)
    _edit(tmp_path, lambda spec: spec["model"]["vocab"].update(far=5000))
    tokenizer = WordPieceTokenizer.from_pretrained(tmp_path)
    assert tokenizer.vocab_size == 5001
    tokenizer.save(tmp_path)
    assert not (tmp_path / "vocab.txt").exists()
    assert WordPieceTokenizer.from_pretrained(tmp_path) == tokenizer


def _parity_folders(trained, tmp_path):
    """Tokenizers that transformers must rebuild or read in different ways."""
    yield trained
    yield WordPieceTokenizer.train(["Der Bär läuft"] * 3, lowercase=False)
    yield WordPieceTokenizer.train(["Der Bär läuft"] * 3, strip_accents=False)
    trained.save(tmp_path)
    _edit(tmp_path, lambda spec: spec["model"].update(max_input_chars_per_word=200))
    yield WordPieceTokenizer.from_pretrained(tmp_path)
    trained.save(tmp_path)
    _edit(tmp_path, lambda spec: spec["added_tokens"].append(spec["added_tokens"][0] | {"id": 999, "content": "<e>"}))
    yield WordPieceTokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    yield WordPieceTokenizer.from_pretrained(_dna_folder(tmp_path))


@pytest.mark.parity
def test_transformers_opens_what_was_saved(trained, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    (tmp_path / "source").mkdir()
    for i, tokenizer in enumerate(_parity_folders(trained, tmp_path / "source")):
        folder = tmp_path / str(i)
        tokenizer.save(folder)
        (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        for text in ("Der BÄR läuft, the bear", "ab" * 75, "<e>the<e>", "ACGU", "東京 e\u0301"):
            ours = tokenizer.encode(text, "Bär")
            encoded = theirs(text, "Bär")
            assert encoded["input_ids"] == ours.ids, (i, text)
            assert encoded["token_type_ids"] == ours.segment_ids
        for role in ("pad", "unk", "cls", "sep"):
            assert getattr(theirs, f"{role}_token_id") == getattr(tokenizer, f"{role}_id")
        if tokenizer.mask_id is not None:
            assert theirs.mask_token_id == tokenizer.mask_id


def test_a_save_that_fails_leaves_the_earlier_files(trained, tmp_path, monkeypatch):
    trained.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write = json_files._write_text

    def fill_the_disk(path, text):
        if path.name.startswith("vocab.txt"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, text)

    monkeypatch.setattr(json_files, "_write_text", fill_the_disk)
    with pytest.raises(OSError, match=r"No space left on device.*vocab\.txt"):
        WordPieceTokenizer.train(["another text"] * 5).save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_no_files(tmp_path):
    with pytest.raises(WeightsNotFoundError, match="neither a tokenizer.json nor a vocab.txt"):
        WordPieceTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "is not valid JSON"),
        ("[]", "does not hold a JSON object"),
        ("{}", "holds no tokenizer"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "of type BPE, and BERT's is WordPiece"),
        ('{"model": {"type": "WordPiece", "vocab": {"a": 0}}}', r"lacks the special token '\[PAD\]' \(pad\)"),
    ],
)
def test_malformed_tokenizer_json(tmp_path, content, message):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(WeightsMismatchError, match=message) as error:
        WordPieceTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(error.value)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda spec: spec["model"]["vocab"].update({"[SEP]": 2}), "'\\[SEP\\]' has no id of its own"),
        (lambda spec: spec["added_tokens"][2].update(id=77), "'\\[CLS\\]' has no id of its own"),
        (lambda spec: spec["added_tokens"][2].update(id="77"), "'\\[CLS\\]' has no id of its own"),
        (lambda spec: spec["added_tokens"][2].update(id=None), "'\\[CLS\\]' has no id of its own"),
        (lambda spec: spec["added_tokens"][2].update(id=[77]), "'\\[CLS\\]' has no id of its own"),
        (lambda spec: spec["model"].update(unk_token="<unk>"), "lacks the special token '<unk>'"),
        (lambda spec: spec["model"]["vocab"].update(a=-1), "the tokenizers library can read"),
        (lambda spec: spec.update(normalizer={"type": "Unheard"}), "the tokenizers library can read"),
    ],
)
def test_damaged_tokenizer_json(trained, tmp_path, change, message):
    trained.save(tmp_path)
    _edit(tmp_path, change)
    with pytest.raises(WeightsMismatchError, match=message):
        WordPieceTokenizer.from_pretrained(tmp_path)


def test_blank_lines_at_the_end_of_a_vocab_txt_are_no_pieces(trained, tmp_path):
    trained.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    text = (tmp_path / "vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(text + "\n\n", encoding="utf-8")
    assert WordPieceTokenizer.from_pretrained(tmp_path).vocab == trained.vocab


def test_malformed_vocab_txt(tmp_path):
    with pytest.raises(WeightsMismatchError, match="'\\[SEP\\]' in more than one line"):
        WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, [*SPECIALS, "[SEP]"]))
    with pytest.raises(WeightsMismatchError, match=r"vocab.txt lacks the special token '\[CLS\]'"):
        WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, ["[PAD]", "[UNK]", "a"]))
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(WeightsMismatchError, match="is not UTF-8"):
        WordPieceTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("n_rows", [31, 40, 30522])
def test_a_vocab_txt_that_was_cut_is_refused(tmp_path, n_rows):
    with pytest.raises(WeightsMismatchError, match=f"has 30 entries.*has {n_rows} rows.* cut"):
        check_vocabulary(30, n_rows, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')  # which cannot be cut unnoticed
    with pytest.warns(VocabularyWarning, match=f"has 30 entries.*has {n_rows} rows"):
        check_vocabulary(30, n_rows, tmp_path)


@pytest.mark.parametrize("n_rows", [31, 32])
def test_the_vocabulary_of_a_preset_may_have_been_cut(tmp_path, n_rows):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"registered_name": "keras_hub>BertTokenizer", "config": {}}))
    with pytest.warns(VocabularyWarning, match=f"has 30 entries.*has {n_rows} rows.* was cut"):
        check_vocabulary(30, n_rows, tmp_path)


@pytest.mark.parametrize("n_rows", [30, 32, 64, 128])
def test_a_table_may_be_padded(tmp_path, n_rows):
    if n_rows > 30:  # or lines were cut
        with pytest.warns(VocabularyWarning, match=f"has 30 entries.*has {n_rows} rows.* was cut"):
            check_vocabulary(30, n_rows, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with warnings.catch_warnings(action="error"):
        check_vocabulary(30, n_rows, tmp_path)


# === Files that ask for more than a model needs ===


def _replace(pattern, content, times=1):
    """A normalizer that replaces, several times over."""
    kind = "Regex" if pattern.startswith("re:") else "String"
    part = {"type": "Replace", "pattern": {kind: pattern.removeprefix("re:")}, "content": content}
    return {"type": "Sequence", "normalizers": [part] * times}


def _nested(part, depth):
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part, part]}
    return part


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda spec: spec["model"]["vocab"].update(far=4 * 10**9), r"model.vocab gives 'far' the id 4000000000"),
        (lambda spec: spec["model"]["vocab"].update(far=2_000_000), r"model.vocab gives 'far' the id 2000000, .*below"),
        (lambda spec: spec["added_tokens"][0].update(id=4 * 10**9), r"added_tokens gives '\[PAD\]' the id 4000000000"),
        (lambda spec: spec.update(added_tokens=5), "added_tokens must be a list of objects"),
        (lambda spec: spec.update(added_tokens=[5]), "added_tokens must be a list of objects"),
        (lambda spec: spec.update(added_tokens={"a": 1}), "added_tokens must be a list of objects"),
        (lambda spec: spec["model"].update(max_input_chars_per_word=10**7), "max_input_chars_per_word is 10000000"),
        (lambda spec: spec["model"].update(max_input_chars_per_word=1001), "max_input_chars_per_word is 1001"),
        (lambda spec: spec.update(normalizer=_replace("a", "b", 1001)), "normalizer has more than 1,000 steps"),
        (
            lambda spec: spec.update(normalizer=_nested({"type": "StripAccents"}, 9)),
            "normalizer has more than 1,000 steps",
        ),
        (lambda spec: spec.update(normalizer=_replace("a", "aa", 20)), "normalizer could make more than 1,000 char"),
        (lambda spec: spec.update(normalizer=_replace("re:a", "aa", 20)), "normalizer could make more than 1,000 char"),
        (lambda spec: spec.update(normalizer=_replace("re:a*", "a", 20)), "normalizer could make more than 1,000 char"),
        (lambda spec: spec.update(normalizer=_replace("re:(?=a)", "a", 20)), "normalizer could make more than 1,000"),
        (lambda spec: spec.update(normalizer=_replace("", "a", 20)), "normalizer could make more than 1,000 char"),
        (lambda spec: spec.update(normalizer=_replace("a", "a" * 1001)), "normalizer could make more than 1,000 char"),
        (lambda spec: spec.update(normalizer={"type": "Prepend", "prepend": "a" * 1000}), "normalizer could make more"),
        (lambda spec: spec.update(normalizer=_charsmap(b"a" * 1001)), "normalizer could make more than 1,000 char"),
        (
            lambda spec: spec.update(
                pre_tokenizer={
                    "type": "Sequence",
                    "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}] * 9,
                }
            ),
            "pre_tokenizer could make more than 1,000 char",
        ),
    ],
)
def test_a_tokenizer_json_that_asks_for_too_much_is_refused_before_the_library_sees_it(
    trained, tmp_path, change, message, monkeypatch
):
    trained.save(tmp_path)
    _edit(tmp_path, change)
    monkeypatch.setattr("kbert.text.base_tokenizer.Tokenizer", None)
    with pytest.raises(WeightsMismatchError, match=message) as error:
        WordPieceTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(error.value)


def _charsmap(replacement):
    """SentencePiece's rules: an empty table, and one replacement."""
    content = (4).to_bytes(4, "little") + bytes(4) + replacement + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


@pytest.mark.parametrize(
    "normalizer",
    [
        # ALBERT's, and forms of Unicode before BERT's own.
        [
            *(_replace("``", '"'), _replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}),
            *({"type": "Lowercase"}, _replace("re: {2,}", " ")),
        ],
        [
            {"type": "NFKC"},
            {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
        ],
        [_replace(r"re:[^a-z\?]+", " ", 900), _replace("...", "\u2026", 90)],
    ],
    ids=["like ALBERT", "NFKC before BERT", "many"],
)
def test_normalizers_that_models_have_are_read(trained, tmp_path, normalizer):
    trained.save(tmp_path)
    _edit(tmp_path, lambda spec: spec.update(normalizer={"type": "Sequence", "normalizers": normalizer}))
    assert len(WordPieceTokenizer.from_pretrained(tmp_path).encode("the bear").tokens) > 2


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        lambda spec: spec.update(normalizer=_charsmap(b"")),
        lambda spec: spec.update(pre_tokenizer={"type": "FixedLength", "length": 0}),
    ],
    ids=["no rules", "rules of nothing", "words of no length"],
)
def test_what_the_library_panics_of_is_refused(trained, tmp_path, change):
    trained.save(tmp_path)
    _edit(tmp_path, change)
    with pytest.raises(WeightsMismatchError, match="the tokenizers library can read") as error:
        WordPieceTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(error.value)


def test_ctrl_c_is_not_taken_for_a_damaged_file(trained, tmp_path, monkeypatch):
    trained.save(tmp_path)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(WordPieceTokenizer, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        WordPieceTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "name, limit, message",
    [
        ("vocab.txt", "MOST_BYTES_OF_LINES", "has .* bytes, and a vocabulary has at most 100"),
        ("vocab.txt", "MOST_PIECES", "has .* lines, and a vocabulary has at most 100 pieces"),
        ("tokenizer.json", "MOST_BYTES_OF_JSON", "has .* bytes, and at most 100 can belong to a model"),
        ("tokenizer.json", "MOST_VALUES", "has more values than the 100 that can belong to a model"),
    ],
)
def test_a_file_beyond_its_limit_is_not_parsed(trained, tmp_path, monkeypatch, name, limit, message):
    trained.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    if name == "vocab.txt":
        (tmp_path / "tokenizer.json").unlink()
        with (tmp_path / name).open("a") as file:
            file.write("\n" * 100)
    monkeypatch.setattr(f"kbert.text.files.{limit}", 100)
    monkeypatch.setattr("kbert.files.json_files.json.loads", None)
    with pytest.raises(WeightsMismatchError, match=message) as error:
        WordPieceTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / name) in str(error.value)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_vocab_txt_may_have_any_line_ends(trained, tmp_path, end):
    trained.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    text = (tmp_path / "vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(text, encoding="utf-8", newline=end)
    assert WordPieceTokenizer.from_pretrained(tmp_path).vocab == trained.vocab


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda model: model["vocab"].update({"[SEP]": {"id": 3}}), "'\\[SEP\\]' has no id of its own"),
        (lambda model: model.update(unk_token=["[UNK]"]), r"model.unk_token is \['\[UNK\]'\], and it must be a string"),
    ],
)
def test_special_tokens_of_a_wrong_type_are_refused(trained, tmp_path, change, message):
    trained.save(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    change(spec["model"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(WeightsMismatchError, match=message):
        WordPieceTokenizer.from_pretrained(tmp_path)


# === Settings ===


@pytest.mark.parametrize("kind", [None, "BertTokenizer", "DistilBertTokenizerFast"])
def test_a_null_says_that_accents_go_with_the_case(trained, tmp_path, kind):
    trained.save(tmp_path)
    _edit(tmp_path, lambda spec: spec["normalizer"].update(strip_accents=False))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "do_lower_case": True}))
    assert WordPieceTokenizer.from_pretrained(tmp_path).encode("läuft").tokens[1:-1] == ["[UNK]"]
    settings = {"tokenizer_class": kind, "do_lower_case": True, "strip_accents": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert WordPieceTokenizer.from_pretrained(tmp_path).encode("läuft").tokens == trained.encode("läuft").tokens


@pytest.mark.parametrize("key", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
@pytest.mark.parametrize("value", ["false", 0])
def test_a_setting_that_is_no_boolean_is_refused(tmp_path, key, value):
    with pytest.raises(WeightsMismatchError, match=f"tokenizer_config.json: {key} is {value!r}, and should be true or"):
        WordPieceTokenizer.from_pretrained(_vocab_folder(tmp_path, [*SPECIALS, "a"], **{key: value}))


def test_a_byte_order_mark_is_no_part_of_the_first_piece(tmp_path):
    path = _vocab_folder(tmp_path, [*SPECIALS, "a"]) / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert WordPieceTokenizer.from_pretrained(tmp_path).encode("a").ids == [2, 5, 3]


def test_a_tokenizer_is_saved_in_the_home_folder(trained, tmp_path, monkeypatch):
    for name in ("HOME", "USERPROFILE"):  # the second one on Windows
        monkeypatch.setenv(name, str(tmp_path))
    trained.save("~/bert")
    assert WordPieceTokenizer.from_pretrained(tmp_path / "bert") == trained


def test_a_negative_number_is_no_id(trained):
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        trained.decode([3, -1])
