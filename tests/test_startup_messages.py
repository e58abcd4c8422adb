"""What TensorFlow's runtime, or another backend, writes to stderr while kbert imports and first uses it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest

import kbert
from kbert import startup_messages
from kbert.startup_messages import _without_lines_of_log

# Each as much as has the runtime start, which writes most of its lines at the first computation that XLA compiles.
FIT = """
import logging, os, sys, warnings
warnings.simplefilter("ignore")
from kbert import BertClassifier, BertConfig
config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
BertClassifier(config, weights=None, epochs=1, max_length=8).fit(["so good", "so bad"] * 4, ["pos", "neg"] * 4)
import tensorflow as tf
assert not logging.getLogger().handlers and logging.getLogger().level == logging.WARNING
print(tf.get_logger().level)
"""


def run(code, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {"KERAS_BACKEND": "tensorflow", **variables}
    root = Path(kbert.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )


def test_a_first_fit_on_tensorflow_writes_nothing():
    pytest.importorskip("tensorflow")
    assert run(FIT).stderr == ""


@pytest.mark.backend
def test_a_first_fit_writes_nothing():
    backend = keras.backend.backend()
    if backend == "tensorflow":
        pytest.skip("the test above")
    code = FIT.partition("import tensorflow")[0]
    assert run(code, KERAS_BACKEND=backend).stderr == ""


@pytest.mark.thorough
def test_the_level_of_pythons_log_is_as_it_would_be_without_kbert():
    pytest.importorskip("tensorflow")
    level = "import tensorflow as tf; print(tf.get_logger().level)"
    assert run(FIT).stdout == run(level).stdout


@pytest.mark.thorough
def test_the_users_level_stands():
    pytest.importorskip("tensorflow")
    assert run("import kbert, os; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])", TF_CPP_MIN_LOG_LEVEL="0").stdout == "0\n"
    # Every line is shown, those of the import too.
    importing = "import kbert.model.encoder"
    assert "] " in run(importing, TF_CPP_MIN_LOG_LEVEL="0").stderr
    assert "] " in run(importing, KBERT_KEEP_PROCESS_SETTINGS="1").stderr
    kept = run("import kbert, os; print('TF_CPP_MIN_LOG_LEVEL' in os.environ)", KBERT_KEEP_PROCESS_SETTINGS="1")
    assert kept.stdout == "False\n"


def test_the_command_sets_no_level_where_settings_are_kept():
    command = "import os, sys; sys.argv = ['kbert', '--version']; from kbert.cli import main; main(); "
    done = run(command + "print('TF_CPP_MIN_LOG_LEVEL' in os.environ)", KBERT_KEEP_PROCESS_SETTINGS="1")
    assert done.stdout.splitlines()[-1] == "False"


def test_only_the_lines_of_the_log_are_dropped(capfd):
    with _without_lines_of_log():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        os.write(2, b"I0000 00:00:1795368135.947253    8425 port.cc:153] oneDNN custom operations are on.\n")
        os.write(2, b"the user's own line\n")
        os.write(2, b"2024-05-01 10:00:00.123456: E tensorflow/core/x.cc:1] Unable to register cuFFT factory\n")
        print("and this", file=sys.__stderr__)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "the user's own line\nand this\nafter\n"


def test_what_was_written_before_a_failure_is_shown(capfd):
    with pytest.raises(ImportError), _without_lines_of_log():
        os.write(2, b"no such library\n")
        raise ImportError
    assert capfd.readouterr().err == "no such library\n"


@pytest.mark.parametrize(("level", "expected"), [("3", 1), ("0", 0)])
def test_the_compiler_starts_once_without_its_lines(level, expected, capfd, monkeypatch):
    """TensorFlow 2.18 writes some at its first compiled computation, whatever the level is."""
    calls = []

    def compute(value):
        calls.append(value)
        os.write(2, b"I0000 00:00:1795483979.418660   27366 device_compiler.h:188] Compiled cluster using XLA!\n")

    tensorflow = SimpleNamespace(function=lambda f, **options: f, negative=compute, zeros=lambda shape: 0.0)
    monkeypatch.setattr(startup_messages, "import_module", {"tensorflow": tensorflow}.get)
    monkeypatch.setattr(startup_messages, "_compiler_has_started", False)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    monkeypatch.delenv("KBERT_KEEP_PROCESS_SETTINGS", raising=False)
    for _ in range(2):
        startup_messages.start_compiler()
    assert len(calls) == expected
    assert capfd.readouterr().err == ""
