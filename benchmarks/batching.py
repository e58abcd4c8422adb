"""Packing against length buckets: the time of one epoch of minilm-l6 on the backend in use, compilation apart.

    KBERT_DATA=... KERAS_BACKEND=jax python benchmarks/batching.py

Every shape that an epoch needs is timed on real rows, the two ways in turn, several rounds; the epoch is the sum over
its steps.
PyTorch needs no compilation, so there buckets are padded to the longest text and no further.
"""

import time
from collections import Counter

import keras
import numpy as np
import pandas as pd
from padding import BATCH_SIZE, MAX_LENGTH, columns, length_buckets

from kbert.config import BertConfig
from kbert.data.batches import TrainingBatches, make_batch
from kbert.data.packing import Layout
from kbert.hub import resolve_folder
from kbert.model import BertForSequenceClassification
from kbert.text import WordPieceTokenizer, build_sequences
from kbert.training.backends import backend_step
from kbert.training.hyperparameters import Hyperparameters, decays_of
from kbert.training.losses import softmax_cross_entropy
from kbert.training.step import StepBatch

ROUNDS = 5


def main() -> None:
    folder = resolve_folder("minilm-l6")
    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    model = BertForSequenceClassification(BertConfig.from_folder(folder), 2)
    trainer = backend_step().Trainer(model, softmax_cross_entropy)
    n_variables = len(model.trainable_variables)
    hyper = Hyperparameters(
        np.full(n_variables, 1e-6, "float32"), np.asarray(decays_of(model, 0.01), "float32"),
        np.float32(0.1), np.float32(0.001), np.float32(1), np.array([1, 2], "uint32"),
    )  # fmt: skip

    def timed(batch) -> float:
        weights = np.where(batch.texts >= 0, np.float32(1 / BATCH_SIZE), np.float32(0))
        start = time.perf_counter()
        float(trainer.train(StepBatch(batch.inputs, np.zeros(batch.texts.shape, "int32"), weights), hyper))
        return time.perf_counter() - start

    rows = []
    for task in ("sst2", "mrpc"):
        sequences = build_sequences(tokenizer, *columns(task), max_length=MAX_LENGTH)
        lengths = sequences.lengths
        packed = next(TrainingBatches(sequences, BATCH_SIZE, 0).epoch(0))
        buckets = length_buckets(lengths, BATCH_SIZE)
        if keras.backend.backend() == "torch":
            # Rounded to 8 only so that not every length is timed.
            buckets = [(texts, -(-int(lengths[texts].max()) // 8) * 8) for texts, _ in buckets]
        steps = Counter(length for _, length in buckets)
        examples = {length: texts for texts, length in buckets if len(texts) == BATCH_SIZE}
        bucketed = {
            length: make_batch(sequences, list(texts[:, None]), Layout(BATCH_SIZE, length, 1))
            for length, texts in examples.items()
        }
        first = {"packed": timed(packed), **{length: timed(batch) for length, batch in bucketed.items()}}
        times: dict = {key: [] for key in first}
        for _ in range(ROUNDS):
            times["packed"].append(timed(packed))
            for length, batch in bucketed.items():
                times[length].append(timed(batch))
        median = {key: float(np.median(values)) for key, values in times.items()}
        n_steps = len(buckets)
        rows.append({
            "backend": keras.backend.backend(), "data": task, "steps": n_steps,
            "packed epoch s": round(median["packed"] * n_steps, 1),
            "packed first step s": round(first["packed"], 1),
            "buckets epoch s": round(sum(median[length] * steps[length] for length in bucketed), 1),
            "buckets first steps s": round(sum(first[length] for length in bucketed), 1),
        })  # fmt: skip
    print(pd.DataFrame(rows).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
