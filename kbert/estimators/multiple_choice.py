"""BertMultipleChoice: which of several options follows from a context and a question."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from scipy.special import softmax

from kbert.config import BertConfig
from kbert.data.choices import ChoiceColumns, option_indices
from kbert.data.frames import readable_again
from kbert.data.labels import sample_weights
from kbert.data.mistakes import warn_of_other_order
from kbert.estimators.base import of_one_fit
from kbert.estimators.explaining import new_explainer, whole_numbers
from kbert.estimators.fine_tuned import FineTunedEstimator
from kbert.tasks import Choice

if TYPE_CHECKING:
    from kbert.model import BertForSequenceClassification


# No ClassifierMixin: the labels of a classifier mean the same in every row, and an index means whatever stands there in
# that row. scikit-learn would stratify folds by the index, and ask for the `classes_` that columns of predict_proba
# stand for. Without it, folds are plain ones, and scorers that take predictions ("accuracy") work.
class BertMultipleChoice(FineTunedEstimator[Choice]):
    """Fine-tuned BERT that chooses one of several options, as for SWAG: any number of them, which may vary by row.

    Each option is read together with its row's context and question, as "[CLS] context [SEP] question option [SEP]",
    and gets a score. The probabilities of a row's options are the softmax over their scores.

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
        Longest sequence in tokens, special ones included; "auto" is the positions of the model, 512 as a rule. A longer
        one loses tokens from its end, the context's or those of question and option, whichever has more; one warning
        tells how many rows this happened to.
    epochs : "auto" or int, default="auto"
        Passes over the training rows. "auto": 3; more where that is less than 80 updates, fewer beyond 196,000 rows.
    batch_size : "auto" or int, default="auto"
        Rows in a batch, each with all of its options. "auto": 16, as in the paper for SWAG.
    learning_rate : "auto", "paper" or float, default="auto"
        Peak of the schedule. "auto" with more than 500 rows: 3e-4 for tiny, 1e-4 for mini, 5e-5 for small, medium and
        minilm-l6, 3e-5 for base, 2e-5 for large; with fewer rows four times that for models narrower than base.
        "paper": 1e-4 for tiny and mini, else as with many rows. The first parameter to search, by factors of 2 or 3.
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
        The vector of an option, with its context and question, that the head reads: the pooler's of [CLS], as in the
        paper, or the mean over the tokens. "auto" is the mean for models narrower than base, else [CLS]; with
        ``warm_start`` the head reads what it read before. transformers' BERT knows "cls" alone.
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
        Whether to split off a validation set, take the accuracy on it after each epoch, stop when it has not improved
        for ``n_iter_no_change`` epochs, and restore the best weights. Of equal scores the one with the lower loss is
        better.
    validation_fraction : float, default=0.1
        Share of the rows that is split off for ``early_stopping``. Not used when ``fit`` is given an ``eval_set``,
        which then serves as the validation set.
    n_iter_no_change : int, default=2
        Epochs without a better score after which ``early_stopping`` ends the training.
    n_restarts : int, default=0
        How often a failed run is started again with another seed. A run has failed when the trained model's loss on
        training rows is no lower than that of guessing, and ranks the options as by chance. Each failed run is warned
        of.
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
        The trained Keras model, with one output: the score of an option.
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    history_ : dict of list
        Of the last fit: ``loss`` (mean over the training rows), and with a validation set ``val_loss`` and
        ``val_score``: one value an epoch. ``update_loss`` holds, for each epoch, the list of the losses of its updates,
        NaN for those that were skipped; `kbert.plots.TrainingDisplay` draws it.
    n_iter_ : int
        Epochs that the last fit ran.
    max_length_, epochs_, batch_size_, learning_rate_
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
        2 for contexts and options, 3 with questions.
    feature_names_in_ : ndarray of str
        The names of these columns, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from kbert import BertMultipleChoice
    >>> df = pd.DataFrame({
    ...     "context": ["Mia took the train.", "Ben took the bus."] * 20,
    ...     "question": ["How did Mia travel?", "How did Ben travel?"] * 20,
    ...     "options": [["by bus", "by train"]] * 40,
    ...     "label": [1, 0] * 20,
    ... })
    >>> chooser = BertMultipleChoice(
    ...     "minilm-l6", epochs=10, learning_rate=5e-4, random_state=0
    ... ).fit(df, df.label)
    >>> chooser.predict(df[:2])
    array([1, 0])
    """

    model_: BertForSequenceClassification

    _task_type = Choice
    _batch_of_paper = 16
    _columns_are = "context and options, or context, question and options"

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        revision: str | None = None,
        max_length: str | int = "auto",
        epochs: str | int = "auto",
        batch_size: str | int = "auto",
        learning_rate: str | float = "auto",
        warmup: float | int = 0.1,
        weight_decay: float = 0.01,
        layer_decay: float = 1.0,
        freeze: int = 0,
        classifier_pooling: str = "auto",
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
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.layer_decay = layer_decay
        self.freeze = freeze
        self.classifier_pooling = classifier_pooling
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
        """Fine-tune on contexts, questions and options, and the right ones among these.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2) or (n_rows, 3)
            A DataFrame with the columns context, options (a list of str in each row) and, if there are questions,
            question; others are passed over. Or columns in this order: tuples (context, options) or (context, question,
            options). A missing context or question is an empty text.
        y : array-like of int, shape (n_rows,)
            The index of the right option, from 0.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss. Only the ratios count.
        eval_set : tuple (X, y), optional
            The validation set: loss and accuracy are taken on it after each epoch. ``early_stopping`` uses it instead
            of rows that are split off.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model. ``model.optimizer.learning_rate`` follows the
            schedule until a callback sets it.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For rows, indices or parameters that cannot be used; the message names them. A text with a lone
            surrogate, half of a character, is one.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        DivergedError
            When several updates in a row are not finite, or the trained model's outputs are not.
        """
        self._fit(X, y, sample_weight, eval_set, callbacks)
        return self

    # --- Predicting ------------------------------------------------------------------------------------------------

    @of_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each option to be the right one.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2) or (n_rows, 3)
            As in `fit`.

        Returns
        -------
        ndarray of float64, shape (n_rows, most options)
            Those of a row's own options add up to 1; past these, where another row has more, there is NaN.
        """
        logits = self._outputs(X).astype("float64")
        return np.where(logits == -np.inf, np.nan, softmax(logits, axis=1))

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The index of each row's most probable option.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2) or (n_rows, 3)
            As in `fit`.

        Returns
        -------
        ndarray of int64, shape (n_rows,)

        Raises
        ------
        ValueError, TypeError
            For rows that cannot be used; the message names them. A text with a lone surrogate, half of a character, is
            one.
        DivergedError
            When the model's outputs are not finite.
        """
        return self._outputs(X).argmax(axis=1).astype("int64")

    @of_one_fit
    def explain(
        self,
        X: Any,
        option: Any = None,
        *,
        unit: str = "word",
        method: str = "integrated_gradients",
        n_steps: int | None = None,
    ) -> pd.DataFrame:
        """How much each word of context, question and option speaks for an option, or against it.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2) or (n_rows, 3)
            As in `fit`.
        option : int, or array-like of int, shape (n_rows,), optional
            The index of one option, or one for each row: ``option=chooser.predict(X)`` explains what was predicted.
            None: every option, which takes as many times as long.
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
            A line for each word of each option of each row, in order: ``row`` (position in X, from 0), ``column``
            (context, question or options), ``word`` (as the text has it), ``start`` and ``end`` (characters in its
            text, end exclusive), ``label`` (the index of the option, whose own words stand under "options") and
            ``score``. The scores of a row and an option add up to the difference of the option's logit between the row
            and the same row with [PAD] for every word. Words that were cut off have the score 0. With
            ``unit="sentence"`` the column ``word`` is ``sentence``. Where X is a DataFrame, the index of a line is that
            of its row in X.

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
        wanted = None if option is None else whole_numbers(option, columns.n_rows, "option")
        return self._explained_texts(explainer, X, task, columns, wanted, unit)

    @of_one_fit
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of rows whose right option is the most probable one.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2) or (n_rows, 3)
            As in `fit`.
        y : array-like of int, shape (n_rows,)
            The index of the right option, from 0.
        sample_weight : array-like of shape (n_rows,), optional
        """
        warn_of_other_order(X, y)
        X = readable_again(X)
        n_options = np.array([len(options) for options in self._columns_of_fit(self._task(), X).options])
        right = self.predict(X) == option_indices(readable_again(y), n_options)
        return float(np.average(right, weights=sample_weights(sample_weight, len(right))))

    # --- Saving ----------------------------------------------------------------------------------------------------

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        options = [[text, other] for text, other in zip(texts, reversed(texts), strict=True)]
        questions = texts if getattr(self, "n_features_in_", 2) == 3 else None
        columns = ChoiceColumns(texts, questions, options)
        return self._task().predict(self.model_, self.tokenizer_, columns)
