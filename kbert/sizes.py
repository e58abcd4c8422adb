"""The named sizes: the architecture of each, its released weights, and its fine-tuning rate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from kbert.errors import UnknownSizeError


class NamedSize(NamedTuple):
    """What is known of a named size.

    Attributes
    ----------
    architecture : mapping of str to int
        The values in which it differs from BERT-base, uncased, under the keys of `kbert.config.BertConfig`.
        ``BertConfig.from_size`` gives the whole config.
    hub_name : str
        The released weights on the Hugging Face hub.
    learning_rate : float
        Peak rate of fine-tuning.
    licence : str
        Of the released weights, as their page on the hub gives it.
    """

    architecture: Mapping[str, int]
    hub_name: str
    learning_rate: float
    licence: str = "apache-2.0"


def _google(layers: int, hidden: int, learning_rate: float) -> NamedSize:
    """One of Google's smaller models: heads of size 64, feed-forward of 4 x hidden (Turc et al., 2019)."""
    heads = hidden // 64
    architecture = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    return NamedSize(architecture, f"google/bert_uncased_L-{layers}_H-{hidden}_A-{heads}", learning_rate)


_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_CASED = {"vocab_size": 28996}
# MiniLM has 12 heads of size 32, where Google's models of this width have 6 of size 64.
_MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}

SIZES: dict[str, NamedSize] = {
    "tiny": _google(2, 128, 1e-4),
    "mini": _google(4, 256, 1e-4),
    "small": _google(4, 512, 5e-5),
    "medium": _google(8, 512, 5e-5),
    "base": NamedSize({}, "google-bert/bert-base-uncased", 3e-5),
    "large": NamedSize(_LARGE, "google-bert/bert-large-uncased", 2e-5),
    "base-cased": NamedSize(_CASED, "google-bert/bert-base-cased", 3e-5),
    "large-cased": NamedSize(_LARGE | _CASED, "google-bert/bert-large-cased", 2e-5),
    "minilm-l6": NamedSize(_MINILM, "sentence-transformers/all-MiniLM-L6-v2", 5e-5),
}


# Models that are often meant beside BERT, by what is in their names.
_OTHERS = ("distilbert", "roberta", "deberta", "albert", "electra", "modernbert", "xlnet", "mpnet", "gpt", "t5-")
_NAMES_WITHOUT_OWNER = [known.hub_name.partition("/")[2].lower() for known in SIZES.values()]


def is_of_another_model(name: str) -> bool:
    """Whether a name, whose owner and folders do not count, is that of another model than BERT."""
    return re.search(rf"(^|[-_])({'|'.join(_OTHERS)})", name.lower().rpartition("/")[2]) is not None


def find_size(name: str) -> NamedSize | None:
    """The size of that name, or with weights of that name on the hub, as `named_size`; None if there is none."""
    for size, known in SIZES.items():
        if name == size or name.lower() in (known.hub_name.lower(), known.hub_name.partition("/")[2].lower()):
            return known
    return None


def named_size(size: str) -> NamedSize:
    """Look up a named size, such as "tiny" or "base", or the hub name of its weights.

    "google-bert/bert-base-uncased" and "bert-base-uncased", its older name, are "base", for instance.

    Raises
    ------
    UnknownSizeError
        If there is no such size. The message suggests the nearest names.
    """
    if (found := find_size(size)) is not None:
        return found
    if is_of_another_model(size):
        raise UnknownSizeError(
            f"{size!r} is no BERT, and kbert reads no other models. The sizes are {', '.join(SIZES)}; weights= takes a "
            "folder or a hub name of a BERT."
        )
    if size.lower().startswith(("bert-", "bert_")):  # as on the hubs, where most have the language in their names
        near = get_close_matches(size.lower().replace("_", "-"), _NAMES_WITHOUT_OWNER, n=1, cutoff=0.9)
    else:
        near = get_close_matches(size.lower(), SIZES, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near and "/" not in size else ""
    raise UnknownSizeError(
        f"Unknown size {size!r}.{hint} The sizes are {', '.join(SIZES)}; for a folder or a hub name write "
        f"weights={size!r}; for an architecture of your own pass a BertConfig."
    )
