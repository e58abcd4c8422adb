"""Exported models in place of Keras models: they predict by ONNX Runtime, OpenVINO or TensorFlow. No Keras here."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from joblib import cpu_count

from kbert.backend import CPU_BFLOAT16
from kbert.config import BertConfig
from kbert.errors import KbertError, WeightsMismatchError, WeightsNotFoundError
from kbert.forks import forked_process_error
from kbert.model.names import INPUT_NAMES
from kbert.processor import instructions
from kbert.weights.folder import EXPORT_FILE, TOKENIZER_FILES

MODEL = "model.onnx"
# What a SavedModel consists of.
SAVED_MODEL = ("saved_model.pb", "fingerprint.pb", "variables", "assets")
# What else an exported estimator needs. The user may keep other files beside them.
_SMALL_FILES = ("config.json", EXPORT_FILE, *TOKENIZER_FILES)
# The inputs of every exported model, int64 (B, T).
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Those that run model.onnx, the faster one first. The other one is faster for `DYNAMIC` int8, whose scales are found
# when the model runs, and for all int8 where a processor has no `_INT8` (docs/benchmarks/export.md).
RUNTIMES = ("openvino", "onnxruntime")
DYNAMIC = "int8_dynamic"
# Instructions of Intel and AMD that add up products of 8-bit integers.
_INT8 = {"avx512_vnni", "avx_vnni", "amx_int8"}

# What a forked process cannot use. To close it would wait for threads that only the parent has.
_of_parents: list[Any] = []
# This process, and those that it was forked from, where they have run a SavedModel.
_with_tensorflow: set[int] = set()

# A function that runs an exported model, in several threads at once: from its inputs to its outputs, both by name.
Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class ExportedModel:
    """The model of an exported folder, with what predicting asks of a Keras model.

    It takes batches in which each row holds one text (`kbert.data.batches.padded_batches`). It is opened when it is
    first used, and again in another process, to which it travels as the name of its folder.

    Parameters
    ----------
    folder : str or Path
        It holds ``model.onnx`` and ``config.json``, or a SavedModel.
    runtime : {"auto", "onnxruntime", "openvino", "tensorflow"}, default="auto"
        What runs it. "auto": of those that are installed the faster one for this model and processor. A SavedModel
        takes "tensorflow", by name: it is a program, which may read and write files.
    dtype : {"auto", "float32"}, default="float32"
        "auto" lets OpenVINO compute in bfloat16 on processors that have instructions for it, unless the environment
        variable KBERT_CPU_BFLOAT16 is 0. ONNX Runtime and TensorFlow compute in float32.
    choices : dict, optional
        How a text's vector is made: those of `BertForFeatures`.
    quantize : {None, "int8", "int8_dynamic"}, default=None
        How it was quantized when it was exported.

    Attributes
    ----------
    config : BertConfig
    runtime : str
        "onnxruntime", "openvino" or "tensorflow".
    """

    input_names = INPUT_NAMES

    def __init__(
        self,
        folder: str | Path,
        runtime: str = "auto",
        dtype: str = "float32",
        choices: dict[str, Any] | None = None,
        quantize: str | None = None,
    ):
        self.folder = Path(folder).absolute()
        self.runtime = chosen_runtime(self.folder, runtime, quantize)
        self.quantize = quantize
        self.dtype = "float32" if dtype == "auto" and os.environ.get(CPU_BFLOAT16) == "0" else dtype
        self.choices = choices or {}
        self.config = BertConfig.from_folder(self.folder)
        self._opened: tuple[int, Run] | None = None
        self._digest: str | None = None

    @property
    def dtype_policy(self) -> SimpleNamespace:
        """The name of what it may compute in, as a Keras model has it."""
        in_float32 = self.runtime != "openvino" or self.dtype == "float32"
        return SimpleNamespace(name="float32" if in_float32 else "mixed_bfloat16")

    @property
    def num_labels(self) -> int:
        """Numbers that the model gives for each text or token."""
        n: int = self.output_shape[-1]
        return n

    @cached_property
    def output_shape(self) -> tuple[Any, ...]:
        """As a Keras model has it. A row of padding tells."""
        outputs = self._run({name: np.zeros((1, 2), np.int64) for name in INPUTS})
        return None, None, _main_output(outputs).shape[-1]

    def files(self) -> list[Path]:
        """The files that the model is made of, in a fixed order.

        Raises
        ------
        WeightsNotFoundError
            If they are gone.
        """
        names = SAVED_MODEL if self.runtime == "tensorflow" else (f"{MODEL}*",)
        parts = [part for name in names for part in self.folder.glob(name)]
        found = sorted(path for part in parts for path in (part, *part.rglob("*")) if path.is_file())
        if not found:
            raise WeightsNotFoundError(
                f"{self.folder} holds no exported model (any more). An estimator that was loaded from an export reads "
                "it from there, after unpickling too: bring the folder back, or load the export from where it is now."
            )
        return found

    def _run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        # The threads of a runtime do not exist in a forked process.
        if self._opened is None or self._opened[0] != os.getpid():
            self._require_the_same_files()
            _of_parents.append(self._opened)
            self._opened = os.getpid(), self._open()
        return self._opened[1](inputs)

    def _open(self) -> Run:
        try:
            return RUNNERS[self.runtime](self.folder, self.dtype)
        except (KbertError, ImportError, MemoryError):
            raise
        except Exception as error:  # each runtime has its own
            reason = str(error).strip().partition("\n")[0]
            raise WeightsMismatchError(
                f"{self.runtime} cannot read the model in {self.folder} ({type(error).__name__}: {reason}). If the "
                "folder was copied, copy it again; or export the estimator again."
            ) from error

    def __call__(self, inputs: dict[str, np.ndarray]) -> Any:
        """What the Keras model gives for these inputs: of (B, T) tokens (B, 1, n), or (B, T, n) for each token."""
        arrays = inputs["token_ids"], inputs["text_ids"] > 0, inputs["segment_ids"]
        found = self._run({name: a.astype(np.int64) for name, a in zip(INPUTS, arrays, strict=True)})
        outputs = _main_output(found)
        if "masked_positions" in inputs:
            return {"mlm_logits": np.take_along_axis(outputs, inputs["masked_positions"][..., None], axis=1)}
        return outputs[:, None] if outputs.ndim == 2 else outputs

    def _require_the_same_files(self) -> None:
        """Refuse a folder that was written again since its labels were read: another process opens it later."""
        digest = self._digest_of_files()
        if self._digest not in (None, digest):
            raise WeightsMismatchError(
                f"{self.folder} was exported again since this estimator was loaded from it. Load it again."
            )
        self._digest = digest

    def _digest_of_files(self) -> str:
        """Of the small files all, and of the model how large its files are: golden outputs tell its weights."""
        digest = hashlib.sha256()
        for path in map(self.folder.joinpath, _SMALL_FILES):
            digest.update(path.name.encode() + (path.read_bytes() if path.is_file() else b""))
        for path in self.files():
            digest.update(f"{path.name} {path.stat().st_size}".encode())
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None, "_digest": self._digest or self._digest_of_files()}


def _main_output(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the output that corresponds to the Keras model's."""
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
    return next(outputs[name] for name in ("logits", "sentence_embedding", "token_embeddings") if name in outputs)


def chosen_runtime(folder: Path, runtime: str, quantize: str | None = None) -> str:
    """The runtime that a name means for a folder, which may have been quantized.

    Raises
    ------
    ValueError
        If the name is none, or of one that cannot run this folder, or "auto" for a SavedModel.
    WeightsNotFoundError
        If the folder holds no exported model.
    ImportError
        If none is installed that runs it.
    """
    if runtime != "auto" and runtime not in RUNNERS:
        raise ValueError(f"runtime must be one of 'auto', {', '.join(map(repr, RUNNERS))}, got {runtime!r}.")
    if (folder / MODEL).is_file():
        able: tuple[str, ...] = RUNTIMES
    elif (folder / SAVED_MODEL[0]).is_file():
        able = ("tensorflow",)
        if runtime == "auto":
            raise ValueError(
                f"{folder} holds a SavedModel, which is a program for TensorFlow: it may read and write files. If you "
                "trust where it comes from, load it with runtime='tensorflow', and use that estimator."
            )
    else:
        raise WeightsNotFoundError(f"{folder} holds no {MODEL} and no {SAVED_MODEL[0]}. Export the estimator again.")
    if runtime != "auto" and runtime not in able:
        raise ValueError(f"{folder} is run by {' or '.join(able)}, not by {runtime}.")
    in_order = reversed(able) if _is_second_faster(quantize) else able
    found = next((name for name in in_order if runtime in ("auto", name) and find_spec(name) is not None), None)
    if found is None:
        wanted = able[-1] if runtime == "auto" else runtime
        raise ImportError(
            f"To predict with {folder}, an exported model, run: pip install {wanted}. To predict with Keras, load the "
            "folder that `save` wrote."
        )
    return found


def _is_second_faster(quantize: str | None) -> bool:
    """Whether the second of `RUNTIMES` is the faster one on this processor."""
    found = instructions()
    # Every processor of Intel and AMD has "sse2". Of others, such as ARM, this was not measured.
    without_int8 = "sse2" in found and not found & _INT8
    return quantize == DYNAMIC or (quantize is not None and without_int8)


def _n_threads() -> int:
    """The threads of a runtime: by OMP_NUM_THREADS, as joblib sets it for its workers, or the CPUs that it may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else cpu_count()


def _onnxruntime(folder: Path, dtype: str) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = _n_threads()
    session = onnxruntime.InferenceSession(str(folder / MODEL), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


@cache
def _openvino_core(process: int) -> Any:
    """OpenVINO's `Core` of a process (a forked one needs its own), which lives as long as that.

    OpenVINO 2026.4 gives the thread that first compiles a model a stack for handling signals, and frees it with the
    last model and `Core`. Where another thread lets go of them, the first one keeps a pointer to what was freed, and
    Ctrl-C ends the process by a segmentation fault.
    """
    return _imported_openvino().Core()


_importing = threading.Lock()


def _imported_openvino() -> Any:
    """OpenVINO without its telemetry, which tells Google Analytics of each import, and keeps an id in ``~/intel``.

    OpenVINO takes a stub where the package openvino-telemetry, which it requires, cannot be imported.
    """
    name = "openvino_telemetry"
    with _importing:
        is_hidden = "openvino" not in sys.modules and name not in sys.modules
        if is_hidden:
            sys.modules[name] = None  # type: ignore[assignment]
        try:
            import openvino
        finally:
            if is_hidden:
                del sys.modules[name]
    return openvino


# How many threads' pools of models that are gone OpenVINO 2026.4 keeps for the next one, by process. A forked process
# would take such a pool, whose threads it does not have, and wait without end.
_idle_pools: Counter[int] = Counter()


def _openvino(folder: Path, dtype: str) -> Run:
    process = os.getpid()
    if sum(n for of, n in _idle_pools.items() if of != process) > 0:
        raise forked_process_error("OpenVINO")
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": _n_threads()}
    if dtype == "float32":
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    model = _openvino_core(process).compile_model(str(folder / MODEL), "CPU", settings)
    _idle_pools[process] = max(0, _idle_pools[process] - 1)
    weakref.finalize(model, _idle_pools.update, [process]).atexit = False
    # OpenVINO 2025.0 leaves out inputs that the model does not use: without attention there is no use of the mask.
    names = {name for found in model.inputs for name in found.names}
    # A request holds one text's results: a thread that calls the model itself could get those of another.
    of_thread = threading.local()

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not hasattr(of_thread, "request"):
            of_thread.request = model.create_infer_request()
        results = of_thread.request.infer({name: array for name, array in inputs.items() if name in names})
        return {name: results[output] for output in model.outputs for name in output.names}

    return run


def _tensorflow(folder: Path, dtype: str) -> Run:
    import tensorflow as tf

    _with_tensorflow.add(os.getpid())
    if _with_tensorflow != {os.getpid()}:  # it opens the model, and then waits for threads of the parent's
        raise forked_process_error("TensorFlow")
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures["serving_default"]

    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = signature(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: result.numpy() for name, result in results.items()}

    # The signature does not keep its variables alive: they live as long as the loaded object.
    run.loaded = loaded  # type: ignore[attr-defined]
    return run


RUNNERS: dict[str, Callable[[Path, str], Run]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "tensorflow": _tensorflow,
}
