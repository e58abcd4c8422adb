"""BertVectorizer: texts, or pairs of texts, to vectors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from kbert.config import BertConfig
from kbert.estimators.base import BertEstimator
from kbert.model import BertForFeatures
from kbert.weights import load_encoder_weights, save_encoder


class BertVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BertEstimator):
    """Vectors of a BERT that is not trained: the feature-based approach of the paper (its section 5.3 and Table 7).

    Parameters
    ----------
    size : str or BertConfig, default="base"
        The architecture: "tiny", "mini", "small", "medium", "base", "large", "base-cased", "large-cased", "minilm-l6",
        or one of your own.
    weights : "auto", None, str or Path, default="auto"
        "auto" is the released weights of that size; None a random start, with a vocabulary learned from the texts of
        ``fit``; else a folder in the Hugging Face layout or a hub name, whose own config then wins over ``size``.
    revision : str, optional
        Branch, tag or commit of a hub repository.
    max_length : int, default=128
        Longest sequence in tokens, special ones included.
    long_text : {"truncate", "window"}, default="truncate"
        What happens to a text that is longer. "truncate" cuts it at its end, with one warning; "window" reads all of it
        in overlapping windows, and takes the mean of their vectors.
    stride : int, optional
        Tokens from the start of a window to that of the next; None is half of ``max_length``.
    layers : str, default="last"
        "embeddings", "second_to_last", "last", "sum_last_4", "concat_last_4" (four times as wide) or "sum_all". The
        paper's sums over layers are weighted, these are plain.
    pooling : {"mean", "cls"}, default="mean"
        The mean over a text's tokens, special ones included, or the vector of its first token.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Of the computation; vectors are float32. "auto" is float32 on a CPU, bfloat16 on a GPU or TPU.
    random_state : int, RandomState or None, default=None
        Seed of a random start.
    verbose : int, default=0

    Attributes
    ----------
    model_ : BertForFeatures
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    n_features_in_ : int
        1 for single texts, 2 for pairs.
    feature_names_in_ : ndarray of str
        Column names, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from kbert import BertVectorizer
    >>> make_pipeline(BertVectorizer("minilm-l6"), LogisticRegression()).fit(df.text, df.label)
    """

    model_: BertForFeatures

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike | None = "auto",
        revision: str | None = None,
        max_length: int = 128,
        long_text: str = "truncate",
        stride: int | None = None,
        layers: str = "last",
        pooling: str = "mean",
        dtype: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ):
        self.size = size
        self.weights = weights
        self.revision = revision
        self.max_length = max_length
        self.long_text = long_text
        self.stride = stride
        self.layers = layers
        self.pooling = pooling
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the weights. The texts are looked at for their columns, and with ``weights=None`` for a vocabulary.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
        y : ignored

        Returns
        -------
        self
        """
        seed, policy = self._validated()
        texts = self._read_texts(X, stacklevel=4)
        start = self._start(texts)
        self._check_max_length(start.config)
        model = BertForFeatures(start.config, self.layers, self.pooling, dtype=policy, seed=seed)
        self._load_weights(model, start)
        self._forget()
        self._remember_columns(texts)
        self.model_, self.tokenizer_, self.config_ = model, start.tokenizer, start.config
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The vector of each row.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of float32, shape (n_rows, n_features)
            ``hidden_size`` features, or four times as many with ``layers="concat_last_4"``. A DataFrame after
            ``set_output(transform="pandas")``.
        """
        return self._predict_logits(X)

    @property
    def _n_features_out(self) -> int:
        return self.model_.output_shape[-1]

    # --- Saving ------------------------------------------------------------------------------------------------

    def _save_model(self, folder: Path) -> None:
        save_encoder(self.model_.encoder, folder)

    def _load_model(self, folder: Path, policy: str) -> BertForFeatures:
        config = BertConfig.from_folder(folder)
        model = BertForFeatures(config, self.layers, self.pooling, dtype=policy)
        load_encoder_weights(model.encoder, folder)
        return model

    def _learned_to_json(self) -> dict:
        return {}

    def _learned_from_json(self, values: dict, folder: Path) -> None:
        pass

    def _learned_from_config(self, folder: Path) -> None:
        pass

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = []
        return tags
