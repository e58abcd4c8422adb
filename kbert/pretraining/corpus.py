"""A corpus: files, columns or any iterable, as a stream of documents, each a list of segments."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from kbert.errors import ParameterWarning
from kbert.files.checksums import sha256_of
from kbert.pretraining.corpus_files import FilePart, find_files, parts_of, plain_size, segments_of
from kbert.pretraining.segments import Rules, Segmenter, documents, warn_of_replaced
from kbert.values.number_rules import whole_number
from kbert.values.printable import shown
from kbert.warn import warn_user

# Items of a list that are looked at, whether they name files.
_LOOKED_AT = 5

# Plain text of a unit in bytes: enough for some seconds of tokenising, little enough to spread well.
UNIT_BYTES = 2**26


class Corpus:
    """Documents, each a list of segments (str), which are sentences as a rule. It can be read any number of times.

    A corpus is streamed: reading holds one document in memory. Segments have no white space around them; empty ones
    are left out, and so are documents without any.

    Parameters
    ----------
    source : Path, list of Path, pandas column or DataFrame, iterable, or function
        * A `pathlib.Path` is a file, a folder (all files of a known format in it and below, sorted) or a pattern such
          as ``Path("news/*.jsonl.gz")``. The ending of a file's name says what is in it, and is followed by ``.gz``,
          ``.xz`` or ``.bz2`` where it is packed. ``.txt``: a sentence or a paragraph a line, and a blank line between
          documents, as in the original BERT. ``.jsonl``, ``.csv`` and ``.parquet``: a document a row. All in UTF-8.
        * Anything else holds documents: a str is one document, whose lines are segments or hold several; a list of
          str is a document already in segments, which are left as they are; a missing one (None, NaN) is left out. Rows
          that are dicts have it in ``column``. What can be read only once, such as a generator, is given as a function
          without arguments that returns a new one.
    split : {"sentences", "lines"}
        "sentences" splits lines into sentences, and leaves a line alone that is one; "lines" keeps every line as a
        segment. Sentences are split by the package sentencex.
    language : str
        Language of the text for splitting, as "en", "de" or "zh". For those that sentencex does not know, it uses its
        rules of English.
    column : str
        Where a table has its texts, or its lists of segments.
    max_segments : int
        A document that is longer is cut: it bounds the memory when a big file has no blank line. For the same reason, a
        line of a text file is cut, at a space, after 1 MiB. A sentence is cut after 4,000 characters.
    errors : {"strict", "replace"}
        What is done with bytes that are not UTF-8 and with lone surrogates: an error that says where, or U+FFFD in
        their place, and a warning with their number.

    Raises
    ------
    FileNotFoundError
        If a path leads to no file.
    ValueError
        If a file is of no known format, or a parameter is not as it should be. While reading: if text is damaged, there
        is no such column, or no text at all.
    TypeError
        If ``source`` cannot be read again or has no order. While reading: if a document is no text.

    Examples
    --------
    >>> from kbert.pretraining import Corpus
    >>> list(Corpus(["It rained. We stayed.", ["Segments", "as given."]]))
    [['It rained.', 'We stayed.'], ['Segments', 'as given.']]
    """

    def __init__(
        self,
        source: Any,
        *,
        split: Literal["sentences", "lines"] = "sentences",
        language: str = "en",
        column: str = "text",
        max_segments: int = 10_000,
        errors: Literal["strict", "replace"] = "strict",
    ):
        for name, value, known in (("split", split, ("sentences", "lines")), ("errors", errors, ("strict", "replace"))):
            if value not in known:
                raise ValueError(f"{name} must be {known[0]!r} or {known[1]!r}, got {value!r}.")
        if not isinstance(language, str):
            raise ValueError(f'language must be a str such as "en", got {language!r}.')
        self._rules = Rules(split, language, column, whole_number(max_segments, "max_segments"), errors)
        self._files, self._items = _read_source(source, column)

    def __iter__(self) -> Iterator[list[str]]:
        """The documents.

        Raises
        ------
        ValueError
            If there is none.
        """
        is_empty = True
        for part in map(FilePart, self._files) if self._items is None else [Items(self._items)]:
            for document in Unit((part,), self._rules).documents():
                is_empty = False
                yield document
        if is_empty:
            where = f" in {self._files[0]}" if self._files else ""
            more = f" and {len(self._files) - 1} more files" if len(self._files) > 1 else ""
            raise ValueError(f"The corpus has no text{where}{more}. Is it the right file or column?")

    def units(self, n_bytes: int = UNIT_BYTES) -> list[Unit]:
        """The corpus in pieces that several processes can read. All units, one after the other, are the corpus.

        Units depend on the source and ``n_bytes`` alone. They can be pickled. Plain text and JSONL are cut between
        documents, Parquet between row groups, and lists, arrays and columns between rows. A packed file and a CSV file
        is not cut, nor is an iterable of unknown length. Small files go together into a unit.

        Parameters
        ----------
        n_bytes : int
            Least size of a unit, but for the last of a file and of the corpus.
        """
        if n_bytes < 1:
            raise ValueError(f"n_bytes must be at least 1, got {n_bytes}.")
        if self._items is not None:
            return [Unit((part,), self._rules) for part in _parts_of_items(self._items, n_bytes, self._rules.column)]
        units: list[list[FilePart]] = [[]]
        size = 0
        for file in self._files:
            parts = parts_of(file, n_bytes)
            if len(parts) > 1:
                units += [[part] for part in parts] + [[]]
                size = 0
                continue
            # Small files go together: in a unit of one document there is no other one for the next-sentence task.
            units[-1] += parts
            size += plain_size(file)
            if size >= n_bytes:
                units.append([])
                size = 0
        return [Unit(tuple(parts), self._rules) for parts in units if parts]

    def fingerprint(self) -> str:
        """A hash that changes when the documents may change, in hexadecimal digits.

        It covers the parameters, and of files the order, names, sizes and whole contents: reading them once costs
        little beside tokenising them, and blocks at both ends would not show what was replaced in between. Where the
        files are does not count. A corpus that is not in files is read once, for its documents.
        """
        digest = hashlib.sha256()
        if self._items is not None:
            for document in self:
                digest.update(json.dumps(document).encode())
            return digest.hexdigest()
        # Another version of the sentence splitter may split elsewhere.
        version = metadata.version("sentencex") if self._rules.split == "sentences" else None
        digest.update(json.dumps([asdict(self._rules), version]).encode())
        for path in self._files:
            digest.update(json.dumps([path.name, path.stat().st_size, sha256_of(path)]).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Items:
    """Documents in memory, or an iterable or function that gives them; ``start`` is the row of the first."""

    items: Any
    start: int = 0


@dataclass(frozen=True)
class Unit:
    """A piece of a corpus that one process can read; `Corpus.units` makes them."""

    parts: tuple[FilePart | Items, ...]
    rules: Rules

    def documents(self, segmenter: Segmenter | None = None) -> Iterator[list[str]]:
        """The documents of the unit, each a list of segments. There may be none.

        A caller that gives a segmenter warns of what was replaced.
        """
        warns = segmenter is None
        segmenter = segmenter or Segmenter(self.rules)
        for part in self.parts:
            segments = (
                segments_of(part, segmenter) if isinstance(part, FilePart) else _segments_of_items(part, segmenter)
            )
            yield from documents(segments, self.rules.max_segments)
        if warns:
            warn_of_replaced([segmenter.replaced])


def _read_source(source: Any, column: str) -> tuple[list[Path], Any]:
    """The files of a source; or, with no files, the container, iterable or function that has its documents."""
    if isinstance(source, str):
        raise ValueError(
            f"source is a single str, {shown(source)}. A str is one document: put it in a list, [text]. A file is "
            "given as pathlib.Path(...)."
        )
    if isinstance(source, os.PathLike):
        return find_files([Path(source)]), None
    if isinstance(source, list | tuple) and any(isinstance(item, os.PathLike) for item in source):
        for i, item in enumerate(source):
            if not isinstance(item, os.PathLike):
                raise TypeError(
                    f"source: row {i} is of type {type(item).__name__}, and others are paths. Give either files or "
                    "documents."
                )
        return find_files([Path(item) for item in source]), None
    if isinstance(source, list | tuple) and source and all(map(_names_a_file, source[:_LOOKED_AT])):
        warn_user(
            f"The texts are names of files, or of folders, such as {shown(source[0])}, and are read as texts. A file "
            "is given as pathlib.Path(...): [Path(name) for name in names].",
            ParameterWarning,
        )
    if isinstance(source, Iterator):
        raise TypeError(
            f"source is a {type(source).__name__}, which can be read only once. Give a function without arguments that "
            "returns a new one, or a list."
        )
    if isinstance(source, Set):
        raise TypeError(f"source is a {type(source).__name__}, whose rows have no order. Make it a list: sorted(...).")
    # A DataFrame of pandas or another library.
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        # The columns of Arrow's tables are arrays, and their items no str.
        is_arrows = type(source).__module__.startswith("pyarrow")
        names = list(source.column_names if is_arrows else source.columns)
        if names.count(column) != 1:
            listed = ", ".join(map(repr, names[:10])) or "none"
            raise ValueError(
                f"source has {names.count(column) or 'no'} columns {column!r}. Choose one of those there with "
                f"Corpus(..., column=...): {listed}."
            )
        return [], source[column].to_pandas() if is_arrows else source[column]
    if isinstance(source, bytes | bytearray | Mapping) or not (callable(source) or isinstance(source, Iterable)):
        raise TypeError(
            f"source is of type {type(source).__name__}. Give a pathlib.Path or a list of them, a column or a list of "
            "texts, or a function that returns an iterable of texts."
        )
    return [], source


def _names_a_file(item: Any) -> bool:
    """Whether an item is a str that names a file or a folder, as `glob.glob` gives them."""
    # The longest name of a path on Linux.
    return isinstance(item, str) and 0 < len(item) < 4096 and "\n" not in item and os.path.exists(item)


def _parts_of_items(items: Any, n_bytes: int, column: str) -> list[Items]:
    if not isinstance(items, list | tuple) and not (hasattr(items, "__array__") and hasattr(items, "__len__")):
        return [Items(items)]
    parts: list[Items] = []
    unit: list[Any] = []
    size = 0
    for row, item in enumerate(items):
        if size >= n_bytes:
            parts.append(Items(unit, row - len(unit)))
            unit, size = [], 0
        unit.append(item)
        texts = item.get(column) if isinstance(item, Mapping) else item
        texts = [texts] if isinstance(texts, str) else texts if isinstance(texts, Iterable) else []
        size += sum(len(text) for text in texts if isinstance(text, str))
    return [*parts, Items(unit, len(items) - len(unit))]


def _segments_of_items(part: Items, segmenter: Segmenter) -> Iterator[str | None]:
    column = segmenter.rules.column
    items = part.items() if callable(part.items) else part.items
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise TypeError(f"source, a function, returned {shown(items)}. Let it return an iterable of documents.")
    for row, item in enumerate(items, part.start):
        location = partial("source: row {}".format, row)
        if isinstance(item, Mapping):
            if column not in item:
                raise ValueError(
                    f"{location()} has no {column!r}; it has {shown(list(item))}. Choose with Corpus(..., column=...)."
                )
            item = item[column]
        yield from segmenter.segments(item, location)
        yield None
