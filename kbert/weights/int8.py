"""ONNX graphs with matrices of int8. The range of each dense layer's input is observed on rows of text.

A few features of BERT's hidden states are much larger than all others, so that one scale would leave the others few of
the 256 values. SmoothQuant (Xiao et al., 2023) makes them even first: the input of a dense layer is divided by a number
for each feature, and the weights that multiply this feature are multiplied by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kbert.weights.onnx_graph import WORDS, Graph
from kbert.weights.runtimes import INPUTS, ExportedModel

# How much of the unevenness goes from the input to the matrix (docs/benchmarks/export.md has what other numbers give).
_ALPHA = 0.85
# Of the outputs that hold ranges, followed by the name of a layer.
_RANGE = "range of "
# The lowest and the highest value of each feature of each dense layer's input, (2, width), by the layer's name.
Ranges = dict[str, np.ndarray]


class ObservedGraph(Graph):
    """A graph in float32, whose further outputs are the `Ranges` over the tokens that are not padding."""

    def encoder_dense(self, x: str, names: Sequence[str], width: int, units: int) -> list[str]:
        mask = self.op("Cast", self.op("Unsqueeze", INPUTS[1], self.constant([2])), to=1)  # 1 is float32
        # 0 in place of padding: a range always has the 0.
        real = self.op("Mul", x, mask)
        ends = [self.op(kind, real, axes=[0, 1], keepdims=0) for kind in ("ReduceMin", "ReduceMax")]
        rows = [self.op("Unsqueeze", end, self.constant([0])) for end in ends]
        self.outputs[_RANGE + names[0]] = self.op("Concat", *rows, axis=0), [2, width]
        return super().encoder_dense(x, names, width, units)


class ObservedModel(ExportedModel):
    """An exported model of an `ObservedGraph`.

    Attributes
    ----------
    ranges : dict of ndarray
        The ranges over all that it has predicted.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.ranges: Ranges = {}

    def _run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = super()._run(inputs)
        for output in [name for name in outputs if name.startswith(_RANGE)]:
            found, name = outputs.pop(output), output.removeprefix(_RANGE)
            low, high = self.ranges.get(name, found)
            self.ranges[name] = np.stack([np.minimum(low, found[0]), np.maximum(high, found[1])])
        return outputs


class Int8Graph(Graph):
    """A graph whose encoder multiplies int8, and whose word embeddings are int8.

    Parameters
    ----------
    arrays : dict of ndarray of float32
        Those of the weights folder, by their canonical names.
    ranges : dict of ndarray
        What an `ObservedGraph` gave. Of layers that read the same, the first one's name has it.
    """

    def __init__(self, arrays: dict[str, np.ndarray], ranges: Ranges):
        super().__init__(arrays)
        self.ranges = ranges

    def encoder_dense(self, x: str, names: Sequence[str], width: int, units: int) -> list[str]:
        kernels = [self.checked(f"{name}.weight", units, width) for name in names]
        low, high = self.ranges.get(names[0], (0, 0))
        if not np.any(high - low):  # padding alone was read
            raise ValueError('quantize="int8" is calibrated on rows, and the rows of X have no words.')
        divisors = smoothing(np.maximum(-low, high), np.abs(kernels).max(axis=(0, 1)))
        lowest, highest = min(0.0, (low / divisors).min()), max(0.0, (high / divisors).max())
        scale = (highest - lowest) / 255 or 1.0
        numbers = self.constant(scale), self.constant(np.uint8(round(-lowest / scale)))
        even = self.op("Mul", x, self.constant(1 / divisors))
        even = self.op("DequantizeLinear", self.op("QuantizeLinear", even, *numbers), *numbers)
        return [
            self.op("Add", self.op("MatMul", even, self._int8(kernel * divisors)), self.array(f"{name}.bias", units))
            for name, kernel in zip(names, kernels, strict=True)
        ]

    def _int8(self, kernel: np.ndarray) -> str:
        """Add a kernel (units, width) as int8, with a scale for each unit, and return the tensor (width, units)."""
        integers, scales = quantized(kernel)
        zeros = np.zeros(len(kernel), "int8")
        return self.op(
            "DequantizeLinear", self.constant(integers.T), self.constant(scales), self.constant(zeros), axis=1
        )

    def word_vectors(self, token_ids: str, rows: int, width: int) -> str:
        integers, scales = quantized(self.checked(WORDS, rows, width), in_products=False)
        self.words = self.constant(integers, WORDS), self.constant(scales)
        found = self.op("Cast", self.op("Gather", self.words[0], token_ids), to=1)  # 1 is float32
        scale = self.op("Gather", self.words[1], token_ids)
        return self.op("Mul", found, self.op("Unsqueeze", scale, self.constant([2])))

    def word_table(self, rows: int, width: int) -> str:
        return self.op("DequantizeLinear", *self.words, self.constant(np.zeros(rows, "int8")), axis=0)


def smoothing(inputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """By how much each feature of a dense layer's input is divided: equation 4 of Xiao et al. (2023).

    Parameters
    ----------
    inputs, weights : ndarray of shape (width,)
        The largest absolute value of each feature, and of the weights that multiply it.
    """
    given = (inputs > 0) & (weights > 0)
    inputs, weights = np.where(given, inputs, 1.0), np.where(given, weights, 1.0)
    return (inputs**_ALPHA / weights ** (1 - _ALPHA)).astype("float32")


def quantized(matrix: np.ndarray, in_products: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Integers of a matrix from -127 to 127, and the scale of each row: row = integers * scale.

    With ``in_products``, two neighbours of a row are at most 128 together. Processors without VNNI multiply them with
    two numbers of up to 255 and add the products in 16 bits, which hold no more.
    """
    sizes = np.abs(matrix)
    largest = sizes.max(axis=1)
    if in_products:
        # Rounding adds a half to each of the two at most.
        largest = np.maximum(largest, (sizes[:, :-1] + sizes[:, 1:]).max(axis=1, initial=0))
    scales = largest / 127
    scales = np.where(scales > 0, scales, 1.0).astype("float32")
    return np.rint(matrix / scales[:, None]).astype("int8"), scales
