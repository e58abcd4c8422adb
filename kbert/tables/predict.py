"""Predictions for tables of any size, written in parts, which a killed call has not to make again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import keras
import numpy as np
from tqdm import tqdm

from kbert.data.frames import shown
from kbert.estimators.base import BertEstimator
from kbert.estimators.loading import load
from kbert.estimators.persistence import encode_value
from kbert.folder_lock import alone_in
from kbert.tables.files import FORMATS, Head, find_tables, format_of, head_of, read_in_parts, require_pyarrow
from kbert.tables.outputs import as_X, columns_of_lists, columns_read, kind_of_values, predicted_columns
from kbert.tables.parts import PartFolder, digest_of, one_schema, part_name, write_part
from kbert.warn import warn_user

_FORMAT = 1


class Written(NamedTuple):
    """What `predict_table` wrote.

    Attributes
    ----------
    rows : int
        Rows in the output.
    parts : int
        Of how many parts it was made.
    made_before : int
        How many of these an earlier call had made.
    """

    rows: int
    parts: int
    made_before: int


class _Part(NamedTuple):
    """A part of the input, as a worker gets it: ``lists`` are the columns of JSON lists, by the table's first rows."""

    name: str
    source: str
    first_row: int
    table: Any
    digest: str
    lists: frozenset[str]


class _Plan(NamedTuple):
    """How all parts are made."""

    folder: Path
    model: str
    written_as: str
    columns: tuple[str, ...] | None
    keep: tuple[str, ...] | None
    probabilities: bool


def predict_table(
    model: BertEstimator | str | os.PathLike[str],
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    keep: str | Sequence[str] | None = None,
    probabilities: bool = False,
    format: str | None = None,
    rows_per_part: int = 10_000,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Written:
    """Predict each row of a table in files, and write the predictions beside the columns of the table.

    Memory does not grow with the number of rows. Parts of ``rows_per_part`` rows are complete or absent: the same call
    goes on where a killed one stopped, and its files are the same, byte for byte, on one machine and backend.

    Parameters
    ----------
    model : estimator, or str or Path
        A fitted estimator, or the folder of a saved one. Several processes need the folder, on a disk that all of them
        see; an estimator is saved into a temporary one for them.
    source : str or Path
        A file, a folder or a pattern: CSV, TSV or JSON lines, plain or packed (.gz, .bz2, .xz), or Parquet. The values
        of CSV and TSV are texts.
    out : str or Path
        A file (.parquet, .csv, .tsv or .jsonl), or a folder, into which each part is written as a file. The name of a
        new folder has no ending.
    columns : str or list of str, optional
        The columns that the model reads. By default those of its fit (of a DataFrame); ``question`` and ``context``;
        ``context``, ``question`` and ``options``; or "text"; or the only one.
    keep : str or list of str, optional
        The columns of the table that are written too; all of them by default.
    probabilities : bool, default=False
        Whether a classifier gives a column for each label, ``probability_LABEL``.
    format : {"parquet", "csv", "tsv", "jsonl"}, optional
        Of the files in a folder; Parquet by default. In CSV and TSV, lists and structs are JSON.
    rows_per_part : int, default=10_000
        Rows that are read, predicted and written together.
    n_jobs : int, optional
        Processes, by joblib, so that Dask, Ray and Spark do it on a cluster with their own backends of joblib
        (``joblib.parallel_config(backend="dask")``). None is 1 outside of such a context.
    verbose : int, default=0
        1 shows a bar with rows, rows a second and, where the number of rows is known, the time left.

    Returns
    -------
    Written

    Raises
    ------
    FileNotFoundError
        If there is no such file or model.
    ValueError
        If a column is missing, a file is damaged (all others are done first), a row cannot be used, ``out`` is one of
        the files, or another call is writing it.
    FileExistsError
        If the folder ``out`` holds the predictions of something else, or no predictions.
    OSError
        If a part cannot be written. What was finished stays, and the same call goes on from there.

    Notes
    -----
    The new columns are, by estimator: ``prediction`` and ``probability`` (classifier; of several labels a list),
    ``prediction`` or ``prediction_0``, ... (regressor), ``prediction`` (tagger on lists of words: the tags),
    ``entities`` or ``spans`` (tagger on texts), ``prediction``, ``start``, ``end`` and ``probability`` (question
    answering), ``prediction`` and ``probability`` (multiple choice), ``vector`` or ``vectors`` (vectorizer).

    Examples
    --------
    >>> from kbert import predict_table
    >>> predict_table(
    ...     "reviews-model", "reviews/*.csv.gz", "labels.parquet", columns="review", keep=["id"]
    ... )
    Written(rows=2000000, parts=200, made_before=0)
    """
    require_pyarrow()
    if not _is_whole(rows_per_part) or rows_per_part < 1:
        raise ValueError(f"rows_per_part must be a whole number of at least 1, got {rows_per_part!r}.")
    if n_jobs is not None and (not _is_whole(n_jobs) or n_jobs == 0):
        raise ValueError(
            f"n_jobs (--jobs on the command line) must be a number of processes, or -1 for one a core, got {n_jobs!r}."
        )
    target = Path(out).expanduser().absolute()
    written_as = _format_of_output(target, format)
    is_file = format_of(target) is not None
    folder = target.with_name(f".{target.name}.parts") if is_file else target
    if is_file and target.is_dir():
        raise FileExistsError(f"{target} is a folder. Give another name.")
    files = _input_files(source, target)
    estimator = model if isinstance(model, BertEstimator) else _load_silent(model)
    plan = _Plan(
        folder,
        _digest_of_model(estimator),
        "parquet" if is_file else written_as,
        _names(columns),
        _names(keep),
        bool(probabilities),
    )
    settings = _settings(plan, estimator, files, int(rows_per_part))
    heads = {file: head_of(file) for file in files}
    _check_columns(plan, estimator, heads, target if is_file else None)
    counts = [head.n_rows for head in heads.values()]
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file of no known format. Known endings are .{', .'.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    bar = tqdm(
        total=None if None in counts else sum(n for n in counts if n is not None),
        unit="row",
        desc="predict",
        dynamic_ncols=True,
        disable=not verbose,
    )
    parts: dict[str, int] = {}
    unreadable, fault = list[Exception](), list[Exception]()

    def to_do() -> Iterator[_Part]:
        """The parts that are not there yet.

        joblib may take them in another thread, where nobody would see an error: it is kept for the end.
        """
        lists: frozenset[str] | None = None
        numbers = {name: number for number, name in enumerate(output.files)}
        for file, number in zip(files, map(numbers.__getitem__, settings["files"]), strict=True):
            try:
                for i, table in enumerate(read_in_parts(file, int(rows_per_part))):
                    name, digest = part_name(number, i, plan.written_as), digest_of(table)
                    if lists is None:
                        lists = columns_of_lists(estimator, table)
                    if output.has(name, digest):
                        parts[name] = table.num_rows
                        bar.update(table.num_rows)
                    else:
                        yield _Part(name, str(file), i * int(rows_per_part), table, digest, lists)
            except ValueError as error:
                unreadable.append(error)
            except OSError as error:
                fault.append(error)
                return

    told: dict[type[Warning], str] = {}
    with bar, ExitStack() as stack:
        stack.enter_context(alone_in(folder, f"Another call is writing {target}. Wait for it, or give another output."))
        output = PartFolder(folder, settings, is_temporary=is_file)
        for made in _made(plan, model, estimator, to_do(), n_jobs, stack):
            output.note(made.name, made.digest, made.n_bytes)
            parts[made.name] = made.n_rows
            bar.update(made.n_rows)
            told = dict(made.messages) | told
        _tell(told, fault, unreadable)
        if not parts:
            shutil.rmtree(folder)
            raise ValueError(f"There are no rows in {shown(str(source))}: there is nothing to predict.")
        if not is_file:
            output.finish(parts)
        else:
            output.join(sorted(parts), target, written_as)
    return Written(sum(parts.values()), len(parts), len(output.done.keys() & parts.keys()))


def _tell(told: dict[type[Warning], str], fault: list[Exception], unreadable: list[Exception]) -> None:
    """Warn of what the parts warned of, and raise what kept some of them from being made."""
    for category, message in told.items():
        warn_user(f"Of the first rows of which this is true: {message}", category)
    if fault:
        raise fault[0]
    if unreadable:
        others = f" {len(unreadable) - 1} more files cannot be read." if len(unreadable) > 1 else ""
        raise ValueError(
            f"{str(unreadable[0]).rstrip('.')}.{others} What else there is was done: mend or remove what cannot be "
            "read, and call again."
        ) from unreadable[0]


# --- What a folder of parts is of ------------------------------------------------------------------------------


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return (given,) if isinstance(given, str) else None if given is None else tuple(given)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _load_silent(model: str | os.PathLike[str]) -> BertEstimator:
    """A saved estimator, which shows no bars of its own, whatever it was saved with."""
    found: BertEstimator = load(model)
    return found.set_params(verbose=0)


def _input_files(source: str | os.PathLike[str], target: Path) -> list[Path]:
    """The files of the input. Of a folder, what an earlier call wrote into it is none of them."""
    found = find_tables(source)
    if Path(source).expanduser().is_dir():
        found = [file for file in found if file != target and target not in file.parents]
    if target.is_file() and any(target.samefile(file) for file in found):
        raise ValueError(f"{target} is the input, and would be replaced. Give another output.")
    if target.is_dir() and any(target == file.parent for file in found):
        raise ValueError(f"{target} holds the input. Give another output.")
    return found


def _format_of_output(target: Path, asked: str | None) -> str:
    if asked is not None and asked not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {asked!r}.")
    by_name = format_of(target)
    if by_name is not None and target.suffix.lower().lstrip(".") not in FORMATS:
        raise ValueError(f"{target}: packed files are read, not written. Give a name without {target.suffix}.")
    if by_name is not None and asked not in (None, by_name):
        raise ValueError(f"format is {asked!r}, and the name of {target} says {by_name!r}.")
    ending = target.suffix.removeprefix(".")
    # A number after a dot is no ending: predictions-2026.11.
    if by_name is None and ending and not ending.isdigit() and not target.is_dir():
        raise ValueError(
            f"{target}: no file of this ending can be written. A file ends in .{', .'.join(FORMATS)}. The name of a "
            "folder of parts has no ending, or the folder is there already."
        )
    return by_name or asked or "parquet"


def _check_columns(plan: _Plan, estimator: BertEstimator, heads: dict[Path, Head], one_file: Path | None) -> None:
    """Find out now, and not hours later, that a file lacks a column or has one of another type.

    Parameters
    ----------
    plan : _Plan
    estimator : BertEstimator
    heads : dict
        Of each file of the input. One without a schema is passed over.
    one_file : Path or None
        The output, if it is one file, in which each column has one type.
    """
    import pyarrow as pa

    kept = []
    first: dict[str, tuple[Path, Any]] = {}
    for file, head in heads.items():
        names = [] if head.schema is None else head.schema.names
        if not names or head.n_rows == 0 or len(set(names)) < len(names):
            continue
        try:
            read = columns_read(estimator, names, plan.columns)
            kept.append(pa.schema([head.schema.field(name) for name in _kept(plan.keep, names)]))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        for name in read if head.n_rows is not None else ():  # in CSV all are texts, and may be lists
            kind = head.schema.field(name).type
            if pa.types.is_null(kind):
                continue
            other, known = first.setdefault(name, (file, kind))
            if kind_of_values(kind) != kind_of_values(known):
                raise TypeError(f"{file}: the column {name!r} is of type {kind}, and in {other} of type {known}.")
    if one_file is not None and kept:
        one_schema(kept, one_file)


def _settings(plan: _Plan, estimator: BertEstimator, files: list[Path], rows_per_part: int) -> dict[str, Any]:
    """What all parts of an output have in common."""
    shared = Path(os.path.commonpath([file.parent for file in files]))
    settings = {
        "format": _FORMAT, "model": plan.model, "rows_per_part": rows_per_part,
        "files": [str(file.relative_to(shared)) for file in files], "written_as": plan.written_as,
        "columns": plan.columns, "keep": plan.keep, "probabilities": plan.probabilities,
    }  # fmt: skip
    return json.loads(json.dumps(settings))


def _digest_of_model(estimator: BertEstimator) -> str:
    """A name for a fitted estimator, which changes with all that its predictions depend on."""
    estimator._check_fitted()
    parameters = {name: encode_value(value) for name, value in estimator.get_params(deep=False).items()}
    for name in ("verbose", "random_state", "checkpoint", "distribution", "weights"):
        parameters.pop(name, None)
    facts = [type(estimator).__name__, keras.backend.backend(), parameters, estimator._learned_to_json()]
    found = hashlib.blake2b(json.dumps(facts, default=str, sort_keys=True).encode(), digest_size=16)
    for variable in estimator.model_.weights:
        found.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable.value)).tobytes())
    return found.hexdigest()


# --- Making parts ----------------------------------------------------------------------------------------------


class _Made(NamedTuple):
    """A part that was written, and what was warned of on the way."""

    name: str
    n_rows: int
    n_bytes: int
    digest: str
    messages: list[tuple[type[Warning], str]]


def _made(
    plan: _Plan, model: Any, estimator: BertEstimator, parts: Iterable[_Part], n_jobs: int | None, stack: ExitStack
) -> Iterator[_Made]:
    """Make parts, in this process or in several, and tell of each when it is written."""
    if joblib.effective_n_jobs(n_jobs) == 1:
        for part in parts:
            yield _make(plan, estimator, part)
        return
    if isinstance(model, BertEstimator):
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kbert-"))
        estimator.save(Path(folder) / "model")
        model = Path(folder) / "model"
    where = str(Path(model).expanduser().absolute()) if Path(model).expanduser().exists() else model
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
    yield from parallel(joblib.delayed(_make_in_process)(plan, where, part) for part in parts)


def _make_in_process(plan: _Plan, model: Any, part: _Part) -> _Made:
    return _make(plan, _loaded(model, plan.model), part)


@lru_cache(maxsize=1)
def _loaded(model: Any, digest: str) -> BertEstimator:
    """A saved estimator: a process loads it once, and anew where the folder has another one since."""
    found = _load_silent(model)
    if _digest_of_model(found) != digest:
        raise ValueError(
            f"{model} holds another model in this process than where predict_table was called, or the backend is "
            f"another one ({keras.backend.backend()}). Let all have the same files and the same KERAS_BACKEND."
        )
    return found


def _make(plan: _Plan, estimator: BertEstimator, part: _Part) -> _Made:
    """Predict a part, and write it."""
    names = part.table.column_names
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            read = columns_read(estimator, names, plan.columns)
            kept = part.table.select(_kept(plan.keep, names))
            X = as_X(estimator, part.table, read, part.lists, part.first_row)
            found = predicted_columns(estimator, X, plan.probabilities)
        except (ValueError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            last = part.first_row + part.table.num_rows - 1
            raise kind(f"{part.source}, rows {part.first_row} to {last} (index): {error}") from error
    if both := sorted(set(kept.column_names) & set(found)):
        raise ValueError(f"{part.source} has a column {both[0]!r}, as the predictions have. Leave it out of keep.")
    for name, values in found.items():
        kept = kept.append_column(name, values)
    n_bytes = write_part(plan.folder / part.name, kept, plan.written_as)
    messages: list[tuple[type[Warning], str]] = [
        (warning.category, str(warning.message)) for warning in told if issubclass(warning.category, UserWarning)
    ]
    return _Made(part.name, part.table.num_rows, n_bytes, part.digest, messages)


def _kept(keep: tuple[str, ...] | None, names: list[str]) -> list[str]:
    if keep is None:
        return names
    if missing := [name for name in keep if name not in names]:
        raise ValueError(f"keep names {missing[0]!r}, and the table has {', '.join(names)}.")
    return list(dict.fromkeys(keep))
