"""Fine-tune BERT on GLUE's tasks, and set the scores beside the paper's.

    python examples/glue.py                                    # a small slice of three tasks, to see it run
    python examples/glue.py mrpc rte --seeds 0 1 2             # two tasks in full, three seeds
    python examples/glue.py mrpc --grid --submission mine      # the paper's grid; a file for gluebenchmark.com
    python examples/glue.py mrpc --defaults                    # not the paper's recipe, but kbert's defaults
    python examples/glue.py all --table                        # run nothing, only print the table

The environment variable KBERT_DATA names the folder that holds GLUE (docs/reference/datasets.md). Each finished run is
appended to a CSV and not run again, so a command that was stopped goes on where it was. The table is written beside
that file.
"""

import argparse
import datetime
import itertools
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from sklearn.model_selection import train_test_split

from kbert import datasets
from kbert.errors import DatasetNotFoundError


class Task(NamedTuple):
    """GLUE's scores, of which the first decides; the paper's on test for base and large; how many rows GLUE has."""

    metrics: tuple[str, ...]
    paper: dict[str, tuple[float, float]]
    rows: int
    dev_rows: int


# Devlin et al., 2018, Table 1, which leaves out WNLI. "mm" is the accuracy on MNLI's mismatched part.
TASKS = {
    "cola": Task(("mcc",), {"mcc": (0.521, 0.605)}, 8_551, 1_043),
    "sst2": Task(("accuracy",), {"accuracy": (0.935, 0.949)}, 67_349, 872),
    "mrpc": Task(("accuracy", "f1"), {"f1": (0.889, 0.893)}, 3_668, 408),
    "stsb": Task(("pearson", "spearman"), {"spearman": (0.858, 0.865)}, 5_749, 1_500),
    "qqp": Task(("accuracy", "f1"), {"f1": (0.712, 0.721)}, 363_846, 40_430),
    "mnli": Task(("accuracy", "mm"), {"accuracy": (0.846, 0.867), "mm": (0.834, 0.859)}, 392_702, 9_815),
    "qnli": Task(("accuracy",), {"accuracy": (0.905, 0.927)}, 104_743, 5_463),
    "rte": Task(("accuracy",), {"accuracy": (0.664, 0.701)}, 2_490, 277),
    "wnli": Task(("accuracy",), {}, 635, 71),
    "messages": Task(("accuracy",), {}, 500, 125),  # no task of GLUE, but there on every machine: quickstart.py's
}
GRID = {"epochs": (2, 3, 4), "batch_size": (16, 32), "learning_rate": (5e-5, 3e-5, 2e-5)}
RECIPE = {"max_length": 128, "epochs": 3, "batch_size": 32, "learning_rate": 5e-5}  # of the paper's grid
SLICE = {"rows": 400, "batch_size": 16, "learning_rate": 2e-4}  # so few steps need a higher rate than the paper's

# The columns of the results. Runs that are equal in all of SETTING differ in the seed alone.
FIXED = ["task", "backend", "device", "size", "weights", "max_length", "rows", "dev_rows"]
SETTING = [*FIXED, *GRID]
CHOSEN = tuple(RECIPE)  # numbers, or "auto" where kbert chooses
SCORES = ["score", "accuracy", "f1", "mcc", "pearson", "spearman", "mm"]
COLUMNS = [*SETTING, "seed", "metric", *SCORES, "fit_s", "date", "kbert", "keras", "backend_version"]


def load(task: str, part: str, n_rows: int | None = None) -> tuple[pd.DataFrame, pd.Series | None]:
    """The texts and the labels of a part, or of n_rows of its rows, which are the same ones each time."""
    if task == "messages":
        frame = pd.read_csv(Path(__file__).parent / "data" / "support_messages.csv")
        frame = frame.rename(columns={"message": "text"})
        frame = train_test_split(frame, test_size=0.2, stratify=frame.label, random_state=0)[part == "dev"]
    else:
        frame = datasets.load(task, part)
    if n_rows is not None and n_rows < len(frame):
        frame = frame.sample(n_rows, random_state=0)
    return frame.filter(like="text"), frame.get("label")


def fit(run: dict[str, Any], texts: pd.DataFrame, labels: pd.Series) -> Any:
    """The estimator of a run."""
    from kbert import BertClassifier, BertRegressor  # here, because loading a backend takes seconds

    weights = None if run["weights"] == "none" else run["weights"]
    parameters = {"size": run["size"], "weights": weights, "random_state": run["seed"], "verbose": 1}
    estimator = BertRegressor if run["task"] == "stsb" else BertClassifier
    if is_default(run):
        return estimator(**parameters).fit(texts, labels)
    return estimator.paper(**parameters, **{name: run[name] for name in CHOSEN}).fit(texts, labels)


def is_default(run: dict[str, Any]) -> bool:
    """Whether a run is with kbert's defaults, which choose all four settings, and not with the paper's recipe."""
    return all(run[name] == "auto" for name in CHOSEN)


def dev_scores(task: str, predict: Any, texts: pd.DataFrame, labels: pd.Series) -> dict[str, float]:
    """The scores on dev: GLUE's, and accuracy for all labels."""
    truth, predicted = labels.to_numpy(), predict(texts)
    if task == "stsb":
        scores = {"pearson": pearsonr(truth, predicted).statistic, "spearman": spearmanr(truth, predicted).statistic}
        return pd.Series(scores).fillna(0.0).to_dict()  # where all rows got the same number, there is none
    scores = {"accuracy": accuracy_score(truth, predicted)}
    if "1" in truth:
        scores |= {"f1": f1_score(truth, predicted, pos_label="1"), "mcc": matthews_corrcoef(truth, predicted)}
    if task == "mnli":
        texts, labels = load("mnli", "dev_mismatched")
        scores["mm"] = accuracy_score(labels, predict(texts))
    return scores


def read(results: Path) -> pd.DataFrame:
    """All runs so far."""
    if not results.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(results, converters=dict.fromkeys(CHOSEN, _setting))


def _setting(text: str) -> int | float | str:
    """A setting as it was given: a number to its last bit, as it is compared, or "auto"."""
    return text if text == "auto" else int(text) if text.isdigit() else float(text)


def find(results: Path, run: dict[str, Any]) -> pd.Series | None:
    """The results of a run, if it is finished."""
    runs = read(results)
    same = runs[(runs[list(run)] == pd.Series(run)).all(axis=1)]
    return None if same.empty else same.iloc[-1]


def append(results: Path, run: dict[str, Any], scores: dict[str, float], fit_s: float, backend_version: str) -> None:
    """Add a finished run to the results."""
    metric = TASKS[run["task"]].metrics[0]
    row = {**run, **scores, "metric": metric, "score": scores[metric], "fit_s": round(fit_s)}
    row |= {"kbert": version("kbert-learn"), "keras": version("keras"), "backend_version": backend_version}
    frame = pd.DataFrame([{**row, "date": datetime.date.today().isoformat()}], columns=COLUMNS)
    frame.round(dict.fromkeys(SCORES, 4)).to_csv(results, mode="a", header=not results.exists(), index=False)
    print(f"{run['task']}, seed {run['seed']}:", ", ".join(f"{name} {score:.3f}" for name, score in scores.items()))


def run_task(train: tuple, dev: tuple, fixed: dict[str, Any], grid: dict[str, tuple], seeds: list[int], results: Path):
    """Make the runs of a task that the results lack. Gives the best run on dev, and its estimator if it is new."""
    best_score, best = -1.0, None
    for *values, seed in itertools.product(*grid.values(), seeds):
        run = {**fixed, **dict(zip(GRID, values, strict=True)), "seed": seed}
        row, estimator = find(results, run), None
        print(f"\n{run['task']}:", ", ".join(f"{name} {run[name]}" for name in ("rows", *GRID, "seed")), flush=True)
        if row is None:
            start = time.perf_counter()
            estimator = fit(run, *train)
            seconds = time.perf_counter() - start
            scores = dev_scores(run["task"], estimator.predict, *dev)
            append(results, run, scores, seconds, version(run["backend"]))
            row = find(results, run)
        else:
            print(f"done before: {row.metric} {row.score:.3f}")
        if best is None or row.score > best_score:
            best_score, best = row.score, (run, estimator)
    return best


def submit(run: dict[str, Any], estimator: Any, train: tuple, folder: Path) -> None:
    """Write the official files for those test parts that are there."""
    if run["task"] == "messages":
        print("no submission: messages is no task of GLUE")
    parts = {"mnli": [("mnli", "test_matched"), ("mnli", "test_mismatched"), ("ax", "test")], "messages": []}
    for task, part in parts.get(run["task"], [(run["task"], "test")]):
        try:
            texts, _ = load(task, part)
        except DatasetNotFoundError as error:
            print(f"no submission: {error}")
            continue
        if estimator is None:
            print(f"{task}: the best run on dev was made before, and is made again to predict the test part")
            estimator = fit(run, *train)
        print("written:", datasets.write_glue_submission(task, estimator.predict(texts), folder, part))


def differences(setting: dict[str, Any], n_tried: int) -> str:
    """In which ways the score is not of what the paper's is of."""
    task, size = TASKS[setting["task"]], setting["size"]
    start = {"auto": size, "none": f"{size} from a random start"}.get(setting["weights"], setting["weights"])
    notes = ["dev, not test"] if task.paper else ["no score in the paper"]
    if start not in ("base", "large"):
        notes.insert(0, f"{start}, not BERT-{'large' if size.startswith('large') else 'base'}")
    if is_default(setting):
        notes.append("kbert's defaults, not the paper's recipe")
    for column, part in (("rows", "training"), ("dev_rows", "dev")):
        if setting[column] < getattr(task, column):
            notes.append(f"{setting[column]:,} of {getattr(task, column):,} {part} rows")
    return "; ".join(notes + ([f"the best of {n_tried} settings on dev"] if n_tried > 1 else []))


def table(runs: pd.DataFrame, absent: dict[str, str], best_only: bool) -> pd.DataFrame:
    """Mean and spread over the seeds of each setting, and a line for what is absent."""
    lines = []
    for _, similar in runs.groupby(FIXED, sort=False):
        tried = [seeds for _, seeds in similar.groupby(list(GRID), sort=False)]
        for seeds in [max(tried, key=lambda seeds: seeds.score.mean())] if best_only else tried:
            setting = seeds.iloc[0][SETTING].to_dict()
            setting |= {"seeds": len(seeds), "notes": differences(setting, len(tried) if best_only else 1)}
            for metric in TASKS[setting["task"]].metrics:
                spread = seeds[metric].agg(["mean", "std", "min", "max"]).round(4).to_dict()
                lines.append({**setting, "metric": metric, **spread})
    for task in absent.keys() - set(runs.task):
        lines += [{"task": task, "seeds": 0, "metric": name, "notes": absent[task]} for name in TASKS[task].metrics]
    for line in lines:
        large = str(line.get("size")).startswith("large")
        line["paper, test"] = TASKS[line["task"]].paper.get(line["metric"], ("", ""))[large]
    lines.sort(key=lambda line: list(TASKS).index(line["task"]))
    columns = [*"task metric seeds mean std min max".split(), "paper, test", *SETTING[1:], "notes"]
    return pd.DataFrame(lines, columns=columns, dtype=object).fillna("")


def main(argv: list[str] | None = None) -> None:
    """Make the runs that the arguments ask for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="task", help=", ".join([*TASKS, "all"]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--size", default="minilm-l6")
    parser.add_argument("--weights", default="auto", help="a folder, a hub name, or none for a random start")
    parser.add_argument("--epochs", type=int, help=f"default: {RECIPE['epochs']}")
    parser.add_argument("--batch-size", type=int, help=f"default: {RECIPE['batch_size']}")
    parser.add_argument("--learning-rate", type=float, help=f"default: {RECIPE['learning_rate']}")
    parser.add_argument("--max-length", type=int, help=f"default: {RECIPE['max_length']}")
    recipe = parser.add_mutually_exclusive_group()
    recipe.add_argument("--grid", action="store_true", help="the paper's 18 settings; the table shows the best on dev")
    recipe.add_argument("--defaults", action="store_true", help="kbert's defaults, which choose all settings")
    parser.add_argument("--rows", type=int, help="train on so many rows only")
    parser.add_argument("--results", type=Path, default=Path("glue_results.csv"))
    parser.add_argument("--submission", type=Path, metavar="FOLDER", help="write the official files of predictions")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args(argv)
    tasks = options.tasks if "all" not in options.tasks else [task for task in TASKS if task != "messages"]
    if unknown := [task for task in tasks if task not in TASKS]:
        parser.error(f"{unknown[0]!r} is no task; the tasks are {', '.join(TASKS)}, and all for GLUE's nine")
    if options.rows is not None and options.rows < 1:
        parser.error(f"--rows is {options.rows}: give 1 or more, or leave it out for all rows")
    chosen, by = (CHOSEN, "--defaults") if options.defaults else (GRID, "--grid") if options.grid else ((), "")
    if given := [name for name in chosen if getattr(options, name) is not None]:
        parser.error(f"--{given[0].replace('_', '-')} cannot be set with {by}, which chooses it")
    if not tasks and not options.table:
        parser.set_defaults(**SLICE)
        options, tasks = parser.parse_args(argv), ["sst2", "mrpc", "stsb"]
        try:
            load("sst2", "train")
        except DatasetNotFoundError as error:
            print(f"{error}\nMeanwhile, to see it run, a task that comes with this file.")
            tasks = ["messages"]

    for name, value in RECIPE.items():
        if options.defaults:
            setattr(options, name, "auto")
        elif getattr(options, name) is None:
            setattr(options, name, value)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    absent = {}
    for task in tasks:
        try:
            absent[task] = "no data: no train part"
            train = load(task, "train", options.rows)
            absent[task] = "no data: no dev part"
            dev = load(task, "dev")
            absent[task] = "not run"
        except DatasetNotFoundError as error:
            print(f"{task}: {error}")
            continue
        if options.table:
            continue
        import keras

        device = str(keras.ops.zeros(1).device).lower()
        device = next((kind for kind in ("cpu", "tpu") if kind in device), "gpu")
        values = (task, keras.backend.backend(), device, options.size, options.weights, options.max_length)
        fixed = dict(zip(FIXED, (*values, len(train[0]), len(dev[0])), strict=True))
        grid = GRID if options.grid else {name: (getattr(options, name),) for name in GRID}
        best = run_task(train, dev, fixed, grid, options.seeds, options.results)
        if options.submission:
            submit(*best, train, options.submission)

    frame = table(read(options.results), absent, options.grid)
    path = options.results.with_name(f"{options.results.stem.removesuffix('_results')}_table.csv")
    frame.to_csv(path, index=False)
    shown = ["task", "metric", "seeds", "mean", "std", "paper, test", "backend", "size", *GRID]
    print("\n" + frame[shown].to_string(index=False) + "\n")
    for task, notes in frame[["task", "notes"]].drop_duplicates().itertuples(index=False):
        print(f"{task}: {notes}")
    runs = f"Each run is in {options.results}" if options.results.exists() else f"{options.results} has no runs yet"
    print(f"\n{runs}, and this table is in {path}.")


if __name__ == "__main__":
    main()
