"""A short run of the fuzz of every reader, and what it notices. See run.py for a long one."""

import json
import os
import pickle
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from mutations import Payload
from readers import READERS, Reader
from run import Cases

pytestmark = pytest.mark.slow

ROUNDS = 2


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The counts of a few rounds, in a process whose memory is bounded."""
    out = tmp_path_factory.mktemp("fuzz") / "out.json"
    command = [sys.executable, Path(__file__).with_name("run.py"), "--rounds", str(ROUNDS), "--seed", "0", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert out.exists(), done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(report, name):
    assert [failure for failure in report["failures"] if failure["reader"] == name] == []
    assert sum(report["readers"][name].values()) == ROUNDS * READERS[name].each_round


# --- The fuzz itself


def _run(tmp_path, read, **options):
    """One case of a reader of a single file."""
    reader = Reader(lambda folder: (folder / "a.txt").write_text("text"), lambda folder: None, **options)
    cases = Cases({"toy": reader}, Namespace(seed=0, keep=tmp_path / "kept"), tmp_path)
    cases.folder("toy")
    cases.readers["toy"] = Reader(reader.make, read, **options)
    return cases.run("toy", 0)


def _raise(error):
    raise error


@pytest.mark.parametrize(
    ("read", "outcome", "message"),
    [
        (lambda folder: None, "read", ""),
        (lambda folder: _raise(ValueError("no")), "refused", "no"),
        (lambda folder: _raise(KeyError("key")), "failed", "KeyError"),
        (lambda folder: _raise(UnicodeDecodeError("utf-8", b"", 0, 1, "raw")), "failed", "UnicodeDecodeError"),
        (lambda folder: _raise(BaseException("a panic")), "failed", "a panic"),
        (lambda folder: len(bytearray(b"a") * 500_000_000), "failed", "MB of memory"),
        (lambda folder: bytearray(10**11), "failed", "MemoryError"),
    ],
    ids=["read", "refused", "key", "a subclass", "panic", "memory", "too much memory"],
)
def test_what_a_reader_does_is_noticed(tmp_path, read, outcome, message):
    result = _run(tmp_path, read, errors=(ValueError,))
    assert result["outcome"] == outcome and message in result["error"]
    assert (tmp_path / "kept" / "toy-0-0").exists() == (outcome == "failed")


def test_code_from_a_file_is_noticed(tmp_path):
    result = _run(tmp_path, lambda folder: pickle.loads(pickle.dumps(Payload(tmp_path / "code-ran"))))
    assert result["outcome"] == "failed" and "code ran" in result["error"]


def test_the_same_seed_does_the_same_damage(tmp_path):
    def damage(folder):
        cases = Cases({"SQuAD": READERS["SQuAD"]}, Namespace(seed=5, keep=None), folder)
        done = [cases.run("SQuAD", case)["done"] for case in range(5)]
        return done, (cases.folder("SQuAD") / "train-v2.0.json").read_bytes()

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    assert damage(tmp_path / "one") == damage(tmp_path / "other")
