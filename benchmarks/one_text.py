"""One short text at a time, as a service gets them: milliseconds of kbert and of what a user would pick instead.

    KERAS_BACKEND=torch OMP_NUM_THREADS=1 python benchmarks/one_text.py

minilm-l6 with heads that a few updates have trained; texts of nine words, each another one. The contestants take turns,
some texts each, and the median of all of a contestant's texts counts. A line for each is appended to
benchmarks/results/one_text.csv. The peers are PyTorch's: they are left out under another backend.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import keras
from results_file import ResultsFile, made_with

from kbert import BertClassifier, BertTagger, BertVectorizer
from kbert.hub import resolve_folder
from kbert.training.precision import dtype_policy

SIZE = "minilm-l6"
RESULTS = Path(__file__).parent / "results" / "one_text.csv"
TEXTS = ["the delivery is late and nobody answers", "I love this product, thank you"] * 8
LABELS = ["complaint", "praise"] * 8
ROUNDS, TEXTS_OF_A_ROUND = 10, 20


def ours() -> dict[str, Callable[[str], Any]]:
    """Calls of kbert with one text."""

    def classifier(pooling: str) -> BertClassifier:
        model = BertClassifier(SIZE, epochs=1, classifier_pooling=pooling, head_start="random", random_state=0)
        return model.fit(TEXTS, LABELS)

    of_mean, of_cls = classifier("mean"), classifier("cls")
    words = [text.split() for text in TEXTS]
    tags = [["B-X", *["O"] * (len(row) - 1)] for row in words]
    tagger = BertTagger(SIZE, epochs=1, random_state=0).fit(words, tags)
    vectorizer = BertVectorizer(SIZE).fit(TEXTS)
    return {
        "BertClassifier, mean": lambda text: of_mean.predict([text]),
        "BertClassifier, [CLS]": lambda text: of_cls.predict([text]),
        "BertTagger": lambda text: tagger.predict([text]),
        "BertVectorizer": lambda text: vectorizer.transform([text]),
    }


def peers() -> dict[str, Callable[[str], Any]]:
    """Calls of transformers' pipeline and of sentence-transformers, as far as they are installed."""
    import torch
    import transformers

    found: dict[str, Callable[[str], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        BertClassifier.paper(SIZE, epochs=1, random_state=0).fit(TEXTS, LABELS).save(folder)
        for dtype in (torch.float32, torch.bfloat16):
            found[f"pipeline, {str(dtype).removeprefix('torch.')}"] = transformers.pipeline(
                "text-classification", model=folder, dtype=dtype, device="cpu"
            )
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        for dtype in ("float32", "bfloat16"):
            model = SentenceTransformer(str(resolve_folder(SIZE)), device="cpu", model_kwargs={"torch_dtype": dtype})
            found[f"sentence-transformers, {dtype}"] = lambda text, model=model: model.encode(
                text, show_progress_bar=False, convert_to_tensor=True
            )
    return found


def main() -> None:
    """Time all contestants in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    backend = keras.backend.backend()
    contestants = ours() | (peers() if backend == "torch" else {})
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(ROUNDS + 1):
        for name, call in contestants.items():
            for i in range(TEXTS_OF_A_ROUND):
                text = f"where is parcel {number} {i}, please tell me"
                start = time.perf_counter()
                call(text)
                if number:  # the first round compiles
                    seconds[name].append(time.perf_counter() - start)
    results = ResultsFile(options.results, "contestant")
    for name, found in seconds.items():
        dtype = dtype_policy("auto") if name.startswith("Bert") else name.rpartition(", ")[2]
        results.append({"contestant": name, "ms": round(1e3 * median(found), 2), "dtype": dtype, **made_with()})
        print(f"{name:36}{1e3 * median(found):6.2f} ms  {dtype}")


if __name__ == "__main__":
    main()
