"""Which Keras backend is taken, on machines with other things installed and chosen."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import joblib
import pytest

import kbert
from kbert import backend
from kbert.backend import share_accelerator
from kbert.errors import BackendNotInstalledError


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Make it look as if Keras were not loaded, these backends were installed and the user had chosen so."""

    def arrange(installed: str, variable: str | None = None, keras_json: str | None = None):
        monkeypatch.delitem(sys.modules, "keras", raising=False)
        monkeypatch.setattr(
            backend, "find_spec", lambda name: object() if name in [*installed.split(), "keras"] else None
        )
        monkeypatch.setenv("KERAS_HOME", str(tmp_path))
        # Set first, so that the variable is put back as it was even where it was not there.
        monkeypatch.setenv("KERAS_BACKEND", variable or "")
        monkeypatch.setenv("KBERT_SELECTED_BACKEND", "")
        monkeypatch.setenv("KBERT_FOLLOWED_BACKEND", "")
        if variable is None:
            monkeypatch.delenv("KERAS_BACKEND")
        if keras_json is not None:
            (tmp_path / "keras.json").write_text(keras_json)

    return arrange


def _json(name):
    return json.dumps({"floatx": "float32", "backend": name})


_KERAS_OWN = json.dumps(backend._KERAS_JSON)


@pytest.mark.parametrize(
    "installed, keras_json, selected",
    [
        ("tensorflow jax torch", None, "torch"),
        ("tensorflow jax", None, "jax"),
        ("torch", None, "torch"),
        ("jax", _json("tensorflow"), "jax"),
        ("tensorflow torch", _KERAS_OWN, "torch"),
        ("tensorflow jax", _json("torch"), "jax"),
        ("tensorflow jax", "{ not json", "jax"),
        ("jax", "[]", "jax"),
    ],
)
def test_an_installed_backend_is_selected_where_nobody_chose_one(machine, installed, keras_json, selected):
    machine(installed, keras_json=keras_json)
    backend.select_backend()
    assert os.environ["KERAS_BACKEND"] == selected
    backend.require_backend()


@pytest.mark.parametrize(
    ("installed", "variable", "keras_json", "used", "reason"),
    [
        ("jax", None, None, "jax", "the only one that is installed"),
        ("tensorflow jax torch", None, None, "torch", "the first of torch, jax, tensorflow"),
        ("tensorflow torch", "torch", None, "torch", "by KERAS_BACKEND"),
        ("tensorflow jax", None, _json("jax"), "jax", "by keras.json"),
        ("tensorflow jax", None, _KERAS_OWN, "jax", "the first of jax, tensorflow"),
        ("tensorflow jax", _json("jax"), None, "torch", "Keras's own choice"),
    ],
)
def test_why_a_backend_is_used_is_told(machine, installed, variable, keras_json, used, reason):
    machine(installed, variable, keras_json)
    backend.select_backend()
    assert backend.reason_of_backend(used) == reason


def test_show_versions_tells_what_is_used(capsys):
    import keras  # not above: a worker that reads this file would load it before kbert

    kbert.show_versions()
    facts = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    assert facts["kbert-learn"] == kbert.__version__ and facts["Python"].count(".") == 2
    assert facts["backend"].startswith(keras.backend.backend()) and facts["devices"]
    assert facts['dtype="auto"'].split(",")[0] in ("float32", "bfloat16")


def test_the_environment_variable_stands(machine):
    machine("tensorflow jax torch", variable="torch", keras_json=_json("jax"))
    backend.select_backend()
    assert os.environ["KERAS_BACKEND"] == "torch"
    backend.require_backend()


def test_a_keras_json_that_names_an_installed_backend_is_left_to_keras(machine):
    machine("tensorflow jax", keras_json=_json("jax"))
    backend.select_backend()
    assert "KERAS_BACKEND" not in os.environ
    backend.require_backend()


def test_a_user_without_a_home_folder_has_no_keras_json(monkeypatch):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it gives where there is no home
    assert backend._backend_of_keras_json() is None


@pytest.mark.thorough
def test_the_file_that_keras_writes_is_no_choice(tmp_path):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("KERAS_", "KBERT_"))}
    chosen = (
        "import sys, kbert.model.encoder, keras; from kbert.backend import installed_backends;"
        "sys.exit(keras.backend.backend() != installed_backends()[0])"
    )
    for _ in range(2):  # the second process finds the file of the first
        subprocess.run([sys.executable, "-c", chosen], env={**variables, "KERAS_HOME": str(tmp_path)}, check=True)
    assert json.loads((tmp_path / "keras.json").read_text()) == backend._KERAS_JSON


def test_keras_that_is_loaded_keeps_its_backend_and_other_processes_follow(machine, monkeypatch):
    machine("tensorflow jax torch", keras_json=_KERAS_OWN)
    loaded = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "tensorflow"))
    monkeypatch.setitem(sys.modules, "keras", loaded)
    backend.select_backend()
    assert os.environ["KERAS_BACKEND"] == "tensorflow"
    assert backend.reason_of_backend("tensorflow") == "Keras was imported before kbert"


def test_no_backend_at_all_is_an_error_with_the_pip_command(machine):
    machine("")
    backend.select_backend()
    with pytest.raises(BackendNotInstalledError, match=r"None of .*\(torch, .*pip install 'kbert-learn\[torch\]'"):
        backend.require_backend()
    machine("", variable="tensorflow")
    with pytest.raises(BackendNotInstalledError, match=r"'tensorflow'.*pip install tensorflow\.$"):
        backend.require_backend()


def test_a_chosen_backend_that_is_not_installed_is_named_with_one_that_is(machine):
    machine("tensorflow", variable="jax")
    backend.select_backend()
    with pytest.raises(BackendNotInstalledError, match=r"'jax'.*pip install jax, or set KERAS_BACKEND=tensorflow"):
        backend.require_backend()


def test_a_backend_that_kbert_does_not_know_is_named(machine):
    machine("tensorflow", variable="mxnet")
    with pytest.raises(BackendNotInstalledError, match="KERAS_BACKEND is 'mxnet'.*torch, jax, tensorflow"):
        backend.require_backend()


def test_without_keras_the_remedy_is_told(machine, monkeypatch, capsys):
    machine("torch tensorflow")
    found = backend.find_spec
    monkeypatch.setattr(backend, "find_spec", lambda name: None if name == "keras" else found(name))
    remedy = r"pip install 'kbert-learn\[torch\]'.*folders that `export` wrote"
    with pytest.raises(BackendNotInstalledError, match=remedy):
        backend.require_backend()
    # Before the weights, which are not there.
    with pytest.raises(BackendNotInstalledError, match=remedy):
        kbert.BertVectorizer(weights="no-one/no-weights").fit(["a text"])
    kbert.show_versions()
    shown = capsys.readouterr().out
    assert re.search(r"(?m)^backend +none\. Keras is not installed.*" + remedy, shown) and "numpy" in shown


def test_a_model_is_refused_with_that_error_before_keras_is_imported(tmp_path):
    code = (
        "import sys; sys.modules.update(tensorflow=None, jax=None, torch=None)\n"  # as good as not installed
        "try: from kbert import BertEncoder\n"
        "except ImportError as error: print(type(error).__name__, 'keras' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    root = Path(backend.__file__).parents[1]
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**environment, "KERAS_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["BackendNotInstalledError", "False"]


def memory_settings():
    """What a worker has once it has loaded kbert, as it does to read an estimator."""
    import kbert

    names = ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH")
    return kbert.__version__, [os.environ.get(name) for name in names]


def test_workers_share_the_memory_of_an_accelerator_and_the_main_process_is_left_alone(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as workers:
        assert workers.submit(memory_settings).result()[1] == ["false", "false"]
    share_accelerator()
    assert memory_settings()[1] == [None, "false"]
    (found,) = joblib.Parallel(n_jobs=2)([joblib.delayed(memory_settings)()])
    assert found[1][0] == "false"


COMPUTES_AT_ONCE = """
import kbert.model.encoder, jax
from jax import numpy as jnp
value = jax.jit(lambda x: [x := x @ x / 1000 for _ in range(30)][-1])(jnp.ones((1000, 1000)))
print(value.is_ready())
"""


@pytest.mark.parametrize(
    "first, keep, expected",
    [("", "", "True"), ("import jax, keras", "0", "True"), ("", "1", "False")],
)
def test_jax_computes_in_the_thread_that_calls_it_unless_settings_are_kept(first, keep, expected):
    pytest.importorskip("jax")
    chosen = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "KBERT_KEEP_PROCESS_SETTINGS": keep}
    environment = {**os.environ, **chosen}
    code = first + COMPUTES_AT_ONCE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == expected


def test_workers_keep_their_settings_if_they_are_asked_to(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    monkeypatch.setenv("KBERT_KEEP_PROCESS_SETTINGS", "1")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as workers:
        assert workers.submit(memory_settings).result()[1] == [None, None]
