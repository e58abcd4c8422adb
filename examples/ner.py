"""Find names: fine-tune BERT on CoNLL-2003, and set the F1 of its entities beside the paper's.

    python examples/ner.py                                                             # a small slice, to see it run
    python examples/ner.py --rows 0 --dev-rows 0 --learning-rate 5e-5 --seeds 0 1 2    # all of it, three seeds
    python examples/ner.py --rows 0 --dev-rows 0 --defaults --seeds 0 1 2              # kbert's defaults
    python examples/ner.py --passages 0.67 --batch-size 16                             # to tag documents as well

The environment variable KBERT_DATA names the folder that holds CoNLL-2003 (docs/reference/datasets.md). Each finished
seed is appended to a CSV and not run again, so a command that was stopped goes on where it was.

A tagger that was trained on sentences by themselves has seen neither their neighbours nor far positions, and is less
good at a document that it reads at once. --passages joins the sentences of some training documents into passages.
"""

import argparse
import datetime
import time
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from kbert import datasets
from kbert.errors import DatasetNotFoundError
from kbert.metrics import entity_scores

PAPER = {"base": 0.964, "large": 0.966}  # Devlin et al., 2018, Table 7: fine-tuned, cased, dev
ROWS = {"train": 14_041, "dev": 3_250}
RECIPE = {"max_length": 128, "epochs": 3, "batch_size": 32, "learning_rate": 3e-4}
CHOSEN = tuple(RECIPE)  # numbers, or "auto" where kbert chooses
DOCUMENT_WORDS = 3_000
PASSAGE_WORDS = 90  # about a window of 128 tokens
SCORES = {"argmax": "f1_argmax", "bio": "f1_bio", "argmax, as documents": "f1_documents"}


def load(part: str, n_rows: int) -> pd.DataFrame:
    """A part, or so many of its sentences: of dev the first, of train those of some documents."""
    frame = datasets.load("conll2003", part)
    if not 0 < n_rows < len(frame):
        return frame
    if part == "train":
        drawn = frame.document.drop_duplicates().sample(frac=1, random_state=0)
        frame = frame.set_index("document").loc[drawn].reset_index()
    return frame[:n_rows]


def joined(sentences: pd.DataFrame, groups: Any) -> pd.DataFrame:
    """One row for the sentences of each group."""
    rows = [[list(chain(*group.words)), list(chain(*group.tags))] for _, group in sentences.groupby(groups, sort=False)]
    return pd.DataFrame(rows, columns=["words", "tags"])


def documents(sentences: pd.DataFrame) -> pd.DataFrame:
    """The sentences joined into documents of about 3,000 words."""
    n_words = sentences.words.map(len)
    return joined(sentences, (n_words.cumsum() - n_words) // DOCUMENT_WORDS)


def with_passages(sentences: pd.DataFrame, share: float) -> pd.DataFrame:
    """Rows to train on: the sentences of a share of the documents joined into passages, the others as they are."""
    drawn = sentences.document.drop_duplicates().sample(frac=share, random_state=0)
    inside = sentences.document.isin(drawn)
    n_words = sentences.words.map(len)
    number = (n_words.groupby(sentences.document).cumsum() - n_words) // PASSAGE_WORDS
    passages = joined(sentences[inside], [sentences.document[inside], number[inside]])
    return pd.concat([sentences.loc[~inside, ["words", "tags"]], passages], ignore_index=True)


def fit_and_score(run: dict[str, Any], train: pd.DataFrame, dev: pd.DataFrame) -> dict[str, float]:
    """The scores of a new tagger on dev; prints some of the entities that it finds there."""
    from kbert import BertTagger  # here, because loading a backend takes seconds

    weights = None if run["weights"] == "none" else run["weights"]
    parameters = {"size": run["size"], "weights": weights, "random_state": run["seed"], "verbose": 1}
    if is_default(run):
        tagger = BertTagger(**parameters)
    else:
        tagger = BertTagger.paper(**parameters, **{name: run[name] for name in CHOSEN})
    start = time.perf_counter()
    rows = with_passages(train, run["passages"])
    tagger.fit(rows.words, rows.tags)
    scores = {"fit_s": round(time.perf_counter() - start)}

    print("\n" + tagger.entities(dev.words[:5]).round(2).to_string(index=False) + "\n")
    for decoding in ("bio", "argmax"):
        scores[SCORES[decoding]] = tagger.set_params(decoding=decoding).score(dev.words, dev.tags)
    long = documents(dev)
    tagged = tagger.predict(long.words)
    scores["f1_documents"] = entity_scores(long.tags, tagged).f1
    n_words, n_tags = (sum(map(len, rows)) for rows in (long.words, tagged))
    print(f"{n_words} words in {len(long)} documents of about {DOCUMENT_WORDS} words: {n_tags} tags")
    print(f"entity F1 {scores['f1_documents']:.4f}, and {scores['f1_argmax']:.4f} sentence by sentence")
    return scores


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
    runs = pd.read_csv(results, converters=dict.fromkeys(CHOSEN, _setting) | {"passages": float})
    return runs[(runs[list(run)] == pd.Series(run)).all(axis=1)]


def table(runs: pd.DataFrame, size: str) -> pd.DataFrame:
    """Mean and spread over the seeds, beside the paper's score."""
    paper = PAPER["large" if size.startswith("large") else "base"]
    lines = [[name, len(runs), *runs[column].agg(["mean", "std", "min", "max"])] for name, column in SCORES.items()]
    frame = pd.DataFrame(lines, columns=["decoding", "seeds", "mean", "std", "min", "max"]).round(4)
    return frame.assign(**{"paper, dev": paper})


def differences(setting: dict[str, Any]) -> str:
    """In which ways the score is not of what the paper's is of."""
    size = setting["size"]
    start = {"auto": size, "none": f"{size} from a random start"}.get(setting["weights"], setting["weights"])
    large = "large" if size.startswith("large") else "base"
    notes = [f"{start}, not BERT-{large} cased"] * (start != f"{large}-cased")
    for part, column in (("train", "rows"), ("dev", "dev_rows")):
        if setting[column] < ROWS[part]:
            notes.append(f"{setting[column]:,} of {ROWS[part]:,} sentences of {part}")
    notes += ["kbert's defaults, not the paper's recipe"] * is_default(setting)
    if setting["passages"]:
        notes.append(f"{setting['passages']:.0%} of the training documents as passages")
    return "; ".join([*notes, "dev sentences by themselves, where the paper's have their document around them"])


def main(argv: list[str] | None = None) -> None:
    """Make the runs that the arguments ask for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=800, help="train on so many sentences; 0 for all")
    parser.add_argument("--dev-rows", type=int, default=400, help="score so many sentences; 0 for all")
    parser.add_argument("--passages", type=float, default=0.0, help="join the sentences of this share of documents")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, help=f"default: {RECIPE['epochs']}")
    parser.add_argument("--batch-size", type=int, help=f"default: {RECIPE['batch_size']}")
    parser.add_argument(
        "--learning-rate",
        type=float,
        help=f"default: {RECIPE['learning_rate']}, since few rows need more than the paper's 5e-5",
    )
    parser.add_argument("--max-length", type=int, help=f"default: {RECIPE['max_length']}")
    parser.add_argument("--defaults", action="store_true", help="kbert's defaults, which choose these four")
    parser.add_argument("--size", default="minilm-l6")
    parser.add_argument("--weights", default="auto", help="a folder, a hub name, or none for a random start")
    parser.add_argument("--results", type=Path, default=Path("ner_results.csv"))
    options = parser.parse_args(argv)
    if negative := [name for name in ("rows", "dev_rows") if getattr(options, name) < 0]:
        parser.error(f"--{negative[0].replace('_', '-')} is {getattr(options, negative[0])}: give 0 for all, or more")
    if not 0 <= options.passages <= 1:
        parser.error(f"--passages is {options.passages:g}: give a share, from 0 to 1")
    for name, value in RECIPE.items():
        if options.defaults and getattr(options, name) is not None:
            parser.error(f"--{name.replace('_', '-')} cannot be set with --defaults, which chooses it")
        if getattr(options, name) is None:
            setattr(options, name, "auto" if options.defaults else value)
    try:
        train, dev = load("train", options.rows), load("dev", options.dev_rows)
    except DatasetNotFoundError as error:
        raise SystemExit(str(error)) from None
    import keras

    device = str(keras.ops.zeros(1).device).lower()
    setting = {
        "backend": keras.backend.backend(),
        "device": next((kind for kind in ("cpu", "tpu") if kind in device), "gpu"),
        **{name: getattr(options, name) for name in ("size", "weights", "max_length")},
        **{name: getattr(options, name) for name in ("epochs", "batch_size", "learning_rate")},
        **{"rows": len(train), "dev_rows": len(dev), "passages": options.passages},
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        run = {**setting, "seed": seed}
        print(f"\nCoNLL-2003: {len(train)} sentences, seed {seed}", flush=True)
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

    print("\nEntity F1 on dev\n" + table(find(options.results, setting), options.size).to_string(index=False))
    print(f"\nOther than in the paper: {differences(setting)}.\nEach run is in {options.results}.")


if __name__ == "__main__":
    main()
