"""JAX's persistent cache: the next process finds what this one compiled, and trains to the same weights."""

import os
import subprocess
import sys

import keras
import pytest

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="a cache of JAX's: run with KERAS_BACKEND=jax"),
]

PROGRAM = """
import hashlib, sys
from kbert import BertClassifier, BertConfig

config = BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
texts, labels = ["so good", "so bad", "good", "bad"] * 4, [1, 0] * 8
classifier = BertClassifier(config, weights=None, epochs=1, batch_size=4, max_length=16, random_state=0)
classifier.fit(texts, labels).predict(texts)
weights = b"".join(weight.numpy().tobytes() for weight in classifier.model_.weights)
print(hashlib.sha256(weights).hexdigest())
"""


def test_the_next_process_compiles_nothing_and_gives_the_same_weights(tmp_path):
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # toys compile within the second below which nothing is kept
    }

    def run():
        """The sum of the weights, and what the cache then holds."""
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **settings}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, {path.name for path in tmp_path.glob("*-cache")}

    first, kept = run()
    assert any(name.startswith("jit__train-") for name in kept)
    second, then = run()
    assert (first, kept) == (second, then)
