"""The encoder with the output layer of a task.

The output layer computes in float32 under every policy. It costs next to nothing, and bfloat16 would round outputs to
two or three digits: too few for a regression whose values are far from 0.
"""

from kbert.config import BertConfig
from kbert.model.base import DType, FunctionalBert, Tensor, constant, token_inputs
from kbert.model.dropout import Dropout
from kbert.model.encoder import BertEncoder, first_token_vectors
from kbert.model.layers import FirstTokens, TextMeans, dense, outer
from kbert.model.names import INPUT_NAMES, LAYER_CHOICES, POOLINGS, SHORTEST
from kbert.model.setup import keras, ops

# The keys of a config that say nothing of the encoder's weights or of what it computes from them without dropout.
_NOT_OF_THE_ENCODER = {
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "classifier_pooling"),
    *("initializer_range", "num_trained_positions"),
}


def encoder_of(config: BertConfig, encoder: BertEncoder | None, dtype: DType, seed: int | None) -> BertEncoder:
    """The encoder of a head: a new one, or the given one.

    Raises
    ------
    ValueError
        If the given one is of another architecture than ``config``, of which a loaded model would be made.
    """
    if encoder is None:
        return BertEncoder(config, dtype=dtype, name="bert", seed=seed)
    wanted, found = config.to_dict(), encoder.config.to_dict()
    differing = [key for key in wanted if key not in _NOT_OF_THE_ENCODER and wanted[key] != found[key]]
    if differing:
        raise ValueError(
            f"encoder is of another architecture than config: {differing[0]} is {found[differing[0]]!r} instead of "
            f"{wanted[differing[0]]!r}. Give config=encoder.config."
        )
    return encoder


def dropped(dropout: Dropout, vectors: Tensor, training: bool) -> Tensor:
    """Vectors in the precision of the encoder, in training with dropout."""
    return outer(dropout, ops.cast(vectors, dropout.compute_dtype), training=training)


@keras.saving.register_keras_serializable("kbert")
class BertForSequenceClassification(FunctionalBert):
    """BERT with a linear layer on one vector of each text, for classification and regression.

    The vector is the pooler's, or with ``config.classifier_pooling="mean"`` the mean over the text's tokens; the model
    then has a pooler that is not used.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    num_labels : int
        Number of outputs: of classes, or of regression targets.
    dtype : str or keras.DTypePolicy, optional
        Precision of the encoder, as for `BertEncoder`.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights and of dropout. None draws one, as for `BertEncoder`.
    encoder : BertEncoder, optional
        One of this architecture, which the model is put around and shares with others; then ``dtype`` and ``seed`` are
        the encoder's. A model that does not read its pooler freezes it. None makes a new one.

    Notes
    -----
    The input is `BertEncoder`'s dict and one int32 array more: ``first_positions`` (B, K), the position of the first
    token of each text in its row, for up to K texts in a row; zeros of shape (B, 1) if each row holds one text. The
    output is the logits (B, K, num_labels) in float32. Those of unused entries of ``first_positions`` mean nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from kbert import BertConfig, WordPieceTokenizer
    >>> from kbert.model import BertForSequenceClassification
    >>> tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
    >>> inputs = tokenizer(["Ada lived in London", "It rains"])
    >>> inputs["first_positions"] = np.zeros((2, 1), "int32")  # one text in each row
    >>> model = BertForSequenceClassification(BertConfig.from_size("tiny"), num_labels=3)
    >>> model.predict(inputs, verbose=0).shape
    (2, 1, 3)
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        dtype: DType = None,
        name: str | None = None,
        seed: int | None = 0,
        encoder: BertEncoder | None = None,
    ):
        encoder = encoder_of(config, encoder, dtype, seed)
        policy, seed = encoder.dtype_policy, encoder.seed
        dropout = Dropout(config.head_dropout, encoder.last_seed + 1, dtype=policy, name="classifier_dropout")
        classifier = dense(config, num_labels, encoder.last_seed + 2, "float32", "classifier")
        text_means = TextMeans(name="text_means") if config.classifier_pooling == "mean" else None

        inputs = token_inputs(*INPUT_NAMES, "first_positions")
        hidden = encoder({key: inputs[key] for key in INPUT_NAMES})["sequence_output"]
        if text_means is not None:
            encoder.pooler.trainable = False
            vectors = text_means(hidden, inputs["text_ids"], inputs["first_positions"])
        else:
            vectors = first_token_vectors(encoder, hidden, inputs["first_positions"])
        logits = classifier(dropout(vectors))  # vectors: (B, K, D)
        super().__init__(inputs, logits, config=config, policy=policy, name=name, seed=seed, num_labels=num_labels)
        self.num_labels = num_labels
        self.encoder, self.hidden = encoder, hidden
        self.text_means, self.dropout, self.classifier = text_means, dropout, classifier

    def outputs_of(self, inputs: dict[str, Tensor], training: bool) -> Tensor:
        first_positions = inputs["first_positions"]
        if self.text_means is not None:
            hidden = self.encoder.vectors_of_tokens(inputs, training)
            vectors = outer(self.text_means, hidden, inputs["text_ids"], first_positions)
        else:
            vectors = self.encoder.vectors_of_texts(inputs, first_positions, training)
        return self.classifier(dropped(self.dropout, vectors, training))


@keras.saving.register_keras_serializable("kbert")
class BertForTokenClassification(FunctionalBert):
    """BERT with a linear layer on the vector of each token, for tagging. The model has a pooler, which is not used.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    num_labels : int
        Number of outputs: of classes, or of regression targets.
    dtype : str or keras.DTypePolicy, optional
        Precision of the encoder, as for `BertEncoder`.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights and of dropout. None draws one, as for `BertEncoder`.
    encoder : BertEncoder, optional
        One of this architecture, which the model is put around and shares with others; then ``dtype`` and ``seed`` are
        the encoder's. A model that does not read its pooler freezes it. None makes a new one.

    Notes
    -----
    The input is `BertEncoder`'s dict. The output is the logits (B, T, num_labels) in float32.

    Examples
    --------
    >>> from kbert import BertConfig, WordPieceTokenizer
    >>> from kbert.model import BertForTokenClassification
    >>> tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
    >>> inputs = tokenizer(["Ada lived in London", "It rains"])
    >>> model = BertForTokenClassification(BertConfig.from_size("tiny"), num_labels=3)
    >>> model.predict(inputs, verbose=0).shape
    (2, 6, 3)
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        dtype: DType = None,
        name: str | None = None,
        seed: int | None = 0,
        encoder: BertEncoder | None = None,
    ):
        encoder = encoder_of(config, encoder, dtype, seed)
        encoder.pooler.trainable = False
        policy, seed = encoder.dtype_policy, encoder.seed
        dropout = Dropout(config.head_dropout, encoder.last_seed + 1, dtype=policy, name="classifier_dropout")
        classifier = dense(config, num_labels, encoder.last_seed + 2, "float32", "classifier")

        inputs = token_inputs(*INPUT_NAMES)
        hidden = encoder(inputs)["sequence_output"]
        logits = classifier(dropout(hidden))
        super().__init__(inputs, logits, config=config, policy=policy, name=name, seed=seed, num_labels=num_labels)
        self.num_labels = num_labels
        self.encoder, self.hidden = encoder, hidden
        self.dropout, self.classifier = dropout, classifier

    def outputs_of(self, inputs: dict[str, Tensor], training: bool) -> Tensor:
        hidden = self.encoder.vectors_of_tokens(inputs, training)
        return self.classifier(dropped(self.dropout, hidden, training))


@keras.saving.register_keras_serializable("kbert")
class BertForQuestionAnswering(FunctionalBert):
    """BERT with a linear layer on the vector of each token, which scores the starts and ends of answers.

    The model has a pooler, which is not used.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    dtype : str or keras.DTypePolicy, optional
        Precision of the encoder, as for `BertEncoder`.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights and of dropout. None draws one, as for `BertEncoder`.
    encoder : BertEncoder, optional
        One of this architecture, which the model is put around and shares with others; then ``dtype`` and ``seed`` are
        the encoder's. A model that does not read its pooler freezes it. None makes a new one.

    Notes
    -----
    The input is `BertEncoder`'s dict. The output is an array of logits (B, T, 2) in float32: for each token one for
    being the first token of the answer, and one for being its last (Devlin et al., 2018, section 4.2).

    Examples
    --------
    >>> from kbert import BertConfig, WordPieceTokenizer
    >>> from kbert.model import BertForQuestionAnswering
    >>> tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
    >>> inputs = tokenizer(["Where did Ada live?"], ["Ada lived in London"])
    >>> model = BertForQuestionAnswering(BertConfig.from_size("tiny"))
    >>> model.predict(inputs, verbose=0).shape
    (1, 12, 2)
    """

    def __init__(
        self,
        config: BertConfig,
        dtype: DType = None,
        name: str | None = None,
        seed: int | None = 0,
        encoder: BertEncoder | None = None,
    ):
        encoder = encoder_of(config, encoder, dtype, seed)
        policy, seed = encoder.dtype_policy, encoder.seed
        encoder.pooler.trainable = False
        qa_outputs = dense(config, 2, encoder.last_seed + 1, "float32", "qa_outputs")

        inputs = token_inputs(*INPUT_NAMES)
        hidden = encoder(inputs)["sequence_output"]
        logits = qa_outputs(hidden)
        super().__init__(inputs, logits, config=config, policy=policy, name=name, seed=seed)
        self.encoder, self.hidden = encoder, hidden
        self.qa_outputs = qa_outputs

    def outputs_of(self, inputs: dict[str, Tensor], training: bool) -> Tensor:
        return self.qa_outputs(self.encoder.vectors_of_tokens(inputs, training))


@keras.saving.register_keras_serializable("kbert")
class BertForFeatures(FunctionalBert):
    """BERT without a head: a vector for each text or each token, computed from the chosen layers.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    layers : str, default="last"
        Which layers' outputs make the vector of a token: "embeddings" (word, position and segment embeddings added,
        after LayerNorm), "second_to_last", "last", "sum_last_4", "concat_last_4" (four times as many features) or
        "sum_all" (all transformer layers, without the embeddings).
    pooling : {"mean", "cls"} or None, default="mean"
        What makes the vector of a text: the mean over its tokens, special ones included, or the vector of its first
        token, [CLS]. None: no pooling, a vector for each token.
    normalize : bool, default=False
        Whether each vector is scaled to length 1.
    dtype : str or keras.DTypePolicy, optional
        Precision of the encoder, as for `BertEncoder`.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights and of dropout. None draws one, as for `BertEncoder`.
    encoder : BertEncoder, optional
        One of this architecture, which the model is put around and shares with others; then ``dtype`` and ``seed`` are
        the encoder's. A model that does not read its pooler freezes it. None makes a new one.

    Notes
    -----
    The input is that of `BertForSequenceClassification`, and the output has the shape (B, K, n_features), in float32.
    Without pooling, the input is that of `BertEncoder`, and the output has the shape (B, T, n_features).

    Examples
    --------
    >>> from kbert import BertConfig, WordPieceTokenizer
    >>> from kbert.model import BertForFeatures
    >>> tokenizer = WordPieceTokenizer.from_pretrained("minilm-l6")
    >>> inputs = tokenizer(["Ada lived in London", "It rains"])
    >>> config = BertConfig.from_size("tiny")
    >>> model = BertForFeatures(config, layers="concat_last_4", pooling=None)
    >>> model.predict(inputs, verbose=0).shape
    (2, 6, 256)
    """

    def __init__(
        self,
        config: BertConfig,
        layers: str = "last",
        pooling: str | None = "mean",
        normalize: bool = False,
        dtype: DType = None,
        name: str | None = None,
        seed: int | None = 0,
        encoder: BertEncoder | None = None,
    ):
        for value, known in ((layers, LAYER_CHOICES), (pooling, (*POOLINGS, None))):
            if value not in known:
                raise ValueError(f"BertForFeatures: {value!r} is none of {', '.join(map(repr, known))}.")
        encoder = encoder_of(config, encoder, dtype, seed)
        policy, seed = encoder.dtype_policy, encoder.seed
        encoder.pooler.trainable = False  # nothing here reads it
        given = {tensor.name: tensor for tensor in encoder.inputs}
        inputs = {name: given[name] for name in INPUT_NAMES}
        hidden = [layer.output for layer in encoder.transformer_layers]
        pool = {"mean": TextMeans(name="text_means"), "cls": FirstTokens(name="first_tokens"), None: None}[pooling]
        x = {
            "embeddings": lambda: encoder.embeddings.output,
            "second_to_last": lambda: hidden[-2] if len(hidden) > 1 else encoder.embeddings.output,
            "last": lambda: hidden[-1],
            "sum_last_4": lambda: sum(hidden[-4:]),
            "concat_last_4": lambda: ops.concatenate(hidden[-4:], axis=-1),
            "sum_all": lambda: sum(hidden),
        }[layers]()
        if pooling is not None:
            inputs |= token_inputs("first_positions")
        vectors = _pooled(x, inputs, pool, normalize)
        choices = {"layers": layers, "pooling": pooling, "normalize": normalize}
        super().__init__(inputs, vectors, config=config, policy=policy, name=name, seed=seed, **choices)
        self.encoder, self.hidden, self.pool = encoder, hidden[-1], pool

    def outputs_of(self, inputs: dict[str, Tensor], training: bool) -> Tensor:
        if self.choices["layers"] != "last":
            return super().outputs_of(inputs, training)
        x = self.encoder.vectors_of_tokens(inputs, training)
        return _pooled(x, inputs, self.pool, self.choices["normalize"])


def _pooled(x: Tensor, inputs: dict[str, Tensor], pool: TextMeans | FirstTokens | None, normalize: bool) -> Tensor:
    """The vectors of texts, or without ``pool`` of tokens, in float32."""
    if isinstance(pool, TextMeans):
        x = pool(x, inputs["text_ids"], inputs["first_positions"])
    elif pool is not None:
        x = pool(x, inputs["first_positions"])
    vectors = ops.cast(x, "float32")
    if not normalize:
        return vectors
    # On JAX, ops.norm of Keras 3.10 to 3.12 cannot be part of a functional model. The square root of 0, in slots
    # without a text, has no derivative.
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors / ops.sqrt(ops.maximum(squares, constant(SHORTEST**2, "float32")))


@keras.saving.register_keras_serializable("kbert")
class BertForTextVectors(FunctionalBert):
    """BERT without a head: for each text, both vectors that the head of `BertForSequenceClassification` may read.

    Parameters
    ----------
    config : BertConfig
        The architecture.
    dtype : str or keras.DTypePolicy, optional
        Precision of the encoder, as for `BertEncoder`.
    name : str, optional
        Name of the Keras model.
    seed : int or None, default=0
        Seed of the random initial weights. None draws one, as for `BertEncoder`.
    encoder : BertEncoder, optional
        One of this architecture, which the model is put around and shares with others; then ``dtype`` and ``seed`` are
        the encoder's. A model that does not read its pooler freezes it. None makes a new one.

    Notes
    -----
    The input is that of `BertForSequenceClassification`. The output has the shape (B, K, 2 D), in float32: the mean
    over the text's tokens, and the pooler's vector.
    """

    def __init__(
        self,
        config: BertConfig,
        dtype: DType = None,
        name: str | None = None,
        seed: int | None = 0,
        encoder: BertEncoder | None = None,
    ):
        encoder = encoder_of(config, encoder, dtype, seed)
        policy, seed = encoder.dtype_policy, encoder.seed
        inputs = token_inputs(*INPUT_NAMES, "first_positions")
        hidden = encoder({key: inputs[key] for key in INPUT_NAMES})["sequence_output"]
        means = TextMeans(name="text_means")(hidden, inputs["text_ids"], inputs["first_positions"])
        pooled = ops.cast(first_token_vectors(encoder, hidden, inputs["first_positions"]), "float32")
        vectors = ops.concatenate([means, pooled], axis=-1)
        super().__init__(inputs, vectors, config=config, policy=policy, name=name, seed=seed)
        self.encoder = encoder
