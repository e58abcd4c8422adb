"""Fine-tune BERT on SQuAD 1.1 or 2.0, and set the scores beside the paper's.

    python examples/squad.py                                          # a small slice of 1.1, to see it run
    python examples/squad.py --rows 10000 --epochs 2 --seeds 0 1 2    # 10,000 questions, three seeds, all of dev
    python examples/squad.py --rows 10000 --defaults                  # the same questions with kbert's defaults
    python examples/squad.py --rows 0 --predictions mine.json         # in full; a file for the official evaluation
    python examples/squad.py --version 2.0 --rows 10000               # with questions that have no answer
    python examples/squad.py --table                                  # run nothing, only print the table

The environment variable KBERT_DATA names the folder that holds SQuAD (docs/reference/datasets.md). Without the train
part of 2.0 its dev part is split by article: the questions of one half are learned, with as many of 1.1 as --rows
leaves room for, and those of the other half are scored. Each finished run is appended to a CSV and not run again.
"""

import argparse
import datetime
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from kbert import datasets
from kbert.errors import DatasetNotFoundError
from kbert.metrics import squad_scores

# Devlin et al., 2018, Tables 2 and 3: exact match and F1 on dev, of single models without TriviaQA; only LARGE on 2.0.
PAPER = {("1.1", "base"): (0.808, 0.885), ("1.1", "large"): (0.841, 0.909), ("2.0", "large"): (0.787, 0.819)}
RECIPE = {"epochs": 3, "batch_size": 32, "learning_rate": 5e-5, "max_length": 384, "stride": 128}
CHOSEN = tuple(RECIPE)  # numbers, or "auto" where kbert chooses
SLICE = {"rows": 1000, "dev_rows": 300, "epochs": 3, "batch_size": 16, "learning_rate": 1e-4, "max_length": 256}

# The columns of the results. Runs that are equal in all of SETTING differ in the seed alone.
SETTING = (
    """squad backend device size weights max_length stride rows dev_rows epochs batch_size learning_rate""".split()
)
SCORES = ["exact", "f1", "always_f1", "answerable_f1", "unanswerable_f1"]
COLUMNS = [
    *SETTING,
    "seed",
    *SCORES,
    "null_threshold",
    "fit_s",
    "predict_s",
    "date",
    "kbert",
    "keras",
    "backend_version",
]


def load(squad: str, rows: int, dev_rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Questions to learn and questions to score; 0 rows are all of them."""
    train = datasets.load("squad", "train")
    if squad == "1.1":
        dev = datasets.load("squad", "dev")
    else:
        dev = datasets.load("squad_v2", "dev")
        try:
            train = datasets.load("squad_v2", "train")
        except DatasetNotFoundError:
            titles = np.sort(dev.title.unique())
            learned = dev.title.isin(np.random.default_rng(0).choice(titles, len(titles) // 2, replace=False))
            # These alone have questions without an answer, so they come first; fewer rows are a sample of them.
            train = train.sample(max(0, rows - learned.sum()), random_state=0) if rows else train
            train, dev = pd.concat([train, one_answer(dev[learned])], ignore_index=True), dev[~learned]
    if rows and rows < len(train):
        train = train.sample(rows, random_state=0)
    if dev_rows and dev_rows < len(dev):
        dev = dev.sample(dev_rows, random_state=0)
    return train, dev


def one_answer(frame: pd.DataFrame) -> pd.DataFrame:
    """The first of several right answers."""

    def first(values: Any) -> Any:
        return values[0] if isinstance(values, list) else values

    return frame.assign(answer=frame.answer.map(first), answer_start=frame.answer_start.map(first))


def fit(run: dict[str, Any], train: pd.DataFrame) -> Any:
    """The fitted estimator of a run."""
    from kbert import BertQA  # here, because loading a backend takes seconds

    weights = None if run["weights"] == "none" else run["weights"]
    parameters = {"size": run["size"], "weights": weights, "random_state": run["seed"], "verbose": 1}
    if is_default(run):
        qa = BertQA(**parameters)
    else:
        qa = BertQA.paper(**parameters, **{name: run[name] for name in CHOSEN})
    return qa.fit(train, train)


def is_default(run: dict[str, Any]) -> bool:
    """Whether a run is with kbert's defaults, and not with the paper's recipe."""
    return all(run[name] == "auto" for name in CHOSEN)


def best_answers(qa: Any, dev: pd.DataFrame) -> pd.DataFrame:
    """Of each question its best span, and the score of no answer less that of the span.

    The score of no answer is that of `BertQA.answers`, so that above 0 the estimator gives none.
    """
    found = qa.answers(dev)
    none = found[found.answer == ""].set_index("row")
    spans = found[found.answer != ""].drop_duplicates("row").set_index("row")
    best = pd.DataFrame(index=range(len(dev)))
    best["answer"] = spans.answer.reindex(best.index).fillna("")
    # A score of no answer that is not among the n best is lower than theirs.
    best["margin"] = (none.score - spans.score).reindex(best.index).fillna(-np.inf)
    return best


def dev_scores(qa: Any, dev: pd.DataFrame, best: pd.DataFrame) -> dict[str, float]:
    """The official scores; "always" is what they would be if every question got an answer."""
    for answer, context in zip(best.answer, dev.context, strict=True):
        assert answer in context, "an answer is a slice of its context"
    answers = dev.answer.tolist()
    scores = squad_scores(answers, np.where(best.margin > 0, "", best.answer))
    return {**scores, "always_f1": squad_scores(answers, best.answer)["f1"], "null_threshold": qa.null_threshold_}


def read(results: Path) -> pd.DataFrame:
    """All runs so far."""
    if not results.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(results, converters=dict.fromkeys(CHOSEN, _setting) | {"squad": str})


def _setting(text: str) -> int | float | str:
    """A setting as it was given: a number to its last bit, as it is compared, or "auto"."""
    return text if text == "auto" else int(text) if text.isdigit() else float(text)


def find(results: Path, run: dict[str, Any]) -> bool:
    """Whether a run is finished."""
    runs = read(results)
    return bool((runs[list(run)] == pd.Series(run)).all(axis=1).any())


def append(results: Path, run: dict[str, Any], values: dict[str, Any], backend_version: str) -> None:
    """Add a finished run to the results."""
    row = {**run, **values, "date": datetime.date.today().isoformat(), "backend_version": backend_version}
    row |= {"kbert": version("kbert-learn"), "keras": version("keras")}
    frame = pd.DataFrame([row], columns=COLUMNS).round(dict.fromkeys([*SCORES, "null_threshold"], 4))
    frame.to_csv(results, mode="a", header=not results.exists(), index=False)
    print(f"seed {run['seed']}: exact match {row['exact']:.3f}, F1 {row['f1']:.3f}", flush=True)


def write_predictions(path: Path, dev: pd.DataFrame, best: pd.DataFrame) -> None:
    """What the official evaluation reads: answers by question, for 2.0 how likely there is none, and the questions.

    Answers to 2.0 are the best spans: the evaluation itself puts "" where the probability of none is over a half,
    which is where the estimator does, and it finds its own best threshold.
    """

    def write(ending: str, values: Any) -> Path:
        file = path.with_name(f"{path.stem}{ending}.json")
        file.write_text(json.dumps(values, ensure_ascii=False), "utf-8")
        print("written:", file)
        return file

    def by_question(values: pd.Series) -> dict[str, Any]:
        return dict(zip(dev.id, values.tolist(), strict=True))

    files = [write("_dev", as_squad(dev)), write("", by_question(best.answer))]
    if np.isfinite(best.margin).any():
        odds = write("_na_prob", by_question(expit(best.margin)))
        print("python evaluate-v2.0.py", *files, "--na-prob-file", odds, "--na-prob-thresh 0.5")
    else:
        print("python evaluate-v1.1.py", *files)


def as_squad(dev: pd.DataFrame) -> dict[str, Any]:
    """The questions that were scored, in SQuAD's layout: the evaluation wants an answer to all that it reads."""
    articles = []
    for title, article in dev.groupby("title", sort=False):
        paragraphs = []
        for context, questions in article.groupby("context", sort=False):
            asked = []
            for line in questions.itertuples():
                texts, starts = line.answer, line.answer_start
                if not isinstance(texts, list):
                    texts, starts = ([texts], [starts]) if texts else ([], [])
                right = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
                asked.append({"id": line.id, "question": line.question, "answers": right, "is_impossible": not right})
            paragraphs.append({"context": context, "qas": asked})
        articles.append({"title": title, "paragraphs": paragraphs})
    return {"version": "scored", "data": articles}


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread over the seeds of each setting, the paper's scores, and in which ways the two differ."""
    lines = []
    for _, seeds in runs.groupby(SETTING, sort=False):
        setting = seeds.iloc[0][SETTING].to_dict()
        large = "large" if setting["size"].startswith("large") or setting["squad"] == "2.0" else "base"
        start = {"auto": setting["size"], "none": f"{setting['size']} from a random start"}
        start = start.get(setting["weights"], setting["weights"])
        notes = ["dev, as in the paper", *[f"{start}, not BERT-{large}"] * (start != large)]
        notes += ["kbert's defaults, not the paper's recipe"] * is_default(setting)
        if setting["squad"] == "2.0" and setting["dev_rows"] < 11_000:
            notes.append("a part of dev, of which other articles may have been learned")
        if setting["rows"] < (87_599 if setting["squad"] == "1.1" else 130_319):
            notes.append(f"{setting['rows']:,} training questions")
        full = 10_570 if setting["squad"] == "1.1" else 11_873
        if setting["dev_rows"] < full:
            notes.append(f"{setting['dev_rows']:,} of {full:,} dev questions")
        for i, metric in enumerate(("exact", "f1")):
            spread = seeds[metric].agg(["mean", "std"]).round(4).to_dict()
            paper = PAPER[setting["squad"], large][i]
            lines.append({**setting, "seeds": len(seeds), "metric": metric, **spread, "paper, dev": paper,
                          "notes": "; ".join(notes)})  # fmt: skip
    columns = ["squad", "metric", "seeds", "mean", "std", "paper, dev", *SETTING[1:], "notes"]
    return pd.DataFrame(lines, columns=columns, dtype=object).fillna("")


def main(argv: list[str] | None = None) -> None:
    """Make the runs that the arguments ask for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", choices=["1.1", "2.0"], default="1.1", dest="squad")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rows", type=int, help="train on so many questions; 0 is all")
    parser.add_argument("--dev-rows", type=int, default=0, help="score so many questions; 0 is all")
    parser.add_argument("--size", default="minilm-l6")
    parser.add_argument("--weights", default="auto", help="a folder, a hub name, or none for a random start")
    for name, value in RECIPE.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), help=f"default: {value}")
    parser.add_argument("--defaults", action="store_true", help="kbert's defaults, which choose these five")
    parser.add_argument("--results", type=Path, default=Path("squad_results.csv"))
    parser.add_argument("--predictions", type=Path, metavar="FILE", help="write the last run's answers as JSON")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args(argv)
    if options.defaults and (given := [name for name in CHOSEN if getattr(options, name) is not None]):
        parser.error(f"--{given[0].replace('_', '-')} cannot be set with --defaults, which chooses it")
    if options.rows is None and not options.table:
        parser.set_defaults(**SLICE)
        options = parser.parse_args(argv)
    for name, value in RECIPE.items():
        if options.defaults or getattr(options, name) is None:
            setattr(options, name, "auto" if options.defaults else value)

    if negative := [name for name in ("rows", "dev_rows") if (getattr(options, name) or 0) < 0]:
        parser.error(f"--{negative[0].replace('_', '-')} is {getattr(options, negative[0])}: give 0 for all, or more")

    if options.predictions:
        options.predictions.parent.mkdir(parents=True, exist_ok=True)  # now, and not after the fit
    if not options.table:
        try:
            train, dev = load(options.squad, options.rows, options.dev_rows)
        except DatasetNotFoundError as error:
            raise SystemExit(str(error)) from None
        import keras

        options.results.parent.mkdir(parents=True, exist_ok=True)
        print(f"SQuAD {options.squad}: {len(train):,} questions to learn, {len(dev):,} to score")
        device = str(keras.ops.zeros(1).device).lower()
        device = next((kind for kind in ("cpu", "tpu") if kind in device), "gpu")
        values = {**vars(options), "backend": keras.backend.backend(), "device": device}
        values |= {"rows": len(train), "dev_rows": len(dev)}
        for seed in options.seeds:
            run = {name: values[name] for name in SETTING} | {"seed": seed}
            if find(options.results, run):
                print(f"seed {seed}: done before")
                if options.predictions:
                    print(f"No predictions are written: take its line out of {options.results} to run it again.")
                continue
            times = [time.perf_counter()]
            qa = fit(run, train)
            times.append(time.perf_counter())
            best = best_answers(qa, dev)
            times.append(time.perf_counter())
            fit_s, predict_s = np.diff(times).round().astype(int)
            append(options.results, run, {**dev_scores(qa, dev, best), "fit_s": fit_s, "predict_s": predict_s},
                   version(values["backend"]))  # fmt: skip
            if options.predictions:
                write_predictions(options.predictions, dev, best)

    frame = table(read(options.results))
    shown = ["squad", "metric", "seeds", "mean", "std", "paper, dev", "backend", "size", "weights", "rows", "epochs"]
    print("\n" + frame[shown].to_string(index=False) + "\n")
    for line in frame.drop_duplicates(SETTING).itertuples():
        print(f"SQuAD {line.squad}, {line.size}: {line.notes}")
    print(f"\nEach run is in {options.results}." if options.results.exists() else f"{options.results} has no runs yet.")


if __name__ == "__main__":
    main()
