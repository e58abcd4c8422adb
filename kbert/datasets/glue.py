"""GLUE's nine tasks, and its diagnostic set, from their TSV files."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kbert.datasets.files import (
    VARIABLE,
    data_root,
    find_file,
    folders_named,
    is_blank,
    not_found,
    read_lines,
)
from kbert.errors import DatasetNotFoundError, DatasetWarning
from kbert.values.printable import listed
from kbert.warn import warn_user

NLI = ("entailment", "neutral", "contradiction")
YES_NO = ("entailment", "not_entailment")
ZERO_ONE = ("0", "1")
THREE = ("train", "dev", "test")


@dataclass(frozen=True)
class GlueTask:
    """The layout of a task's files.

    Attributes
    ----------
    texts : tuple of str
        The text columns in the file.
    label, labels : str and tuple of str, or None
        The label column, and the labels that occur in it; None for STS-B, whose labels are scores from 0 to 5.
    submissions : dict
        For each test part, the file that gluebenchmark.com expects, and its number of rows.
    parts : tuple of str
        The names of the parts.
    index : str
        The column with the numbers of the rows, where there is one.
    folders : tuple of str
        Names of the task's folder besides the task's own, in lower case without hyphens.
    """

    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...] | None
    submissions: dict[str, tuple[str, int]]
    parts: tuple[str, ...] = THREE
    index: str = "index"
    folders: tuple[str, ...] = ()


PAIR = ("sentence1", "sentence2")
GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(("sentence",), "label", ZERO_ONE, {"test": ("CoLA.tsv", 1063)}),
    "sst2": GlueTask(("sentence",), "label", ZERO_ONE, {"test": ("SST-2.tsv", 1821)}, folders=("sst",)),
    "mrpc": GlueTask(("#1 String", "#2 String"), "Quality", ZERO_ONE, {"test": ("MRPC.tsv", 1725)}),
    "stsb": GlueTask(PAIR, "score", None, {"test": ("STS-B.tsv", 1379)}, folders=("sts",)),
    "qqp": GlueTask(("question1", "question2"), "is_duplicate", ZERO_ONE, {"test": ("QQP.tsv", 390965)}, index="id"),
    "mnli": GlueTask(
        PAIR,
        "gold_label",
        NLI,
        {"test_matched": ("MNLI-m.tsv", 9796), "test_mismatched": ("MNLI-mm.tsv", 9847)},
        ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"),
    ),
    "qnli": GlueTask(("question", "sentence"), "label", YES_NO, {"test": ("QNLI.tsv", 5463)}, folders=("qnliv2",)),
    "rte": GlueTask(PAIR, "label", YES_NO, {"test": ("RTE.tsv", 3000)}),
    "wnli": GlueTask(PAIR, "label", ZERO_ONE, {"test": ("WNLI.tsv", 146)}),
    "ax": GlueTask(PAIR, "label", NLI, {"test": ("AX.tsv", 1104)}, ("test",), folders=("diagnostic", "mnli")),
}
_COLA_COLUMNS = ["source", "label", "original_mark", "sentence"]
# The values in the label column where labels are withheld.
_WITHHELD = ("", "-1")


def read_glue(task: str, part: str, folder: str | Path | None = None) -> pd.DataFrame:
    """Read one part of a GLUE task from its TSV file.

    Both layouts are read: GLUE's own, with folders such as "SST-2", and one with a folder for each task's name. Quotes
    are ordinary characters, as in all of GLUE; blank lines are passed over.

    Parameters
    ----------
    task : str
        "cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", or "ax", GLUE's diagnostic set.
    part : str
        "train", "dev" or "test". MNLI: "train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched";
        "dev" and "test" are the matched ones. "ax" has "test" alone.
    folder : str or Path, optional
        The folder that holds the tasks' folders, also within "glue" or "glue_data", or the task's own, if it is named
        so; by default that of the environment variable KBERT_DATA.

    Returns
    -------
    DataFrame
        Columns ``text``, or ``text_a`` and ``text_b`` in the order of the paper's sentences A and B; ``label``, a str
        as in the file ("0", "entailment"; a float from 0 to 5 for STS-B), absent where the part has no labels; and
        ``index``, the row's number, where the file has one (``id`` in QQP).

    Raises
    ------
    DatasetNotFoundError
        If there is no such file; the message lists where it was looked for.
    ValueError
        If a line has another number of tabs than the header, or a label is none of the task's; the message names file
        and line.

    Warns
    -----
    DatasetWarning
        If lines were left out: QQP was released with rows that are broken in two, and GLUE's own code drops them too.
        Also if the file holds only some of the rows ("train_20000_partial.tsv").

    Notes
    -----
    Two irregularities of the release are read too. CoLA's train and dev have no header. MRPC consists of
    msr_paraphrase_train.txt and msr_paraphrase_test.txt, and GLUE's dev part is the rows of the former whose ids are
    listed in dev_ids.tsv; these files are read where train.tsv, dev.tsv or test.tsv is missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from kbert.datasets import read_glue
    >>> Path("glue/rte").mkdir(parents=True)
    >>> columns = ["sentence1", "sentence2", "label"]
    >>> rows = pd.DataFrame([("It rains.", "It is wet.", "entailment")], columns=columns)
    >>> rows.to_csv("glue/rte/train.tsv", sep="\\t", index_label="index")
    >>> read_glue("rte", "train", "glue")
          text_a      text_b       label  index
    0  It rains.  It is wet.  entailment      0
    """
    spec = glue_task(task)
    part = glue_part(task, part)
    root = data_root(folder)
    if root is None:
        raise DatasetNotFoundError(
            f"Where is GLUE? Give folder=..., or set the environment variable {VARIABLE} to the folder that holds it."
        )
    names = (task, *spec.folders)
    folders = folders_named(root, names)
    stems: tuple[str, ...] = ("diagnostic", "AX", "test") if task == "ax" else (part,)
    path = find_file(folders, stems, (".tsv",))
    if path is not None:
        header, rows = _read_tsv(path, task)
        return _frame(spec, path, header, rows)
    if task == "mrpc":
        original = _read_microsoft(spec, part, folders)
        if original is not None:
            return original
        stems = (part, f"msr_paraphrase_{'test' if part == 'test' else 'train'}.txt")
    files = [stem if stem.endswith(".txt") else f"{stem}.tsv" for stem in stems]
    raise DatasetNotFoundError(not_found(f"The {part} part of {task}", root, folders, names, files))


def glue_task(task: str) -> GlueTask:
    """Return the task of that name, or raise an error that lists the names."""
    if task not in GLUE:
        raise ValueError(f"task={task!r} is no task of GLUE. The tasks are {', '.join(GLUE)}.")
    return GLUE[task]


def glue_part(task: str, part: str) -> str:
    """Return the full name of a part, or raise an error that lists the names."""
    parts = GLUE[task].parts
    full = f"{part}_matched" if task == "mnli" and part in ("dev", "test") else part
    if full not in parts:
        raise ValueError(f"part={part!r} is no part of {task}. Its parts are {', '.join(parts)}.")
    return full


Row = tuple[int, list[str]]


def _read_tsv(path: Path, task: str) -> tuple[list[str], list[Row]]:
    """Return the header, and the rows with their line numbers."""
    rows = [(n, line.split("\t")) for n, line in enumerate(read_lines(path), 1) if not is_blank(line)]
    if not rows:
        raise ValueError(f"{path} is empty. Download it again.")
    first = rows[0][1]
    if task == "cola" and len(first) == len(_COLA_COLUMNS) and first[_COLA_COLUMNS.index("label")] in ZERO_ONE:
        header = _COLA_COLUMNS
    else:
        header = rows.pop(0)[1]
    broken = [n for n, fields in rows if len(fields) != len(header)]
    if broken and task != "qqp":
        n, fields = next(row for row in rows if row[0] == broken[0])
        raise ValueError(
            f"{path}, line {n}: {len(fields)} columns, where the header has {len(header)}. Remove the stray tab or "
            "line break, or download the file again."
        )
    if broken:
        warn_user(
            f"{path}: {len(broken)} of {len(rows)} rows do not have {len(header)} columns and are left out (lines "
            f"{listed(broken)}). QQP was released with such rows.",
            DatasetWarning,
        )
        rows = [row for row in rows if len(row[1]) == len(header)]
    return header, rows


def _frame(spec: GlueTask, path: Path, header: list[str], rows: list[Row]) -> pd.DataFrame:
    """Make a table with kbert's names of the columns, which are the same for all tasks."""
    missing = [name for name in spec.texts if name not in header]
    if missing:
        raise ValueError(
            f"{path} has no column {missing[0]!r}; its first line is {header!r:.1000}. Is it the file of another task, "
            "or has it lost its header?"
        )
    columns: dict[str, list[Any]] = {}
    for name, text in zip(text_names(len(spec.texts)), spec.texts, strict=True):
        column = header.index(text)
        columns[name] = [fields[column] for _, fields in rows]
    if spec.label in header:
        column = header.index(spec.label)
        if not rows or any(fields[column] not in _WITHHELD for _, fields in rows):
            columns["label"] = [_label(spec, path, line, fields[column]) for line, fields in rows]
    if spec.index in header:
        column = header.index(spec.index)
        index = [fields[column] for _, fields in rows]
        columns["index"] = [int(value) for value in index] if all(value.isdecimal() for value in index) else index
    return pd.DataFrame(columns)


def text_names(n_texts: int) -> tuple[str, ...]:
    """Return kbert's names of the text columns."""
    return ("text",) if n_texts == 1 else ("text_a", "text_b")


def _label(spec: GlueTask, path: Path, line: int, value: str) -> str | float:
    if spec.labels is not None:
        if value not in spec.labels:
            raise ValueError(f"{path}, line {line}: label {value!r:.1000} is none of {', '.join(spec.labels)}.")
        return value
    try:
        score = float(value)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"{path}, line {line}: {spec.label} {value!r:.1000} is no number.")
    if not 0 <= score <= 5:
        raise ValueError(
            f"{path}, line {line}: {spec.label} {value!r:.1000} is not from 0 to 5. Correct it, or remove the row."
        )
    return score


def _read_microsoft(spec: GlueTask, part: str, folders: list[Path]) -> pd.DataFrame | None:
    """Read a part of MRPC from the files that Microsoft released; None if they are not there."""
    stem = "msr_paraphrase_test" if part == "test" else "msr_paraphrase_train"
    path = find_file(folders, (stem,), (".txt",))
    if path is None:
        return None
    header, rows = _read_tsv(path, "mrpc")
    if part != "test":
        ids = find_file([path.parent], ("dev_ids", "mrpc_dev_ids"), (".tsv",))
        if ids is None:
            raise DatasetNotFoundError(
                f"{path} is there, but not dev_ids.tsv beside it, which says which of its rows are GLUE's dev part. "
                "Download https://dl.fbaipublicfiles.com/glue/data/mrpc_dev_ids.tsv into that folder."
            )
        dev = {tuple(line.split("\t")) for line in read_lines(ids) if not is_blank(line)}
        if not {"#1 ID", "#2 ID"} <= set(header):
            raise ValueError(f"{path} lacks the columns '#1 ID' and '#2 ID', by which GLUE's dev rows are found.")
        first, second = header.index("#1 ID"), header.index("#2 ID")
        rows = [row for row in rows if ((row[1][first], row[1][second]) in dev) == (part == "dev")]
    return _frame(spec, path, header, rows)
