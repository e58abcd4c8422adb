"""Heads: the encoder with one output layer for a task.

The output layer computes in float32 under every policy: it costs next to nothing, and an output far from 0, as that of
a regression in its own unit, would otherwise be rounded to the two or three digits of bfloat16.
"""

import keras
from keras import ops

from kbert.config import BertConfig
from kbert.model.dropout import Dropout
from kbert.model.encoder import INPUT_NAMES, BertEncoder, check_inputs, first_token_vectors
from kbert.model.layers import FirstTokens, TextMeans, dense


@keras.saving.register_keras_serializable("kbert")
class BertForSequenceClassification(keras.Model):
    """BERT with a linear layer on the pooler's vector of each text, for classification and regression.

    Parameters
    ----------
    config : BertConfig
    num_labels : int
        Outputs of the head.
    dtype : str or keras.DTypePolicy, optional
    name : str, optional
    seed : int, default=0
        Seed of the random start and of the dropout streams.

    Notes
    -----
    The input is `BertEncoder`'s dict and besides ``first_positions`` (B, K) int32, where each text of a row starts:
    zeros of shape (B, 1) when each row holds one text. The output is the logits (B, K, num_labels) in float32.
    """

    def __init__(self, config: BertConfig, num_labels: int, dtype=None, name: str | None = None, seed: int = 0):
        encoder = BertEncoder(config, dtype=dtype, name="bert", seed=seed)
        policy = encoder.dtype_policy
        dropout = Dropout(config.head_dropout, encoder.last_seed + 1, dtype=policy, name="classifier_dropout")
        classifier = dense(config, num_labels, encoder.last_seed + 2, "float32", "classifier")

        inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in (*INPUT_NAMES, "first_positions")}
        hidden = encoder({key: inputs[key] for key in INPUT_NAMES})["sequence_output"]
        pooled = first_token_vectors(encoder, hidden, inputs["first_positions"])  # (B, K, D)
        logits = classifier(dropout(pooled))
        super().__init__(inputs=inputs, outputs=logits, name=name)

        self.dtype_policy = policy
        self.config = config
        self.num_labels = num_labels
        self.seed = seed
        self.encoder = encoder
        self.classifier = classifier

    def call(self, inputs, training=None, mask=None):
        check_inputs(inputs, (*INPUT_NAMES, "first_positions"), self.config)
        return super().call(inputs, training=training, mask=mask)

    def get_config(self):
        return {**self.encoder.get_config(), "name": self.name, "num_labels": self.num_labels}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": BertConfig(**config["config"])})


@keras.saving.register_keras_serializable("kbert")
class BertForTokenClassification(keras.Model):
    """BERT with a linear layer on the vector of each token, for tagging. The pooler is there and is not used.

    Parameters
    ----------
    config : BertConfig
    num_labels : int
        Outputs of the head.
    dtype : str or keras.DTypePolicy, optional
    name : str, optional
    seed : int, default=0
        Seed of the random start and of the dropout streams.

    Notes
    -----
    The input is `BertEncoder`'s dict. The output is the logits (B, T, num_labels) in float32.
    """

    def __init__(self, config: BertConfig, num_labels: int, dtype=None, name: str | None = None, seed: int = 0):
        encoder = BertEncoder(config, dtype=dtype, name="bert", seed=seed)
        encoder.pooler.trainable = False
        policy = encoder.dtype_policy
        dropout = Dropout(config.head_dropout, encoder.last_seed + 1, dtype=policy, name="classifier_dropout")
        classifier = dense(config, num_labels, encoder.last_seed + 2, "float32", "classifier")

        inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in INPUT_NAMES}
        logits = classifier(dropout(encoder(inputs)["sequence_output"]))
        super().__init__(inputs=inputs, outputs=logits, name=name)

        self.dtype_policy = policy
        self.config = config
        self.num_labels = num_labels
        self.seed = seed
        self.encoder = encoder
        self.classifier = classifier

    def call(self, inputs, training=None, mask=None):
        check_inputs(inputs, INPUT_NAMES, self.config)
        return super().call(inputs, training=training, mask=mask)

    def get_config(self):
        return {**self.encoder.get_config(), "name": self.name, "num_labels": self.num_labels}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": BertConfig(**config["config"])})


@keras.saving.register_keras_serializable("kbert")
class BertForQuestionAnswering(keras.Model):
    """BERT with a linear layer on the vector of each token, for spans of text as answers. The pooler is not used.

    Parameters
    ----------
    config : BertConfig
    dtype : str or keras.DTypePolicy, optional
    name : str, optional
    seed : int, default=0
        Seed of the random start and of the dropout streams.

    Notes
    -----
    The input is `BertEncoder`'s dict. The output is (B, T, 2) in float32: the logits of each token to be the answer's
    first, and to be its last (Devlin et al., 2018, section 4.2).
    """

    def __init__(self, config: BertConfig, dtype=None, name: str | None = None, seed: int = 0):
        encoder = BertEncoder(config, dtype=dtype, name="bert", seed=seed)
        encoder.pooler.trainable = False
        policy = encoder.dtype_policy
        qa_outputs = dense(config, 2, encoder.last_seed + 1, "float32", "qa_outputs")

        inputs = {key: keras.Input((None,), dtype="int32", name=key) for key in INPUT_NAMES}
        logits = qa_outputs(encoder(inputs)["sequence_output"])
        super().__init__(inputs=inputs, outputs=logits, name=name)

        self.dtype_policy = policy
        self.config = config
        self.seed = seed
        self.encoder = encoder
        self.qa_outputs = qa_outputs

    def call(self, inputs, training=None, mask=None):
        check_inputs(inputs, INPUT_NAMES, self.config)
        return super().call(inputs, training=training, mask=mask)

    def get_config(self):
        return {**self.encoder.get_config(), "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": BertConfig(**config["config"])})


# The choices of the paper's Table 7; its sums over layers are weighted, these are plain.
LAYER_CHOICES = ("embeddings", "second_to_last", "last", "sum_last_4", "concat_last_4", "sum_all")
POOLINGS = ("mean", "cls")


@keras.saving.register_keras_serializable("kbert")
class BertForFeatures(keras.Model):
    """BERT without a head: one vector for each text or each token, from the layers that one chooses.

    Parameters
    ----------
    config : BertConfig
    layers : str, default="last"
        "embeddings" (the sum of word, position and segment after LayerNorm), "second_to_last", "last", "sum_last_4",
        "concat_last_4" (four times as wide) or "sum_all" (of the transformer layers).
    pooling : str or None, default="mean"
        "mean" over the text's tokens, special ones included, "cls", the vector of the first token, or None: no pooling,
        every token's vector.
    dtype : str or keras.DTypePolicy, optional
    name : str, optional
    seed : int, default=0

    Notes
    -----
    The input is that of `BertForSequenceClassification`, and the output (B, K, n_features) in float32. Without pooling,
    the input is `BertEncoder`'s, and the output (B, T, n_features).
    """

    def __init__(
        self,
        config: BertConfig,
        layers: str = "last",
        pooling: str | None = "mean",
        dtype=None,
        name: str | None = None,
        seed: int = 0,
    ):
        encoder = BertEncoder(config, dtype=dtype, name="bert", seed=seed)
        inputs = {tensor.name: tensor for tensor in encoder.inputs}
        hidden = [layer.output for layer in encoder.transformer_layers]
        x = {
            "embeddings": lambda: encoder.embeddings.output,
            "second_to_last": lambda: hidden[-2] if len(hidden) > 1 else encoder.embeddings.output,
            "last": lambda: hidden[-1],
            "sum_last_4": lambda: sum(hidden[-4:]),
            "concat_last_4": lambda: ops.concatenate(hidden[-4:], axis=-1),
            "sum_all": lambda: sum(hidden),
        }[layers]()
        if pooling is not None:
            inputs["first_positions"] = keras.Input((None,), dtype="int32", name="first_positions")
        if pooling == "mean":
            x = TextMeans(name="text_means")(x, inputs["text_ids"], inputs["first_positions"])
        elif pooling == "cls":
            x = FirstTokens(name="first_tokens")(x, inputs["first_positions"])
        vectors = ops.cast(x, "float32")
        super().__init__(inputs=inputs, outputs=vectors, name=name)

        self.dtype_policy = encoder.dtype_policy
        self.config = config
        self.choices = {"layers": layers, "pooling": pooling}
        self.seed = seed
        self.encoder = encoder

    def call(self, inputs, training=None, mask=None):
        names = INPUT_NAMES if self.choices["pooling"] is None else (*INPUT_NAMES, "first_positions")
        check_inputs(inputs, names, self.config)
        return super().call(inputs, training=training, mask=mask)

    def get_config(self):
        return {**self.encoder.get_config(), "name": self.name, **self.choices}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": BertConfig(**config["config"])})
