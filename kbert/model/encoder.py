"""The encoder as a functional Keras model."""

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from kbert.config import BertConfig
from kbert.model.base import DType, FunctionalBert, Tensor, token_inputs
from kbert.model.layers import (
    BertEmbeddings,
    FirstTokens,
    Pooler,
    SameText,
    TransformerLayer,
    attention_mask,
    has_hooks,
    outer,
    through,
)
from kbert.model.names import INPUT_NAMES, LARGEST_SEED
from kbert.model.setup import keras, ops
from kbert.values.number_rules import is_whole

# Each layer has as many seeds of its own, for its weights and dropouts.
_SEEDS_PER_LAYER = 16

_skip_initialisation: ContextVar[bool] = ContextVar("skip_initialisation", default=False)


@contextmanager
def skip_initialisation(skip: bool = True) -> Iterator[None]:
    """Within this context, encoders start with weights of zero, except for the pooler's.

    It saves time and memory if weights are assigned afterwards: to draw the random weights of minilm-l6 takes about a
    second, and twice the model's memory for a moment.

    Parameters
    ----------
    skip : bool, default=True
        False does nothing: encoders start at random.
    """
    token = _skip_initialisation.set(skip)
    try:
        yield
    finally:
        _skip_initialisation.reset(token)


def _policy(dtype: DType) -> keras.DTypePolicy:
    """The policy of all layers of an encoder: one, because inner layers compute in the precision of the outer one."""
    policy = keras.dtype_policies.get(dtype) if dtype is not None else keras.config.dtype_policy()
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap) and len(policy):
        raise ValueError(
            f"dtype is a DTypePolicyMap with policies of its own for {', '.join(policy)}, and an encoder computes in "
            "one precision. Give that one, such as dtype='mixed_bfloat16'."
        )
    return policy


def _seed(seed: int | None) -> int:
    """The seed, or one that is drawn as Keras draws those of its layers."""
    if seed is None:
        return random.randint(1, 10**9)
    if not is_whole(seed, 0) or seed > LARGEST_SEED:
        raise ValueError(f"seed must be None or a whole number from 0 to {LARGEST_SEED}, got {seed!r}.")
    return int(seed)


@keras.saving.register_keras_serializable("kbert")
class BertEncoder(FunctionalBert):
    """BERT without a head: a functional Keras model from token ids to vectors.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    dtype : str or keras.DTypePolicy, optional
        Precision of weights and computation: "float32", "mixed_bfloat16" or "bfloat16", for instance. None is Keras's
        global policy, which is float32 unless it was set. "mixed_bfloat16" trains faster on GPUs and TPUs.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights and of dropout. None draws one, as Keras's layers do:
        `keras.utils.set_random_seed` makes it repeatable.

    Notes
    -----
    The input is a dict of exactly four int32 arrays of shape (batch B, length T), which `WordPieceTokenizer` makes:

    - ``token_ids``: the word pieces, [CLS] and [SEP] included.
    - ``segment_ids``: 0 for the first text of a pair, 1 for the second one.
    - ``position_ids``: 0, 1, 2, ... within each text.
    - ``text_ids``: the sequence id of sequence packing. It says which of several packed texts a token belongs to: k for
      the k-th text (or pair) in its row, 0 for padding. Attention is restricted to tokens with the same id, so that one
      row can hold several short texts, and each gets the vectors that it would get alone. Fast attention kernels give
      the same information as cumulative sequence lengths (``cu_seqlens`` in FlashAttention's and ModernBERT's unpadded
      form). If each row holds one text, the usual attention mask of 0 and 1 is a valid ``text_ids``.

    The output is a dict: ``sequence_output`` (B, T, D), one vector of D = ``hidden_size`` for each token, and
    ``pooled_output`` (B, D), the pooler's vector of the first token.

    Examples
    --------
    >>> from kbert import BertConfig, BertEncoder, WordPieceTokenizer
    >>> encoder = BertEncoder(BertConfig.from_size("tiny"))
    >>> encoder.count_params()
    4385920
    >>> tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
    >>> outputs = encoder.predict(tokenizer(["Ada lived in London", "It rains"]), verbose=0)
    >>> outputs["sequence_output"].shape, outputs["pooled_output"].shape
    ((2, 6, 128), (2, 128))
    """

    def __init__(self, config: BertConfig, dtype: DType = None, name: str | None = None, seed: int | None = 0):
        if not isinstance(config, BertConfig):
            raise TypeError(
                f"config must be a BertConfig, got {type(config).__name__}. BertConfig.from_size('tiny') is that of a "
                "size, and BertConfig(**values) one of your own."
            )
        policy = _policy(dtype)
        seed = _seed(seed)

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
        inputs = token_inputs(*INPUT_NAMES)
        x = embeddings(inputs["token_ids"], inputs["position_ids"], inputs["segment_ids"])
        mask = SameText(name="same_text")(inputs["text_ids"])
        for layer in transformer_layers:
            x = layer(x, mask)
        pooled = pooler(x[:, 0])
        outputs = {"sequence_output": x, "pooled_output": pooled}

        # === Config ===
        super().__init__(inputs, outputs, config=config, policy=policy, name=name, seed=seed)
        self.last_seed = seeds[-1]  # heads take the next ones
        self.embeddings = embeddings
        self.transformer_layers = transformer_layers
        self.pooler = pooler

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        dtype: DType = None,
        revision: str | None = None,
        seed: int = 0,
    ) -> "BertEncoder":
        """The encoder of a weights folder, a size or a hub name.

        Parameters
        ----------
        name_or_folder : str or Path
            A folder in the Hugging Face layout, or one of google-research/bert with its TensorFlow checkpoint; a size
            such as "base"; or a hub name.
        dtype : str or keras.DTypePolicy, optional
            As for `BertEncoder`.
        revision : str, optional
            Branch, tag or commit of a hub repository; None is its main branch.
        seed : int, default=0
            Seed of weights that the checkpoint lacks (those of the pooler, at most) and of dropout.

        Returns
        -------
        BertEncoder

        Raises
        ------
        WeightsNotFoundError
            If there are no weights under that name.
        WeightsMismatchError
            If the weights are damaged, or not those of a BERT model.

        Warns
        -----
        NewWeightsWarning
            If the checkpoint has no pooler. The pooler then starts at random.
        """
        from kbert.weights import load_encoder

        encoder: BertEncoder = load_encoder(name_or_folder, dtype=dtype, revision=revision, seed=seed)
        return encoder

    def save_pretrained(self, folder: str | Path, dtype: str = "float32") -> None:
        """Write config.json and model.safetensors, which `transformers.BertModel` reads.

        Parameters
        ----------
        folder : str or Path
            Made if there is none.
        dtype : {"float32", "float16", "bfloat16"}, default="float32"
            Type of the numbers in the file. The 16-bit types take half the space, and round each number to about 3
            decimal digits (float16) or 2 (bfloat16).

        Raises
        ------
        ValueError
            If ``dtype`` is another one, or a weight is beyond the range of float16.
        """
        from kbert.weights import save_encoder

        save_encoder(self, folder, dtype)

    def outputs_of(self, inputs: dict[str, Tensor], training: bool) -> dict[str, Tensor]:
        x, _ = self._through(self.transformer_layers, inputs, training)
        return {"sequence_output": x, "pooled_output": self.pooler(x[:, 0])}

    def vectors_of_tokens(self, inputs: dict[str, Tensor], training: bool = False) -> Tensor:
        """``sequence_output`` alone: shape (B, T, D). ``inputs`` may have more than the encoder's."""
        if self._must_be_called():
            outputs: dict[str, Tensor] = self({name: inputs[name] for name in INPUT_NAMES}, training=training)
            return outputs["sequence_output"]
        return self._through(self.transformer_layers, inputs, training)[0]

    def vectors_of_texts(self, inputs: dict[str, Tensor], first_positions: Tensor, training: bool = False) -> Tensor:
        """The pooler's vector of each text that starts at one of ``first_positions`` (B, K): shape (B, K, D).

        It is that of ``sequence_output`` there. Of the last layer only these tokens are computed, which saves five
        sixths of it: the keys and values of all tokens remain.
        """
        if self._must_be_called():
            return first_token_vectors(self, self.vectors_of_tokens(inputs, training), first_positions)
        *lower_layers, last_layer = self.transformer_layers
        x, _ = self._through(lower_layers, inputs, training)
        text_ids = ops.convert_to_tensor(inputs["text_ids"])
        mask = attention_mask(ops.take_along_axis(text_ids, first_positions, axis=1), text_ids)
        return self.pooler(through(last_layer, x, mask, first_positions, training))

    def _must_be_called(self) -> bool:
        """Whether a user has changed what a call of the encoder does, or wants to be told of it."""
        methods = (type(self).call, type(self).outputs_of)
        return methods != (FunctionalBert.call, BertEncoder.outputs_of) or has_hooks(self)

    def _through(
        self, layers: list[TransformerLayer], inputs: dict[str, Tensor], training: bool
    ) -> tuple[Tensor, Tensor]:
        """The embeddings through these layers, and the mask of attention among all tokens."""
        ids = (inputs[name] for name in ("token_ids", "position_ids", "segment_ids"))
        x = outer(self.embeddings, *ids, training=training)
        text_ids = ops.convert_to_tensor(inputs["text_ids"])
        mask = attention_mask(text_ids, text_ids)
        for layer in layers:
            x = through(layer, x, mask, training=training)
        return x, mask


def first_token_vectors(encoder: BertEncoder, sequence_output: Tensor, first_positions: Tensor) -> Tensor:
    """The pooler's vector for each text that starts at one of ``first_positions`` (B, K): shape (B, K, D)."""
    return encoder.pooler(FirstTokens(name="first_tokens")(sequence_output, first_positions))
