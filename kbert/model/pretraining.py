"""Pre-training heads: masked language model and next sentence prediction (Devlin et al., 2018, section 3.1).

Letter key: B batch, T length, D hidden, V vocabulary, K texts per row, M masked tokens per row.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbert.config import BertConfig
from kbert.model.base import DType, FunctionalBert, Tensor, token_inputs
from kbert.model.encoder import BertEncoder, first_token_vectors
from kbert.model.layers import BertEmbeddings, activation, dense, layer_norm
from kbert.model.names import INPUT_NAMES
from kbert.model.products import product_with_table
from kbert.model.setup import keras, ops


@keras.saving.register_keras_serializable("kbert")
class BertForPreTraining(FunctionalBert):
    """BERT with its two pre-training heads: masked language model (MLM) and next sentence prediction (NSP).

    Parameters
    ----------
    config : BertConfig
        The architecture.
    nsp : bool, default=True
        Whether the model has the head for next sentence prediction. False for masked language modelling alone: the
        model then has a pooler too, which is not trained.
    dtype : str or keras.DTypePolicy, optional
        Precision of the encoder, as for `BertEncoder`.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights and of dropout. None draws one, as for `BertEncoder`.

    Notes
    -----
    The input is `BertEncoder`'s dict and two int32 arrays more: ``masked_positions`` (B, M), the positions of the
    tokens to predict in their rows; and with ``nsp``, ``first_positions`` (B, K), the position of the first token of
    each text (or pair) in a row. Unused entries of both are 0, and must have weight 0 in the loss.

    The output is a dict of logits in float32: ``mlm_logits`` (B, M, V), one for each token of the vocabulary; and with
    ``nsp``, ``nsp_logits`` (B, K, 2): the first one for the second text of a pair following the first text, the second
    one for it being a random text.

    Examples
    --------
    >>> from kbert import BertConfig, BertForPreTraining
    >>> model = BertForPreTraining(BertConfig.from_size("tiny"))
    >>> model.count_params()
    4433468
    """

    # Whether the weights came from a checkpoint without this head, and were not trained by `BertPretrainer` since.
    has_new_mlm_head = False

    def __init__(
        self,
        config: BertConfig,
        nsp: bool = True,
        dtype: DType = None,
        name: str | None = None,
        seed: int | None = 0,
    ):
        encoder = BertEncoder(config, dtype=dtype, name="bert", seed=seed)
        encoder.pooler.trainable = nsp
        policy, seed = encoder.dtype_policy, encoder.seed
        mlm_head = MaskedLanguageHead(config, encoder.embeddings, encoder.last_seed + 1, dtype=policy, name="mlm_head")
        nsp_head = dense(config, 2, encoder.last_seed + 2, "float32", "nsp_head") if nsp else None

        inputs = token_inputs(*INPUT_NAMES, *(["first_positions"] if nsp else []), "masked_positions")
        hidden = encoder({key: inputs[key] for key in INPUT_NAMES})["sequence_output"]
        masked = TokensAt(name="masked_tokens")(hidden, inputs["masked_positions"])  # (B, M, D)
        outputs = {"mlm_logits": mlm_head(masked)}
        if nsp_head is not None:
            outputs["nsp_logits"] = nsp_head(first_token_vectors(encoder, hidden, inputs["first_positions"]))
        super().__init__(inputs, outputs, config=config, policy=policy, name=name, seed=seed, nsp=nsp)
        self.encoder = encoder
        self.mlm_head = mlm_head
        self.nsp_head = nsp_head

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        nsp: bool = True,
        dtype: DType = None,
        revision: str | None = None,
        seed: int = 0,
    ) -> "BertForPreTraining":
        """The model of a weights folder, a size or a hub name, to predict masked tokens or to continue pre-training.

        Parameters
        ----------
        name_or_folder : str or Path
            A folder in the Hugging Face layout, a size such as "base", or a hub name.
        nsp : bool, default=True
            Whether the model has the head for next sentence prediction. False if it is not needed, or if the checkpoint
            was pre-trained without it.
        dtype : str or keras.DTypePolicy, optional
            Precision of the encoder, as for `BertEncoder`.
        revision : str, optional
            Branch, tag or commit of a hub repository; None is its main branch.
        seed : int, default=0
            Seed of weights that the checkpoint lacks and of dropout.

        Returns
        -------
        BertForPreTraining

        Raises
        ------
        WeightsNotFoundError
            If there are no weights under that name.
        WeightsMismatchError
            If the weights are damaged, or not those of a BERT model.

        Warns
        -----
        NewWeightsWarning
            If the checkpoint lacks a head, or with ``nsp`` the pooler. What is lacking starts at random.
        """
        from kbert.weights import load_pretraining

        model: BertForPreTraining = load_pretraining(name_or_folder, nsp=nsp, dtype=dtype, revision=revision, seed=seed)
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors (float32).

        `transformers.BertForPreTraining` reads the folder; `transformers.BertForMaskedLM` if the model has no head for
        next sentence prediction.

        Parameters
        ----------
        folder : str or Path
            Made if there is none.
        """
        from kbert.weights import save_pretraining

        save_pretraining(self, folder)


class TokensAt(keras.layers.Layer):
    """The vectors at given positions: x (B, T, D) and positions (B, M) to (B, M, D)."""

    def call(self, x: Tensor, positions: Tensor) -> Tensor:
        # Rows of the flat batch. Forward and backward at B = 32, T = 128, M = 20, D = 384 on a CPU take 0.28 ms on JAX,
        # with take_along_axis 0.34, as a product with one-hot rows 0.91; on PyTorch 0.38, 1.85 and 2.80. The gradient's
        # scatter-add is quick here: it has few rows, and hardly two of them are added to the same row.
        B, T, D = ops.shape(x)
        starts = T * ops.arange(B, dtype="int32")
        return ops.take(ops.reshape(x, (B * T, D)), starts[:, None] + positions, axis=0)

    def compute_output_spec(self, x: Tensor, positions: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((*positions.shape, x.shape[-1]), x.dtype)


class MaskedLanguageHead(keras.layers.Layer):
    """The vectors of masked tokens (B, M, D) to logits over the vocabulary (B, M, V), in float32.

    Dense, activation and LayerNorm, then the product with the encoder's word embeddings (tied weights), and a bias
    (``get_masked_lm_output`` of the original ``run_pretraining.py``).
    """

    def __init__(self, config: BertConfig, embeddings: BertEmbeddings, seed: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        # In a function, where Keras does not find the variable. As an attribute, it would be a weight of this layer
        # too: saved twice, and frozen with this layer.
        self.word_embeddings: Callable[[], keras.Variable] = lambda: embeddings.word
        self.dense = dense(config, config.hidden_size, seed, self.dtype_policy, "dense")
        self.activation = activation(config.hidden_act)
        self.norm = layer_norm(config, self.dtype_policy, "norm")

    def build(self, x_shape: tuple[int | None, ...]) -> None:
        self.dense.build(x_shape)
        self.norm.build(x_shape)
        # In float32 under every policy, because it is added to logits in float32.
        self.bias = self.add_weight((self.config.vocab_size,), "zeros", dtype="float32", name="bias", autocast=False)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        x = self.norm(self.activation(self.dense(x)))
        table = ops.cast(self.word_embeddings(), x.dtype)  # (V, D)
        return ops.cast(product_with_table(x, table), "float32") + self.bias

    def compute_output_spec(self, x: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((*x.shape[:-1], self.config.vocab_size), "float32")

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError(
            "The masked-LM head shares the word embeddings with the encoder, so that Keras cannot copy its layers one "
            "by one. Copy the whole model: type(model).from_config(model.get_config())."
        )
