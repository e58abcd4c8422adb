"""JSON files: reading those that somebody else wrote, bounded in size and with errors that name the file; writing."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# The largest JSON file of a model that is parsed. Once parsed, a file may take fifty times as much memory.
MOST_BYTES = 4_000_000


def json_object(
    path: Path,
    error_class: type[ValueError] = ValueError,
    remedy: str = "",
    object_pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None,
    most_bytes: int = MOST_BYTES,
    most_values: int | None = None,
) -> dict[str, Any]:
    """Read the object in a JSON file.

    Parameters
    ----------
    path : Path
    error_class : type of ValueError
        What is raised where the file is too large, is not JSON, or holds no object.
    remedy : str
        What to do about it: added to the message, with a space before it.
    object_pairs_hook : callable, optional
        As for `json.loads`, such as `unique_keys`.
    most_bytes : int
        The size in bytes beyond which the file is not parsed.
    most_values : int, optional
        The number of values beyond which it is not parsed, for a file that may be large: texts take as much memory as
        they have bytes, and small values many times as much.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        Of the class ``error_class``.
    OSError
        Where the file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        size = path.stat().st_size
        raise error_class(f"{path} has {size:,} bytes, and at most {most_bytes:,} can belong to a model.{remedy}")
    # Each value but the first in an object or list has a comma before it. Some of them may be in texts.
    if most_values is not None and sum(map(content.count, (b",", b"[", b"{"))) > most_values:
        raise error_class(f"{path} has more values than the {most_values:,} that can belong to a model.{remedy}")
    return parsed_object(content, path, error_class, remedy, object_pairs_hook)


def parsed_object(
    content: bytes,
    name: str | Path,
    error_class: type[ValueError] = ValueError,
    remedy: str = "",
    object_pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Parse the content of a JSON file, as `json_object` does. ``name`` is what errors call the file."""
    try:
        values = json.loads(content.decode("utf-8"), object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise error_class(f"{name} is nested too deeply to belong to a model.{remedy}") from None
    except ValueError as error:
        raise error_class(f"{name} is not valid JSON ({error}).{remedy}") from None
    if not isinstance(values, dict):
        raise error_class(f"{name} does not hold a JSON object.{remedy}")
    return values


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the pairs of a JSON object, for ``object_pairs_hook``.

    Raises
    ------
    ValueError
        If a key occurs twice. `json.loads` by itself keeps the last value and says nothing.
    """
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} occurs twice")
        values[key] = value
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write an object in UTF-8. Lone surrogates, for which UTF-8 has no bytes, become JSON's escapes.

    Raises
    ------
    OSError
        If it cannot be written, with its name, which Python's own error of a full disk lacks.
    """
    _write_text(path, json_text(values))


def json_text(values: dict[str, Any]) -> str:
    """What `write_json` writes."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def replace_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files in UTF-8, by their names, over what was there: first all of them, and then each takes its place.

    Raises
    ------
    OSError
        As of `write_json`. The earlier files are left as they were.
    """
    unfinished = {folder / name: folder / f"{name}.{uuid.uuid4().hex[:8]}.part" for name in texts}
    try:
        for path, written in unfinished.items():
            _write_text(written, texts[path.name])
        for path, written in unfinished.items():
            written.replace(path)
    finally:
        for written in unfinished.values():
            written.unlink(missing_ok=True)


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def replace_json(path: Path, values: Any) -> None:
    """Write values in one step, over what was there: a process that is killed leaves no half of a file."""
    unfinished = path.with_suffix(f".{uuid.uuid4().hex[:8]}.part")
    unfinished.write_text(json.dumps(values, indent=1), encoding="utf-8")
    unfinished.replace(path)
