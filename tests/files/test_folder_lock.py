"""The lock of a folder. A process that holds none, and may fork, is made for it."""

import os
import subprocess
import sys

import pytest

from kbert.files.folder_lock import alone_in

# The child lives until the pipe is closed, after the lock has been given up and asked for again.
FORK = """
import os, sys
from pathlib import Path
from kbert.files.folder_lock import alone_in

folder, otherwise = Path(sys.argv[1]), sys.argv[2] or None
readable, writable = os.pipe()
with alone_in(folder, otherwise):
    if not os.fork():
        os.close(writable)
        os.read(readable, 1)
        os._exit(0)
with alone_in(folder, "still locked"):
    os.close(writable)
    os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which Windows does not have")
@pytest.mark.parametrize("otherwise", ["", "in use"])
def test_a_child_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path, otherwise):
    done = subprocess.run([sys.executable, "-c", FORK, tmp_path, otherwise], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such locks")
def test_what_may_wait_goes_on_where_a_folder_stays_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("kbert.files.folder_lock._PATIENCE", 0.1)
    with alone_in(tmp_path, "in use"):  # as a fit with a checkpoint, in a callback of which something is saved
        with alone_in(tmp_path):
            pass
        with pytest.raises(ValueError, match="still in use"), alone_in(tmp_path, "still in use"):
            pass
