"""Folders of checkpoints: what a power cut leaves of them."""

import os
import stat

import numpy as np
import pytest

from kbert.files.atomic_folder import sync
from kbert.training import checkpoint_folders
from kbert.training.checkpoint_folders import checkpoints_in, write_checkpoint


def test_a_checkpoint_is_on_the_disk_before_an_older_one_goes(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(
        checkpoint_folders, "sync", lambda path: told.append((path, sorted(each.name for each in path.iterdir())))
    )
    folder = tmp_path / "fit"
    for step in (1, 2, 3):
        told.clear()
        write_checkpoint(folder, step, {"state": {"weights": np.ones(3)}}, {"step": step})
    names = [f"checkpoint-00000000{step}" for step in (1, 2, 3)]
    assert told == [
        (folder / f"{names[2]}.part", ["facts.json", "state.npz"]),  # before it has its name
        (folder, names),  # with its name, and the oldest is still there
        (tmp_path, ["fit"]),
    ]
    assert [path.name for path in checkpoints_in(folder)] == names[1:]


@pytest.mark.skipif(os.name != "posix", reason="other systems cannot do so with folders")
def test_files_and_folders_are_synced_and_what_cannot_be_is_passed_over(tmp_path, monkeypatch):
    kinds = []
    monkeypatch.setattr(os, "fsync", lambda handle: kinds.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    (tmp_path / "file").write_text("x")
    sync(tmp_path)
    sync(tmp_path / "file")
    sync(tmp_path / "none")
    assert kinds == [True, False]

    def unable(handle):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", unable)
    sync(tmp_path)
