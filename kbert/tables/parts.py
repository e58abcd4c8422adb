"""A folder of the parts of an output: what they were made of, which are there, and their joining into one file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbert.files.atomic_folder import sync
from kbert.files.json_files import json_object, write_json
from kbert.files.permissions import copy_permissions
from kbert.tables.files import write_tables

# What the parts were made of, and which there are. Readers of folders pass over names with "_".
_SETTINGS, _DONE = "_kbert.json", "_parts.jsonl"
# How the names begin of all that a killed call may leave: settings not renamed yet; parts.
_UNFINISHED, _OWN = (f"{_SETTINGS}.", "_part-"), ("part-", "_part", "_joined")
# The settings have the name of each file, of which there may be a million.
_MOST_BYTES = 500_000_000


def part_name(file: int, number: int, written_as: str) -> str:
    """The name of a part, by the number of its file and its own in it. In the order of names they are one table."""
    return f"part-{_in_order(file, 5)}-{_in_order(number, 6)}.{written_as}"


def _in_order(number: int, n_digits: int) -> str:
    """A number in so many digits. A longer one has a letter before it, which sorts after them: 99999, a100000."""
    digits = str(number).zfill(n_digits)
    more = len(digits) - n_digits
    return (chr(ord("a") + more - 1) if more else "") + digits


def is_part_folder(folder: Path) -> bool:
    """Whether a folder holds parts that a call has written."""
    return (folder / _SETTINGS).is_file()


class PartFolder:
    """The parts of an output, each complete or absent.

    Parameters
    ----------
    folder : Path
        It exists: empty, or that of an earlier call with the same settings.
    settings : dict
        What all parts have in common, as JSON has it. ``files`` may be some of those of the earlier call: one that
        could not be read may be gone. The numbers of the others stay.
    is_temporary : bool
        Whether parts with other settings are removed, and not refused.

    Attributes
    ----------
    done : dict of str
        The parts that are there, by name: the digest of the rows that each was made of.
    files : list of str
        Those of the first call, whose parts have their numbers.

    Raises
    ------
    FileExistsError
        If the folder holds parts with other settings, or something else. Settings without parts are replaced.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], is_temporary: bool):
        self.folder = folder
        path = folder / _SETTINGS
        saved = json_object(path, most_bytes=_MOST_BYTES) if path.is_file() else None
        different = [] if saved is None else sorted(name for name in settings if saved.get(name) != settings[name])
        self.files: list[str] = settings["files"]
        if saved is not None and different == ["files"] and _is_some_of(self.files, saved["files"]):
            different, self.files = [], saved["files"]
        if different and not is_temporary and any(folder.glob("part-*")):
            names = [name for name in different if name != "format"] or ["the version of kbert"]
            raise FileExistsError(
                f"{folder} holds predictions that were made with other settings ({', '.join(names)}). Give another "
                "output, or remove it."
            )
        if different:
            self._remove((_SETTINGS, _DONE, *_OWN))
        if different or saved is None:
            self._make(path, settings, is_temporary)
        self.done = self._found()

    def _make(self, path: Path, settings: dict[str, Any], is_temporary: bool) -> None:
        # What is left of a call that was killed here, or while it removed a temporary folder.
        self._remove(_UNFINISHED + (_OWN if is_temporary else ()))
        if any(self.folder.iterdir()):
            raise FileExistsError(f"{self.folder} exists, and holds no predictions of kbert's. Give another output.")
        unfinished = self.folder / f"{_SETTINGS}.{uuid.uuid4().hex[:8]}"
        write_json(unfinished, settings)
        sync(unfinished)
        unfinished.replace(path)
        sync(self.folder)
        sync(self.folder.parent)

    def _remove(self, beginnings: tuple[str, ...]) -> None:
        for path in list(self.folder.iterdir()):
            if path.name.startswith(beginnings):
                path.unlink(missing_ok=True)

    def finish(self, names: Iterable[str]) -> None:
        """See that the folder holds these parts and no others, and remove what killed calls left.

        Raises
        ------
        FileExistsError
            If there are parts of rows that the table no longer has.
        """
        # One that was written, but not noted before the call was killed, is among them too.
        if more := sorted({path.name for path in self.folder.glob("part-*")} - set(names)):
            raise FileExistsError(
                f"{self.folder} holds {len(more)} parts of rows that the table no longer has ({more[0]} is the first). "
                "Remove these, or give another output. All others are complete."
            )
        self._remove(_UNFINISHED)

    def _found(self) -> dict[str, str]:
        """The parts that are there. One of another size than was noted, or on a torn last line, is made again."""
        noted: dict[str, tuple[str, int]] = {}
        path = self.folder / _DONE
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
            try:
                values = json.loads(line)
                name, digest, n_bytes = str(values["part"]), str(values["digest"]), int(values["bytes"])
            except (ValueError, TypeError, KeyError):
                continue
            noted[name] = digest, n_bytes
        return {name: digest for name, (digest, n_bytes) in noted.items() if self._is_whole(name, n_bytes)}

    def _is_whole(self, name: str, n_bytes: int) -> bool:
        path = self.folder / name
        return path.is_file() and path.stat().st_size == n_bytes

    def has(self, name: str, digest: str) -> bool:
        """Whether a part is there.

        Raises
        ------
        FileExistsError
            If it was made of other rows.
        """
        if name in self.done and self.done[name] != digest:
            raise FileExistsError(
                f"{self.folder / name} was made of other rows than the table has now. Remove {self.folder}, or give "
                "another output."
            )
        return name in self.done

    def note(self, name: str, digest: str, n_bytes: int) -> None:
        """Note that a part is written, with its size."""
        path = self.folder / _DONE
        with _naming(path, "what is finished cannot be noted"), open(path, "a", encoding="utf-8") as file:
            # After a line that may be torn.
            file.write("\n" + json.dumps({"part": name, "digest": digest, "bytes": n_bytes}))
            file.flush()
            os.fsync(file.fileno())

    def join(self, names: Iterable[str], target: Path, written_as: str) -> None:
        """Write parts, which are Parquet, into one file, and remove the folder.

        Raises
        ------
        ValueError
            If a column has types in them that do not go together.
        OSError
            If it cannot be written. The parts stay.
        """
        import pyarrow as pa
        from pyarrow import parquet

        paths = [self.folder / name for name in names]
        schema = one_schema([parquet.read_schema(path) for path in paths], target)

        def whole(path: Path) -> Any:
            """A part with the columns of all; what it lacks is missing."""
            table = parquet.read_table(path, partitioning=None)  # key=value in its path is no column
            values = [
                _cast(table, field, target) if field.name in table.column_names else
                pa.nulls(table.num_rows, field.type) for field in schema
            ]  # fmt: skip
            return pa.table(values, schema=schema)

        unfinished = self.folder / "_joined"
        with _naming(target, "the parts cannot be written into one file", unfinished):
            write_tables(unfinished, map(whole, paths), written_as)
            copy_permissions(target, unfinished)
            unfinished.replace(target)
            sync(target.parent)  # before the parts go
        shutil.rmtree(self.folder, ignore_errors=True)


def one_schema(schemas: Iterable[Any], target: Path) -> Any:
    """The columns of all tables that go into one file, with types that hold the values of all.

    Raises
    ------
    ValueError
        If a column has types in them that do not go together.
    """
    import pyarrow as pa

    plain = [schema.remove_metadata() for schema in schemas]
    try:
        try:
            whole = pa.unify_schemas(plain, promote_options="permissive")
        except pa.ArrowException:  # perhaps at a column that is a category in one file, and texts in another
            whole = pa.unify_schemas(map(_without_categories, plain), promote_options="permissive")
        return pa.schema([field.with_nullable(True) for field in whole])  # a file may lack the column
    except pa.ArrowException as error:
        raise ValueError(
            f"The files have columns of different types ({error}), which do not go into the one file {target}. "
            "Name the other columns: keep (--keep on the command line)."
        ) from None


def _without_categories(schema: Any) -> Any:
    """A schema in which categories are of the type of their values."""
    from pyarrow import schema as schema_of
    from pyarrow import types

    return schema_of(
        field.with_type(field.type.value_type) if types.is_dictionary(field.type) else field for field in schema
    )


def _cast(table: Any, field: Any, target: Path) -> Any:
    """A column with the type that it has in the whole output. A whole number may be too large for one with decimals."""
    import pyarrow as pa

    try:
        return table[field.name].cast(field.type)
    except pa.ArrowException as error:
        raise ValueError(
            f"The column {field.name!r} has values that do not go together into the one file {target} ({error}). Give "
            "a folder of parts as output, or name the other columns: keep (--keep on the command line)."
        ) from None


def _is_some_of(files: list[str], others: Any) -> bool:
    return isinstance(others, list) and set(files) < set(others)


def write_part(path: Path, table: Any, written_as: str) -> int:
    """Write a part, which is there as a whole or not at all. Gives its size in bytes.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    unfinished = path.with_name(f"_{path.name}.{uuid.uuid4().hex[:8]}")
    with _naming(path, "a part cannot be written", unfinished):
        write_tables(unfinished, [table], written_as)
        n_bytes = unfinished.stat().st_size
        unfinished.replace(path)
        sync(path.parent)
    return n_bytes


@contextmanager
def _naming(path: Path, fault: str, unfinished: Path | None = None) -> Iterator[None]:
    """Name the file that cannot be written in the error, and leave nothing unfinished."""
    try:
        yield
    except OSError as error:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
        raise OSError(
            error.errno,
            f"{fault} ({error.strerror or error}). Make room and call again: what is finished stays",
            str(path),
        ) from error


def digest_of(table: Any) -> str:
    """A name for the rows of a table, which changes with any of their values."""
    import pyarrow as pa

    # Metadata is of the file, and not of these rows: pandas writes there how many rows the whole file has.
    table = table.replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return hashlib.blake2b(memoryview(sink.getvalue()), digest_size=16).hexdigest()
