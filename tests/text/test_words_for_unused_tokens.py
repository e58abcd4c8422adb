"""New words replace the unused tokens of a vocabulary: ids, files, and the same tokens as transformers."""

import json
import pickle

import pytest
from tokenizers import Tokenizer
from unusual_texts import NASTY

from kbert.text import WordPieceTokenizer

TEXTS = ["the patient had a cough", "they the patients coughed"] * 3


@pytest.fixture(scope="module")
def plain():
    """With five unused tokens, at the ids 1 to 5."""
    texts = [" ".join([*TEXTS, "abcdefghijklmnopqrstuvwxyz xabcdefghijklmnopqrstuvwxyz"])] * 2
    return WordPieceTokenizer.train(texts, vocab_size=80, min_frequency=4, n_unused=5)


def test_new_words_are_whole_and_all_else_stays(plain):
    before = plain.vocab
    new = plain.with_words(["Thepad", "achats"])
    assert new.encode("the Thepad, ACHATS").tokens[2] == "thepad"
    assert [new.token_to_id("thepad"), new.token_to_id("achats")] == [1, 2] == plain_ids(plain, 0, 1)
    assert new.n_unused == 3 and plain.n_unused == 5 and new.vocab_size == plain.vocab_size
    assert {piece: i for piece, i in new.vocab.items() if piece not in ("thepad", "achats")} == {
        piece: i for piece, i in before.items() if piece not in ("[unused0]", "[unused1]")
    }
    # The older one is as it was, and the next words go on from there.
    assert plain.vocab == before and len(plain.encode("thepad").ids) > 3
    assert new.with_words(["dona"]).token_to_id("dona") == 3
    assert pickle.loads(pickle.dumps(new)) == new != plain


def plain_ids(tokenizer, *numbers):
    return [tokenizer.token_to_id(f"[unused{number}]") for number in numbers]


def test_words_go_through_the_normaliser_once_each(plain):
    new = plain.with_words([" Thépad ", "thepad", "THEPAD"])
    assert new.n_unused == 4 and new.encode("thépad").tokens[1] == "thepad"
    cased = WordPieceTokenizer.train(TEXTS, vocab_size=60, lowercase=False, n_unused=2).with_words(["Thépad"])
    assert cased.encode("Thépad").tokens[1] == "Thépad" and "thépad" not in cased.vocab
    # Unknown letters: a word of them is better off whole.
    assert plain.with_words(["жжж"]).encode("жжж").tokens[1] == "жжж"


def test_words_that_are_there_are_left_alone(plain):
    assert plain.with_words(["the", "Patient"]) is plain and plain.with_words([]) is plain
    new = plain.with_words(["thepad"])
    assert new.with_words(["thepad"]) is new


def test_added_tokens_that_look_unused_are_in_use(plain, tmp_path):
    plain.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["added_tokens"].append(spec["added_tokens"][0] | {"id": 1, "content": "[unused0]"})
    path.write_text(json.dumps(spec), encoding="utf-8")
    marked = WordPieceTokenizer.from_pretrained(tmp_path)
    assert marked.n_unused == 4 and marked.with_words(["thepad"]).token_to_id("thepad") == 2


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["covid-19"], ValueError, "'covid-19' cannot be one entry.*'covid', '-', '19'"),
        (["new york"], ValueError, "'new', 'york'"),
        (["東京"], ValueError, "'東', '京'"),
        (["##ed"], ValueError, "'#', '#', 'ed'"),
        ([""], ValueError, "no character"),
        (["a" * 101], ValueError, "101 characters"),
        (["a\ud800"], ValueError, "number 0 holds a lone surrogate"),
        (["thepad", 3], TypeError, "number 1 is of type int"),
        ("thepad", ValueError, r"\['thepad'\]"),
        (
            ["thea", "theb", "thec", "thed", "thee", "thef"],
            ValueError,
            "there are 6 new ones, and the vocabulary has 5",
        ),
    ],
)
def test_what_is_no_new_word(plain, words, error, message):
    with pytest.raises(error, match=message):
        plain.with_words(words)


def test_a_vocabulary_without_unused_places(plain):
    tokenizer = WordPieceTokenizer.train(TEXTS, vocab_size=60)
    assert tokenizer.n_unused == 0
    with pytest.raises(ValueError, match="has no unused tokens left"):
        tokenizer.with_words(["thepad"])


def test_files_say_the_same(plain, tmp_path):
    new = plain.with_words(["thepad", "achats"])
    new.save(tmp_path)
    assert WordPieceTokenizer.from_pretrained(tmp_path) == new
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")[:4] == [
        "[PAD]", "thepad", "achats", "[unused2]",
    ]  # fmt: skip
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("the thepad had achats", "thepads", *TEXTS):
        assert theirs.encode(text).ids == new.encode(text).ids
    (tmp_path / "tokenizer.json").unlink()
    assert WordPieceTokenizer.from_pretrained(tmp_path) == new


@pytest.mark.parity
def test_transformers_reads_the_same_words(minilm_folder, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    released = WordPieceTokenizer.from_pretrained(minilm_folder)
    assert released.n_unused == 994
    ours = released.with_words(["Remdesivir", "naïvetés", "жизнью"])
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, split_special_tokens=True)
    texts = [*NASTY, "Remdesivir, naïvetés (жизнью) and remdesivirs", "unaffable cats"]
    assert theirs(texts)["input_ids"] == [ours.encode(text).ids for text in texts]
    assert theirs.convert_tokens_to_ids(["remdesivir", "naivetes", "жизнью"]) == [1, 2, 3]
    assert len(theirs) == 30522 and theirs.tokenize("remdesivir") == ["remdesivir"]


def test_counts_of_words(plain):
    texts = ["The patient, the Patient!", "naïve Naive covid-19", "x" * 101]
    counts = {"the": 2, "patient": 2, "naive": 2, "covid": 1, "19": 1, ",": 1, "!": 1, "-": 1}
    assert plain.count_words(iter(texts)) == counts and plain.count_words([]) == {}
    with pytest.raises(TypeError, match="row 1 is of type int"):
        plain.count_words(["a", 1])


def test_a_word_in_which_an_added_token_is_found_is_refused(plain):
    spec = plain.spec
    added = spec["added_tokens"][0] | {"id": plain.vocab_size, "content": "covid", "normalized": True, "special": False}
    with_token = WordPieceTokenizer(spec | {"added_tokens": [*spec["added_tokens"], added]})
    with pytest.raises(ValueError, match="'covidlike' cannot be one entry.* added token 'covid'"):
        with_token.with_words(["covidlike"])
    assert with_token.with_words(["thepad"]).encode("thepad").tokens[1] == "thepad"
