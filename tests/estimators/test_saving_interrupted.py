"""Estimators whose save was killed. What becomes of any folder is in tests/files/test_atomic_folder.py."""

import os
from pathlib import Path

import pytest

from kbert import BertClassifier
from kbert.errors import WeightsNotFoundError
from kbert.estimators import kbert_json
from kbert.files import atomic_folder


def interrupt(monkeypatch, folder, save):
    """Save as a process does that is killed between the two renames."""
    with monkeypatch.context() as patch:
        patch.setattr(atomic_folder, "_put_in_place", lambda staging, folder: None)
        save(folder)
    assert not Path(folder).exists()


@pytest.mark.parametrize("kind", ["path", "relative", "link"])
def test_load_finishes_a_save_that_was_killed_between_the_renames(
    fitted, fitted_three, tmp_path, monkeypatch, reviews, kind
):
    folder = tmp_path / "model"
    fitted_three.save(folder)
    (folder / "README.md").write_text("mine")
    (tmp_path / "link").symlink_to("model")
    interrupt(monkeypatch, folder, fitted.save)
    monkeypatch.chdir(tmp_path)
    loaded = BertClassifier.load({"path": folder, "relative": "model", "link": "link"}[kind], verify=True)
    assert loaded.classes_.tolist() == ["bad", "good"]
    assert (loaded.predict(reviews.text) == fitted.predict(reviews.text)).all()
    assert (folder / "README.md").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["link", "model"]


def test_save_finishes_one_that_was_killed_and_then_replaces_it(fitted, fitted_three, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    fitted.save(folder)
    (folder / "README.md").write_text("mine")
    interrupt(monkeypatch, folder, fitted.save)
    fitted_three.save(folder)
    assert BertClassifier.load(folder, verify=True).classes_.tolist() == ["bad", "good", "meh"]
    assert (folder / "README.md").read_text() == "mine" and os.listdir(tmp_path) == ["model"]


def test_a_save_killed_before_it_was_complete_is_not_loaded(fitted, tmp_path):
    fitted.save(tmp_path / ".model.0123abcd" / "new")
    with pytest.raises(WeightsNotFoundError, match="There is no saved model"):
        BertClassifier.load(tmp_path / "model")


def test_a_folder_that_is_replaced_while_it_is_loaded_is_loaded_anew(fitted, fitted_three, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    fitted.save(folder)
    load_model, others = BertClassifier._load_model, [fitted_three, fitted]

    def load_after_another_save(self, folder, policy):
        if others:
            others.pop().save(folder)
            if others:
                others.pop().save(folder)  # with other labels
        return load_model(self, folder, policy)

    monkeypatch.setattr(BertClassifier, "_load_model", load_after_another_save)
    assert BertClassifier.load(folder, verify=True).classes_.tolist() == ["bad", "good", "meh"]


def test_a_folder_that_is_replaced_all_the_time_is_not_read_for_ever(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "model")
    tries = []

    def replace(self, folder, policy):
        tries.append(folder)
        (folder / f"{len(tries)}.txt").touch()

    monkeypatch.setattr(BertClassifier, "_load_model", replace)
    with pytest.raises(OSError, match="was replaced each time while it was read"):
        BertClassifier.load(tmp_path / "model")
    assert len(tries) == 20


def test_kbert_json_is_written_last(fitted, tmp_path, monkeypatch):
    write_last = kbert_json.write
    names = []

    def note(folder, values):
        names.extend(os.listdir(folder))
        write_last(folder, values)

    monkeypatch.setattr(kbert_json, "write", note)
    fitted.save(tmp_path / "model")
    assert sorted([*names, "kbert.json"]) == sorted(os.listdir(tmp_path / "model"))
