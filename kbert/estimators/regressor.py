"""BertRegressor: texts, or pairs of texts, to numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from kbert.config import BertConfig, read_config_json
from kbert.data.labels import sample_weights
from kbert.errors import WeightsMismatchError
from kbert.estimators.fitting import Rows
from kbert.estimators.regression_task import RegressionTask
from kbert.estimators.sequence import SequenceEstimator
from kbert.model import BertForSequenceClassification


class BertRegressor(RegressorMixin, SequenceEstimator):
    """Fine-tuned BERT that gives one number, or several, for each text or pair of texts.

    y is learned with mean 0 and variance 1, so that its unit does not matter, and predicted in its own unit.

    Parameters
    ----------
    size : str or BertConfig, default="base"
        The architecture: "tiny", "mini", "small", "medium", "base", "large", "base-cased", "large-cased", "minilm-l6",
        or one of your own.
    weights : "auto", None, str or Path, default="auto"
        "auto" is the released weights of that size; None a random start, with a vocabulary learned from the training
        texts; else a folder in the Hugging Face layout or a hub name, whose own config then wins over ``size``.
    revision : str, optional
        Branch, tag or commit of a hub repository.
    max_length : int, default=128
        Longest sequence in tokens, special ones included.
    long_text : {"truncate", "window"}, default="truncate"
        What happens to a text that is longer. "truncate" cuts it at its end (of a pair, the longer text first), with
        one warning. "window" reads all of it in overlapping windows: each is trained on with the row's numbers and a
        weight of one over the number of the row's windows, and a row's prediction is the mean of its windows'.
    stride : int, optional
        Tokens from the start of a window to that of the next; None is half of ``max_length``.
    epochs : int, default=3
        Passes over the training rows.
    batch_size : int, default=32
        Texts a step; a window counts as a text.
    learning_rate : "auto" or float, default="auto"
        Peak of the schedule. "auto": 1e-4 for tiny and mini, 5e-5 for small, medium and minilm-l6, 3e-5 for base,
        2e-5 for large.
    warmup : float or int, default=0.1
        Linear warm-up: a float is a share of all steps, an int a number of steps. The rate then falls linearly to 0.
    weight_decay : float, default=0.01
        Decoupled decay of all matrices and embedding tables; biases and LayerNorm are not decayed.
    layer_decay : float, default=1.0
        Factor on the learning rate from each layer to the one below.
    freeze : int, default=0
        n: the embeddings and the first n layers are not trained. 0 trains all.
    dropout : float, optional
        Rate in hidden states, attention and classifier; None takes the checkpoint's, and with ``warm_start`` that of
        the fit before.
    bias_correction : bool, default=True
        Adam's bias correction; the original BERT code has none, which makes small data sets unstable (Mosbach et al.,
        2021).
    gradient_accumulation : int, default=1
        Batches whose gradients are averaged into one update.
    early_stopping : bool, default=False
        Set rows aside, watch the score on them after each epoch (of equal ones, the lower loss is better), stop when it
        has not become better for ``n_iter_no_change`` epochs, and restore the best weights. The score is R².
    validation_fraction : float, default=0.1
        Share of the rows set aside. Not used when ``fit`` is given an ``eval_set``, which is then watched.
    n_iter_no_change : int, default=2
    n_restarts : int, default=0
        How often a run that collapsed is started again with another seed. A run has collapsed when at its end the
        loss is the variance of y, and all rows get nearly the same number. A warning tells of each.
    warm_start : bool, default=False
        Whether a further ``fit`` (or one after ``load``) goes on from the weights it finds, with the same tokenizer,
        for more data or more epochs; the optimiser and the learning rate start anew. Otherwise every
        ``fit`` starts from ``weights``.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Of the computation; weights are float32. "auto" is float32 on a CPU, bfloat16 on a GPU or TPU.
    random_state : int, RandomState or None, default=None
        Seed of the head, the batches and the dropout.
    verbose : int, default=0
        1 shows a progress bar with the loss, rows per second and the time left.

    Attributes
    ----------
    model_ : BertForSequenceClassification
        The trained Keras model; its outputs are in the unit of y.
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    y_mean_, y_scale_ : ndarray of shape (n_columns,)
        Mean and standard deviation of y in the training rows.
    y_columns_ : list of str or int, or None
        The columns of y, when ``fit`` was given a DataFrame.
    y_ndim_ : int
        1 when y had one dimension, as predictions then have; else 2.
    history_ : dict of list of float
        Of the last fit: ``loss`` (mean squared error over the training texts, in units of the variance of y), and with
        an ``eval_set`` or early stopping ``val_loss`` and ``val_score``: one value an epoch.
    n_iter_ : int
        Epochs that the last fit ran.
    n_features_in_ : int
        1 for single texts, 2 for pairs.
    feature_names_in_ : ndarray of str
        Column names, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> from kbert import BertRegressor
    >>> regressor = BertRegressor(size="minilm-l6", random_state=0)
    >>> regressor.fit(df[["sentence1", "sentence2"]], df.similarity).predict([("a cat", "a kitten")])
    array([3.9])
    """

    y_mean_: np.ndarray
    y_scale_: np.ndarray
    y_columns_: list[str | int] | None
    y_ndim_: int

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike | None = "auto",
        revision: str | None = None,
        max_length: int = 128,
        long_text: str = "truncate",
        stride: int | None = None,
        epochs: int = 3,
        batch_size: int = 32,
        learning_rate: str | float = "auto",
        warmup: float | int = 0.1,
        weight_decay: float = 0.01,
        layer_decay: float = 1.0,
        freeze: int = 0,
        dropout: float | None = None,
        bias_correction: bool = True,
        gradient_accumulation: int = 1,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        n_restarts: int = 0,
        warm_start: bool = False,
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
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.layer_decay = layer_decay
        self.freeze = freeze
        self.dropout = dropout
        self.bias_correction = bias_correction
        self.gradient_accumulation = gradient_accumulation
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_restarts = n_restarts
        self.warm_start = warm_start
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    # --- Fitting -----------------------------------------------------------------------------------------------

    def _read_task(self, y: Any, n_rows: int) -> tuple[RegressionTask, np.ndarray]:
        return RegressionTask.read(y, n_rows)

    def _task(self) -> RegressionTask:
        return RegressionTask(len(self.y_mean_), self.y_ndim_ == 1, self.y_columns_, self.y_mean_, self.y_scale_)

    def _finish(self, model: BertForSequenceClassification, task, held_out: Rows | None, pad_id: int) -> dict[str, Any]:
        return {
            "y_mean_": task.mean,
            "y_scale_": task.scale,
            "y_columns_": task.column_names,
            "y_ndim_": 1 if task.flat else 2,
        }

    # --- Predicting --------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """The number, or the numbers, of each row.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of float64, shape (n_rows,) or (n_rows, n_columns)
            As y of ``fit`` had one dimension or two.

        Raises
        ------
        ValueError, TypeError
            For rows that cannot be used; the message names them. A text with a lone surrogate, half of a character, is
            one.
        """
        outputs = self._predict_logits(X).astype("float64")
        return outputs[:, 0] if self.y_ndim_ == 1 else outputs

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², the mean over the columns.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
        y : array-like of shape (n_rows,) or (n_rows, n_columns)
            As in ``fit``; the columns of a DataFrame are found by their names.
        sample_weight : array-like of shape (n_rows,), optional
        """
        outputs = self._predict_logits(X).astype("float64")
        numbers = self._task().encode(y, len(outputs), "y")
        return float(r2_score(numbers, outputs, sample_weight=sample_weights(sample_weight, len(outputs))))

    # --- Exporting ---------------------------------------------------------------------------------------------

    def _results(self, X: Any) -> tuple[np.ndarray, None, int]:
        numbers = self.predict(X)
        return numbers, None, len(numbers)

    # --- Saving ------------------------------------------------------------------------------------------------

    _transformers_model = "BertForSequenceClassification"

    def _learned_to_json(self) -> dict:
        return {
            "mean": self.y_mean_.tolist(),
            "scale": self.y_scale_.tolist(),
            "columns": self.y_columns_,
            "ndim": self.y_ndim_,
        }

    def _learned_from_json(self, values: dict, folder: Path) -> None:
        self.y_mean_, self.y_scale_ = np.array(values["mean"]), np.array(values["scale"])
        self.y_columns_, self.y_ndim_ = values["columns"], values["ndim"]
        if len(self.y_mean_) != self.model_.num_labels:
            raise WeightsMismatchError(
                f"{folder} holds {len(self.y_mean_)} columns of numbers and a head of {self.model_.num_labels} outputs."
            )

    def _learned_from_config(self, folder: Path) -> None:
        problem_type = read_config_json(folder).get("problem_type")
        n_outputs = self.model_.num_labels
        if problem_type not in (None, "regression") or (problem_type is None and n_outputs > 1):
            raise WeightsMismatchError(
                f"{folder} holds a model with {n_outputs} outputs and problem_type={problem_type!r}, which is no "
                "regression; load it with kbert.BertClassifier.load."
            )
        self.y_mean_, self.y_scale_ = np.zeros(n_outputs), np.ones(n_outputs)
        self.y_columns_, self.y_ndim_ = None, 1 if n_outputs == 1 else 2

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
