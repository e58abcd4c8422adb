"""BertTagger: a tag for each word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import Tags

from kbert.config import BertConfig
from kbert.data.frames import indexed_lines, readable_again
from kbert.data.labels import sample_weights
from kbert.data.mistakes import warn_of_other_order
from kbert.data.tags import WordColumn, tag_lists, words_in_texts
from kbert.estimators.base import of_one_fit
from kbert.estimators.explaining import explanation, new_explainer, whole_numbers
from kbert.estimators.fine_tuned import FineTunedEstimator
from kbert.metrics import bio_spans, entity_f1, is_bio
from kbert.tasks import Tagging
from kbert.tasks.explaining import ToExplain, chosen_numbers
from kbert.training.predict import predict_words
from kbert.training.progress import PredictionProgress

if TYPE_CHECKING:
    from kbert.model import BertForTokenClassification


class BertTagger(FineTunedEstimator[Tagging]):
    """Fine-tuned BERT that gives every word a tag: names, parts of speech, anything that is marked in texts.

    X holds lists of words and y lists of tags, as many: words in, tags out, at any length. Or X holds texts and y the
    spans that are marked in them, ``(start, end, label)`` in characters; then spans come out.

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
    max_length : int, default=128
        Longest window in tokens, special ones included. A longer row is read in overlapping windows, in training and in
        predicting, and each word is tagged in the window that gives it most context.
    stride : int, optional
        Tokens from the start of a window to the start of the next one; None is half of ``max_length``. A smaller stride
        gives each word more context, and takes longer.
    epochs : "auto" or int, default="auto"
        Passes over the training rows. "auto": 3; more where that is less than 200 updates, fewer beyond 390,000 rows.
    batch_size : "auto" or int, default="auto"
        Rows in an update. Each window of a long row counts as one. "auto": 32 as in the paper, and 16 where there are
        fewer than 1,000 rows.
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
    head_start : {"probe", "random"}, default="probe"
        Where the head starts. "probe": as a linear model that is fitted to the vectors of the encoder before that is
        trained (Kumar et al., 2022); up to 8,192 words are looked at. "random": as in the paper.
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
        better. The score is that of `score`, under the chosen ``decoding``: the F1 of entities where tags are BIO tags,
        else the accuracy.
    validation_fraction : float, default=0.1
        Share of the rows that is split off for ``early_stopping``. Not used when ``fit`` is given an ``eval_set``,
        which then serves as the validation set.
    n_iter_no_change : int, default=2
        Epochs without a better score after which ``early_stopping`` ends the training.
    n_restarts : int, default=0
        How often a failed run is started again with another seed. A run has failed when the trained model's loss on
        training rows is no lower than that of knowing only how often each tag occurs, and ranks words as by chance.
        Each failed run is warned of.
    warm_start : bool, default=False
        Whether a further ``fit``, or one after ``load``, starts from the present weights, with the same tokenizer and
        tags: for more data or more epochs. The optimiser and the learning rate start anew. Otherwise every ``fit``
        starts from ``weights``.
    decoding : {"auto", "argmax", "bio"}, default="auto"
        "argmax" takes each word's most probable tag. "bio" takes the most probable sequence of tags in which I- only
        continues an entity of its type. "auto" is "bio" where y of fit has BIO tags for which this holds in nine of
        ten rows with an entity, else "argmax". A model that transformers saved has "argmax".
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
    classes_ : ndarray of str
        The tags, sorted.
    decoding_ : {"argmax", "bio"}
        What ``decoding="auto"`` stands for.
    model_ : BertForTokenClassification
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    history_ : dict of list
        Of the last fit: ``loss`` (mean over the training words), and with a validation set ``val_loss`` and
        ``val_score``: one value an epoch. ``update_loss`` holds, for each epoch, the list of the losses of its updates,
        NaN for those that were skipped; `kbert.plots.TrainingDisplay` draws it.
    n_iter_ : int
        Epochs that the last fit ran.
    max_length_, epochs_, batch_size_, learning_rate_, head_start_
        What the parameters of these names were in the last fit: what "auto" stood for.
    n_truncated_ : int
        Rows of the last fit that were cut: always 0, since rows are read whole, in windows.
    n_rows_ : int
        Rows of X of the last fit.
    started_from_ : dict
        ``size``, ``weights`` and ``revision`` of the fit; in a warm start of the first one.
    row_shares_ : RowShares
        Of the last fit: the shares of rows that were ``cut`` and that were ``empty``. Predictions tell of such rows
        only where the share is much higher.
    feature_names_in_ : ndarray of str
        The column's name, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> from kbert import BertTagger
    >>> words = [["Ada", "Byron", "lived", "in", "London"], ["It", "rained", "in", "Rome"]]
    >>> tags = [["B-PER", "I-PER", "O", "O", "B-LOC"], ["O", "O", "O", "B-LOC"]]
    >>> tagger = BertTagger("minilm-l6", epochs=10, learning_rate=5e-4, random_state=0)
    >>> tagger.fit(words * 20, tags * 20).predict([["It", "rained", "in", "London"]])
    [['O', 'O', 'O', 'B-LOC']]
    """

    classes_: np.ndarray
    model_: BertForTokenClassification

    _task_type = Tagging
    _columns_are = None

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        revision: str | None = None,
        max_length: int = 128,
        stride: int | None = None,
        epochs: str | int = "auto",
        batch_size: str | int = "auto",
        learning_rate: str | float = "auto",
        warmup: float | int = 0.1,
        weight_decay: float = 0.01,
        layer_decay: float = 1.0,
        freeze: int = 0,
        head_start: str = "probe",
        dropout: float | None = None,
        bias_correction: bool = True,
        gradient_accumulation: int = 1,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        n_restarts: int = 0,
        warm_start: bool = False,
        decoding: str = "auto",
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
        self.head_start = head_start
        self.dropout = dropout
        self.bias_correction = bias_correction
        self.gradient_accumulation = gradient_accumulation
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_restarts = n_restarts
        self.warm_start = warm_start
        self.decoding = decoding
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
        """Fine-tune on words and their tags.

        Parameters
        ----------
        X : array-like, shape (n_rows,)
            A list of words for each row, or a text: a list, a Series, an object array, a DataFrame of one column.
        y : array-like, shape (n_rows,)
            A list of tags for each row, as many as it has words; for texts a list of spans, ``(start, end, label)`` or
            dicts with these keys. Those that begin or end inside a word are widened to whole words, with a warning.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss, and in the score of the validation set. Only the ratios count.
        eval_set : tuple (X, y), optional
            The validation set: loss and score are taken on it after each epoch. ``early_stopping`` uses it instead of
            rows that are split off.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model. ``model.optimizer.learning_rate`` follows the
            schedule until a callback sets it.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For rows, tags or parameters that cannot be used; the message names them. A word, text or tag with a lone
            surrogate, half of a character, is one.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        DivergedError
            When several updates in a row are not finite, or the trained model's outputs are not.
        """
        self._fit(X, y, sample_weight, eval_set, callbacks)
        return self

    # --- Predicting ------------------------------------------------------------------------------------------------

    def _predictions(self, X: Any) -> tuple[Tagging, Iterator[tuple[WordColumn, list[np.ndarray]]]]:
        """The task and, some rows at a time, their words and the logits of each row's words."""
        task, columns = self._read(X)
        return task, self._chunks(task, columns)

    def _chunks(self, task: Tagging, columns: WordColumn) -> Iterator[tuple[WordColumn, list[np.ndarray]]]:
        with PredictionProgress(columns.n_rows, self.verbose):
            yield from task.predict(self.model_, self.tokenizer_, columns)

    @of_one_fit
    def predict(self, X: Any) -> list[list[Any]]:
        """The tags of each row's words, or for texts the spans that are marked.

        Parameters
        ----------
        X : array-like, shape (n_rows,)
            Lists of words, or texts.

        Returns
        -------
        list of list
            For lists of words, as many tags as the row has words. For texts spans ``(start, end, label)`` in
            characters, end exclusive; of tags that are no BIO tags, a span for each word.

        Raises
        ------
        ValueError, TypeError
            For rows that cannot be used; the message names them. A word or text with a lone surrogate, half of a
            character, is one.
        DivergedError
            When the model's outputs are not finite.
        """
        task, chunks = self._predictions(X)
        answers: list[list[Any]] = []
        for chunk, rows in chunks:
            tags = [task.tags(logits) for logits in rows]
            if chunk.raw_texts is None:
                answers += tags
                continue
            for row, (_, _, offsets) in zip(tags, words_in_texts(chunk), strict=True):
                answers.append([(offsets[first][0], offsets[end - 1][1], tag) for first, end, tag in task.spans(row)])
        return answers

    @of_one_fit
    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """Probability of each tag for each word by itself; under ``decoding="bio"`` `predict` may give another one.

        Parameters
        ----------
        X : array-like, shape (n_rows,)

        Returns
        -------
        list of ndarray of float64, shape (n_words, n_classes)
            One for each row; columns in the order of ``classes_``.
        """
        task, chunks = self._predictions(X)
        return [task.probabilities(logits) for _, rows in chunks for logits in rows]

    @of_one_fit
    def entities(self, X: Any) -> pd.DataFrame:
        """The entities that BIO tags mark.

        Parameters
        ----------
        X : array-like, shape (n_rows,)
            Lists of words, or texts.

        Returns
        -------
        DataFrame
            A line for each, in order: ``row`` (position in X, from 0), ``start`` and ``end`` in characters (in the
            row's text; of a list of words in these joined by spaces), ``word_start`` and ``word_end`` (exclusive),
            ``text``, ``label``, and ``score``, the mean probability of its words' tags. Where X is a Series or
            DataFrame, the index of a line is that of its row in X.

        Raises
        ------
        ValueError
            If the tags are not BIO tags.
        """
        if not self._task().is_bio:
            raise ValueError(
                f"entities needs BIO tags (O, B-..., I-...), and this tagger has {self.classes_.tolist()[:8]}. Use "
                "predict, which gives every word its tag."
            )
        task, chunks = self._predictions(X)
        lines: list[tuple[Any, ...]] = []
        row = 0
        for chunk, rows in chunks:
            for logits, (_, text, offsets) in zip(rows, words_in_texts(chunk), strict=True):
                numbers = task.tag_numbers(logits)
                probabilities = task.probabilities(logits)[np.arange(len(numbers)), numbers]
                for first, end, label in bio_spans(self.classes_[numbers].tolist()):
                    start, stop = offsets[first][0], offsets[end - 1][1]
                    score = float(probabilities[first:end].mean())
                    lines.append((row, start, stop, first, end, text[start:stop], label, score))
                row += 1
        numbers_of = dict.fromkeys(("row", "start", "end", "word_start", "word_end"), int)
        return indexed_lines(lines, {**numbers_of, "text": str, "label": str, "score": float}, X)

    @of_one_fit
    def explain(
        self,
        X: Any,
        word: Any,
        tags: Any = None,
        *,
        method: str = "integrated_gradients",
        n_steps: int | None = None,
    ) -> pd.DataFrame:
        """How much each word of a row speaks for the tag of one of its words, or against it.

        Parameters
        ----------
        X : array-like, shape (n_rows,)
            Lists of words, or texts.
        word : int, or array-like of int, shape (n_rows,)
            The number of the word whose tag is explained, from 0: in every row the same, or each row's own. Of texts it
            is counted as `entities` counts ``word_start``.
        tags : str, or array-like of str, shape (n_rows,), optional
            The tag, or one for each row. None: the one that `predict` gives the word.
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
            A line for each word of each row, in order: ``row`` (position in X, from 0), ``word`` (as the text has it),
            ``start`` and ``end`` in characters (in the row's text; of a list of words in these joined by spaces),
            ``label`` (the tag) and ``score``. The scores of a row add up to the difference of the tag's logit between
            the row and the same row with [PAD] for every word. A row that is read in several windows is explained in
            the one that the tag comes from; words outside of it have the score 0. Where X is a Series or DataFrame, the
            index of a line is that of its row in X.

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
        explainer = new_explainer(self.model_, self.tokenizer_, "word", method, n_steps)
        task, columns = self._read(X)
        numbers = whole_numbers(word, columns.n_rows, "word")
        tag = None if tags is None else chosen_numbers(tags, self.classes_.tolist(), columns.n_rows, "tags")

        def to_explain(some: WordColumn, rows: slice) -> ToExplain:
            of_rows = None if tag is None else tag[rows]
            return task.to_explain(some, self.model_, self.tokenizer_, numbers[rows], of_rows, rows.start)

        return explanation(explainer, X, columns, to_explain, "word", False, self.verbose)

    @of_one_fit
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """F1 of the entities where tags are BIO tags, else the share of words whose tag is right.

        Parameters
        ----------
        X, y : array-like, shape (n_rows,)
            As in ``fit``; y may hold tags that ``fit`` did not see, which are never found.
        sample_weight : array-like of shape (n_rows,), optional
        """
        warn_of_other_order(X, y)
        task, columns = self._read(X)
        truth = tag_lists(readable_again(y), columns.split(self.tokenizer_.split_words), bio=task.is_bio)
        chunks = self._chunks(task, columns)
        found = [task.tags(logits) for _, rows in chunks for logits in rows]
        weights = sample_weights(sample_weight, len(truth))
        if task.is_bio and is_bio(truth):
            return entity_f1(truth, found, sample_weight=weights)
        right = np.concatenate([np.equal(a, b, dtype=object) for a, b in zip(truth, found, strict=True)])
        of_rows = np.ones(len(truth)) if weights is None else weights.astype("float64")
        of_words = np.repeat(of_rows, [len(row) for row in truth])
        if not of_words.any():
            raise ValueError("There is no word to score: no row with a word has a sample_weight over 0.")
        return float(np.average(right.astype("float64"), weights=of_words))

    # --- Exporting -------------------------------------------------------------------------------------------------

    def _results(self, X: Any) -> tuple[np.ndarray, np.ndarray, int]:
        """The probabilities of all words, and the numbers of the tags that `predict` gives them."""
        rows, task = self.predict_proba(X), self._task()
        with np.errstate(divide="ignore"):
            numbers = [task.tag_numbers(np.log(row)) for row in rows]
        return np.concatenate(rows), np.concatenate(numbers), len(rows)

    # --- Saving ----------------------------------------------------------------------------------------------------

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        columns = WordColumn([], texts).split(self.tokenizer_.split_words)
        windows = self._task().windows(columns, self.tokenizer_)
        return predict_words(self.model_, windows)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        return tags
