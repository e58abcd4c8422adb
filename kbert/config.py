"""The architecture of a BERT: ``BertConfig`` and the named sizes."""

import json
import numbers
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from kbert.errors import UnknownSizeError, WeightsMismatchError, WeightsNotFoundError

# "gelu" is the exact (erf) form, the other two the tanh form; they differ by up to 4.7e-4.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")


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
    max_position_embeddings : int
        Longest sequence, in tokens.
    type_vocab_size : int
        Number of segment ids.
    initializer_range : float
        Standard deviation of the truncated normal that new weights are drawn from.
    layer_norm_eps : float
        Epsilon of LayerNorm.
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
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12

    def __post_init__(self):
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"BertConfig: {name} must be a whole number of at least 1, got {value!r}.")
            object.__setattr__(self, name, int(value))  # a NumPy number could not be written as JSON
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"BertConfig: hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads "
                f"({self.num_attention_heads})."
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is None and name == "classifier_dropout":
                continue
            if not isinstance(value, numbers.Real) or not 0 <= value < 1:
                raise ValueError(f"BertConfig: {name} must lie in [0, 1), got {value!r}.")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not 0 <= value < float("inf"):
                raise ValueError(f"BertConfig: {name} must be a number of at least 0, got {value!r}.")
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"BertConfig: hidden_act must be one of {', '.join(ACTIVATIONS)}, got {self.hidden_act!r}."
            )

    @property
    def head_size(self) -> int:
        """Width H of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def head_dropout(self) -> float:
        """Dropout on the vector that goes into a head."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @classmethod
    def from_size(cls, size: str) -> "BertConfig":
        """The architecture of a named size, such as "tiny" or "base"."""
        return named_size(size).config

    @classmethod
    def from_dict(cls, values: dict) -> "BertConfig":
        """A config from the keys of a ``config.json``; keys that describe something else are passed over.

        Raises
        ------
        WeightsMismatchError
            If the values describe a model that is not the BERT of the paper.
        """
        # Old files name the architecture alone, or neither.
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
    def from_folder(cls, folder: str | Path) -> "BertConfig":
        """The config of a weights folder."""
        return cls.from_dict(read_config_json(folder))

    def to_dict(self) -> dict:
        """The values under the keys of ``config.json``."""
        return asdict(self)

    def with_dropout(self, rate: float | None) -> "BertConfig":
        """A copy with one dropout rate for hidden states, attention and classifier; None changes nothing."""
        if rate is None:
            return self
        rate = float(rate)  # a NumPy number could not be written as JSON
        return replace(self, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate, classifier_dropout=rate)


_KEYS = tuple(field.name for field in fields(BertConfig))
_COUNTS = tuple(field.name for field in fields(BertConfig) if field.type is int)
_SHAPE_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


def _other_family(architectures) -> str | None:
    """The first of the ``architectures`` of a config.json, if none of them is a BERT."""
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    return None if not names or any(name.startswith("Bert") for name in names) else names[0]


def output_names(values: dict, n_outputs: int) -> list | None:
    """What ``id2label`` among the keys of a config.json calls the outputs of a head, in their order.

    None if there are no names, or not one for each output.
    """
    names, numbers = values.get("id2label"), [str(i) for i in range(n_outputs)]
    if not isinstance(names, dict) or sorted(names) != sorted(numbers):
        return None
    return [names[number] for number in numbers]


def read_config_json(folder: str | Path) -> dict:
    """All keys of a folder's ``config.json``, those that are not the architecture's included.

    Google's own folders have a ``bert_config.json`` in its place. That of a KerasHub preset is put into the words of a
    Hugging Face folder.
    """
    paths = [Path(folder) / name for name in ("config.json", "bert_config.json")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise WeightsNotFoundError(
            f"There is no config.json in {folder}. A weights folder holds config.json, model.safetensors and "
            "tokenizer.json or vocab.txt; did you mean one of its subfolders?"
        )
    from kbert.presets import config_of_preset, is_preset

    values = json_object(path, WeightsMismatchError, " Copy or download the folder again.")
    return config_of_preset(values, path.parent) if is_preset(values) else values


# Of a JSON file of a model: parsed, it may take fifty times as much memory.
MOST_BYTES = 4_000_000


def json_object(
    path: Path,
    mismatch: type[ValueError] = ValueError,
    remedy: str = "",
    object_pairs_hook: Callable[[list[tuple]], dict] | None = None,
    most_bytes: int = MOST_BYTES,
) -> dict:
    """The object in a JSON file, as `json.loads` reads it; or an error of the kind ``mismatch``, with a remedy.

    A file of more than ``most_bytes`` is not parsed.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        size = path.stat().st_size
        raise mismatch(f"{path} has {size:,} bytes, and at most {most_bytes:,} can belong to a model.{remedy}")
    return parsed_object(content, path, mismatch, remedy, object_pairs_hook)


def parsed_object(
    content: bytes,
    place: str | Path,
    mismatch: type[ValueError] = ValueError,
    remedy: str = "",
    object_pairs_hook: Callable[[list[tuple]], dict] | None = None,
) -> dict:
    """The object in the content of a JSON file, as `json_object` gives it; ``place`` is what errors call the file."""
    try:
        values = json.loads(content.decode("utf-8"), object_pairs_hook=object_pairs_hook)
    except RecursionError:
        raise mismatch(f"{place} is nested too deeply to belong to a model.{remedy}") from None
    except ValueError as error:
        raise mismatch(f"{place} is not valid JSON ({error}).{remedy}") from None
    if not isinstance(values, dict):
        raise mismatch(f"{place} does not hold a JSON object.{remedy}")
    return values


def unique_keys(pairs: list[tuple]) -> dict:
    """An object of a JSON file, for ``object_pairs_hook``: two values under one key are an error, not the last one."""
    values: dict = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r} occurs twice")
        values[key] = value
    return values


class NamedSize(NamedTuple):
    """A size that has a name: its architecture, where its released weights are, and a good learning rate."""

    config: BertConfig
    hub_name: str
    learning_rate: float


def _google(layers: int, hidden: int, learning_rate: float) -> NamedSize:
    """One of Google's smaller models: heads of 64, feed-forward of 4 x hidden (Turc et al., 2019)."""
    config = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64, intermediate_size=4 * hidden
    )
    return NamedSize(config, f"google/bert_uncased_L-{layers}_H-{hidden}_A-{hidden // 64}", learning_rate)


_BASE = BertConfig()
_LARGE = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
_CASED_VOCAB = 28996
# MiniLM breaks heads = hidden / 64: it has 12 heads of 32.
_MINILM = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)

SIZES: dict[str, NamedSize] = {
    "tiny": _google(2, 128, 1e-4),
    "mini": _google(4, 256, 1e-4),
    "small": _google(4, 512, 5e-5),
    "medium": _google(8, 512, 5e-5),
    "base": NamedSize(_BASE, "google-bert/bert-base-uncased", 3e-5),
    "large": NamedSize(_LARGE, "google-bert/bert-large-uncased", 2e-5),
    "base-cased": NamedSize(replace(_BASE, vocab_size=_CASED_VOCAB), "google-bert/bert-base-cased", 3e-5),
    "large-cased": NamedSize(replace(_LARGE, vocab_size=_CASED_VOCAB), "google-bert/bert-large-cased", 2e-5),
    "minilm-l6": NamedSize(_MINILM, "sentence-transformers/all-MiniLM-L6-v2", 5e-5),
}


def named_size(size: str) -> NamedSize:
    """What is known of a named size.

    Raises
    ------
    UnknownSizeError
        With the nearest names.
    """
    if size in SIZES:
        return SIZES[size]
    near = get_close_matches(str(size).lower(), SIZES, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise UnknownSizeError(
        f"Unknown size {size!r}.{hint} The sizes are {', '.join(SIZES)}; for a folder or a hub name use weights=..., "
        "for an architecture of your own pass a BertConfig."
    )


def default_learning_rate(config: BertConfig) -> float:
    """The fine-tuning rate of the nearest named size: wide models want a small one."""
    if config.hidden_size >= 1024:
        return SIZES["large"].learning_rate
    if config.hidden_size >= 768:
        return SIZES["base"].learning_rate
    if config.hidden_size >= 384:
        return SIZES["small"].learning_rate
    return SIZES["tiny"].learning_rate


# By the greatest width of a model (github.com/google-research/bert, "Pre-training tips and caveats"; wider ones 1e-4).
_PRETRAINING_RATES = ((256, 1e-3), (512, 5e-4))


def default_pretraining_rate(config: BertConfig, continued: bool = False) -> float:
    """The peak rate of pre-training, from scratch or (``continued``) on from weights."""
    if continued:
        return 2e-5
    return next((rate for width, rate in _PRETRAINING_RATES if config.hidden_size <= width), 1e-4)
