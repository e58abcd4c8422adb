"""A process that was forked after kbert was used predicts, or says that it cannot; it never waits without end."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from kbert.errors import ForkedProcessError
from kbert.forks import LockOfProcess

pytestmark = [pytest.mark.backend, pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")]

# What a process of its own does: its parent is not to be forked while the tests' own threads run.
PROGRAM = """
import os, sys, warnings
if sys.argv[2] == "torch":
    import torch
    torch.set_num_threads(int(sys.argv[3]))
from kbert import BertClassifier
from kbert.errors import ForkedProcessError

warnings.simplefilter("ignore")
texts, labels = ["a great table", "a sad chair"] * 8, ["good", "bad"] * 8
make = lambda: BertClassifier(weights=sys.argv[1], max_length=16, epochs=1, batch_size=8, random_state=0)

def in_a_child(work):
    if (pid := os.fork()) == 0:
        try:
            work()
        except ForkedProcessError:
            os._exit(1)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

first = in_a_child(lambda: make().fit(texts, labels).predict(texts))
classifier = make().fit(texts, labels)
# A pool pickles the estimator for its workers, and starts another worker where one dies.
from multiprocessing import get_context
with get_context("fork").Pool(1) as pool:
    try:
        pool.map_async(classifier.predict, [texts]).get(timeout=120)
        print("pool 0")
    except ForkedProcessError:
        print("pool 1")
longer = ["chair " * 12]  # JAX has not compiled its length
print(first, in_a_child(lambda: classifier.predict(longer)), in_a_child(lambda: make().fit(texts, labels)))
"""


@pytest.mark.compiles
@pytest.mark.parametrize("n_threads", [2, 1] if keras.backend.backend() == "torch" else [2])
def test_a_forked_process_works_or_is_refused(toy_folder, n_threads):
    backend = keras.backend.backend()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, toy_folder, backend, str(n_threads)],
        env={**os.environ, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": str(n_threads)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    expected = "0 0 0" if backend == "torch" and n_threads == 1 else "0 1 1"
    lines = done.stdout.splitlines()
    assert lines[-1] == expected, done.stderr[-2000:]
    assert lines[-2] == f"pool {expected[2]}", done.stderr[-2000:]


def test_the_error_names_the_ways_that_work(monkeypatch, toy):
    monkeypatch.setattr("kbert.forks._forked_after_use", True)
    if keras.backend.backend() == "torch":
        monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    with pytest.raises(ForkedProcessError, match=r'"spawn"\) or "forkserver", or by "loky"'):
        toy().fit(["a", "b"] * 4, [0, 1] * 4)


def test_an_estimator_that_came_to_such_a_process_goes_on_to_another(monkeypatch, toy):
    fitted = toy().fit(["a", "b"] * 4, [0, 1] * 4)
    with monkeypatch.context() as patch:
        patch.setattr("kbert.forks._forked_after_use", True)
        if keras.backend.backend() == "torch":
            patch.setattr("torch.get_num_threads", lambda: 2)
        held = pickle.loads(pickle.dumps(fitted))
        with pytest.raises(ForkedProcessError):
            held.predict(["a"])
        sent_on = pickle.dumps(copy.deepcopy(held))
    assert np.array_equal(pickle.loads(sent_on).predict_proba(["a"]), fitted.predict_proba(["a"]))


LEARNING = """
import os, signal, threading
from kbert.text import WordPieceTokenizer

tokenizer = WordPieceTokenizer.train(["the cat sat"] * 3, vocab_size=40)
by_library, inside, go_on = tokenizer._known_words._by_library, threading.Event(), threading.Event()

def slowly(words):
    inside.set()
    go_on.wait()
    return by_library(words)

tokenizer._known_words._by_library = slowly
thread = threading.Thread(target=tokenizer.tokenize_column, args=[[f"old{i}" for i in range(10)]])
thread.start()
inside.wait()
if not (child := os.fork()):
    signal.alarm(20)  # a child that waits without end is killed
    tokenizer._known_words._by_library = by_library
    tokenizer.tokenize_column([f"new{i}" for i in range(10)])
    os._exit(0)
go_on.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_tokenises_while_a_thread_of_its_parent_learns_words():
    done = subprocess.run([sys.executable, "-c", LEARNING], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["0"], done.stderr[-2000:]


def test_a_lock_that_another_thread_held_is_free_in_a_child():
    lock = LockOfProcess()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock.__enter__).result()
        if not (child := os.fork()):
            with lock:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        pool.submit(lock.__exit__).result()
