"""Rows to measure on, and folders of weights of a size: released ones where they are given, else random ones."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages.setting import Setting

# What a row is like, and the most tokens that are read of one.
KINDS = {"sst2": 128, "128": 128, "384": 384, "512": 512}
_TOY_KINDS = {"sst2": 16, "128": 16, "384": 24, "512": 32}
_TOY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
# Syllables of which the words of a made-up vocabulary are built.
_SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


def max_length(kind: str, setting: Setting) -> int:
    """The most tokens that are read of a row."""
    return setting.pick(KINDS, _TOY_KINDS)[kind]


def made_words(n: int) -> list[str]:
    """So many different words."""
    words = ("".join(parts) for size in (2, 3) for parts in itertools.product(_SYLLABLES, repeat=size))
    return list(itertools.islice(words, n))


def config_of(size: str, setting: Setting) -> Any:
    """The architecture of a size; in miniature one of two layers, and for the larger sizes of three."""
    from kbert import BertConfig

    config = BertConfig.from_size(size)
    if setting.miniature:
        layers = {"base": 3, "large": 3}.get(size, 2)
        config = dataclasses.replace(config, **{**_TOY, "num_hidden_layers": layers}, vocab_size=500)
    return config


def weights_folder(size: str, setting: Setting) -> Path:
    """A folder in the Hugging Face layout, with weights and tokenizer; it is written once.

    minilm-l6 is the one that was given, unless in miniature. All others have random weights, which cost as much time as
    released ones, and the vocabulary of minilm-l6, or one of made-up words.
    """
    from kbert import BertEncoder, WordPieceTokenizer

    given = None if setting.miniature else setting.weights
    if size == "minilm-l6" and given is not None:
        return given
    kind = "toy-" if setting.miniature else "" if _has_vocabulary(setting) else "made-up-"
    folder = setting.state / "weights" / f"{kind}{size}"
    if (folder / "complete").exists():
        return folder
    config = config_of(size, setting)
    if given is not None:
        tokenizer = WordPieceTokenizer.from_pretrained(given)
    else:
        words = made_words(setting.pick(20_000, 300))
        tokenizer = WordPieceTokenizer.train([" ".join(words)] * 3, vocab_size=config.vocab_size)
    BertEncoder(config, seed=0).save_pretrained(folder)
    tokenizer.save(folder)
    (folder / "complete").touch()
    return folder


def _has_vocabulary(setting: Setting) -> bool:
    """Whether the folders of weights have a vocabulary for SST-2, as a miniature has for its own."""
    return setting.miniature or setting.weights is not None


def is_released(size: str, setting: Setting) -> bool:
    """Whether the weights of a size are released ones, so that scores mean something."""
    return size == "minilm-l6" and setting.weights is not None and not setting.miniature


def rows(kind: str, n: int, folder: Path, setting: Setting) -> tuple[list[str], list[int]]:
    """So many texts and labels.

    "sst2" is SST-2 where it and a vocabulary for it are there, and else texts of 4 to 30 tokens. The other kinds are
    texts of random words that have exactly 128, 384 or 512 tokens.

    Parameters
    ----------
    kind : {"sst2", "128", "384", "512"}
    n : int
    folder : Path
        Of the weights, whose vocabulary has the words.
    setting : Setting
    """
    rng = np.random.default_rng(0)
    if kind == "sst2" and setting.sst2 is not None and _has_vocabulary(setting):
        from kbert import datasets

        train = datasets.load("sst2", "train")
        chosen = train.iloc[rng.permutation(len(train))[np.arange(n) % len(train)]]
        return chosen.text.tolist(), chosen.label.astype(int).tolist()
    from memory import words_of

    words = np.array(words_of(folder))  # an array once, and not for each row
    longest = max_length(kind, setting)
    lengths = rng.geometric(0.12, n).clip(2, min(28, longest - 2)) if kind == "sst2" else [longest - 2] * n
    return [" ".join(rng.choice(words, length)) for length in lengths], (np.arange(n) % 2).tolist()
