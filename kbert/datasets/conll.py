"""Words and tags from files in columns, such as those of CoNLL-2003 and CoNLL-U."""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from kbert.datasets.files import is_blank, read_lines
from kbert.metrics.entities import hint_for_scheme, is_bio_tag
from kbert.values.number_rules import is_whole
from kbert.values.printable import shown

# The lines that begin a document in CoNLL-2003 and CoNLL-U.
_DOCUMENT = re.compile(r"-DOCSTART-|# newdoc\b")
# The names of the columns of files that do not name them, told apart by the number of columns.
_CONLL_U = tuple("id form lemma upos xpos feats head deprel deps misc".split())
_CONLL_2003 = ("word", "pos", "chunk", "ner")
# A token's number in CoNLL-U. "3-4" spans two tokens that follow; "8.1" is a token that is not in the text.
_NUMBER = re.compile(r"\d+([-.]\d+)?")
_GLOBAL_COLUMNS = re.compile(r"# ?global\.columns *= *(.+)")


class Token(NamedTuple):
    """A word: the number of its line, and its columns."""

    line: int
    fields: list[str]


def read_conll(
    path: str | Path, column: int | str = -1, scheme: str | None = "bio", *, word_column: int | str | None = None
) -> pd.DataFrame:
    """Read sentences from a file with a word a line and a blank line between sentences.

    Columns are separated by tabs, or by spaces in a line without tabs. Comments ("# text = ...") before a sentence are
    skipped. A line that starts with "#" may also be a word ("#Oslo", or "#" alone): it is one inside a sentence, and at
    the beginning of a sentence if its columns look like those of other words.

    Parameters
    ----------
    path : str or Path
        The file; also .gz, .bz2, .xz.
    column : int or str
        The column of the tags: its number, or its name: "word", "pos", "chunk", "ner" in files of four columns; "form",
        "lemma", "upos" and so on in CoNLL-U; else as a line "# global.columns = ..." names them.
    scheme : {"bio", None}
        "bio": the tags mark spans, in BIO or IOB1, and come out as BIO (see ``iob1_to_bio``). None: any tags, such as
        parts of speech, as they are.
    word_column : int or str, optional
        The column of the words; by default the first, in CoNLL-U "form".

    Returns
    -------
    DataFrame
        A row for each sentence: ``words``, a list of str; ``tags``, a list of str of the same length, absent if the
        file has the words alone; ``document``, the document's number from 0: lines with -DOCSTART- or "# newdoc"
        begin a new one.

    Raises
    ------
    ValueError
        If a line has another number of columns than the others, a column is not there, or a tag is not BIO; the message
        names file and line. Also if the file looks like CSV.

    Examples
    --------
    >>> from kbert.datasets import read_conll
    >>> lines = ["Ada B-PER", "left O", "", "It O", "rained O"]
    >>> with open("train.txt", "w") as file:
    ...     print(*lines, sep="\\n", file=file)
    >>> read_conll("train.txt")
              words        tags  document
    0   [Ada, left]  [B-PER, O]         0
    1  [It, rained]      [O, O]         0
    """
    if scheme not in ("bio", None):
        raise ValueError(f"scheme={scheme!r} is not known. Use 'bio', or None for tags that mark no spans.")
    lines = read_lines(path)
    n_columns = _number_of_columns(lines)
    if n_columns == 0:
        raise ValueError(f"{path} holds no words.")
    _refuse_csv(lines, path)
    names = _names(lines, n_columns)
    default = "form" if names[:2] == _CONLL_U[:2] else 0
    word_index = _column_index(default if word_column is None else word_column, names, n_columns, path)
    tag_index: int | None = _column_index(column, names, n_columns, path)
    if n_columns == 1 and column == -1:
        tag_index = None
    sentences, documents = _sentences(lines, path, n_columns, numbered=names[0] == "id")
    words = [[token.fields[word_index] for token in sentence] for sentence in sentences]
    if tag_index is None:
        return pd.DataFrame({"words": words, "document": documents})
    if scheme == "bio":
        for sentence in sentences:
            for token in sentence:
                tag = token.fields[tag_index]
                if not is_bio_tag(tag):
                    raise ValueError(
                        f"{path}, line {token.line}: tag {tag!r} is not O, B-... or I-... . {_advice(tag)}"
                    )
    tags = [[token.fields[tag_index] for token in sentence] for sentence in sentences]
    if scheme == "bio":
        tags = iob1_to_bio(tags)
    return pd.DataFrame({"words": words, "tags": tags, "document": documents})


def iob1_to_bio(tags: Iterable[Sequence[str]]) -> list[list[str]]:
    """Tags in IOB1 as BIO tags, where every span starts with B-.

    In IOB1, the scheme of CoNLL-2003's files, a span starts with I-, and with B- only where it directly follows another
    span of the same type (Ramshaw and Marcus, 1995). BIO tags, also called IOB2, stay as they are. An I- that does not
    continue a span becomes a B-, which is how conlleval reads it.

    Parameters
    ----------
    tags : iterable of sequences of str
        A list of tags for each sentence, each O, B-... or I-... .

    Returns
    -------
    list of list of str
        New lists of the same lengths.

    Raises
    ------
    ValueError
        If a tag is neither O, B-... nor I-...; the message names row and position.

    Examples
    --------
    >>> from kbert.datasets import iob1_to_bio
    >>> iob1_to_bio([["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]])
    [['B-PER', 'I-PER', 'O', 'B-LOC', 'B-LOC']]
    """
    converted = []
    for row, sentence in enumerate(tags):
        if isinstance(sentence, str):
            raise ValueError(f"tags, row {row} is a str ({sentence!r}). Give a list of tags for each sentence.")
        before, new = "O", []
        for k, tag in enumerate(sentence):
            if not is_bio_tag(tag):
                raise ValueError(f"tags, row {row}, word {k}: {tag!r} is not O, B-... or I-... .")
            starts = tag[0] == "I" and (before == "O" or before[1:] != tag[1:])
            new.append(f"B{tag[1:]}" if starts else tag)
            before = tag
        converted.append(new)
    return converted


def _advice(tag: str) -> str:
    """What to do about a tag that is not BIO, for a message."""
    return hint_for_scheme(tag) or "Choose another column, or scheme=None for tags that mark no spans."


# --- Lines -> sentences


def _split(line: str) -> list[str]:
    # Not str.split(): a word may be or hold a no-break space, U+0085 or other white space.
    if "\t" not in line:
        return re.split(" +", line.strip(" "))
    word, *others = line.split("\t")
    return [word, *(value.strip(" ") for value in others)]


def _number_of_columns(lines: list[str]) -> int:
    """Return the number of columns of the first line that is certainly a word; 0 if there is none."""
    first = _first_word(lines)
    return 0 if first is None else len(_split(first))


def _refuse_csv(lines: list[str], path: str | Path) -> None:
    """Refuse a table: lines that all have as many cells between commas or semicolons, the last of them tags."""
    words = [line for line in lines if _is_word(line)]
    widths = {len(_split(line)) for line in words}
    if len(widths) == 1 and widths != {1}:  # columns, in which a tag may have a comma
        return
    for mark in (",", ";"):
        try:
            first, *rows = csv.reader(words, delimiter=mark)
        except csv.Error:
            continue
        is_table = len(rows) > 0 and len(first) > 1 and all(len(row) == len(first) for row in rows)
        if is_table and all(is_bio_tag(row[-1]) for row in rows):
            sep = "" if mark == "," else f", sep={mark!r}"
            cells = f"{len(first)} cells between {mark!r}, as in {shown(words[0])}"
            message = f"{path} looks like CSV: each line has {cells}."
            if "sentence" not in first:
                raise ValueError(f"{message} Read it by pandas, and make a row of lists for each sentence.")
            raise ValueError(
                f"{message} A table with the columns sentence, word and tag becomes lists by "
                f'pd.read_csv(path{sep}).groupby("sentence", sort=False).agg(list).'
            )


def _first_word(lines: list[str]) -> str | None:
    return next((line for line in lines if _is_word(line)), None)


def _is_word(line: str) -> bool:
    """Whether a line is certainly a word. A line that starts with "#" may be a comment."""
    return not (is_blank(line) or line.startswith("#") or _DOCUMENT.match(line))


def _names(lines: list[str], n_columns: int) -> tuple[str, ...]:
    """Return the names of the columns, all "" if they have none."""
    for line in lines:
        if match := _GLOBAL_COLUMNS.match(line):
            return tuple(match[1].lower().split())
        if not is_blank(line) and not line.startswith("#"):
            break
    known = {len(_CONLL_U): _CONLL_U, len(_CONLL_2003): _CONLL_2003}.get(n_columns, ("",) * n_columns)
    if known is not _CONLL_U:
        return known
    first = _first_word(lines) or ""
    return _CONLL_U if "\t" in first and _NUMBER.fullmatch(_split(first)[0]) else ("",) * n_columns


def _column_index(column: int | str, names: tuple[str, ...], n_columns: int, path: str | Path) -> int:
    """Return the index of a column, given by its number (negative from the end) or its name."""
    if isinstance(column, str):
        if column.lower() not in names or not column:
            named = ", ".join(names) if any(names) else "no names"
            raise ValueError(f"{path} has no column {column!r}: its {n_columns} columns have {named}. Give a number.")
        column = names.index(column.lower())
    if not is_whole(column):
        raise TypeError(f"A column is given by its number or its name, not by {column!r}.")
    if not -n_columns <= column < n_columns:
        raise ValueError(f"{path} has {n_columns} columns; there is no column {column}.")
    return column % n_columns


def _sentences(
    lines: list[str], path: str | Path, n_columns: int, numbered: bool
) -> tuple[list[list[Token]], list[int]]:
    """Return the words of each sentence, and the number of its document."""
    sentences: list[list[Token]] = []
    documents: list[int] = []
    current: list[Token] = []
    document = -1
    values = _values(lines, n_columns)

    def finish() -> None:
        if current:
            sentences.append(list(current))
            documents.append(max(document, 0))
            current.clear()

    for n, line in enumerate(lines, 1):
        if is_blank(line):
            finish()
            continue
        if _DOCUMENT.match(line):
            finish()
            # Sentences before the first mark are document 0.
            document = 0 if document < 0 and not sentences else max(document, 0) + 1
            continue
        fields = _split(line)
        if line.startswith("#") and (numbered or (not current and _is_comment(line, fields, values))):
            continue
        if len(fields) != n_columns or (numbered and not _NUMBER.fullmatch(fields[0])):
            raise ValueError(
                f"{path}, line {n}: {line[:60]!r} has {len(fields)} columns, where others have {n_columns}"
                f"{' and begin with a number' if numbered else ''}. Is a word missing, or a blank line?"
            )
        if not numbered or fields[0].isdecimal():
            current.append(Token(n, fields))
    finish()
    return sentences, documents


def _values(lines: list[str], n_columns: int) -> list[set[str]]:
    """Return the values of each column in the lines that are certainly words."""
    values: list[set[str]] = [set() for _ in range(n_columns)]
    for fields in map(_split, filter(_is_word, lines)):
        for column, value in zip(values, fields, strict=False):
            column.add(value)
    return values


def _is_comment(line: str, fields: list[str], values: list[set[str]]) -> bool:
    """Whether a line with "#" at the beginning of a sentence is a comment, and not the first word."""
    if len(fields) != len(values):
        return True
    if not line.startswith("# ") or len(values) == 1:
        return False
    # It has as many columns as a word, either by chance ("# id 7eb domain=en") or because "#" is the word.
    return not any(field in column for field, column in zip(fields[1:], values[1:], strict=True))
