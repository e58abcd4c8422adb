"""SQuAD with plain PyTorch and transformers, on the same rows and at the same settings as examples/squad.py.

    KBERT_DATA=... python benchmarks/pytorch_squad.py --rows 10000 --epochs 2 --seeds 0

minilm-l6, batch 32, learning rate 5e-5, windows of 384 tokens that start 128 apart, dynamic padding with length
grouping, AdamW (decay 0.01, not on biases and LayerNorm), 10% warm-up, then linear decay, clip 1.0, bfloat16 where that
is faster. Answers are read off the logits as in transformers' run_qa.py: the best 20 starts with the best 20 ends of
each window, at most 30 pieces. Runs go to the same CSV as kbert's, under the backend "pytorch-transformers", and are
not made twice. 1.1 only.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from pytorch_loop import DEVICE, prepared
from pytorch_loop import train as train_model

from kbert.hub import resolve_folder
from kbert.metrics import squad_scores

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import squad

RESULTS = Path(__file__).parent / "results" / "squad.csv"
N_BEST, LONGEST = 20, 30


def windows(tokenizer, frame: pd.DataFrame, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The windows of all questions: ids, segments, the question's number, and each piece's place in the context."""
    questions = [question.lstrip() for question in frame.question]
    shortened = tokenizer.batch_decode(
        [ids[:64] for ids in tokenizer(questions, add_special_tokens=False)["input_ids"]]
    )
    # transformers counts the overlap, and the room for the context depends on the question.
    result = []
    for number, (question, whole, context) in enumerate(zip(questions, shortened, frame.context, strict=True)):
        n_question = len(tokenizer(question, add_special_tokens=False)["input_ids"])
        question = question if n_question <= 64 else whole
        room = run["max_length"] - 3 - min(n_question, 64)
        encoded = tokenizer(
            question, context, truncation="only_second", max_length=run["max_length"], return_overflowing_tokens=True,
            stride=max(0, room - run["stride"]), return_offsets_mapping=True,
        )  # fmt: skip
        for i, ids in enumerate(encoded["input_ids"]):
            offsets = [
                place if of == 1 else None
                for place, of in zip(encoded["offset_mapping"][i], encoded.sequence_ids(i), strict=True)
            ]
            result.append({"number": number, "ids": ids, "segments": encoded["token_type_ids"][i], "offsets": offsets})
    return result


def target(window: dict[str, Any], start: int, end: int) -> tuple[int, int]:
    """The answer's first and last token in a window, or the first token twice."""
    inside = [i for i, place in enumerate(window["offsets"]) if place and place[1] > start and place[0] < end]
    first, last = window["offsets"][inside[0]] if inside else None, window["offsets"][inside[-1]] if inside else None
    return (inside[0], inside[-1]) if inside and first[0] <= start and last[1] >= end else (0, 0)


def inputs_of(some: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Padded to the longest."""
    longest = max(len(window["ids"]) for window in some)
    padded = {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    for window in some:
        room = [0] * (longest - len(window["ids"]))
        padded["input_ids"].append(window["ids"] + room)
        padded["token_type_ids"].append(window["segments"] + room)
        padded["attention_mask"].append([1] * len(window["ids"]) + room)
    return {name: torch.tensor(rows, device=DEVICE) for name, rows in padded.items()}


def fit(run: dict[str, Any], train: pd.DataFrame) -> tuple:
    """The fine-tuned model and its tokenizer."""
    folder = resolve_folder(run["size"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(run["seed"])
    model = prepared(transformers.BertForQuestionAnswering.from_pretrained(folder))
    examples = windows(tokenizer, train, run)
    starts, ends = train.answer_start.to_numpy(), train.answer_start.to_numpy() + train.answer.str.len().to_numpy()
    targets = np.array([target(window, starts[window["number"]], ends[window["number"]]) for window in examples])
    lengths = np.array([len(window["ids"]) for window in examples])

    def loss(rows: np.ndarray) -> torch.Tensor:
        first, last = torch.tensor(targets[rows].T, device=DEVICE)
        return model(**inputs_of([examples[i] for i in rows]), start_positions=first, end_positions=last).loss

    return train_model(model, lengths, run, loss), tokenizer


def predict(model, tokenizer, dev: pd.DataFrame, run: dict[str, Any]) -> list[str]:
    """The best span of each question."""
    examples = windows(tokenizer, dev, run)
    best = [(-np.inf, "")] * len(dev)
    contexts = dev.context.tolist()
    order = np.argsort([len(window["ids"]) for window in examples])
    for at in range(0, len(order), 32):
        some = [examples[i] for i in order[at : at + 32]]
        with torch.no_grad():
            output = model(**inputs_of(some))
        for window, starting, ending in zip(
            some, output.start_logits.float().cpu().numpy(), output.end_logits.float().cpu().numpy(), strict=True
        ):
            places = window["offsets"]
            for i in np.argsort(-starting)[:N_BEST]:
                for j in np.argsort(-ending)[:N_BEST]:
                    score = starting[i] + ending[j]
                    number = window["number"]
                    if i <= j < min(i + LONGEST, len(places)) and places[i] and places[j] and score > best[number][0]:
                        best[number] = (score, contexts[number][places[i][0] : places[j][1]])
    return [answer for _, answer in best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--dev-rows", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    train, dev = squad.load("1.1", options.rows, options.dev_rows)
    device = "gpu" if DEVICE == "cuda" else "cpu"
    fixed = ("1.1", "pytorch-transformers", device, "minilm-l6", "auto", 384, 128)
    for seed in options.seeds:
        values = (*fixed, len(train), len(dev), options.epochs, 32, 5e-5)
        run = {**dict(zip(squad.SETTING, values, strict=True)), "seed": seed}
        if squad.find(options.results, run):
            continue
        times = [time.perf_counter()]
        fitted = fit(run, train)
        times.append(time.perf_counter())
        answers = predict(*fitted, dev, run)
        times.append(time.perf_counter())
        fit_s, predict_s = np.diff(times).round().astype(int)
        scores = squad_scores(dev.answer.tolist(), answers)
        squad.append(options.results, run, {**scores, "fit_s": fit_s, "predict_s": predict_s}, torch.__version__)
    print(squad.table(squad.read(options.results)).to_string(index=False))


if __name__ == "__main__":
    main()
