"""What a run writes beside its checkpoints: history.csv, and records for TensorBoard, also when it goes on."""

import sys

import numpy as np
import pandas as pd
import pytest
from test_trainer import made

from kbert.pretraining.history import History, HistoryFile, TensorBoard

pytestmark = pytest.mark.slow


class Stop(Exception):
    pass


def stopped_at(number):
    def stop(step):
        if step == number:
            raise Stop

    return stop


def events(folder):
    """The records of all files, in the order of their names."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    found = []
    for path in sorted(folder.iterdir()):
        reader = PyRecordReader_New(str(path))
        while True:
            try:
                reader.GetNext()
            except Exception:  # the library's own sign of the end
                break
            found.append(Event.FromString(reader.record()))
    return found


def test_history_is_written_with_each_checkpoint(tmp_path):
    with pytest.raises(Stop):
        made(folder=tmp_path, checkpoint_every=3, on_step_end=stopped_at(7)).run()
    assert len(pd.read_csv(tmp_path / "history.csv")) == 6
    history = made(folder=tmp_path, checkpoint_every=3).run()
    written = pd.read_csv(tmp_path / "history.csv")
    pd.testing.assert_frame_equal(written, history)
    assert written.val_mlm_loss.notna().tolist() == [step in (5, 10, 12) for step in range(1, 13)]
    assert not list(tmp_path.glob("*.part"))


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made(max_steps=2).run()
    assert not list(tmp_path.iterdir())


def history_of(*records):
    history = History()
    for record in records:
        history.append(record)
    return history


def test_a_kill_while_writing_leaves_the_older_history(tmp_path, monkeypatch):
    HistoryFile(tmp_path).write(history_of({"step": 1, "loss": 2.5}))
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        HistoryFile(tmp_path).write(history_of({"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.0}))
    assert (tmp_path / "history.csv").read_text() == "step,loss\n1,2.5\n"


def test_lines_are_added_to_the_file_and_a_new_column_writes_it_anew(tmp_path):
    history, file, path = history_of({"step": 1, "loss": 2.5}), HistoryFile(tmp_path), tmp_path / "history.csv"
    file.write(history)
    inode = path.stat().st_ino
    history.append({"step": 2, "loss": 2.0})
    file.write(history)
    assert path.read_text() == "step,loss\n1,2.5\n2,2.0\n" and path.stat().st_ino == inode
    history.add({"val_loss": 1 / 3})
    file.write(history)
    assert path.read_text() == f"step,loss,val_loss\n1,2.5,\n2,2.0,{1 / 3}\n"
    history.append({"step": 3})
    file.write(history)
    # One that goes on from the second line forgets the third.
    HistoryFile(tmp_path).write(history_of({"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.0}))
    assert path.read_text() == "step,loss\n1,2.5\n2,2.0\n"


def test_a_history_is_columns_of_whole_numbers_and_numbers():
    history = history_of({"step": 1, "loss": 3.0}, {"step": 2, "val_loss": 4.0})
    assert len(history) == 2 and history.record(-1) == {"step": 2, "val_loss": 4.0}
    found = history.columns()
    assert list(found) == ["step", "loss", "val_loss"] and found["step"].dtype == "int64"
    np.testing.assert_array_equal(found["loss"], [3.0, np.nan])
    again = History(found)
    again.append({"step": 3, "loss": 1.0})
    assert len(history) == 2 and len(again) == 3
    np.testing.assert_array_equal(again.columns(1)["val_loss"], [4.0, np.nan])


def test_tensorboard_gets_every_update(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'kbert-learn[tensorboard]'")
    run, board = tmp_path / "run", tmp_path / "board"
    with pytest.raises(Stop):
        made(folder=run, checkpoint_every=3, tensorboard=board, on_step_end=stopped_at(7)).run()
    # Where it is written does not make it another run.
    history = made(folder=run, checkpoint_every=3, tensorboard=str(board)).run()
    assert len(list(board.iterdir())) == 2
    found = events(board)
    assert found[0].file_version == "brain.Event:2"
    # Told to forget what came after the checkpoint.
    (again,) = [i for i, event in enumerate(found) if event.HasField("session_log")]
    assert found[again].step == 7
    steps = [event.step for event in found if event.HasField("summary")]
    assert steps[-6:] == list(range(7, 13)) and steps[:6] == list(range(1, 7))
    last = {value.tag: value.simple_value for value in found[-1].summary.value}
    expected = history.iloc[-1].drop("step").to_dict()
    assert last == pytest.approx(expected, rel=1e-5) and "val_mlm_loss" in last
    assert sum(event.summary.value[0].tag == "learning_rate" for event in found if event.HasField("summary")) >= 12


def test_without_tensorboard_the_command_is_told_before_training(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    run = made(tensorboard=tmp_path / "board")
    with pytest.raises(ImportError, match="pip install tensorboard$"):
        run.run()
    assert run.step == 0 and not list(tmp_path.iterdir())
    with TensorBoard(None, History()) as board:
        board.write(history_of({"step": 1}))


def test_the_share_of_the_peak_is_noted_where_progress_is_shown(monkeypatch, capsys):
    monkeypatch.setattr("kbert.pretraining.progress.matrix_peak", lambda dtype: 1e11)
    history = made(max_steps=12, verbose=1).run()
    assert history.peak_share.isna().tolist()[0] and (history.peak_share.dropna() > 0).all()
    assert history.peak_share.notna().sum() >= 8
    shown = capsys.readouterr().err
    assert "12/12 steps" in shown and "tokens/s, peak " in shown and "mlm " in shown
    assert "peak_share" not in made(max_steps=2).run()
    assert capsys.readouterr().err == ""
