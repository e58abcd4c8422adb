"""Memory that stays flat over fits and rows, code that is compiled once, and one classifier in many threads."""

import ctypes
import gc
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest

from kbert import BertClassifier, BertConfig, BertEncoder, BertQA, WordPieceTokenizer
from kbert.tasks import texts
from kbert.training import compiled
from kbert.training.backends import backend_step

STATUS = Path("/proc/self/status")
needs_proc = pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc/self/status, which Linux has")

FITS = 14
N_THREADS = 16


def in_new_process(function, *arguments):
    """What a function returns in a process of its own, whose memory no other test has used."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def memory(field):
    """A line of /proc/self/status in MB: VmRSS is the resident memory, VmHWM the highest that it was."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def settled_memory():
    """Resident memory in MB once all that is not needed was given back; the highest begins anew."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        # Then the highest is that of all the process, which is no less.
        pass
    return memory("VmRSS")


# --- Many fits


@pytest.fixture(scope="module")
def large_folder(toy_folder, tmp_path_factory):
    """Weights that are quick to train and take 4 MB, so that a fit that keeps any copy of them is found out."""
    tokenizer = WordPieceTokenizer.from_pretrained(toy_folder)
    values = BertConfig.from_folder(toy_folder).to_dict() | {"vocab_size": 32_000}
    folder = tmp_path_factory.mktemp("large")
    BertEncoder(BertConfig.from_dict(values), dtype="float32", seed=7).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def fit_many_times(folder, texts, labels):
    """Memory after each of many fits, how often each compiled, and which backends were imported."""
    counts, memories = [], []
    step = backend_step()
    if hasattr(step, "compiled"):
        keep = step.compiled

        def counting(key, compile):
            def counted():
                counts[-1] += 1
                return compile()

            return keep(key, counted)

        step.compiled = counting
    for seed in range(FITS):
        counts.append(0)
        classifier = BertClassifier(weights=folder, max_length=16, epochs=1, batch_size=16, random_state=seed)
        classifier.fit(texts, labels).predict(texts)
        del classifier
        gc.collect()
        memories.append(memory("VmRSS"))
    return memories, counts, sorted({"jax", "tensorflow", "torch"} & sys.modules.keys())


@pytest.fixture(scope="module")
def many_fits(large_folder, reviews):
    return in_new_process(fit_many_times, large_folder, reviews.text[:32].tolist(), reviews.label[:32].tolist())


@pytest.mark.compiles
@needs_proc
@pytest.mark.backend
def test_memory_stays_flat_over_many_fits(many_fits):
    memories, *_ = many_fits
    mb_a_fit = np.polyfit(np.arange(5, FITS), memories[5:], 1)[0]
    assert mb_a_fit < 2, memories


@needs_proc
@pytest.mark.backend
def test_only_the_first_of_many_fits_compiles(many_fits):
    _, counts, _ = many_fits
    # The features that the head starts from, a step and a prediction. PyTorch computes without compiling.
    assert counts[0] == (3 if hasattr(backend_step(), "compiled") else 0)
    assert not any(counts[1:])


@needs_proc
@pytest.mark.backend
def test_tensorflow_is_imported_as_the_backend_only(many_fits):
    # Keras imports TensorFlow to serialise this and that, half a gigabyte of it.
    *_, imported = many_fits
    assert ("tensorflow" in imported) == (keras.backend.backend() == "tensorflow")


# --- Many rows


def predict_few_and_many(folder, texts, few, many):
    """The highest memory in MB above that before, and without the result, when predicting few rows and many."""
    classifier = BertClassifier(weights=folder, max_length=32, epochs=1, random_state=0)
    classifier.fit(texts[:32], ["bad", "good"] * 16)
    column = [texts[i % len(texts)] for i in range(many)]
    classifier.predict_proba(column[:few])
    highest = []
    for n_rows in (few, many):
        before = settled_memory()
        result = classifier.predict_proba(column[:n_rows])
        highest.append(memory("VmHWM") - before - result.nbytes / 1e6)
    return highest


@needs_proc
@pytest.mark.thorough
@pytest.mark.slow
def test_predicting_takes_no_more_memory_for_more_rows(toy_folder, reviews):
    # A row costs 0.1 kB, in lists of the texts and arrays of the results. All its tokens would be four times that.
    texts = (reviews.text.str.cat([reviews.text] * 3, sep=" ")).tolist()
    few, many = in_new_process(predict_few_and_many, toy_folder, texts, 20_000, 80_000)
    assert many - few < 15, (few, many)


def answer_few_and_many(folder, few, many):
    """The same of questions about contexts of 1,000 words each."""
    texts.CHUNK_CHARACTERS = 200_000  # so that even few contexts are several chunks
    rng = np.random.default_rng(0)
    words = ["the", "a", "table", "chair", "room", "with", "was", "and", "it", "this"]
    questions = pd.DataFrame(
        {"question": "was it", "context": [" ".join(rng.choice(words, 1000)) for _ in range(many)]}
    )
    answers = pd.DataFrame({"answer": "", "answer_start": -1}, index=range(8))
    answers.loc[0] = [questions.context[0].split()[0], 0]
    qa = BertQA(weights=folder, max_length=64, stride=24, epochs=1, null_threshold=0.0, random_state=0)
    qa.fit(questions[:8], answers).predict(questions[:few])
    highest = []
    for n_rows in (few, many):
        before = settled_memory()
        qa.predict(questions[:n_rows])
        highest.append(memory("VmHWM") - before)
    return highest


@pytest.mark.thorough
@needs_proc
def test_answering_takes_no_more_memory_for_more_contexts(toy_folder):
    # Inputs and outputs of the windows of 320 more contexts would be 40 MB. Allocators keep some room of their own.
    few, many = in_new_process(answer_few_and_many, toy_folder, 80, 400)
    assert many - few < 20, (few, many)


# --- Many threads


@pytest.mark.compiles
@pytest.mark.backend
def test_sixteen_threads_predict_what_one_does(fitted, reviews, monkeypatch):
    # Of several sizes, so that the threads need several shapes; none is compiled, so that they meet there too.
    columns = [reviews.text[: 12 * (i + 1)] for i in range(N_THREADS)]
    monkeypatch.setattr(compiled, "_cache", OrderedDict())
    together = threading.Barrier(N_THREADS)

    def predict(column):
        together.wait()
        return [fitted.predict_proba(column) for _ in range(3)]

    with ThreadPoolExecutor(N_THREADS) as pool:
        found = list(pool.map(predict, columns))
    for column, results in zip(columns, found, strict=True):
        expected = fitted.predict_proba(column)
        assert all(np.array_equal(result, expected) for result in results)
