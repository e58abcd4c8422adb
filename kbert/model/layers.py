"""The layers of BERT (Devlin et al., 2018, section 3): embeddings, self-attention, one transformer layer, pooler.

Letter key: B batch, T length, N heads, H head size, D hidden, V vocabulary, K texts per row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from kbert.config import GELU, BertConfig
from kbert.model.base import (
    MASKED,
    NOT_QUANTIZED,
    PARTS,
    DType,
    Tensor,
    constant,
    one_hot,
    restore_parts,
    state_of_parts,
)
from kbert.model.dropout import Dropout
from kbert.model.products import product
from kbert.model.setup import keras, ops


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The activation function for ``hidden_act`` of a config.json."""
    if name in GELU:
        return partial(ops.gelu, approximate=GELU[name] == "tanh")
    function: Callable[[Tensor], Tensor] = getattr(ops, name)
    return function


def _initializer(config: BertConfig, seed: int) -> str | keras.initializers.Initializer:
    if config.initializer_range == 0:
        return "zeros"
    # Truncated at two standard deviations, as in the original code. The default of Keras's Dense is Glorot uniform.
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=seed)


@keras.saving.register_keras_serializable("kbert")
class Dense(keras.layers.Dense):
    """A dense layer that computes by `product`, which is faster than Keras's own on some backends.

    Its kernel may have low-rank adapters, and it is not quantized.
    """

    lora_alpha: float | None

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return product(x, self.kernel, self.bias)

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        alpha = self.lora_alpha
        super().build(x_shape)
        if self.lora_enabled:  # Keras takes the rank for alpha here
            self.lora_alpha = alpha

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        if self.lora_enabled:
            # Saved kernels have the adapters in them. Keras sets both matrices of the new ones to 0, where the gradient
            # of each is 0 for ever.
            self.lora_kernel_a.assign(keras.initializers.HeUniform()(self.lora_kernel_a.shape, "float32"))

    def quantize(self, *_: Any, **__: Any) -> None:
        """Refuse; Keras warns of it where a model of the user's own is quantized, and goes on with the next layer."""
        raise NotImplementedError(NOT_QUANTIZED)


def dense(config: BertConfig, width: int, seed: int, dtype: DType, name: str) -> Dense:
    """A dense layer with BERT's initial weights: truncated normal kernel, zero bias."""
    return Dense(width, kernel_initializer=_initializer(config, seed), dtype=dtype, name=name)


def layer_norm(config: BertConfig, dtype: DType, name: str) -> keras.layers.LayerNormalization:
    """LayerNorm with BERT's epsilon. Keras computes it in float32 under any policy."""
    return keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, dtype=dtype, name=name)


def inner(layer: keras.layers.Layer, *arrays: Tensor, **options: Any) -> Tensor:
    """``layer(*arrays)`` inside the call of another layer, whose dtype and scope it has.

    Keras's own ``__call__`` looks at the arguments anew in each of a hundred layers, which takes a large part of a step
    where operations run one at a time (docs/project/performance_notes.md).
    """
    return layer.call(*arrays, **options)


def outer(layer: keras.layers.Layer, *arrays: Tensor, **options: Any) -> Tensor:
    """The same for a layer of a model, whose hooks are run: those that a user registered with PyTorch for it."""
    return layer(*arrays, **options) if has_hooks(layer) else inner(layer, *arrays, **options)


# Where a module of PyTorch keeps them.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def has_hooks(layer: keras.layers.Layer) -> bool:
    """Whether PyTorch is to run a user's functions when it calls a layer: those of this layer, or those of all."""
    if keras.backend.backend() != "torch":
        return False
    from torch.nn.modules.module import _has_any_global_hook

    return any(getattr(layer, name) for name in _HOOKS) or bool(_has_any_global_hook())


class LayerOfConfig(keras.layers.Layer):
    """A layer that is made of the architecture and a seed, from which Keras makes it again."""

    def __init__(self, config: BertConfig, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.seed = config, seed

    def get_config(self) -> dict[str, Any]:
        own = {"config": self.config.to_dict(), "seed": self.seed}
        return {**super().get_config(), **own, **state_of_parts(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        arguments = {name: value for name, value in config.items() if name not in (*PARTS, "trainable")}
        layer = cls(**{**arguments, "config": BertConfig(**config["config"])})
        layer.trainable = config.get("trainable", True)  # after the inner layers are there, which it concerns too
        restore_parts(layer, config)
        return layer


@keras.saving.register_keras_serializable("kbert")
class BertEmbeddings(LayerOfConfig):
    """Word + position + segment embeddings, then LayerNorm and dropout: three (B, T) arrays of ids to (B, T, D)."""

    def __init__(self, config: BertConfig, seed: int, **kwargs: Any):
        super().__init__(config, seed, **kwargs)
        self.norm = layer_norm(config, self.dtype_policy, "norm")
        self.dropout = Dropout(config.hidden_dropout_prob, seed, dtype=self.dtype_policy, name="dropout")

    def build(self, *_: Any) -> None:
        def table(name: str, rows: int, seed: int) -> keras.Variable:
            # Not cast by the policy: that would cast the whole table in each step, of which few rows are looked up.
            shape = (rows, self.config.hidden_size)
            return self.add_weight(shape, _initializer(self.config, seed), name=name, autocast=False)

        config = self.config
        self.word = table("word", config.vocab_size, self.seed)
        self.position = table("position", config.max_position_embeddings, self.seed + 1)
        self.segment = table("segment", config.type_vocab_size, self.seed + 2)
        self.norm.build((None, None, config.hidden_size))
        self.built = True

    def call(self, token_ids: Tensor, position_ids: Tensor, segment_ids: Tensor, training: bool = False) -> Tensor:
        words = ops.take(self.word, token_ids, axis=0)  # (B, T, D)
        return self.of_words(words, position_ids, segment_ids, training)

    def of_words(self, words: Tensor, position_ids: Tensor, segment_ids: Tensor, training: bool = False) -> Tensor:
        """The same for rows of the word table (B, T, D), or for any other vectors in their place."""
        x = words + ops.take(self.position, position_ids, axis=0)  # float32 under every policy, until after LayerNorm
        # A product with one-hot rows, because the table has two rows or so. Its gradient is a product too; that of a
        # lookup is a slow scatter-add of every token into the same rows.
        x = x + ops.matmul(one_hot(segment_ids, self.config.type_vocab_size, x.dtype), self.segment)
        return inner(self.dropout, inner(self.norm, x), training=training)

    def compute_output_spec(self, token_ids: Tensor, *_: Any, **__: Any) -> keras.KerasTensor:
        return keras.KerasTensor((*token_ids.shape, self.config.hidden_size), self.compute_dtype)


def attention_mask(readers: Tensor, text_ids: Tensor) -> Tensor:
    """Which tokens attend to which: text ids (B, S) of those that do, and (B, T) of all, to the mask (B, 1, S, T).

    True for two tokens of the same packed text. Padding has text id 0 and attends to padding, so that no row of the
    softmax is empty.
    """
    return ops.equal(readers[:, None, :, None], text_ids[:, None, None, :])


@keras.saving.register_keras_serializable("kbert")
class SameText(keras.layers.Layer):
    """text_ids (B, T) to the attention mask (B, 1, T, T) of all tokens."""

    def call(self, text_ids: Tensor) -> Tensor:
        return attention_mask(text_ids, text_ids)

    def compute_output_spec(self, text_ids: Tensor) -> keras.KerasTensor:
        batch, length = text_ids.shape
        return keras.KerasTensor((batch, 1, length, length), "bool")


@keras.saving.register_keras_serializable("kbert")
class SelfAttention(LayerOfConfig):
    """Multi-head scaled dot-product attention of some vectors, ``readers`` (B, S, D), to x (B, T, D).

    The readers are x itself, or the vectors of some of its tokens, and the mask is (B, 1, S, T).
    """

    def __init__(self, config: BertConfig, seed: int, **kwargs: Any):
        super().__init__(config, seed, **kwargs)
        width, policy = config.hidden_size, self.dtype_policy
        # Three products instead of one fused product, which was no faster on CPUs (docs/project/performance_notes.md).
        self.query = dense(config, width, seed, policy, "query")
        self.key = dense(config, width, seed + 1, policy, "key")
        self.value = dense(config, width, seed + 2, policy, "value")
        self.output_dense = dense(config, width, seed + 3, policy, "output")
        self.dropout = Dropout(config.attention_probs_dropout_prob, seed + 4, dtype=policy, name="dropout")

    def build(self, x_shape: tuple[int | None, ...], *_: Any) -> None:
        for layer in (self.query, self.key, self.value, self.output_dense):
            layer.build(x_shape)
        self.built = True

    def call(self, x: Tensor, mask: Tensor, readers: Tensor, training: bool = False) -> Tensor:
        B, T, D = ops.shape(x)
        S = ops.shape(readers)[1]
        N, H = self.config.num_attention_heads, self.config.head_size
        query = ops.reshape(inner(self.query, readers), (B, S, N, H))
        key, value = (ops.reshape(inner(layer, x), (B, T, N, H)) for layer in (self.key, self.value))
        # ops.dot_product_attention has no dropout, and BERT drops attention probabilities in training. In float16 on
        # JAX it needs a product that CPUs do not have.
        backend = keras.backend.backend()
        if backend == "torch" and query.device.type == "cuda":
            from kbert.model.attention_torch import attention

            context = attention(query, key, value, mask, self.dropout.rate if training else 0.0, readers is x)
        elif (training and self.dropout.rate) or (self.compute_dtype == "float16" and backend == "jax"):
            context = self._explicit_attention(query, key, value, mask, training)
        else:
            context = ops.dot_product_attention(query, key, value, mask=mask)
        return inner(self.output_dense, ops.reshape(context, (B, S, D)))  # (B, S, N, H) -> (B, S, D)

    def _explicit_attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, training: bool) -> Tensor:
        scores = ops.einsum("btnh,bsnh->bnts", query * self.config.head_size**-0.5, key)
        scores = ops.where(mask, ops.cast(scores, "float32"), MASKED)
        probabilities = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
        return ops.einsum("bnts,bsnh->btnh", inner(self.dropout, probabilities, training=training), value)


@keras.saving.register_keras_serializable("kbert")
class TransformerLayer(LayerOfConfig):
    """One layer: attention and feed-forward, each with a residual connection and then LayerNorm (post-LN).

    x (B, T, D) to (B, T, D); with ``positions`` (B, S), to the vectors of the tokens there, (B, S, D), under a mask
    (B, 1, S, T). All else that the layer computes is then left out.
    """

    def __init__(self, config: BertConfig, seed: int, **kwargs: Any):
        super().__init__(config, seed, **kwargs)
        policy, rate = self.dtype_policy, config.hidden_dropout_prob
        self.attention = SelfAttention(config, seed, dtype=policy, name="attention")
        self.attention_dropout = Dropout(rate, seed + 5, dtype=policy, name="attention_dropout")
        self.attention_norm = layer_norm(config, policy, "attention_norm")
        self.intermediate = dense(config, config.intermediate_size, seed + 6, policy, "intermediate")
        self.activation = activation(config.hidden_act)
        self.output_dense = dense(config, config.hidden_size, seed + 7, policy, "output")
        self.output_dropout = Dropout(rate, seed + 8, dtype=policy, name="output_dropout")
        self.output_norm = layer_norm(config, policy, "output_norm")

    def build(self, x_shape: tuple[int | None, ...], *_: Any) -> None:
        for layer in (self.attention, self.attention_norm, self.intermediate, self.output_norm):
            layer.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.config.intermediate_size))
        self.built = True

    def call(self, x: Tensor, mask: Tensor, positions: Tensor | None = None, training: bool = False) -> Tensor:
        if (fused := self.fused(x, mask, positions, training)) is not None:
            return fused
        readers = x if positions is None else tokens_at(x, positions)
        attended = inner(self.attention, x, mask, readers, training=training)
        x = inner(self.attention_norm, readers + inner(self.attention_dropout, attended, training=training))
        expanded = inner(self.output_dense, self.activation(inner(self.intermediate, x)))
        return inner(self.output_norm, x + inner(self.output_dropout, expanded, training=training))

    def fused(self, x: Tensor, mask: Tensor, positions: Tensor | None, training: bool) -> Tensor | None:
        """The same by `kbert.model.layers_torch` or `layers_cuda`; None where these cannot compute it."""
        if keras.backend.backend() != "torch" or isinstance(x, keras.KerasTensor):
            return None
        from kbert.model.layers_cuda import cuda_layer
        from kbert.model.layers_torch import fused_layer

        computed = cuda_layer if x.device.type == "cuda" else fused_layer
        return computed(self, x, mask, x if positions is None else tokens_at(x, positions), training)

    def compute_output_spec(self, x: Tensor, mask: Tensor, positions: Tensor | None = None, **_: Any) -> Tensor:
        return keras.KerasTensor((*(x if positions is None else positions).shape[:2], x.shape[-1]), self.compute_dtype)


def through(
    layer: TransformerLayer, x: Tensor, mask: Tensor, positions: Tensor | None = None, training: bool = False
) -> Tensor:
    """``layer(x, mask, positions)``, without Keras's own ``__call__`` where PyTorch computes it in few operations.

    For one short text that call takes about as long as the layer (docs/project/performance_notes.md).
    """
    if not has_hooks(layer) and (fused := layer.fused(x, mask, positions, training)) is not None:
        return fused
    return layer(x, mask, positions, training=training)


@keras.saving.register_keras_serializable("kbert")
class Pooler(LayerOfConfig):
    """tanh(dense(x)) of the vectors of [CLS], x (..., D): the vector of each text (..., D)."""

    def __init__(self, config: BertConfig, seed: int, **kwargs: Any):
        super().__init__(config, seed, **kwargs)
        self.dense = dense(config, config.hidden_size, seed, self.dtype_policy, "dense")

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.dense.build(x_shape)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return ops.tanh(inner(self.dense, x))

    def compute_output_spec(self, x: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor(x.shape, self.compute_dtype)


def tokens_at(x: Tensor, positions: Tensor) -> Tensor:
    """The vectors of x (B, T, D) at the positions (B, S): shape (B, S, D)."""
    return ops.take_along_axis(x, ops.expand_dims(positions, -1), axis=1)


@keras.saving.register_keras_serializable("kbert")
class FirstTokens(keras.layers.Layer):
    """The vectors at given positions: x (B, T, D) and positions (B, K) to (B, K, D)."""

    def call(self, x: Tensor, positions: Tensor) -> Tensor:
        return tokens_at(x, positions)

    def compute_output_spec(self, x: Tensor, positions: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((*positions.shape, x.shape[-1]), x.dtype)


@keras.saving.register_keras_serializable("kbert")
class TextMeans(keras.layers.Layer):
    """The mean over the tokens of each text, special ones included, in float32.

    x (B, T, D), text_ids (B, T) and first_positions (B, K) to (B, K, D); zeros where a row has fewer than K texts.
    """

    def call(self, x: Tensor, text_ids: Tensor, first_positions: Tensor) -> Tensor:
        K = ops.shape(first_positions)[1]
        slots = ops.arange(1, K + 1, dtype="int32")
        member = ops.cast(text_ids[:, None, :] == slots[None, :, None], "float32")  # (B, K, T)
        counts = ops.maximum(ops.sum(member, axis=-1, keepdims=True), constant(1, "float32"))  # (B, K, 1)
        return ops.matmul(member / counts, ops.cast(x, "float32"))  # (B, K, D)

    def compute_output_spec(self, x: Tensor, text_ids: Tensor, first_positions: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((x.shape[0], first_positions.shape[1], x.shape[2]), dtype="float32")
