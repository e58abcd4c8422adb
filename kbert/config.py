"""The architecture of a BERT: ``BertConfig``."""

from __future__ import annotations

import numbers
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from kbert.config_json import read_config_json
from kbert.errors import WeightsMismatchError
from kbert.sizes import named_size
from kbert.values.number_rules import whole_number

# The forms of GELU, and what PyTorch's `gelu` calls their approximation: "gelu" is exact (erf). They differ by up to
# 4.7e-4.
GELU = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
ACTIVATIONS = (*GELU, "relu")
# What a head for whole texts reads: the pooler's vector of [CLS], or the mean over the tokens.
CLASSIFIER_POOLINGS = ("cls", "mean")
# The keys whose values are whole numbers of at least 1.
_COUNTS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size"),
)
# The keys that a config.json must have.
_SHAPE_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclass(frozen=True)
class BertConfig:
    """The architecture of a BERT, under the keys of ``config.json`` and ``bert_config.json``.

    The defaults are those of BERT-base, uncased (Devlin et al., 2018, section 3).

    Parameters
    ----------
    vocab_size : int
        Rows of the word embedding table.
    hidden_size : int
        Width D of the embeddings and of every layer.
    num_hidden_layers : int
        Transformer layers.
    num_attention_heads : int
        Attention heads N. Must divide ``hidden_size``.
    intermediate_size : int
        Width of the feed-forward layer.
    hidden_act : {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu"}
        Feed-forward activation. "gelu" is the exact (erf) form, the next two its tanh approximation.
    hidden_dropout_prob, attention_probs_dropout_prob : float
        Dropout rates in [0, 1).
    classifier_dropout : float or None
        Dropout on the vector that goes into a head; None means ``hidden_dropout_prob``.
    classifier_pooling : {"cls", "mean"}
        The vector of a text that a head for whole texts reads: the pooler's of its first token, [CLS], as in the paper,
        or the mean of the vectors of its tokens, special ones included. transformers has this key for ModernBERT, and
        its BERT knows "cls" alone.
    max_position_embeddings : int
        Longest sequence, in tokens.
    type_vocab_size : int
        Number of segment ids.
    initializer_range : float
        Standard deviation of the truncated normal that new weights are drawn from.
    layer_norm_eps : float
        Epsilon of LayerNorm.
    num_trained_positions : int or None
        Positions that pre-training from a random start has reached: those of the longest text that it has read. The
        others are random. None: not known, as in weights that kbert has not trained, and all are taken for trained.

    Examples
    --------
    >>> from kbert import BertConfig
    >>> BertConfig.from_size("tiny").hidden_size
    128
    >>> BertConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024).head_size
    64
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    classifier_pooling: str = "cls"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    num_trained_positions: int | None = None

    def __post_init__(self) -> None:
        for name in _COUNTS:
            # A NumPy number could not be written as JSON.
            object.__setattr__(self, name, whole_number(getattr(self, name), f"BertConfig: {name}"))
        if self.num_trained_positions is not None:
            n_trained = whole_number(self.num_trained_positions, "BertConfig: num_trained_positions", least=0)
            if n_trained > self.max_position_embeddings:
                raise ValueError(
                    f"BertConfig: num_trained_positions ({n_trained}) must be at most max_position_embeddings "
                    f"({self.max_position_embeddings})."
                )
            object.__setattr__(self, "num_trained_positions", n_trained)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"BertConfig: hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads "
                f"({self.num_attention_heads})."
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is None and name == "classifier_dropout":
                continue
            if not isinstance(value, numbers.Real) or not 0 <= float(value) < 1:
                raise ValueError(f"BertConfig: {name} must lie in [0, 1), got {value!r}.")
            object.__setattr__(self, name, float(value))
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not 0 <= float(value) < float("inf"):
                raise ValueError(f"BertConfig: {name} must be a number of at least 0, got {value!r}.")
            object.__setattr__(self, name, float(value))
        if self.classifier_pooling not in CLASSIFIER_POOLINGS:
            raise ValueError(
                f"BertConfig: classifier_pooling must be one of {', '.join(CLASSIFIER_POOLINGS)}, got "
                f"{self.classifier_pooling!r}."
            )
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"BertConfig: hidden_act must be one of {', '.join(ACTIVATIONS)}, got {self.hidden_act!r}."
            )

    @property
    def head_size(self) -> int:
        """Width H of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def trained_positions(self) -> int:
        """Positions that can be taken for trained."""
        return self.num_trained_positions or self.max_position_embeddings

    @property
    def head_dropout(self) -> float:
        """Dropout on the vector that goes into a head."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @classmethod
    def from_size(cls, size: str) -> BertConfig:
        """Return the architecture of a named size, such as "tiny" or "base".

        Raises
        ------
        UnknownSizeError
            If there is no such size.
        """
        return cls(**dict[str, Any](named_size(size).architecture))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BertConfig:
        """Make a config from the keys of a ``config.json``; keys that do not describe the architecture are ignored.

        Raises
        ------
        WeightsMismatchError
            If a key of the architecture is missing, or if the values describe a model other than the paper's BERT.
        """
        # Old files have only architectures, or neither key.
        kind = values.get("model_type") or _other_family(values.get("architectures"))
        if kind not in (None, "bert"):
            raise WeightsMismatchError(f"config.json describes a model of type {kind!r}; kbert reads BERT models only.")
        position = values.get("position_embedding_type") or "absolute"
        if position != "absolute":
            raise WeightsMismatchError(
                f"position_embedding_type {position!r} is not BERT's; only 'absolute' is supported."
            )
        if values.get("is_decoder") or values.get("add_cross_attention"):
            raise WeightsMismatchError(
                "config.json describes a decoder (is_decoder or add_cross_attention); BERT is an encoder."
            )
        known = {key: values[key] for key in _KEYS if key in values}
        missing = [key for key in _SHAPE_KEYS if key not in known]
        if missing:
            raise WeightsMismatchError(
                f"config.json lacks {', '.join(missing)}, without which the architecture is unknown."
            )
        try:
            return cls(**known)
        except (TypeError, ValueError) as error:
            raise WeightsMismatchError(f"config.json is not usable: {error}") from None

    @classmethod
    def from_folder(cls, folder: str | Path) -> BertConfig:
        """Read the config of a weights folder, in Hugging Face's, Google's or KerasHub's format.

        Raises
        ------
        WeightsNotFoundError
            If the folder has neither a config.json nor a bert_config.json.
        WeightsMismatchError
            If the file is damaged or describes another model.
        """
        return cls.from_dict(read_config_json(folder))

    def to_dict(self) -> dict[str, Any]:
        """Return the values under the keys of ``config.json``."""
        values = asdict(self)
        if self.num_trained_positions is None:  # a key of kbert's own, which other programs need not see
            del values["num_trained_positions"]
        return values

    def with_dropout(self, rate: float | None) -> BertConfig:
        """Return a copy with one dropout rate for hidden states, attention and classifier; None changes nothing."""
        if rate is None:
            return self
        return replace(self, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate, classifier_dropout=rate)


_KEYS = tuple(field.name for field in fields(BertConfig))


def _other_family(architectures: Any) -> str | None:
    """Return the first of the ``architectures`` of a config.json, if none of them is a BERT."""
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    return None if not names or any(name.startswith("Bert") for name in names) else names[0]
