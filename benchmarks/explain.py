"""Whether `explain` finds the words that a prediction rests on: a deletion test on SST-2's dev rows and on AG News.

    KBERT_DATA=... python benchmarks/explain.py [--data sst2 agnews] [--rows 300] [--lime-rows 20] [--shapley-rows 100]
    KBERT_DATA=... python benchmarks/explain.py --data sst2 --one-by-one

minilm-l6 is fine-tuned by the default recipe on --train rows. Of each row that is explained, the fifth of its words
with the highest scores for the predicted label (rounded up) is removed from the text, and the predicted probability of
that label is taken again. The larger the drop, the better the words were chosen (Samek et al., 2017, "Evaluating the
visualization of what a deep neural network has learned"; "comprehensiveness" in DeYoung et al., 2020). AG News has no
dev part: rows that were not trained on are explained.

Methods: ``explain`` with integrated gradients and with gradient x input, and from [MASK] in the place of [PAD]; with
Shapley values, on --shapley-rows rows, since they take longer; the attention that a word receives (the mean over
layers, heads and tokens, by transformers); words at random; and LIME (pip install lime) with its default 5,000 samples
a row, on --lime-rows rows alone, since it takes long. All methods are compared on the same rows: those of LIME and of
Shapley values beside all. --methods takes some of them. The first 20 rows are also explained one by one: the
time of the first call, the median of the others and the longest. With --one-by-one nothing else is done. A run replaces
the lines of its methods and data sets in benchmarks/results/explain.csv, and leaves the others. Where LIME was run too,
minus_lime is the mean difference to its drops on the same rows, and minus_lime_se its standard error.
"""

import argparse
import csv
import datetime
import math
import os
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

RESULTS = Path(__file__).parent / "results" / "explain.csv"
METHODS = (
    *("explain", "explain, gradient x input", "explain, Shapley values", "explain, from [MASK]", "attention"),
    *("random words", "LIME"),
)
SHARE = 0.2
ONE_BY_ONE = 20
_FILES = {"sst2": ("train.tsv.gz", "dev.tsv.gz"), "agnews": ("train_10001_of_120000.tsv.gz",) * 2}


def read(data: str, n_train: int, n_rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to train on, and others to explain; columns text and label."""
    folder = Path(os.environ["KBERT_DATA"]) / data
    parts = [
        pd.read_csv(folder / name, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, dtype=str).rename(
            columns={"sentence": "text"}
        )
        for name in _FILES[data]
    ]
    train = parts[0].sample(n_train, random_state=0)
    rest = parts[1].drop(train.index) if data == "agnews" else parts[1]
    return train, rest.sample(n_rows, random_state=0).reset_index(drop=True)


def without(text: str, spans: np.ndarray, chosen: np.ndarray) -> str:
    """A text without some of its words."""
    for start, end in sorted(spans[chosen].tolist(), reverse=True):
        text = text[:start] + text[end:]
    return " ".join(text.split())


def attention(classifier, texts: list[str], spans: list[np.ndarray]) -> list[np.ndarray]:
    """What each word of each text receives of the attention of all tokens."""
    import torch
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "model")
        model = transformers.BertModel.from_pretrained(
            Path(folder) / "model", attn_implementation="eager", add_pooling_layer=False
        ).eval()
    scores = []
    for text, of_words in zip(texts, spans, strict=True):
        encoding = classifier.tokenizer_.encode(text)
        n = min(len(encoding.ids), classifier.max_length_)
        with torch.no_grad():
            found = model(torch.tensor([encoding.ids[:n]]), output_attentions=True).attentions
        received = torch.stack(found).mean(dim=(0, 1, 2, 3)).numpy()
        starts = np.array([offset[0] for offset in encoding.offsets[1 : n - 1]], int)
        word = np.searchsorted(of_words[:, 0], starts, "right") - 1
        scores.append(np.bincount(word, received[1 : n - 1], len(of_words)))
    return scores


def lime(classifier, texts: list[str], words: list[list[str]], numbers: np.ndarray) -> list[np.ndarray]:
    """LIME's weight of each word for the label with this number."""
    from lime.lime_text import LimeTextExplainer

    scores = []
    for text, of_text, number in zip(texts, words, numbers.tolist(), strict=True):
        explainer = LimeTextExplainer(split_expression=lambda _, of_text=of_text: of_text, random_state=0)
        found = explainer.explain_instance(text, classifier.predict_proba, labels=[number], num_features=len(of_text))
        weights = dict(found.as_list(label=number))
        scores.append(np.array([weights.get(word, 0.0) for word in of_text]))
    return scores


def drops(classifier, texts, spans, numbers, scores) -> np.ndarray:
    """By how much the predicted probability of each row's label falls without its highest words.

    Of the first rows, as many as there are texts.
    """
    cut = [
        without(text, of_words, np.argsort(-of_text, kind="stable")[: math.ceil(SHARE * len(of_words))])
        for text, of_words, of_text in zip(texts, spans, scores, strict=False)
    ]
    rows = np.arange(len(texts))
    return (classifier.predict_proba(texts) - classifier.predict_proba(cut))[rows, numbers]


def mean_and_error(name: str, values: np.ndarray) -> dict[str, float]:
    """The mean under a name, and its standard error."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return {name: round(float(values.mean()), 4), f"{name}_se": round(error, 4)}


def one_by_one(classifier, data: str, texts: list[str], labels: np.ndarray) -> dict[str, float]:
    """Seconds of the first call, and of calls with one of the first rows each; the predicted label is explained."""
    start = time.perf_counter()
    classifier.explain(texts[:1], labels[:1])
    first = time.perf_counter() - start
    times, cpu = [], time.process_time()
    for text, label in zip(texts[:ONE_BY_ONE], labels, strict=False):
        start = time.perf_counter()
        classifier.explain([text], [label])
        times.append(time.perf_counter() - start)
    cpu = (time.process_time() - cpu) / len(times)
    print(
        f"{data}: rows one by one: first {first:.2f} s, then median {np.median(times):.2f} s, shortest "
        f"{min(times):.2f} s, longest {max(times):.2f} s, {cpu:.2f} s of CPU time in the mean"
    )
    return {
        "one_row_first_s": round(first, 2), "one_row_s": round(float(np.median(times)), 2),
        "one_row_longest_s": round(max(times), 2),
    }  # fmt: skip


def run(data: str, options: argparse.Namespace) -> Iterator[dict]:
    """The lines of one data set."""
    n_train, n_rows = options.train, options.rows
    import keras

    from kbert import BertClassifier
    from kbert.tasks.explaining import Explainer

    train, rows = read(data, n_train, n_rows)
    classifier = BertClassifier("minilm-l6", epochs=1, random_state=0, verbose=1).fit(train.text, train.label)
    texts = rows.text.tolist()
    probabilities = classifier.predict_proba(texts)
    numbers = probabilities.argmax(axis=1)
    labels = classifier.classes_[numbers]

    backend = keras.backend.backend()
    facts = {
        "accuracy": round(float((labels == rows.label).mean()), 4), "train": n_train, "backend": backend,
        "cores": len(os.sched_getaffinity(0)), "date": datetime.date.today().isoformat(),
        "kbert": version("kbert-learn"), "keras": version("keras"), "backend_version": version(backend),
        "dtype": classifier.model_.dtype_policy.compute_dtype,
    }  # fmt: skip
    of_one_row = one_by_one(classifier, data, texts, labels)
    if options.one_by_one:
        load = round(os.getloadavg()[0], 1)
        yield {"data": data, "method": "explain, one by one", "rows": ONE_BY_ONE, **of_one_row, "load": load, **facts}
        return

    frame = classifier.explain(texts, labels, method="gradient_x_input")
    of_rows = [frame[frame.row == row] for row in range(len(texts))]
    words = [lines.word.tolist() for lines in of_rows]
    spans = [lines[["start", "end"]].to_numpy() for lines in of_rows]

    def explained(n=n_rows, **arguments):
        found = classifier.explain(texts[:n], labels[:n], **arguments)
        return [found.score[found.row == row].to_numpy() for row in range(n)]

    def from_masks():
        tokens = Explainer.tokens
        Explainer.tokens = property(lambda self: tokens.fget(self)._replace(baseline=self.tokenizer.mask_id))
        try:
            return explained()
        finally:
            Explainer.tokens = tokens

    rng = np.random.default_rng(0)
    methods = {
        "explain": explained,
        "explain, gradient x input": lambda: explained(method="gradient_x_input"),
        "attention": lambda: attention(classifier, texts, spans),
        "random words": lambda: [rng.random(len(of_words)) for of_words in spans],
    }
    n_lime, n_shapley = min(options.lime_rows, n_rows), min(options.shapley_rows, n_rows)
    if n_shapley:
        methods["explain, Shapley values"] = lambda: explained(n_shapley, method="shapley")
    methods["explain, from [MASK]"] = from_masks
    if n_lime:  # first, since the others are compared with it
        of_lime = {"LIME": lambda: lime(classifier, texts[:n_lime], words[:n_lime], numbers[:n_lime])}
        methods = of_lime | methods
    methods = {name: of for name, of in methods.items() if name in options.methods}
    lime_drops = np.zeros(0)
    for name, scores_of in methods.items():
        start, cpu = time.perf_counter(), time.process_time()
        scores = scores_of()
        seconds = (time.perf_counter() - start) / len(scores)
        cpu = (time.process_time() - cpu) / len(scores)
        found = drops(classifier, texts[: len(scores)], spans, numbers[: len(scores)], scores)
        if name == "LIME":
            lime_drops = found
        for n in sorted(n for n in {len(scores), n_lime, n_shapley} if 0 < n <= len(scores)):
            line = {"data": data, "method": name, "rows": n, **mean_and_error("drop", found[:n])}
            if n == len(lime_drops) and name != "LIME":
                line |= mean_and_error("minus_lime", found[:n] - lime_drops)
            yield {
                **line, "seconds_a_row": round(seconds, 3), "cpu_seconds_a_row": round(cpu, 3), **of_one_row,
                "load": round(os.getloadavg()[0], 1), **facts,
            }  # fmt: skip


def main() -> None:
    """Run the data sets, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=sorted(_FILES), default=["sst2", "agnews"])
    parser.add_argument("--train", type=int, default=4000, help="rows to train on")
    parser.add_argument("--rows", type=int, default=300, help="rows to explain")
    parser.add_argument("--lime-rows", type=int, default=20, help="of these, those that LIME explains; 0 for none")
    parser.add_argument("--shapley-rows", type=int, default=100, help="those that Shapley values explain; 0 for none")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="default: all")
    parser.add_argument("--one-by-one", action="store_true", help="only the seconds of the first rows, one by one")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    with_lime = "LIME" in options.methods and options.lime_rows and not options.one_by_one
    if with_lime and find_spec("lime") is None:
        parser.error("LIME is not installed. Run: pip install lime, or give --lime-rows 0")
    for data in options.data:
        before = pd.read_csv(options.results) if options.results.exists() else None
        lines = []
        for line in run(data, options):
            print(line, flush=True)
            lines.append(line)
            table = pd.DataFrame(lines)
            if before is not None:
                measured = (before.data == data) & before.method.isin(table.method)
                table = pd.concat([before[~measured], table])
            table.to_csv(options.results, index=False)


if __name__ == "__main__":
    main()
