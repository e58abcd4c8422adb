"""Filling in masks: what a masked language model expects where a text has [MASK]."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbert.data.batches import PADDING_ID
from kbert.data.frames import data_frame
from kbert.model import BertForPreTraining
from kbert.model.base import to_numpy
from kbert.text import WordPieceTokenizer
from kbert.training.backends import backend_step
from kbert.training.finite_outputs import require_finite
from kbert.values.number_rules import whole_number
from kbert.values.surrogates import require_no_surrogates


def fill_mask(model: BertForPreTraining, tokenizer: WordPieceTokenizer, text: str, top_k: int = 5) -> Any:
    """The most probable tokens for each mask of a text.

    Parameters
    ----------
    model : BertForPreTraining
    tokenizer : WordPieceTokenizer
        Of the same vocabulary.
    text : str
        With one or more masks, written as the tokenizer's own mask token, such as "[MASK]". Every mask stands for one
        token. Here alone is that name no ordinary text; the other special tokens are, as everywhere.
    top_k : int, default=5
        How many tokens for each mask.

    Returns
    -------
    DataFrame
        ``token``, ``score`` (its probability) and ``position`` (that of the mask among the text's tokens, [CLS]
        included): for each mask, in the order of the text, ``top_k`` rows, the most probable token first.

    Raises
    ------
    ValueError
        If there is no mask in the text or in the vocabulary, the text is too long for the model or holds a lone
        surrogate, or ``top_k`` is not a whole number of at least 1.
    TypeError
        If the text is not a str.
    DivergedError
        If the model's outputs are not finite.
    """
    top_k = whole_number(top_k, "top_k")
    token_ids = np.array(_token_ids(tokenizer, text), "int32")
    most = model.config.max_position_embeddings
    if len(token_ids) > most:
        raise ValueError(
            f"The text has {len(token_ids)} tokens, special ones included, and the model takes {most} at most. Shorten "
            "it around its masks."
        )
    positions = np.flatnonzero(token_ids == tokenizer.mask_id)
    inputs = _inputs(token_ids, positions, most)
    outputs = backend_step().predictor(model)({tensor.name: inputs[tensor.name] for tensor in model.inputs})
    logits = to_numpy(outputs["mlm_logits"])[0, : len(positions)].astype("float64")
    require_finite(np.array([np.isfinite(logits).all()]))
    probabilities = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    # A model's table may have more rows than the vocabulary has tokens.
    named = np.array([i for i in tokenizer.vocab.values() if i < probabilities.shape[1]])
    best = named[np.argsort(-probabilities[:, named], axis=-1, kind="stable")[:, :top_k]]
    return data_frame(
        {
            "token": [tokenizer.id_to_token(i) for i in best.ravel()],
            "score": np.take_along_axis(probabilities, best, axis=-1).ravel(),
            "position": np.repeat(positions, best.shape[1]),
        }
    )


def _token_ids(tokenizer: WordPieceTokenizer, text: str) -> list[int]:
    """The tokens of a text with masks, special ones included."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}. For many texts call fill_mask for each.")
    require_no_surrogates(text, "text")
    if tokenizer.mask_id is None:
        raise ValueError(
            "The tokenizer's vocabulary has no mask token, so that its model was not trained to fill in masks. Take "
            "the weights of a masked language model."
        )
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    # The tokenizer itself finds no special token in a text: it gets what stands between the masks.
    pieces = text.split(mask)
    if len(pieces) == 1:
        raise ValueError(f"There is no {mask} in the text {text!r:.80}. Put one where a word is to be filled in.")
    rows = tokenizer.tokenize_column(pieces)
    token_ids = [tokenizer.cls_id, *rows.row(0)]
    for i in range(1, len(rows)):
        token_ids += [tokenizer.mask_id, *rows.row(i)]
    return [*token_ids, tokenizer.sep_id]


def _inputs(token_ids: np.ndarray, positions: np.ndarray, most: int) -> dict[str, np.ndarray]:
    """The model's inputs for one text, in one of a few shapes, since each is compiled."""
    length = min(max(32, _power_of_two(len(token_ids))), most)
    slots = _power_of_two(len(positions))
    real = np.arange(length) < len(token_ids)
    row = {
        "token_ids": np.full(length, PADDING_ID),
        "segment_ids": np.zeros(length),
        "position_ids": np.arange(length),
        "text_ids": real,
        "first_positions": np.zeros(1),
        "masked_positions": np.zeros(slots),
    }
    row["token_ids"][real] = token_ids
    row["masked_positions"][: len(positions)] = positions
    return {name: values[None].astype("int32") for name, values in row.items()}


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
