"""Memory of predicting and fitting, and what a second fit in one process costs: on the backend in use, on Linux.

    KERAS_BACKEND=jax python benchmarks/memory.py predict [--rows 1000000]   # short texts
    KERAS_BACKEND=jax python benchmarks/memory.py long [--rows 500 2000]     # texts of 2,000 words, in windows
    KERAS_BACKEND=jax python benchmarks/memory.py tag [--rows 20000]         # the same as lists of words, by the tagger
    KERAS_BACKEND=jax python benchmarks/memory.py answer [--rows 20000]      # the same as contexts of a question
    KERAS_BACKEND=jax python benchmarks/memory.py learn [--rows 100 400]     # one epoch of learning to answer
    KERAS_BACKEND=jax python benchmarks/memory.py fit [--rows 100000 300000] # one epoch on short texts
    KERAS_BACKEND=jax python benchmarks/memory.py fits [--times 50]          # fits in a row, in one process
    KERAS_BACKEND=jax python benchmarks/memory.py calls [--times 900]        # predictions in a row, of any length

The model has the size of BERT-tiny: --weights is a folder of released weights, by default the one that the tests
install (tests/weights.txt). Short texts have 5 to 12 words of its vocabulary, one in ten of them two words written as
one. Everything is measured in a new process for each number of rows, and each line is appended to
benchmarks/results/memory_<what>.csv.

Memory is resident memory as Linux counts it, the pages of the libraries included that are read when they are first
used. "MB above" is the highest during the call, less that just before, when the model is loaded and the texts are made;
when predicting also less the result, and the highest of two calls: on 4,000 rows, which loads and compiles everything,
and on all of them. Where /proc/self/clear_refs cannot be written it is the highest since the process began.
"""

import argparse
import ctypes
import gc
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from results_file import ResultsFile, made_with

RESULTS = Path(__file__).parent / "results"
# Rows that are made or predicted at first, so that neither the texts' making nor compilation is in what follows.
SOME = 4000


# --- Memory


def status(field: str) -> float:
    """A line of /proc/self/status in MB: VmRSS is resident memory, VmHWM the most there was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def settle() -> float:
    """Give back what is not used, and let the highest begin anew; resident memory in MB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass
    return status("VmRSS")


def in_new_process(function, *arguments):
    """The result of a function that is called in a process of its own, which imports everything anew."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


# --- Texts


def words_of(folder: Path) -> np.ndarray:
    """The words of a vocabulary that are written in plain letters."""
    from kbert import WordPieceTokenizer

    vocab = WordPieceTokenizer.from_pretrained(folder).vocab
    return np.array([word for word in vocab if word.isascii() and word.isalpha() and len(word) > 1], dtype=object)


def made_texts(folder: Path, n_rows: int, shortest: int, longest: int) -> list[str]:
    """Texts of random words, made a few at a time, since memory that they take and free would hide what is measured."""
    rng, words, texts = np.random.default_rng(0), words_of(folder), []
    while len(texts) < n_rows:
        for n_words in rng.integers(shortest, longest + 1, min(200, n_rows - len(texts))):
            chosen = rng.choice(words, n_words)
            joined = rng.random(n_words) < 0.1
            chosen[joined] += rng.choice(words, int(joined.sum()))
            texts.append(" ".join(chosen))
    return texts


def classifier_on(folder: Path, **parameters):
    """A classifier on these weights, which trains one epoch."""
    from kbert import BertClassifier

    return BertClassifier.paper(weights=folder, epochs=1, dtype="float32", random_state=0, **parameters)


def save_classifier(weights: Path, folder: Path, parameters: dict) -> None:
    """Write one that was fitted on a few rows."""
    texts = made_texts(weights, 64, 5, 12)
    classifier_on(weights, **parameters).fit(texts, ["no", "yes"] * 32).save(folder)


# --- What is measured, each in a process of its own


def predict(folder: Path, n_rows: int, shortest: int, longest: int) -> dict:
    """The probabilities of a column of texts."""
    from kbert import BertClassifier

    classifier = BertClassifier.load(folder)
    texts = pd.Series(made_texts(folder, n_rows, shortest, longest))
    found = measured(classifier.predict_proba, texts[:SOME], texts, lambda probabilities: probabilities.nbytes)
    return {"MB of text": round(sum(map(len, texts)) / 1e6), **found}


def tagger_on(folder: Path):
    """A tagger on these weights."""
    from kbert import BertTagger

    rows = [["the", "name"], ["of", "it"]] * 16
    tags = [["O", "B-X"], ["O", "O"]] * 16
    tagger = BertTagger.paper(weights=folder, max_length=384, stride=320, epochs=1, dtype="float32", random_state=0)
    return tagger.fit(rows, tags)


def answerer_on(folder: Path):
    """A question answerer on these weights, not fitted."""
    from kbert import BertQA

    parameters = dict(max_length=384, stride=320, epochs=1, null_threshold=0.0, dtype="float32", random_state=0)
    return BertQA.paper(weights=folder, **parameters)


def with_answers(contexts: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Questions about contexts, whose answers are their first words."""
    answers = [context.split(" ", 1)[0] for context in contexts]
    return (
        pd.DataFrame({"question": "what is the first word", "context": contexts}),
        pd.DataFrame({"answer": answers, "answer_start": 0}),
    )


def measured(predict, few, many, n_bytes) -> dict:
    """Memory of two calls, on a few rows and on all, above that before and, for all, without their result."""
    before = settle()
    predict(few)
    first = status("VmHWM") - before
    settle()
    start = time.perf_counter()
    results = predict(many)
    seconds = time.perf_counter() - start
    above = status("VmHWM") - before - n_bytes(results) / 1e6
    return {
        "rows": len(many), "MB of results": round(n_bytes(results) / 1e6, 1), "MB above": round(max(first, above)),
        "first rows": round(first), "all rows": round(above), "seconds": round(seconds),
    }  # fmt: skip


def tag(weights: Path, n_rows: int) -> dict:
    """The tags of rows of 2,000 words."""
    tagger = tagger_on(weights)
    rows = [text.split(" ") for text in made_texts(weights, n_rows, 2000, 2000)]
    # A list of lists of pointers to a few strings.
    return measured(tagger.predict, rows[: SOME // 40], rows, lambda found: sum(map(sys.getsizeof, found)))


def answer(weights: Path, n_rows: int) -> dict:
    """The answers to questions about contexts of 2,000 words."""
    questions, answers = with_answers(made_texts(weights, n_rows, 2000, 2000))
    qa = answerer_on(weights).fit(questions[:32], answers[:32])
    return measured(qa.predict, questions[: SOME // 40], questions, lambda found: sum(map(sys.getsizeof, found)))


def learn(weights: Path, n_rows: int) -> dict:
    """One epoch of the question answerer on contexts of 2,000 words."""
    questions, answers = with_answers(made_texts(weights, n_rows, 2000, 2000))

    def learned(n):
        answerer_on(weights).fit(questions[:n], answers[:n])

    learned(64)
    before = settle()
    start = time.perf_counter()
    learned(n_rows)
    seconds = time.perf_counter() - start
    return {"rows": n_rows, "MB above": round(status("VmHWM") - before, 1), "seconds": round(seconds)}


def fit(weights: Path, n_rows: int) -> dict:
    """One epoch."""
    texts, labels = made_texts(weights, n_rows, 5, 12), np.arange(n_rows) % 2
    classifier = classifier_on(weights)
    # So that the libraries are loaded and the step is compiled: with every word, since the table has those that occur.
    words = words_of(weights)
    few = texts[:SOME] + [" ".join(some) for some in np.array_split(words, len(words) // 9)]
    classifier.fit(few, np.arange(len(few)) % 2)
    before = settle()
    start = time.perf_counter()
    classifier.fit(texts, labels)
    seconds = time.perf_counter() - start
    return {"rows": n_rows, "MB above": round(status("VmHWM") - before, 1), "seconds": round(seconds)}


class CompileTimes:
    """How long the compiled functions took to make: the calls that make them, and what the first run takes besides.

    TensorFlow compiles in the first run.
    """

    def __init__(self):
        self.made, self.making, self.runs = 0, 0.0, defaultdict(list)
        from kbert.training.backends import backend_step

        step = backend_step()
        if hasattr(step, "compiled"):
            self.compiled, step.compiled = step.compiled, self

    def __call__(self, key, compile):
        def timed_compile():
            start = time.perf_counter()
            function = compile()
            self.making += time.perf_counter() - start
            self.made += 1
            return function

        function = self.compiled(key, timed_compile)

        def timed(*arguments):
            start = time.perf_counter()
            result = function(*arguments)
            self.runs[key].append(time.perf_counter() - start)
            return result

        return timed

    def take(self) -> tuple[int, float]:
        """How many were made and the seconds it took, since the last time this was asked."""
        first_runs = sum(max(0, times[0] - float(np.median(times[1:]))) for times in self.runs.values() if times[1:])
        result = self.made, self.making + first_runs
        self.made, self.making, self.runs = 0, 0.0, defaultdict(list)
        return result


def fits(weights: Path, times: int) -> dict:
    """Fits of one shape, each of a new classifier and with a prediction after it."""
    texts, labels = made_texts(weights, 512, 8, 8), np.arange(512) % 2
    compiling = CompileTimes()
    memory, seconds, made, compile_seconds = [], [], [], []
    for _ in range(times):
        start = time.perf_counter()
        classifier_on(weights).fit(texts, labels).predict(texts)
        seconds.append(time.perf_counter() - start)
        n_made, making = compiling.take()
        made.append(n_made)
        compile_seconds.append(making)
        gc.collect()
        memory.append(status("VmRSS"))
        print(f"{memory[-1]:.1f} MB, {seconds[-1]:.2f} s, compiled {made[-1]} in {making:.2f} s", flush=True)
    slope = np.polyfit(np.arange(5, times), memory[5:], 1)[0]
    return {
        "fits": times, "first fit s": round(seconds[0], 2), "later fits s": round(float(np.median(seconds[1:])), 2),
        "compiled in the first": made[0], "compiled later": sum(made[1:]),
        "first compile s": round(compile_seconds[0], 2),
        "later compile s": round(float(np.mean(compile_seconds[1:])), 3),
        "MB after 1": round(memory[0]), "MB after 5": round(memory[4]), "MB at the end": round(memory[-1]),
        "MB a fit after 5": round(slope, 3),
    }  # fmt: skip


def calls(weights: Path, times: int) -> dict:
    """Predictions of one to five texts of 1 to 500 words, as a service gets them."""
    from kbert import BertVectorizer
    from kbert.training.compiled import _cache

    rng, words = np.random.default_rng(0), words_of(weights)
    vectorizer = BertVectorizer(weights=weights, max_length=512, dtype="float32").fit(["a"])
    vectorizer.transform(["a"])
    memory, shapes = [settle()], [len(_cache)]
    for number in range(1, times + 1):
        texts = [" ".join(rng.choice(words, n_words)) for n_words in rng.integers(1, 501, rng.integers(1, 6))]
        vectorizer.transform(texts)
        if number % (times // 3) == 0:
            memory.append(settle())
            shapes.append(len(_cache))
            print(f"{number} calls, {memory[-1]:.0f} MB, {shapes[-1]} shapes", flush=True)
    return {
        "calls": times, "MB after 1": round(memory[0]), "after a third": round(memory[1]),
        "after two thirds": round(memory[2]), "after all": round(memory[3]),
        "compiled shapes": " ".join(map(str, shapes)),
        "MB a shape": round((memory[3] - memory[0]) / (shapes[3] - shapes[0]), 1) if shapes[3] else "",
    }  # fmt: skip


def main() -> None:
    package = find_spec("cognition")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "long", "tag", "answer", "learn", "fit", "fits", "calls"])
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--times", type=int, help="50 fits, 900 calls")
    parser.add_argument(
        "--weights", type=Path, default=package and Path(package.submodule_search_locations[0], "model")
    )
    arguments = parser.parse_args()
    if arguments.times is not None and arguments.times < 10:
        parser.error(f"--times is {arguments.times}: the memory of fewer than 10 says nothing")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what in ("predict", "long"):
            parameters = {"long_text": "window"} if arguments.what == "long" else {}
            in_new_process(save_classifier, arguments.weights, Path(folder, "saved"), parameters)
            shortest, longest, rows = (2000, 2000, [500, 2000]) if parameters else (5, 12, [1_000_000])
            runs = [(predict, Path(folder, "saved"), n, shortest, longest) for n in arguments.rows or rows]
        elif arguments.what in ("tag", "answer", "learn"):
            function = {"tag": tag, "answer": answer, "learn": learn}[arguments.what]
            rows = [100, 400] if function is learn else [20_000]
            runs = [(function, arguments.weights, n) for n in arguments.rows or rows]
        elif arguments.what == "fit":
            runs = [(fit, arguments.weights, n) for n in arguments.rows or [100_000, 300_000]]
        elif arguments.what == "fits":
            runs = [(fits, arguments.weights, arguments.times or 50)]
        else:
            runs = [(calls, arguments.weights, arguments.times or 900)]
        for run in runs:
            found = {**in_new_process(*run), **made_with()}
            ResultsFile(RESULTS / f"memory_{arguments.what}.csv").append(found)
            print(found, flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
