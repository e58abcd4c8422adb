"""ONNX files of whole models: writing, quantising and running them; and an exported model in place of a Keras model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kbert.config_json import read_config_json
from kbert.weights.arrays import BUFFERS, as_float32
from kbert.weights.formats import read_arrays
from kbert.weights.onnx_graph import INPUTS, onnx_model

MODEL = "model.onnx"
DATA = "model.onnx.data"
# Bytes of all arrays beyond which they are written to a file of their own. A protobuf message has at most 2 GB.
_LARGEST = 2**31 - 2**24

# A function that runs an exported model: from its three inputs, int64 (B, T), to its outputs, both by name.
Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def write_onnx(folder: str | Path, weights: str | Path, **choices: Any) -> None:
    """Write the model of a weights folder as ``model.onnx`` into another folder.

    Parameters
    ----------
    folder : str or Path
        Where to write. It exists.
    weights : str or Path
        The weights folder.
    **choices
        ``layers``, ``pooling`` and ``normalize`` of `onnx_model`.
    """
    arrays = {name: as_float32(a, name, weights) for name, a in read_arrays(weights).items() if name not in BUFFERS}
    model = onnx_model(read_config_json(weights), arrays, **choices)
    import onnx

    large = sum(array.nbytes for array in arrays.values()) > _LARGEST
    onnx.save(model, str(Path(folder) / MODEL), save_as_external_data=large, location=DATA if large else None)


def quantize_onnx(folder: str | Path) -> None:
    """Replace ``model.onnx`` by one with matrices of int8, by ONNX Runtime's dynamic quantisation.

    Weights have one scale for each output. Activations have one scale for each array, computed when the model runs.
    Weights use 7 of the 8 bits: older processors (AVX2, and AVX-512 without VNNI) add pairs of products in 16 bits,
    which would overflow with 8.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = Path(folder) / MODEL
    model = onnx.load(str(path))
    large = (Path(folder) / DATA).is_file()
    # Without this mark it would advise to pre-process the graph, which changes nothing in this one.
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    path.unlink()
    (Path(folder) / DATA).unlink(missing_ok=True)
    # It logs by logging.warning and the like, which add a handler to a root logger that has none.
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        quantize_dynamic(
            model, path, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True,
            use_external_data_format=large,
        )  # fmt: skip
    finally:
        root.removeHandler(handler)


def onnx_runner(folder: str | Path) -> Run:
    """Return a function that runs the ``model.onnx`` of a folder by ONNX Runtime on the CPU.

    Raises
    ------
    ImportError
        Where onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            f"Checking what was exported needs the package onnxruntime ({error}). Install it with: pip install "
            "onnx onnxruntime"
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(Path(folder) / MODEL), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


class ExportedModel:
    """An exported model in place of the Keras model that it was made from, for predicting.

    It takes the batches that the Keras model takes, in which a row may hold several texts. Other runtimes get each text
    as a row of its own.

    Parameters
    ----------
    model : keras.Model
        The model that was exported. All attributes are taken from it.
    run : callable
        Runs the exported model.
    """

    def __init__(self, model: keras.Model, run: Run):
        self._model, self._run = model, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, inputs: dict[str, np.ndarray]) -> np.ndarray | dict[str, np.ndarray]:
        text_ids, positions = inputs["text_ids"], inputs["position_ids"]
        B, T = text_ids.shape
        tokens = np.flatnonzero(text_ids)  # the indices in (B * T,) of all tokens but the padding
        # A text's key is row * (T + 1) + its number in the row, from 1. ``texts`` are the keys of all texts in order;
        # ``text`` and ``position`` say of each token in which text it is, and where in it.
        texts, text = np.unique(tokens // T * (T + 1) + text_ids.flat[tokens], return_inverse=True)
        position = positions.flat[tokens]
        given = {name: np.zeros((len(texts), int(position.max()) + 1), np.int64) for name in INPUTS}
        for name, values in zip(INPUTS, (inputs["token_ids"], np.ones((B, T)), inputs["segment_ids"]), strict=True):
            given[name][text, position] = values.flat[tokens]
        outputs = _main_output(self._run(given))
        if outputs.ndim == 2:  # (texts, n) -> (B, K, n)
            results = np.zeros((B, inputs["first_positions"].shape[1], outputs.shape[-1]), np.float32)
            results[texts // (T + 1), texts % (T + 1) - 1] = outputs
            return results
        results = np.zeros((B * T, outputs.shape[-1]), np.float32)  # (texts, T, n) -> (B, T, n)
        results[tokens] = outputs[text, position]
        results = results.reshape(B, T, -1)
        if "masked_positions" in inputs:
            return {"mlm_logits": np.take_along_axis(results, inputs["masked_positions"][..., None], axis=1)}
        return results


def _main_output(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the output that corresponds to the Keras model's."""
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
    return next(outputs[name] for name in ("logits", "sentence_embedding", "token_embeddings") if name in outputs)
