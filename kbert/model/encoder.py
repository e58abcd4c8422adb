"""The encoder as a functional Keras model."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import keras
import numpy as np

from kbert.config import BertConfig
from kbert.model.layers import BertEmbeddings, FirstTokens, Pooler, SameText, TransformerLayer

INPUT_NAMES = ("token_ids", "segment_ids", "position_ids", "text_ids")

# Seeds that one layer's weights and dropouts may use up; each layer starts its own range.
_SEEDS_PER_LAYER = 16

_skip_initialisation: ContextVar[bool] = ContextVar("skip_initialisation", default=False)


@contextmanager
def skip_initialisation(skip: bool = True) -> Iterator[None]:
    """Encoders that are made in here start at zeros, but for the pooler: their weights are assigned afterwards.

    With ``skip=False`` they start at random, as anywhere else. Drawing the random start of minilm-l6 takes about a
    second, and for a while twice the memory.
    """
    token = _skip_initialisation.set(skip)
    try:
        yield
    finally:
        _skip_initialisation.reset(token)


@keras.saving.register_keras_serializable("kbert")
class BertEncoder(keras.Model):
    """BERT without a head: a functional Keras model from token ids to vectors.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    dtype : str or keras.DTypePolicy, optional
        Such as "float32", "mixed_bfloat16" or "bfloat16"; None takes Keras's global policy.
    name : str, optional
    seed : int, default=0
        Seed of the random start and of the dropout streams.

    Notes
    -----
    The input is a dict of exactly four int32 arrays of shape (B, T): ``token_ids``, ``segment_ids`` (0 for the first
    text of a pair, 1 for the second), ``position_ids`` (from 0 in each text), and ``text_ids``: 0 on padding and k on
    the k-th text of a row. A token sees the tokens whose text id is its own, so that one row may hold several short
    texts; a plain 0/1 attention mask is a valid ``text_ids``. `WordPieceTokenizer` makes this dict.

    The output is a dict: ``sequence_output`` (B, T, D) and ``pooled_output`` (B, D), the pooler's vector of position 0.

    Examples
    --------
    >>> from kbert import BertConfig, BertEncoder
    >>> encoder = BertEncoder(BertConfig.from_size("tiny"))
    >>> encoder.count_params()
    4385920
    """

    def __init__(self, config: BertConfig, dtype=None, name: str | None = None, seed: int = 0):
        policy = keras.dtype_policies.get(dtype) if dtype is not None else keras.config.dtype_policy()

        # === Layers ===
        seeds = range(seed, seed + _SEEDS_PER_LAYER * (config.num_hidden_layers + 2), _SEEDS_PER_LAYER)
        start = dataclasses.replace(config, initializer_range=0.0) if _skip_initialisation.get() else config
        embeddings = BertEmbeddings(start, seeds[0], dtype=policy, name="embeddings")
        transformer_layers = [
            TransformerLayer(start, seeds[i + 1], dtype=policy, name=f"layer_{i}")
            for i in range(config.num_hidden_layers)
        ]
        pooler = Pooler(config, seeds[-1], dtype=policy, name="pooler")

        # === Functional model ===
        inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in INPUT_NAMES}
        x = embeddings(inputs["token_ids"], inputs["position_ids"], inputs["segment_ids"])
        mask = SameText(name="same_text")(inputs["text_ids"])
        for layer in transformer_layers:
            x = layer(x, mask)
        pooled = pooler(x[:, 0])
        super().__init__(inputs=inputs, outputs={"sequence_output": x, "pooled_output": pooled}, name=name)

        # === Config ===
        self.config = config
        self.seed = seed
        self.last_seed = seeds[-1]
        # A functional model would take the global policy for its own.
        self.dtype_policy = policy
        self.embeddings = embeddings
        self.transformer_layers = transformer_layers
        self.pooler = pooler

    def call(self, inputs, training=None, mask=None):
        check_inputs(inputs, INPUT_NAMES, self.config)
        return super().call(inputs, training=training, mask=mask)

    def get_config(self):
        return {
            "config": self.config.to_dict(),
            # Not Keras's serialize, which imports TensorFlow wherever that is installed, under any backend.
            "dtype": self.dtype_policy.name,
            "name": self.name,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": BertConfig(**config["config"])})

    @classmethod
    def from_pretrained(
        cls, name_or_folder: str | Path, *, dtype=None, revision: str | None = None, seed: int = 0
    ) -> "BertEncoder":
        """The encoder of a weights folder, a size or a hub name.

        Parameters
        ----------
        name_or_folder : str or Path
            A folder in the Hugging Face layout, or one of google-research/bert with its TensorFlow checkpoint; a size
            such as "base"; or a hub name.
        dtype : str or keras.DTypePolicy, optional
        revision : str, optional
            A branch, tag or commit of a hub repository.
        seed : int, default=0
            Of the weights that the checkpoint lacks (a pooler, at most) and of the dropout streams.

        Raises
        ------
        WeightsNotFoundError, WeightsMismatchError
            When nothing usable is found under that name.

        Warns
        -----
        NewWeightsWarning
            When the checkpoint has no pooler, which then starts at random.
        """
        from kbert.weights import load_encoder

        return load_encoder(name_or_folder, dtype=dtype, revision=revision, seed=seed)

    def save_pretrained(self, folder: str | Path, dtype: str = "float32") -> None:
        """Write config.json and model.safetensors, which `transformers.BertModel` opens.

        Parameters
        ----------
        folder : str or Path
        dtype : {"float32", "float16", "bfloat16"}
            Of the numbers in the file. In half the bytes, each is rounded to about 3 digits (float16) or 2 (bfloat16).

        Raises
        ------
        ValueError
            When ``dtype`` is another, or too narrow for the weights.
        """
        from kbert.weights import save_encoder

        save_encoder(self, folder, dtype)


def check_inputs(inputs, names, config: BertConfig) -> None:
    """Refuse a dict with a missing or an extra key: Keras would hand the arrays on in the wrong order.

    NumPy arrays are checked for their range too, since a lookup beyond a table is silent on an accelerator.
    """
    if not isinstance(inputs, dict):
        raise TypeError(f"The input must be a dict with the keys {', '.join(names)}, got {type(inputs).__name__}.")
    missing, extra = sorted(set(names) - set(inputs)), sorted(set(inputs) - set(names))
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [
            f"has the unknown {', '.join(map(str, extra))}"
        ] * bool(extra)
        raise ValueError(
            f"The input dict {' and '.join(parts)}. Its keys must be exactly {', '.join(names)}, "
            "as WordPieceTokenizer(texts) makes them."
        )
    for key, limit in (
        ("token_ids", config.vocab_size),
        ("segment_ids", config.type_vocab_size),
        ("position_ids", config.max_position_embeddings),
    ):
        ids = inputs[key]
        if isinstance(ids, np.ndarray) and ids.size and not 0 <= ids.min() <= ids.max() < limit:
            raise ValueError(f"{key} must lie in [0, {limit}), got values from {ids.min()} to {ids.max()}.")


def first_token_vectors(encoder: BertEncoder, sequence_output, first_positions):
    """The pooler's vectors of the texts that start at ``first_positions`` (B, K), of shape (B, K, D)."""
    return encoder.pooler(FirstTokens(name="first_tokens")(sequence_output, first_positions))
