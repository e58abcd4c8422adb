"""Attention on packed rows: by an explicit mask, and by FlashAttention with sequence ids; time and memory.

The same texts, of 8 to 32 tokens in rows of 128 and of 64 to 256 tokens in rows of 512, 12 heads of size 64, bfloat16,
16,384 tokens of row a call. Forward, and forward and backward. ``padded`` ways have a row for each text, as long as the
longest, and say how long it is. "packed, kbert" is what kbert itself computes on a GPU. ``relative_error`` is that of
the outputs at real tokens against the same attention in float32, text by text; a way is right where it is about 0.01 or
less.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_stages.setting import Cell, Setting

WAYS = {
    "jax": ("explicit softmax", "mask, XLA", "mask, cuDNN", "padded, cuDNN with lengths", "packed, cuDNN with offsets"),
    "torch": (
        "packed, kbert", "explicit softmax", "mask, SDPA", "padded, SDPA with mask", "packed, FlexAttention",
        "packed, nested tensors", "packed, varlen",
    ),
}  # fmt: skip
_TEXTS = {128: (8, 32), 512: (64, 256)}
_TOKENS = 16_384


def cells(setting: Setting) -> list[Cell]:
    """All ways at both lengths."""
    return [
        # JAX counts memory from the start of the process.
        Cell(f"{length}: {way}", {"length": length, "way": way}, 15, alone=setting.backend == "jax")
        for length in setting.pick((128, 512), (32,))
        for way in WAYS[setting.backend]
    ]


class Packed:
    """Texts packed into rows, and the places of their tokens in each layout.

    Letter key: B rows, T tokens of a row, S texts, L tokens of the longest, N heads, H head size.

    Attributes
    ----------
    text_ids : ndarray of int32, shape (B, T)
        Which text of its row a token belongs to; 0 is padding.
    lengths : ndarray of int32, shape (S,)
    real : ndarray of int, shape (n_tokens,)
        The places of the real tokens in the (B * T) array, text by text.
    padded : ndarray of int, shape (n_tokens,)
        The same in the (S * L) array of a row for each text.
    """

    def __init__(self, setting: Setting, length: int):
        from kbert.data.packing import pack

        rng = np.random.default_rng(0)
        shortest, longest = _TEXTS.get(length, (4, 12))
        n_rows = max(2, setting.pick(_TOKENS, 64) // length)
        drawn = rng.integers(shortest, longest + 1, 4 * n_rows * length // (shortest + longest))
        rows = sorted(pack(drawn, length, length), key=lambda row: -sum(drawn[row]))[:n_rows]
        self.B, self.T = len(rows), length
        self.lengths = np.concatenate([drawn[row] for row in rows]).astype(np.int32)
        self.text_ids = np.zeros((self.B, self.T), np.int32)
        for i, row in enumerate(rows):
            ids = np.repeat(np.arange(len(row)) + 1, drawn[row])
            self.text_ids[i, : len(ids)] = ids
        self.S, self.L = len(self.lengths), int(-(-self.lengths.max() // 8) * 8)
        self.real = np.flatnonzero(self.text_ids.ravel())
        inside = np.arange(len(self.real)) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        self.padded = np.repeat(np.arange(self.S) * self.L, self.lengths) + inside
        self.N, self.H = setting.pick((12, 64), (2, 8))
        self.values = rng.standard_normal((3, len(self.real), self.N, self.H)).astype("float32")

    def rows(self) -> np.ndarray:
        """Query, key and value, (3, B, T, N, H)."""
        return self._placed(self.real, self.B, self.T)

    def padded_rows(self) -> np.ndarray:
        """The same, (3, S, L, N, H)."""
        return self._placed(self.padded, self.S, self.L)

    def _placed(self, places: np.ndarray, n: int, length: int) -> np.ndarray:
        placed = np.zeros((3, n * length, self.N, self.H), "float32")
        placed[:, places] = self.values
        return placed.reshape(3, n, length, self.N, self.H)

    def mask(self) -> np.ndarray:
        """Which tokens see each other, (B, 1, T, T): those of the same text, and padding padding."""
        return (self.text_ids[:, None, :, None] == self.text_ids[:, None, None, :]).astype(bool)

    def reference(self) -> np.ndarray:
        """The outputs at real tokens in float32, text by text: (n_tokens, N, H)."""
        found, begin = np.empty_like(self.values[0]), 0
        for length in self.lengths:
            query, key, value = self.values[:, begin : begin + length]
            scores = np.einsum("tnh,snh->nts", query, key) * self.H**-0.5
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            found[begin : begin + length] = np.einsum("nts,snh->tnh", scores / scores.sum(-1, keepdims=True), value)
            begin += length
        return found


def measure(setting: Setting, seconds: float, length: int, way: str) -> dict[str, Any]:
    """One cell."""
    from gpu_stages import device

    packed = Packed(setting, length)
    if setting.backend == "jax":
        from gpu_stages.attention_jax import prepared
    else:
        from gpu_stages.attention_torch import prepared
    forward, both, outputs = prepared(way, packed, setting.miniature)
    enough = setting.pick(0.5, 0.01)
    found, reference = outputs(), packed.reference()
    device.reset_peak_memory()
    values = {"forward_ms": 1e3 * device.median_seconds(forward, enough)}
    if both is not None:
        values["forward_backward_ms"] = 1e3 * device.median_seconds(both, enough)
    return {
        **values,
        "memory_mb": device.peak_memory_mb(),
        "relative_error": float(np.linalg.norm(found - reference) / np.linalg.norm(reference)),
        "rows": packed.B,
        "texts": packed.S,
        "real_share": len(packed.real) / packed.text_ids.size,
    }
