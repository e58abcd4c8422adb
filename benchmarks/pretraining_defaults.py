"""BertPretrainer from scratch with nothing but a size and a time: how far is it below the entropy of the frequencies?

    KBERT_DATA=... KERAS_BACKEND=jax python benchmarks/pretraining_defaults.py --seconds 600 --out results.csv

It reads one file of Wikipedia, or ``--files`` of them. The masked-LM loss is that of the first 50 documents of the last
file, which is not trained on, under masks of 15%, in rows as long as the longest of training and in rows of 64 tokens;
beside it stands that of a model which knows only how often each piece occurs.
"""

import argparse
import ast
import itertools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from results_file import ResultsFile, made_with

from kbert import BertPretrainer
from kbert.pretraining import Corpus
from kbert.pretraining.evaluation import held_out_batches, held_out_scores
from kbert.pretraining.instances import Documents
from kbert.pretraining.masking import Masking
from kbert.pretraining.recipe import SCORED_MASK_RATE
from kbert.pretraining.shards import tokenised

HELD_OUT_DOCUMENTS = 50
SHORT_ROWS = 64


def value_of(text: str) -> Any:
    """A parameter's value, as Python writes it; "32:0.9,256:0.1" are the lengths of phases with their shares."""
    if ":" in text:
        return [(int(length), float(share)) for length, share in (phase.split(":") for phase in text.split(","))]
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def main() -> None:
    """Pre-train, score, and add a line to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="parameters that are not the default"
    )
    parser.add_argument("--out", type=Path, default=Path("pretraining_defaults.csv"))
    options = parser.parse_args()
    results = ResultsFile(options.out)
    files = sorted(Path(os.environ["KBERT_DATA"], "wiki_en").glob("*.txt*"))
    held_out = Corpus(list(itertools.islice(Corpus(files[-1]), HELD_OUT_DOCUMENTS)))
    parameters = {name: value_of(text) for name, text in (pair.split("=") for pair in options.set)}

    begin = time.perf_counter()
    training = Corpus(files[: options.files])
    pretrainer = BertPretrainer(
        options.size, weights=None, max_seconds=options.seconds, random_state=0, verbose=1, **parameters
    )
    pretrainer.fit(training)
    elapsed = time.perf_counter() - begin
    (documents,) = tokenised(held_out, pretrainer.tokenizer_)
    loss = masked_lm_loss(pretrainer, documents, pretrainer.max_length_)
    loss_on_short_rows = masked_lm_loss(pretrainer, documents, SHORT_ROWS)
    frequencies = loss_of_frequencies(pretrainer, training, documents)
    line = {
        "size": options.size,
        "settings": " ".join(options.set) or "default",
        "files": options.files,
        "seconds": options.seconds,
        "fit_s": round(elapsed, 1),
        "updates": pretrainer.n_iter_,
        "tokens": int(pretrainer.history_["tokens"][-1]),
        "pieces": pretrainer.tokenizer_.vocab_size,
        "mlm_loss": round(loss, 4),
        "mlm_loss_64": round(loss_on_short_rows, 4),
        "loss_of_frequencies": round(frequencies, 4),
        "output_bias": "frequencies",
        "cores": len(os.sched_getaffinity(0)),
        **made_with(),
    }
    results.append(line)
    print(line)


def masked_lm_loss(pretrainer: BertPretrainer, held_out: Documents, max_length: int) -> float:
    """Nats for a masked token in rows of ``max_length``, under masks of 15% whatever training had."""
    tokenizer = pretrainer.tokenizer_
    masking = Masking(tokenizer, SCORED_MASK_RATE)
    scores = held_out_scores(pretrainer.model_, tokenizer, held_out, masking, pretrainer.batch_size_, max_length)
    return scores["mlm_loss"]


def loss_of_frequencies(pretrainer: BertPretrainer, training: Corpus, held_out: Documents) -> float:
    """Nats for a masked token, of who knows only how often each piece occurs in the training text."""
    tokenizer = pretrainer.tokenizer_
    counts = np.ones(tokenizer.vocab_size)  # one each more, so that none has probability 0
    for documents in tokenised(training, tokenizer):
        counts += np.bincount(documents.tokens, minlength=len(counts))
    losses = -np.log(counts / counts.sum())
    masking = Masking(tokenizer, SCORED_MASK_RATE)
    batches = held_out_batches(tokenizer, held_out, masking, pretrainer.batch_size_, pretrainer.max_length_, False)
    masked = [batch.targets["mlm"][batch.weights["mlm"] > 0] for batch in batches]
    return float(losses[np.concatenate(masked)].mean())


if __name__ == "__main__":
    main()
