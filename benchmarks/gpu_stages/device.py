"""The device that is measured: its name, its memory, its clock, its peak, and the share of time in which it works."""

from __future__ import annotations

import functools
import glob
import gzip
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import keras
import numpy as np

from gpu_stages.setting import Setting

BACKEND = keras.backend.backend()
_PACKAGES = ("keras", "jax", "torch", "transformers", "accelerate", "sentence-transformers", "flash-attn", "numpy")
# Of the operations that a profiler tells of, so many are kept, and so much of their names.
_KERNELS, _NAME = 24, 96
# Sides of the matrices of the peak: those of 8192 keep the largest GPUs busy.
_SIDES = (1024, 2048, 4096, 8192)


@functools.cache
def facts() -> dict[str, Any]:
    """What the figures were measured on."""
    import kbert

    found = {"kbert": kbert.__version__, "commit": _commit()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return {"device": device_name(), "devices": n_devices(), **found}


def _commit() -> str | None:
    """That of KBERT_COMMIT, where the files were copied without the repository; else that of the repository."""
    if commit := os.environ.get("KBERT_COMMIT"):
        return commit
    call = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, or no repository
        return None


def is_gpu() -> bool:
    """Whether the backend computes on a GPU."""
    if BACKEND == "jax":
        import jax

        return bool(jax.default_backend() != "cpu")
    import torch

    return torch.cuda.is_available()


@contextmanager
def way_of_a_gpu() -> Iterator[None]:
    """Within this, kbert computes on a CPU as it does on a GPU: bfloat16 by default, and none of its code for CPUs.

    On PyTorch a CPU has transformer layers, products and dropout of its own.
    """
    from kbert.training import cost, precision

    replaced: list[tuple[Any, str, Any]] = [(module, "has_accelerator", lambda: True) for module in (cost, precision)]
    if BACKEND == "torch":
        import torch

        from kbert.model import dropout, layers_torch, products_torch
        from kbert.training import fused_layers

        replaced += [
            (layers_torch, "fused_layer", lambda *_: None),
            (fused_layers, "_layers", lambda model: ()),
            (products_torch, "_takes", lambda *_: False),
            (dropout, "_dropped_by_torch", torch.nn.functional.dropout),
        ]
    with ExitStack() as stack:
        for module, name, value in replaced:
            stack.enter_context(patch.object(module, name, value))
        yield


def device_name() -> str:
    """As the driver calls it; "cpu" without one."""
    if BACKEND == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def n_devices() -> int:
    """How many of them the backend sees."""
    if BACKEND == "jax":
        import jax

        return jax.device_count()
    import torch

    return max(1, torch.cuda.device_count())


# --- Time and memory


def wait(result: Any = None) -> None:
    """Until all that was asked of the device is done; on JAX all that a result needs."""
    if BACKEND == "jax":
        import jax

        jax.block_until_ready(result)
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(function: Callable[[], Any]) -> float:
    """The time of one call, to the end of its work on the device."""
    wait()
    start = time.perf_counter()
    wait(function())
    return time.perf_counter() - start


def median_seconds(function: Callable[[], Any], enough: float = 1.0, most: int = 50) -> float:
    """The median time of several calls, after two that compile and warm up."""
    for _ in range(2):
        seconds_of(function)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < enough and len(times) < most):
        times.append(seconds_of(function))
    return median(times)


_peak_before = 0.0


def reset_peak_memory() -> None:
    """Let the most memory be counted from here on. JAX counts from the start of the process: see `peak_memory_mb`."""
    global _peak_before
    if BACKEND == "jax":
        _peak_before = _jax_peak_mb() or 0.0
    else:
        import gc

        import torch

        if torch.cuda.is_available():
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _jax_peak_mb() -> float | None:
    import jax

    found = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return None if found is None else round(found / 1e6, 1)


def peak_memory_mb() -> float | None:
    """The most memory of the device that arrays had at once since it was reset.

    None on a CPU, and on JAX where more was used before: then that is all that is known.
    """
    if BACKEND == "jax":
        peak = _jax_peak_mb()
        return peak if peak is not None and peak > _peak_before else None
    import torch

    return round(torch.cuda.max_memory_allocated() / 1e6, 1) if torch.cuda.is_available() else None


# --- The peak


@functools.lru_cache
def product_peak(dtype: str, miniature: bool) -> tuple[float, int]:
    """The greatest rate of products of square matrices, in operations a second, and the side that had it."""
    from kbert.pretraining import rates

    products, best = rates._compiled(rates._chain), (0.0, 0)
    for side in (64, 128) if miniature else _SIDES:
        # Random numbers: with zeros a GPU draws less power, and is faster than in any use.
        numbers = np.random.default_rng(0).standard_normal((side, side), "float32") * np.float32(side**-0.5)
        matrix = keras.ops.cast(keras.ops.convert_to_tensor(numbers), dtype)
        best = max(best, (rates._CHAIN * 2 * side**3 / rates._seconds_of(products, matrix), side))
    return best


def peak_of(setting: Setting, dtype: str = "bfloat16") -> float:
    """Operations a second of the peak alone."""
    return product_peak(dtype, setting.miniature)[0]


# --- How much of the time the device works


class Profiler:
    """How much of the time between `start` and `stop` the device computes, and what, by the backend's profiler.

    It is the union of the times of its operations; the rest is the host's. A profiler makes the host slower, so this
    errs towards the host.

    Parameters
    ----------
    of_torch : bool, optional
        Whether PyTorch computes, whatever the backend of Keras; by default as that says.
    """

    def __init__(self, of_torch: bool | None = None):
        self.of_torch = BACKEND == "torch" if of_torch is None else of_torch
        self._folder = tempfile.TemporaryDirectory()
        self._torch: Any = None
        self._start = 0.0

    def start(self) -> None:
        """Begin, once the device has done what it was asked for so far."""
        if self.of_torch:
            import torch
            from torch.profiler import ProfilerActivity, profile

            wait()
            kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
            self._torch = profile(activities=kinds)
            self._torch.__enter__()
        else:
            import jax

            jax.profiler.start_trace(self._folder.name)
        self._start = time.perf_counter()

    def stop(self) -> dict[str, Any]:
        """End, and give ``busy`` and ``kernels``: of those that took longest the name and the share of the time.

        ``busy`` is None where the profiler tells of no operation on a device, as PyTorch's on a CPU.
        """
        seconds = time.perf_counter() - self._start
        operations = self._of_torch() if self.of_torch else self._of_jax()
        self._folder.cleanup()
        shares: dict[str, float] = {}
        for name, start, end in operations:
            kind = re.sub(r"[._]\d+$", "", name)[:_NAME]
            shares[kind] = shares.get(kind, 0.0) + (end - start) / seconds
        longest = sorted(shares.items(), key=lambda item: -item[1])[:_KERNELS]
        busy = union_length([(start, end) for _, start, end in operations]) / seconds
        return {
            "busy": round(busy, 4) if operations else None,
            "kernels": [[name, round(share, 4)] for name, share in longest],
        }

    def _of_torch(self) -> list[tuple[str, float, float]]:
        import torch

        self._torch.__exit__(None, None, None)
        # An annotation, as of an optimiser's step, spans the gaps between its operations too.
        events = [
            event
            for event in self._torch.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
        ]
        return [(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in events]

    def _of_jax(self) -> list[tuple[str, float, float]]:
        import jax

        jax.profiler.stop_trace()
        events: list[dict[str, Any]] = []
        for path in glob.glob(f"{self._folder.name}/plugins/profile/*/*.trace.json.gz"):
            with gzip.open(path) as file:
                events += json.load(file)["traceEvents"]
        return [
            (event["name"], event["ts"] / 1e6, (event["ts"] + event.get("dur", 0)) / 1e6)
            for event in events
            if "hlo_op" in event.get("args", {})
        ]


def profiled(function: Callable[[], Any], of_torch: bool | None = None) -> dict[str, Any]:
    """What `Profiler.stop` gives of a call. Call it once before, so that all is compiled."""
    profiler = Profiler(of_torch)
    profiler.start()
    wait(function())
    return profiler.stop()


def union_length(spans: list[tuple[float, float]]) -> float:
    """The length of the union of spans (start, end)."""
    total, reached = 0.0, -np.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return float(total)
