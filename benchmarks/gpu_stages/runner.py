"""Runs the cells of a stage within its time, in a worker process that is replaced when it dies, hangs or has failed.

A failure on a GPU can leave the process unable to use it, and a compilation can take longer than all the rest. So the
process that keeps the time and writes the results computes nothing. It asks a worker, in JSON lines, for one cell at a
time.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from gpu_stages.records import Results, error_of, plain
from gpu_stages.setting import Absent, Cell, Setting

STAGES = (
    "check", "fit", "predict", "dispatch", "attention", "pretrain", "kbert-mini", "two-devices", "first-fit", "choice",
)  # fmt: skip
SECONDS = 8 * 60
# Kept of the stage's time for ending it.
_MARGIN = 10
# What a cell may take at most, as a multiple of what it is expected to take.
_PATIENCE = 4


def stage_module(stage: str) -> ModuleType:
    """The file of a stage: ``cells(setting)``, which imports no backend, and ``measure(setting, seconds, ...)``."""
    return importlib.import_module(f"gpu_stages.{stage.replace('-', '_')}")


def run_stage(
    stage: str,
    setting: Setting,
    seconds: float = SECONDS,
    in_process: bool = False,
    only: Callable[[str], bool] = bool,
) -> list[dict[str, Any]]:
    """Measure the cells of a stage that are not in the results yet, as far as the time goes.

    Parameters
    ----------
    stage : str
        One of `STAGES`.
    setting : Setting
    seconds : float
        For all of it.
    in_process : bool
        Measure in this process: nothing is imported anew, and nothing protects from a crash or a hang.
    only : callable
        Whether a cell of this name is to be measured; by default all are.

    Returns
    -------
    list of dict
        The lines that were written.
    """
    end = time.monotonic() + seconds - min(_MARGIN, seconds / 10)
    results = Results(setting.out, stage, setting.backend, setting.miniature)
    worker = _Here(stage, setting) if in_process else _Worker(stage, setting)
    written = []
    try:
        for cell in filter(lambda cell: only(cell.name), stage_module(stage).cells(setting)):
            if results.is_done(cell.name):
                _tell(setting, stage, cell, "done before")
                continue
            if reason := cell.reason_to_leave_out():
                written.append(results.write(cell.name, {"absent": reason}))
                _tell(setting, stage, cell, f"absent: {reason}")
                continue
            left = end - time.monotonic()
            if left < setting.pick(cell.seconds, 0):
                _tell(setting, stage, cell, f"left for the next run, about {cell.seconds:.0f} s")
                continue
            start = time.monotonic()
            values = worker.measure(cell, left)
            values = {**values, "seconds": round(time.monotonic() - start, 1)}
            written.append(results.write(cell.name, values))
            _tell(setting, stage, cell, _shown(values))
            if "unfinished" in values:  # it has used up the time, and what follows needs it
                break
    finally:
        worker.close()
    return written


def measured(stage: str, setting: Setting, cell: Cell, seconds: float) -> dict[str, Any]:
    """What a cell gives: its figures and what they were measured on, or why there are none."""
    try:
        from gpu_stages import device

        device.reset_peak_memory()
        with device.way_of_a_gpu() if setting.miniature else nullcontext():
            values = stage_module(stage).measure(setting, seconds, **cell.options)
        return {**values, "on": device.facts()}
    except Absent as reason:
        return {"absent": str(reason)}
    except Exception as error:  # the next cell may be all right
        return {"error": error_of(error)}


class _Here:
    """Measures in this process."""

    def __init__(self, stage: str, setting: Setting):
        self.stage, self.setting = stage, setting

    def measure(self, cell: Cell, seconds: float) -> dict[str, Any]:
        return measured(self.stage, self.setting, cell, seconds)

    def close(self) -> None:
        pass


class _Worker:
    """Measures in a process of its own, which lives until a cell fails, hangs or needs a new one."""

    def __init__(self, stage: str, setting: Setting):
        self.stage, self.setting = stage, setting
        self.log = setting.out / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def measure(self, cell: Cell, seconds: float) -> dict[str, Any]:
        if cell.alone:
            self.close()
        self.process = self.process or self._start()
        limit = self.setting.pick(min(seconds, max(60.0, _PATIENCE * cell.seconds)), seconds)
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"cell": cell.name, "seconds": limit}).encode() + b"\n")
            self.process.stdin.flush()
            answer = self._answer(limit)
        except BrokenPipeError:
            answer = b""
        if answer is None:
            self.close()
            return {"error": {"type": "TimeoutError", "message": f"not done after {limit:.0f} s", "traceback": ""}}
        if not answer:
            code = self.process.wait()
            self.close()
            return {"error": {"type": "WorkerDied", "message": f"exit code {code}", "traceback": self._last_words()}}
        values = json.loads(answer)
        if "error" in values:  # the GPU may be unusable to the process
            self.close()
        return values

    def _start(self) -> subprocess.Popen[bytes]:
        setting = json.dumps(asdict(self.setting), default=str)
        call = [sys.executable, str(Path(__file__).parents[1] / "gpu.py"), self.stage, "--worker", setting]
        self.setting.out.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=worker_environment(self.setting)
            )

    def _answer(self, limit: float) -> bytes | None:
        """One line; nothing if the worker has ended, None if it takes too long."""
        assert self.process is not None and self.process.stdout is not None
        end, line = time.monotonic() + limit, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                part = os.read(self.process.stdout.fileno(), 1 << 16)
                if not part:
                    return b""
                line += part
        return line

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process = None


def worker_environment(setting: Setting) -> dict[str, str]:
    """No hub is asked for anything, and in miniature JAX on a CPU has two devices."""
    environment = {**os.environ, "KERAS_BACKEND": setting.backend}
    environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if setting.miniature:
        # Toys take longer to compile than to run.
        flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flags}".strip()
    return environment


def work(stage: str, setting: Setting) -> None:
    """The worker's side: answer each cell that is asked for, until there is no more to read."""
    # What libraries print goes to the log: the answers have standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cells = {cell.name: cell for cell in stage_module(stage).cells(setting)}
    for line in sys.stdin:
        asked = json.loads(line)
        values = measured(stage, setting, cells[asked["cell"]], asked["seconds"])
        answers.write(json.dumps(values, default=plain) + "\n")
        answers.flush()


def _tell(setting: Setting, stage: str, cell: Cell, text: str) -> None:
    print(f"{setting.backend} | {stage} | {cell.name} | {text}", flush=True)


def _shown(values: dict[str, Any]) -> str:
    if "error" in values:
        return f"FAILED: {values['error']['type']}: {values['error']['message'][:200]}"
    kept = {name: value for name, value in values.items() if name != "on" and not isinstance(value, list)}
    return ", ".join(
        f"{name} {value:.5g}" if isinstance(value, float) else f"{name} {value}" for name, value in kept.items()
    )
