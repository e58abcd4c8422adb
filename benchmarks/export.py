"""An estimator and its exports: rows a second, the time for one text, and how far the answers of int8 are off.

    KBERT_DATA=... KERAS_BACKEND=torch OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/export.py
    KBERT_DATA=... KERAS_BACKEND=torch python benchmarks/export.py --agreement 5

minilm-l6, trained for one epoch on 2,000 rows of SST-2, predicts its dev set, on one core. "int8" is calibrated on 300
other rows. Answers are compared with the exported float32 model's. kbert loads the exports; OpenVINO computes what is
not int8 in bfloat16 where the processor has instructions for that, and so does kbert with PyTorch. A
program without kbert runs them too, under ONNX Runtime: texts are tokenised with the library tokenizers, sorted by
length, and padded, 32 rows at a time. All are timed in turn, several rounds, in seconds of the processor; tokenising is
included.

With ``--agreement``, as many classifiers are trained on other rows each, and only the share of int8's labels that are
those of float32 is printed.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pandas as pd
from tokenizers import Tokenizer

from kbert import BertClassifier
from kbert.weights.runtimes import RUNTIMES

ROWS, CALIBRATING, BATCH, ROUNDS, SINGLE = 2000, 300, 32, 3, 40


def read(part: str) -> pd.DataFrame:
    path = Path(os.environ["KBERT_DATA"]) / "sst2" / f"{part}.tsv.gz"
    return pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE)


def program(folder: Path):
    """A function from texts to probabilities, as one writes it who does not have kbert."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])

    def predict(texts: list[str]) -> np.ndarray:
        order = np.argsort([len(text) for text in texts])
        results = np.empty((len(texts), 2), "float32")
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            rows = tokenizer.encode_batch([texts[i] for i in some])
            inputs = {
                "input_ids": np.array([row.ids for row in rows]),
                "attention_mask": np.array([row.attention_mask for row in rows]),
                "token_type_ids": np.array([row.type_ids for row in rows]),
            }
            (results[some],) = session.run(["probabilities"], inputs)
        return results

    return predict


def seconds(function, argument) -> float:
    """Of the processor, which is what the clock says where nothing else runs."""
    begin = time.process_time()
    function(argument)
    return time.process_time() - begin


def first_answer(folder: str, runtime: str) -> float:
    """Seconds from the start of Python to the first answer, the best of three."""
    answer = f"BertClassifier.load({folder!r}, runtime={runtime!r}).predict(['good'])"
    code = f"from kbert import BertClassifier; print({answer}, flush=True)"
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            if not process.stdout.readline():
                raise SystemExit(f"{folder} gave no answer under {runtime}")
            found.append(time.perf_counter() - begin)
    return min(found)


def trained(seed: int) -> tuple[BertClassifier, list[str]]:
    """A classifier, and the rows to calibrate on."""
    train = read("train").sample(ROWS, random_state=seed)
    others = read("train").drop(train.index).sentence.sample(CALIBRATING, random_state=seed).tolist()
    return BertClassifier.paper("minilm-l6", epochs=1, random_state=seed).fit(train.sentence, train.label), others


def agreement(n: int) -> None:
    texts, found = read("dev").sentence.tolist(), []
    for seed in range(n):
        classifier, others = trained(seed)
        with tempfile.TemporaryDirectory() as place:
            exact, small = Path(place) / "float32", Path(place) / "int8"
            classifier.export(exact)
            classifier.export(small, X=others, quantize="int8")
            labels = BertClassifier.load(exact, runtime="onnxruntime").predict(texts)
            for name in filter(find_spec, RUNTIMES):
                equal = BertClassifier.load(small, runtime=name).predict(texts) == labels
                found.append({"runtime": name, "equal": 100 * equal.mean()})
    shares = pd.DataFrame(found).groupby("runtime").equal
    print(f"percent of {len(texts)} labels that int8 has as float32 does, {n} classifiers")
    print(shares.agg(["mean", "std", "min", "max"]).round(2).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agreement", type=int, metavar="N", help="train N classifiers, and time nothing")
    options = parser.parse_args()
    if options.agreement:
        agreement(options.agreement)
        return
    dev = read("dev")
    texts, truth = dev.sentence.tolist(), dev.label.to_numpy()
    classifier, others = trained(0)
    programs, lines = {f"kbert, {keras.backend.backend()}": (classifier.predict_proba, None)}, []
    runtimes = [name for name in RUNTIMES if find_spec(name)]
    starts = {}
    with tempfile.TemporaryDirectory() as place:
        saved = str(Path(place) / "saved")
        classifier.save(saved)
        starts[next(iter(programs))] = first_answer(saved, "auto")
        for quantize in (None, "int8_dynamic", "int8"):
            name = quantize or "float32"
            folder = Path(place) / name
            classifier.export(folder, X=others, quantize=quantize)
            size = (folder / "model.onnx").stat().st_size / 1e6
            programs[f"program, onnxruntime, {name}"] = program(folder), size
            for runtime in runtimes:
                key = f"exported, {runtime}, {name}"
                programs[key] = BertClassifier.load(folder, runtime=runtime).predict_proba, size
                starts[key] = first_answer(str(folder), runtime)
    times = {name: ([], []) for name in programs}
    for _ in range(ROUNDS):
        for name, (predict, *_) in programs.items():
            times[name][0].append(len(texts) / seconds(predict, texts))
            times[name][1].append(np.median([seconds(predict, [text]) for text in texts[:SINGLE]]))
    exact = programs["program, onnxruntime, float32"][0](texts)
    for name, (predict, size) in programs.items():
        found = predict(texts)
        lines.append({
            "": name,
            "MB": "" if size is None else round(size),
            "rows/s": round(float(np.median(times[name][0]))),
            "one, ms": round(1e3 * float(np.median(times[name][1])), 1),
            "accuracy": f"{(found.argmax(axis=1) == truth).mean():.4f}",
            "off by": f"{np.abs(found - exact).max():.1e}",
            "equal": f"{(found.argmax(axis=1) == exact.argmax(axis=1)).mean():.2%}",
            "first, s": "" if name not in starts else f"{starts[name]:.1f}",
        })  # fmt: skip
    print(f"{len(texts)} rows, one core, seconds of the processor; the median of {ROUNDS} rounds")
    print(pd.DataFrame(lines).to_string(index=False))


if __name__ == "__main__":
    main()
