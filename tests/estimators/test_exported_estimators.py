"""The folder of an export as an estimator: it predicts without Keras, and says what it cannot do."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import kbert
from kbert import BertClassifier, BertVectorizer
from kbert.errors import ForkedProcessError, WeightsMismatchError, WeightsNotFoundError
from kbert.weights.runtimes import RUNNERS, ExportedModel, chosen_runtime

pytest.importorskip("onnx", reason="to export, run: pip install 'kbert-learn[onnx]'")
pytest.importorskip("onnxruntime", reason="to export, run: pip install 'kbert-learn[onnx]'")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fitted(quick_folder, reviews):
    """A classifier with a temperature and long texts in windows."""
    classifier = BertClassifier(weights=quick_folder, max_length=8, dtype="float32", calibrate="temperature", epochs=1)
    return classifier.set_params(random_state=0).fit(reviews.text, reviews.label)


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    """Its export. Tests must not change it."""
    path = tmp_path_factory.mktemp("exported") / "reviews-onnx"
    fitted.export(path)
    return path


_WITHOUT_KERAS = """
import sys
import kbert
from kbert import BertClassifier
loaded = BertClassifier.load(sys.argv[1], runtime="onnxruntime")
print(loaded.predict(sys.argv[2:]).tolist())
print(kbert.load(sys.argv[1]).predict_proba(sys.argv[2:]).shape)
kbert.predict_table(sys.argv[1], sys.argv[1] + "-table.csv", out=sys.argv[1] + "-out", verbose=0)
print({name.partition(".")[0] for name in sys.modules} & {"keras", "tensorflow", "jax", "torch"})
"""


def test_it_predicts_without_importing_keras_or_a_backend(fitted, folder, reviews):
    pytest.importorskip("pyarrow", reason="to predict tables, run: pip install 'kbert-learn[tables]'")
    texts = reviews.text[:5].tolist()
    pd.DataFrame({"text": texts}).to_csv(f"{folder}-table.csv", index=False)
    done = subprocess.run([sys.executable, "-c", _WITHOUT_KERAS, str(folder), *texts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    labels, shape, loaded = done.stdout.splitlines()
    assert labels == str(fitted.predict(texts).tolist()) and shape == "(5, 2)" and loaded == "set()"


@pytest.mark.thorough
def test_several_processes_predict_a_table_with_it(folder, reviews, tmp_path):
    pytest.importorskip("pyarrow", reason="to predict tables, run: pip install 'kbert-learn[tables]'")
    loaded = BertClassifier.load(folder)
    pd.DataFrame({"text": reviews.text[:30]}).to_parquet(tmp_path / "in.parquet")
    for n_jobs in (1, 2):
        kbert.predict_table(loaded, tmp_path / "in.parquet", tmp_path / f"{n_jobs}", rows_per_part=10, n_jobs=n_jobs)
    first, second = (pd.read_parquet(tmp_path / name) for name in "12")
    pd.testing.assert_frame_equal(first, second)
    assert list(first.prediction) == loaded.predict(reviews.text[:30]).tolist()


def test_what_it_learned_and_its_parameters(fitted, folder):
    loaded = BertClassifier.load(folder, verify=True)
    assert loaded.get_params() == {**fitted.get_params(), "weights": str(fitted.weights)}
    assert loaded.classes_.tolist() == fitted.classes_.tolist() and loaded.temperature_ == fitted.temperature_
    assert (loaded.max_length_, loaded.n_features_in_, loaded.n_rows_) == (8, 1, fitted.n_rows_)
    assert loaded.config_ == fitted.config_ and loaded.history_ == fitted.history_


def test_scores_reports_and_warm_up(fitted, folder, reviews):
    loaded = BertClassifier.load(folder).warm_up()
    assert loaded.score(reviews.text, reviews.label) == fitted.score(reviews.text, reviews.label)
    report = loaded.report(reviews.text, reviews.label)
    assert report.as_dict()["score"] == fitted.report(reviews.text, reviews.label, explain=False).as_dict()["score"]


def test_a_pickle_is_small_and_opens_the_folder_again(folder, reviews):
    loaded = BertClassifier.load(folder)
    expected = loaded.predict_proba(reviews.text)
    pickled = pickle.dumps(loaded)
    assert len(pickled) < (folder / "model.onnx").stat().st_size / 2
    np.testing.assert_array_equal(pickle.loads(pickled).predict_proba(reviews.text), expected)


def test_a_pickle_does_not_open_what_was_exported_since(folder, fitted, reviews, tmp_path):
    again = shutil.copytree(folder, tmp_path / "again")
    pickled = pickle.dumps(BertClassifier.load(again))
    pickle.loads(pickled).predict(["so good"])
    other = copy.copy(fitted)
    other.classes_ = np.array(["one", "two"], object)
    other.export(again)
    with pytest.raises(WeightsMismatchError, match="was exported again since this estimator was loaded.*Load it again"):
        pickle.loads(pickled).predict(["so good"])


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_threads_share_it(folder, reviews, runtime):
    pytest.importorskip(runtime, reason=f"to run this, run: pip install {runtime}")
    loaded = BertClassifier.load(folder, runtime=runtime).set_params(dtype="float32")
    texts = reviews.text[:16].tolist()
    expected = [loaded.predict_proba([text]) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: loaded.predict_proba([text]), texts * 20))
    np.testing.assert_array_equal(found, expected * 20)


_IN_A_FORK = """
import os, sys
from kbert import BertClassifier, BertConfig, BertEncoder
if sys.argv[2] == "after Keras":  # whose threads a forked process lacks; an exported model needs none of them
    BertEncoder(BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    sys.argv[2] = "onnxruntime"
loaded = BertClassifier.load(sys.argv[1], runtime=sys.argv[2])
expected = loaded.predict_proba(sys.argv[3:])
if not (child := os.fork()):
    again = BertClassifier.load(sys.argv[1], runtime=sys.argv[2])
    os._exit(int(any((model.predict_proba(sys.argv[3:]) != expected).any() for model in (loaded, again))))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "after Keras"])
def test_a_forked_process_opens_it_anew(folder, reviews, runtime):
    if runtime == "openvino":
        pytest.importorskip(runtime, reason=f"to run this, run: pip install {runtime}")
    call = [sys.executable, "-c", _IN_A_FORK, str(folder), runtime, *reviews.text[:3]]
    assert subprocess.run(call, timeout=60).returncode == 0


_IN_A_FORK_AFTER_A_MODEL_IS_GONE = """
import os, sys
from kbert import BertClassifier
from kbert.errors import ForkedProcessError
kept, gone = (BertClassifier.load(sys.argv[1], runtime="openvino") for _ in range(2))
expected = [model.predict_proba(sys.argv[2:]) for model in (kept, gone)]
del gone
if not (child := os.fork()):
    try:
        kept.predict_proba(sys.argv[2:])
    except ForkedProcessError:
        os._exit(7)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
gone = BertClassifier.load(sys.argv[1], runtime="openvino")
gone.predict_proba(sys.argv[2:])  # it takes the threads of the one that is gone
if not (child := os.fork()):
    os._exit(int((kept.predict_proba(sys.argv[2:]) != expected[0]).any()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_never_waits_for_openvino(folder, reviews):
    pytest.importorskip("openvino", reason="to run this, run: pip install openvino")
    call = [sys.executable, "-c", _IN_A_FORK_AFTER_A_MODEL_IS_GONE, str(folder), *reviews.text[:3]]
    assert subprocess.run(call, timeout=60).returncode == 0


@pytest.mark.thorough
def test_tensorflow_is_refused_in_a_process_that_was_forked_from_one_with_it(folder, monkeypatch):
    pytest.importorskip("tensorflow", reason="to run this, run: pip install tensorflow")
    monkeypatch.setattr("kbert.weights.runtimes._with_tensorflow", {os.getpid() + 1})
    with pytest.raises(ForkedProcessError, match="lacks the threads of TensorFlow"):
        RUNNERS["tensorflow"](folder, "float32")


def test_another_file_in_the_folder_is_no_other_export(folder, reviews, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "copied")
    loaded = BertClassifier.load(copied)
    expected = loaded.predict_proba(reviews.text[:3])
    (copied / "metrics.json").write_text("{}")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).predict_proba(reviews.text[:3]), expected)


_LET_GO_IN_ANOTHER_THREAD = """
import os, signal, sys, threading, time
from kbert import BertClassifier
signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of xdist ignore it, and those that they start
held = [BertClassifier.load(sys.argv[1], runtime="openvino")]
held[0].predict(sys.argv[2:])
thread = threading.Thread(target=held.clear)
thread.start()
thread.join()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent so on POSIX systems only")
def test_signals_come_after_another_thread_let_go_of_openvino(folder, reviews):
    pytest.importorskip("openvino", reason="to run this, run: pip install openvino")
    call = [sys.executable, "-c", _LET_GO_IN_ANOTHER_THREAD, str(folder), *reviews.text[:3]]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, path, X, y: model.save(path / "saved"), "save needs the Keras model"),
        (lambda model, path, X, y: model.export(path / "again"), "export needs the Keras model"),
        (lambda model, path, X, y: model.explain(X[:1]), "which only predicts. Load the folder that `save` wrote"),
        (lambda model, path, X, y: model.set_params(warm_start=True).fit(X, y), "fit with warm_start needs the Keras"),
    ],
)
def test_what_needs_the_keras_model_is_refused(folder, reviews, tmp_path, call, message):
    with pytest.raises(ValueError, match=message):
        call(BertClassifier.load(folder), tmp_path, reviews.text, reviews.label)
    assert not list(tmp_path.iterdir())


def test_a_clone_is_fitted_anew(folder, reviews):
    again = clone(BertClassifier.load(folder)).fit(reviews.text, reviews.label)
    assert not isinstance(again.model_, ExportedModel) and hasattr(again.predict(reviews.text[:2]), "dtype")


def test_names_of_runtimes(fitted, folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="runtime must be one of 'auto', 'onnxruntime', 'openvino', 'tensorflow', got"):
        BertClassifier.load(folder, runtime="tensorrt")
    with pytest.raises(ValueError, match="is run by openvino or onnxruntime, not by tensorflow"):
        BertClassifier.load(folder, runtime="tensorflow")
    fitted.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="runtime='openvino' is for folders that `export` wrote"):
        BertClassifier.load(tmp_path / "saved", runtime="openvino")
    found = {"openvino", "onnxruntime"}
    monkeypatch.setattr("kbert.weights.runtimes.find_spec", lambda name: name if name in found else None)
    assert chosen_runtime(folder, "auto") == "openvino"
    found.remove("openvino")
    assert chosen_runtime(folder, "auto") == "onnxruntime"
    with pytest.raises(ImportError, match="pip install openvino"):
        chosen_runtime(folder, "openvino")
    found.clear()
    with pytest.raises(ImportError, match="pip install onnxruntime. To predict with Keras, load"):
        BertClassifier.load(folder)


@pytest.mark.parametrize(
    "quantize, processor, faster, other",
    [
        ("int8_dynamic", "sse2 avx512_vnni", "onnxruntime", "openvino"),
        ("int8", "sse2 avx512_vnni", "openvino", "onnxruntime"),
        ("int8", "sse2 avx_vnni", "openvino", "onnxruntime"),
        ("int8", "sse2 avx2", "onnxruntime", "openvino"),
        ("int8", "asimd", "openvino", "onnxruntime"),
    ],
)
def test_int8_is_run_by_the_faster_runtime_or_by_what_is_installed(
    fitted, reviews, tmp_path, monkeypatch, quantize, processor, faster, other
):
    monkeypatch.setattr("kbert.weights.runtimes.instructions", lambda: set(processor.split()))
    fitted.export(tmp_path / "int8", X=reviews.text, quantize=quantize)
    found = {"openvino", "onnxruntime"}
    monkeypatch.setattr("kbert.weights.runtimes.find_spec", lambda name: name if name in found else None)
    monkeypatch.setattr(ExportedModel, "output_shape", (None, None, 2))  # nothing is run
    assert BertClassifier.load(tmp_path / "int8").model_.runtime == faster
    found.remove(faster)
    assert BertClassifier.load(tmp_path / "int8").model_.runtime == other


def test_folders_that_are_damaged_or_of_another_estimator(folder, tmp_path):
    with pytest.raises(WeightsMismatchError, match="holds a BertClassifier; load it with kbert.BertClassifier.load"):
        BertVectorizer.load(folder)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in folder.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    (damaged / "model.onnx").unlink()
    with pytest.raises(WeightsNotFoundError, match="holds no model.onnx and no saved_model.pb. Export the estimator"):
        BertClassifier.load(damaged)
    values = json.loads((damaged / "export.json").read_text())
    wrong = json.loads(json.dumps(values))
    wrong["learned"]["classes"]["values"] = wrong["learned"]["classes"]["values"][:1] * 2
    (damaged / "export.json").write_text(json.dumps(wrong))
    (damaged / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    with pytest.raises(WeightsMismatchError, match=r"export.json is damaged \(learned.classes.values"):
        kbert.load(damaged)
    (damaged / "export.json").write_text(json.dumps(values))
    (damaged / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-5000])
    for runtime in ("onnxruntime", "openvino"):
        with pytest.raises(WeightsMismatchError, match=f"{runtime} cannot read the model in .*damaged.*copy it again"):
            kbert.load(damaged, runtime=runtime)
    del values["learned"]
    (damaged / "export.json").write_text(json.dumps(values))
    with pytest.raises(WeightsMismatchError, match=r"export.json is damaged \(it lacks learned\)"):
        kbert.load(damaged)


@pytest.mark.parametrize("name", ["BertConfig", "BertEncoder", "load", "plots", "BertNothing"])
def test_a_folder_that_names_no_estimator(tmp_path, name):
    (tmp_path / "kbert.json").write_text(json.dumps({"format": 1, "estimator": name}))
    with pytest.raises(WeightsMismatchError, match=f"holds a {name}, which this version of kbert does not have"):
        kbert.load(tmp_path)


def test_openvino_gives_the_same(fitted, folder, reviews):
    pytest.importorskip("openvino", reason="to predict by OpenVINO, run: pip install openvino")
    loaded = BertClassifier.load(folder, runtime="openvino", verify=True)
    expected = fitted.predict_proba(reviews.text)
    np.testing.assert_allclose(loaded.predict_proba(reviews.text), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "variable", "expected"),
    [("auto", None, "mixed_bfloat16"), ("auto", "0", "float32"), ("float32", None, "float32")],
)
def test_openvino_keeps_float32_where_that_was_asked_for(folder, monkeypatch, dtype, variable, expected):
    monkeypatch.setattr("kbert.weights.runtimes.find_spec", lambda name: name)
    monkeypatch.delenv("KBERT_CPU_BFLOAT16", raising=False)
    if variable is not None:
        monkeypatch.setenv("KBERT_CPU_BFLOAT16", variable)
    model = ExportedModel(folder, "openvino", dtype)
    assert (model.dtype_policy.name, model.dtype == "float32") == (expected, expected == "float32")
