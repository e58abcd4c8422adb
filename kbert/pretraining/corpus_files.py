"""The files of a corpus: which there are, the parts in which they are read, and the segments of a part."""

from __future__ import annotations

import csv
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from kbert.files.inputs import OPENERS, SEPARATORS, endings_of, files_at, with_long_fields
from kbert.pretraining.segments import Segmenter

_BOM = b"\xef\xbb\xbf"
# Bytes of a line of plain text that are read at a time, for files without line breaks.
_LONGEST_LINE = 2**20


class FilePart(NamedTuple):
    """A part of a file, from ``start`` up to ``stop``: bytes, or row groups of Parquet."""

    path: Path
    start: int = 0
    stop: int | None = None


def find_files(paths: list[Path]) -> list[Path]:
    """The files that paths, folders and patterns lead to, in order.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If the ending of a name says of no known format.
    """
    return [file for path in paths for file in files_at(path, _is_known, "text", _ENDINGS, _is_of_kbert)]


def _is_of_kbert(path: Path) -> bool:
    """Whether a file of a folder is no text but what kbert writes: a tokenizer's vocabulary, or a run's history."""
    beside = {"vocab.txt": ["tokenizer.json"], "history.csv": ["config.json", "source.json", "checkpoint-*"]}
    return any(any(path.parent.glob(name)) for name in beside.get(path.name, []))


def _is_known(path: Path) -> bool:
    return endings_of(path)[0] in _READERS


def plain_size(path: Path) -> int:
    """Bytes of a file; of a packed one an estimate of its unpacked size, since text shrinks to about a quarter."""
    _, packing = endings_of(path)
    return path.stat().st_size * (4 if packing else 1)


def parts_of(path: Path, n_bytes: int) -> list[FilePart]:
    """Cut a file between documents into parts of ``n_bytes`` or a little more; into one part if it cannot be cut."""
    ending, packing = endings_of(path)
    if packing or ending == ".csv":
        return [FilePart(path)]
    if ending == ".parquet":
        starts = _row_groups(path, n_bytes)
    else:
        starts = [0]
        size = path.stat().st_size
        with open(path, "rb") as file:
            while starts[-1] + n_bytes < size:
                start = _next_document(file, starts[-1] + n_bytes, ending)
                if start == size:
                    break
                starts.append(start)
    return [FilePart(path, start, stop) for start, stop in zip(starts, [*starts[1:], None], strict=True)]


def segments_of(part: FilePart, segmenter: Segmenter) -> Iterator[str | None]:
    """The segments of a part of a file, with None behind each document.

    Raises
    ------
    ValueError
        If the file is damaged, or its text is not UTF-8 or not in the column.
    """
    ending, packing = endings_of(part.path)
    try:
        with _open(part.path) as file:
            yield from _READERS[ending](file, part, segmenter)
    except (OSError, lzma.LZMAError, zlib.error, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the packed data
            raise
        raise ValueError(
            f"{part.path} is no whole {packing or ending} file ({error}). Download it again, or rename it if it is "
            "not packed."
        ) from error


def _open(path: Path) -> BinaryIO:
    file = OPENERS[endings_of(path)[1]](path, "rb")
    return file if isinstance(file, io.BufferedReader) else io.BufferedReader(file, 2**18)


# === Plain text ===


def _pieces(file: BinaryIO, position: int) -> Iterator[tuple[int, bytes, bool]]:
    """The lines from a position on, where a line starts: where each begins, its bytes, and whether it is blank.

    Only "\\n" ends a line, with or without "\\r" before it: U+2028 and others, at which ``str.splitlines`` cuts, occur
    within texts. A line that is very long comes in several pieces, cut at a space, or between two characters.
    """
    rest, inside = b"", False
    while raw := rest + file.readline(_LONGEST_LINE - len(rest)):
        end, is_whole = len(raw), len(raw) < _LONGEST_LINE or raw.endswith(b"\n")
        if not is_whole:
            end = raw.rfind(b" ") + 1 or _last_character(raw) or end
        piece, rest = raw[:end], raw[end:]
        yield position, piece, is_whole and not inside and not piece.strip(b" \t\r\n")
        position += end
        inside = not piece.endswith(b"\n")


def _last_character(raw: bytes) -> int:
    """Where the last character of some UTF-8 begins."""
    return next((i for i in range(len(raw) - 1, max(len(raw) - 5, 0), -1) if raw[i] & 0xC0 != 0x80), 0)


def _next_document(file: BinaryIO, position: int, ending: str) -> int:
    """Where the first document begins that starts behind a position; the end of the file where there is none."""
    file.seek(position)
    while (raw := file.readline(_LONGEST_LINE)) and not raw.endswith(b"\n"):
        pass
    position = file.tell()
    if ending == ".jsonl":
        return position
    for start, piece, is_blank in _pieces(file, position):
        position = start + len(piece)
        if is_blank:
            break
    return position


def _read_text(file: BinaryIO, part: FilePart, segmenter: Segmenter) -> Iterator[str | None]:
    file.seek(part.start)
    for position, piece, is_blank in _pieces(file, part.start):
        if part.stop is not None and position >= part.stop:
            break
        if position == 0 and piece.startswith(_BOM):
            piece, position = piece[3:], 3
        if is_blank:
            yield None
        else:
            yield from segmenter.line(segmenter.decode(piece, partial(_location, part.path, position)).strip())


def _location(path: Path, position: int, i: int = 0) -> str:
    """A byte of a file, for a message. Its line is counted only then."""
    position += i
    line, left = 1, position
    with _open(path) as file:
        while left and (block := file.read(min(left, 2**20))):
            line += block.count(b"\n")
            left -= len(block)
    return f"{path}, line {line}, byte {position}"


# === Tables ===


def _lines(file: BinaryIO, part: FilePart) -> Iterator[tuple[int, bytes]]:
    """Lines of any length, and where each begins."""
    position = part.start
    file.seek(position)
    while (part.stop is None or position < part.stop) and (raw := file.readline()):
        bom = 3 if position == 0 and raw.startswith(_BOM) else 0
        yield position + bom, raw[bom:]
        position += len(raw)


def _read_jsonl(file: BinaryIO, part: FilePart, segmenter: Segmenter) -> Iterator[str | None]:
    column = segmenter.rules.column
    for position, raw in _lines(file, part):
        location = partial(_location, part.path, position)
        text = segmenter.decode(raw, location)
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except RecursionError:
            raise ValueError(f"{location()}: is nested too deeply. In .jsonl each line is one object.") from None
        except ValueError as error:
            raise ValueError(f"{location()}: is not JSON ({error}). In .jsonl each line is one object.") from None
        if not isinstance(row, dict):
            raise ValueError(f'{location()}: is not an object, such as {{"{column}": ...}}.')
        if column not in row:
            raise ValueError(_no_column(location(), column, list(row)))
        yield from segmenter.segments(row[column], location)
        yield None


def _read_csv(file: BinaryIO, part: FilePart, segmenter: Segmenter) -> Iterator[str | None]:
    column = segmenter.rules.column
    # strict: an open quote is an error, where it would otherwise swallow the rows up to the next one.
    reader = csv.reader(
        (segmenter.decode(raw, partial(_location, part.path, position)) for position, raw in _lines(file, part)),
        strict=True,
    )
    rows = with_long_fields(reader)

    def location() -> str:
        return f"{part.path}, line {reader.line_num}"

    try:
        names = next(rows, [])
        if column not in names:
            raise ValueError(_no_column(str(part.path), column, names))
        if names.count(column) > 1:
            raise ValueError(f"{part.path} has {names.count(column)} columns {column!r}. Rename all but one.")
        at = names.index(column)
        for row in rows:
            if len(row) == len(names):
                yield from segmenter.segments(row[at], location)
                yield None
            elif row:  # no row at all is a blank line
                raise ValueError(
                    f"{location()}: has {len(row)} values for {len(names)} columns. Is a quotation mark missing?"
                )
    except csv.Error as error:
        raise ValueError(f"{location()}: {error}. Is a quotation mark missing?") from None


def _read_parquet(file: BinaryIO, part: FilePart, segmenter: Segmenter) -> Iterator[str | None]:
    column = segmenter.rules.column
    table = _parquet_file(part.path, file)
    import pyarrow as pa

    if column not in table.schema_arrow.names:
        raise ValueError(_no_column(str(part.path), column, table.schema_arrow.names))
    is_list, as_bytes = _bytes_of(table.schema_arrow.field(column).type, f"{part.path}: the column {column!r}")
    row = 0
    for group in range(part.start, table.num_row_groups if part.stop is None else part.stop):
        # A few at a time, since texts are as long as documents.
        try:
            for batch in table.iter_batches(256, row_groups=[group], columns=[column]):
                # As bytes: Arrow does not check UTF-8.
                for value in _plain(batch.column(0)).cast(as_bytes).to_pylist():
                    location = partial("{}, row {} of row group {}".format, part.path, row, group)
                    byte_of = partial("{}, row {} of row group {}, byte {}".format, part.path, row, group)
                    if value is not None:
                        texts = [
                            segmenter.decode(text, byte_of)
                            for text in (value if is_list else [value])
                            if text is not None
                        ]
                        yield from segmenter.segments(texts if is_list else texts[0], location)
                        yield None
                    row += 1
        except pa.ArrowInvalid as error:
            raise ValueError(f"{part.path}: row group {group} is damaged ({error}). Download it again.") from error
        row = 0


def _parquet_file(path: Path, file: BinaryIO) -> Any:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ImportError(f"Reading {path} needs the package pyarrow. Install it with: pip install pyarrow.") from None
    try:
        # Read in pieces: a row group may be as big as the file.
        return ParquetFile(file, pre_buffer=False, buffer_size=2**20)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is no whole Parquet file ({error}). Download it again.") from error


def _row_groups(path: Path, n_bytes: int) -> list[int]:
    """The first row group of each part of ``n_bytes``."""
    with _open(path) as file:
        metadata = _parquet_file(path, file).metadata
        starts, size = [0], 0
        for group in range(metadata.num_row_groups):
            if size >= n_bytes:
                starts.append(group)
                size = 0
            size += metadata.row_group(group).total_byte_size
    return starts


def _bytes_of(kind: Any, where: str) -> tuple[bool, Any]:
    """Whether a type of Arrow is one of lists, and the same type with bytes instead of texts."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    text = kind.value_type if is_list else kind
    if str(text).removeprefix("large_").removesuffix("_view") not in ("string", "binary", "null"):
        raise ValueError(
            f"{where} is of type {kind}, not of texts or lists of texts. Choose another with Corpus(..., column=...) "
            "(--column on the command line)."
        )
    return is_list, pa.large_list(pa.large_binary()) if is_list else pa.large_binary()


def _plain(values: Any) -> Any:
    return values.dictionary_decode() if hasattr(values, "dictionary_decode") else values


def _no_column(where: str, column: str, names: list[str]) -> str:
    lacking = f"{where}: has no column {column!r}."
    if len(names) == 1 and (mark := next((mark for mark in ";\t" if mark in names[0]), None)) is not None:
        return f"{lacking} Its header has {SEPARATORS[mark]} in place of commas: write the file anew."
    listed = ", ".join(map(repr, names[:10])) or "none"
    return f"{lacking} Choose one of those there with Corpus(..., column=...) (--column on the command line): {listed}."


_READERS: dict[str, Callable[[BinaryIO, FilePart, Segmenter], Iterator[str | None]]] = {
    ".txt": _read_text,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
_ENDINGS = f"Known are {', '.join(_READERS)}, plain or followed by {', '.join(filter(None, OPENERS))}."
