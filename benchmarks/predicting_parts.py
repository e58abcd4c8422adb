"""Rows a second that PyTorch predicts on a CPU, with each part that is there for predictions switched off in turns.

    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/predicting_parts.py [--dtype float32] [--rounds 5]

minilm-l6 on 2,000 sentences of SST-2, and on 300 reviews of IMDB cut at 256 tokens, in one process; medians of the
rounds. In float32 attention is PyTorch's own with all parts, too. A line for each part is appended to
benchmarks/results/predicting_parts.csv.
"""

import argparse
import os
import statistics
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import torch
from overheads import store

from kbert import BertClassifier, datasets
from kbert.model import layers_torch
from kbert.training import fused_layers, predict

RESULTS = Path(__file__).parent / "results" / "predicting_parts.csv"


def pytorch_attention(query, key, value, mask):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


# What takes the place of each part.
PARTS = {
    "all parts": [],
    "all batches of one shape": [(predict, "takes_any_shape", lambda: False)],
    "PyTorch's attention": [(layers_torch, "_attended", pytorch_attention)],
    "packed kernels": [(fused_layers, "packed", lambda kernel: kernel)],
    "the operations of training": [(torch, "is_grad_enabled", lambda: True)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sentences = datasets.load("sst2", "train").text[:2000].tolist()
    reviews = pd.read_csv(Path(os.environ["KBERT_DATA"]) / "imdb" / "train.csv.gz").sample(frac=1, random_state=0)
    cases = {"SST-2": (128, sentences), "IMDB": (256, reviews.text[:300].tolist())}
    found: dict[tuple[str, str], list[float]] = {}
    for case, (max_length, texts) in cases.items():
        classifier = BertClassifier.paper(
            "minilm-l6", epochs=1, max_length=max_length, dtype=options.dtype, random_state=0
        ).fit(sentences[:64], [0, 1] * 32)
        classifier.predict(texts)
        for _ in range(options.rounds):
            for part in PARTS:
                with ExitStack() as stack:
                    for change in PARTS[part]:
                        stack.enter_context(patch.object(*change))
                    fused_layers.FusedLayers.forget(classifier.model_)
                    start = time.perf_counter()
                    classifier.predict(texts)
                    found.setdefault((part, case), []).append(len(texts) / (time.perf_counter() - start))
    dtype = classifier.model_.dtype_policy.compute_dtype
    rates = {key: statistics.median(values) for key, values in found.items()}
    lines = [
        {"dtype": dtype, "without": part}
        | {case: round(rates[part, case], 1) for case in cases}
        | {f"{case}, beside all parts": round(rates[part, case] / rates["all parts", case], 2) for case in cases}
        for part in PARTS
    ]
    store(pd.DataFrame(lines), RESULTS)


if __name__ == "__main__":
    main()
