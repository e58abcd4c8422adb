"""Words and tags from files in columns: CoNLL-2003, CoNLL-U and what else goes by that name."""

import bz2
import gzip

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbert.datasets import iob1_to_bio, read_conll


def _write(path, text):
    path.write_bytes(text.encode())
    return path


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
French JJ I-NP B-MISC

\t
Peter NNP I-NP I-PER
-DOCSTART- -X- O O
Oslo NNP I-NP I-LOC"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_sentences_documents_and_tags_are_read_and_iob1_becomes_bio(tmp_path, end, mark):
    path = _write(tmp_path / "train.txt", mark + CONLL.replace("\n", end))
    assert read_conll(path).to_dict("list") == {
        "words": [["EU", "rejects", "German", "French"], ["Peter"], ["Oslo"]],
        "tags": [["B-ORG", "O", "B-MISC", "B-MISC"], ["B-PER"], ["B-LOC"]],
        "document": [0, 0, 1],
    }


@pytest.mark.parametrize("mark", ["", "-DOCSTART- -X- O O\n\n"])
def test_documents_are_counted_from_the_first_with_a_mark_and_without(tmp_path, mark):
    text = mark + "-DOCSTART- -X- O O\n\n".join(["a X Y O\n\nb X Y O\n\n", *(f"{word} X Y O\n\n" for word in "cde")])
    assert read_conll(_write(tmp_path / "train.txt", text)).document.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(("ending", "packed"), [("bz2", bz2.open), ("GZ", gzip.open)])
def test_files_packed_in_any_way_are_read(tmp_path, ending, packed):
    plain = _write(tmp_path / "train.txt", CONLL)
    with packed(tmp_path / f"train.txt.{ending}", "wb") as file:
        file.write(plain.read_bytes())
    assert read_conll(tmp_path / f"train.txt.{ending}").equals(read_conll(plain))


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2"])
def test_a_packed_file_that_is_not_whole_is_named(tmp_path, ending):
    path = tmp_path / f"train.txt.{ending}"
    path.write_bytes(b"no packed data")
    with pytest.raises(ValueError, match=f"is no whole .{ending} file"):
        read_conll(path)


def test_a_csv_file_is_refused_with_the_line_that_reads_it(tmp_path):
    path = _write(tmp_path / "train.csv", "sentence,word,tag\n1,Ada,B-PER\n1,left,O\n2,it,O\n")
    with pytest.raises(ValueError, match="train.csv looks like CSV: each line has 3 cells between ','") as error:
        read_conll(path)
    line = str(error.value).partition("becomes lists by ")[2].rstrip(".")
    assert eval(line, {"pd": pd, "path": path}).word.tolist() == [["Ada", "left"], ["it"]]
    for text in (
        'sentence,word,tag\n1,Ada,B-PER\n1,",",O\n2,New York,B-LOC\n',
        "Sentence #,Word,POS,Tag\nSentence: 1,Ada,NNP,B-per\n,left,VB,O\n",
        "word;tag\nAda;B-PER\nleft;O\n",
    ):
        with pytest.raises(ValueError, match="looks like CSV"):
            read_conll(_write(tmp_path / "train.csv", text))
    two_layers = _write(tmp_path / "two.conll", "Ada B-PER,O\nin O,O\nParis B-LOC,O\n")
    assert read_conll(two_layers, scheme=None).tags.tolist() == [["B-PER,O", "O,O", "B-LOC,O"]]
    for text in ("10,000\npeople\nleft\n", "1,000\n2,000\n3,000\n", ", O\n, O\n, O\n", '"\n,\n'):
        words = [line.split(" ")[0] for line in text.split()] if " O" not in text else [","] * 3
        assert read_conll(_write(tmp_path / "words.txt", text)).words.tolist() == [words]


def test_a_column_is_chosen_by_number_or_by_name(tmp_path):
    path = _write(tmp_path / "train.txt", CONLL)
    by_number, by_name = read_conll(path, 1, None), read_conll(path, "pos", scheme=None)
    assert by_number.tags.tolist() == by_name.tags.tolist() == [["NNP", "VBZ", "JJ", "JJ"], ["NNP"], ["NNP"]]
    assert read_conll(path, "chunk").tags[0] == ["B-NP", "B-VP", "B-NP", "I-NP"]
    assert read_conll(path, "ner").equals(read_conll(path))


def test_only_spaces_and_tabs_separate_columns(tmp_path):
    words = ["a\xa0b", "c\x85d", "e\u2028f", "\u3000", '"', "x y"]
    path = _write(tmp_path / "words.tsv", "".join(f"{word}\tO\n" for word in words))
    assert read_conll(path).words.tolist() == [words]
    path = _write(tmp_path / "words.txt", "".join(f"{word}  O \n" for word in words[:-1]))
    assert read_conll(path).words.tolist() == [words[:-1]]


def test_comments_are_passed_over_and_words_that_start_with_a_hash_are_not(tmp_path):
    text = "# text = #Oslo is # 1\n# id 7eb domain=en\n#Oslo _ _ B-LOC\nis _ _ O\n# # ? B-X\n\n# _ _ O\n"
    assert read_conll(_write(tmp_path / "a.conll", text)).words.tolist() == [["#Oslo", "is", "#"], ["#"]]
    text = "# a\n#Oslo\tB-LOC\n#\tB-X\nis\tO\n\n#\tI-Y\n"
    assert read_conll(_write(tmp_path / "a.tsv", text)).words.tolist() == [["#Oslo", "#", "is"], ["#"]]


CONLL_U = """# newdoc id = a
# sent_id = 1
# text = Vámonos al 10 000
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\tO
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\tO
3\t10 000\t10000\tNUM\t_\t_\t1\tobl\t_\tB-NUM
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t_\t_

# newdoc
# sent_id = 2
1\t#\t#\tSYM\t_\t_\t0\troot\t_\tO

"""


def test_conll_u_is_read_without_its_word_groups_and_empty_nodes(tmp_path):
    path = _write(tmp_path / "es.conllu", CONLL_U)
    assert read_conll(path, "upos", scheme=None).to_dict("list") == {
        "words": [["Vamos", "nos", "10 000"], ["#"]],
        "tags": [["VERB", "PRON", "NUM"], ["SYM"]],
        "document": [0, 1],
    }
    assert read_conll(path).tags.tolist() == [["O", "O", "B-NUM"], ["O"]]
    assert read_conll(path, word_column="lemma").words[0] == ["ir", "nosotros", "10000"]


def test_columns_may_be_named_by_the_file(tmp_path):
    path = _write(tmp_path / "a.conllup", "# global.columns = FORM NE UPOS\nOslo\tB-LOC\tPROPN\n")
    assert read_conll(path, "ne").tags.tolist() == [["B-LOC"]]
    assert read_conll(path, "UPOS", None).tags.tolist() == [["PROPN"]]


def test_a_file_of_words_alone_has_no_tags(tmp_path):
    frame = read_conll(_write(tmp_path / "test.txt", "Oslo\nis\n\n\nhere\n"))
    assert frame.to_dict("list") == {"words": [["Oslo", "is"], ["here"]], "document": [0, 0]}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            CONLL_U.replace("3.1\t", "x\t"),
            {},
            "line 8: 'x.*has 10 columns, where others have 10 and begin with a number",
        ),
        ("Oslo B-LOC\nis\n", {}, "line 2: 'is' has 1 columns, where others have 2"),
        ("Oslo B-LOC\n# is\n#x\n", {}, "line 3: '#x' has 1 columns"),
        ("Oslo NNP\n", {}, "line 1: tag 'NNP' is not O, B-... or I-..."),
        ("Oslo NNP\n", {}, "scheme=None for tags that mark no spans"),
        ("Oslo B-LOC\n\nx E-LOC\n", {}, "line 3: tag 'E-LOC'"),
        *(
            (f"Oslo {tag}\n", {}, "BIOES or BILOU. Convert .*: S- and U- become B-, and E- and L- become I-")
            for tag in ("S-LOC", "E-LOC", "L-LOC", "U-LOC")
        ),
        ("Oslo B-LOC\n", {"column": 2}, "has 2 columns; there is no column 2"),
        ("Oslo B-LOC\n", {"column": "ner"}, "has no column 'ner': its 2 columns have no names"),
        ("a b c O\n", {"column": "tag"}, "have word, pos, chunk, ner"),
        ("\n\n", {}, "holds no words"),
        ("a O\n", {"scheme": "iobes"}, "scheme='iobes' is not known"),
    ],
)
def test_damaged_columns_are_an_error_that_names_file_and_line(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_conll(_write(tmp_path / "bad.txt", text), **options)


tags = st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "B", "I"]))


@given(st.lists(tags))
def test_every_inside_tag_of_bio_follows_its_own_type(rows):
    converted = iob1_to_bio(rows)
    for before, after in zip(rows, converted, strict=True):
        assert [tag[1:] for tag in before] == [tag[1:] for tag in after]
        for k, tag in enumerate(after):
            assert tag[0] == before[k][0] or (before[k][0], tag[0]) == ("I", "B")
            assert tag[0] != "I" or (k > 0 and after[k - 1] in (tag, f"B{tag[1:]}"))
    assert iob1_to_bio(converted) == converted


def test_tags_that_are_not_bio_cannot_be_converted():
    with pytest.raises(ValueError, match="row 1, word 0: 'NN' is not O"):
        iob1_to_bio([["O"], ["NN"]])
    with pytest.raises(ValueError, match="row 0 is a str"):
        iob1_to_bio(["O O"])


def test_spaces_beside_tabs_are_no_part_of_a_tag(tmp_path):
    (tmp_path / "a.conll").write_text("Ada\tB-PER \nLee\t I-PER\n\n Ada O\n")
    frame = read_conll(tmp_path / "a.conll")
    assert frame.tags.tolist()[0] == ["B-PER", "I-PER"] and frame.words.tolist()[0] == ["Ada", "Lee"]


def test_line_ends_of_old_macs_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"mac.txt has line ends of old Macs \(\\r alone\). Convert it: .* newline="):
        read_conll(_write(tmp_path / "mac.txt", "Ada B-PER\rleft O\r"))
    assert read_conll(_write(tmp_path / "one line.txt", "Ada B-PER\r")).words.tolist() == [["Ada"]]


@pytest.mark.parametrize("column", [None, 1.5])
def test_a_column_is_a_number_or_a_name(tmp_path, column):
    (tmp_path / "a.txt").write_text("Oslo B-LOC\n")
    with pytest.raises(TypeError, match=f"by its number or its name, not by {column}"):
        read_conll(tmp_path / "a.txt", column=column)
