"""The heads of pre-training: the masked language model and the next sentence (Devlin et al., 2018, section 3.1).

Letter key: B batch, T length, D hidden, V vocabulary, K texts per row, M masked tokens per row.
"""

from pathlib import Path

import keras
import numpy as np
from keras import ops

from kbert.config import BertConfig
from kbert.model.encoder import INPUT_NAMES, BertEncoder, check_inputs, first_token_vectors
from kbert.model.layers import BertEmbeddings, activation, dense, layer_norm
from kbert.model.products import product


@keras.saving.register_keras_serializable("kbert")
class BertForPreTraining(keras.Model):
    """BERT with the two heads of its pre-training: which token a mask hides, and whether two texts follow each other.

    Parameters
    ----------
    config : BertConfig
    nsp : bool, default=True
        Whether there is a head for the next sentence. Without it, the pooler is there and is not trained.
    dtype : str or keras.DTypePolicy, optional
    name : str, optional
    seed : int, default=0
        Seed of the random start and of the dropout streams.

    Notes
    -----
    The input is `BertEncoder`'s dict, ``masked_positions`` (B, M) int32, where in its row each token to predict stands,
    and with ``nsp`` ``first_positions`` (B, K) int32, where each text (or pair) of a row starts. Empty slots of both
    are 0 and are to have no weight in the loss.

    The output is a dict of logits in float32: ``mlm_logits`` (B, M, V), and with ``nsp`` ``nsp_logits`` (B, K, 2), of
    which the first says that the second text follows the first one, and the second that it comes from elsewhere.

    Examples
    --------
    >>> from kbert import BertConfig, BertForPreTraining
    >>> model = BertForPreTraining(BertConfig.from_size("tiny"))
    >>> model.count_params()
    4433468
    """

    def __init__(self, config: BertConfig, nsp: bool = True, dtype=None, name: str | None = None, seed: int = 0):
        encoder = BertEncoder(config, dtype=dtype, name="bert", seed=seed)
        encoder.pooler.trainable = nsp
        policy = encoder.dtype_policy
        mlm_head = MaskedLanguageHead(config, encoder.embeddings, encoder.last_seed + 1, dtype=policy, name="mlm_head")
        nsp_head = dense(config, 2, encoder.last_seed + 2, "float32", "nsp_head") if nsp else None

        names = input_names(nsp)
        inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in names}
        hidden = encoder({key: inputs[key] for key in INPUT_NAMES})["sequence_output"]
        masked = TokensAt(name="masked_tokens")(hidden, inputs["masked_positions"])  # (B, M, D)
        outputs = {"mlm_logits": mlm_head(masked)}
        if nsp:
            outputs["nsp_logits"] = nsp_head(first_token_vectors(encoder, hidden, inputs["first_positions"]))
        super().__init__(inputs=inputs, outputs=outputs, name=name)

        self.dtype_policy = policy
        self.config = config
        self.choices = {"nsp": nsp}
        self.seed = seed
        self.encoder = encoder
        self.mlm_head = mlm_head
        self.nsp_head = nsp_head

    def call(self, inputs, training=None, mask=None):
        check_inputs(inputs, input_names(self.choices["nsp"]), self.config)
        length = inputs["token_ids"].shape[1]
        places = inputs["masked_positions"]
        if isinstance(places, np.ndarray) and places.size and not 0 <= places.min() <= places.max() < length:
            raise ValueError(
                f"masked_positions must lie in [0, {length}), as long as the rows are, got values from {places.min()} "
                f"to {places.max()}."
            )
        return super().call(inputs, training=training, mask=mask)

    def get_config(self):
        return {**self.encoder.get_config(), "name": self.name, **self.choices}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": BertConfig(**config["config"])})

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        nsp: bool = True,
        dtype=None,
        revision: str | None = None,
        seed: int = 0,
    ) -> "BertForPreTraining":
        """The model of a weights folder, a size or a hub name, to fill masks with or to pre-train further.

        Parameters
        ----------
        name_or_folder : str or Path
            A folder in the Hugging Face layout, a size such as "base", or a hub name.
        nsp : bool, default=True
            Whether there is to be a head for the next sentence.
        dtype : str or keras.DTypePolicy, optional
        revision : str, optional
            A branch, tag or commit of a hub repository.
        seed : int, default=0
            Of the weights that the checkpoint lacks and of the dropout streams.

        Raises
        ------
        WeightsNotFoundError, WeightsMismatchError
            When nothing usable is found under that name.

        Warns
        -----
        NewWeightsWarning
            When the checkpoint lacks a head, or the pooler under the next sentence's, which then starts at random.
        """
        from kbert.weights import load_pretraining

        return load_pretraining(name_or_folder, nsp=nsp, dtype=dtype, revision=revision, seed=seed)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors (float32).

        `transformers.BertForPreTraining` opens the folder; without a head for the next sentence, `BertForMaskedLM`.
        """
        from kbert.weights import save_pretraining

        save_pretraining(self, folder)


def input_names(nsp: bool) -> tuple[str, ...]:
    """What the model takes, with and without the head for the next sentence."""
    return (*INPUT_NAMES, *(("first_positions",) if nsp else ()), "masked_positions")


class TokensAt(keras.layers.Layer):
    """The vectors at given positions: x (B, T, D) and positions (B, M) to (B, M, D)."""

    def call(self, x, positions):
        # Rows of the flat batch. Forward and backward at B = 32, T = 128, M = 20, D = 384 on a CPU take 0.28 ms on JAX,
        # with take_along_axis 0.34, as a product with one-hot rows 0.91; on PyTorch 0.38, 1.85 and 2.80. The gradient's
        # scatter-add is quick here: it has few rows, and hardly two that go to the same place.
        B, T, D = ops.shape(x)
        starts = T * ops.arange(B, dtype="int32")
        return ops.take(ops.reshape(x, (B * T, D)), starts[:, None] + positions, axis=0)

    def compute_output_spec(self, x, positions):
        return keras.KerasTensor((*positions.shape, x.shape[-1]), x.dtype)


class MaskedLanguageHead(keras.layers.Layer):
    """The vectors of masked tokens (B, M, D) to the logits of what they are (B, M, V), in float32.

    Dense, activation and LayerNorm, then the product with the word embeddings, which are the encoder's own array, and a
    bias of its own (``get_masked_lm_output`` of the original ``run_pretraining.py``).
    """

    def __init__(self, config: BertConfig, embeddings: BertEmbeddings, seed: int, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        # In a function, where Keras does not find it: as an attribute, the table would be this layer's too, would be
        # saved twice, and would be frozen with this layer.
        self.word_embeddings = lambda: embeddings.word
        self.dense = dense(config, config.hidden_size, seed, self.dtype_policy, "dense")
        self.activation = activation(config.hidden_act)
        self.norm = layer_norm(config, self.dtype_policy, "norm")

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.norm.build(x_shape)
        # Added to the logits, in float32 under every policy.
        self.bias = self.add_weight((self.config.vocab_size,), "zeros", name="bias", autocast=False)
        self.built = True

    def call(self, x):
        x = self.norm(self.activation(self.dense(x)))
        table = ops.cast(self.word_embeddings(), x.dtype)  # (V, D)
        return ops.cast(product(x, ops.transpose(table)), "float32") + self.bias

    def compute_output_spec(self, x):
        return keras.KerasTensor((*x.shape[:-1], self.config.vocab_size), "float32")
