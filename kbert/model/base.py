"""What all models share: their inputs, the check of these, and how a model is serialised."""

from __future__ import annotations

from functools import wraps
from typing import Any, Self, TypeAlias

import numpy as np

from kbert.config import BertConfig
from kbert.forks import note_use
from kbert.model.names import INPUT_NAMES
from kbert.model.setup import keras, ops

# A KerasTensor, or an array of the backend.
Tensor: TypeAlias = Any
DType: TypeAlias = str | keras.DTypePolicy | None

# Why no layer of a model is quantized, and what is.
NOT_QUANTIZED = (
    "kbert trains and computes in floating point alone. In int8 an exported model predicts: "
    'BertClassifier(...).fit(X, y).export(folder, X=X, quantize="int8").'
)

# The attention score of masked positions, in float32, in which the softmax is computed. Finite, so that nothing becomes
# NaN.
MASKED = -1e9


def constant(number: float, dtype: str) -> Tensor:
    """A number as an array, made where the backend computes.

    Keras's operations copy numbers from the host to the device, and on PyTorch the host waits for that. A CUDA graph
    cannot hold such a copy.
    """
    return ops.zeros((), dtype) + number


def one_hot(ids: Tensor, size: int, dtype: str) -> Tensor:
    """1 at the place of each id and 0 elsewhere: int32 ids (...) to (..., size). `keras.ops.one_hot` copies numbers."""
    return ops.cast(ops.equal(ops.expand_dims(ids, -1), ops.arange(size, dtype="int32")), dtype)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A tensor of the backend as an array, which may share its memory.

    On PyTorch in place of Keras's own function, which has NumPy warn: an error under `python -W error`. NumPy has no
    bfloat16, so such a tensor of PyTorch's becomes float32, as with Keras.
    """
    if keras.backend.backend() == "torch" and hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        is_bfloat16 = keras.backend.standardize_dtype(tensor.dtype) == "bfloat16"
        array: np.ndarray = (tensor.float() if is_bfloat16 else tensor).numpy()
        return array
    return np.asarray(ops.convert_to_numpy(tensor))


def _checked(method: Any) -> Any:
    """A method of Keras's models that checks arrays first. Keras makes tensors of them, whose ids are not checked."""

    @wraps(method)
    def checked(self: FunctionalBert, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(x, dict) and all(isinstance(array, np.ndarray) for array in x.values()):
            self.check(x)
        return method(self, x, *args, **kwargs)

    return checked


class FunctionalBert(keras.Model):
    """Base of the models: a functional Keras model, made from a `BertConfig` and a few arguments of its own.

    Parameters
    ----------
    inputs : dict of KerasTensor
        `token_inputs`.
    outputs : KerasTensor or dict of KerasTensor
    config : BertConfig
    policy : keras.DTypePolicy
    name : str or None
    seed : int
    **choices
        The other arguments of the subclass's ``__init__``, by name: numbers, str, bool or None.

    Notes
    -----
    `get_config` gives the arguments of the subclass's ``__init__``, where that of a plain functional model gives the
    graph of its layers. Keras's ``load_model`` and pickle rebuild the model from it by `from_config`.
    """

    def __init__(
        self,
        inputs: dict[str, Tensor],
        outputs: Tensor | dict[str, Tensor],
        *,
        config: BertConfig,
        policy: keras.DTypePolicy,
        name: str | None,
        seed: int,
        **choices: Any,
    ):
        if policy.quantization_mode is not None:
            raise ValueError(f"dtype={policy.name!r} is of quantized weights. {NOT_QUANTIZED}")
        super().__init__(inputs=inputs, outputs=outputs, name=name)
        note_use()
        self.input_names = tuple(inputs)
        self.config = config
        # A functional model has Keras's global policy otherwise.
        self.dtype_policy = policy
        self.seed = seed
        self.choices = choices

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Tensor | dict[str, Tensor]:
        self.check(inputs)
        ids = {name: ops.cast(array, "int32") for name, array in inputs.items()}  # as the graph does
        return self.outputs_of(ids, bool(training))

    def outputs_of(self, inputs: dict[str, Tensor], training: bool) -> Tensor | dict[str, Tensor]:
        """The outputs for int32 ids, by the graph of layers.

        Most subclasses compute the same without it (`BertEncoder.vectors_of_tokens`): to walk the graph takes Keras a
        third of the time of one short text.
        """
        outputs: Tensor | dict[str, Tensor] = super().call(inputs, training=training)
        return outputs

    def check(self, inputs: Any) -> None:
        """Raise where the inputs are not those of the model; see `check_inputs`."""
        check_inputs(inputs, self.input_names, self.config)

    fit, train_on_batch = _checked(keras.Model.fit), _checked(keras.Model.train_on_batch)
    evaluate, test_on_batch = _checked(keras.Model.evaluate), _checked(keras.Model.test_on_batch)
    predict, predict_on_batch = _checked(keras.Model.predict), _checked(keras.Model.predict_on_batch)

    def quantize(self, *_: Any, **__: Any) -> None:
        """Refuse, with what computes in int8."""
        raise NotImplementedError(NOT_QUANTIZED)

    def get_config(self) -> dict[str, Any]:
        policy = self.dtype_policy
        # Not by keras.dtype_policies.serialize, which imports TensorFlow under any backend, if it is installed.
        is_named = type(policy) is keras.DTypePolicy
        return {
            "config": self.config.to_dict(),
            "dtype": policy.name if is_named else keras.dtype_policies.serialize(policy),
            "name": self.name,
            "seed": self.seed,
            **self.choices,
            **state_of_parts(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        arguments = {name: value for name, value in config.items() if name not in PARTS}
        model = cls(**{**arguments, "config": BertConfig(**config["config"])})
        restore_parts(model, config)
        return model


# What `get_config` says of the layers that a layer or a model makes itself.
PARTS = ("frozen", "adapters")


def state_of_parts(layer: keras.layers.Layer) -> dict[str, list[Any]]:
    """What a layer that makes its inner layers itself has to say of them in its ``get_config``.

    Which of them are frozen, and which have low-rank adapters, as `keras.layers.Dense.enable_lora` adds them: the rank
    and alpha of each. They are known by their numbers in the order in which Keras goes through them.
    """
    parts = list(layer._flatten_layers())
    return {
        "frozen": [number for number, part in enumerate(parts) if not part.trainable],
        "adapters": [
            [number, part.lora_rank, part.lora_alpha]
            for number, part in enumerate(parts)
            if getattr(part, "lora_enabled", False)
        ],
    }


def restore_parts(layer: keras.layers.Layer, config: dict[str, Any]) -> None:
    """Freeze the layers that ``config`` of `state_of_parts` says, and give adapters to those that had some.

    Files of earlier versions do not say which.
    """
    parts = list(layer._flatten_layers())
    if "frozen" in config:
        # Inner layers come after those that hold them, and take over what these are set to.
        for number, part in enumerate(parts):
            part.trainable = number not in config["frozen"]
    for number, rank, alpha in config.get("adapters", ()):
        if parts[number].built:
            parts[number].enable_lora(rank, alpha)
        else:
            parts[number].lora_rank, parts[number].lora_alpha = rank, alpha


def token_inputs(*names: str) -> dict[str, Tensor]:
    """Inputs of int32 and of shape (B, any length), by name."""
    return {name: keras.Input((None,), dtype="int32", name=name) for name in names}


def check_inputs(inputs: Any, names: tuple[str, ...], config: BertConfig) -> None:
    """Raise unless the inputs are a dict with exactly these names. Keras would pass the arrays on in the wrong order.

    Ids in NumPy arrays must lie within the embedding tables: accelerators give no error for others.

    Raises
    ------
    TypeError
        If the inputs are no dict.
    ValueError
        If a name is missing or unknown, the arrays differ in shape or lack the axis of rows, or an id is beyond its
        embedding table, or a position beyond the rows.
    """
    if not isinstance(inputs, dict):
        raise TypeError(f"The input must be a dict with the keys {', '.join(names)}, got {type(inputs).__name__}.")
    missing, extra = sorted(set(names) - set(inputs)), sorted(set(inputs) - set(names))
    if missing or extra:
        found = [f"lacks {', '.join(missing)}"] if missing else []
        found += [f"has the unknown {', '.join(map(str, extra))}"] if extra else []
        raise ValueError(
            f"The input dict {' and '.join(found)}. Its keys must be exactly {', '.join(names)}"
            + (", as WordPieceTokenizer(texts) makes them." if names == INPUT_NAMES else ".")
        )
    shapes = {name: tuple(inputs[name].shape) for name in INPUT_NAMES if hasattr(inputs[name], "shape")}
    known = all(isinstance(n, int) for shape in shapes.values() for n in shape)
    if (len(set(shapes.values())) > 1 and known) or any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(
            f"{', '.join(INPUT_NAMES)} must have one shape, (rows, tokens), got "
            f"{', '.join(f'{name} of {shape}' for name, shape in shapes.items())}."
        )
    for key, limit in (
        ("token_ids", config.vocab_size),
        ("segment_ids", config.type_vocab_size),
        ("position_ids", config.max_position_embeddings),
    ):
        ids = inputs[key]
        if _is_beyond(ids, limit):
            raise ValueError(f"{key} must lie in [0, {limit}), got values from {ids.min()} to {ids.max()}.")
    length = inputs["token_ids"].shape[1]
    for key in {"first_positions", "masked_positions"}.intersection(names):
        places = inputs[key]
        if isinstance(length, int) and _is_beyond(places, length):
            raise ValueError(
                f"{key} must lie in [0, {length}), as long as the rows are, got values from {places.min()} to "
                f"{places.max()}."
            )


def _is_beyond(numbers: Any, limit: int) -> bool:
    return isinstance(numbers, np.ndarray) and numbers.size > 0 and not 0 <= numbers.min() <= numbers.max() < limit
