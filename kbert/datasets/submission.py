"""Predictions for GLUE's test parts, in the files that gluebenchmark.com takes."""

from pathlib import Path
from typing import Any

import numpy as np

from kbert.datasets.glue import glue_part, glue_task
from kbert.errors import DatasetWarning
from kbert.warn import warn_user


def write_glue_submission(task: str, predictions: Any, folder: str | Path, part: str = "test") -> Path:
    """Write the predictions for a test part in GLUE's official format.

    The file has the header "index<tab>prediction" and a line for each row, numbered from 0. A submission is a zip of
    AX.tsv, CoLA.tsv, MNLI-m.tsv, MNLI-mm.tsv, MRPC.tsv, QNLI.tsv, QQP.tsv, RTE.tsv, SST-2.tsv, STS-B.tsv and WNLI.tsv.

    Parameters
    ----------
    task : str
        A task of ``read_glue``.
    predictions : array-like of shape (n_rows,)
        In the order of the file: labels as ``read_glue`` gives them, or values with the same text (the int 1 for "1").
        For STS-B numbers. They are clipped to 0 to 5, as in GLUE's baseline code, and written with three decimals.
    folder : str or Path
        Where to write. It is made if it does not exist, and a file of the same name is replaced.
    part : str
        "test"; for MNLI "test_matched" (or "test") or "test_mismatched".

    Returns
    -------
    Path
        The file, such as folder/MNLI-m.tsv.

    Raises
    ------
    ValueError
        If a prediction is none of the task's labels, or not finite; the message names the row.

    Warns
    -----
    DatasetWarning
        If the number of rows is not that of the official test part, because the site refuses such a file.

    Examples
    --------
    >>> from kbert.datasets import write_glue_submission
    >>> path = write_glue_submission("rte", ["entailment"] * 3000, "submission")
    >>> print(path.name, *path.read_text().splitlines()[:2], sep="\\n")
    RTE.tsv
    index   prediction
    0       entailment
    """
    spec = glue_task(task)
    submissions = spec.submissions
    part = glue_part(task, part)
    if part not in submissions:
        raise ValueError(f"part={part!r}: GLUE takes predictions for {' and '.join(submissions)} of {task} only.")
    name, n_rows = submissions[part]
    values = np.asarray(predictions)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"predictions has shape {values.shape}; give one prediction for each row.")
    if spec.labels is None:
        lines = [f"{i}\t{_score(i, value):.3f}" for i, value in enumerate(values)]
    else:
        lines = [f"{i}\t{_label(i, value, spec.labels)}" for i, value in enumerate(values)]
    if len(lines) != n_rows:
        warn_user(
            f"{name} has {len(lines):,} rows; {part} of {task} has {n_rows:,}, and the site takes whole files only.",
            DatasetWarning,
        )
    path = Path(folder).expanduser() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["index\tprediction", *lines, ""]), encoding="utf-8", newline="\n")
    return path


def _label(row: int, value: Any, labels: tuple[str, ...]) -> str:
    label = str(value)
    if label not in labels:
        raise ValueError(f"predictions, row {row}: {label!r} is none of the labels {', '.join(labels)}.")
    return label


def _score(row: int, value: Any) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = np.nan
    if not np.isfinite(score):
        raise ValueError(f"predictions, row {row}: {value!r} is no number.")
    return min(max(score, 0.0), 5.0)
