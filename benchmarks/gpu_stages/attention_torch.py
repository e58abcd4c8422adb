"""The ways of `gpu_stages.attention` on PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from gpu_stages.attention import Packed
from gpu_stages.setting import Absent


def prepared(
    way: str, packed: Packed, miniature: bool
) -> tuple[Callable[[], Any], Callable[[], Any] | None, Callable[[], Any]]:
    """Forward; forward and backward, where there is one; and the outputs at real tokens in float32."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if way == "packed, varlen" and device == "cpu":
        raise Absent("PyTorch's attention of variable lengths is on CUDA alone")
    attend, arrays, places = _ways(packed, device, miniature)[way]()
    arrays = torch.as_tensor(arrays, device=device).to(torch.bfloat16)
    # FlexAttention has no backward pass on a CPU.
    has_backward = way != "packed, FlexAttention" or device != "cpu"
    arrays.requires_grad_(has_backward)

    def forward() -> Any:
        with torch.no_grad():
            return attend(*arrays)

    def both() -> Any:
        return torch.autograd.grad(attend(*arrays).float().sum(), arrays)

    def outputs() -> np.ndarray:
        return forward().float().cpu().numpy().reshape(-1, packed.N, packed.H)[places]

    return forward, both if has_backward else None, outputs


def _ways(packed: Packed, device: str, miniature: bool) -> dict[str, Callable[[], tuple[Any, np.ndarray, Any]]]:
    """For each way: the function from query, key and value to outputs, (..., N, H) all, the arrays, and the places."""
    every = slice(None)
    starts = torch.tensor(np.concatenate([[0], np.cumsum(packed.lengths)]), dtype=torch.int32, device=device)
    longest = int(packed.lengths.max())

    def heads_first(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arrays: function(*(array.transpose(1, 2) for array in arrays)).transpose(1, 2)

    def explicit() -> Any:
        mask = torch.as_tensor(packed.mask(), device=device)

        def attend(query: Any, key: Any, value: Any) -> Any:
            scores = (query * packed.H**-0.5 @ key.transpose(-1, -2)).float()
            return scores.masked_fill(~mask, -1e9).softmax(-1).to(value.dtype) @ value

        return heads_first(attend), packed.rows(), packed.real

    def masked() -> Any:
        mask = torch.as_tensor(packed.mask(), device=device)
        return heads_first(lambda *arrays: sdpa(*arrays, attn_mask=mask)), packed.rows(), packed.real

    def padded() -> Any:
        places = torch.arange(packed.L, device=device)
        mask = (places < torch.as_tensor(packed.lengths, device=device)[:, None])[:, None, None]  # (S, 1, 1, L)
        return heads_first(lambda *arrays: sdpa(*arrays, attn_mask=mask)), packed.padded_rows(), packed.padded

    def flex() -> Any:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        ids = torch.as_tensor(packed.text_ids, device=device)

        def same_text(b: Any, h: Any, q: Any, k: Any) -> Any:
            return ids[b, q] == ids[b, k]

        # The mask is that of all layers of a step, so its making is not in the time.
        blocks = create_block_mask(same_text, packed.B, None, packed.T, packed.T, device=device)
        function = flex_attention if miniature else torch.compile(flex_attention)
        return heads_first(lambda *arrays: function(*arrays, block_mask=blocks)), packed.rows(), packed.real

    def nested() -> Any:
        def jagged(array: Any) -> Any:
            return torch.nested.nested_tensor_from_jagged(array, starts.long(), max_seqlen=longest)

        def attend(*arrays: Any) -> Any:
            return heads_first(sdpa)(*map(jagged, arrays)).values()

        return attend, packed.values, every

    def kbert() -> Any:
        from kbert.model.attention_torch import attention, text_bounds, texts_at

        bounds = torch.as_tensor(text_bounds(packed.text_ids), device=device)
        mask = torch.as_tensor(packed.mask(), device=device)

        def attend(query: Any, key: Any, value: Any) -> Any:
            with texts_at(bounds):
                return attention(query, key, value, mask, 0.0, all_read=True)

        return attend, packed.rows(), packed.real

    def varlen() -> Any:
        from torch.nn.attention.varlen import varlen_attn

        return lambda *arrays: varlen_attn(*arrays, starts, starts, longest, longest), packed.values, every

    return {
        "packed, kbert": kbert,
        "explicit softmax": explicit,
        "mask, SDPA": masked,
        "padded, SDPA with mask": padded,
        "packed, FlexAttention": flex,
        "packed, nested tensors": nested,
        "packed, varlen": varlen,
    }
