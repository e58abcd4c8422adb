"""What kbert adds to the bare work: one short text, tokenising a column, and the share of the machine's matrix peak.

    KBERT_DATA=... KERAS_BACKEND=jax python benchmarks/overheads.py

minilm-l6, on the backend in use. Each pair is timed in turns, and the medians are compared:

    one text        BertClassifier.predict on one short text, and the model's compiled forward pass alone on its tokens
    tokenising      a column of 20,000 sentences of SST-2, and the `tokenizers` library's own encode_batch_fast
    predicting      1,024 rows of 128 tokens: operations a second over those of a large matrix product in the same dtype
    training        batches of 32 such rows, one epoch of 320 rows after another one, likewise

A line for each is appended to benchmarks/results/overheads.csv.
"""

import argparse
import pickle
import tempfile
import time
from pathlib import Path
from statistics import median

import keras
import numpy as np
import pandas as pd
from results_file import ResultsFile, made_with
from tokenizers import Tokenizer

from kbert import BertClassifier, BertConfig, WordPieceTokenizer, datasets
from kbert.hub import resolve_folder
from kbert.model import BertForSequenceClassification
from kbert.pretraining.rates import flops_per_token, matrix_peak
from kbert.text import build_sequences
from kbert.training.backends import backend_step
from kbert.training.precision import dtype_policy
from kbert.training.predict import batches_for
from kbert.weights import save_sequence_classifier

RESULTS = Path(__file__).parent / "results" / "overheads.csv"
TEXT = "a gripping film, and a very funny one"


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def in_turns(first, second, rounds: int) -> tuple[float, float]:
    """The medians of both, after one round that does not count."""
    found = [(seconds(first), seconds(second)) for _ in range(rounds + 1)][1:]
    return median(a for a, _ in found), median(b for _, b in found)


def classifier() -> BertClassifier:
    """One with minilm-l6's encoder and a head that was not trained."""
    folder = resolve_folder("minilm-l6")
    with tempfile.TemporaryDirectory() as place:
        model = BertForSequenceClassification(BertConfig.from_folder(folder), num_labels=2)
        save_sequence_classifier(model, place, {0: "no", 1: "yes"}, "single_label_classification")
        WordPieceTokenizer.from_pretrained(folder).save(place)
        # The rows of `long_rows` are cut, as in `paper`.
        return BertClassifier.load(place).set_params(max_length=128, long_text="truncate")


def one_text(fitted: BertClassifier) -> tuple[float, float]:
    sequences = build_sequences(fitted.tokenizer_, [TEXT], max_length=128)
    (batch,) = batches_for(fitted.model_, sequences)
    inputs = {tensor.name: batch.inputs[tensor.name] for tensor in fitted.model_.inputs}
    predict = backend_step().predictor(fitted.model_)
    return in_turns(lambda: fitted.predict([TEXT]), lambda: keras.ops.convert_to_numpy(predict(inputs)), 200)


def tokenising(fitted: BertClassifier, texts: list[str]) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as place:
        fitted.tokenizer_.save(place)
        bare = Tokenizer.from_file(str(Path(place) / "tokenizer.json"))
    # Each meets the words for the first time.
    rounds = 5
    fresh = [pickle.loads(pickle.dumps(fitted.tokenizer_)) for _ in range(rounds + 1)]
    return in_turns(
        lambda: fresh.pop().tokenize_column(texts),
        lambda: bare.encode_batch_fast(texts, add_special_tokens=False),
        rounds,
    )


def long_rows(n: int, length: int = 128) -> list[str]:
    """Texts that fill rows of ``length`` tokens."""
    rng = np.random.default_rng(0)
    words = np.array("the a film story is was good bad very long short old new actor plot music".split())
    return [" ".join(row) for row in rng.choice(words, (n, length + 12))]


def store(frame: pd.DataFrame, path: Path) -> None:
    """Append results to a file, and print them, with the backend, the date and the versions."""
    frame = frame.assign(**made_with()).round(4)
    ResultsFile(path).append(*frame.to_dict("records"))
    print(frame.to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ["one text", "tokenising", "predicting", "training"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    only = parser.parse_args().only
    fitted = classifier()
    lines = []
    if "one text" in only:
        lines.append(("one text", "ms", *(1000 * s for s in one_text(fitted))))
    if "tokenising" in only:
        texts = datasets.load("sst2", "train").text[:20_000].tolist()
        lines.append(("tokenising", "s", *tokenising(fitted, texts)))
    dtype = dtype_policy("auto").removeprefix("mixed_")
    peak = matrix_peak(dtype)
    training = flops_per_token(fitted.config_, 128, 0.0, False)
    if "predicting" in only:
        texts = long_rows(1024)
        fitted.predict(texts[:512])
        taken = min(seconds(lambda: fitted.predict(texts)) for _ in range(2))
        lines.append((f"predicting, {dtype}", "GFLOP/s", 1e-9 * training / 3 * 128 * len(texts) / taken, 1e-9 * peak))
    if "training" in only:
        texts = long_rows(320)
        fresh = BertClassifier.paper("minilm-l6", epochs=1, random_state=0)
        fresh.fit(texts, np.arange(len(texts)) % 2)
        taken = seconds(lambda: fresh.fit(texts, np.arange(len(texts)) % 2))
        lines.append((f"training, {dtype}", "GFLOP/s", 1e-9 * training * 128 * len(texts) / taken, 1e-9 * peak))
    frame = pd.DataFrame(lines, columns=["what", "unit", "with kbert", "bare"])
    store(frame.assign(ratio=frame["with kbert"] / frame.bare), RESULTS)


if __name__ == "__main__":
    main()
