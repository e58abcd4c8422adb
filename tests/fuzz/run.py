"""Damages the files that kbert reads, and looks at what the readers do.

    python tests/fuzz/run.py --seconds 3600 --seed 0 --keep failures
    python tests/fuzz/run.py --reader "saved qa" --seed 0 --case 17      one case again
    python tests/fuzz/run.py --seconds 300 --table docs/project/reliability.md   the counts into the page's table

Each case damages one file of a good folder and reads the folder. The reader succeeds, with finite numbers of the right
shapes, or raises one of its documented errors: it raises nothing else, ends in time, takes little memory, and runs
nothing from the file. The cases run in a process of their own. One that a case ends is started again.
"""

import argparse
import itertools
import json
import os
import platform
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter, defaultdict
from importlib import metadata
from pathlib import Path

HERE, PROC = Path(__file__).parent, Path("/proc/self")
# Of a case: seconds of computing, seconds after which it is killed, and bytes more than there were before.
MOST_SECONDS, KILL_SECONDS, MOST_BYTES = 20, 120, 400_000_000
# Bytes of addresses that a case may ask for besides those that are in use: beyond them, memory is not given.
ADDRESSES = 3_000_000_000


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=None, help="how long; default: 60, or --rounds")
    parser.add_argument(
        "--rounds", type=int, default=None, help="how many rounds of all readers, in place of --seconds"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="one of the readers; may be given several times")
    parser.add_argument("--case", type=int, help="one case alone, with its traceback")
    parser.add_argument("--keep", type=Path, help="a folder for the input of each failure")
    parser.add_argument("--out", type=Path, help="a JSON file for the counts")
    parser.add_argument("--table", type=Path, help="a page in whose table the counts are put")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.worker is not None or args.case is not None:
        return worker(args)
    if args.seconds is None and args.rounds is None:
        args.seconds = 60.0
    results = Results(args)
    run_workers(args, results)
    report = results.report()
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.table:
        from table import update

        update(args.table, report)
    total = Counter()
    for counts in report["readers"].values():
        total.update(counts)
    print(", ".join(f"{n} {what}" for what, n in total.items()))
    return 1 if report["failures"] else 0


# === The process that reads ===


def worker(args):
    """Cases from number ``args.worker`` on, or the one case, and a line of JSON before and after each."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(HERE))
    from readers import READERS

    unknown = set(args.reader or ()) - set(READERS)
    if unknown:
        raise SystemExit(f"There is no reader {', '.join(sorted(unknown))}. There are: {', '.join(READERS)}.")
    readers = {name: READERS[name] for name in args.reader or READERS}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        cases = Cases(readers, args, Path(scratch))
        if args.case is not None:
            for name in readers:
                print(cases.run(name, args.case, reraise=True))
            return 0
        for number, (in_round, name, case) in enumerate(cases.order()):
            if number >= args.worker:
                cases.folder(name)
                tell(begin=number, round=in_round, reader=name, case=case)
                tell(**cases.run(name, case))
    return 0


def tell(**line):
    print(json.dumps(line), flush=True)


class Cases:
    """The cases of some readers.

    Parameters
    ----------
    readers : dict of Reader
    args : Namespace
        ``seed`` and ``keep``.
    scratch : Path
        A folder for files.
    """

    def __init__(self, readers, args, scratch):
        self.readers, self.seed, self.keep, self.scratch = readers, args.seed, args.keep, scratch
        self.marker = scratch / "code-ran"
        self.good = set()

    def order(self):
        """A round, reader and case, without end: a round has as many cases of each reader as it says."""
        for number in itertools.count():
            for name, reader in self.readers.items():
                yield from ((number, name, reader.each_round * number + i) for i in range(reader.each_round))

    def folder(self, name):
        """The good folder of a reader. It was read once, so that what is loaded and compiled then counts no more."""
        folder = self.scratch / "".join(letter if letter.isalnum() else "-" for letter in name)
        if name not in self.good:
            folder.mkdir()
            self.readers[name].make(folder)
            shutil.copytree(folder, f"{folder}-good")
            try:
                self.readers[name].read(folder)
            except Exception as error:
                if name != "exported":  # which is refused
                    raise RuntimeError(f"{name}: the good files were not read") from error
            self.good.add(name)
        shutil.rmtree(folder)
        shutil.copytree(f"{folder}-good", folder)
        return folder

    def run(self, name, case, reraise=False):
        """Damage a file, read the folder, and say what became of it."""
        rng = random.Random(f"{self.seed} {name} {case}")
        folder = self.folder(name)
        done = self.readers[name].damage(folder, rng, self.marker)
        before, start = memory(), time.process_time()
        _limit(before["VmSize"] + ADDRESSES)
        outcome, error = "read", ""
        try:
            self.readers[name].read(folder)
        except BaseException as caught:
            refused = _is_documented(caught, self.readers[name])
            outcome, error = "refused" if refused else "failed", f"{type(caught).__name__}: {caught}"
            if reraise and not refused:
                raise
        finally:
            _limit(resource.RLIM_INFINITY)
        seconds, grown = time.process_time() - start, memory()["VmHWM"] - before["VmRSS"]
        if self.marker.exists():
            outcome, error = "failed", f"code ran from the file. {error}"
        elif seconds > MOST_SECONDS:
            outcome, error = "failed", f"{seconds:.0f} s of computing. {error}"
        elif grown > MOST_BYTES:
            outcome, error = "failed", f"{grown / 1e6:.0f} MB of memory. {error}"
        if outcome == "failed":
            self._keep(name, case, folder)
            shutil.rmtree(self.marker, ignore_errors=True)
        result = {"outcome": outcome, "done": done, "error": error[:1000]}
        return {**result, "seconds": round(seconds, 3), "bytes": grown}

    def _keep(self, name, case, folder):
        if self.keep:
            target = self.keep / f"{folder.name}-{self.seed}-{case}"
            shutil.rmtree(target, ignore_errors=True)
            # A file of zeros without end stays as small as it is on disk.
            shutil.copytree(
                folder, target, symlinks=True,
                ignore=lambda at, names: [n for n in names if (Path(at) / n).lstat().st_size > 50_000_000],
            )  # fmt: skip


def _is_documented(error, reader):
    """Whether an error is one of kbert's, one of those classes itself, or the system's own that names a file."""
    from kbert.errors import KbertError

    if isinstance(error, KbertError):
        return True
    if isinstance(error, OSError) and error.filename is not None:
        return OSError in reader.errors
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    package = frame.f_globals.get("__name__", "").split(".")[0]
    return type(error) in reader.errors and (not reader.raised_by or package in reader.raised_by)


def _limit(n_bytes):
    if not PROC.exists():  # another system than Linux, where addresses in use are not known
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, hard))


def memory():
    """Bytes in use, the most so far, which is forgotten where the system can, and addresses."""
    if not PROC.exists():
        return dict.fromkeys(("VmRSS", "VmHWM", "VmSize"), 0)
    lines = (line.split() for line in (PROC / "status").read_text().splitlines())
    found = {
        line[0][:-1]: 1024 * int(line[1]) for line in lines if line and line[0].startswith(("VmRSS", "VmHWM", "VmSize"))
    }
    (PROC / "clear_refs").write_text("5")
    return found


# === The process that watches ===


class Results:
    """What became of the cases, counted."""

    def __init__(self, args):
        self.args, self.failures = args, []
        self.counts = defaultdict(Counter)
        self.seconds = self.bytes = 0.0
        self.begin = time.monotonic()

    def add(self, name, case, result):
        outcome = result["outcome"]
        self.counts[name][outcome] += 1
        self.seconds = max(self.seconds, result.get("seconds", 0))
        self.bytes = max(self.bytes, result.get("bytes", 0))
        if outcome == "failed":
            result = {"reader": name, "seed": self.args.seed, "case": case, **result}
            self.failures.append(result)
            again = f'--reader "{name}" --seed {self.args.seed} --case {case}'
            print(f"{again}   {result['done']}: {ascii(result['error'])[:300]}", flush=True)

    def report(self):
        import keras

        return {
            "date": time.strftime("%Y-%m-%d"),
            "backend": keras.backend.backend(),
            "versions": versions(),
            "seed": self.args.seed,
            "wall_seconds": round(time.monotonic() - self.begin),
            "most_seconds": self.seconds,
            "most_bytes": self.bytes,
            "readers": {
                name: {k: counts[k] for k in ("read", "refused", "failed")} for name, counts in self.counts.items()
            },
            "failures": self.failures,
        }


def versions():
    """Of Python, Keras, the backend and what reads files for kbert."""
    import keras

    packages = (
        "kbert-learn",
        "keras",
        keras.backend.backend(),
        "numpy",
        "h5py",
        "tokenizers",
        "safetensors",
        "pyarrow",
    )
    return {"Python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


def run_workers(args, results):
    """Cases until the time is up, in one process after the other."""
    number, end = 0, None if args.seconds is None else time.monotonic() + args.seconds
    while True:
        command = [sys.executable, str(HERE / "run.py"), "--worker", str(number), "--seed", str(args.seed)]
        command += [part for name in args.reader or () for part in ("--reader", name)]
        command += ["--keep", str(args.keep)] if args.keep else []
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1, env=_environment()
            ) as process,
        ):
            current = None
            try:
                for line in _lines(process):
                    if "begin" in line:
                        if end is not None and time.monotonic() > end:
                            return
                        if args.rounds is not None and line["round"] >= args.rounds:
                            return
                        current = line
                    else:
                        results.add(current["reader"], current["case"], line)
                        number, current = current["begin"] + 1, None
            finally:
                process.kill()
            process.wait()
            log.seek(0)
            told = log.read()[-1500:]
        if current is None:
            raise SystemExit(f"The process that reads did not start, or a good file was not read:\n{told}")
        error = f"the process ended or hung ({process.returncode}). {told}"
        results.add(current["reader"], current["case"], {"outcome": "failed", "done": "?", "error": error})
        number = current["begin"] + 1


def _lines(process):
    """The lines from the process; the end where it ends, or says nothing for too long."""
    lines = queue.SimpleQueue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        while (line := lines.get(timeout=KILL_SECONDS)) is not None:
            if line.startswith("{"):
                yield json.loads(line)
    except (queue.Empty, ValueError):  # ValueError: the process ended within a line
        return


def _environment():
    paths = [str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    # What is read here needs no network.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


if __name__ == "__main__":
    sys.exit(main())
