"""The same tasks, rows and settings as benchmarks/scores.py with plain PyTorch and transformers, for comparison.

    KBERT_DATA=... python benchmarks/pytorch_scores.py [--task mrpc cola sst2] [--seed 0 1 2]

Dynamic padding with length grouping, AdamW (decay 0.01, not on biases and LayerNorm), warm-up 10%, then linear decay,
clip 1.0. Rows go to the same CSV, under the backend "pytorch-transformers".
"""

import argparse
import time

import numpy as np
import torch
import transformers
from scores import TASKS, append, done, read, result, table

from kbert.hub import resolve_folder

BACKEND = "pytorch-transformers"


def batches(lengths: np.ndarray, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Length grouping as transformers does it: random pools of 50 batches, each sorted by length, batches shuffled."""
    order = rng.permutation(len(lengths))
    pools = [order[start : start + 50 * size] for start in range(0, len(order), 50 * size)]
    ordered = np.concatenate([pool[np.argsort(-lengths[pool], kind="stable")] for pool in pools])
    steps = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    return [steps[i] for i in rng.permutation(len(steps))]


def run(task: str, seed: int) -> dict:
    """Fine-tune and score on dev."""
    texts, label, epochs, _ = TASKS[task]
    train, dev = read(task, "train"), read(task, "dev")
    folder = resolve_folder("minilm-l6")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(seed)
    model = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=2)

    def encode(frame, rows):
        columns = [frame[name].iloc[rows].tolist() for name in texts]
        return tokenizer(*columns, truncation=True, max_length=128, padding=True, return_tensors="pt")

    lengths = np.array([len(ids) for ids in tokenizer(*[train[name].tolist() for name in texts])["input_ids"]])
    targets = torch.tensor(train[label].astype(int).to_numpy())
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], 5e-5, eps=1e-6)
    n_steps = epochs * -(-len(train) // 32)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, n_steps // 10, n_steps)
    rng = np.random.default_rng(seed)
    start = time.perf_counter()
    model.train()
    for _ in range(epochs):
        for rows in batches(lengths, 32, rng):
            model(**encode(train, rows), labels=targets[rows]).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        parts = [np.arange(i, min(i + 64, len(dev))) for i in range(0, len(dev), 64)]
        predicted = np.concatenate([model(**encode(dev, rows)).logits.argmax(-1).numpy() for rows in parts])
    return result(task, seed, BACKEND, torch.__version__, seconds, train, dev, predicted.astype(str))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    for task in options.task:
        for seed in options.seed:
            if (task, seed, BACKEND) not in done():
                append(run(task, seed))
    print(table().to_string(index=False))


if __name__ == "__main__":
    main()
