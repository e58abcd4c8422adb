"""Models in the files of other runtimes: writing them, and running them in the place of a Keras model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from kbert.config_json import read_config_json
from kbert.weights.arrays import BUFFERS, as_float32
from kbert.weights.formats import read_arrays
from kbert.weights.onnx_graph import INPUTS, onnx_model

MODEL = "model.onnx"
DATA = "model.onnx.data"
# Of all arrays, from which on they go to a file of their own: a protobuf message may have 2 GB.
_LARGEST = 2**31 - 2**24

# A function from the three inputs, int64 (B, T), to the outputs by their names.
Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def write_onnx(folder: str | Path, weights: str | Path, layers: str = "last", pooling: str | None = None) -> None:
    """Write the model of a weights folder as ``model.onnx`` into another.

    Parameters
    ----------
    folder, weights : str or Path
        Where to, and where config.json and the arrays are.
    layers, pooling : str
        See `onnx_model`.
    """
    arrays = {name: as_float32(a, name, weights) for name, a in read_arrays(weights).items() if name not in BUFFERS}
    model = onnx_model(read_config_json(weights), arrays, layers, pooling)
    import onnx

    large = sum(array.nbytes for array in arrays.values()) > _LARGEST
    onnx.save(model, str(Path(folder) / MODEL), save_as_external_data=large, location=DATA if large else None)


def quantize_onnx(folder: str | Path) -> None:
    """Let ONNX Runtime replace ``model.onnx`` by one with matrices of int8.

    Matrix products are then of whole numbers: weights have a scale for each output, activations one that is found when
    the model runs. Weights take 7 of the 8 bits, because older processors (AVX2 and AVX-512 without VNNI) add pairs of
    products in 16 bits, which would overflow.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = Path(folder) / MODEL
    model = onnx.load(str(path))
    large = (Path(folder) / DATA).is_file()
    # It would advise a step of preparation that does nothing for this graph.
    model.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    path.unlink()
    (Path(folder) / DATA).unlink(missing_ok=True)
    # Its messages go to the root logger, by functions that configure one that has no handler.
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
    """ONNX Runtime on the processor, with the ``model.onnx`` of a folder.

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
            "'kbert[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(Path(folder) / MODEL), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


class ExportedModel:
    """A model in another runtime that stands in for the Keras model it was made of, when predicting.

    It takes the batches that the Keras model takes, in which a row may hold several texts, and gives each text to the
    other runtime as a row of its own.
    """

    def __init__(self, model: keras.Model, run: Run):
        self._model, self._run = model, run

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def __call__(self, inputs: dict[str, np.ndarray]) -> np.ndarray | dict[str, np.ndarray]:
        text_ids, positions = inputs["text_ids"], inputs["position_ids"]
        B, T = text_ids.shape
        places = np.flatnonzero(text_ids)
        # The texts by row and slot, and of each token the number of its text and its place in it.
        slots, text = np.unique(places // T * (T + 1) + text_ids.flat[places], return_inverse=True)
        place = positions.flat[places]
        given = {name: np.zeros((len(slots), int(place.max()) + 1), np.int64) for name in INPUTS}
        for name, values in zip(INPUTS, (inputs["token_ids"], np.ones((B, T)), inputs["segment_ids"]), strict=True):
            given[name][text, place] = values.flat[places]
        outputs = _main_output(self._run(given))
        if outputs.ndim == 2:  # (texts, n) -> (B, K, n)
            results = np.zeros((B, inputs["first_positions"].shape[1], outputs.shape[-1]), np.float32)
            results[slots // (T + 1), slots % (T + 1) - 1] = outputs
            return results
        results = np.zeros((B * T, outputs.shape[-1]), np.float32)  # (texts, T, n) -> (B, T, n)
        results[places] = outputs[text, place]
        results = results.reshape(B, T, -1)
        if "masked_positions" in inputs:
            return {"mlm_logits": np.take_along_axis(results, inputs["masked_positions"][..., None], axis=1)}
        return results


def _main_output(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """What the Keras model gives."""
    if "start_logits" in outputs:
        return np.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)
    return next(outputs[name] for name in ("logits", "sentence_embedding", "token_embeddings") if name in outputs)
