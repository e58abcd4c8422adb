"""Killed replacements of a folder, and several at once. What has to fork is in kill_while_replacing.py."""

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kbert.files import atomic_folder
from kbert.files.atomic_folder import FolderKind, complete_interrupted_replacement, fill_folder, read_whole

KIND = FolderKind("kbert.json", frozenset({"kbert.json"}), "saved estimator")

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which Windows does not have")

# No name that needs care may make another folder's leftovers look like one's own.
NAMES = ["model", "m[o]d*l ?.ü", ".hidden"]


def run(what, base, name, *options):
    script = Path(__file__).with_name("kill_while_replacing.py")
    done = subprocess.run([sys.executable, script, what, base, name, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_fork
@pytest.mark.parametrize("name, options", [*((name, []) for name in NAMES), ("model", ["no-links"])], ids=str)
def test_a_kill_at_any_step_leaves_the_old_folder_or_the_new_one(tmp_path, name, options):
    found = run("kill", tmp_path, name, *options)
    # Before, between and after the two renames: each of these was met.
    assert set(found) == {"old", "new, completed", "new"}
    assert found["old"] > 20 and found["new"] > 10


@needs_fork
def test_a_kill_in_the_first_save_leaves_nothing_or_all_of_it(tmp_path):
    found = run("first", tmp_path, "model")
    assert set(found) == {"nothing", "new"}


@needs_fork
def test_an_error_at_any_step_leaves_the_old_folder_or_the_new_one(tmp_path):
    found = run("fail", tmp_path, "model")
    assert set(found) == {"old", "new"}


@needs_fork
def test_processes_that_load_at_once_after_a_kill_all_succeed(tmp_path):
    run("complete", tmp_path, "model")


@needs_fork
def test_processes_that_save_at_once_leave_one_of_the_saves_and_all_other_files(tmp_path):
    run("save", tmp_path, "model")


# --- Without processes


def write(text):
    """What `replace_folder` calls to fill a folder."""

    def fill(path):
        (path / "kbert.json").write_text(text)

    return fill


def replace_folder(folder, fill):
    atomic_folder.replace_folder(folder, fill, KIND)


def interrupt(monkeypatch, folder, save):
    """Save as a process does that is killed between the two renames."""
    with monkeypatch.context() as patch:
        patch.setattr(atomic_folder, "_put_in_place", lambda staging, folder: None)
        save(folder)
    assert not Path(folder).exists()


@pytest.mark.parametrize("kind", ["absolute", "str", "relative", "here", "home", "link", "dangling link"])
def test_an_interrupted_save_is_found_however_the_folder_is_named(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "m[o]d*l"
    replace_folder(folder, write("old"))
    (folder / "README.md").write_text("mine")
    (tmp_path / "link").symlink_to(folder.name)
    # Another folder's, of a name that a pattern would take for the same.
    replace_folder(tmp_path / "mo", write("old"))
    interrupt(monkeypatch, tmp_path / "mo", lambda path: replace_folder(path, write("another")))

    interrupt(monkeypatch, folder, lambda path: replace_folder(path, write("new")))
    names = {"absolute": folder, "str": str(folder), "relative": Path(folder.name), "here": f"./{folder.name}/"}
    names |= {"home": f"~/{folder.name}", "link": tmp_path / "link", "dangling link": "link"}
    complete_interrupted_replacement(names[kind])
    assert (folder / "kbert.json").read_text() == "new"
    assert (folder / "README.md").read_text() == "mine"
    assert (tmp_path / "link").is_symlink() and not (tmp_path / "mo").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".mo.")) == ["link", "m[o]d*l"]


def test_a_save_through_a_link_replaces_what_it_points_to(tmp_path):
    (tmp_path / "disk").mkdir()
    replace_folder(tmp_path / "disk" / "model", write("old"))
    (tmp_path / "model").symlink_to(tmp_path / "disk" / "model")
    replace_folder(tmp_path / "model", write("new"))
    assert (tmp_path / "model").is_symlink()
    assert (tmp_path / "disk" / "model" / "kbert.json").read_text() == "new"
    assert os.listdir(tmp_path / "disk") == ["model"]


def test_what_a_first_save_left_is_not_taken_for_complete(tmp_path):
    (tmp_path / ".model.0123abcd" / "new").mkdir(parents=True)
    complete_interrupted_replacement(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    replace_folder(tmp_path / "model", write("present"))
    for name in ("new", "old"):
        (tmp_path / ".model.0123abcd" / name).mkdir(parents=True)
    complete_interrupted_replacement(tmp_path / "model")
    assert (tmp_path / "model" / "kbert.json").read_text() == "present"
    assert (tmp_path / ".model.0123abcd" / "new").is_dir()


def test_leftovers_are_removed_when_they_are_old_and_nothing_else_is(tmp_path):
    for name in (".model.00000000", ".model.11111111", ".model.22222222", ".model.notes", ".another.00000000"):
        (tmp_path / name / "new").mkdir(parents=True)
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / ".model.11111111")  # that of a process which still runs, perhaps
    (tmp_path / ".model.22222222" / "thesis.txt").write_text("not from kbert")
    os.utime(tmp_path / ".model.22222222", (0, 0))
    replace_folder(tmp_path / "model", write("new"))
    assert sorted(os.listdir(tmp_path)) == [
        ".another.00000000",
        ".model.11111111",
        ".model.22222222",
        ".model.notes",
        "model",
    ]


def test_a_file_that_is_still_written_to_goes_on_in_the_new_folder(tmp_path):
    folder = tmp_path / "model"
    replace_folder(folder, write("old"))
    with open(folder / "training.log", "w") as log:
        log.write("before\n")
        log.flush()
        replace_folder(folder, write("new"))
        log.write("after\n")
    assert (folder / "training.log").read_text() == "before\nafter\n"


@pytest.mark.parametrize("here", [".", "notebooks"])
def test_a_working_folder_that_is_replaced_stays_the_working_folder(tmp_path, monkeypatch, here):
    folder = tmp_path / "model"
    replace_folder(folder, write("old"))
    (folder / "notebooks").mkdir()
    monkeypatch.chdir(folder / here)
    for text in ("new", "newer"):
        replace_folder(os.path.relpath(folder), write(text))
        assert Path.cwd() == folder / here
        assert Path(os.path.relpath(folder), "kbert.json").read_text() == text


def test_other_files_that_cannot_be_read_are_named_and_the_old_folder_stays(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    replace_folder(folder, write("old"))
    (folder / "README.md").write_text("mine")

    def fail(*args, **options):
        raise PermissionError("not yours")

    monkeypatch.setattr("os.link", fail)
    monkeypatch.setattr("shutil.copy2", fail)
    with pytest.raises(OSError, match="left as it is.*not yours.*into another folder"):
        replace_folder(folder, write("new"))
    assert (folder / "kbert.json").read_text() == "old" and os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    "name",
    [
        *("google-bert/bert-base-uncased", "hf://google-bert/bert-base-uncased", "minilm-l6", "", "a\0b", "a" * 5000),
        *("~no-such-user/x", None, 3),
    ],
    ids=lambda name: repr(name)[:20],
)
def test_a_name_that_is_no_folder_costs_nothing(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    changes = ("rename", "mkdir", "rmdir", "unlink", "open")
    for change in changes:
        monkeypatch.setattr(os, change, lambda *_, **__: pytest.fail("something was changed, or locked"))
    complete_interrupted_replacement(name)


# --- Permissions

needs_modes = pytest.mark.skipif(os.name == "nt", reason="Windows has no permissions by mode")


def modes(folder):
    """The permissions of a folder and of all that is in it, by name; those of the folder under "."."""
    return {
        path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]
    }


def write_privately(path):
    """As libraries do that write to a temporary file first."""
    (path / "variables").mkdir(mode=0o700)
    for name in ("kbert.json", "variables/1"):
        with open(os.open(path / name, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write("new")


@pytest.fixture(params=[0o022, 0o027, 0o077], ids=oct)
def umask(request):
    """A umask of the process, and what it leaves of the permissions of folders and of files."""
    before = os.umask(request.param)
    yield 0o777 & ~request.param, 0o666 & ~request.param
    os.umask(before)


@needs_modes
@pytest.mark.parametrize("way", ["new", "filled", "empty"])
def test_new_files_get_the_permissions_that_the_umask_leaves(tmp_path, umask, way):
    folder = tmp_path / "model"
    if way == "empty":
        folder.mkdir()
    if way == "new":
        replace_folder(folder, write_privately)
    else:
        fill_folder(folder, write_privately, last="kbert.json")
    of_folders, of_files = umask
    expected = {".": of_folders, "variables": of_folders, "kbert.json": of_files, "variables/1": of_files}
    assert modes(folder) == expected


@needs_modes
def test_a_folder_and_files_that_had_other_permissions_keep_them(tmp_path):
    folder = tmp_path / "model"
    replace_folder(folder, write("old"))
    (folder / "README.md").write_text("mine")
    before = {".": 0o770, "kbert.json": 0o640, "README.md": 0o400}
    for name, mode in before.items():
        (folder / name).chmod(mode)
    staged = []

    def fill(path):
        staged.append(stat.S_IMODE(path.parent.stat().st_mode))
        write_privately(path)

    replace_folder(folder, fill)
    found = modes(folder)
    assert {name: found[name] for name in before} == before and (folder / "kbert.json").read_text() == "new"
    assert staged == [0o770]  # nobody else can read it meanwhile


@needs_modes
def test_a_file_in_the_place_of_a_folder_or_a_link_does_not_get_its_permissions(tmp_path, umask):
    folder = tmp_path / "model"
    replace_folder(folder, write("old"))
    (folder / "variables").write_text("a file")
    (tmp_path / "private").touch(mode=0o600)
    (folder / "kbert.json").unlink()
    (folder / "kbert.json").symlink_to(tmp_path / "private")
    replace_folder(folder, write_privately)
    assert modes(folder)["kbert.json"] == umask[1] and modes(folder)["variables"] == umask[0]


@needs_modes
def test_a_folder_and_its_files_stay_with_their_group(tmp_path):
    folder = tmp_path / "model"
    replace_folder(folder, write("old"))
    groups = [0, 1] if os.geteuid() == 0 else os.getgroups()
    other = next((group for group in groups if group != folder.stat().st_gid), None)
    if other is None:
        pytest.skip("needs a second group")
    for path in (folder, folder / "kbert.json"):
        os.chown(path, -1, other)
    replace_folder(folder, write("new"))
    assert (folder.stat().st_gid, (folder / "kbert.json").stat().st_gid) == (other, other)


@needs_modes
def test_a_file_system_without_permissions_is_written_to_all_the_same(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise PermissionError("no permissions here")

    monkeypatch.setattr(Path, "chmod", fail)
    replace_folder(tmp_path / "model", write_privately)
    assert (tmp_path / "model" / "kbert.json").read_text() == "new"


# --- Filling a new or an empty folder


@pytest.mark.parametrize("exists", [True, False])
def test_a_new_or_empty_folder_is_filled_and_nothing_else_is_left(tmp_path, exists):
    folder = tmp_path / "outer" / "model"
    if exists:
        folder.mkdir(parents=True)
    inode = folder.stat().st_ino if exists else None
    fill_folder(folder, write("new"), last="kbert.json")
    assert (folder / "kbert.json").read_text() == "new"
    assert os.listdir(folder) == ["kbert.json"] and os.listdir(folder.parent) == ["model"]
    assert inode in (None, folder.stat().st_ino)


@pytest.mark.parametrize("name", ["model", "link", "~/model"])
def test_what_was_read_while_the_folder_was_replaced_is_read_anew(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    folder = tmp_path / "model"
    (tmp_path / "link").symlink_to("model")

    def write(text):
        return lambda path: [(path / file).write_text(text) for file in (KIND.marker, "weights")]

    replace_folder(folder, write("old"))
    readings = []

    def read():
        marker = (folder / KIND.marker).read_text()
        if not readings:
            replace_folder(folder, write("new"))
        readings.append(marker)
        return marker, (folder / "weights").read_text()

    monkeypatch.chdir(tmp_path)
    assert read_whole(name, read) == ("new", "new") and readings == ["old", "new"]


@pytest.mark.parametrize("exists", [True, False])
def test_filling_that_fails_leaves_nothing(tmp_path, exists):
    folder = tmp_path / "outer" / "model"
    if exists:
        folder.mkdir(parents=True)

    def fail(path):
        (path / "half").write_text("a half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        fill_folder(folder, fail, last="kbert.json")
    assert folder.exists() == exists and (tmp_path / "outer").exists() == exists
    assert not exists or os.listdir(folder) == []


@pytest.mark.parametrize("write", [replace_folder, lambda *args: fill_folder(*args, "config.json")])
def test_a_full_disk_is_told_of_the_target(tmp_path, write):
    def fail(path):
        raise OSError(errno.ENOSPC, "No space left on device")  # Python's own names no file

    with pytest.raises(OSError, match="No space left on device.*Make room") as raised:
        write(tmp_path / "model", fail)
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_failure_while_files_are_moved_into_an_empty_folder_takes_them_back(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    folder.mkdir()

    def fill(path):
        (path / "variables").mkdir()
        (path / "vocab.txt").write_text("[PAD]")
        (path / "config.json").write_text("{}")

    rename, moved = Path.rename, []

    def fail_at_last(path, target):
        if path.name == "config.json":
            raise OSError("no space left on device")
        moved.append(path.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_at_last)
    with pytest.raises(OSError, match="no space"):
        fill_folder(folder, fill, last="config.json")
    assert sorted(moved) == ["variables", "vocab.txt"] and os.listdir(folder) == []


def test_an_empty_mount_point_is_filled_and_a_full_one_is_refused_at_once(tmp_path, monkeypatch):
    def write(folder):
        (folder / "kbert.json").write_text("new")

    monkeypatch.setattr(atomic_folder.os.path, "ismount", lambda path: Path(path).name == "volume")
    volume = tmp_path / "volume"
    volume.mkdir()
    number = volume.stat().st_ino
    atomic_folder.replace_folder(volume, write, KIND)
    assert volume.stat().st_ino == number and [path.name for path in volume.iterdir()] == ["kbert.json"]
    assert list(tmp_path.iterdir()) == [volume]
    with pytest.raises(FileExistsError, match="cannot be replaced in one step: it is a mount point"):
        atomic_folder.replace_folder(volume, lambda folder: pytest.fail("it was written to"), KIND)


def test_a_folder_that_holds_something_is_not_filled(tmp_path):
    (tmp_path / "mine").write_text("kept")
    for target in (tmp_path, tmp_path / "mine"):
        with pytest.raises(FileExistsError, match="is left as it is"):
            fill_folder(target, write("new"), last="kbert.json")
    assert os.listdir(tmp_path) == ["mine"]
