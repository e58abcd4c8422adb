"""BERT as an ONNX graph, built from the arrays of a weights folder.

The exporters of Keras's backends would trace the model and give a different graph each. BERT's graph is known, so it is
written here once, for all of them. The operators are those of opset 17, the first with LayerNormalization, in the form
that ONNX Runtime computes fastest (docs/benchmarks/export.md). GELU is written out: ONNX Runtime fuses it.

Letter key: B batch, T length, N heads, H head size, D hidden, V vocabulary. B and T may be any numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from kbert.config import GELU, BertConfig
from kbert.errors import WeightsMismatchError
from kbert.model.names import SHORTEST
from kbert.weights.arrays import canonical_name
from kbert.weights.runtimes import INPUTS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 8
# The outputs of a head: the tensor and the shape of each, by its name.
Outputs = dict[str, tuple[str, list[str | int]]]
WORDS = "embeddings.word_embeddings.weight"
# Added to the attention scores of padding. It is finite, so that a row of padding only gives no NaN, and within the
# range of float16.
_MASKED = -10000.0


def onnx_model(
    values: dict[str, Any],
    arrays: dict[str, np.ndarray],
    layers: str = "last",
    pooling: str | None = None,
    normalize: bool = False,
    graph_of: Callable[[dict[str, np.ndarray]], Graph] | None = None,
) -> ModelProto:
    """Build the graph of a weights folder: encoder and head.

    Parameters
    ----------
    values : dict
        The keys of its config.json. ``architectures`` says which head it has, ``problem_type`` what the outputs mean.
    arrays : dict of ndarray of float32
        Its arrays, by their Hugging Face names.
    layers, pooling, normalize
        For a BertModel, which has no head: the parameters of `BertForFeatures`.
    graph_of : callable, optional
        Makes the graph to which nodes are added, of the arrays by their canonical names. `Graph` by default;
        `kbert.weights.int8` has others.

    Returns
    -------
    onnx.ModelProto
        Inputs are input_ids, attention_mask (1 on tokens, 0 on padding) and token_type_ids, int64, (B, T). Outputs are
        float32: ``logits``, and ``probabilities`` for labels; or ``start_logits`` and ``end_logits`` (B, T); or
        ``sentence_embedding`` (B, features), or without pooling ``token_embeddings`` (B, T, features).

    Raises
    ------
    ImportError
        Where onnx is not installed.
    WeightsMismatchError
        Where an array is missing, or has another shape than config.json says.
    """
    try:
        import onnx
        from onnx import helper
    except ImportError as error:
        raise ImportError(
            f"Writing ONNX needs the package onnx ({error}). Install it with: pip install onnx onnxruntime"
        ) from None
    import kbert

    config = BertConfig.from_dict(values)
    graph = (graph_of or Graph)({canonical_name(name): array for name, array in arrays.items()})
    architecture = (values.get("architectures") or ["BertModel"])[0]
    if architecture not in (*_HEADS, "BertModel"):
        raise WeightsMismatchError(
            f"config.json describes a {architecture}, and ONNX is written for {', '.join(_HEADS)} and BertModel."
        )
    if architecture == "BertModel":
        outputs = _features(graph, config, layers, pooling, normalize)
    else:
        outputs = _HEADS[architecture](graph, config, _encoder(graph, config)[-1], values.get("problem_type"))
    outputs |= graph.outputs

    def info(name: str, kind: int, shape: list[str | int]) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    graph.nodes += [helper.make_node("Identity", [tensor], [name]) for name, (tensor, _) in outputs.items()]
    proto = helper.make_graph(
        graph.nodes,
        architecture,
        [info(name, onnx.TensorProto.INT64, ["batch", "length"]) for name in INPUTS],
        [info(name, onnx.TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()],
        graph.constants,
    )
    return helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="kbert",
        producer_version=kbert.__version__,
    )


class Graph:
    """The nodes and constants of a graph, to which the methods add. Tensors are strings: their names.

    Parameters
    ----------
    arrays : dict of ndarray
        The arrays of the weights folder, by their canonical names.
    """

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: Outputs = {}  # besides those of the head

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        from onnx import helper

        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: ArrayLike, name: str | None = None) -> str:
        """Add an array as a constant, and return its name. It is float32 or int64, or of one byte as it was given."""
        from onnx import numpy_helper

        array = np.asarray(value, order="C")
        if array.dtype.itemsize > 1:
            array = array.astype("float32" if array.dtype.kind == "f" else "int64", copy=False)
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def array(self, name: str, *shape: int, transposed: bool = False) -> str:
        """Add an array of the weights folder, and return its name. ``shape`` is the one that it must have there."""
        array = self.checked(name, *shape)
        return self.constant(array.T if transposed else array, name)

    def checked(self, name: str, *shape: int) -> np.ndarray:
        """Return an array of the weights folder. ``shape`` is the one that it must have there."""
        array = self.arrays.get(name)
        if array is None or array.shape != shape:
            found = "is missing" if array is None else f"has shape {array.shape}"
            raise WeightsMismatchError(f"The array {name} {found}, and config.json asks for {shape}.")
        return array

    def dense(self, x: str, name: str, width: int, units: int) -> str:
        """Add a dense layer: x (..., width) -> (..., units). The kernel in the folder is (out, in)."""
        product = self.op("MatMul", x, self.array(f"{name}.weight", units, width, transposed=True))
        return self.op("Add", product, self.array(f"{name}.bias", units))

    def encoder_dense(self, x: str, names: Sequence[str], width: int, units: int) -> list[str]:
        """Add the dense layers of the encoder that read the same x (B, T, width)."""
        return [self.dense(x, name, width, units) for name in names]

    def word_vectors(self, token_ids: str, rows: int, width: int) -> str:
        """Add the look-up of word embeddings: token ids (B, T) -> (B, T, width)."""
        return self.op("Gather", self.array(WORDS, rows, width), token_ids)

    def word_table(self, rows: int, width: int) -> str:
        """Return the table of word embeddings (rows, width), which `word_vectors` has added."""
        return WORDS

    def norm(self, x: str, name: str, config: BertConfig) -> str:
        """Add a LayerNorm over the last axis."""
        scale, offset = (self.array(f"{name}.{part}", config.hidden_size) for part in ("weight", "bias"))
        return self.op("LayerNormalization", x, scale, offset, axis=-1, epsilon=config.layer_norm_eps)

    def activation(self, x: str, name: str) -> str:
        """Add the activation ``hidden_act``. ONNX Runtime fuses the two forms of GELU in the patterns written here."""
        if name == "relu":
            return self.op("Relu", x)
        one, half = self.constant(1.0), self.constant(0.5)
        if name == "gelu":
            x_erf = self.op("Erf", self.op("Div", x, self.constant(np.sqrt(2.0))))
            return self.op("Mul", self.op("Mul", x, self.op("Add", x_erf, one)), half)
        if name not in GELU:
            raise NotImplementedError(f"The graph of hidden_act {name!r} is missing here.")
        cube = self.op("Mul", self.op("Pow", x, self.constant(3.0)), self.constant(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.constant(np.sqrt(2 / np.pi)))
        return self.op("Mul", self.op("Mul", x, half), self.op("Add", self.op("Tanh", inner), one))


# === Encoder ===


def _encoder(graph: Graph, config: BertConfig, n_layers: int | None = None) -> list[str]:
    """Add the encoder, and return the embeddings and the output of each layer, (B, T, D)."""
    D = config.hidden_size
    token_ids, attention_mask, segment_ids = INPUTS

    def table(name: str, rows: int) -> str:
        return graph.array(f"embeddings.{name}_embeddings.weight", rows, D)

    # For more tokens than there are positions, the sum below fails when the graph runs, because the shapes differ.
    length = graph.op("Shape", token_ids, start=1, end=2)
    zero = graph.constant([0])
    positions = graph.op("Slice", table("position", config.max_position_embeddings), zero, length, zero)  # (T, D)
    words = graph.word_vectors(token_ids, config.vocab_size, D)
    segments = graph.op("Gather", table("token_type", config.type_vocab_size), segment_ids)
    x = graph.op("Add", graph.op("Add", words, segments), positions)
    hidden = [graph.norm(x, "embeddings.LayerNorm", config)]

    n_layers = config.num_hidden_layers if n_layers is None else n_layers
    if n_layers:
        padding = graph.op("Sub", graph.constant(1.0), graph.op("Cast", attention_mask, to=1))  # 1 is float32
        mask = graph.op("Mul", graph.op("Unsqueeze", padding, graph.constant([1, 2])), graph.constant(_MASKED))
    for i in range(n_layers):
        hidden.append(_layer(graph, config, f"encoder.layer.{i}", hidden[-1], mask))
    return hidden


def _layer(graph: Graph, config: BertConfig, prefix: str, x: str, mask: str) -> str:
    D, N, H, F = config.hidden_size, config.num_attention_heads, config.head_size, config.intermediate_size
    split, join = graph.constant([0, 0, N, H]), graph.constant([0, 0, D])  # 0 keeps B and T

    def dense(x: str, name: str, width: int, units: int) -> str:
        return graph.encoder_dense(x, [f"{prefix}.{name}"], width, units)[0]

    parts = [f"{prefix}.attention.self.{part}" for part in ("query", "key", "value")]
    orders = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]  # (B, N, T, H), of the keys (B, N, H, T)
    query, key, value = (
        graph.op("Transpose", graph.op("Reshape", vectors, split), perm=order)
        for vectors, order in zip(graph.encoder_dense(x, parts, D, D), orders, strict=True)
    )
    scores = graph.op("MatMul", query, key)  # (B, N, T, T)
    scores = graph.op("Div", scores, graph.constant(np.sqrt(float(H))))
    weights = graph.op("Softmax", graph.op("Add", scores, mask), axis=-1)
    context = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    attended = dense(graph.op("Reshape", context, join), "attention.output.dense", D, D)
    x = graph.norm(graph.op("Add", attended, x), f"{prefix}.attention.output.LayerNorm", config)
    expanded = graph.activation(dense(x, "intermediate.dense", D, F), config.hidden_act)
    projected = dense(expanded, "output.dense", F, D)
    return graph.norm(graph.op("Add", projected, x), f"{prefix}.output.LayerNorm", config)


# === Heads: each returns the tensor and the shape of each output, by its name ===


def _sequence(graph: Graph, config: BertConfig, x: str, problem_type: str | None) -> Outputs:
    """Labels, numbers, or the score of an option: a dense layer on the pooler's vector, or on the mean of a text."""
    if config.classifier_pooling == "mean":
        return _classes(graph, config, _mean(graph, x), ["batch"], problem_type, "mean_classifier")
    first = graph.op("Gather", x, graph.constant(0), axis=1)  # (B, D)
    pooled = graph.op("Tanh", graph.dense(first, "pooler.dense", config.hidden_size, config.hidden_size))
    return _classes(graph, config, pooled, ["batch"], problem_type)


def _tokens(graph: Graph, config: BertConfig, x: str, problem_type: str | None) -> Outputs:
    return _classes(graph, config, x, ["batch", "length"], "single_label_classification")


def _mean(graph: Graph, x: str) -> str:
    """The mean over the tokens of each text: (B, T, D) to (B, D)."""
    mask = graph.op("Cast", graph.op("Unsqueeze", INPUTS[1], graph.constant([1])), to=1)  # (B, 1, T)
    total = graph.op("Squeeze", graph.op("MatMul", mask, x), graph.constant([1]))  # (B, D)
    count = graph.op("ReduceSum", mask, graph.constant([2]), keepdims=0)  # (B, 1)
    return graph.op("Div", total, graph.op("Max", count, graph.constant([1.0])))


def _classes(
    graph: Graph,
    config: BertConfig,
    x: str,
    shape: list[str | int],
    problem_type: str | None,
    name: str = "classifier",
) -> Outputs:
    n_labels = len(graph.arrays.get(f"{name}.bias", ()))
    logits = graph.dense(x, name, config.hidden_size, n_labels)
    outputs: Outputs = {"logits": (logits, [*shape, n_labels])}
    if problem_type == "single_label_classification":
        outputs["probabilities"] = graph.op("Softmax", logits, axis=-1), [*shape, n_labels]
    elif problem_type == "multi_label_classification":
        outputs["probabilities"] = graph.op("Sigmoid", logits), [*shape, n_labels]
    return outputs


def _spans(graph: Graph, config: BertConfig, x: str, problem_type: str | None) -> Outputs:
    logits = graph.dense(x, "qa_outputs", config.hidden_size, 2)  # (B, T, 2)
    shape: list[str | int] = ["batch", "length"]
    return {
        name: (graph.op("Gather", logits, graph.constant(i), axis=2), shape)
        for i, name in enumerate(("start_logits", "end_logits"))
    }


def _masked_words(graph: Graph, config: BertConfig, x: str, problem_type: str | None) -> Outputs:
    """The masked-LM head. Its output matrix is the word embeddings."""
    D, V = config.hidden_size, config.vocab_size
    x = graph.activation(graph.dense(x, "cls.predictions.transform.dense", D, D), config.hidden_act)
    x = graph.norm(x, "cls.predictions.transform.LayerNorm", config)
    words = graph.op("Transpose", graph.word_table(V, D), perm=[1, 0])
    logits = graph.op("Add", graph.op("MatMul", x, words), graph.array("cls.predictions.bias", V))
    return {"logits": (logits, ["batch", "length", V])}


def _features(graph: Graph, config: BertConfig, layers: str, pooling: str | None, normalize: bool) -> Outputs:
    """The vectors of `BertForFeatures`. Layers above those that are needed are left out."""
    depth, width = config.num_hidden_layers, config.hidden_size
    hidden = _encoder(graph, config, {"embeddings": 0, "second_to_last": depth - 1}.get(layers, depth))
    last_four = hidden[max(1, len(hidden) - 4) :]
    if layers == "concat_last_4":
        x, width = graph.op("Concat", *last_four, axis=-1), width * len(last_four)
    elif layers in ("sum_last_4", "sum_all"):
        x = graph.op("Sum", *(last_four if layers == "sum_last_4" else hidden[1:]))
    else:
        x = hidden[-1]
    if pooling is not None:
        x = graph.op("Gather", x, graph.constant(0), axis=1) if pooling == "cls" else _mean(graph, x)
    if normalize:
        length = graph.op("ReduceL2", x, axes=[-1], keepdims=1)  # in opset 17, axes are an attribute
        x = graph.op("Div", x, graph.op("Max", length, graph.constant(SHORTEST)))
    if pooling is None:
        return {"token_embeddings": (x, ["batch", "length", width])}
    return {"sentence_embedding": (x, ["batch", width])}


_HEADS = {
    "BertForSequenceClassification": _sequence,
    "BertForMultipleChoice": _sequence,
    "BertForTokenClassification": _tokens,
    "BertForQuestionAnswering": _spans,
    "BertForPreTraining": _masked_words,
    "BertForMaskedLM": _masked_words,
}
