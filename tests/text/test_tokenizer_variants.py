"""Tokenizer files in their variations: the same tokens as transformers, or an error where kbert cannot know them."""

import json

import pytest

from kbert.errors import WeightsMismatchError
from kbert.text import WordPieceTokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the table is red ##s ! cafe café naive na ##ïve ##ive The a x y , z 我 爱 北 京 北京 ##京 我爱北京 ##爱 ##北
C ( = O ) c 1 ##C ##( ##c ##1 ##O ##) ##= ATGCGT TGCGTA atgcgt ##a united Ünited""".split()
TEXTS = [
    "the Tables!",
    "Café naïve",
    "ATGCGT TGCGTA",
    "我爱北京 the",
    "CC(=O)Oc1 x,y",
    "Ünited",
    "a" * 101,
    "",
    "the\u00ad[x",
]
RENAMED = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
BERT = {"tokenizer_class": "BertTokenizer"}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'")


def _folder(folder, pieces, settings, names=None):
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    if names is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(names))
    return folder


def _assert_same_tokens(transformers, folder):
    ours, theirs = WordPieceTokenizer.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert len({tuple(ours.encode(text).ids) for text in TEXTS}) > len(TEXTS) // 2
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.encode(text, TEXTS[0]).ids == theirs(text, TEXTS[0])["input_ids"] or not text
    assert (ours.pad_id, ours.mask_id) == (theirs.pad_token_id, theirs.mask_token_id)


@pytest.mark.parity
@pytest.mark.parametrize("saved_again", [False, True], ids=["vocab.txt", "saved by transformers"])
@pytest.mark.parametrize(
    "pieces, settings, names",
    [
        (SPECIALS + WORDS, {"do_lower_case": True}, None),
        (SPECIALS + WORDS, {"do_lower_case": False}, None),
        (SPECIALS + [word for word in WORDS if word == word.lower()], {}, None),
        (SPECIALS + WORDS, {"do_lower_case": False, "tokenize_chinese_chars": False}, None),
        (SPECIALS + WORDS, {"do_lower_case": False, "tokenize_chinese_chars": True}, None),
        (SPECIALS + WORDS, {"do_lower_case": False, "strip_accents": True}, None),
        (SPECIALS + WORDS, {"do_lower_case": True, "strip_accents": False}, None),
        ([*WORDS[:9], "[MASK]", "[SEP]", *WORDS[9:], "[UNK]", "[CLS]", "[PAD]"], {"do_lower_case": False}, None),
        ([*WORDS[:3], *RENAMED.values(), *WORDS[3:]], {"do_lower_case": False, **RENAMED}, None),
        ([*WORDS[:3], *RENAMED.values(), *WORDS[3:]], {"do_lower_case": False}, RENAMED),
        (
            [*WORDS[:3], *RENAMED.values(), *WORDS[3:]],
            {"do_lower_case": False},
            {role: {"content": name, "lstrip": False, "normalized": False} for role, name in RENAMED.items()},
        ),
    ],
)
def test_a_vocabulary_and_its_settings_give_the_tokens_of_transformers(
    transformers, tmp_path, pieces, settings, names, saved_again
):
    folder = _folder(tmp_path, pieces, BERT | settings, names)
    if saved_again:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        for file in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
            (folder / file).unlink(missing_ok=True)
        tokenizer.save_pretrained(folder)
    _assert_same_tokens(transformers, folder)


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_where_two_files_differ_the_settings_count_as_in_transformers(transformers, tmp_path, kind, lowercase, chinese):
    WordPieceTokenizer.from_pretrained(_folder(tmp_path, SPECIALS + WORDS, {"do_lower_case": False})).save(tmp_path)
    settings = {"do_lower_case": lowercase, "tokenize_chinese_chars": chinese, "tokenizer_class": kind}
    path = tmp_path / "tokenizer_config.json"
    settings = {**json.loads(path.read_text()), **settings}
    path.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))
    _assert_same_tokens(transformers, tmp_path)


@pytest.mark.parity
@pytest.mark.parametrize("split", [r"\s+", r"\(|\)|=|C|O|c|1|\s|."], ids=["k-mers", "molecules"])
def test_other_ways_to_words_are_those_of_tokenizer_json(transformers, tmp_path, split):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    vocab = {piece: i for i, piece in enumerate(SPECIALS + WORDS)}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(split), "removed" if split == r"\s+" else "isolated")
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    roles = ("pad", "unk", "cls", "sep", "mask")
    names = {f"{role}_token": name for role, name in zip(roles, SPECIALS, strict=True)}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    _assert_same_tokens(transformers, tmp_path)


@pytest.mark.parametrize(
    "settings, config",
    [
        ({"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"}, {}),
        ({"word_tokenizer_type": "mecab", "subword_tokenizer_type": "character"}, {}),
        ({"do_lower_case": False}, {"tokenizer_class": "BertJapaneseTokenizer"}),
        ({"tokenizer_class": "SmilesTokenizer"}, {}),
        ({"tokenizer_class": "DNATokenizer"}, {}),
    ],
    ids=str,
)
def test_a_vocabulary_of_another_way_to_words_is_refused_where_nothing_says_which(tmp_path, settings, config):
    folder = _folder(tmp_path, SPECIALS + WORDS, settings)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsMismatchError, match="vocab.txt .* finds words in another way than BERT's tokenizer"):
        WordPieceTokenizer.from_pretrained(folder)


def test_a_vocabulary_of_whole_words_is_refused_by_its_type(tmp_path):
    spec = {"model": {"type": "WordLevel", "vocab": {piece: i for i, piece in enumerate(SPECIALS + WORDS)}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(WeightsMismatchError, match="a tokenizer of type WordLevel, and BERT's is WordPiece"):
        WordPieceTokenizer.from_pretrained(tmp_path)
