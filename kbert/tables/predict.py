"""Predictions for tables of any size, written in parts, which a killed call has not to make again."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from tqdm import tqdm

from kbert.estimators.base import BertEstimator
from kbert.estimators.loading import load
from kbert.estimators.persistence import encode_value
from kbert.folder_lock import alone_in
from kbert.input_files import root_of
from kbert.printable import printable, shown
from kbert.tables.files import (
    FORMATS,
    Head,
    find_tables,
    format_of,
    head_of,
    other_separator,
    read_in_parts,
    require_pyarrow,
    require_readable,
)
from kbert.tables.outputs import (
    as_X,
    columns_of_lists,
    columns_read,
    kind_of_values,
    predicted_columns,
    predicted_names,
)
from kbert.tables.parts import PartFolder, digest_of, one_schema, part_name, write_part
from kbert.training.backends import backend_name
from kbert.warn import warn_user
from kbert.weights.runtimes import ExportedModel
from kbert.whole_numbers import whole_number

# Of the settings of an output.
_FORMAT = 1
# For each process, where joblib tells only of all of them together that they are done.
_JOBS_AT_ONCE = 8


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

    Examples
    --------
    >>> import pandas as pd
    >>> from kbert import BertClassifier, predict_table
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
    >>> pd.DataFrame({"text": texts}).to_csv("reviews.csv", index=False)
    >>> written = predict_table(classifier, "reviews.csv", "predicted", rows_per_part=10)
    >>> written.rows, written.parts
    (40, 4)
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
        (``joblib.parallel_config(backend="dask")``; those of Ray and Spark need ``n_jobs=-1`` or a number there too).
        None is 1 outside of such a context.
    verbose : int, default=0
        1 shows a bar with rows, rows a second and the time left, of CSV, TSV and JSON lines by the bytes read so far.

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
    TypeError
        If ``source`` is no path, or ``columns`` or ``keep`` is no name and no list.
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
    >>> import pandas as pd
    >>> from kbert import BertClassifier, predict_table
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
    >>> classifier.save("reviews-model")
    >>> reviews = pd.DataFrame({"id": range(40), "review": texts})
    >>> reviews.to_csv("reviews.csv.gz", index=False)
    >>> predict_table("reviews-model", "*.gz", "out.parquet", columns="review", keep="id")
    Written(rows=40, parts=1, made_before=0)
    >>> list(pd.read_parquet("out.parquet"))
    ['id', 'prediction', 'probability']
    """
    require_pyarrow()
    rows_per_part = whole_number(rows_per_part, "rows_per_part")
    if n_jobs is not None and (not _is_whole(n_jobs) or n_jobs == 0):
        raise ValueError(
            f"n_jobs (--jobs on the command line) must be a number of processes, or -1 for one a core, got {n_jobs!r}."
        )
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source must be a file, a folder or a pattern, not {type(source).__name__}. For rows in memory call "
            "predict, predict_proba or transform of the estimator."
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
        _names("columns", columns),
        _names("keep", keep),
        bool(probabilities),
    )
    settings = _settings(plan, files, root_of(source), rows_per_part)
    heads = {file: head_of(file) for file in files}
    _check_columns(plan, estimator, heads, target if is_file else None)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file of no known format. Known endings are .{', .'.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    bar = tqdm(unit="row", desc="predict", dynamic_ncols=True, disable=not verbose)
    total = _Total(bar, heads)
    parts: dict[str, int] = {}
    unreadable, fault = list[Exception](), list[Exception]()

    def to_do() -> Iterator[_Part]:
        """The parts that are not there yet.

        joblib may take them in another thread, where nobody would see an error: it is kept for the end.
        """
        numbers = {name: number for number, name in enumerate(output.files)}
        for file, number in zip(files, map(numbers.__getitem__, settings["files"]), strict=True):
            try:
                needed = _needed(plan, estimator, heads[file])
                lists: frozenset[str] | None = None
                faults: dict[str, str] = {}
                for i, table in enumerate(total.parts_of(file, rows_per_part, needed, faults)):
                    if faults:
                        require_readable(faults, _used(plan, estimator, table.column_names))
                    name, digest = part_name(number, i, plan.written_as), digest_of(table)
                    if lists is None:
                        lists = columns_of_lists(estimator, table)
                    if output.has(name, digest):
                        parts[name] = table.num_rows
                        bar.update(table.num_rows)
                    else:
                        yield _Part(name, str(file), i * rows_per_part, table, digest, lists)
            except ValueError as error:
                unreadable.append(error)
            except OSError as error:
                fault.append(error)
                return
        total.end()

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
            if not output.done:  # else it holds the predictions of a table that had rows
                shutil.rmtree(folder)
            raise ValueError(f"There are no rows in {shown(str(source))}: there is nothing to predict.")
        if not is_file:
            output.finish(parts)
        else:
            output.join(sorted(parts), target, written_as)
    return Written(sum(parts.values()), len(parts), len(output.done.keys() & parts.keys()))


# The usual line of a bar, whose total is an estimate.
_ABOUT = "{l_bar}{bar}| {n_fmt}/~{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class _Total:
    """How many rows there are in all, for the bar.

    Parquet says it. Of other files the bytes that are still to be read, packed as they are, are taken to hold as many
    rows each as those that were read. The bar shows such an estimate as "~60".
    """

    def __init__(self, bar: Any, heads: dict[Path, Head]):
        self.bar = bar
        self.known = sum(head.n_rows or 0 for head in heads.values())
        self.sizes = {file: file.stat().st_size for file in heads if format_of(file) != "parquet"}
        self.rows = self.n_bytes = 0  # read so far of files of other formats
        self.bar.total = None if self.sizes else self.known

    def parts_of(self, file: Path, n_rows: int, columns: list[str] | None, faults: dict[str, str]) -> Iterator[Any]:
        """The rows of a file as `read_in_parts` has them. With each of its tables, the total is estimated anew."""
        before = self.n_bytes

        def tell(n_bytes: int) -> None:
            self.n_bytes = before + n_bytes

        try:
            for table in read_in_parts(file, n_rows, tell, columns, faults):
                if file in self.sizes:
                    self.rows += table.num_rows
                    self._show(round(self.rows * sum(self.sizes.values()) / self.n_bytes), _ABOUT)
                yield table
        finally:  # of a file that cannot be read, the rest is none to wait for
            self.n_bytes = before + self.sizes.get(file, 0)

    def end(self) -> None:
        """Show how many rows there were."""
        self._show(self.rows, None)

    def _show(self, rows: int, bar_format: str | None) -> None:
        self.bar.total, self.bar.bar_format = self.known + rows, bar_format
        self.bar.refresh()


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


def _names(parameter: str, given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if not isinstance(given, Iterable) or isinstance(given, bytes) or getattr(given, "ndim", 1) != 1:
        raise TypeError(f"{parameter} must be the name of a column or a list of names, got {given!r}.")
    return tuple(map(_plain, (given,) if isinstance(given, str) else given))


def _plain(name: Any) -> Any:
    """A name as Python's own: an array gives NumPy's strings."""
    return str(name) if isinstance(name, np.str_) else name


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _load_silent(model: str | os.PathLike[str] | bytes) -> BertEstimator:
    """A saved estimator, or one of a pickle, which shows no bars of its own, whatever it was saved with."""
    found: BertEstimator = pickle.loads(model) if isinstance(model, bytes) else load(model)
    return found.set_params(verbose=0)


def _input_files(source: str | os.PathLike[str], target: Path) -> list[Path]:
    """The files of the input. Of a folder, what an earlier call wrote into it is none of them."""
    found = find_tables(source)
    place, folder = _place(target), target.resolve()
    if Path(source).expanduser().is_dir():
        found = [file for file in found if _place(file) != place and folder not in _place(file).parents]
    if target.is_file() and any(target.samefile(file) for file in found):
        raise ValueError(f"{target} is the input, and would be replaced. Give another output.")
    if target.is_dir() and any(folder == _place(file).parent for file in found):
        raise ValueError(f"{target} holds the input. Give another output.")
    return found


def _place(file: Path) -> Path:
    """A file's own name in the folder that it is in, to which links may lead."""
    return file.parent.resolve() / file.name


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
    """Find out now, and not hours later, that a file lacks a column, or has one of another type or of the output.

    Parameters
    ----------
    plan : _Plan
    estimator : BertEstimator
    heads : dict
        Of each file of the input. Of one without a schema, the names of its first row are compared with the output's.
    one_file : Path or None
        The output, if it is one file, in which each column has one type.
    """
    import pyarrow as pa

    kept = []
    first: dict[str, tuple[Path, Any]] = {}
    for file, head in heads.items():
        if head.schema is None and head.first is not None:
            both = set[str]()
            with suppress(ValueError):  # a column that is read may come late
                both = _in_both(plan, estimator, head.first.column_names, head)
            _refuse_both(file, both)
        names = [] if head.schema is None else head.schema.names
        if not names or head.n_rows == 0 or len(set(names)) < len(names):
            continue
        try:
            read = columns_read(estimator, names, plan.columns)
            kept.append(pa.schema([head.schema.field(name) for name in _kept(plan.keep, names)]))
        except ValueError as error:
            raise ValueError(f"{file}: {error} {other_separator(file)}".rstrip()) from None
        _refuse_both(file, _in_both(plan, estimator, names, head))
        for name in read if head.n_rows is not None else ():  # in CSV all are texts, and may be lists
            kind = head.schema.field(name).type
            if pa.types.is_null(kind):
                continue
            other, known = first.setdefault(name, (file, kind))
            if kind_of_values(kind) != kind_of_values(known):
                raise TypeError(f"{file}: the column {name!r} is of type {kind}, and in {other} of type {known}.")
    if one_file is not None and kept:
        one_schema(kept, one_file)


def _in_both(plan: _Plan, estimator: BertEstimator, names: list[str], head: Head) -> set[str]:
    """The columns of a file that are kept, and have the name of one of the predictions."""
    read = columns_read(estimator, names, plan.columns)
    known = head.schema if head.first is None else head.first.schema
    of_lists = any(kind_of_values(known.field(name).type) == "lists" for name in read)
    if head.first is not None and not columns_of_lists(estimator, head.first).isdisjoint(read):
        of_lists = True
    kept = names if plan.keep is None else plan.keep
    return set(kept).intersection(names, predicted_names(estimator, of_lists, plan.probabilities))


def _needed(plan: _Plan, estimator: BertEstimator, head: Head) -> list[str] | None:
    """The columns of a Parquet file that are read or kept. None is all, as of other formats."""
    names = head.schema.names if head.n_rows else []
    if plan.keep is None or len(set(names)) < max(1, len(names)):
        return None
    used = _used(plan, estimator, names)
    return [name for name in names if name in used]


def _used(plan: _Plan, estimator: BertEstimator, names: Sequence[str]) -> set[str]:
    """The columns that are read or kept."""
    return {*columns_read(estimator, names, plan.columns), *(names if plan.keep is None else plan.keep)}


def _refuse_both(file: Path | str, names: set[str]) -> None:
    if names:
        raise ValueError(
            f"{file} has a column {min(names)!r}, as the predictions have. Name the columns to keep without it: keep "
            "(--keep on the command line)."
        )


def _settings(plan: _Plan, files: list[Path], root: Path, rows_per_part: int) -> dict[str, Any]:
    """What all parts of an output have in common. The files keep their names where others are removed later."""
    settings = {
        "format": _FORMAT, "model": plan.model, "rows_per_part": rows_per_part,
        "files": [str(file.relative_to(root)) for file in files], "written_as": plan.written_as,
        "columns": plan.columns, "keep": plan.keep, "probabilities": plan.probabilities,
    }  # fmt: skip
    return json.loads(json.dumps(settings))


def _engine(estimator: BertEstimator) -> str:
    """What computes an estimator's predictions: a backend of Keras, or the runtime of an exported model."""
    model = estimator.model_
    return model.runtime if isinstance(model, ExportedModel) else backend_name()


def _digest_of_model(estimator: BertEstimator) -> str:
    """A name for a fitted estimator, which changes with all that its predictions depend on."""
    estimator._check_fitted()
    parameters = {name: encode_value(value) for name, value in estimator.get_params(deep=False).items()}
    for name in ("verbose", "random_state", "checkpoint", "distribution", "weights"):
        parameters.pop(name, None)
    model = estimator.model_
    facts = [type(estimator).__name__, _engine(estimator), parameters, estimator._learned_to_json()]
    found = hashlib.blake2b(json.dumps(facts, default=str, sort_keys=True).encode(), digest_size=16)
    if isinstance(model, ExportedModel):
        for path in model.files():
            found.update(path.read_bytes())
    else:
        from kbert.model.base import to_numpy

        for variable in model.weights:
            found.update(np.ascontiguousarray(to_numpy(variable.value)).tobytes())
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
    sent = _sent(model, stack)
    jobs = (joblib.delayed(_make_in_process)(plan, sent, part) for part in parts)
    backend, _ = joblib.parallel.get_active_backend()
    if backend.supports_return_generator:
        yield from joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")(jobs)
        return
    # Those of Ray and Spark tell only when all jobs are done. So they get some at a time, and their processes stay.
    n_at_once = _JOBS_AT_ONCE * joblib.effective_n_jobs(n_jobs)
    with joblib.Parallel(n_jobs=n_jobs, pre_dispatch="2*n_jobs") as parallel:
        while made := parallel(islice(jobs, n_at_once)):
            yield from made


def _sent(model: Any, stack: ExitStack) -> Any:
    """The model for other processes: a folder, the name of one on the hub, or the pickle of an exported one."""
    if isinstance(model, BertEstimator):
        if isinstance(model.model_, ExportedModel):
            return pickle.dumps(model)  # it holds the name of the folder, and no weights
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbert-"))) / "model"
        model.save(folder)
        return str(folder)
    path = Path(model).expanduser()
    return str(path.absolute()) if path.exists() else model


def _make_in_process(plan: _Plan, model: Any, part: _Part) -> _Made:
    return _make(plan, _loaded(model, plan.model), part)


@lru_cache(maxsize=1)
def _loaded(model: Any, digest: str) -> BertEstimator:
    """A saved estimator: a process loads it once, and anew where the folder has another one since."""
    found = _load_silent(model)
    if _digest_of_model(found) != digest:
        engine, folder = _engine(found), found.model_.folder if isinstance(found.model_, ExportedModel) else model
        raise ValueError(
            f"{folder} holds another model in this process than where predict_table was called, or it is run by "
            f"another library ({engine}). Let all have the same files, and the same KERAS_BACKEND or runtime."
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
            raise kind(f"{part.source}{_where(part, str(error))}") from error
    _refuse_both(part.source, set(kept.column_names) & set(found))
    for name, values in found.items():
        kept = kept.append_column(name, values)
    n_bytes = write_part(plan.folder / part.name, kept, plan.written_as)
    messages: list[tuple[type[Warning], str]] = [
        (warning.category, str(warning.message)) for warning in told if issubclass(warning.category, UserWarning)
    ]
    return _Made(part.name, part.table.num_rows, n_bytes, part.digest, messages)


# A row as errors of an estimator name it: by its place in the part, and by its index where that is another number.
_ROW = re.compile(r"\brow (\d+)(?: \(index (\d+)\))?")


def _where(part: _Part, message: str) -> str:
    """An error about a part, in which rows have their numbers in the file, from 0."""
    if _ROW.search(message):
        return ": " + _ROW.sub(lambda row: f"row {row[2] or row[1]}", message).removeprefix("X: ")
    return f", rows {part.first_row} to {part.first_row + part.table.num_rows - 1}: {message}"


def _kept(keep: tuple[str, ...] | None, names: list[str]) -> list[str]:
    if keep is None:
        return names
    if missing := [name for name in keep if name not in names]:
        raise ValueError(f"keep names {missing[0]!r}, and the table has {printable(', '.join(names))}.")
    return list(dict.fromkeys(keep))
