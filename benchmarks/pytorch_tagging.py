"""Tags of words with plain PyTorch and transformers: BertForTokenClassification, each word's tag at its first piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from pytorch_loop import DEVICE, prepared, train

from kbert.hub import resolve_folder

# What cross-entropy passes over.
_NO_TARGET = -100


def fit(run: dict[str, Any], words: pd.Series, tags: pd.Series) -> Callable[[pd.Series], list[list[str]]]:
    """Fine-tune; a function from rows of words to their tags. Words beyond ``max_length`` get the most frequent tag."""
    folder = resolve_folder(run["size"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    classes, counts = np.unique(np.concatenate(tags.tolist()), return_counts=True)
    numbers = {tag: number for number, tag in enumerate(classes)}
    torch.manual_seed(run["seed"])
    model = prepared(transformers.BertForTokenClassification.from_pretrained(folder, num_labels=len(classes)))

    def encode(rows: list[list[str]]) -> tuple[Any, list[list[tuple[int, int]]]]:
        """Padded inputs, and for each row the word and the place of each word's first piece."""
        options = {"truncation": True, "max_length": run["max_length"], "padding": True, "return_tensors": "pt"}
        encoded = tokenizer([list(row) for row in rows], is_split_into_words=True, **options)
        firsts = []
        for i in range(len(rows)):
            of_words = encoded.word_ids(i)
            firsts.append([(word, of_words.index(word)) for word in dict.fromkeys(of_words) if word is not None])
        return encoded.to(DEVICE), firsts

    all_words, all_tags = words.tolist(), tags.tolist()

    def loss(rows: np.ndarray) -> torch.Tensor:
        encoded, firsts = encode([all_words[row] for row in rows])
        targets = torch.full_like(encoded["input_ids"], _NO_TARGET)
        for i, (row, places) in enumerate(zip(rows, firsts, strict=True)):
            for word, place in places:
                targets[i, place] = numbers[all_tags[row][word]]
        return model(**encoded, labels=targets).loss

    lengths = np.array(
        [len(ids) for ids in tokenizer([list(row) for row in all_words], is_split_into_words=True).input_ids]
    )
    train(model, lengths, run, loss)

    def predict(rows: pd.Series) -> list[list[str]]:
        rows, found = rows.tolist(), []
        for start in range(0, len(rows), 64):
            some = rows[start : start + 64]
            encoded, firsts = encode(some)
            with torch.no_grad():
                best = model(**encoded).logits.argmax(-1).cpu().numpy()
            for i, row in enumerate(some):
                of_row = np.full(len(row), classes[counts.argmax()], dtype=object)
                for word, place in firsts[i]:
                    of_row[word] = classes[best[i, place]]
                found.append(of_row.tolist())
        return found

    return predict
