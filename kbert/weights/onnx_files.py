"""ONNX files of whole models: writing and quantising them. `kbert.weights.runtimes` runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbert.config_json import read_config_json
from kbert.weights.arrays import BUFFERS, as_float32
from kbert.weights.formats import read_arrays
from kbert.weights.onnx_graph import Graph, onnx_model
from kbert.weights.runtimes import MODEL

DATA = "model.onnx.data"
# Bytes of all arrays beyond which they are written to a file of their own. A protobuf message has at most 2 GB.
_LARGEST = 2**31 - 2**24


def write_onnx(folder: str | Path, graph_of: Callable[..., Graph] | None = None, **choices: Any) -> None:
    """Write the model of a weights folder as ``model.onnx`` beside its weights.

    Parameters
    ----------
    folder : str or Path
        The weights folder.
    graph_of : callable, optional
        The kind of graph: a parameter of `onnx_model`.
    **choices
        ``layers``, ``pooling`` and ``normalize`` of `onnx_model`.
    """
    arrays = {name: as_float32(a, name, folder) for name, a in read_arrays(folder).items() if name not in BUFFERS}
    model = onnx_model(read_config_json(folder), arrays, graph_of=graph_of, **choices)
    import onnx

    large = sum(array.nbytes for array in arrays.values()) > _LARGEST
    (Path(folder) / DATA).unlink(missing_ok=True)
    onnx.save(model, str(Path(folder) / MODEL), save_as_external_data=large, location=DATA if large else None)


def quantize_dynamically(folder: str | Path) -> None:
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
