"""Predictions for tables of any size, written in parts, which a killed call has not to make again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from kbert.estimators.base import BertEstimator
from kbert.files.folder_lock import alone_in
from kbert.files.inputs import root_of
from kbert.tables.files import FORMATS, format_of, head_of, require_pyarrow, require_readable
from kbert.tables.making import Part, load_silent, make_all
from kbert.tables.outputs import columns_of_lists
from kbert.tables.parts import PartFolder, digest_of, part_name
from kbert.tables.plan import (
    Plan,
    check_columns,
    digest_of_model,
    format_of_output,
    input_files,
    names_of,
    needed_columns,
    settings_of,
    used_columns,
)
from kbert.tables.progress import RowTotal
from kbert.values.number_rules import is_whole, whole_number
from kbert.values.printable import shown
from kbert.warn import warn_user


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
        Whether a classifier gives a column for each label, ``probability_LABEL``, and `BertMultipleChoice` one of
        lists, ``probabilities``. The other estimators have no such columns.
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
        If ``source`` is no path, ``model`` no estimator and no path, or ``columns`` or ``keep`` no name and no list of
        names.
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
    if n_jobs is not None and (not is_whole(n_jobs) or n_jobs == 0):
        raise ValueError(
            f"n_jobs (--jobs on the command line) must be a number of processes, or -1 for one a core, got {n_jobs!r}."
        )
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source must be a file, a folder or a pattern, not {type(source).__name__}. For rows in memory call "
            "predict, predict_proba or transform of the estimator."
        )
    if not isinstance(model, BertEstimator | str | os.PathLike):
        raise TypeError(
            f"model must be a fitted estimator of kbert, or the folder or the name of a saved one, got {shown(model)}. "
            "Of a search give best_estimator_, of a pipeline its last step."
        )
    target = Path(out).expanduser().absolute()
    written_as = format_of_output(target, format)
    is_file = format_of(target) is not None
    if is_file and target.is_dir():
        raise FileExistsError(f"{target} is a folder. Give another name.")
    files = input_files(source, target)
    if is_file and target.is_symlink():
        target = target.resolve()  # which is written, and the link stays
    folder = target.with_name(f".{target.name}.parts") if is_file else target
    estimator = model if isinstance(model, BertEstimator) else load_silent(model)
    plan = Plan(
        folder,
        digest_of_model(estimator),
        "parquet" if is_file else written_as,
        names_of("columns", columns),
        names_of("keep", keep),
        bool(probabilities),
    )
    settings = settings_of(plan, files, root_of(source), rows_per_part)
    heads = {file: head_of(file) for file in files}
    check_columns(plan, estimator, heads, target if is_file else None)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file of no known format. Known endings are .{', .'.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    bar = tqdm(unit="row", desc="predict", dynamic_ncols=True, disable=not verbose)
    total = RowTotal(bar, heads)
    parts: dict[str, int] = {}
    unreadable, fault = list[Exception](), list[Exception]()

    def to_do() -> Iterator[Part]:
        """The parts that are not there yet.

        joblib may take them in another thread, where nobody would see an error: it is kept for the end.
        """
        numbers = {name: number for number, name in enumerate(output.files)}
        for file, number in zip(files, map(numbers.__getitem__, settings["files"]), strict=True):
            try:
                needed = needed_columns(plan, estimator, heads[file])
                lists: frozenset[str] | None = None
                faults: dict[str, str] = {}
                for i, table in enumerate(total.parts_of(file, rows_per_part, needed, faults)):
                    if faults:
                        require_readable(faults, used_columns(plan, estimator, table.column_names))
                    name, digest = part_name(number, i, plan.written_as), digest_of(table)
                    if lists is None:
                        lists = columns_of_lists(estimator, table)
                    if output.has(name, digest):
                        parts[name] = table.num_rows
                        bar.update(table.num_rows)
                    else:
                        yield Part(name, str(file), i * rows_per_part, table, digest, lists)
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
        for made in make_all(plan, model, estimator, to_do(), n_jobs, stack):
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
