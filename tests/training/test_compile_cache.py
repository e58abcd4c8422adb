"""The backend's persistent cache: the next process finds what this one compiled, and trains to the same weights."""

import os
import subprocess
import sys

import keras
import pytest

from kbert.model.compile_cache import COMPILE_CACHE, compile_cache_folder, use_compile_cache

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(
        keras.backend.backend() == "torch", reason="PyTorch compiles nothing: run with KERAS_BACKEND=jax"
    ),
]
of_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="a cache of JAX's: run with KERAS_BACKEND=jax")
of_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="a cache of TensorFlow's: run with KERAS_BACKEND=tensorflow"
)
ENTRIES = {"jax": "*-cache", "tensorflow": "*/*.pb"}.get(keras.backend.backend(), "")

PROGRAM = """
import hashlib, sys
from kbert import BertClassifier, BertConfig

config = BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
texts, labels = ["so good", "so bad", "good", "bad"] * 4, [1, 0] * 8
values = dict(epochs=1, batch_size=4, max_length=16, head_start="random", random_state=0)
classifier = BertClassifier(config, weights=None, **values)
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
    return done.stdout, {path.name for path in folder.glob(ENTRIES)}


@pytest.mark.compiles
def test_the_next_process_compiles_nothing_and_gives_the_same_weights(tmp_path):
    first, kept = run(tmp_path, KBERT_COMPILE_CACHE=str(tmp_path))
    assert len(kept) > 1 and (keras.backend.backend() != "jax" or any(n.startswith("jit__train-") for n in kept))
    # One program cannot be read, and is compiled again.
    damaged, *whole = sorted(tmp_path.glob(ENTRIES), key=lambda path: -path.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    is_jax = keras.backend.backend() == "jax"
    # JAX notes beside a program when it was last found. TensorFlow would write anew what it did not find.
    watched = [path.with_name(path.name.removesuffix("-cache") + "-atime") for path in whole] if is_jax else whole
    before = [path.stat().st_mtime_ns for path in watched]
    second, then = run(tmp_path, KBERT_COMPILE_CACHE=str(tmp_path))
    assert (first, kept) == (second, then)
    touched = [path.stat().st_mtime_ns > time for path, time in zip(watched, before, strict=True)]
    assert all(touched) if is_jax else not any(touched)


# What `use_compile_cache` may change.
_OF_JAX = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@of_jax
def test_what_a_killed_process_left_is_made_anew(tmp_path, monkeypatch):
    import jax

    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path))
    before = {name: getattr(jax.config, name) for name in _OF_JAX}
    for name, is_old, is_whole in (("torn", True, False), ("whole", True, True), ("being written", False, False)):
        entry = tmp_path / f"{name}-cache"
        entry.write_bytes(b"half")
        if is_whole:
            (tmp_path / f"{name}-atime").write_bytes(bytes(8))
        if is_old:
            os.utime(entry, (0, 0))
    try:
        use_compile_cache()
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert {path.name for path in tmp_path.glob("*-cache")} == {"whole-cache", "being written-cache"}


@of_jax
def test_without_a_bound_jax_keeps_no_times_and_no_program_is_removed(tmp_path, monkeypatch):
    import jax

    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "-1")
    before = {name: getattr(jax.config, name) for name in _OF_JAX}
    jax.config.update("jax_compilation_cache_max_size", -1)  # as JAX reads the variable
    (tmp_path / "whole-cache").write_bytes(b"whole")
    os.utime(tmp_path / "whole-cache", (0, 0))
    try:
        use_compile_cache()
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert (tmp_path / "whole-cache").exists()


@of_jax
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


@of_tensorflow
def test_the_oldest_programs_of_tensorflow_go_first(tmp_path, monkeypatch):
    import tensorflow

    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path))
    monkeypatch.setattr("kbert.model.compile_cache._MOST_BYTES", 25)
    folder = tmp_path / tensorflow.__version__
    folder.mkdir()
    for age, name in enumerate(("new", "newer than old", "old")):
        (folder / f"{name}.pb").write_bytes(b"\n\x08" + bytes(8))
        os.utime(folder / f"{name}.pb", (1e9 - age, 1e9 - age))
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_max_cluster_size=9")
    use_compile_cache()
    assert {path.stem for path in folder.glob("*.pb")} == {"new", "newer than old"}
    flags = os.environ["TF_XLA_FLAGS"].split()
    assert flags[0] == "--tf_xla_max_cluster_size=9" and flags[1].endswith(str(folder)) and len(flags) == 3
    use_compile_cache()  # what is set stays
    assert os.environ["TF_XLA_FLAGS"].split() == flags


@of_tensorflow
def test_what_a_killed_process_was_writing_is_removed(tmp_path, monkeypatch):
    import tensorflow

    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    folder = tmp_path / tensorflow.__version__
    folder.mkdir()
    for name in ("killed.pb.tmp", "being written.pb.tmp"):
        (folder / name).touch()
    os.utime(folder / "killed.pb.tmp", (1e9, 1e9))
    use_compile_cache()
    assert [path.name for path in folder.iterdir()] == ["being written.pb.tmp"]


@of_tensorflow
@pytest.mark.parametrize("name", ["a folder", "file/folder", "may not be written"])
def test_a_folder_that_tensorflow_cannot_use_is_none(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("no folder")
    if name == "may not be written":  # root may write everywhere
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        name = "folder"
    monkeypatch.setenv(COMPILE_CACHE, str(tmp_path / name))
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    use_compile_cache()
    assert os.environ["TF_XLA_FLAGS"] == ""
