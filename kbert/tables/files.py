"""Files of rows: CSV, TSV, JSON lines and Parquet, read as Arrow tables of a few thousand rows, and written."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import lzma
import math
import os
import zlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from kbert.errors import DatasetWarning
from kbert.files.inputs import OPENERS, SEPARATORS, endings_of, files_at, root_of, with_long_fields
from kbert.values.printable import printable, shown
from kbert.warn import warn_user

FORMATS = ("parquet", "csv", "tsv", "jsonl")
_KNOWN = "Known are .csv, .tsv and .jsonl, plain or packed (.gz, .bz2, .xz), and .parquet."


def require_pyarrow() -> Any:
    """The package pyarrow.

    Raises
    ------
    ImportError
        If it is not installed, with the command that installs it.
    """
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Reading and writing tables needs the package pyarrow. Install it with: pip install 'kbert-learn[tables]'."
        ) from None
    return pyarrow


def format_of(path: Path) -> str | None:
    """The format that the ending of a name says: one of `FORMATS`; None for another one."""
    contents, packing = endings_of(path)
    name = contents.removeprefix(".")
    return name if name in FORMATS and not (packing and name == "parquet") else None


def find_tables(source: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a folder or a pattern leads to, sorted by name.

    Of a folder, files with other endings are passed over, and those whose name starts with "_" or ".". A warning tells
    of columns that stand in the names of folders alone, as in country=DE/part.parquet, and are not read.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If the ending of a file's name says of no known format.
    """
    path, root = Path(source), root_of(source)
    found = files_at(path, lambda file: format_of(file) is not None, "table", _KNOWN, lambda file: file.name[0] in "_.")
    folders = {part for file in found if file.is_relative_to(root) for part in file.relative_to(root).parts[:-1]}
    columns = {name.split("=")[0] for name in folders if "=" in name}
    if columns and (schema := head_of(found[0]).schema) is not None:
        columns -= set(schema.names)
    if columns:
        is_parquet = path.is_dir() and all(format_of(file) == "parquet" for file in found)
        with_pandas = f": pandas.read_parquet({str(path)!r}).to_parquet('table.parquet')" if is_parquet else ""
        warn_user(
            f"{path}: columns that stand in the names of its folders alone are not read: {', '.join(sorted(columns))}. "
            f"Write them into the table first{with_pandas}.",
            DatasetWarning,
        )
    return found


class Head(NamedTuple):
    """What a file tells without being read.

    Attributes
    ----------
    n_rows : int or None
        Parquet alone has it.
    schema : pyarrow.Schema or None
        The columns and their types. None of JSON lines, in which a column may come late, and of CSV without rows.
    first : pyarrow.Table or None
        The first row, of CSV and JSON lines. None of files without rows.
    """

    n_rows: int | None = None
    schema: Any = None
    first: Any = None


def head_of(path: Path) -> Head:
    """The footer of a Parquet file, or the first row of another. What is wrong with a file is told when it is read."""
    with contextlib.suppress(Exception):
        if format_of(path) == "parquet":
            from pyarrow.parquet import ParquetFile

            with ParquetFile(path) as file:
                return Head(int(file.metadata.num_rows), file.schema_arrow)
        with contextlib.closing(_of_lines(path, 1)) as rows:
            first = next(rows)
            if not first.num_rows:
                return Head()
            return Head(schema=None if _separator(path) is None else first.schema, first=first)
    return Head()


def read_in_parts(
    path: Path,
    n_rows: int,
    told: Callable[[int], None] | None = None,
    columns: list[str] | None = None,
    faults: dict[str, str] | None = None,
) -> Iterator[Any]:
    """The rows of a file as Arrow tables of ``n_rows`` rows, the last one with what is left.

    The values of CSV and TSV files are texts, exactly as they stand there.

    Parameters
    ----------
    path : Path
    n_rows : int
    told : callable, optional
        Called before each table with how many bytes of the file have been read so far, packed as they are. Not of
        Parquet, which says how many rows it has.
    columns : list of str, optional
        Of Parquet, the columns that are read; all by default. Other formats have all in each line.
    faults : dict of str, optional
        Of JSON lines: where given, a column whose values do not go together has no values in a table, and its name is
        put here with the error, which `require_readable` raises.

    Raises
    ------
    ValueError
        If the file cannot be read, is damaged, or not of the format that its name says, with its name.
    """
    import pyarrow as pa

    kept: list[Any] = []
    n_kept = 0
    try:
        is_parquet = format_of(path) == "parquet"
        for found in _parquet(path, n_rows, columns) if is_parquet else _of_lines(path, n_rows, told, faults):
            rest = found
            if len(set(rest.column_names)) < rest.num_columns:
                raise ValueError(f"it has a column twice: {printable(', '.join(rest.column_names))}")
            while n_kept + rest.num_rows >= n_rows:
                yield pa.concat_tables([*kept, rest.slice(0, n_rows - n_kept)]).combine_chunks()
                rest = rest.slice(n_rows - n_kept)
                kept, n_kept = [], 0
            if rest.num_rows:
                kept.append(rest)
                n_kept += rest.num_rows
    except (pa.ArrowException, OSError, EOFError, UnicodeError, lzma.LZMAError, zlib.error, ValueError) as error:
        reason = (
            _not_utf8(path)
            if isinstance(error, UnicodeDecodeError) and format_of(path) != "parquet"
            else " ".join(str(error).split())
        )
        hint = other_separator(path).rstrip(".")
        raise ValueError(_unreadable(path, f"{reason}{hint and f'. {hint}'}")) from error
    if kept:
        yield pa.concat_tables(kept).combine_chunks()


def _unreadable(path: Path, reason: str) -> str:
    return f"{path} cannot be read as {format_of(path)}: {reason}"


def require_readable(faults: dict[str, str], names: Collection[str]) -> None:
    """Raise what is wrong with the first of these columns that could not be read.

    Raises
    ------
    ValueError
        The error in ``faults``, which `read_in_parts` has filled.
    """
    wrong = next((fault for name, fault in faults.items() if name in names), None)
    if wrong is not None:
        raise ValueError(wrong)


# What to do about a file that has another separator than its format's own.
_REMEDIES = {
    ";": (
        "Write it with commas: "
        "pandas.read_csv(FILE, sep=';', dtype=str, keep_default_na=False).to_csv(NEW_FILE, index=False)"
    ),
    "\t": "Give it a name that ends in .tsv",
    ",": "Give it a name that ends in .csv",
}


def other_separator(path: Path) -> str:
    """What to tell of a CSV or TSV file whose header is one name that holds another separator; else ""."""
    own = _separator(path)
    with contextlib.suppress(Exception):
        if own is None:
            return ""
        with OPENERS[endings_of(path)[1]](path, "rt", encoding="utf-8-sig", newline="") as file:
            header = file.readline(100_000)
        for other, remedy in _REMEDIES.items():
            if other != own and own not in header and len(next(csv.reader([header], delimiter=other))) > 1:
                return f"Its header has {SEPARATORS[other]} in place of {SEPARATORS[own]}. {remedy}."
    return ""


def _separator(path: Path) -> str | None:
    return {"csv": ",", "tsv": "\t"}.get(format_of(path) or "")


def _not_utf8(path: Path) -> str:
    """Which line of a file is not UTF-8. A decoder, which reads ahead, does not know."""
    # A file that is damaged as well may end here.
    with contextlib.suppress(Exception), OPENERS[endings_of(path)[1]](path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return f"line {number} is not UTF-8 ({error.reason}). Convert the file to UTF-8"
    return "it is not UTF-8"


def _parquet(path: Path, n_rows: int, columns: list[str] | None) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=n_rows, columns=columns):
            yield pa.Table.from_batches([batch])


def _of_lines(
    path: Path,
    n_rows: int,
    told: Callable[[int], None] | None = None,
    faults: dict[str, str] | None = None,
) -> Generator[Any]:
    """The rows of a CSV, TSV or JSON lines file."""
    packing, separator = endings_of(path)[1], _separator(path)
    with open(path, "rb") as packed, OPENERS[packing](packed, "rb") if packing else packed as unpacked:
        with io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline=None if separator is None else "") as file:
            tables = _json_lines(file, n_rows, path, faults) if separator is None else _csv(file, n_rows, separator)
            for table in tables:
                if told is not None:
                    told(packed.tell())
                yield table


def _csv(file: TextIO, n_rows: int, separator: str) -> Generator[Any]:
    """Python's reader, and not Arrow's: it has no limit on a row, and its errors name the line."""
    import pyarrow as pa

    reader = csv.reader(file, delimiter=separator, strict=True)
    rows = with_long_fields(reader)
    try:
        names = next(rows, None)
        if not names:
            raise ValueError("it has no header")
        if len(set(names)) < len(names):
            raise ValueError(f"its header has a name twice: {names}")
        found: list[list[str]] = []
        for row in rows:
            if not row and len(names) == 1:  # an empty value
                row = [""]
            if not row:
                continue
            if len(row) != len(names):
                raise ValueError(f"line {reader.line_num} has {len(row)} values, and the header has {len(names)}")
            found.append(row)
            if len(found) == n_rows:
                yield _of_texts(names, found)
                found = []
    except csv.Error as error:
        raise ValueError(
            f"line {reader.line_num}: {error}. A value with quotes in it has to be in quotes, and its own are "
            'doubled: "a ""b"" c"'
        ) from None
    yield _of_texts(names, found) if found else pa.table({name: pa.array([], pa.string()) for name in names})


def _of_texts(names: list[str], rows: list[list[str]]) -> Any:
    import pyarrow as pa

    columns = zip(*rows, strict=True)
    return pa.table({name: pa.array(values, pa.string()) for name, values in zip(names, columns, strict=True)})


def _json_lines(file: TextIO, n_rows: int, path: Path, faults: dict[str, str] | None) -> Generator[Any]:
    """Each part has the types of its own rows: a number may have decimals later on.

    Its columns are those of its own rows and of all before them: lines may leave out what they have no value for.
    """
    import pyarrow as pa

    names: dict[str, None] = {}
    found: list[dict[str, Any]] = []
    numbers: list[int] = []  # of their lines

    def as_table() -> Any:
        names.update((name, None) for row in found for name in row)
        arrays: dict[str, Any] = {}
        for name in names:
            try:
                arrays[name] = _column(name, [row.get(name) for row in found], numbers)
            except ValueError as error:
                if faults is None:
                    raise
                faults.setdefault(name, _unreadable(path, str(error)))
                arrays[name] = pa.nulls(len(found))
        found.clear()
        numbers.clear()
        return pa.table(arrays)

    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} holds no JSON object")
        found.append(row)
        numbers.append(number)
        if len(found) == n_rows:
            yield as_table()
    if found:
        yield as_table()


def _column(name: str, values: list[Any], numbers: list[int]) -> Any:
    """Values of JSON as Arrow's. The error names the first line whose value does not go with those before it.

    Lists and objects whose own values do not go together, such as the spans [[0, 3, "PER"]], are JSON.
    """
    import pyarrow as pa

    errors_of_arrow = (pa.ArrowException, TypeError, UnicodeError, OverflowError)

    def error_of_first(n: int) -> Exception | None:
        try:
            pa.array(values[:n])
        except errors_of_arrow as error:
            return error
        return None

    try:
        array = pa.array(values)
    except errors_of_arrow:
        if all(value is None or isinstance(value, list | dict) for value in values):
            return _as_json(values)
        n = bisect_left(range(len(values)), True, key=lambda n: error_of_first(n) is not None)
        raise ValueError(
            f"line {numbers[n - 1]}: the column {name!r} cannot hold {shown(values[n - 1])} ({error_of_first(n)})"
        ) from None
    # Parquet cannot hold objects without any key.
    if pa.types.is_struct(array.type) and not array.type.num_fields:
        return pa.nulls(len(values))
    return _as_json(values) if _has_empty_objects(array.type) else array


def _as_json(values: list[Any]) -> Any:
    import pyarrow as pa

    return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())


def _has_empty_objects(kind: Any) -> bool:
    """Whether a type of Arrow's has objects without any key, at any depth."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return _has_empty_objects(kind.value_type)
    inner = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return pa.types.is_struct(kind) and (not inner or any(map(_has_empty_objects, inner)))


# --- Writing -----------------------------------------------------------------------------------------------------


def write_tables(path: Path, tables: Iterable[Any], written_as: str) -> None:
    """Write Arrow tables of one schema into a file, one after the other, and see that it is on the disk.

    In CSV and TSV, lists and structs are JSON. The same tables give the same bytes.
    """
    writers: dict[str, Callable[[Any, Iterable[Any]], None]] = {
        "parquet": _write_parquet,
        "csv": partial(_write_csv, separator=","),
        "tsv": partial(_write_csv, separator="\t"),
        "jsonl": _write_json_lines,
    }
    with open(path, "wb") as file:
        writers[written_as](file, tables)
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(file: Any, tables: Iterable[Any]) -> None:
    from pyarrow.parquet import ParquetWriter

    writer = None
    try:
        for table in tables:
            writer = writer or ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_csv(file: Any, tables: Iterable[Any], separator: str) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # The line ends of RFC 4180: values are quoted where they hold either of its two characters.
    lines = csv.writer(text, delimiter=separator, lineterminator="\r\n")
    has_header = False
    for table in tables:
        if not has_header:
            lines.writerow(table.column_names)
            has_header = True
        columns = [map(_in_csv, _values(column.to_pylist(), column.type)) for column in table.columns]
        lines.writerows(zip(*columns, strict=True))
    text.flush()
    text.detach()


def _in_csv(value: Any) -> Any:
    return _json(value) if isinstance(value, list | dict) else value


def _write_json_lines(file: Any, tables: Iterable[Any]) -> None:
    for table in tables:
        columns = [_values(column.to_pylist(), column.type) for column in table.columns]
        for row in zip(*columns, strict=True):
            values = dict(zip(table.column_names, row, strict=True))
            file.write(_json(values).encode() + b"\n")


def _json(value: Any) -> str:
    """JSON, which has no NaN and no infinity: null stands for them."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(of_name) for name, of_name in value.items()}
    if isinstance(value, list):
        return [_finite(element) for element in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _values(values: Iterable[Any], kind: Any) -> list[Any]:
    """Values as text has them: numbers of float32 with the digits that they have, 0.1 and not 0.10000000149."""
    from pyarrow import types

    if types.is_float32(kind) or types.is_float16(kind):
        number = kind.to_pandas_dtype()
        return [None if value is None else float(str(number(value))) for value in values]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [None if value is None else _values(value, kind.value_type) for value in values]
    if types.is_map(kind):  # pairs of a key and a value
        return [
            value and [(_values([key], kind.key_type)[0], _values([item], kind.item_type)[0]) for key, item in value]
            for value in values
        ]
    if types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return [
            value and {field.name: _values([value[field.name]], field.type)[0] for field in fields} for value in values
        ]
    return list(values)
