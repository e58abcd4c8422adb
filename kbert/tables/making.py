"""Parts of an output, made in this process or, by joblib, in several."""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import joblib

from kbert.estimators.base import BertEstimator
from kbert.estimators.loading import load
from kbert.forks import LockOfProcess
from kbert.tables.outputs import as_X, columns_read, predicted_columns
from kbert.tables.parts import write_part
from kbert.tables.plan import Plan, digest_of_model, engine_of, kept_columns, refuse_both
from kbert.weights.runtimes import ExportedModel

# Python records warnings for a process as a whole, so one of its threads at a time.
_recording = LockOfProcess()

# For each process, where joblib tells only of all of them together that they are done.
_JOBS_AT_ONCE = 8


class Part(NamedTuple):
    """A part of the input, as a worker gets it: ``lists`` are the columns of JSON lists, by the table's first rows."""

    name: str
    source: str
    first_row: int
    table: Any
    digest: str
    lists: frozenset[str]


class Made(NamedTuple):
    """A part that was written, and what was warned of on the way."""

    name: str
    n_rows: int
    n_bytes: int
    digest: str
    messages: list[tuple[type[Warning], str]]


def make_all(
    plan: Plan, model: Any, estimator: BertEstimator, parts: Iterable[Part], n_jobs: int | None, stack: ExitStack
) -> Iterator[Made]:
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


def _make_in_process(plan: Plan, model: Any, part: Part) -> Made:
    return _make(plan, _loaded(model, plan.model), part)


@lru_cache(maxsize=1)
def _loaded(model: Any, digest: str) -> BertEstimator:
    """A saved estimator: a process loads it once, and anew where the folder has another one since."""
    found = load_silent(model)
    if digest_of_model(found) != digest:
        engine, folder = engine_of(found), found.model_.folder if isinstance(found.model_, ExportedModel) else model
        raise ValueError(
            f"{folder} holds another model in this process than where predict_table was called, or it is run by "
            f"another library ({engine}). Let all have the same files, and the same KERAS_BACKEND or runtime."
        )
    return found


def _make(plan: Plan, estimator: BertEstimator, part: Part) -> Made:
    """Predict a part, and write it."""
    names = part.table.column_names
    with _recording, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            read = columns_read(estimator, names, plan.columns)
            kept = part.table.select(kept_columns(plan.keep, names))
            X = as_X(estimator, part.table, read, part.lists, part.first_row)
            found = predicted_columns(estimator, X, plan.probabilities)
        except (ValueError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{part.source}{_where(part, str(error))}") from error
    refuse_both(part.source, set(kept.column_names) & set(found))
    for name, values in found.items():
        kept = kept.append_column(name, values)
    n_bytes = write_part(plan.folder / part.name, kept, plan.written_as)
    messages: list[tuple[type[Warning], str]] = [
        (warning.category, str(warning.message)) for warning in told if issubclass(warning.category, UserWarning)
    ]
    return Made(part.name, part.table.num_rows, n_bytes, part.digest, messages)


# A row as errors of an estimator name it: by its place in the part, and by its index where that is another number.
_ROW = re.compile(r"\brow (\d+)(?: \(index (\d+)\))?")


def _where(part: Part, message: str) -> str:
    """An error about a part, in which rows have their numbers in the file, from 0."""
    if _ROW.search(message):
        return ": " + _ROW.sub(lambda row: f"row {row[2] or row[1]}", message).removeprefix("X: ")
    return f", rows {part.first_row} to {part.first_row + part.table.num_rows - 1}: {message}"


def load_silent(model: str | os.PathLike[str] | bytes) -> BertEstimator:
    """A saved estimator, or one of a pickle, which shows no bars of its own, whatever it was saved with."""
    found: BertEstimator = pickle.loads(model) if isinstance(model, bytes) else load(model)
    return found.set_params(verbose=0)
