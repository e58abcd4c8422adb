"""BertClassifier: texts, or pairs of texts, to labels: one for each row, or several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from kbert.config import BertConfig
from kbert.config_json import read_config_json
from kbert.data.frames import readable_again, row_index
from kbert.data.label_sets import kind_of_labels
from kbert.data.labels import sample_weights
from kbert.data.mistakes import warn_of_other_order
from kbert.estimators.base import of_one_fit
from kbert.estimators.explaining import new_explainer
from kbert.estimators.fine_tuned import FineTunedEstimator
from kbert.estimators.parameters import Parameters
from kbert.tasks import SeveralLabels, SingleLabel, task_of
from kbert.values.saved import SavedValues, one_of

if TYPE_CHECKING:
    from kbert.model import BertForSequenceClassification


class BertClassifier(ClassifierMixin, FineTunedEstimator[SingleLabel | SeveralLabels]):
    """Fine-tuned BERT that classifies texts or pairs of texts.

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
        label and a weight of one over the number of the row's windows, and a row's logits are the mean over its
        windows.
    stride : int, optional
        Tokens from the start of a window to the start of the next one; None is half of ``max_length``. A smaller stride
        gives each word more context, and takes longer.
    epochs : "auto" or int, default="auto"
        Passes over the training rows. "auto": 3; more where that is less than 80 updates, fewer beyond 390,000 rows.
        With ``few_labels`` 1; more where that is less than 16 updates.
    batch_size : "auto" or int, default="auto"
        Texts in an update. Each window of a long text counts as one. "auto": 32 as in the paper, and 16 where there are
        fewer than 1,000 rows; at least 64 with ``few_labels`` and more than eight classes.
    learning_rate : "auto", "paper" or float, default="auto"
        Peak of the schedule. "auto": 3e-4 for tiny, 1e-4 for mini, 5e-5 for small, medium and minilm-l6, 3e-5 for base,
        2e-5 for large; twice that for narrower models than base where ``head_start="auto"`` starts the head of pairs
        at random (not in a warm start), and four times that with ``few_labels``. "paper": the same without these
        factors, and 1e-4 for tiny. The first parameter to search, by factors of 2 or 3.
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
        and the mean where ``head_start="auto"`` starts at random; with ``warm_start`` what was read before.
        transformers' BERT knows "cls" alone.
    head_start : {"auto", "probe", "random"}, default="auto"
        Where the head starts. "probe": as a linear model that is fitted to the vectors of the encoder before that is
        trained (Kumar et al., 2022); up to 2,048 rows are looked at. "random": as in the paper, which reads [CLS] where
        ``classifier_pooling="auto"``. "auto" is "probe"; but with pairs of texts "random", unless the linear model
        takes a quarter of a constant predictor's loss away, in the cross-validation.
    few_labels : bool, default=False
        For some 8 or 16 rows a class: instead of classifying, training brings the vectors of rows of the same class
        together and those of other classes apart (Khosla et al., 2020; Tunstall et al., 2022, "SetFit"), and the head
        is then fitted to the vectors, as with ``head_start="probe"``. With up to some eight classes it takes a fraction
        of the time. One label a row.
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
        better. The score is the accuracy; with several labels a row, the average precision over all pairs of row and
        label, which needs no threshold.
    validation_fraction : float, default=0.1
        Share of the rows that is split off for ``early_stopping``, ``calibrate`` and ``tune_thresholds``, stratified by
        label (of several labels, the rarest). Not used when ``fit`` is given an ``eval_set``, which then serves as the
        validation set.
    n_iter_no_change : int, default=2
        Epochs without a better score after which ``early_stopping`` ends the training.
    class_weight : "balanced", dict or None, default=None
        Weight of each class in the loss, as in scikit-learn. Score and loss of the validation set, temperature and
        thresholds are taken without it. With several labels a row, "balanced" weighs the yes and the no of each label
        as if it were a classification of its own, and a dict gives the weight of a label's yes.
    calibrate : {None, "temperature"}, default=None
        "temperature" divides the logits by one number, with which the loss of the validation set is low (Guo et al.,
        2017): the lowest, if there are many rows, and with a handful of them one nearer to 1.5. The head's weights are
        divided by it, so that saved and exported models have it too. The most probable label stays the same.
    tune_thresholds : bool, default=False
        With several labels a row: whether each label gets the threshold on its probability with the highest F1 on the
        validation set, instead of 0.5; labels that fewer than five of these rows have are warned of. Without it the
        thresholds are lowered only where 0.5 would leave the training rows less than half of their labels, and some of
        these rows have none: to the highest F1 on these rows, for labels that at least five of them have; rarer ones
        share a threshold if they have 20. A dict as ``class_weight`` keeps 0.5.
    n_restarts : int, default=0
        How often a failed run is started again with another seed. A run has failed when the trained model's loss on
        training rows is no lower than that of knowing only how often each label occurs, and ranks them as by chance.
        That happens on small data sets with large models (Mosbach et al., 2021, call it a degenerate run). Each failed
        run is warned of.
    warm_start : bool, default=False
        Whether a further ``fit``, or one after ``load``, starts from the present weights, with the same tokenizer and
        classes: for more data or more epochs. The optimiser and the learning rate start anew. Otherwise every ``fit``
        starts from ``weights``.
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
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; of an indicator matrix the names of its columns, or their numbers.
    y_type_ : {"labels", "indicator", "lists"}
        One label for each row, or several as an indicator matrix or as lists: what `predict` gives.
    thresholds_ : ndarray of shape (n_classes,)
        With several labels a row: the probability from which on a row has the label. It may be set, also to a list, a
        number, or a dict or Series by label.
    at_least_one_ : bool
        With several labels a row: whether each row of ``fit`` had one. Then each row gets one when predicting too: the
        label that comes nearest to its threshold, where none reaches it.
    temperature_ : float
        What the logits were divided by; 1.0 without ``calibrate``.
    model_ : BertForSequenceClassification
        The trained Keras model.
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    history_ : dict of list
        Of the last fit: ``loss`` (mean over the training texts), and with a validation set ``val_loss`` and
        ``val_score``: one value an epoch. ``update_loss`` holds, for each epoch, the list of the losses of its updates,
        NaN for those that were skipped; `kbert.plots.TrainingDisplay` draws it.
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
    >>> import pandas as pd
    >>> from kbert import BertClassifier
    >>> rows = {"text": ["so good", "so bad"] * 20, "label": ["pos", "neg"] * 20}
    >>> df = pd.DataFrame(rows)
    >>> classifier = BertClassifier(size="minilm-l6", random_state=0).fit(df.text, df.label)
    >>> classifier.predict(["very good"]).tolist()
    ['pos']
    """

    classes_: np.ndarray
    model_: BertForSequenceClassification

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
        few_labels: bool = False,
        dropout: float | None = None,
        bias_correction: bool = True,
        gradient_accumulation: int = 1,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        class_weight: str | dict[Any, float] | None = None,
        calibrate: str | None = None,
        tune_thresholds: bool = False,
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
        self.few_labels = few_labels
        self.dropout = dropout
        self.bias_correction = bias_correction
        self.gradient_accumulation = gradient_accumulation
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.tune_thresholds = tune_thresholds
        self.n_restarts = n_restarts
        self.warm_start = warm_start
        self.dtype = dtype
        self.distribution = distribution
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    # --- Its task --------------------------------------------------------------------------------------------------

    @property
    def _task_type(self) -> type[SingleLabel] | type[SeveralLabels]:
        return SingleLabel if getattr(self, "y_type_", "labels") == "labels" else SeveralLabels

    def _new_task(self, parameters: Parameters, y: Any) -> SingleLabel | SeveralLabels:
        if y is None or kind_of_labels(y) == "labels":
            return task_of(SingleLabel, vars(parameters))
        return task_of(SeveralLabels, vars(parameters))

    def _learned_from_json(self, values: SavedValues, folder: Path) -> None:
        self.y_type_ = values.checked("y_type", one_of("labels", "indicator", "lists"))  # the task depends on it
        super()._learned_from_json(values, folder)

    def _learned_from_config(self, folder: Path) -> None:
        several = read_config_json(folder).get("problem_type") == SeveralLabels.problem_type
        self.y_type_ = "indicator" if several else "labels"
        super()._learned_from_config(folder)

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
        """Fine-tune on texts and their labels.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
            Texts: a Series, list or array; or pairs: a DataFrame of two columns, or a list of pairs.
        y : array-like
            One label for each row: strings, whole numbers or booleans, categorical and nullable dtypes included. Or
            several labels a row: an indicator matrix, whose columns are the labels, or lists of labels.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss, and in the score of the validation set. Only the ratios count.
        eval_set : tuple (X, y), optional
            The validation set: loss and score are taken on it after each epoch. ``early_stopping``, ``calibrate`` and
            ``tune_thresholds`` use it instead of rows that are split off.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model. ``model.optimizer.learning_rate`` follows the
            schedule until a callback sets it.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For rows, labels or parameters that cannot be used; the message names them. A text, label or column name
            with a lone surrogate, half of a character, is one; so is a column of X that is y, or X and y exchanged.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        DivergedError
            When several updates in a row are not finite, or the trained model's outputs are not.
        """
        self._fit(X, y, sample_weight, eval_set, callbacks)
        return self

    # --- Predicting ------------------------------------------------------------------------------------------------

    @of_one_fit
    def decision_function(self, X: Any) -> np.ndarray:
        """The logits.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of float32, shape (n_rows, n_classes), or (n_rows,) for two classes
            With two classes, how much the second one's logit is over the first one's.
        """
        logits = self._outputs(X)
        return logits[:, 1] - logits[:, 0] if self.y_type_ == "labels" and len(self.classes_) == 2 else logits

    @of_one_fit
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of float64, shape (n_rows, n_classes)
            Columns in the order of ``classes_``. With one label a row they add up to 1.
        """
        logits = self._outputs(X).astype("float64")
        return self._task().probabilities(logits)

    @of_one_fit
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Natural logarithm of `predict_proba`."""
        logits = self._outputs(X).astype("float64")
        return self._task().log_probabilities(logits)

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray | pd.DataFrame | list[list[Any]]:
        """The most probable label of each row, or all labels whose probability reaches their threshold.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of shape (n_rows,), or of shape (n_rows, n_classes), or DataFrame of that shape, or list of list
            Labels of the type that ``fit`` was given. With several a row: an indicator matrix of int64 if ``fit`` was
            given one, or else a list of labels for each row. Where the columns of ``fit``'s matrix had names, and X is
            a Series or DataFrame, the matrix is a DataFrame with X's index, whose columns are ``classes_``.

        Raises
        ------
        ValueError, TypeError
            For rows that cannot be used; the message names them. A text with a lone surrogate, half of a character, is
            one.
        DivergedError
            When the model's outputs are not finite.
        """
        logits = self._outputs(X).astype("float64")
        task, index = self._task(), row_index(X)
        answers = task.decode(logits)
        if index is not None and isinstance(task, SeveralLabels) and task.y_type_ == "indicator" and task.has_names:
            return pd.DataFrame(answers, index=index, columns=self.classes_)
        return answers

    @of_one_fit
    def explain(
        self,
        X: Any,
        labels: Any = None,
        *,
        unit: str = "word",
        method: str = "integrated_gradients",
        n_steps: int | None = None,
    ) -> pd.DataFrame:
        """How much each word of a row speaks for a label, or against it.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
        labels : label, or array-like of shape (n_rows,), optional
            One label, or one for each row: ``labels=classifier.predict(X)`` explains what was predicted, where a row
            has one label. None: every label, which takes as many times as long.
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
            A line for each word of each label of each row, in order: ``row`` (position in X, from 0), ``column`` (of
            pairs: which of the two texts), ``word`` (as the text has it), ``start`` and ``end`` (characters in its
            text, end exclusive), ``label`` and ``score``. The scores of a row and a label add up to the difference of
            the label's logit between the row and the same row with [PAD] for every word. Words that were cut off have
            the score 0. With ``unit="sentence"`` the column ``word`` is ``sentence``. Where X is a Series or DataFrame,
            the index of a line is that of its row in X.

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

        Examples
        --------
        >>> from kbert import BertClassifier
        >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
        >>> classifier = BertClassifier("minilm-l6", epochs=5, random_state=0)
        >>> why = classifier.fit(texts, labels).explain(["very good"], labels=["pos"])
        >>> why.sort_values("score").word.iloc[-1]
        'good'
        """
        explainer = new_explainer(self.model_, self.tokenizer_, unit, method, n_steps)
        task, columns = self._read(X)
        warn_of_other_order(X, labels, "labels")
        return self._explained_texts(explainer, X, task, columns, task.chosen_outputs(labels, columns.n_rows), unit)

    @of_one_fit
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of rows whose label, or whose labels all, are right.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
        y : array-like
            As in ``fit``. Labels that ``fit`` did not see are never right.
        sample_weight : array-like of shape (n_rows,), optional
        """
        warn_of_other_order(X, y)
        right = self._task().right_rows(readable_again(y), self.predict(X))
        return float(np.average(right, weights=sample_weights(sample_weight, len(right))))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
