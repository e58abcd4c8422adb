"""What a call of `predict_table` is to do, found out and checked before the first part is made."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.estimators.base import BertEstimator
from kbert.estimators.kbert_json import encode_value
from kbert.tables.files import FORMATS, Head, find_tables, format_of, other_separator
from kbert.tables.outputs import columns_of_lists, columns_read, kind_of_values, predicted_names
from kbert.tables.parts import is_part_folder, one_schema
from kbert.training.backends import backend_name
from kbert.values.printable import printable
from kbert.weights.runtimes import ExportedModel

# Of the settings of an output.
_FORMAT = 2


class Plan(NamedTuple):
    """How all parts are made.

    Attributes
    ----------
    folder : Path
        Where they are written.
    model : str
        The digest of the estimator (`digest_of_model`).
    written_as : str
        Their format.
    columns, keep : tuple of str, or None
        As the user names them; None is the default.
    probabilities : bool
    """

    folder: Path
    model: str
    written_as: str
    columns: tuple[str, ...] | None
    keep: tuple[str, ...] | None
    probabilities: bool


def names_of(parameter: str, given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns that a parameter names.

    Raises
    ------
    TypeError
        If it is no name and no list.
    """
    if given is None:
        return None
    each = [given] if isinstance(given, str) else given
    is_list = isinstance(each, Iterable) and not isinstance(each, bytes) and getattr(each, "ndim", 1) == 1
    names = tuple(map(_plain, each)) if is_list else ()
    if not is_list or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{parameter} must be the name of a column or a list of names, got {given!r}.")
    return names


def _plain(name: Any) -> Any:
    """A name as Python's own: an array gives NumPy's strings."""
    return str(name) if isinstance(name, np.str_) else name


def input_files(source: str | os.PathLike[str], target: Path) -> list[Path]:
    """The files of the input. Of a folder or a pattern, what an earlier call wrote is none of them.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        If the output would replace one of them.
    """
    found = find_tables(source)
    place, folder = _place(target), target.resolve()
    if Path(source).expanduser().is_dir():
        found = [file for file in found if _place(file) != place and folder not in _place(file).parents]
    elif is_part_folder(folder):
        others = [file for file in found if folder not in _place(file).parents]
        found = others or found
    if target.is_file() and any(target.samefile(file) for file in found):
        which = "the input" if len(found) == 1 else "a file of the input"
        raise ValueError(f"{target} is {which}, and would be replaced. Give another output.")
    if target.is_dir() and any(folder == _place(file).parent for file in found):
        raise ValueError(f"{target} holds the input. Give another output.")
    return found


def _place(file: Path) -> Path:
    """A file's own name in the folder that it is in, to which links may lead."""
    return file.parent.resolve() / file.name


def format_of_output(target: Path, asked: str | None) -> str:
    """The format that the user asks for, or the name of the output says.

    Raises
    ------
    ValueError
        If there is no such format, or the two differ.
    """
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


def check_columns(plan: Plan, estimator: BertEstimator, heads: dict[Path, Head], one_file: Path | None) -> None:
    """Find out now, and not hours later, that a file lacks a column, or has one of another type or of the output.

    Parameters
    ----------
    plan : Plan
    estimator : BertEstimator
    heads : dict
        Of each file of the input. Of one without a schema, the names of its first row are compared with the output's.
    one_file : Path or None
        The output, if it is one file, in which each column has one type.
    """
    import pyarrow as pa

    if plan.probabilities and predicted_names(estimator, False, True) == predicted_names(estimator, False, False):
        raise ValueError(
            f"{type(estimator).__name__} has no probabilities of labels or options. Leave probabilities "
            "(--probabilities on the command line) out."
        )
    kept = []
    first: dict[str, tuple[Path, Any]] = {}
    for file, head in heads.items():
        if head.schema is None and head.first is not None:
            both = set[str]()
            with suppress(ValueError):  # a column that is read may come late
                both = _in_both(plan, estimator, head.first.column_names, head)
            refuse_both(file, both)
        names = [] if head.schema is None else head.schema.names
        if not names or head.n_rows == 0 or len(set(names)) < len(names):
            continue
        try:
            read = columns_read(estimator, names, plan.columns)
            kept.append(pa.schema([head.schema.field(name) for name in kept_columns(plan.keep, names)]))
        except ValueError as error:
            raise ValueError(f"{file}: {error} {other_separator(file)}".rstrip()) from None
        refuse_both(file, _in_both(plan, estimator, names, head))
        for name in read if head.n_rows is not None else ():  # in CSV all are texts, and may be lists
            kind = head.schema.field(name).type
            if pa.types.is_null(kind):
                continue
            other, known = first.setdefault(name, (file, kind))
            if kind_of_values(kind) != kind_of_values(known):
                raise TypeError(f"{file}: the column {name!r} is of type {kind}, and in {other} of type {known}.")
    if one_file is not None and kept:
        one_schema(kept, one_file)


def _in_both(plan: Plan, estimator: BertEstimator, names: list[str], head: Head) -> set[str]:
    """The columns of a file that are kept, and have the name of one of the predictions."""
    read = columns_read(estimator, names, plan.columns)
    known = head.schema if head.first is None else head.first.schema
    of_lists = any(kind_of_values(known.field(name).type) == "lists" for name in read)
    if head.first is not None and not columns_of_lists(estimator, head.first).isdisjoint(read):
        of_lists = True
    kept = names if plan.keep is None else plan.keep
    return set(kept).intersection(names, predicted_names(estimator, of_lists, plan.probabilities))


def needed_columns(plan: Plan, estimator: BertEstimator, head: Head) -> list[str] | None:
    """The columns of a Parquet file that are read or kept. None is all, as of other formats."""
    names = head.schema.names if head.n_rows else []
    if plan.keep is None or len(set(names)) < max(1, len(names)):
        return None
    used = used_columns(plan, estimator, names)
    return [name for name in names if name in used]


def used_columns(plan: Plan, estimator: BertEstimator, names: Sequence[str]) -> set[str]:
    """The columns that are read or kept."""
    return {*columns_read(estimator, names, plan.columns), *(names if plan.keep is None else plan.keep)}


def refuse_both(file: Path | str, names: set[str]) -> None:
    """Raise if there are columns of a file that have the names of predictions."""
    if names:
        raise ValueError(
            f"{file} has a column {min(names)!r}, as the predictions have. Name the columns to keep without it: keep "
            "(--keep on the command line)."
        )


def settings_of(plan: Plan, files: list[Path], root: Path, rows_per_part: int) -> dict[str, Any]:
    """What all parts of an output have in common. The files keep their names where others are removed later."""
    settings = {
        "format": _FORMAT, "model": plan.model, "rows_per_part": rows_per_part,
        "files": [str(file.relative_to(root)) for file in files], "written_as": plan.written_as,
        "columns": plan.columns, "keep": plan.keep, "probabilities": plan.probabilities,
    }  # fmt: skip
    return json.loads(json.dumps(settings))


def kept_columns(keep: tuple[str, ...] | None, names: list[str]) -> list[str]:
    """The columns of a table that are written too.

    Raises
    ------
    ValueError
        If the table lacks one of them.
    """
    if keep is None:
        return names
    if missing := [name for name in keep if name not in names]:
        raise ValueError(f"keep names {missing[0]!r}, and the table has {printable(', '.join(names))}.")
    return list(dict.fromkeys(keep))


def engine_of(estimator: BertEstimator) -> str:
    """What computes an estimator's predictions: a backend of Keras, or the runtime of an exported model."""
    model = estimator.model_
    return model.runtime if isinstance(model, ExportedModel) else backend_name()


def digest_of_model(estimator: BertEstimator) -> str:
    """A name for a fitted estimator, which changes with all that its predictions depend on."""
    estimator._check_fitted()
    parameters = {name: encode_value(value) for name, value in estimator.get_params(deep=False).items()}
    for name in ("verbose", "random_state", "checkpoint", "distribution", "weights"):
        parameters.pop(name, None)
    model = estimator.model_
    facts = [type(estimator).__name__, engine_of(estimator), parameters, estimator._learned_to_json()]
    found = hashlib.blake2b(json.dumps(facts, default=str, sort_keys=True).encode(), digest_size=16)
    if isinstance(model, ExportedModel):
        for path in model.files():
            found.update(path.read_bytes())
    else:
        from kbert.model.base import to_numpy

        for variable in model.weights:
            found.update(np.ascontiguousarray(to_numpy(variable.value)).tobytes())
    return found.hexdigest()
