"""Commands about tables, for `kbert.cli`: ``fit``, ``evaluate`` and ``predict``. Keras is imported when they run."""

from __future__ import annotations

import ast
import json
import os
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbert.tables.files import FORMATS
from kbert.values.options import path, whole
from kbert.values.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from kbert.reports.scores import Scores

_TABLE = ".csv, .tsv or .jsonl, plain or packed (.gz, .bz2, .xz), or .parquet; a folder; a quoted pattern"
# What a table is about, and the name of the estimator.
_TASKS = {
    "classification": "BertClassifier",
    "regression": "BertRegressor",
    "tagging": "BertTagger",
    "answering": "BertQA",
    "choice": "BertMultipleChoice",
}


class FitCommand:
    """Fine-tune BERT on a table of texts and labels, and save the model.

    What the table is about follows from its columns: labels that are no whole numbers make it a regression; lists of
    labels beside lists of words, tagging; the columns question, context, answer and answer_start, question answering; a
    column options, multiple choice; anything else, a classification. In CSV a list is JSON: ["one", "two"].
    """

    name = "fit"
    summary = "fine-tune BERT on a table"
    example = "kbert fit reviews.csv --text review --label stars --validation 0.1 --out reviews-model"
    required = ("train", "out")
    either: tuple[tuple[str, ...], ...] = ()
    if_interrupted = "With --checkpoint the same call goes on where it was."

    def add_options(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add("train", nargs="?", metavar="TRAIN", help=f"the table: {_TABLE}")
        _add_columns(parser)
        add(
            "--out",
            type=path,
            metavar="FOLDER",
            help="where the model is saved: a new folder, or one of a saved model",
        )
        add("--task", choices=("auto", *_TASKS), default="auto", help="default: auto, by the columns")
        text = "a table to score after each epoch, or the share of the rows that is kept for that, as 0.1"
        add("--validation", metavar="TABLE|SHARE", help=text)
        add("--metrics", type=path, metavar="FILE.json", help="write the scores of --validation there")
        add("--quiet", action="store_true", help="no bar, no lines but the scores")
        add = parser.add_argument_group("training").add_argument
        add("--size", default="base", metavar="NAME", help="of the model (default: base)")
        text = "folder or name of weights, or None for random ones (default: those of the size)"
        add("--weights", metavar="NAME", help=text)
        for name, text in _NUMBERS.items():
            add(f"--{name}", type=_value, metavar="N", help=text)
        add("--few-labels", action="store_true", help="for 8 or 16 rows a class")
        add("--seed", type=int, default=0, metavar="N", help="of the head, the order of rows, dropout (default: 0)")
        add("--checkpoint", type=path, metavar="FOLDER", help="where a fit that is killed goes on")
        text = "any other parameter of the estimator, as class_weight=balanced"
        add("--set", nargs="*", default=[], metavar="NAME=VALUE", help=text)

    def run(self, options: Namespace) -> None:
        """Read, fit, save, and print the scores."""
        from kbert import estimators
        from kbert.tables.reading import columns_of_task, read_columns, read_table, require_columns, task_of_columns

        if options.metrics is not None and options.validation is None:
            raise ValueError("--metrics writes the scores of --validation. Give that too, or use kbert evaluate.")
        frame = read_table(options.train)
        text, label = options.text or [], options.label or []
        require_columns(frame, [*text, *label], options.train)
        with_names = label or (["label"] if "label" in frame.columns else [])
        task = task_of_columns(frame, text, with_names) if options.task == "auto" else options.task
        X, y = columns_of_task(task, frame, text, label)
        read_columns(frame, task, X, y, f"{options.train} (as {task})")
        kind = getattr(estimators, _TASKS[task])
        parameters = _parameters(options)
        estimator = kind(parameters.pop("size"), **parameters)
        _require_writable(options, options.out)
        parts = _parts(frame, X, y, task, options)
        if not options.quiet:
            print(f"{task}: {len(parts[0][0])} rows of {', '.join(X)} -> {', '.join(y)}", flush=True)
        estimator.fit(*parts[0], **({"eval_set": parts[1]} if len(parts) > 1 else {}))
        _save(estimator, options)
        print(f"the model is in {printable(str(options.out))}")
        if len(parts) > 1:
            _tell(estimator, *parts[1], options)


class EvaluateCommand:
    """Score a saved model on a table with labels: the scores of its task, by label, and what was taken for what."""

    name = "evaluate"
    summary = "score a saved model on a table"
    example = "kbert evaluate reviews-model test.csv --text review --label stars"
    required = ("model", "table")
    either: tuple[tuple[str, ...], ...] = ()
    if_interrupted = "Nothing was written."

    def add_options(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add("model", nargs="?", metavar="MODEL", help="folder of a saved model, or its name on the hub")
        add("table", nargs="?", metavar="TABLE", help=_TABLE)
        _add_columns(parser)
        add("--metrics", type=path, metavar="FILE.json", help="write the scores there")
        add("--quiet", action="store_true", help="no bar, and of the scores the first line only")

    def run(self, options: Namespace) -> None:
        """Load, predict, and print the scores."""
        from kbert.estimators import load
        from kbert.tables.outputs import known_columns
        from kbert.tables.reading import X_of_fit, columns_of_task, read_columns, read_table, y_of

        _require_writable(options)
        estimator, frame = load(options.model), read_table(options.table)
        estimator.set_params(verbose=int(not options.quiet))
        tasks = {name: task for task, name in _TASKS.items()}
        if type(estimator).__name__ not in tasks:
            raise ValueError(
                f"{options.model} holds a {type(estimator).__name__}, which has no labels to compare with."
            )
        task = tasks[type(estimator).__name__]
        text = options.text or known_columns(estimator, list(frame.columns))
        X, y = columns_of_task(task, frame, text, options.label or [])
        read_columns(frame, task, X, y, options.table)
        truth = y_of(frame, y, task, getattr(estimator, "classes_", None))
        _tell(estimator, X_of_fit(estimator, frame, X), truth, options)


class PredictCommand:
    """Predict each row of a table, of any size, and write the predictions beside its columns.

    A call that was killed goes on where it stopped when it is made again. --jobs spreads the work over processes.
    """

    name = "predict"
    summary = "predict the rows of a table"
    example = "kbert predict reviews-model 'reviews/*.csv.gz' --text review --keep id --out labels.parquet"
    required = ("model", "table", "out")
    either = (("keep", "predictions_only"),)
    if_interrupted = "The same call goes on where it stopped."

    def add_options(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add("model", nargs="?", metavar="MODEL", help="folder of a saved model, or its name on the hub")
        add("table", nargs="?", metavar="TABLE", help=_TABLE)
        text = "a file (.parquet, .csv, .tsv, .jsonl), or a folder of parts, whose name has no ending"
        add("--out", type=path, metavar="OUT", help=text)
        text = "the columns that the model reads (default: those of its fit)"
        add("--text", nargs="*", metavar="COLUMN", help=text)
        add("--keep", nargs="*", metavar="COLUMN", help="the columns that are written too (default: all)")
        add("--predictions-only", action="store_true", help="write no column of the table")
        text = "a column for each label; of choices, the probabilities of all options"
        add("--probabilities", action="store_true", help=text)
        add("--format", choices=FORMATS, help="of the files in a folder (default: parquet)")
        add("--rows-per-part", type=whole(1), default=10_000, metavar="N", help="default: 10000")
        add("--jobs", type=int, metavar="N", help="processes (default: 1)")
        add("--quiet", action="store_true", help="no bar")

    def run(self, options: Namespace) -> None:
        """Predict, and say what was written."""
        from kbert.tables import predict_table

        if str(options.out) == "-":
            raise ValueError("--out: predictions are written to a file or a folder, not to standard output. Name one.")
        written = predict_table(
            options.model,
            options.table,
            options.out,
            columns=options.text,
            keep=[] if options.predictions_only else options.keep,
            probabilities=options.probabilities,
            format=options.format,
            rows_per_part=options.rows_per_part,
            n_jobs=options.jobs,
            verbose=int(not options.quiet),
        )
        before = f", {written.made_before} of {written.parts} parts by an earlier call" if written.made_before else ""
        print(f"{written.rows} rows{before}; the predictions are in {printable(str(options.out))}")


COMMANDS = (FitCommand(), EvaluateCommand(), PredictCommand())

_NUMBERS = {
    "epochs": "default: by the number of rows",
    "batch-size": "default: by the number of rows",
    "learning-rate": "default: by the size and the task",
    "max-length": "most tokens of a text, or of a window of it (default: by the task)",
    "freeze": "layers that are not trained (default: 0)",
}


def _add_columns(parser: ArgumentParser) -> None:
    add = parser.add_argument
    text = "the column of the texts, or two of pairs (default: text; of questions and choices, theirs)"
    add("--text", nargs="*", metavar="COLUMN", help=text)
    add("--label", nargs="*", metavar="COLUMN", help="the column of the labels, or several (default: label)")


def _parameters(options: Namespace) -> dict[str, Any]:
    """The parameters of the estimator that the options give."""
    names = {name.replace("-", "_") for name in _NUMBERS}
    values = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    values |= {"size": options.size, "random_state": options.seed, "verbose": int(not options.quiet)}
    if options.weights is not None:
        values["weights"] = None if options.weights.lower() == "none" else options.weights
    if options.checkpoint is not None:
        values["checkpoint"] = options.checkpoint
    if options.few_labels:
        values["few_labels"] = True
    return values | dict(map(_parameter, options.set))


def _require_writable(options: Namespace, model: Path | None = None) -> None:
    """Find out now, and not after the training, that the metrics, or the folder of the model, cannot be written.

    Raises
    ------
    FileExistsError
        If the folder of the model holds something else.
    OSError
        If a file cannot be written.
    """
    from kbert.estimators.kbert_json import SAVED_ESTIMATOR
    from kbert.files.atomic_folder import check_replaceable

    if model is not None:
        check_replaceable(model, SAVED_ESTIMATOR)
        for name, kind in (("checkpoint", "folder"), ("metrics", "file")):
            given = getattr(options, name, None)
            if given is not None and given.resolve().is_relative_to(model.resolve()):
                raise ValueError(
                    f"--{name} {given} is in the folder of the model, {model}, which takes nothing else. Give a {kind} "
                    "beside it."
                )
    if options.metrics is not None and options.metrics.is_dir():
        raise IsADirectoryError(f"--metrics: {options.metrics} is a folder. Give the name of a file.")
    for target in (model, options.metrics):
        if target is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(target if target.exists() else target.parent, os.W_OK):
                raise PermissionError(13, "cannot be written", str(target))


def _parts(frame: pd.DataFrame, X: list[str], y: list[str], task: str, options: Namespace) -> list[tuple[Any, Any]]:
    """Rows and labels to train on, and after them those to score, if that was asked for.

    A share of the rows is one of each label, where there is one a row, and leaves at least one to train on.
    """
    from kbert.tables.reading import holds_lists, read_columns, read_table, y_of

    rows, labels = frame[X], y_of(frame, y, task)  # a single column too, so that its name is kept with the model
    one_label = task == "classification" and len(y) == 1 and not holds_lists(labels)
    if options.validation is None:
        return [(rows, labels)]
    try:
        share = float(options.validation)
    except ValueError:
        other = read_table(options.validation)
        read_columns(other, task, X, y, options.validation)
        known = labels.unique() if one_label else None
        return [(rows, labels), (other[X], y_of(other, y, task, known))]
    if not 0 < share < 1:
        raise ValueError(f"--validation must be a table, or a share over 0 and under 1, not {options.validation!r}.")
    groups = [some for _, some in labels.groupby(labels)] if one_label else [labels]
    held_out: list[Any] = []
    n_seen = 0
    for some in groups:
        n_seen += len(some)
        # What is rounded off the share of one label is added to that of the next.
        n = min(len(some) - 1, round(share * n_seen) - round(share * (n_seen - len(some))))
        held_out.extend(some.sample(n, random_state=options.seed).index)
    held_out.sort()
    if not held_out and len(frame) > 1 and all(len(some) == 1 for some in groups):
        raise ValueError(
            f"--validation: no row can be held out, since each label of {y[0]!r} has one row. Is it the column of the "
            "labels?"
        )
    if not held_out:
        raise ValueError(f"--validation: {share:g} of {len(frame)} rows are too few. Give a larger share, or a table.")
    return [(rows.drop(held_out), labels.drop(held_out)), (rows.loc[held_out], labels.loc[held_out])]


def _save(estimator: Any, options: Namespace) -> None:
    """Save a fitted estimator. Where that fails, the error says whether the fit was for nothing."""
    try:
        estimator.save(options.out)
    except OSError as error:
        if options.checkpoint is None:
            hint = "The fit is lost: with --checkpoint FOLDER it would be kept"
        else:
            hint = f"The fit is kept in {options.checkpoint}: the same call goes on from there, and saves it"
        reason = (error.strerror or str(error)).rstrip(".")
        raise OSError(error.errno, f"{reason}. {hint}", error.filename or str(options.out)) from error


def _tell(estimator: Any, X: Any, y: Any, options: Namespace) -> None:
    """Print the scores, and write them where that was asked for."""
    from kbert.files.json_files import write_json
    from kbert.reports.scores import scores_of

    scores: Scores = scores_of(estimator, X, y)
    print(", ".join(f"{name} {value:.3f}" for name, value in scores.values.items() if name != "rows"), end="")
    print(f" on {len(X)} rows")
    if scores.by_label is not None and not options.quiet:
        print(f"\n{_printable_table(scores.by_label.round(3))}")
    if scores.confusion is not None and not options.quiet:
        print(f"\ntrue label (rows) taken for (columns)\n{_printable_table(scores.confusion)}")
    # After the lines, which are there then if it cannot be written.
    if options.metrics is not None:
        options.metrics.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.metrics, scores.as_dict())


def _printable_table(table: pd.DataFrame) -> str:
    """A table as text, in which labels from files cannot steer the terminal."""
    shown = table.rename(index=lambda label: printable(str(label)), columns=lambda label: printable(str(label)))
    return str(shown.to_string())


# --- Readers of values

# A number as JSON does not have it: .5, 1. and +1e-3.
_NO_NUMBER_OF_JSON = re.compile(r"[+-]?(\d+\.\d*|\.\d+)(e[+-]?\d+)?|\+\d+(e[+-]?\d+)?", re.IGNORECASE)


def _value(text: str) -> Any:
    """A number, or the text: what it may be, the estimator says."""
    try:
        return json.loads(text)
    except ValueError:
        return float(text) if _NO_NUMBER_OF_JSON.fullmatch(text) else text


def _parameter(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise ValueError(f"--set takes NAME=VALUE, not {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
