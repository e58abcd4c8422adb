"""BertPretrainer: masked-LM and next-sentence pre-training on the user's own text."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from sklearn.utils import Tags

from kbert.config import BertConfig
from kbert.data.frames import (
    NO_SAMPLES,
    is_sparse,
    listed_labels,
    listed_positions,
    refuse_what_has_no_rows,
    to_known_container,
)
from kbert.data.texts import text_columns
from kbert.errors import (
    DivergedError,
    MissingTextWarning,
    NewWeightsWarning,
    WeightsMismatchError,
    WeightsNotFoundError,
)
from kbert.estimators.base import BertEstimator
from kbert.estimators.parameters import (
    LENGTHS_OF_PHASES,
    Parameters,
    checked_parameters,
    checkpoint_folder,
    fit_seed,
)
from kbert.estimators.recipe import remember_settled, settled_values
from kbert.estimators.saving import GOLDEN_TEXTS
from kbert.model import BertForPreTraining
from kbert.pretraining.begin import begun_model, digest_of_start, steps_of_epochs
from kbert.pretraining.checkpoints import dtype_of_run, saved_seed
from kbert.pretraining.corpus import Corpus
from kbert.pretraining.evaluation import held_out_scores, require_words_that_fit
from kbert.pretraining.fill_mask import fill_mask
from kbert.pretraining.instances import Documents, require_tokens, warn_of_unknown
from kbert.pretraining.masking import Masking
from kbert.pretraining.new_words import add_new_words
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.recipe import (
    PAPER,
    SCORED_MASK_RATE,
    Phases,
    automatic_vocab_size,
    config_of_run,
    longest_automatic_row,
    settle_pretraining,
)
from kbert.pretraining.shards import tokenised
from kbert.pretraining.trainer import Pretraining
from kbert.text import WordPieceTokenizer, build_sequences
from kbert.training.backends import able_to_train
from kbert.training.precision import dtype_policy
from kbert.training.predict import as_array, input_names, predictor
from kbert.values.number_rules import OVER_0
from kbert.values.printable import shown
from kbert.values.saved import TEXT, Rule, SavedValues, list_of
from kbert.warn import warn_user
from kbert.weights import load_pretraining, save_pretraining
from kbert.weights.runtimes import ExportedModel
from kbert.weights.start import pretrained_start

# Rows on which an exported model is compared, each token with a number for every word of the vocabulary.
_ROWS_OF_A_CHECK = 8


class BertPretrainer(BertEstimator):
    """Pre-train BERT on text without labels, from scratch or on from released weights.

    What it saves is a folder of weights that every other estimator takes: ``BertClassifier(weights=folder)``.

    Parameters
    ----------
    size : str or BertConfig, default="base"
        The architecture: "tiny", "mini", "small", "medium", "base", "large", "base-cased", "large-cased", "minilm-l6",
        or one of your own.
    weights : "auto", None, str or Path, default="auto"
        Where the model starts. "auto" takes the released weights of ``size``; None starts at random, with a vocabulary
        learned from the texts; any other value is a folder of saved weights or a name on a hub.
    revision : str, optional
        Branch, tag or commit of the hub's repository, where ``weights`` come from one. None takes the newest.
    max_length : "auto", int or sequence of (int, float), default="auto"
        Tokens of a row, special ones included; or several lengths, each with its share of the budget, as
        ``((128, 0.9), (512, 0.1))`` in the paper. "auto": from scratch 64 at first, and later more and more often
        256, in batches of as many tokens; on from weights 128.
    vocab_size : "auto" or int, default="auto"
        Greatest size of a vocabulary that is learned. "auto": 8,000 for tiny and mini, and the checkpoint's for larger
        sizes; a BertConfig says its own.
    new_words : int or list of str, optional
        Words of your texts that replace unused tokens of the checkpoint's vocabulary ("[unused0]" and so on, of which
        Google's have 994): how many, the most frequent ones that it has in pieces only, or which. A new word starts as
        the mean of its pieces, and every other token keeps its id. Not with ``weights=None``, where the whole
        vocabulary is learned; a fit that goes on (``warm_start``) keeps its words.
    split : {"sentences", "lines"}, default="sentences"
        What the segments of a document are, of which the next-sentence task takes two texts: the sentences of its
        lines, or the lines themselves. A `kbert.pretraining.Corpus` has a ``split`` of its own, which then counts.
    nsp : "auto" or bool, default="auto"
        Whether to train next-sentence prediction beside the masked language model, which needs two documents. "auto"
        does not (Liu et al., 2019, "RoBERTa"); with ``warm_start`` it does what the fit before did. ``load`` opens
        weights that no estimator saved with the head for next sentences where they have it (``nsp_``), and ``score``
        then reads pairs.
    mask_rate : "auto" or float, default="auto"
        Share of the tokens to predict. "auto": 0.4 from scratch, on from weights 0.15, as in the paper.
    whole_word : bool, default=False
        Mask whole words instead of single pieces.
    epochs : int, default=3
        Passes over the texts, where neither ``max_steps`` nor ``max_seconds`` is given. New pairs and masks are drawn
        for each.
    max_steps : int, optional
        Number of updates; None counts those of ``epochs``. Set it to compare runs of equal length.
    max_seconds : float, optional
        Training time in seconds, instead of ``epochs`` or ``max_steps``. The learning rate follows the share that is
        used, so runs do not repeat exactly.
    batch_size : "auto" or int, default="auto"
        Rows of a batch, each filled with one text or several short ones. "auto": 64 from scratch, where a
        batch of longer rows has fewer, 32 on from weights.
    learning_rate : "auto" or float, default="auto"
        Peak of the schedule. "auto": from scratch 3e-3 for tiny, 1e-3 for mini, 5e-4 for small, medium and minilm-l6,
        1e-4 for base and large; 2e-5 on from weights.
    warmup : float or int, default=0.1
        Linear warm-up: a float is a share of all steps, an int a number of steps. The rate then falls linearly to 0.
    weight_decay : float, default=0.01
        Decoupled decay of all matrices and embedding tables; biases and LayerNorm are not decayed.
    dropout : "auto", float or None, default="auto"
        Rate in hidden states and attention; None takes that of the size or the checkpoint. "auto": 0 from scratch, the
        checkpoint's on from weights.
    bias_correction : bool, default=True
        Whether Adam corrects its bias. The original BERT code does not.
    gradient_accumulation : int, default=1
        Number of batches whose gradients are averaged into one update: for larger updates than memory has room for.
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
        A folder of this fit alone. It is written to every 1,000 updates and every five minutes, with the history so
        far as ``history.csv``; a fit that was killed goes on from there when it is started again with the same texts
        and parameters. It takes six times the disk space of the weights.
    random_state : int, RandomState or None, default=None
        Seed of the start, the pairs, the masks and the dropout.
    verbose : int, default=0
        1 shows a progress bar with the masked-LM loss, tokens per second and the time left, and prints a line for each
        tenth of the budget.

    Attributes
    ----------
    model_ : BertForPreTraining
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    new_words_ : list of str
        The words that took unused tokens, as the tokenizer writes them.
    max_length_, batch_size_, learning_rate_, mask_rate_, nsp_
        What training used: the parameters, or what "auto" stood for.
    history_ : dict of list of float
        Of the last fit, one value an update: ``loss``, ``mlm_loss``, ``mlm_accuracy``, ``nsp_loss``, ``nsp_accuracy``,
        ``learning_rate``, ``tokens`` and ``seconds`` so far; with an ``eval_set`` its scores, after ``val_``, at the
        updates after which it was evaluated, NaN at the others.
    n_iter_ : int
        Updates of the last fit.
    started_from_ : dict
        ``size``, ``weights`` and ``revision`` of the fit; in a warm start of the first one.

    Examples
    --------
    >>> from kbert import BertClassifier, BertPretrainer
    >>> notes = ["It rained. We stayed in.", "The sun shone. We went out."] * 10
    >>> pretrainer = BertPretrainer("tiny", weights=None, max_steps=5, batch_size=4)
    >>> pretrainer.fit(notes).save("my-bert")
    >>> classifier = BertClassifier(weights="my-bert", epochs=1)
    >>> classifier = classifier.fit(["wet", "dry"] * 10, ["rain", "sun"] * 10)
    """

    _loads_exports = False
    _compares_all_rows = False
    _own_rules: ClassVar[dict[str, Rule]] = {"max_length": LENGTHS_OF_PHASES, "learning_rate": OVER_0}

    model_: BertForPreTraining
    new_words_: list[str]

    _scores_rows = False

    def __init__(
        self,
        size: str | BertConfig = "base",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        revision: str | None = None,
        max_length: str | int | Sequence[tuple[int, float]] = "auto",
        vocab_size: str | int = "auto",
        new_words: int | list[str] | None = None,
        split: Literal["sentences", "lines"] = "sentences",
        nsp: str | bool = "auto",
        mask_rate: str | float = "auto",
        whole_word: bool = False,
        epochs: int = 3,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        batch_size: str | int = "auto",
        learning_rate: str | float = "auto",
        warmup: float | int = 0.1,
        weight_decay: float = 0.01,
        dropout: str | float | None = "auto",
        bias_correction: bool = True,
        gradient_accumulation: int = 1,
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
        self.vocab_size = vocab_size
        self.new_words = new_words
        self.split = split
        self.nsp = nsp
        self.mask_rate = mask_rate
        self.whole_word = whole_word
        self.epochs = epochs
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warmup = warmup
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.bias_correction = bias_correction
        self.gradient_accumulation = gradient_accumulation
        self.warm_start = warm_start
        self.dtype = dtype
        self.distribution = distribution
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, size: str | BertConfig = "base", **parameters: Any) -> Self:
        """A pre-trainer with the settings of the paper (Devlin et al., 2018, appendix A.2).

        Masked language model and next sentence, 15% of the tokens, batches of 256 rows, nine tenths of a million
        updates on rows of 128 tokens and the last on rows of 512, a warm-up of one hundredth of the updates to a rate
        of 1e-4, dropout 0.1, and Adam without bias correction, as in the original code.

        Parameters
        ----------
        size : str or BertConfig, default="base"
        **parameters
            All others of the estimator, which go before those of the paper: ``weights=None`` starts at random, and
            ``max_steps`` shortens the run.

        Returns
        -------
        BertPretrainer

        Examples
        --------
        >>> from kbert import BertPretrainer
        >>> BertPretrainer.paper("base", weights=None, max_steps=100_000, warmup=0.01).mask_rate
        0.15
        """
        return cls(size, **{**PAPER, **parameters})

    # --- Fitting -----------------------------------------------------------------------------------------------

    @able_to_train()
    def fit(self, X: Any, y: Any = None, *, eval_set: Any = None) -> Self:
        """Pre-train.

        Parameters
        ----------
        X : iterable of str, pathlib.Path, or Corpus
            Documents: a Series, a list or an array of texts, each a document whose lines are split into sentences; or
            files, given as `pathlib.Path` (see `kbert.pretraining.Corpus`). Their tokens are held in memory: for more
            text than that, write `kbert.pretraining.Shards` and train on them with `kbert.pretraining.Pretraining`.
        y : ignored
        eval_set : the same, optional
            Text to evaluate on at the end, and every 1,000 updates, under the masks of `score`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is out of range, parameters contradict each other, ``new_words`` do not fit the vocabulary,
            X holds no text, or with ``nsp`` fewer than two documents.
        TypeError
            If a parameter or X has the wrong type.
        WeightsNotFoundError
            If there are no ``weights`` under that name.
        WeightsMismatchError
            If ``weights`` are damaged, or the vocabulary does not fit the model.
        DivergedError
            If five updates in a row gave a loss or gradients that are not finite.
        """
        parameters = checked_parameters(self)
        folder, seed = checkpoint_folder(parameters), fit_seed(parameters, saved_seed)
        if parameters.new_words is not None and parameters.weights is None:
            raise ValueError(
                "BertPretrainer: new_words replace unused tokens of a checkpoint's vocabulary, and with weights=None "
                "the whole vocabulary is learned from the texts. Leave new_words out, or give weights."
            )
        earlier = self.model_.choices["nsp"] if self._is_warm_start() else None
        if parameters.nsp == "auto":
            parameters.nsp = bool(earlier)
        if earlier is not None and parameters.nsp != earlier:
            raise ValueError(
                f"BertPretrainer: nsp is {parameters.nsp}, and the earlier fit, from which warm_start goes on, had "
                f"{earlier}. Set nsp={earlier}; or save the earlier one, and give its folder as weights of a new one."
            )
        if parameters.max_steps is not None and parameters.max_seconds is not None:
            raise ValueError("BertPretrainer: give max_steps or max_seconds, not both.")
        corpus = _corpus(X, "X", parameters.split)
        if parameters.vocab_size == "auto":
            parameters.vocab_size = automatic_vocab_size(parameters.size)
        start = self._start(parameters, _segments(corpus))
        tokenizer = start.tokenizer
        if parameters.new_words is not None and start.model is None:
            tokenizer = add_new_words(tokenizer, parameters.new_words, _segments(corpus))
        documents = _documents(corpus, tokenizer, parameters.nsp, "X")
        held_out = None
        if eval_set is not None:
            held_out_corpus = _corpus(eval_set, "eval_set", parameters.split)
            held_out = _single_element(_documents(held_out_corpus, tokenizer, parameters.nsp, "eval_set"))

        from_scratch = start.folder is None and start.model is None
        phases, mixed = settle_pretraining(parameters, start.config, from_scratch)
        config = config_of_run(start.config, parameters.dropout, from_scratch)
        policy = dtype_of_run(parameters.dtype, folder)
        model, new_words = begun_model(start, tokenizer, documents, config, parameters.nsp, policy, seed)
        if start.model is not None:
            new_words = self.new_words_
        options = _options(parameters, phases, mixed, self._scored_mask_rate(), config, seed, documents, tokenizer)
        run = Pretraining(
            model,
            tokenizer,
            documents,
            options,
            held_out,
            folder,
            distribution=parameters.distribution,
            start=None if folder is None else digest_of_start(model, start),
        )
        history = run.run()
        model.has_new_mlm_head = False

        fitted = self._without_fit()
        fitted.__dict__.pop("_unfitted", None)  # weights that `fill_mask` or `score` had loaded before the fit
        fitted.model_, fitted.tokenizer_, fitted.config_, fitted.new_words_ = model, tokenizer, model.config, new_words
        fitted.history_ = {name: history[name].tolist() for name in history if name != "step"}
        fitted.n_iter_ = len(history)
        self._remember_start(fitted, parameters)
        del parameters.epochs  # which "auto" never stands for
        remember_settled(fitted, parameters)
        self._become(fitted)
        return self

    # --- Using it ----------------------------------------------------------------------------------------------

    def fill_mask(self, text: str, top_k: int = 5) -> pd.DataFrame:
        """The most probable tokens for each mask of a text, "[MASK]" as a rule.

        Works without ``fit`` where ``weights`` are given.

        Parameters
        ----------
        text : str
        top_k : int, default=5

        Returns
        -------
        DataFrame
            ``token``, ``score`` (its probability) and ``position`` (of the mask among the text's tokens): for each mask
            ``top_k`` rows.

        Raises
        ------
        WeightsMismatchError
            If the weights have no masked-LM head, so that the words would be random.
        """
        model, tokenizer = self._model_with_head("fill_mask", "give random words")
        return fill_mask(model, tokenizer, text, top_k)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the masked-LM loss in nats, so that more is better, under pairs and masks that are always the same.

        The masks cover 15% of the tokens where ``mask_rate`` is "auto", whatever training had. To compare estimators,
        give them the same ``batch_size``, ``max_length`` and ``nsp``, on which pairs and masks depend. Works without
        ``fit`` where ``weights`` are given that have a masked-LM head.

        Parameters
        ----------
        X : iterable of str, pathlib.Path, or Corpus
            As in `fit`.
        y : ignored

        Raises
        ------
        ValueError
            When X holds no text, or with ``whole_word`` no word that can be masked as a whole.
        WeightsMismatchError
            If the weights have no masked-LM head, so that the loss would be that of a random one.
        DivergedError
            When the loss is not a finite number.
        """
        parameters = checked_parameters(self)
        model, tokenizer = self._model_with_head("score", "give a loss that says nothing about them")
        self._check_max_length(model.config)
        parameters.max_length = self._longest_row(model.config)
        parameters.batch_size = settled_values(vars(self))["batch_size"]
        settle_pretraining(parameters, model.config, from_scratch=False)
        corpus = _corpus(X, "X", parameters.split)
        documents = _single_element(_documents(corpus, tokenizer, model.choices["nsp"], "X"))
        warn_of_unknown([documents], tokenizer, "X")
        masking, longest = Masking(tokenizer, self._scored_mask_rate(), parameters.whole_word), parameters.max_length
        require_words_that_fit(tokenizer, documents, masking, longest, model.choices["nsp"], "X")
        scores = held_out_scores(model, tokenizer, documents, masking, parameters.batch_size, longest)
        if not np.isfinite(scores["mlm_loss"]):
            raise DivergedError(
                "The masked-LM loss is not a finite number: the model's weights are not usable. Train with a lower "
                "learning_rate, or load another model."
            )
        return -scores["mlm_loss"]

    def _model_with_head(self, method: str, would: str) -> tuple[BertForPreTraining, WordPieceTokenizer]:
        """The model, whose masked-LM head is trained, and its tokenizer."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NewWeightsWarning)  # a new head is refused here
            model, tokenizer = self._model_and_tokenizer()
        if model.has_new_mlm_head:
            raise WeightsMismatchError(
                f"BertPretrainer.{method}: these weights have no masked-LM head, since they were trained for another "
                f"task or saved without it. One that starts at random would {would}. Take the weights of a masked "
                'language model, such as size="base" with weights="auto"; or call fit on texts of your own, which '
                "trains the head."
            )
        return model, tokenizer

    def _scored_mask_rate(self) -> float:
        return SCORED_MASK_RATE if isinstance(self.mask_rate, str) else self.mask_rate

    def _longest_given(self) -> int | None:
        if isinstance(self.max_length, str):
            return None
        if isinstance(self.max_length, numbers.Integral):
            return int(self.max_length)
        return max(int(length) for length, _ in self.max_length)

    def _longest_row(self, config: BertConfig) -> int:
        """Tokens of the longest row: what the parameters say, or those of the fit, or of one on from weights."""
        of_fit: int | None = getattr(self, "max_length_", None)
        return self._longest_given() or of_fit or longest_automatic_row(config)

    def _model_and_tokenizer(self) -> tuple[BertForPreTraining, WordPieceTokenizer]:
        if self.__sklearn_is_fitted__():
            fitted = self._of_one_fit()
            return fitted.model_, fitted.tokenizer_
        if self.weights is None:
            self._check_fitted()
        parameters = checked_parameters(self)
        policy = dtype_policy(parameters.dtype)
        # Kept for the next call, and left out of pickles.
        files = _files_of(parameters.weights)
        nsp = parameters.nsp is True
        key = (parameters.size, parameters.weights, parameters.revision, policy, nsp, files)
        kept: tuple[Any, BertForPreTraining, WordPieceTokenizer] | None = getattr(self, "_unfitted", None)
        if kept is None or kept[0] != key:
            start = pretrained_start(parameters.size, parameters.weights, parameters.revision, type(self).__name__)
            model = load_pretraining(start.folder, nsp=nsp, dtype=policy)
            kept = self._unfitted = key, model, start.tokenizer
        return kept[1:]

    def _parameters_of_fit(self) -> dict[str, Any]:
        return super()._parameters_of_fit() | {"nsp": self.model_.choices["nsp"]}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_unfitted"}

    # --- Exporting ---------------------------------------------------------------------------------------------

    def _rows_to_check(self, X: Any) -> Corpus | None:
        return None if X is None else _corpus(X, "X", self.split)

    def _export_results(self, X: Corpus | None) -> tuple[np.ndarray, None, int]:
        documents = GOLDEN_TEXTS if X is None else map(" ".join, X)
        texts = list(islice(documents, _ROWS_OF_A_CHECK))
        return self._masked_logits(texts, range(self._longest_row(self.config_))), None, len(texts)

    # --- Saving ------------------------------------------------------------------------------------------------

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        return self._masked_logits(texts, [0])[:, 0, :64]

    def _masked_logits(self, texts: list[str], positions: Iterable[int]) -> np.ndarray:
        """The logits at some positions of each row; positions beyond the longest row are left out."""
        sequences = build_sequences(self.tokenizer_, texts, max_length=self._longest_row(self.config_))
        inputs = sequences.padded()
        length = inputs["token_ids"].shape[1]
        positions = np.array([position for position in positions if position < length], np.int32)
        inputs |= {
            "masked_positions": np.tile(positions, (len(texts), 1)),
            "first_positions": np.zeros((len(texts), 1), np.int32),
        }
        if not isinstance(self.model_, ExportedModel):
            inputs = {name: inputs[name] for name in input_names(self.model_)}
        logits = as_array(predictor(self.model_)(inputs)["mlm_logits"])
        # What a model says of padding is of no use, and another runtime does not compute it.
        is_real = np.take_along_axis(inputs["text_ids"] > 0, inputs["masked_positions"], axis=1)
        return np.where(is_real[..., None], logits, 0)

    def _save_model(self, folder: Path) -> None:
        save_pretraining(self.model_, folder)

    def _exported_model(self, folder: Path, runtime: str, quantize: str | None) -> ExportedModel:
        raise WeightsNotFoundError(
            f"{folder} holds an exported BertPretrainer, which other programs run. Load the folder that `save` wrote."
        )

    def _load_model(self, folder: Path, policy: str) -> BertForPreTraining:
        return load_pretraining(folder, nsp=None, dtype=policy)

    def _settle_lengths_without_fit(self) -> None:
        """Choose the length for weights that no estimator saved, and say whether they have the next sentence."""
        self.nsp_ = self.model_.choices["nsp"]
        if self.max_length == "auto":
            self.max_length_ = longest_automatic_row(self.config_)

    def _learned_to_json(self) -> dict[str, Any]:
        return {"new_words": self.new_words_}

    def _learned_from_json(self, values: SavedValues, folder: Path) -> None:
        self.new_words_ = values.checked("new_words", list_of(TEXT))

    def _learned_from_config(self, folder: Path) -> None:
        self.new_words_ = []

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags


def _files_of(weights: str | os.PathLike[str]) -> list[tuple[str, int, int, int]] | None:
    """What tells a folder's files from others that replace them; None where weights are a name."""
    folder = Path(weights).expanduser()
    if not folder.is_dir():
        return None
    found = []
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # a link to nothing, or a file that is being replaced
            status = path.stat()
            found.append((str(path.absolute()), status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def _corpus(X: Any, name: str, split: Literal["sentences", "lines"]) -> Corpus:
    if isinstance(X, Corpus):
        return X
    if isinstance(X, str):
        raise ValueError(
            f"{name} is a single str ({shown(X)}). A text is put in a list: [{name}]; a file is given as "
            "pathlib.Path(...)."
        )
    if is_sparse(X):
        refuse_what_has_no_rows(X, name)
    given, X = X, list(X) if isinstance(X, Iterator) else to_known_container(X)
    if isinstance(X, pd.DataFrame) and len(X.columns) == 1:
        X = X.iloc[:, 0]
    if isinstance(X, pd.DataFrame) and list(X.columns).count("text") != 1:
        columns = f"the columns {listed_labels(list(X.columns))}" if len(X.columns) else "no columns"
        raise ValueError(
            f"{name} is a DataFrame with {columns}, and none of them alone is called 'text'. Choose the one with the "
            f"texts: {name}[...], or kbert.pretraining.Corpus({name}, column=...)."
        )
    if isinstance(X, np.ndarray) and (X.ndim != 1 or X.dtype.kind not in "OUT"):
        (texts,) = text_columns(X, columns=(1,), name=name).columns
        return Corpus(texts, split=split)
    if hasattr(X, "__len__") and len(X) == 0:
        raise ValueError(f"{NO_SAMPLES.format(getattr(X, 'shape', (0,)))} {name} is empty: give at least one text.")
    texts = X["text"] if isinstance(X, pd.DataFrame) else X
    texts = pd.Series(texts, dtype=object) if isinstance(texts, list | tuple | np.ndarray) else texts
    if isinstance(texts, pd.Series) and len(missing := np.flatnonzero(texts.isna())):
        n, do = len(missing), "is" if len(missing) == 1 else "are"
        rows = listed_positions(given, missing)
        warn_user(f"{n} of the {len(X)} texts of {name} {do} missing, and {do} left out ({rows}).", MissingTextWarning)
    return Corpus(X, split=split)


def _segments(corpus: Corpus) -> Iterator[str]:
    """Its text, streamed."""
    return (segment for document in corpus for segment in document)


def _documents(corpus: Corpus, tokenizer: WordPieceTokenizer, nsp: bool, name: str) -> list[Documents]:
    """The corpus as tokens. An error if there are none, before any training."""
    documents = tokenised(corpus, tokenizer)
    require_tokens(documents, name, nsp)
    return documents


def _single_element(elements: list[Documents]) -> Documents:
    """The text to evaluate on, as one element."""
    if len(elements) > 1:
        raise ValueError("The text to evaluate on has more than 16 million tokens. Give less of it.")
    return elements[0]


def _options(
    parameters: Parameters,
    phases: Phases,
    mixed: bool,
    held_out_mask_rate: float,
    config: BertConfig,
    seed: int,
    documents: list[Documents],
    tokenizer: WordPieceTokenizer,
) -> PretrainingOptions:
    """How to pre-train, with the updates that ``epochs`` stand for."""
    same = (
        "max_seconds", "batch_size", "gradient_accumulation", "warmup", "weight_decay", "bias_correction", "mask_rate",
        "whole_word", "verbose", "learning_rate",
    )  # fmt: skip
    in_epochs = parameters.max_steps is None and parameters.max_seconds is None
    options = PretrainingOptions(
        **{name: getattr(parameters, name) for name in same},
        max_steps=1 if in_epochs else parameters.max_steps,  # 1 until they are counted
        phases=phases,
        mixed=mixed,
        held_out_mask_rate=held_out_mask_rate,
        seed=seed,
    )
    if in_epochs:
        n_steps = steps_of_epochs(parameters.epochs, options, parameters.nsp, config, documents, tokenizer)
        options = replace(options, max_steps=n_steps)
    return options
