"""BertRegressor: texts, or pairs of texts, to numbers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags

from kbert.config import BertConfig
from kbert.data.frames import readable_again
from kbert.data.labels import sample_weights
from kbert.data.mistakes import warn_of_other_order
from kbert.estimators.base import of_one_fit
from kbert.estimators.explaining import new_explainer
from kbert.estimators.fine_tuned import FineTunedEstimator
from kbert.tasks import Regression

if TYPE_CHECKING:
    from kbert.model import BertForSequenceClassification


class BertRegressor(RegressorMixin, FineTunedEstimator[Regression]):
    """Fine-tuned BERT that gives one number, or several, for each text or pair of texts.

    y is learned with mean 0 and variance 1, so that its unit does not matter, and predicted in its own unit.

    Parameters
    ----------
    size : str or BertConfig, default="base"
        The architecture: "tiny", "mini", "small", "medium", "base", "large", "base-cased", "large-cased", "minilm-l6",
        or a `BertConfig` of your own; the hub name of one, such as "bert-base-uncased", is that size. On a CPU,
        "minilm-l6" is a good first choice: a token takes an eighth of the work that it takes in "base".
    weights : "auto", None, str or Path, default="auto"
        Where training starts. "auto": the released weights of that size. None: random weights, and a vocabulary that is
        learned from the training texts. Else a folder in the Hugging Face layout or a hub name; its own config then
        decides the architecture, and ``size`` is not used.
    revision : str, optional
        Branch, tag or commit of a hub repository; None takes its main branch.
    max_length : "auto" or int, default="auto"
        Longest sequence in tokens, special ones included. At most the positions of the model, 512 as a rule. "auto":
        up to 256 for windows, all positions where ``long_text="truncate"`` cuts longer texts. Shorter texts cost no
        more with a larger number.
    long_text : {"auto", "truncate", "window"}, default="auto"
        What happens to a longer text. "truncate" cuts its end (of a pair, the end of the longer text), with one
        warning. "window", which "auto" is, reads all of it in overlapping windows: each is trained on with the row's
        numbers and a weight of one over the number of the row's windows, and a row's prediction is the mean over its
        windows.
    stride : int, optional
        Tokens from the start of a window to the start of the next one; None is half of ``max_length``. A smaller stride
        gives each word more context, and takes longer.
    epochs : "auto" or int, default="auto"
        Passes over the training rows. "auto": 3; more where that is less than 80 updates, fewer beyond 390,000 rows.
    batch_size : "auto" or int, default="auto"
        Texts in an update. Each window of a long text counts as one. "auto": 32 as in the paper, and 16 where there are
        fewer than 1,000 rows.
    learning_rate : "auto", "paper" or float, default="auto"
        Peak of the schedule. "auto": 6e-4 for tiny, 2e-4 for mini, 1e-4 for small, medium and minilm-l6, 3e-5 for base,
        2e-5 for large. "paper": 1e-4 for tiny and mini, 5e-5 for small, medium and minilm-l6, else the same. The first
        parameter to search, by factors of 2 or 3.
    warmup : float or int, default=0.1
        Linear warm-up of the learning rate: a float is a share of all updates, an int a number of updates. The rate
        then falls linearly to 0.
    weight_decay : float, default=0.01
        Decoupled decay of all matrices and embedding tables (AdamW); biases and LayerNorm are not decayed.
    layer_decay : float, default=1.0
        Factor on the learning rate from each layer to the one below it. 1.0 trains all layers at the same rate; 0.9 to
        0.95 keeps the lower layers closer to the checkpoint.
    freeze : int, default=0
        Number n of layers that are not trained: the embeddings and the first n. 0 trains all. Frozen layers have no
        dropout, and are computed once for each text, also over the fits of a search in one process.
    classifier_pooling : {"auto", "cls", "mean"}, default="auto"
        The vector of a text that the head reads: the pooler's of [CLS], as in the paper, or the mean over the text's
        tokens. "auto" takes the one whose linear probe has the lower loss in a cross-validation on the training rows;
        where ``head_start="auto"`` starts at random, the mean, and "cls" from 2,000 pairs on; with ``warm_start`` what
        was read before. transformers' BERT knows "cls" alone.
    head_start : {"auto", "probe", "random"}, default="auto"
        Where the head starts. "probe": as a linear model that is fitted to the vectors of the encoder before that is
        trained (Kumar et al., 2022); up to 2,048 rows are looked at. "random": as in the paper, which reads [CLS] where
        ``classifier_pooling="auto"``. "auto" is "probe"; but with pairs of texts "random", unless the linear model
        takes a quarter of a constant predictor's loss away, in the cross-validation.
    dropout : float, optional
        Rate in hidden states, attention and classifier. None takes the checkpoint's, and with ``warm_start`` that of
        the fit before.
    bias_correction : bool, default=True
        Whether Adam corrects its bias. The original BERT code does not, which makes small data sets unstable (Mosbach
        et al., 2021).
    gradient_accumulation : int, default=1
        Number of batches of which one update is made, the same as that of one large batch: for larger updates than
        memory has room for.
    early_stopping : bool, default=False
        Whether to split off a validation set, take the score on it after each epoch, stop when it has not improved for
        ``n_iter_no_change`` epochs, and restore the best weights. Of equal scores the one with the lower loss is
        better. The score is R².
    validation_fraction : float, default=0.1
        Share of the rows that is split off for ``early_stopping``. Not used when ``fit`` is given an ``eval_set``,
        which then serves as the validation set.
    n_iter_no_change : int, default=2
        Epochs without a better score after which ``early_stopping`` ends the training.
    n_restarts : int, default=0
        How often a failed run is started again with another seed. A run has failed when the trained model's loss on
        training rows is no lower than the variance of y, and its numbers hardly correlate with y. Each failed run is
        warned of.
    warm_start : bool, default=False
        Whether a further ``fit``, or one after ``load``, starts from the present weights, with the same tokenizer: for
        more data or more epochs. The optimiser and the learning rate start anew. Otherwise every ``fit`` starts from
        ``weights``.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        What the model computes in; weights are always float32. "auto" is bfloat16 on a GPU or TPU, and with PyTorch on
        a CPU that has fast instructions for it, else float32.
    distribution : "auto", None or a distribution, default="auto"
        The devices that share each batch. "auto": all that JAX or TensorFlow sees, and on PyTorch those of the
        processes that torchrun has started; None: one. Of your own: a ``keras.distribution.DataParallel`` or
        ``ModelParallel`` on JAX, a ``tf.distribute.MirroredStrategy`` on TensorFlow. See docs/howto/several_devices.md.
    checkpoint : str or Path, optional
        A folder of this fit alone. It is written to at the end of each epoch and every five minutes; a fit that was
        killed goes on from there when it is started again with the same data and parameters, and ends at the same
        weights. It takes six times the disk space of the weights. See docs/howto/fits_that_survive.md.
    random_state : int, RandomState or None, default=None
        Seed of the head, the order of the rows, the dropout and the validation set.
    verbose : int, default=0
        1 prints what "auto" stood for and a line for each epoch, and shows a progress bar with the loss, rows a second
        and the time left. A prediction of more than a few seconds shows a bar too. Larger numbers mean the same.

    Attributes
    ----------
    model_ : BertForSequenceClassification
        The trained Keras model; its outputs are in the unit of y.
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    y_mean_, y_scale_ : ndarray of shape (n_columns,)
        Mean and standard deviation of y, weighted as the rows are.
    y_columns_ : list of str or int, or None
        The columns of y, when ``fit`` was given a DataFrame.
    y_ndim_ : int
        1 when y had one dimension, as predictions then have; else 2.
    history_ : dict of list
        Of the last fit: ``loss`` (mean squared error over the training texts, in units of the variance of y), and with
        a validation set ``val_loss`` and ``val_score``: one value an epoch. ``update_loss`` holds, for each epoch, the
        list of the losses of its updates, NaN for those that were skipped; `kbert.plots.TrainingDisplay` draws it.
    n_iter_ : int
        Epochs that the last fit ran.
    max_length_, long_text_, epochs_, batch_size_, learning_rate_, head_start_
        What the parameters of these names were in the last fit: what "auto" stood for.
    n_truncated_ : int
        Rows of X of the last fit that were cut: those of `fit`'s warning, without its ``eval_set``.
    n_rows_ : int
        Rows of X of the last fit.
    started_from_ : dict
        ``size``, ``weights`` and ``revision`` of the fit; in a warm start of the first one.
    row_shares_ : RowShares
        Of the last fit: the shares of rows that were ``cut`` and that were ``empty``. Predictions tell of such rows
        only where the share is much higher.
    n_features_in_ : int
        1 for single texts, 2 for pairs.
    feature_names_in_ : ndarray of str
        Column names, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> from kbert import BertRegressor
    >>> pairs = [("a cat", "a kitten"), ("a dog", "a train")] * 20
    >>> regressor = BertRegressor("minilm-l6", epochs=10, random_state=0)
    >>> regressor = regressor.fit(pairs, [4.5, 0.5] * 20)
    >>> near, far = regressor.predict(pairs[:2])
    >>> print(near > far)
    True
    """

    model_: BertForSequenceClassification
    y_mean_: np.ndarray
    y_scale_: np.ndarray
    y_columns_: list[str | int] | None
    y_ndim_: int

    _task_type = Regression

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        revision: str | None = None,
        max_length: str | int = "auto",
        long_text: str = "auto",
        stride: int | None = None,
        epochs: str | int = "auto",
        batch_size: str | int = "auto",
        learning_rate: str | float = "auto",
        warmup: float | int = 0.1,
        weight_decay: float = 0.01,
        layer_decay: float = 1.0,
        freeze: int = 0,
        classifier_pooling: str = "auto",
        head_start: str = "auto",
        dropout: float | None = None,
        bias_correction: bool = True,
        gradient_accumulation: int = 1,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        n_restarts: int = 0,
        warm_start: bool = False,
        dtype: str = "auto",
        distribution: Any = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
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
        self.classifier_pooling = classifier_pooling
        self.head_start = head_start
        self.dropout = dropout
        self.bias_correction = bias_correction
        self.gradient_accumulation = gradient_accumulation
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_restarts = n_restarts
        self.warm_start = warm_start
        self.dtype = dtype
        self.distribution = distribution
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    # --- Fitting ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: tuple[Any, Any] | None = None,
        callbacks: Any = None,
    ) -> Self:
        """Fine-tune on texts and their numbers.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
            Texts: a Series, list or array; or pairs: a DataFrame of two columns, or a list of pairs.
        y : array-like of float, shape (n_rows,) or (n_rows, n_columns)
            One number for each row, or several, in any unit.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss, and in the score of the validation set. Only the ratios count.
        eval_set : tuple (X, y), optional
            The validation set: loss and score are taken on it after each epoch. ``early_stopping`` uses it instead of
            rows that are split off.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model, whose outputs are still of mean 0 and variance 1:
            ``y_mean_ + y_scale_ * output`` is in the unit of y. ``model.optimizer.learning_rate`` follows the schedule
            until a callback sets it.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For rows, numbers or parameters that cannot be used; the message names them. A text or column name with a
            lone surrogate, half of a character, is one.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        DivergedError
            When several updates in a row are not finite, or the trained model's outputs are not.
        """
        self._fit(X, y, sample_weight, eval_set, callbacks)
        return self

    # --- Predicting ------------------------------------------------------------------------------------------------

    @of_one_fit
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
        DivergedError
            When the model's outputs are not finite.
        """
        outputs = self._outputs(X).astype("float64")
        return self._task().decode(outputs)

    @of_one_fit
    def explain(
        self, X: Any, *, unit: str = "word", method: str = "integrated_gradients", n_steps: int | None = None
    ) -> pd.DataFrame:
        """How much each word of a row raises the number, or lowers it.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
        unit : {"word", "sentence"}, default="word"
            Whether a line is a word or a sentence, whose score is the sum of its words'.
        method : {"integrated_gradients", "shapley", "gradient_x_input"}, default="integrated_gradients"
            "shapley" takes words away in random orders; its time grows with the square of a
            row's length. "gradient_x_input" takes one point in the place of ``n_steps``; its scores do not add up, and
            choose words badly.
        n_steps : int, optional
            Points at which the derivative is taken, 32 by default, or orders of "shapley", 10 by default; at least 2.
            Time grows with it. With more points scores add up more nearly; with more orders they are nearer to the mean
            over all orders.

        Returns
        -------
        DataFrame
            A line for each word of each row, in order: ``row`` (position in X, from 0), ``column`` (of pairs: which of
            the two texts), ``word`` (as the text has it), ``start`` and ``end`` (characters in its text, end
            exclusive), ``label`` (which column of y, by its name or number) and ``score``, in the unit of y. The scores
            of a row add up to the difference of its number and that of the same row with [PAD] for every word. Words
            that were cut off have the score 0. With ``unit="sentence"`` the column ``word`` is ``sentence``. Where X is
            a Series or DataFrame, the index of a line is that of its row in X.

        Raises
        ------
        ValueError, TypeError
            For rows and parameters that cannot be used; the message names them.
        DivergedError
            When the model's outputs are not finite.

        Warns
        -----
        IncompleteWarning
            If scores are further off their sum than 5% of their sizes.

        Notes
        -----
        Integrated gradients (Sundararajan, Taly and Yan, 2017) over the word embeddings, from a text whose words are
        all [PAD]; [CLS] and [SEP] stay, and have no score. Shapley values have the same baseline.
        docs/howto/explain.md says why, docs/benchmarks/explanations.md how well each does.
        """
        explainer = new_explainer(self.model_, self.tokenizer_, unit, method, n_steps)
        task, columns = self._read(X)
        return self._explained_texts(explainer, X, task, columns, task.chosen_outputs(None, columns.n_rows), unit)

    @of_one_fit
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², the mean over the columns.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
        y : array-like of shape (n_rows,) or (n_rows, n_columns)
            As in ``fit``; the columns of a DataFrame are found by their names.
        sample_weight : array-like of shape (n_rows,), optional
        """
        warn_of_other_order(X, y)
        X, task = readable_again(X), self._task()
        numbers = task.read_labels(readable_again(y), self._columns_of_fit(task, X))
        weights = sample_weights(sample_weight, len(numbers))
        return float(r2_score(numbers, np.reshape(self.predict(X), numbers.shape), sample_weight=weights))

    # --- Exporting -------------------------------------------------------------------------------------------------

    def _results(self, X: Any) -> tuple[np.ndarray, None, int]:
        numbers = self.predict(X)
        return numbers, None, len(numbers)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
