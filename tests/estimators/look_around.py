"""Uses estimators, and writes down what has changed around it. A script, because others change things too.

    python look_around.py <a folder of toy weights> <file for the findings>

The findings are JSON: part of the run -> what is not as it was -> [before, after].
"""

import hashlib
import io
import json
import logging
import os
import random
import signal
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import numpy as np

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.utime"),
    *("os.truncate", "os.putenv", "os.unsetenv", "os.chdir", "subprocess.Popen", "os.system", "socket.connect"),
}

# Python's own files, and Keras's settings.
NOT_KBERTS = ("__pycache__", ".keras")

watched = []


def hook(event, arguments):
    if event == "open":
        path, _, flags = arguments
        # tempfile names its folder first, and then the file.
        if not flags & WRITING or not isinstance(path, str) or path == os.devnull or os.path.isdir(path):
            return
    elif event not in CHANGES:
        return
    text = f"{event} {' '.join(map(str, arguments))}"
    if not any(known in text for known in NOT_KBERTS):
        watched.append(text)


def files(folder):
    """Every file in a folder with its size and time."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if not any(known in str(path) for known in NOT_KBERTS)]
    return [f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in paths]


def logger_state(logger):
    return [logger.level, logger.disabled, logger.propagate, list(map(repr, logger.handlers)), repr(logger.filters)]


def digest(state):
    """A generator's state is long to read."""
    return hashlib.sha256(repr(state).encode()).hexdigest()[:12]


def surroundings(weights):
    """All that nobody expects an estimator to change."""
    state = {
        "files": [file for folder in (*FOLDERS, weights) for file in files(folder)],
        "working folder": os.getcwd(),
        "environment": sorted(f"{name}={value}" for name, value in os.environ.items()),
        "root logger": logger_state(logging.getLogger()),
        "last resort of logging": repr(logging.lastResort),
        "level under which logging is off": logging.root.manager.disable,
        "warning filters": list(map(repr, warnings.filters)),
        "how warnings are shown": repr(warnings.showwarning),
        "random": digest(random.getstate()),
        "numpy.random": digest([part.tolist() if hasattr(part, "tolist") else part for part in np.random.get_state()]),
        "numpy's errors": np.geterr(),
        "numpy's printing": repr(np.get_printoptions()),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "recursion limit": sys.getrecursionlimit(),
        "module search path": list(sys.path),
        "hooks": [repr(hook) for hook in (sys.excepthook, sys.displayhook, threading.excepthook, sys.unraisablehook)],
        "streams": [id(sys.stdout), id(sys.stderr)],
        "signals": [repr(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
        "libraries": sorted({"matplotlib", "seaborn", "transformers", "tensorflow", "torch", "jax"} & set(sys.modules)),
    }
    if "sklearn" in sys.modules:
        state["scikit-learn's configuration"] = repr(sys.modules["sklearn"].get_config())
    if "keras" in sys.modules:
        state |= keras_state()
    if "tensorflow" in sys.modules:
        state |= tensorflow_state()
    if "torch" in sys.modules:
        state |= torch_state()
    if "jax" in sys.modules:
        state["jax's configuration"] = repr(sorted(sys.modules["jax"].config.values.items()))
    return json.loads(json.dumps(state))


def keras_state():
    import keras
    from keras.src.backend.common import global_state
    from keras.src.random.seed_generator import global_seed_generator

    config = keras.config
    return {
        "keras's generator": repr(keras.ops.convert_to_numpy(global_seed_generator().state.value)),
        "keras's seed": global_state.get_global_attribute("global_random_seed"),
        "keras's configuration": [config.floatx(), config.epsilon(), config.image_data_format(), config.backend()],
        "keras's dtype policy": config.dtype_policy().name,
        "keras's interactive logging": config.is_interactive_logging_enabled(),
        "keras's traceback filtering": config.is_traceback_filtering_enabled(),
    }


def tensorflow_state():
    import tensorflow as tf
    from tensorflow.python.eager import context

    eager = context.context()
    return {
        "tensorflow's generator": repr(tf.random.get_global_generator().state.numpy()),
        "tensorflow's seed": [
            repr(eager._seed),
            digest(eager._rng.getstate()) if hasattr(eager, "_rng") else "none yet",
        ],
        "tensorflow's functions run eagerly": tf.config.functions_run_eagerly(),
        "tensorflow's compiler": repr(tf.config.optimizer.get_jit()),
        "tensorflow's logger": logger_state(tf.get_logger()),
        "tensorflow's threads": [
            tf.config.threading.get_inter_op_parallelism_threads(),
            tf.config.threading.get_intra_op_parallelism_threads(),
        ],
    }


def torch_state():
    import torch

    return {
        "torch's generator": digest(torch.get_rng_state().numpy().tobytes()),
        "torch's settings": [
            str(torch.get_default_dtype()),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
        ],
    }


def difference(before, after):
    """What is no longer there, and what is new."""
    if isinstance(before, list) and before != after:
        return [[item for item in before if item not in after], [item for item in after if item not in before]]
    return [before, after]


def look(part, work):
    """Do some work and note what it changed."""
    before = surroundings(TOY)
    watched.clear()
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        work()
    finally:
        (out, err), (sys.stdout, sys.stderr) = (sys.stdout, sys.stderr), streams
    happened = list(watched)
    after = surroundings(TOY)
    changed = {name: difference(before[name], after[name]) for name in before if before[name] != after[name]}
    for name, value in (("printed", out.getvalue()), ("said on stderr", err.getvalue()), ("written", happened)):
        if value:
            changed[name] = ["", value]
    findings[part] = changed


def import_kbert():
    import kbert

    assert kbert.__version__


def import_classifier():
    from kbert import BertClassifier

    assert BertClassifier


def use(estimator, X, y, **fit):
    from sklearn.base import clone

    before = estimator.get_params()
    estimator.fit(X, y, **fit)
    ask(estimator, X)
    assert estimator.score(X, y) <= 1
    clone(estimator)
    after = estimator.get_params()
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)


def ask(estimator, X):
    for method in ("predict", "predict_proba", "decision_function", "entities"):
        if hasattr(estimator, method):
            getattr(estimator, method)(X)


def all_else():
    """What kbert is built upon, which may do what it likes when it is imported and first used."""
    import keras
    import pandas
    import safetensors.numpy
    import scipy.special
    import sklearn.model_selection
    import tokenizers
    import tqdm.auto

    assert all((pandas, safetensors.numpy, scipy.special, sklearn.model_selection, tokenizers, tqdm.auto))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile="auto")
    model.fit(np.zeros((4, 3)), np.zeros((4, 2)), verbose=0)
    model.predict(np.zeros((4, 3)), verbose=0)
    keras_state()  # makes the global generators, where there are none
    if "tensorflow" in sys.modules:
        tensorflow_state()


if __name__ == "__main__":
    TOY, result = Path(sys.argv[1]), Path(sys.argv[2])
    FOLDERS = [os.environ[name] for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")] + [os.getcwd()]
    findings = {}
    sys.addaudithook(hook)
    look("import kbert", import_kbert)
    all_else()
    look("import BertClassifier", import_classifier)

    from kbert import BertClassifier, BertConfig, BertRegressor, BertTagger
    from kbert.errors import KbertWarning

    # How well so small a model learns is another matter.
    warnings.simplefilter("ignore", KbertWarning)
    texts = [f"the {word} table" for word in ("happy", "sad", "great", "awful")] * 10
    labels = ["good", "bad"] * 20
    toy = dict(weights=TOY, max_length=8, epochs=2, batch_size=20, random_state=0)
    small = BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        vocab_size=60,
    )
    look("plan", lambda: BertClassifier(**toy | {"random_state": None}).plan(texts, labels))
    look("fit", lambda: use(BertClassifier(**toy), texts, labels))
    look("early stopping", lambda: use(BertClassifier(**toy, early_stopping=True), texts, labels))
    scratch = dict(toy, weights=None, size=small, dropout=0.3, random_state=None)
    look("a random start", lambda: use(BertClassifier(**scratch), texts, labels, eval_set=(texts, labels)))
    words, tags = [text.split() for text in texts], [["O", "B-SIGN", "O"]] * 40
    tagger, regressor = BertTagger(**toy, early_stopping=True), BertRegressor(**toy)
    look("BertTagger", lambda: use(tagger, words, tags, eval_set=(words, tags)))
    look("BertRegressor", lambda: use(regressor, texts, np.arange(40.0)))
    for estimator, X in ((tagger, words), (regressor, texts)):
        folder = result.parent / type(estimator).__name__
        estimator.save(folder)
        load = partial(type(estimator).load, folder, verify=True)
        look(f"load a {folder.name}", lambda load=load, X=X: ask(load(), X))
    result.write_text(json.dumps(findings), encoding="utf-8")
