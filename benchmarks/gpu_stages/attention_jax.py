"""The ways of `gpu_stages.attention` on JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from gpu_stages.attention import Packed
from gpu_stages.setting import Absent


def prepared(
    way: str, packed: Packed, miniature: bool
) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """Forward; forward and backward; and the outputs at real tokens in float32."""
    if "cuDNN" in way and jax.default_backend() != "gpu":
        raise Absent("cuDNN is on GPUs of NVIDIA alone")
    is_padded = way.startswith("padded")
    arrays = jnp.asarray(packed.padded_rows() if is_padded else packed.rows(), jnp.bfloat16)
    attend = _ways(packed)[way]

    def total(arrays: jax.Array) -> jax.Array:
        return attend(*arrays).astype("float32").sum()

    forward, both = jax.jit(lambda arrays: attend(*arrays)), jax.jit(jax.grad(total))
    places = packed.padded if is_padded else packed.real

    def outputs() -> np.ndarray:
        found = np.asarray(forward(arrays).astype("float32"))
        return found.reshape(-1, packed.N, packed.H)[places]

    return lambda: forward(arrays), lambda: both(arrays), outputs


def _ways(packed: Packed) -> dict[str, Callable[..., jax.Array]]:
    mask, lengths = jnp.asarray(packed.mask()), jnp.asarray(packed.lengths)
    scale = packed.H**-0.5

    def explicit(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        scores = jnp.einsum("btnh,bsnh->bnts", query * scale, key)
        scores = jnp.where(mask, scores.astype("float32"), -1e9)
        return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(scores).astype(value.dtype), value)

    def masked(implementation: str) -> Callable[..., jax.Array]:
        return lambda *arrays: jax.nn.dot_product_attention(*arrays, mask=mask, implementation=implementation)

    def with_lengths(*arrays: jax.Array) -> jax.Array:
        return jax.nn.dot_product_attention(
            *arrays, query_seq_lengths=lengths, key_value_seq_lengths=lengths, implementation="cudnn"
        )

    return {
        "explicit softmax": explicit,
        "mask, XLA": masked("xla"),
        "mask, cuDNN": masked("cudnn"),
        "padded, cuDNN with lengths": with_lengths,
        "packed, cuDNN with offsets": _with_offsets(packed, scale),
    }


def _with_offsets(packed: Packed, scale: float) -> Callable[..., jax.Array]:
    """CuDNN's own sequence packing, by where each text of a row begins and ends; JAX has it in a private module."""

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        from jax._src.cudnn.fused_attention_stablehlo import MaskType, dot_product_attention

        lengths, offsets = map(jnp.asarray, lengths_and_offsets(packed))
        return dot_product_attention(
            query, key, value, None, None, lengths, lengths, offsets, offsets,
            scale=scale, mask_type=MaskType.PADDING,
        )  # fmt: skip

    return attend


def lengths_and_offsets(packed: Packed) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of a row's texts, (B, K), and where they begin in their row, (B, K + 1): -1 where there is none.

    JAX itself makes places in the whole array of the offsets, as in the test of its packed layout.
    """
    K = int(packed.text_ids.max())
    lengths = np.stack([np.bincount(row, minlength=K + 1)[1:] for row in packed.text_ids]).astype(np.int32)
    lengths[lengths == 0] = -1
    offsets = np.full((packed.B, K + 1), -1, np.int32)
    offsets[:, :-1] = np.where(lengths > 0, np.cumsum(lengths, axis=1) - lengths, -1)
    return lengths, offsets
