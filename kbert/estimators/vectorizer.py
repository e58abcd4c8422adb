"""BertVectorizer: texts, pairs of texts, or words in their texts, to vectors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from kbert import model as models
from kbert import weights
from kbert.backend import require_backend
from kbert.config import BertConfig
from kbert.data.frames import readable_again, row_index
from kbert.data.mistakes import check_y_in_X
from kbert.data.tags import WordColumn, word_column
from kbert.data.texts import TextColumns
from kbert.estimators.base import of_one_fit
from kbert.estimators.parameters import checked_parameters, draw_seed
from kbert.estimators.recipe import settle_lengths, settled_values
from kbert.estimators.servable import ServableEstimator
from kbert.model.names import SHORTEST
from kbert.tasks.row_notices import RowShares, RowsRead, tell_cut, tell_missing
from kbert.tasks.task import task_of
from kbert.tasks.texts import TextReader
from kbert.tasks.words import WordReader
from kbert.text import WordPieceTokenizer
from kbert.training.precision import dtype_policy
from kbert.training.progress import PredictionProgress
from kbert.weights.runtimes import ExportedModel
from kbert.weights.start import Start


class BertVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ServableEstimator):
    """Vectors of a BERT that is not trained: the feature-based approach of the paper (its section 5.3 and Table 7).

    A row's vector stands for its text. With ``level="word"`` there is one for each of its words, as the paper's
    feature-based tagger takes them; for that a text may have any length.

    ``level``, ``layers``, ``pooling`` and ``normalize`` make the model: set anew, they apply from the next ``fit``.

    Parameters
    ----------
    size : str or BertConfig, default="base"
        The architecture: "tiny", "mini", "small", "medium", "base", "large", "base-cased", "large-cased", "minilm-l6",
        or a `BertConfig` of your own; the hub name of one, such as "bert-base-uncased", is that size. On a CPU,
        "minilm-l6" is a good first choice: a token takes an eighth of the work that it takes in "base".
    weights : "auto", None, str or Path, default="auto"
        "auto" is the released weights of that size; None a random start, with a vocabulary learned from the texts of
        ``fit``; else a folder in the Hugging Face layout or a hub name, whose own config then wins over ``size``.
    revision : str, optional
        Branch, tag or commit of a hub repository; None takes its main branch.
    max_length : "auto" or int, default="auto"
        Longest sequence in tokens, special ones included; "auto" is up to 256 for windows, and the positions of the
        model, 512 as a rule, where ``long_text="truncate"`` cuts longer texts. At the level of words, the longest
        window: a longer row is read in overlapping windows, and each word's vector comes from the window that gives it
        most context.
    long_text : {"auto", "truncate", "window"}, default="auto"
        What happens to a text that is longer, at the level of texts. "truncate" cuts it at its end, with one warning;
        "window", which "auto" is, reads all of it in overlapping windows, and takes the mean of their vectors.
    stride : int, optional
        Tokens from the start of a window to that of the next; None is half of ``max_length``.
    level : {"text", "word"}, default="text"
        What gets a vector: each text, or each word. A word's vector is that of its first piece (Devlin et al., 2018,
        section 5.3), and ``long_text`` and ``pooling`` are not used.
    layers : str, default="last"
        "embeddings", "second_to_last", "last", "sum_last_4", "concat_last_4" (four times as wide) or "sum_all". The
        paper's sums over layers are weighted, these are plain.
    pooling : {"mean", "cls"}, default="mean"
        At the level of texts, the mean over a text's tokens, special ones included, or the vector of its first token.
    normalize : bool, default=False
        Whether each vector is scaled to length 1, so that the dot product of two is the cosine of the angle between
        them: for search and clustering.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        What the model computes in; weights are always float32. "auto" is bfloat16 on a GPU or TPU, and with PyTorch on
        a CPU that has fast instructions for it, else float32.
    random_state : int, RandomState or None, default=None
        Seed of a random start.
    verbose : int, default=0
        1 shows a progress bar where `transform` takes more than a few seconds, and prints the report of `export`.

    Attributes
    ----------
    model_ : BertForFeatures
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    max_length_, long_text_
        What the parameter of that name was; what "auto" stood for.
    n_truncated_ : int
        Rows of the last fit that were cut; 0 at the level of words, where rows are read whole.
    n_rows_ : int
        Rows of X of the last fit.
    started_from_ : dict
        ``size``, ``weights`` and ``revision`` of the fit.
    row_shares_ : RowShares
        Of the last fit: the shares of rows that were ``cut`` and that were ``empty``. Predictions tell of such rows
        only where the share is much higher.
    n_features_in_ : int
        1 for single texts and rows of words, 2 for pairs.
    feature_names_in_ : ndarray of str
        Column names, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from kbert import BertVectorizer
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> pipeline = make_pipeline(BertVectorizer("minilm-l6"), LogisticRegression())
    >>> pipeline.fit(texts, labels).predict(["very good"]).tolist()
    ['pos']

    A vector for each word:

    >>> words = [["Ada", "lived", "in", "London"], ["It", "rains"]]
    >>> vectorizer = BertVectorizer("tiny", level="word", layers="sum_last_4")
    >>> [row.shape for row in vectorizer.fit_transform(words)]
    [(4, 128), (2, 128)]
    """

    model_: models.BertForFeatures

    _scores_rows = False

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        revision: str | None = None,
        max_length: str | int = "auto",
        long_text: str = "auto",
        stride: int | None = None,
        level: str = "text",
        layers: str = "last",
        pooling: str = "mean",
        normalize: bool = False,
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
        self.level = level
        self.layers = layers
        self.pooling = pooling
        self.normalize = normalize
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the weights. The texts are looked at for their columns and lengths, and for a random start's vocabulary.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
            With ``level="word"``, array-like of shape (n_rows,): lists of words, or texts.
        y : ignored
            But for a y that is a column of X, which is refused: what follows in a pipeline would read the answer there.

        Returns
        -------
        self
        """
        X, y = readable_again(X), readable_again(y)
        parameters = checked_parameters(self)
        require_backend()  # before weights are looked for, which may download them
        reader = self._row_reader()
        if self.level == "text" and y is not None:
            check_y_in_X(X, y, "estimator.fit")
        columns = reader.read(X)
        start = self._start(parameters, columns.texts())
        settle_lengths(parameters, reader, start.config)
        read = [RowsRead(X, columns, reader.cut_rows(columns, start.tokenizer))]
        shares = RowShares(tell_cut(reader, read), tell_missing(reader, read))
        seed, policy = draw_seed(parameters.random_state), dtype_policy(parameters.dtype)
        model = self._new_model(start, dtype=policy, seed=seed)
        fitted = self._without_fit()
        fitted._remember_columns(columns)
        self._remember_start(fitted, parameters)
        fitted.model_, fitted.tokenizer_, fitted.config_ = model, start.tokenizer, start.config
        fitted.max_length_, fitted.long_text_ = parameters.max_length, parameters.long_text
        fitted.n_rows_, fitted.n_truncated_, fitted.row_shares_ = columns.n_rows, len(read[0].cut), shares
        self._become(fitted)
        return self

    def _new_model(self, start: Start, **options: Any) -> models.BertForFeatures:
        return start.new_model(
            lambda: models.BertForFeatures(start.config, **self._choices(), **options),
            # No choice of layers reads the pooler.
            lambda model, folder, arrays: weights.load_encoder_weights(model.encoder, folder, arrays),
        )

    def _choices(self) -> dict[str, Any]:
        """How the parameters have a text's vector made."""
        pooling = None if self.level == "word" else self.pooling
        return {"layers": self.layers, "pooling": pooling, "normalize": bool(self.normalize)}

    def _with_layers(self, layers: str) -> Self:
        """This fitted vectorizer with another choice of layers of the same encoder."""
        other = self._of_one_fit()
        other._require_keras_model("another choice of layers")
        other.layers = layers
        other.model_ = models.BertForFeatures(self.config_, **other._choices(), encoder=self.model_.encoder)
        return other

    def _row_reader(self) -> Any:
        """What reads rows, with the present parameters."""
        return self._word_reader() if self.level == "word" else self._text_reader()

    def _text_reader(self) -> TextReader:
        """What reads texts, with the present parameters."""
        return task_of(TextReader, settled_values(vars(self)))

    def _word_reader(self) -> WordReader:
        """What reads rows of words, with the present parameters."""
        return task_of(WordReader, settled_values(vars(self)))

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray | pd.DataFrame | list[np.ndarray]:
        """`fit`, and then `transform` of the same rows."""
        return super().fit_transform(readable_again(X), y, **fit_params)

    @of_one_fit
    def transform(self, X: Any) -> np.ndarray | pd.DataFrame | list[np.ndarray]:
        """The vector of each row, or those of its words.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
            With ``level="word"``, array-like of shape (n_rows,): lists of words, or texts, whose words are those that
            ``tokenizer_.split_words`` gives.

        Returns
        -------
        ndarray of float32, shape (n_rows, n_features)
            ``hidden_size`` features, or four times as many with ``layers="concat_last_4"``. A DataFrame after
            ``set_output(transform="pandas")``, with the index of a Series or DataFrame X. With ``level="word"`` a list
            with one such array for each row, of shape (n_words, n_features).

        Raises
        ------
        ValueError
            For a table, which ``set_output`` asks for, of vectors of words: these are a list of arrays.
        """
        output = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        if self._is_of_words and output != "default":
            raise ValueError(
                'BertVectorizer: level="word" gives a list of arrays, one a row, and set_output asks for a table '
                f'({output!r}). Call set_output(transform="default"); np.concatenate joins the arrays of all rows.'
            )
        if self._is_of_words:
            words = self._columns_to_predict(self._word_reader(), X)
            with PredictionProgress(words.n_rows, self.verbose, "transform"):
                return self._word_vectors(words)
        reader, cut = self._text_reader(), list[np.ndarray]()
        texts = self._columns_to_predict(reader, X)
        with PredictionProgress(texts.n_rows, self.verbose, "transform"):
            vectors = self._text_vectors(texts, cut)
        self._tell_cut(reader, X, texts, cut)
        # scikit-learn makes the table; older versions do so without the index of a Series.
        return pd.DataFrame(vectors, index=row_index(X)) if output == "pandas" else vectors

    @property
    def _is_of_words(self) -> bool:
        """Whether the fitted model gives the vectors of words, whatever ``level`` was set to since."""
        return self.model_.choices["pooling"] is None

    def _parameters_of_fit(self) -> dict[str, Any]:
        choices = self.model_.choices
        if choices["pooling"] is None:  # no use is made of the parameter
            choices = {"layers": choices["layers"], "normalize": choices["normalize"], "level": "word"}
        else:
            choices = {**choices, "level": "text"}
        return super()._parameters_of_fit() | choices

    def _text_vectors(self, texts: TextColumns, cut: list[np.ndarray] | None = None) -> np.ndarray:
        """That of each row. The numbers of the rows that were cut are appended to ``cut``."""
        vectors = self._text_reader().predict(self.model_, self.tokenizer_, texts, cut)
        if self.model_.choices["normalize"]:
            # Again, since the mean over a row's windows is shorter than their vectors.
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SHORTEST)
        return vectors

    def _word_vectors(self, words: WordColumn) -> list[np.ndarray]:
        """Those of each row's words."""
        chunks = self._word_reader().predict(self.model_, self.tokenizer_, words)
        return [vectors for _, rows in chunks for vectors in rows]

    @property
    def _n_features_out(self) -> int:
        return self.model_.output_shape[-1]

    # --- Exporting ---------------------------------------------------------------------------------------------

    def _results(self, X: Any) -> tuple[np.ndarray, None, int]:
        vectors = self.transform(X)
        return np.concatenate(vectors) if isinstance(vectors, list) else vectors, None, len(vectors)

    # --- Saving ------------------------------------------------------------------------------------------------

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        if self._is_of_words:
            return np.concatenate(self._word_vectors(word_column(texts)))
        columns = TextColumns((texts,) * getattr(self, "n_features_in_", 1), None, 0)
        return self._text_vectors(columns)

    def _save_model(self, folder: Path) -> None:
        weights.save_encoder(self.model_.encoder, folder)

    def _exported_model(self, folder: Path, runtime: str, quantize: str | None) -> ExportedModel:
        return ExportedModel(folder, runtime, self.dtype, self._choices(), quantize)

    def _load_model(self, folder: Path, policy: str) -> models.BertForFeatures:
        tokenizer = WordPieceTokenizer.from_pretrained(folder)
        return self._new_model(Start(BertConfig.from_folder(folder), tokenizer, folder), dtype=policy)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = []
        return tags
