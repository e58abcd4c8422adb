"""Find names without fine-tuning: vectors of words from each choice of BERT's layers, and a linear classifier on them.

    python examples/features.py                             # a small slice, to see it run
    python examples/features.py --rows 0 --dev-rows 0       # all of CoNLL-2003
    python examples/features.py --rows 4000 --seeds 0 1 2   # three samples of the training sentences

The environment variable KBERT_DATA names the folder that holds CoNLL-2003 (docs/reference/datasets.md). BERT is not
trained, so there are no epochs, and a seed only says which sentences are drawn (and, with --weights none, the random
start). Each finished choice and seed is appended to a CSV and not run again, so a command that was stopped goes on
where it was.
"""

import argparse
import datetime
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kbert import datasets
from kbert.errors import DatasetNotFoundError
from kbert.metrics import entity_scores

# Devlin et al., 2018, Table 7: dev, BERT-base cased, with a BiLSTM of two layers on the vectors.
PAPER = {
    "embeddings": 0.910,
    "second_to_last": 0.956,
    "last": 0.949,
    "sum_last_4": 0.959,
    "concat_last_4": 0.961,
    "sum_all": 0.955,
}
ROWS = {"train": 14_041, "dev": 3_250}


def load(part: str, n_rows: int, seed: int = 0) -> pd.DataFrame:
    """A part, or so many of its sentences."""
    frame = datasets.load("conll2003", part)
    return frame.sample(n_rows, random_state=seed) if 0 < n_rows < len(frame) else frame


def score(run: dict[str, Any], train: pd.DataFrame, dev: pd.DataFrame) -> float:
    """The F1 of the entities on dev that one choice of layers gives."""
    from kbert import BertVectorizer  # here, because loading a backend takes seconds

    weights = None if run["weights"] == "none" else run["weights"]
    parameters = {name: run[name] for name in ("size", "max_length", "layers")}
    vectorizer = BertVectorizer(weights=weights, level="word", random_state=run["seed"], **parameters)
    # On one scale, so that one strength of regularisation suits all choices. SGDClassifier took over 90 s for 2,500
    # sentences where this took 2 s, and its F1 was lower by 5 points.
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=run["max_iter"], C=run["C"]))
    vectors = np.concatenate(vectorizer.fit_transform(train.words))
    classifier.fit(vectors, np.concatenate(train.tags.to_list()))
    found = classifier.predict(np.concatenate(vectorizer.transform(dev.words)))
    return entity_scores(dev.tags, np.split(found, np.cumsum(dev.words.map(len))[:-1])).f1


def find(results: Path, run: dict[str, Any]) -> pd.DataFrame:
    """The finished runs that have these values."""
    if not results.exists():
        return pd.DataFrame()
    runs = pd.read_csv(results, converters={"C": float})
    return runs[(runs[list(run)] == pd.Series(run)).all(axis=1)]


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread of each choice over the seeds, and its place, beside the paper's."""
    frame = runs.groupby("layers").f1.agg(["count", "mean", "std"]).rename(columns={"count": "seeds"})
    frame = frame.reindex(PAPER).assign(**{"paper, dev": PAPER})
    for name, column in (("rank", "mean"), ("paper's rank", "paper, dev")):
        frame[name] = frame[column].rank(ascending=False, method="min").astype(int)
    return frame.round(4)


def differences(setting: dict[str, Any]) -> str:
    """In which ways the scores are not of what the paper's are of."""
    size = setting["size"]
    start = {"auto": size, "none": f"{size} from a random start"}.get(setting["weights"], setting["weights"])
    notes = [f"{start}, not BERT-base cased"] * (start != "base-cased")
    for part, column in (("train", "rows"), ("dev", "dev_rows")):
        if setting[column] < ROWS[part]:
            notes.append(f"{setting[column]:,} of {ROWS[part]:,} sentences of {part}")
    notes += ["logistic regression of each word, not a BiLSTM", "plain sums, not weighted ones"]
    return "; ".join([*notes, "sentences by themselves, where the paper's have their document around them"])


def main(argv: list[str] | None = None) -> None:
    """Score the choices of layers, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000, help="train on so many sentences; 0 for all")
    parser.add_argument("--dev-rows", type=int, default=500, help="score so many sentences; 0 for all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--max-iter", type=int, default=300, help="of the logistic regression")
    parser.add_argument("-C", type=float, default=0.01, help="of the logistic regression")
    parser.add_argument("--size", default="minilm-l6")
    parser.add_argument("--weights", default="auto", help="a folder, a hub name, or none for a random start")
    parser.add_argument("--results", type=Path, default=Path("features_results.csv"))
    options = parser.parse_args(argv)
    if negative := [name for name in ("rows", "dev_rows") if getattr(options, name) < 0]:
        parser.error(f"--{negative[0].replace('_', '-')} is {getattr(options, negative[0])}: give 0 for all, or more")
    try:
        dev = load("dev", options.dev_rows)
        samples = {seed: load("train", options.rows, seed) for seed in options.seeds}
    except DatasetNotFoundError as error:
        raise SystemExit(str(error)) from None
    import keras

    device = str(keras.ops.zeros(1).device).lower()
    setting = {
        "backend": keras.backend.backend(),
        "device": next((kind for kind in ("cpu", "tpu") if kind in device), "gpu"),
        **{name: getattr(options, name) for name in ("size", "weights", "max_length", "max_iter", "C")},
        **{"rows": len(samples[options.seeds[0]]), "dev_rows": len(dev)},
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for seed, train in samples.items():
        print(f"\nCoNLL-2003: {len(train)} sentences, seed {seed}")
        for number, layers in enumerate(PAPER, 1):
            run = {**setting, "layers": layers, "seed": seed}
            print(f"{number} of {len(PAPER)}  {layers:15}", end=" ", flush=True)
            if len(done := find(options.results, run)):
                print(f"entity F1 {done.f1.iloc[0]:.4f}, done before")
                continue
            start = time.perf_counter()
            row = {**run, "f1": round(score(run, train, dev), 4), "seconds": round(time.perf_counter() - start)}
            row |= {
                "date": datetime.date.today().isoformat(),
                "kbert": version("kbert-learn"),
                "keras": version("keras"),
            }
            row["backend_version"] = version(run["backend"])
            pd.DataFrame([row]).to_csv(options.results, mode="a", header=not options.results.exists(), index=False)
            print(f"entity F1 {row['f1']:.4f}, {row['seconds']} s")

    frame = table(find(options.results, setting))
    print("\nEntity F1 on dev\n" + frame.to_string())
    ours, paper = frame["mean"], frame["paper, dev"]
    print(f"\nThe order of the choices and the paper's: Spearman {spearmanr(ours, paper).statistic:.2f}", end=", ")
    print(f"Kendall {kendalltau(ours, paper).statistic:.2f} (1 is the same order).")
    print(f"Other than in the paper: {differences(setting)}.\nEach run is in {options.results}.")


if __name__ == "__main__":
    main()
