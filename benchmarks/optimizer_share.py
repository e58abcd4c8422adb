"""The optimiser's share of a training step, by batch size, with the whole table of tokens and with those that occur.

    KERAS_BACKEND=jax python benchmarks/optimizer_share.py

A network of minilm-l6's shape, one text of 16 tokens a row, float32; 2,000 sentences of SST-2 hold 4,689 of its 30,522
tokens, for which fine-tuning trains a table of 5,724 rows (kbert/training/trimmed_vocabulary.py). "AdamW" is the update
alone. Its milliseconds are medians of ten, in turns; a line for each is appended to
benchmarks/results/optimizer_share.csv.
"""

from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from overheads import seconds, store

from kbert import BertConfig
from kbert.hub import resolve_folder
from kbert.model import BertForSequenceClassification
from kbert.training.backends import backend_step
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.losses import softmax_cross_entropy
from kbert.training.memory import memory_kept
from kbert.training.step import StepBatch

RESULTS = Path(__file__).parent / "results" / "optimizer_share.csv"
ROWS, ROUNDS, LENGTH = {"all tokens": 30_522, "those that occur": 5_724}, 10, 16


def timed(n_rows: int, batch_size: int):
    """Two functions, each of which waits for what it computes: a step, and an update alone; and the numbers trained."""
    config = BertConfig.from_folder(resolve_folder("minilm-l6")).to_dict() | {"vocab_size": n_rows}
    model = BertForSequenceClassification(BertConfig.from_dict(config), num_labels=2)
    trainer = backend_step().Trainer(model, softmax_cross_entropy)
    n = len(model.trainable_variables)
    ones = np.ones(n, "float32")
    hyper = Hyperparameters(ones * 1e-5, ones * 0.01, *map(np.float32, (0.1, 0.001, 1.0)), np.zeros(2, "uint32"))
    shape = (batch_size, LENGTH)
    inputs = {
        "token_ids": np.random.default_rng(0).integers(0, n_rows, shape, "int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "position_ids": np.broadcast_to(np.arange(LENGTH, dtype="int32"), shape).copy(),
        "text_ids": np.ones(shape, "int32"),
        "first_positions": np.zeros((batch_size, 1), "int32"),
    }
    targets = np.zeros((batch_size, 1), "int32")
    batch = StepBatch(inputs, targets, np.full((batch_size, 1), 1 / batch_size, "float32"))

    def step():
        return float(trainer.train(batch, hyper))

    def update():
        return float(trainer.update(gradients, hyper))

    gradients, _ = trainer.accumulate(batch, hyper)
    return step, update, sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


def main() -> None:
    lines = []
    for batch_size in (8, 32):
        made = {name: timed(n_rows, batch_size) for name, n_rows in ROWS.items()}
        found = {name: [] for name in ROWS}
        with memory_kept():
            for _ in range(ROUNDS + 2):
                for name, (step, update, _) in made.items():
                    found[name].append((1000 * seconds(step), 1000 * seconds(update)))
        for name, (_, _, numbers) in made.items():
            step_ms, update_ms = (median(column) for column in zip(*found[name][2:], strict=True))
            lines.append((batch_size, name, numbers, step_ms, update_ms, update_ms / step_ms))
    columns = ["batch", "table", "numbers trained", "a step, ms", "AdamW, ms", "share"]
    store(pd.DataFrame(lines, columns=columns), RESULTS)


if __name__ == "__main__":
    main()
