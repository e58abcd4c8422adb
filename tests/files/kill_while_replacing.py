"""Kills saves at every step, and runs several at once. A script, because it forks, which Keras's backends do not bear.

    python kill_while_replacing.py kill|first|fail|complete|save <an empty folder> <name of the saved folder> [no-links]

It checks what it finds each time, and prints how often it found what.
"""

import itertools
import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

from kbert.files import atomic_folder

CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.utime", "os.truncate"),
    *("shutil.copyfile", "shutil.copystat", "shutil.copytree", "shutil.move", "shutil.rmtree", "test.half_written"),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DISK_FULL = OSError("no space left, says the test")
FILES = frozenset({"config.json", "model.safetensors", "kbert.json", "vocab.txt"})
KIND = atomic_folder.FolderKind("kbert.json", FILES, "saved estimator")
# Exit codes: finished before it was to be stopped, ended by the failure, went on after it, was killed.
DONE, FAILED, IN_SPITE_OF_IT, KILLED = 0, 3, 4, 9

# What lies in a saved folder besides; None is a folder, and a tuple a link.
OTHERS = {
    "README.md": "about my model",
    "runs": None,
    "runs/[1] *.txt": "0.5\n0.25\n",
    "runs/none": None,
    "runs/last": ("none",),
    "latest": ("runs/[1] *.txt",),
    "all": ("runs",),
    "gone": ("nowhere",),
}


def files(version):
    """What a save of that version consists of. An older one has a file that the newer ones do not have."""
    names = ["config.json", "model.safetensors", "kbert.json"]
    if version == "old":
        names.append("vocab.txt")
    return {name: f"{name} of {version}\n" * 3 for name in names}


def save(folder, version):
    """As an estimator does it: kbert.json comes last."""

    def write(path):
        for name, text in sorted(files(version).items(), key=lambda item: item[0] == "kbert.json"):
            with open(path / name, "w") as file:
                file.write(text[: len(text) // 2])
                file.flush()
                sys.audit("test.half_written")
                file.write(text[len(text) // 2 :])

    atomic_folder.replace_folder(folder, write, KIND)


def add_others(folder):
    for name, content in OTHERS.items():
        if content is None:
            (folder / name).mkdir()
        elif isinstance(content, tuple):
            (folder / name).symlink_to(*content)
        else:
            (folder / name).write_text(content)


def contents(folder):
    """Everything in a folder, as OTHERS has it."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in folders + names:
            path = Path(place, name)
            content = (os.readlink(path),) if path.is_symlink() else None if path.is_dir() else path.read_text()
            found[path.relative_to(folder).as_posix()] = content
    return found


def version_in(folder, others):
    """Which version a folder holds, all of it, and everything else that belongs there."""
    found = contents(folder)
    version = found.get("kbert.json", "no version here").split()[2]
    assert found == {**files(version), **others}, found
    return version


def child(work, stop_at=None, stop=lambda: os._exit(KILLED)):
    """Start ``work()`` in a process of its own, which is stopped at its n-th change of the file system."""
    pid = os.fork()
    if pid:
        return pid
    changes = itertools.count(1)

    def hook(event, arguments):
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if (writes or event in CHANGES) and next(changes) == stop_at:
            stop()

    try:
        if stop_at is not None:
            sys.addaudithook(hook)
        work()
        os._exit(DONE if stop_at is None or next(changes) <= stop_at else IN_SPITE_OF_IT)
    except OSError as error:
        if str(DISK_FULL) in str(error):
            os._exit(FAILED)
        sys.excepthook(*sys.exc_info())
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def outcome(pid):
    """The exit code of a child."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def fresh(folder, replaces):
    """The state before a save."""
    shutil.rmtree(folder.parent, ignore_errors=True)
    folder.parent.mkdir()
    if replaces:
        save(folder, "old")
        add_others(folder)


def kill_everywhere(folder, replaces):
    """A save, killed at each of its steps, and after it either a load or another save."""
    others = OTHERS if replaces else {}
    found = Counter()
    for n in itertools.count(1):
        for afterwards in ("load", "save"):
            fresh(folder, replaces)
            code = outcome(child(lambda: save(folder, "new"), stop_at=n))
            assert code in (DONE, KILLED), code
            between = not folder.exists()
            if afterwards == "load":
                atomic_folder.complete_interrupted_replacement(folder)
                there = folder.exists()
                assert there or not replaces
                version = version_in(folder, others) if there else "nothing"
                assert code == KILLED or version == "new"
                found[f"{version}, completed" if between and there else version] += 1
            else:
                for path in folder.parent.iterdir():
                    # Of an hour ago, and the folder itself must not be taken for a leftover.
                    os.utime(path, (0, 0))
                save(folder, "newest")
                assert version_in(folder, others) == "newest"
                assert os.listdir(folder.parent) == [folder.name]
        if code == DONE:
            return found


def fail_everywhere(folder):
    """A save in which each step in turn raises an error, and nothing is killed."""

    def fail():
        raise DISK_FULL

    found = Counter()
    for n in itertools.count(1):
        fresh(folder, replaces=True)
        code = outcome(child(lambda: save(folder, "new"), stop_at=n, stop=fail))
        assert code in (DONE, FAILED, IN_SPITE_OF_IT), code
        version = version_in(folder, OTHERS)
        assert code == FAILED or version == "new"
        # A clean-up that could not be made leaves something to the next save.
        assert os.listdir(folder.parent) == [folder.name] or code == IN_SPITE_OF_IT
        found[version] += 1
        if code == DONE:
            return found


def at_once(*works):
    """Let several processes go at the same moment; their exit codes."""
    ready, go = os.pipe()

    def waiting(work):
        os.close(go)
        os.read(ready, 1)
        work()

    pids = [child(lambda work=work: waiting(work)) for work in works]
    os.close(go)
    codes = [outcome(pid) for pid in pids]
    os.close(ready)
    return codes


def complete_at_once(folder, rounds=60):
    """Three processes that load at once after a kill between the two renames."""

    def load():
        atomic_folder.complete_interrupted_replacement(folder)
        assert version_in(folder, OTHERS) == "new"

    last_step = atomic_folder._put_in_place
    for _ in range(rounds):
        fresh(folder, replaces=True)
        atomic_folder._put_in_place = lambda *_: None
        save(folder, "new")
        atomic_folder._put_in_place = last_step
        assert not folder.exists()
        assert at_once(load, load, load) == [0, 0, 0]
        assert os.listdir(folder.parent) == [folder.name]
    return {"rounds": rounds}


def save_at_once(folder, rounds=150):
    """Two processes that save to the same folder over and over, while the others of its files stay."""
    fresh(folder, replaces=True)

    def saving(name):
        for i in range(rounds):
            save(folder, f"{name}{i}")

    assert at_once(lambda: saving("a"), lambda: saving("b")) == [0, 0]
    assert version_in(folder, OTHERS)[1:].isdigit()
    assert os.listdir(folder.parent) == [folder.name]
    return {"rounds": rounds}


if __name__ == "__main__":
    what, base, name, *options = sys.argv[1:]
    folder = Path(base, "folder", name)
    if "no-links" in options:

        def no_link(*_, **__):
            raise OSError("this file system has no hard links")

        os.link = no_link
    runs = {
        "kill": lambda: kill_everywhere(folder, replaces=True),
        "first": lambda: kill_everywhere(folder, replaces=False),
        "fail": lambda: fail_everywhere(folder),
        "complete": lambda: complete_at_once(folder),
        "save": lambda: save_at_once(folder),
    }
    print(json.dumps(runs[what]()))
