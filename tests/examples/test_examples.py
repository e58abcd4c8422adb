"""The examples run as they stand, and print what they promise.

Those of the gallery, plot_*.py, are run by test_gallery.py and ``make docs``.
"""

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str) -> str:
    """Standard output of an example, which must end well."""
    # A real model, which is to be compiled as for users.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        env={**environment, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("glue", "mrpc --rows 0", "--rows is 0: give 1 or more"),
        ("glue", "mrpc --defaults --epochs 2", "--epochs cannot be set with --defaults, which chooses it"),
        ("glue", "mrpc --grid --learning-rate 1e-4", "--learning-rate cannot be set with --grid"),
        ("ner", "--rows -3", "--rows is -3: give 0 for all"),
        ("ner", "--passages 1.5", "--passages is 1.5: give a share"),
        ("squad", "--dev-rows -1", "--dev-rows is -1"),
        ("choice", "--rows -1", "--rows is -1"),
        ("choice", "--defaults --max-length 64", "--max-length cannot be set with --defaults, which chooses it"),
        ("features", "--dev-rows -1", "--dev-rows is -1"),
    ],
)
def test_options_that_cannot_be_are_refused(name, arguments, message, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with pytest.raises(SystemExit):
        importlib.import_module(name).main(arguments.split())
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("bert_tiny_for_all", "one_pass")
@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_quickstart_runs_with_a_smaller_model(capsys):
    runpy.run_path(str(EXAMPLES / "quickstart.py"))
    out = capsys.readouterr().out
    assert re.search(r"^test accuracy 0\.\d{3}$", out, re.MULTILINE) and "saved, loaded, and predicts the same" in out


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.usefixtures("minilm_folder")
def test_quickstart_fine_tunes_saves_and_loads():
    out = run_example("quickstart.py")
    accuracy = float(re.search(r"^test accuracy (0\.\d{3})$", out, re.MULTILINE).group(1))
    assert accuracy > 0.8
    assert "saved, loaded, and predicts the same" in out


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.usefixtures("minilm_folder")
def test_an_encoder_trains_in_a_users_own_keras_model():
    out = run_example("keras_model.py")
    first, last = map(float, re.search(r"loss (\S+) -> (\S+)", out).groups())
    assert last < first
    assert float(re.search(r"saving and loading: (\S+)", out).group(1)) < 1e-6
