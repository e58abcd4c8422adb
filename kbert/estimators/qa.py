"""BertQA: answers to questions, as spans of a context."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import Tags

from kbert.config import BertConfig
from kbert.data.answers import answer_texts
from kbert.data.frames import indexed_lines, readable_again
from kbert.data.labels import sample_weights
from kbert.data.mistakes import warn_of_other_order
from kbert.data.questions import QuestionColumns
from kbert.data.spans import Spans
from kbert.estimators.base import of_one_fit
from kbert.estimators.explaining import new_explainer
from kbert.estimators.fine_tuned import FineTunedEstimator
from kbert.metrics import answer_scores
from kbert.tasks import Questions
from kbert.tasks.explaining import ToExplain
from kbert.tasks.questions import FoundSpans
from kbert.training.progress import PredictionProgress
from kbert.values.number_rules import whole_number

if TYPE_CHECKING:
    from kbert.model import BertForQuestionAnswering

_ANSWER_COLUMNS = {
    "row": int, "rank": int, "answer": str, "start": int, "end": int, "score": float, "probability": float
}  # fmt: skip
# A score so high or low that its softmax is 1 or 0.
_CERTAIN = 1e6


class BertQA(FineTunedEstimator[Questions]):
    """Fine-tuned BERT that answers questions by a span of a context, as for SQuAD 1.1 and 2.0.

    Question and context are read together, "[CLS] question [SEP] context [SEP]", long contexts in overlapping windows.
    An answer is an exact slice of its context, or "" where the context has none.

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
    max_length : int, default=384
        Longest window in tokens, special ones included. A question keeps its first 64 pieces, or half of a window if
        that is less; one warning tells how many questions were cut.
    stride : int or None, default=128
        Pieces of the context from the start of a window to the start of the next one; None is half of ``max_length``.
        At most half of the room that a question leaves in its windows.
    epochs : "auto" or int, default="auto"
        Passes over the training rows. "auto": 3; more where that is less than 200 updates, fewer beyond 390,000 rows.
    batch_size : "auto" or int, default="auto"
        Windows in a step. "auto": 32 as in the paper, and 16 where there are fewer than 1,000 rows.
    learning_rate : "auto", "paper" or float, default="auto"
        Peak of the schedule. "auto": 1.2e-3 for tiny, 4e-4 for mini, 2e-4 for small, medium and minilm-l6, 3e-5 for
        base, 2e-5 for large. "paper": 1e-4 for tiny and mini, 5e-5 for small, medium and minilm-l6, else the same. The
        first parameter to search, by factors of 2 or 3.
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
    dropout : float, optional
        Rate in hidden states and attention. None takes the checkpoint's, and with ``warm_start`` that of the fit
        before.
    bias_correction : bool, default=True
        Whether Adam corrects its bias. The original BERT code does not, which makes small data sets unstable (Mosbach
        et al., 2021).
    gradient_accumulation : int, default=1
        Number of batches of which one update is made, the same as that of one large batch: for larger updates than
        memory has room for.
    early_stopping : bool, default=False
        Whether to split off a validation set, take the F1 of the answers on it after each epoch, stop when it has not
        improved for ``n_iter_no_change`` epochs, and restore the best weights. Of equal scores the one with the lower
        loss is better.
    validation_fraction : float, default=0.1
        Share of the rows that is split off for ``early_stopping``, or for ``null_threshold="tune"`` where y has
        unanswerable questions. Not used when ``fit`` is given an ``eval_set``, which then serves as the validation set.
    n_iter_no_change : int, default=2
        Epochs without a better score after which ``early_stopping`` ends the training.
    n_restarts : int, default=0
        How often a failed run is started again with another seed. A run has failed when it has learned nothing of where
        answers are. Each failed run is warned of.
    warm_start : bool, default=False
        Whether a further ``fit``, or one after ``load``, starts from the present weights, with the same tokenizer: for
        more data or more epochs. The optimiser and the learning rate start anew. Otherwise every ``fit`` starts from
        ``weights``.
    null_threshold : "tune" or float, default="tune"
        The answer is "" where the score of no answer, less that of the best span, is above this number. "tune" takes
        a number with the best F1 on the validation set: 0 if it is one, else one in the middle between the scores of
        two questions. If all questions of ``fit`` have answers, "" is the answer to an empty context only.
    n_best : int, default=20
        How many answers `answers` gives for each question.
    max_answer_length : int, default=30
        Longest answer in pieces, when predicting.
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
    model_ : BertForQuestionAnswering
        The trained Keras model.
    null_threshold_ : float
        The threshold in use. With infinity, "" is answered only for an empty context. It may be set. A folder that
        transformers saved does not hold it; then it is infinity.
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    history_ : dict of list
        Of the last fit: ``loss`` (mean over the windows), and with a validation set ``val_loss`` (mean over the rows of
        the mean over their windows) and ``val_score``: one value an epoch. ``update_loss`` holds, for each epoch, the
        list of the losses of its updates, NaN for those that were skipped; `kbert.plots.TrainingDisplay` draws it.
    n_iter_ : int
        Epochs that the last fit ran.
    max_length_, epochs_, batch_size_, learning_rate_
        What the parameters of these names were in the last fit: what "auto" stood for.
    n_truncated_ : int
        Rows of X of the last fit whose question was cut. Contexts are read whole.
    n_rows_ : int
        Rows of X of the last fit.
    started_from_ : dict
        ``size``, ``weights`` and ``revision`` of the fit; in a warm start of the first one.
    row_shares_ : RowShares
        Of the last fit: the shares of rows that were ``cut`` and that were ``empty``. Predictions tell of such rows
        only where the share is much higher.
    feature_names_in_ : ndarray of str
        The names of the columns that were read, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from kbert import BertQA
    >>> df = pd.DataFrame({
    ...     "question": ["Where did Mia move?", "When did Mia move?"] * 10,
    ...     "context": ["In spring Mia moved to Lisbon."] * 20,
    ...     "answer": ["Lisbon", "spring"] * 10,
    ...     "answer_start": [23, 3] * 10,
    ... })
    >>> qa = BertQA("minilm-l6", epochs=20, learning_rate=1e-3, random_state=0).fit(df, df)
    >>> qa.predict([("Where did Mia move?", "In spring Mia moved to Lisbon.")])
    array(['Lisbon'], dtype=object)
    """

    model_: BertForQuestionAnswering
    null_threshold_: float

    _task_type = Questions
    _columns_are = None

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        revision: str | None = None,
        max_length: int = 384,
        stride: int | None = 128,
        epochs: str | int = "auto",
        batch_size: str | int = "auto",
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
        null_threshold: str | float = "tune",
        n_best: int = 20,
        max_answer_length: int = 30,
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
        self.null_threshold = null_threshold
        self.n_best = n_best
        self.max_answer_length = max_answer_length
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
        """Fine-tune on questions, contexts and answers.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2)
            A DataFrame with the columns question and context, others being passed over; or these two columns in this
            order, as tuples for instance. A missing text is an empty one.
        y : DataFrame or array-like, shape (n_rows, 2)
            A DataFrame with the columns answer and answer_start, the answer's first character in the context; or these
            two columns in this order. Unanswerable is "" and -1. Of several right answers, two lists, the first is
            learned. X and y may be the same DataFrame.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss. Only the ratios count.
        eval_set : tuple (X, y), optional
            The validation set: loss and score are taken on it after each epoch. ``early_stopping`` and
            ``null_threshold="tune"`` use it instead of rows that are split off.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model. ``model.optimizer.learning_rate`` follows the
            schedule until a callback sets it.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For rows, answers or parameters that cannot be used; the message names them. An answer that does not
            stand where answer_start says is one.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        DivergedError
            When several updates in a row are not finite, or the trained model's outputs are not.
        """
        self._fit(X, y, sample_weight, eval_set, callbacks)
        return self

    # --- Predicting ------------------------------------------------------------------------------------------------

    def _found(self, X: Any, n_best: int) -> Iterator[tuple[FoundSpans, np.ndarray]]:
        """Some rows at a time: the best spans, and each row's score of no answer, less the threshold."""
        task, columns = self._read(X)
        cut: list[np.ndarray] = []
        with PredictionProgress(columns.n_rows, self.verbose):
            for found in task.predict(self.model_, self.tokenizer_, columns, n_best, cut):
                yield found, found.spans.null - self.null_threshold_
        self._tell_cut(task, X, columns, cut)

    @of_one_fit
    def predict(self, X: Any) -> np.ndarray:
        """The best answer to each question.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2)
            As in `fit`.

        Returns
        -------
        ndarray of str, shape (n_rows,)
            Each a slice of its context, or "" for no answer. The array is of dtype object.

        Raises
        ------
        ValueError, TypeError
            For rows that cannot be used; the message names them.
        DivergedError
            When the model's outputs are not finite.
        """
        return _best_answers(self._found(X, 1))

    @of_one_fit
    def answers(self, X: Any, n_best: int | None = None) -> pd.DataFrame:
        """The best answers to each question, with probabilities.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2)
            As in `fit`.
        n_best : int, optional
            At most how many for each question; the parameter ``n_best`` by default.

        Returns
        -------
        DataFrame
            A line for each: ``row`` (position in X, from 0), ``rank`` (from 1, which is the answer that `predict`
            gives), ``answer``, ``start`` and ``end`` (characters in the context, end exclusive; -1 for ""), ``score``
            (the logits of its first and last token, added; for "" those of [CLS], less ``null_threshold_``) and
            ``probability``, the softmax over the scores of "" and of all spans of up to ``max_answer_length`` pieces,
            whatever ``n_best`` is. Of spans with the same text only the best has a line. Where X is a DataFrame, the
            index of a line is that of its row in X.
        """
        n_best = whole_number(self.n_best if n_best is None else n_best, "n_best")
        lines: list[tuple[Any, ...]] = []
        for found, null_scores in self._found(X, n_best):
            for i, texts in enumerate(found.texts):
                lines += _ranked(found.first_row + i, texts, found.spans, i, null_scores[i], n_best)
        return indexed_lines(lines, _ANSWER_COLUMNS, X)

    @of_one_fit
    def explain(
        self, X: Any, *, unit: str = "word", method: str = "integrated_gradients", n_steps: int | None = None
    ) -> pd.DataFrame:
        """How much each word of question and context speaks for the answer's begin and end, or against it.

        What is explained is the answer that `predict` gives: the logits of its first token and of its last one, in the
        window that it was found in; of "", those of [CLS].

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2)
            As in `fit`.
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
            A line for each word of each row, first for the answer's begin and then for its end: ``row`` (position in X,
            from 0), ``column`` (question or context), ``word`` (as the text has it), ``start`` and ``end`` (characters
            in its text, end exclusive), ``label`` ("start" or "end") and ``score``. The scores of a row and a label add
            up to the difference of the logit between the row and the same row with [PAD] for every word. Words outside
            of the answer's window have the score 0. With ``unit="sentence"`` the column ``word`` is ``sentence``. Where
            X is a DataFrame, the index of a line is that of its row in X.

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

        def to_explain(some: QuestionColumns, rows: slice, cut: list[np.ndarray]) -> ToExplain:
            return task.to_explain(some, self.model_, self.tokenizer_, cut, rows.start)

        return self._explained(explainer, X, task, columns, to_explain, unit, True)

    @of_one_fit
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """F1 of the answers' words, as SQuAD's evaluation defines it; the mean over the questions, from 0 to 1.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_rows, 2)
            As in `fit`.
        y : DataFrame or array-like
            As in `fit`, or the right answers alone: a text, or a list of texts, for each row.
        sample_weight : array-like of shape (n_rows,), optional
        """
        warn_of_other_order(X, y)
        predicted = self.predict(X)
        _, f1 = answer_scores(answer_texts(readable_again(y), len(predicted)), predicted)
        return float(np.average(f1, weights=sample_weights(sample_weight, len(f1))))

    # --- Exporting -------------------------------------------------------------------------------------------------

    def _results(self, X: Any) -> tuple[np.ndarray, np.ndarray, int]:
        chunks = list(self._found(X, 1))
        answers = _best_answers(iter(chunks))
        return _scores([found.spans for found, _ in chunks]), answers, len(answers)

    # --- Saving ----------------------------------------------------------------------------------------------------

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        columns = QuestionColumns(texts, texts)
        chunks = self._task().predict(self.model_, self.tokenizer_, columns, self.n_best)
        return _scores([found.spans for found in chunks])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.target_tags.two_d_labels = True
        return tags


def _best_answers(chunks: Iterator[tuple[FoundSpans, np.ndarray]]) -> np.ndarray:
    """The best answer to each question: its best span, or "" where the score of no answer is higher."""
    answers: list[str] = []
    for found, null_scores in chunks:
        silent = ~(found.spans.scores[:, 0] >= null_scores)
        answers += ["" if no or not texts else texts[0] for no, texts in zip(silent, found.texts, strict=True)]
    return np.array(answers, dtype=object)


def _scores(chunks: list[Spans]) -> np.ndarray:
    """Of each question the score of no answer and that of the best span, or 0 in an empty context, which has none."""
    of_chunks = [np.stack([spans.null, spans.scores[:, 0]], axis=1) for spans in chunks]
    scores = np.concatenate([np.zeros((0, 2)), *of_chunks])
    return np.where(np.isfinite(scores), scores, 0)


def _ranked(row: int, texts: list[str], spans: Spans, i: int, null: float, n_best: int) -> list[tuple[Any, ...]]:
    """The lines of one question."""
    n = len(texts)
    candidates = list(zip(texts, spans.starts[i, :n].tolist(), spans.ends[i, :n].tolist(), strict=True))
    scores = [*spans.scores[i, :n].tolist(), null if n or np.isfinite(null) else 0.0]
    candidates.append(("", -1, -1))
    total = np.logaddexp(*np.clip([spans.totals[i], scores[-1]], -_CERTAIN, _CERTAIN))
    probabilities = np.exp(np.clip(scores, -_CERTAIN, _CERTAIN) - total)
    # Stable, so that a span comes before "" of the same score.
    lines: list[tuple[Any, ...]] = []
    seen: set[str] = set()
    for k in np.argsort(-np.array(scores), kind="stable").tolist():
        answer, start, end = candidates[k]
        if answer not in seen and scores[k] > -np.inf and len(lines) < n_best:
            seen.add(answer)
            lines.append((row, len(lines) + 1, answer, start, end, scores[k], float(probabilities[k])))
    return lines
