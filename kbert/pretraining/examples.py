"""A few examples, decoded and printed: they show at once whether the text was read as it should be."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

import numpy as np

from kbert.pretraining.instances import Documents, draw_runs
from kbert.text import WordPieceTokenizer
from kbert.values.printable import printable

if TYPE_CHECKING:
    from kbert.pretraining.batches import PretrainingBatch
    from kbert.pretraining.shards import Shards

N_SHOWN = 4
# Instances of a batch that are shown. They are long, and have their targets below.
_N_MASKED = 2
_NO_BREAK = "\u00a0"
# Instances are drawn from so many documents of a shard, with so many tokens at most.
_DOCUMENTS, _LENGTH = 100, 64


def print_pieces(segments: list[str], tokenizer: WordPieceTokenizer) -> None:
    """Print segments as word pieces."""
    print("The first segments, as word pieces:")
    for segment in segments:
        _print(" ".join(tokenizer.encode(segment).tokens[1:-1]))


def print_drawn(shards: Shards) -> None:
    """Print instances of the masked language model, drawn from the first documents of the first shard."""
    whole, tokenizer = shards[0], shards.tokenizer
    some = Documents(whole.tokens, whole.segments, whole.documents[: _DOCUMENTS + 1])
    drawn = draw_runs(some, tokenizer, _LENGTH, 0)
    rows = drawn.take(np.arange(min(N_SHOWN, len(drawn)))).tokens
    print(f"The first instances, drawn with {_LENGTH} tokens at most:")
    for i in range(len(rows)):
        _print(tokenizer.decode(rows.row(i), skip_special_tokens=False))


def print_batch(batch: PretrainingBatch, tokenizer: WordPieceTokenizer, nsp: bool) -> None:
    """Print the first instances of a batch, with the position, the input and the target of each token to predict.

    Letter key: B batch, T length, K texts per row, M masked tokens per row.
    """
    B, T = batch.inputs["token_ids"].shape
    print(f"The first instances of the first batch, {B} rows of {T} tokens:")
    n_texts = batch.inputs["text_ids"].max(axis=1)  # (B,)
    texts = [(i, k) for i in range(B) for k in range(1, n_texts[i] + 1)]
    for row, k in texts[:_N_MASKED]:
        ids, of_text = batch.inputs["token_ids"][row], batch.inputs["text_ids"][row] == k  # (T,)
        positions, targets = batch.inputs["masked_positions"][row], batch.targets["mlm"][row]  # (M,)
        filled = (batch.weights["mlm"][row] > 0) & of_text[positions]
        # The k-th text of a row, counted from 1, has its label in slot k - 1.
        label = _relation(batch.targets["nsp"][row, k - 1]) if nsp else ""
        _print(tokenizer.decode(ids[of_text], skip_special_tokens=False), label)
        wanted = (
            _unbroken(f"{position} {tokenizer.id_to_token(ids[position])} -> {tokenizer.id_to_token(target)}")
            for position, target in sorted(zip(positions[filled], targets[filled], strict=True))
        )
        _print(f"to predict: {', '.join(wanted)}", indent=4)


def _relation(is_random: int) -> str:
    return "is random" if is_random else "is next"


def _print(text: str, label: str = "", indent: int = 2) -> None:
    width = min(shutil.get_terminal_size().columns, 120)
    text += _unbroken(f"   <- {label}") if label else ""
    lines = textwrap.fill(printable(text), width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))
    print(lines.replace(_NO_BREAK, " "))


def _unbroken(text: str) -> str:
    """A text that is not broken into lines. No other text has such spaces: the tokenizer replaces them."""
    return text.replace(" ", _NO_BREAK)
