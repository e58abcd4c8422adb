"""Choose one of several options: fine-tune BERT on DREAM or SWAG, and set its accuracy beside guessing and the paper's.

    python examples/choice.py                                                                       # a small slice
    python examples/choice.py --rows 0 --dev-rows 0 --max-length 256 --learning-rate 5e-5 --seeds 0 1 2    # all of it
    python examples/choice.py --task swag --rows 0 --dev-rows 0 --learning-rate 5e-5                # the paper's task
    python examples/choice.py --rows 0 --dev-rows 0 --defaults                    # with what kbert chooses by itself

The environment variable KBERT_DATA names the folder that holds the data (docs/reference/datasets.md): for SWAG a folder
"swag" with train.csv and val.csv. Each finished seed is appended to a CSV and not run again, so a command that was
stopped goes on where it was.
"""

import argparse
import datetime
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from kbert import datasets
from kbert.errors import DatasetNotFoundError

PAPER = {"base": 0.816, "large": 0.866}  # Devlin et al., 2018, Table 4: SWAG, dev
RECIPE = {"max_length": 96, "epochs": 3, "batch_size": 16, "learning_rate": 1e-4}
CHOSEN = tuple(RECIPE)  # numbers, or "auto" where kbert chooses
ROWS = {"dream": {"train": 6_116, "dev": 2_040}, "swag": {"train": 73_546, "dev": 20_006}}


def load(task: str, part: str, n_rows: int) -> pd.DataFrame:
    """A part, or so many of its rows, which are the same ones each time."""
    frame = datasets.load(task, part)
    return frame.sample(n_rows, random_state=0) if 0 < n_rows < len(frame) else frame


def fit_and_score(run: dict[str, Any], train: pd.DataFrame, dev: pd.DataFrame) -> dict[str, float]:
    """The accuracy of a new estimator on dev; prints the questions that it is surest of."""
    from kbert import BertMultipleChoice  # here, because loading a backend takes seconds

    weights = None if run["weights"] == "none" else run["weights"]
    parameters = {"size": run["size"], "weights": weights, "random_state": run["seed"], "verbose": 1}
    if is_default(run):
        chooser = BertMultipleChoice(**parameters)
    else:
        chooser = BertMultipleChoice.paper(**parameters, **{name: run[name] for name in CHOSEN})
    start = time.perf_counter()
    chooser.fit(train, train.label)
    seconds = time.perf_counter() - start
    probabilities = chooser.predict_proba(dev)
    chosen = pd.DataFrame(probabilities).idxmax(axis=1).to_numpy()  # past a row's own options there is NaN
    for i in pd.DataFrame(probabilities).max(axis=1).nlargest(3).index:
        row = dev.iloc[i]
        verdict = "right" if chosen[i] == row.label else f"wrong: {row.options[row.label]}"
        print(f"\n{row.question}\n    {row.options[chosen[i]]} ({probabilities[i, chosen[i]]:.2f}, {verdict})")
    return {"accuracy": float((chosen == dev.label).mean()), "fit_s": round(seconds)}


def is_default(run: dict[str, Any]) -> bool:
    """Whether a run is with kbert's defaults, and not with the paper's recipe."""
    return all(run[name] == "auto" for name in CHOSEN)


def _setting(text: str) -> int | float | str:
    """A setting as it was given: a number to its last bit, as it is compared, or "auto"."""
    return text if text == "auto" else int(text) if text.isdigit() else float(text)


def find(results: Path, run: dict[str, Any]) -> pd.DataFrame:
    """The finished runs of a setting, or the one of a setting and a seed."""
    if not results.exists():
        return pd.DataFrame()
    runs = pd.read_csv(results, converters=dict.fromkeys(CHOSEN, _setting))
    return runs[(runs[list(run)] == pd.Series(run)).all(axis=1)]


def table(runs: pd.DataFrame, setting: dict[str, Any]) -> pd.DataFrame:
    """Mean and spread over the seeds, beside guessing and the paper's score."""
    task, large = setting["task"], "large" if setting["size"].startswith("large") else "base"
    spread = runs.accuracy.agg(["mean", "std", "min", "max"]).round(4)
    line = {"task": task, "seeds": len(runs), **spread, "guessing": setting["guessing"]}
    line["paper, SWAG dev"] = PAPER[large] if task == "swag" else f"({PAPER[large]})"
    return pd.DataFrame([line])


def differences(setting: dict[str, Any]) -> str:
    """In which ways the score is not of what the paper's is of."""
    task, size = setting["task"], setting["size"]
    start = {"auto": size, "none": f"{size} from a random start"}.get(setting["weights"], setting["weights"])
    notes = [f"{start}, not BERT-{'large' if size.startswith('large') else 'base'}"] * (start not in ("base", "large"))
    notes += ["kbert's defaults, not the paper's recipe"] * is_default(setting)
    if task == "dream":
        notes.append("DREAM's dialogues and its dev, another data set than SWAG: the scores cannot be compared")
    for part, column in (("train", "rows"), ("dev", "dev_rows")):
        if setting[column] < ROWS[task][part]:
            notes.append(f"{setting[column]:,} of {ROWS[task][part]:,} rows of {part}")
    return "; ".join(notes)


def main(argv: list[str] | None = None) -> None:
    """Make the runs that the arguments ask for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=ROWS, default="dream")
    parser.add_argument("--rows", type=int, default=120, help="train on so many rows; 0 for all")
    parser.add_argument("--dev-rows", type=int, default=150, help="score so many rows; 0 for all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, help=f"default: {RECIPE['epochs']}")
    parser.add_argument("--batch-size", type=int, help=f"default: {RECIPE['batch_size']}")
    parser.add_argument("--learning-rate", type=float, help=f"default: {RECIPE['learning_rate']}; the paper has 2e-5")
    parser.add_argument(
        "--max-length", type=int, help=f"default: {RECIPE['max_length']}; a longer sequence is cut at its ends"
    )
    parser.add_argument("--defaults", action="store_true", help="kbert's defaults, which choose these four")
    parser.add_argument("--size", default="minilm-l6")
    parser.add_argument("--weights", default="auto", help="a folder, a hub name, or none for a random start")
    parser.add_argument("--results", type=Path, default=Path("choice_results.csv"))
    options = parser.parse_args(argv)
    if negative := [name for name in ("rows", "dev_rows") if getattr(options, name) < 0]:
        parser.error(f"--{negative[0].replace('_', '-')} is {getattr(options, negative[0])}: give 0 for all, or more")
    for name, value in RECIPE.items():
        if options.defaults and getattr(options, name) is not None:
            parser.error(f"--{name.replace('_', '-')} cannot be set with --defaults, which chooses it")
        if getattr(options, name) is None:
            setattr(options, name, "auto" if options.defaults else value)
    try:
        train, dev = load(options.task, "train", options.rows), load(options.task, "dev", options.dev_rows)
    except DatasetNotFoundError as error:
        raise SystemExit(str(error)) from None
    import keras

    device = str(keras.ops.zeros(1).device).lower()
    setting = {
        "task": options.task,
        "backend": keras.backend.backend(),
        "device": next((kind for kind in ("cpu", "tpu") if kind in device), "gpu"),
        **{name: getattr(options, name) for name in ("size", "weights", *CHOSEN)},
        **{"rows": len(train), "dev_rows": len(dev)},
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        run = {**setting, "seed": seed}
        print(f"\n{options.task}: {len(train)} rows, seed {seed}", flush=True)
        if len(find(options.results, run)):
            print("done before")
            continue
        scores = {name: round(score, 4) for name, score in fit_and_score(run, train, dev).items()}
        versions = {
            "kbert": version("kbert-learn"),
            "keras": version("keras"),
            "backend_version": version(run["backend"]),
        }
        row = {**run, **scores, "date": datetime.date.today().isoformat(), **versions}
        pd.DataFrame([row]).to_csv(options.results, mode="a", header=not options.results.exists(), index=False)

    guessing = round(float((1 / dev.options.map(len)).mean()), 4)
    frame = table(find(options.results, setting), {**setting, "guessing": guessing})
    print("\nAccuracy on dev\n" + frame.to_string(index=False))
    print(f"\nOther than in the paper: {differences(setting)}.\nEach run is in {options.results}.")


if __name__ == "__main__":
    main()
