"""JAX's persistent cache: the next process finds what this one compiled, and trains to the same weights."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from kbert.model import compile_cache
from kbert.model.compile_cache import COMPILE_CACHE, compile_cache_folder, compiled_or_kept, use_compile_cache

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


def run(folder, **settings):
    """The sum of the weights, and what the cache then holds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **settings}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, {path.name for path in folder.iterdir() if path.name.endswith(("-cache", "-program"))}


def test_the_next_process_compiles_nothing_and_gives_the_same_weights(tmp_path):
    first, kept = run(tmp_path, KBERT_COMPILE_CACHE=str(tmp_path))
    assert any(name.startswith("jit__train-") for name in kept)
    second, then = run(tmp_path, KBERT_COMPILE_CACHE=str(tmp_path))
    assert (first, kept) == (second, then)
    assert sum(name.endswith("-program") for name in kept) >= 2  # of training and of predicting
    # What cannot be read is compiled again.
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    third, _ = run(tmp_path, KBERT_COMPILE_CACHE=str(tmp_path))
    assert third == first


def test_a_folder_that_was_set_for_jax_stays(tmp_path, monkeypatch):
    import jax

    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path / "kbert"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    try:
        use_compile_cache()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ("", None), ("0", None), ("1", "home/kbert/jax"), ("there", "there")]
)
def test_the_folder(value, expected, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(COMPILE_CACHE, raising=False)
    if value is not None:
        monkeypatch.setenv(COMPILE_CACHE, value)
    assert compile_cache_folder() == (None if expected is None else tmp_path / expected)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A function from a key and an array to what the kept program gives for the array, and whether it was compiled."""
    import jax

    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(jax, "device_count", lambda: 1)

    def run(key, array):
        compilations = []

        def compile():
            compilations.append(key)
            return jax.jit(lambda given: {"twice": 2 * given["x"]}).lower({"x": array}).compile()

        found = compiled_or_kept(key, ({"x": array},), compile)({"x": array})["twice"]
        np.testing.assert_array_equal(found, 2 * array)
        return bool(compilations)

    return run


def test_what_a_program_depends_on(program, monkeypatch):
    import jax

    x = np.arange(3, dtype="float32")
    assert program("a", x) and not program("a", x)
    assert program("b", x)  # another key
    assert program("a", np.arange(4, dtype="float32")) and program("a", np.arange(3, dtype="int32"))
    for thing, name, value in (
        (compile_cache, "_source", lambda: "changed"), (compile_cache, "_instructions", lambda: "sse2"),
        (jax, "__version__", "99"), (keras, "__version__", "99"),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(thing, name, value)
            assert program("a", x), name
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") + " ")
    assert program("a", x)


def test_a_damaged_entry_is_compiled_again_and_mended(program, tmp_path):
    x = np.arange(3, dtype="float32")
    for content in (b"", b"no pickle", None):
        program("a", x)
        (path,) = (tmp_path / "cache").glob("*-program")
        path.write_bytes(path.read_bytes()[:-20] if content is None else content)
        assert program("a", x) and not program("a", x)


def test_where_nothing_can_be_written_it_is_compiled(program, tmp_path):
    (tmp_path / "cache").write_text("a file")
    x = np.arange(3, dtype="float32")
    assert program("a", x) and program("a", x)


def test_the_oldest_entries_go(program, tmp_path, monkeypatch):
    x = np.arange(3, dtype="float32")
    program("a", x)
    (path,) = (tmp_path / "cache").glob("*-program")
    monkeypatch.setattr(compile_cache, "_MOST_BYTES", int(3.5 * path.stat().st_size))
    for age, key in enumerate("bc"):
        program(key, x)
        for entry in (tmp_path / "cache").iterdir():
            os.utime(entry, (entry.stat().st_atime, entry.stat().st_mtime - 100 * (2 - age)))
    assert not program("a", x)  # it was used last
    program("d", x)
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert not program("a", x) and not program("c", x) and program("b", x)
