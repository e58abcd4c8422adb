"""What runs an exported model: which runtime is chosen, with which threads, and of which files the model is."""

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import kbert
from kbert.weights import runtimes
from kbert.weights.runtimes import ExportedModel, chosen_runtime


def saved_model(folder):
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables").mkdir()
    (folder / "variables" / "variables.index").write_bytes(b"index")


def test_a_program_is_not_run_without_being_asked_for(exported, monkeypatch):
    monkeypatch.setattr("kbert.weights.runtimes.find_spec", lambda name: name)
    saved_model(exported)
    with pytest.raises(ValueError, match="which is a program for TensorFlow"):
        chosen_runtime(exported, "auto")
    assert chosen_runtime(exported, "tensorflow") == "tensorflow"


def test_the_files_that_a_model_is_made_of(exported, monkeypatch):
    monkeypatch.setattr("kbert.weights.runtimes.find_spec", lambda name: name)
    saved_model(exported)
    (exported / "assets" / "words").mkdir(parents=True)
    (exported / "assets" / "words" / "vocab.txt").write_text("[PAD]")
    names = [path.name for path in ExportedModel(exported, "tensorflow").files()]
    assert sorted(names) == ["saved_model.pb", "variables.index", "vocab.txt"]
    for name in ("model.onnx", "model.onnx.data"):
        (exported / name).write_bytes(b"x")
    assert [path.name for path in ExportedModel(exported).files()] == ["model.onnx", "model.onnx.data"]


def test_a_model_of_another_size_is_another_export(exported, monkeypatch):
    monkeypatch.setattr(ExportedModel, "_open", lambda self: lambda inputs: {"logits": np.zeros((1, 2))})
    (exported / "model.onnx").write_bytes(b"x")
    pickled = pickle.dumps(ExportedModel(exported, "onnxruntime"))
    assert pickle.loads(pickled).num_labels == 2
    (exported / "model.onnx").write_bytes(b"xx")
    with pytest.raises(kbert.errors.WeightsMismatchError, match="was exported again"):
        assert pickle.loads(pickled).num_labels


@pytest.mark.parametrize(("given", "expected"), [("3", 3), ("0", 7), ("", 7), ("2,1", 7), (None, 7)])
def test_threads_are_those_of_the_environment(given, expected, monkeypatch):
    monkeypatch.setattr(runtimes, "cpu_count", lambda: 7)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert runtimes._n_threads() == expected


_IMPORT_OPENVINO = """
import os, socket, sys
def refused(*arguments, **keywords):
    raise AssertionError("a connection is opened")
socket.socket.connect = socket.create_connection = refused
from kbert.weights import runtimes
runtimes._openvino_core(os.getpid())
print([name for name in sys.modules if name.startswith("openvino_telemetry")])
"""


@pytest.mark.skipif(find_spec("openvino") is None, reason="run: pip install 'kbert-learn[openvino]'")
def test_openvino_is_imported_without_its_telemetry(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _IMPORT_OPENVINO], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.strip() == "[]", done.stdout + done.stderr[-2000:]
    assert not [path for path in tmp_path.iterdir() if path.name == "intel"]


def test_runtimes_are_told_threads_and_precision(tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    monkeypatch.setattr(runtimes, "_n_threads", lambda: 3)
    told = []

    class Core:
        def compile_model(self, path, device, settings):
            told.append(settings)
            raise RuntimeError

    class Session:
        def __init__(self, path, options, providers):
            told.append(options.intra_op_num_threads)
            raise RuntimeError

    monkeypatch.setattr(runtimes, "_openvino_core", lambda process: Core())
    monkeypatch.setattr(runtimes, "_idle_pools", runtimes.Counter())
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    for run, dtype in (
        (runtimes._onnxruntime, "float32"),
        (runtimes._openvino, "float32"),
        (runtimes._openvino, "auto"),
    ):
        with pytest.raises(RuntimeError):
            run(tmp_path, dtype)
    as_asked = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 3}
    assert told == [3, {**as_asked, "INFERENCE_PRECISION_HINT": "f32"}, as_asked]
