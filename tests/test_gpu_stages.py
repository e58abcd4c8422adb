"""benchmarks/gpu.py in miniature: the stages that run on a GPU, as far as a CPU goes."""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[1]
# Of each stage, the cells that are run here; all are run by the rehearsal below.
SOME = {
    "check": ["fit, float32", "parity, float32"],
    "fit": ["base, sst2: kbert", "padding-free"],
    "predict": ["kbert", "pipeline"],
    "dispatch": ["from the host", "one step a call", "several"],
    "attention": ["softmax", "SDPA", "varlen"],
    "pretrain": ["losses", "tiny, 16"],
    "two-devices": ["fit"],
    "first-fit": ["sst2"],
    "choice": ["kbert", "PyTorch"],
}
# A figure that every cell of a stage has which was measured.
FIGURE = {
    "fit": "steady_rows_s", "predict": "rows_s", "dispatch": "step_ms", "attention": "forward_ms",
    "pretrain": "last_loss", "first-fit": "score", "choice": "fit_s",
}  # fmt: skip


def write_data(folder: Path) -> Path:
    """An SST-2 and a DREAM of a few rows in which one word tells the label."""
    (folder / "sst2").mkdir(parents=True)
    for part in ("train", "dev"):
        rows = [f"{'kaka' if i % 2 else 'bobo'} deli\t{i % 2}" for i in range(64)]
        (folder / "sst2" / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    (folder / "dream").mkdir()
    for part in ("train", "dev"):
        rows = [
            {"context": f"{'kaka' if i % 2 else 'bobo'} deli", "question": "deli?", "options": ["bobo", "kaka", "deli"],
             "label": i % 2} for i in range(40)
        ]  # fmt: skip
        (folder / "dream" / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return folder


@pytest.fixture
def gpu(monkeypatch):
    """The modules of the stages."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if keras.backend.backend() == "tensorflow":
        pytest.skip("the stages are for JAX and PyTorch")
    names = ("runner", "short", "setting", "records", "carried", "device", "check", "attention", "kbert_mini", "texts")
    return SimpleNamespace(**{name: importlib.import_module(f"gpu_stages.{name}") for name in names})


@pytest.fixture
def setting(gpu, tmp_path, monkeypatch):
    """A miniature, with its own data."""
    data = write_data(tmp_path / "data")
    monkeypatch.setenv("KBERT_DATA", str(data))
    folder = tmp_path / "out"
    return gpu.setting.Setting(keras.backend.backend(), folder, tmp_path / "state", data, None, True, 0.02)


# The first stage runs wherever the backends are tested; the others take longer.
@pytest.mark.parametrize(
    "stage", [pytest.param(name, marks=[pytest.mark.backend] * (name == "check")) for name in SOME]
)
def test_a_stage_runs(gpu, setting, stage):
    def chosen(cell):
        return any(part in cell for part in SOME[stage])

    lines = gpu.runner.run_stage(stage, setting, in_process=True, only=chosen)
    assert [line["error"] for line in lines if "error" in line] == []
    by_cell = {line["cell"]: line for line in lines}
    assert len(by_cell) == len(lines) >= len(SOME[stage]) - 1
    measured = [line for line in lines if "absent" not in line]
    for line in measured:
        assert line["on"]["device"] and line["on"]["kbert"] and line["seconds"] >= 0
        if stage in FIGURE:
            assert np.isfinite(line[FIGURE[stage]]) and line[FIGURE[stage]] > 0
    if stage == "check":
        assert all(line["passed"] for line in measured)
        parity = [line for line in lines if "parity" in line["cell"]]
        if all(map(importlib.util.find_spec, ("torch", "transformers"))):
            assert parity and all(line["logit_difference"] < 1e-4 for line in parity)
        else:
            assert parity and all("absent" in line for line in parity)
        assert measured[0]["weights_drift"] == 0
    if stage == "attention":
        # Every way has the same outputs.
        assert len(measured) >= 2 and all(line["relative_error"] < 0.02 for line in measured)
    if stage == "first-fit":
        columns = importlib.import_module("first_fit").COLUMNS
        assert all(line.keys() >= set(columns) for line in measured) and measured[0]["n_rows"] == 16
    if stage == "choice":
        assert all(line["max_length"] == 32 and 0 <= line["accuracy"] <= 1 for line in measured)
    if stage == "pretrain":
        assert len(by_cell["losses"]["losses"]) == 4
        assert all(0 < line["peak_share"] < 1 for line in measured if "peak_share" in line)
    if stage == "two-devices" and setting.backend == "torch":
        assert all("one device" in line["absent"] for line in lines)
    # What is there is not measured again.
    again = gpu.runner.run_stage(stage, setting, in_process=True, only=chosen)
    assert [line["cell"] for line in again] == [line["cell"] for line in lines if "absent" in line]


# --- Results, errors and the worker ------------------------------------------------------------------------------


@pytest.fixture
def fake(gpu, monkeypatch):
    """A stage of four cells; ``fake.outcomes`` says what each does, ``fake.asked`` which were."""
    cell = gpu.setting.Cell
    stage = SimpleNamespace(outcomes={}, asked=[])
    stage.cells = lambda setting: [
        cell("one", {"name": "one"}), cell("two", {"name": "two"}), cell("gone", needs=("no_such_package",)),
        cell("three", {"name": "three"}),
    ]  # fmt: skip

    def measure(setting, seconds, name):
        stage.asked.append(name)
        outcome = stage.outcomes.get(name, {"value": 1.0})
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    stage.measure = measure
    monkeypatch.setattr(gpu.runner, "stage_module", lambda name: stage)
    return stage


def test_a_failure_is_written_down_and_tried_again(gpu, setting, fake, capsys):
    fake.outcomes["two"] = ValueError("not today")
    lines = gpu.runner.run_stage("fit", setting, in_process=True)
    assert [line["cell"] for line in lines] == ["one", "two", "gone", "three"]
    error = lines[1]["error"]
    assert (error["type"], error["message"]) == ("ValueError", "not today")
    assert "in measure" in error["traceback"] and error["traceback"].endswith("ValueError: not today")
    assert "no_such_package" in lines[2]["absent"]
    assert "FAILED: ValueError: not today" in capsys.readouterr().out

    fake.outcomes.clear()
    fake.asked.clear()
    gpu.runner.run_stage("fit", setting, in_process=True)
    assert fake.asked == ["two"]
    stored = [json.loads(text) for text in (setting.out / "results.jsonl").read_text().splitlines()]
    assert [line["cell"] for line in stored] == ["one", "two", "gone", "three", "two"]  # the absence once


def test_a_torn_line_does_not_count(gpu, setting, fake):
    gpu.runner.run_stage("fit", setting, in_process=True)
    path = setting.out / "results.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-20])  # the process was ended while it wrote the line of "three"
    fake.asked.clear()
    gpu.runner.run_stage("fit", setting, in_process=True)
    assert fake.asked == ["three"]
    results = gpu.records.Results(setting.out, "fit", setting.backend, True)
    assert [line["cell"] for line in results.lines()] == ["one", "two", "gone", "three"]
    # Other stages, backends and real measurements have their own lines.
    assert results.is_done("three")
    for other in (("predict", setting.backend, True), ("fit", "other", True), ("fit", setting.backend, False)):
        assert not gpu.records.Results(setting.out, *other).is_done("three")


def test_what_is_not_finished_ends_the_run_and_goes_on_in_the_next(gpu, setting, fake):
    fake.outcomes["two"] = {"unfinished": True}
    gpu.runner.run_stage("fit", setting, in_process=True)
    assert fake.asked == ["one", "two"]
    fake.outcomes["two"] = gpu.setting.Absent("no such thing here")
    lines = gpu.runner.run_stage("fit", setting, in_process=True)
    assert fake.asked == ["one", "two", "two", "three"] and lines[0]["absent"] == "no such thing here"


def test_a_cell_is_not_begun_without_the_time_for_it(gpu, setting, fake, capsys):
    full = gpu.setting.Setting(setting.backend, setting.out, setting.state)
    gpu.runner.run_stage("fit", full, seconds=20, in_process=True)  # a cell takes 30
    assert fake.asked == [] and capsys.readouterr().out.count("left for the next run") == 3


@pytest.mark.parametrize(
    "code, error", [("sys.exit(3)", "WorkerDied"), ("time.sleep(60)", "TimeoutError"), ("", "WorkerDied")]
)
def test_a_worker_that_dies_or_hangs_is_replaced(gpu, setting, monkeypatch, code, error):
    started = []

    def start(worker):
        started.append(worker)
        bad = f"import sys, time; sys.stdin.readline(); print('last words', file=sys.stderr); {code}"
        good = "input(); print('{\"value\": 2}')"
        with open(worker.log, "ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            return subprocess.Popen([sys.executable, "-c", bad if len(started) == 1 else good], **pipes)

    monkeypatch.setattr(gpu.runner._Worker, "_start", start)
    setting.out.mkdir()
    worker = gpu.runner._Worker("fit", setting)
    first = worker.measure(gpu.setting.Cell("one"), 1.0)["error"]
    assert first["type"] == error
    if error == "WorkerDied":
        assert "last words" in first["traceback"] and first["message"] == f"exit code {3 if code else 0}"
    assert worker.measure(gpu.setting.Cell("two"), 30.0) == {"value": 2}
    worker.close()
    assert len(started) == 2


def test_short_runs_its_parts_in_order_while_there_is_time(gpu, setting, monkeypatch):
    short, asked = gpu.short, []
    full = gpu.setting.Setting(setting.backend, setting.out, setting.state)
    for part in short.PARTS:
        cells = gpu.runner.stage_module(part.stage).cells(replace(full, backend=part.backend))
        assert set(part.names) <= {cell.name for cell in cells}

    def run_stage(stage, setting, seconds, only):
        asked.append((setting.backend, stage, seconds))
        return [{"unfinished": True}] if stage == "kbert-mini" else [{}]

    monkeypatch.setattr(short, "run_stage", run_stage)
    assert len(short.run_short(full, 100.0)) == len(asked) == 13
    assert asked[8][:2] == ("jax", "check") and asked[-1][1] == "kbert-mini" and 99 < asked[-1][2] <= 100


def test_results_of_an_earlier_run_are_taken_over(gpu, setting, fake, tmp_path):
    gpu.runner.run_stage("fit", setting, in_process=True)
    command, out = importlib.import_module("gpu"), tmp_path / "new"
    (setting.out / "results.jsonl").chmod(0o400)
    for _ in range(2):
        command.take_over(setting.out, out)
        command.take_over(tmp_path / "not there", out)
        assert (out / "results.jsonl").read_bytes()  # what is there is left
        (out / "results.jsonl").open("a").write("\n")
    assert (out / "results.jsonl").read_text() == (setting.out / "results.jsonl").read_text() + "\n\n"
    results = gpu.records.Results(out, "fit", setting.backend, True)
    assert results.is_done("three")
    # Several of them: what another one has measured comes too, and what is there stays as it is.
    other = gpu.records.Results(tmp_path / "other", "fit", setting.backend, True)
    other.write("three", {"rows_s": 1})
    other.write("four", {"error": "none"})
    other.write("four", {"rows_s": 2})
    before = results.lines()
    for _ in range(2):
        command.take_over(other.path.parent, out)
        assert results.lines() == before + other.lines()[1:] and results.is_done("four")


def test_the_commit_is_known_without_the_repository(gpu, monkeypatch):
    monkeypatch.setenv("KBERT_COMMIT", "abc1234")
    assert gpu.device._commit() == "abc1234"


# --- Parts -------------------------------------------------------------------------------------------------------


def test_kbert_mini_is_trained_in_pieces_and_scored(gpu, setting):
    from kbert.pretraining.checkpoints import read_checkpoint

    def run(*cells):
        lines = gpu.runner.run_stage("kbert-mini", setting, in_process=True, only=lambda cell: cell in cells)
        return {line["cell"]: line for line in lines}

    scores = ("held-out", "sst2, pre-trained, seed 0")
    assert "not finished" in run(*scores)["held-out"]["absent"]
    assert run("vocabulary")["vocabulary"]["pieces"] == 150
    assert run("shards")["shards"]["tokens"] > 1000
    first = gpu.kbert_mini.training(setting, 0.5)
    assert first["unfinished"] and 0 < first["updates"] and first["minutes"] < setting.minutes
    gpu.records.Results(setting.out, "kbert-mini", setting.backend, True).write("training", first)
    with pytest.raises(ValueError, match="--minutes 0.02"):
        gpu.kbert_mini.training(gpu.setting.Setting(**{**vars(setting), "minutes": 1.0}), 1.0)

    # On another machine, with what lies beside the results.
    before = read_checkpoint(setting.state / "toy-kbert-mini" / "run")
    shutil.move(setting.state / "toy-kbert-mini" / "vocabulary", setting.out.parent / "vocabulary")
    shutil.rmtree(setting.state)
    setting = gpu.setting.Setting(**{**vars(setting), "vocabulary": setting.out.parent / "vocabulary"})
    lines = run("shards", "training")
    second = lines["training"]
    assert "unfinished" not in second and second["updates"] > first["updates"]
    assert second["minutes"] >= setting.minutes and second["tokens"] > first["tokens"]
    assert second["curve"][0][0] == 1 and second["curve"][-1][0] == second["updates"]  # the whole history
    assert sorted(path.name for path in setting.out.iterdir()) == ["results.jsonl", "toy-kbert-mini.zip"]

    # And on a third one.
    shutil.rmtree(setting.state)
    lines = run(*scores)
    assert lines["held-out"]["mlm_loss"] > 0 and lines["held-out"]["loss_of_frequencies"] > 0
    n_characters = lines["held-out"]["characters_of_a_masked_piece"]
    assert 1 < n_characters < 6
    assert lines["held-out"]["mlm_loss_of_a_character"] * n_characters == pytest.approx(lines["held-out"]["mlm_loss"])
    assert lines[scores[1]]["published_test_mini"] == 0.859 and 0 <= lines[scores[1]]["score"] <= 1

    # What was carried is the checkpoint, rounded.
    content = gpu.carried.packed_checkpoint(before)
    after = gpu.carried.unpacked_checkpoint(content)
    assert len(content) < sum(array.nbytes for array in before.arrays)
    assert after.facts.items() <= before.facts.items() and after.history.keys() == before.history.keys()
    for one, other in zip(before.arrays, after.arrays, strict=True):
        assert other.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=2**-8, atol=1e-7)


def test_pieces_are_read_when_all_are_there(gpu, tmp_path, monkeypatch):
    carried = gpu.carried
    monkeypatch.setattr(carried, "LARGEST", 4)
    assert carried.read_pieces(tmp_path, "run") is None
    carried.write_pieces(tmp_path, "run", 9, b"0123456789")
    assert carried.read_pieces(tmp_path, "run") == (9, b"0123456789")
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    carried.write_pieces(tmp_path, "run", 100, bytes(45))
    assert len(list(tmp_path.iterdir())) == 12  # those of the step before are gone
    for path, content in kept.items():
        path.write_bytes(content)
    assert carried.read_pieces(tmp_path, "run") == (100, bytes(45))
    (tmp_path / "run-000000100.2-of-12").unlink()
    assert carried.read_pieces(tmp_path, "run") == (9, b"0123456789")
    carried.remove_pieces(tmp_path, "run")
    assert not list(tmp_path.iterdir())


def test_only_the_first_documents_of_the_last_file_are_held_out(gpu, tmp_path):
    (tmp_path / "wiki_en").mkdir()
    documents = [f"document {i}\nsecond line of {i}" for i in range(120)]
    for number, some in enumerate((documents[:40], documents[40:])):
        (tmp_path / "wiki_en" / f"{number}.txt").write_text("\n\n".join(some) + "\n")
    setting = gpu.setting.Setting(keras.backend.backend(), tmp_path / "out", tmp_path / "state", tmp_path)
    for _ in range(2):
        text, kept = (list(corpus) for corpus in gpu.kbert_mini._corpora(setting))
        assert ["\n".join(lines) for lines in kept] == documents[40:90]
        assert ["\n".join(lines) for lines in text] == documents[:40] + documents[90:]


def test_packed_texts_are_the_same_in_both_layouts(gpu, setting):
    packed = gpu.attention.Packed(setting, 32)
    for rows, places in ((packed.rows(), packed.real), (packed.padded_rows(), packed.padded)):
        flat = rows.reshape(3, -1, packed.N, packed.H)
        np.testing.assert_array_equal(flat[:, places], packed.values)
        assert np.count_nonzero(flat) == np.count_nonzero(packed.values)
    assert (packed.mask().sum(axis=-1) >= 1).all()
    # One text alone is plain attention.
    length = packed.lengths[0]
    query, key, value = packed.values[:, :length, 0]
    weights = np.exp(query @ key.T / np.sqrt(packed.H))
    expected = weights / weights.sum(axis=1, keepdims=True) @ value
    np.testing.assert_allclose(packed.reference()[:length, 0], expected, rtol=1e-4)


def test_cudnn_finds_each_packed_text_at_its_place(gpu, setting):
    sdpa = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo", reason="the way is one of JAX")
    ways = importlib.import_module("gpu_stages.attention_jax")
    packed = gpu.attention.Packed(setting, 32)
    lengths, offsets = ways.lengths_and_offsets(packed)
    array = np.zeros((packed.B, packed.T, packed.N, packed.H), "float32")
    found = sdpa._fix_seqlen_offsets(*map(sdpa.jnp.asarray, (lengths, lengths, offsets, offsets)), array, array)
    n, of_numbers = len(packed.lengths), packed.N * packed.H
    np.testing.assert_array_equal(np.asarray(found[0]).ravel()[:n], packed.lengths)
    starts = packed.real[np.cumsum(packed.lengths) - packed.lengths]
    np.testing.assert_array_equal(np.asarray(found[2]).ravel()[:n] // of_numbers, starts)


def test_ways_of_a_step_differ_in_where_the_batches_are(gpu, setting, monkeypatch):
    """As a GPU has it, where steps are recorded: both compute the same, with the bounds of the texts."""
    torch = pytest.importorskip("torch")
    if setting.backend != "torch":
        pytest.skip("of PyTorch")
    from kbert.training import cuda_graphs

    dispatch = importlib.import_module("gpu_stages.dispatch")
    monkeypatch.setattr(cuda_graphs, "pinned", torch.as_tensor)
    monkeypatch.setattr(cuda_graphs, "_RECORDED_AT", 100)
    of_ways = []
    for way in ("one step a call, from the host", "one step a call", "one step a call, not recorded"):
        work = dispatch._Work(setting, "tiny", 2)
        work.trainer.recorded = steps = cuda_graphs.RecordedSteps(work.trainer.device)
        run = work.kbert(way)
        with monkeypatch.context() as context:
            if "host" not in way:  # they are on the device
                context.setattr("kbert.training.step_torch.text_bounds", None)
            of_ways.append([float(loss) for loss in run()])
        assert steps._may_record == ("not" not in way)
    assert of_ways[0] == of_ways[1] == of_ways[2] and np.isfinite(of_ways[0]).all()


def test_sst2_is_made_up_where_there_is_no_vocabulary_for_it(gpu, setting):
    full = replace(setting, miniature=False)
    some, _ = gpu.texts.rows("sst2", 8, gpu.texts.weights_folder("tiny", setting), full)
    assert not any("bobo" in text or "kaka" in text for text in some)
    assert "bobo deli" in gpu.texts.rows("sst2", 64, setting.state, setting)[0]


@pytest.mark.filterwarnings("ignore:The run failed")
def test_waits_of_the_second_fit_are_counted_by_their_places(gpu, setting, monkeypatch):
    torch = pytest.importorskip("torch")
    if keras.backend.backend() != "torch":
        pytest.skip("PyTorch tells of waits")
    fits = []

    def tell(mode):
        fits.append(mode)
        if mode == "warn":
            for _ in range(3):
                warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    monkeypatch.setattr(gpu.device, "is_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", tell)
    found = importlib.import_module("gpu_stages.check").waits(setting)
    [(place, n)] = found["places"]
    assert found["waits"] == n == 3 and place.startswith("test_gpu_stages.py:") and found["updates"] == 3
    assert fits == ["warn", "default"]


@pytest.mark.parametrize(("event", "busy"), [("kernel", 0.5), ("Optimizer.step#AdamW.step", None)])
def test_annotations_are_no_work_of_the_device(gpu, monkeypatch, event, busy):
    torch = pytest.importorskip("torch")
    span = SimpleNamespace(
        device_type=torch.autograd.DeviceType.CUDA, is_user_annotation="#" in event, name=event,
        time_range=SimpleNamespace(start=0, end=5e5),
    )  # fmt: skip
    profiler = gpu.device.Profiler(of_torch=True)
    profiler._torch = SimpleNamespace(__exit__=lambda *_: None, events=lambda: [span])
    monkeypatch.setattr(gpu.device.time, "perf_counter", lambda: 1.0)
    assert profiler.stop()["busy"] == busy


def test_a_miniature_computes_as_a_gpu_does(gpu, setting, monkeypatch):
    check, device = gpu.check, gpu.device
    from kbert import BertClassifier

    folder = importlib.import_module("gpu_stages.texts").weights_folder("minilm-l6", setting)
    if setting.backend == "torch":
        from kbert.model import layers_torch

        # Where its first operation is asked for, the layers would be computed by the code for CPUs.
        def refuse(*_):
            raise AssertionError("a GPU has no such code")

        monkeypatch.setattr(layers_torch._Attention, "apply", refuse)
    with device.way_of_a_gpu():
        fitted = [BertClassifier.paper(weights=folder, epochs=1, random_state=seed) for seed in (0, 1)]
        for classifier in fitted:
            classifier.fit(["a", "b"] * 8, [0, 1] * 8)
        assert fitted[0].model_.compute_dtype == "bfloat16" and not device.is_gpu()
        fitted[0].predict(["a"])
    start = fitted[0].model_.encoder
    assert check.weights_drift(fitted[0].model_, fitted[0].model_, fitted[1].model_.encoder) == 0
    assert check.weights_drift(fitted[0].model_, fitted[1].model_, start.from_pretrained(folder)) > 0.1


def test_busy_time_is_the_union_of_operations(gpu):
    assert gpu.device.union_length([(0, 2), (1, 3), (5, 6), (5.2, 5.4)]) == 4


def test_the_command_says_what_it_needs(gpu, monkeypatch, capsys):
    command = importlib.import_module("gpu")
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    for arguments, message in ((["check"], "--out"), (["check", "--out", "x"], "jax or torch"), (["x"], "choice")):
        with pytest.raises(SystemExit):
            command.main(arguments)
        assert message in capsys.readouterr().err
    for option in ("--weights", "--vocabulary"):
        with pytest.raises(SystemExit):
            command.main(["short", "--out", "x", option, "not there"])
        assert f"{option}: not there is not there" in capsys.readouterr().err
    monkeypatch.setenv("KBERT_DATA", "no data")
    with pytest.raises(SystemExit):
        command.main(["short", "--out", "x"])
    assert "KBERT_DATA: no data is not there" in capsys.readouterr().err


# --- The rehearsal -----------------------------------------------------------------------------------------------

# The distributions of a machine with a GPU as it was found, as far as kbert, its backends and its peers use them, and
# those that are brought along as wheels. There is no other one there, no kbert, and no network.
THERE = """
    absl-py accelerate aiohttp annotated-doc anyio attrs certifi charset-normalizer click cloudpickle contourpy cycler
    einops etils filelock flatbuffers fonttools fsspec grpcio h11 h5py hf-xet httpcore httpx huggingface-hub idna jax
    jax-cuda13-pjrt jax-cuda13-plugin jaxlib jinja2 joblib kiwisolver markdown markdown-it-py markupsafe matplotlib
    mdurl ml-dtypes mpmath narwhals networkx ninja numpy nvidia-ml-py onnx onnxruntime opt-einsum packaging pandas peft
    pillow pip protobuf psutil pyarrow pygments pyparsing python-dateutil pyyaml regex requests rich safetensors
    scikit-learn scipy seaborn sentence-transformers sentencepiece setuptools shellingham six sympy tabulate tensorboard
    threadpoolctl tiktoken tokenizers torch tqdm transformers triton typer typing-extensions typing-inspect urllib3
    werkzeug wheel xxhash zipp
""".split()
BROUGHT = ["keras", "namex", "optree"]
ONLY_THESE = """
import importlib.machinery, importlib.metadata, re, socket, sys

IMPORTS, DISTRIBUTIONS = {imports!r}, {distributions!r}
PathFinder = importlib.machinery.PathFinder

class Visible(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target)
        if spec is None or path is not None or name in IMPORTS:
            return spec
        # Python's own modules, and those of the clone.
        places = [spec.origin or "", *(spec.submodule_search_locations or [])]
        return None if any("site-packages" in place for place in places) else spec

sys.meta_path[:] = [Visible if finder is PathFinder else finder for finder in sys.meta_path]
found = importlib.metadata.Distribution.from_name

def from_name(name):
    if re.sub("[-_.]+", "-", name).lower() not in DISTRIBUTIONS:
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)

importlib.metadata.Distribution.from_name = from_name
connect = socket.socket.connect

def local(self, address):
    if self.family != socket.AF_UNIX:
        raise OSError(f"no network: {{address}}")
    return connect(self, address)

socket.socket.connect = local
"""


def only_these() -> str:
    """The code that hides, when Python starts, what such a machine does not have."""
    owners = importlib.metadata.packages_distributions()
    distributions, left = set(), {*THERE, *BROUGHT}
    while left:  # those too that these need in the versions that are installed here
        distributions.add(name := left.pop())
        try:
            needed = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        except importlib.metadata.PackageNotFoundError:
            continue
        met = [needs for needs in needed if needs.marker is None or needs.marker.evaluate({"extra": ""})]
        left |= {canonicalize_name(needs.name) for needs in met} - distributions
    imports = {name for name in owners if distributions & set(map(canonicalize_name, owners[name]))}
    return ONLY_THESE.format(imports=imports, distributions=distributions)


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_all_stages_from_a_fresh_clone(gpu, tmp_path, backend):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    pytest.importorskip(backend)
    clone, site = tmp_path / "clone", tmp_path / "site"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    site.mkdir()
    (site / "sitecustomize.py").write_text(only_these())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KERAS", "KBERT"))}
    environment |= {
        "KERAS_BACKEND": backend, "HOME": str(tmp_path), "KERAS_HOME": str(tmp_path / "keras"),
        "KBERT_DATA": str(write_data(tmp_path / "data")),
        "PYTHONPATH": os.pathsep.join([str(site), str(clone), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }  # fmt: skip
    out = tmp_path / "out"
    unlisted = "import sys\nfor name in ('keras', 'transformers'): __import__(name)\nimport sentencex"
    refused = subprocess.run([sys.executable, "-c", unlisted], env=environment, capture_output=True, text=True)
    assert "No module named 'sentencex'" in refused.stderr
    # The short plan first, on both backends; what it has measured is not measured again.
    both = backend == "torch" and importlib.util.find_spec("jax") is not None
    for stage in ["short"] * both + list(gpu.runner.STAGES):
        call = [sys.executable, "benchmarks/gpu.py", stage, "--out", str(out), "--miniature", "--minutes", "0.05"]
        done = subprocess.run([*call, "--seconds", "1800"], cwd=clone, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{stage}\n{done.stdout}\n{done.stderr}\n{(out / 'log.txt').read_text()[-3000:]}"
    lines = [json.loads(text) for text in (out / "results.jsonl").read_text().splitlines()]
    mine = [line for line in lines if line["backend"] == backend]
    assert {line["stage"] for line in mine} == set(gpu.runner.STAGES)
    assert sorted(path.name for path in out.iterdir()) == ["log.txt", "results.jsonl", "toy-kbert-mini.zip"]
    assert all(line["on"]["commit"] for line in lines if "absent" not in line)
