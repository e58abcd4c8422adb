"""BertClassifier: texts, or pairs of texts, to labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.class_weight import compute_class_weight

from kbert.config import BertConfig
from kbert.data.batches import TrainingBatches
from kbert.data.frames import TextColumns
from kbert.data.labels import label_column, sample_weights
from kbert.errors import WeightsMismatchError
from kbert.estimators import persistence
from kbert.estimators.base import BertEstimator, Pretrained
from kbert.estimators.parameters import is_real
from kbert.model import BertForSequenceClassification
from kbert.text import TokenSequences
from kbert.training.early_stopping import Evaluation
from kbert.training.loop import train
from kbert.training.losses import softmax_cross_entropy
from kbert.training.predict import predict_logits
from kbert.weights import load_sequence_classifier, save_sequence_classifier


class BertClassifier(ClassifierMixin, BertEstimator):
    """Fine-tuned BERT that classifies texts or pairs of texts.

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
        What happens to a text that is longer. "truncate" cuts it at its end (of a pair, the longer text first), with one
        warning. "window" reads all of it in overlapping windows: each is trained on with the row's label and a weight
        of one over the row's windows, and a row's logits are the mean of its windows'. Costs in proportion to the
        length.
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
        Rate in hidden states, attention and classifier; None takes the checkpoint's.
    bias_correction : bool, default=True
        Adam's bias correction; the original BERT code has none, which makes small data sets unstable (Mosbach et al.,
        2021).
    gradient_accumulation : int, default=1
        Batches whose gradients are averaged into one update.
    early_stopping : bool, default=False
        Set rows aside, watch the accuracy on them after each epoch (of equal ones, the lower loss is better), stop when
        it has not become better for ``n_iter_no_change`` epochs, and restore the best weights.
    validation_fraction : float, default=0.1
        Share of the rows set aside, stratified by label. Not used when ``fit`` is given an ``eval_set``.
    n_iter_no_change : int, default=2
    class_weight : "balanced", dict or None, default=None
        Weight of each class in the loss, as in scikit-learn.
    dtype : {"auto", "float32", "bfloat16", "float16"}, default="auto"
        Of the computation; weights are float32. "auto" is float32 on a CPU, bfloat16 on a GPU or TPU.
    random_state : int, RandomState or None, default=None
        Seed of the head, the batches and the dropout.
    verbose : int, default=0
        1 shows a progress bar with the loss, rows per second and the time left.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    model_ : BertForSequenceClassification
        The trained Keras model.
    tokenizer_ : WordPieceTokenizer
    config_ : BertConfig
    history_ : dict of list of float
        ``loss`` (mean over the training texts), and with an ``eval_set`` or early stopping ``val_loss`` and
        ``val_score``: one value an epoch.
    n_iter_ : int
        Epochs that were run.
    n_features_in_ : int
        1 for single texts, 2 for pairs.
    feature_names_in_ : ndarray of str
        Column names, when ``fit`` was given a DataFrame.

    Examples
    --------
    >>> import pandas as pd
    >>> from kbert import BertClassifier
    >>> df = pd.DataFrame({"text": ["so good", "so bad"] * 20, "label": ["pos", "neg"] * 20})
    >>> classifier = BertClassifier(size="minilm-l6", random_state=0).fit(df.text, df.label)
    >>> list(classifier.predict(["very good"]))
    ['pos']
    """

    classes_: np.ndarray
    model_: BertForSequenceClassification

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
        class_weight: str | dict | None = None,
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
        self.class_weight = class_weight
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    # --- Fitting -----------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, eval_set: tuple | None = None, callbacks: Any = None):
        """Fine-tune on texts and their labels.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
            Texts: a Series, list or array; or pairs: a DataFrame of two columns, or a list of pairs.
        y : array-like of shape (n_rows,)
            Labels: strings, whole numbers or booleans, categorical and nullable dtypes included.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss. Only the ratios count.
        eval_set : tuple (X, y), optional
            Rows on which loss and accuracy are taken after each epoch; early stopping watches these.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model.

        Returns
        -------
        BertClassifier
            self

        Raises
        ------
        ValueError, TypeError
            For rows, labels or parameters that cannot be used; the message names them.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        """
        seed, policy = self._validated()
        texts = self._read_texts(X, stacklevel=4)
        classes, targets = self._encode_labels(y, texts.n_rows)
        weights = self._row_weights(classes, targets, sample_weight)
        start = self._pretrained(texts)
        self._check_max_length(start.config)
        config = start.config.with_dropout(self.dropout)
        sequences = self._sequences(start.tokenizer, texts)

        kept, held_out = np.arange(texts.n_rows), None
        if eval_set is not None:
            held_out = self._eval_rows(eval_set, texts, classes, start)
        elif self.early_stopping:
            kept, aside = self._split(targets, weights, seed)
            held_out = (sequences.of_rows(aside), targets[aside], weights[aside])
        sequences, targets, weights = sequences.of_rows(kept), targets[kept], weights[kept]
        # A row counts as much in several windows as it would in one.
        weights = (weights / np.bincount(sequences.rows))[sequences.rows]
        targets = targets[sequences.rows]

        model = BertForSequenceClassification(config, len(classes), dtype=policy, seed=seed)
        self._load_weights(model.encoder, start)
        self._freeze(model.encoder)
        pad_id = start.tokenizer.pad_id
        evaluation = held_out and Evaluation(
            model, _evaluator(model, *held_out, pad_id), patience=self.n_iter_no_change if self.early_stopping else None
        )
        batches = TrainingBatches(sequences, int(self.batch_size), seed, pad_id)
        options = self._training_options(config, model, seed, callbacks)
        history = train(
            model,
            softmax_cross_entropy,
            batches,
            targets,
            (weights / weights.mean()).astype("float32"),
            options,
            evaluation,
        )
        if evaluation:
            evaluation.restore_best()

        self._remember_columns(texts)
        self.classes_, self.model_, self.tokenizer_, self.config_ = classes, model, start.tokenizer, config
        self.history_, self.n_iter_ = history, len(history["loss"])
        return self

    def _encode_labels(self, y: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """The classes, sorted, and the number of each row's class."""
        classes, targets = np.unique(label_column(y, n_rows), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"BertClassifier needs at least two classes to tell apart, and y holds one class only: {classes[0]!r}. "
                "Is it the right column, or a filtered one?"
            )
        return classes, targets.astype("int32")

    def _row_weights(self, classes: np.ndarray, targets: np.ndarray, sample_weight: Any) -> np.ndarray:
        """sample_weight times class_weight."""
        weights = sample_weights(sample_weight, len(targets))
        weights = np.ones(len(targets), "float32") if weights is None else weights
        if self.class_weight is not None:
            weights = weights * self._class_weights(classes, targets)[targets]
        if not weights.sum() > 0:
            raise ValueError("All rows have weight 0 after class_weight: nothing could be learned.")
        return weights.astype("float32")

    def _class_weights(self, classes: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The weight of each class. A class that a dict does not name counts 1."""
        labels = classes.tolist()
        if not isinstance(self.class_weight, dict):
            return compute_class_weight(self.class_weight, classes=np.arange(len(labels)), y=targets)
        unknown = [label for label in self.class_weight if label not in labels]
        if unknown:
            raise ValueError(f"class_weight names {unknown[:5]}, which y does not hold. The classes are {labels[:20]}.")
        for label, weight in self.class_weight.items():
            if not is_real(weight) or weight < 0:
                raise ValueError(f"class_weight must be numbers of at least 0, got {weight!r} for {label!r}.")
        # Not scikit-learn's reading of a dict, which takes the label "1" for the number 1.
        return np.array([self.class_weight.get(label, 1) for label in labels], "float64")

    def _split(self, targets: np.ndarray, weights: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on, and rows to watch, with the same shares of the labels. A row to watch has a weight."""
        rows = np.flatnonzero(weights > 0)
        try:
            _, aside = train_test_split(
                rows, test_size=self.validation_fraction, stratify=targets[rows], random_state=seed % 2**32
            )
        except ValueError as error:
            raise ValueError(
                f"early_stopping sets validation_fraction={self.validation_fraction} of {len(rows)} rows aside, with "
                f"rows of every class on both sides, and that cannot be done here ({error}). Give an eval_set, a "
                "larger validation_fraction, or more rows."
            ) from None
        return np.setdiff1d(np.arange(len(targets)), aside), np.sort(aside)

    def _eval_rows(self, eval_set: Any, train: TextColumns, classes: np.ndarray, start: Pretrained):
        if not isinstance(eval_set, (tuple, list)) or len(eval_set) != 2:
            raise ValueError("eval_set must be a pair (X, y).")
        texts = self._read_texts(eval_set[0])
        self._check_columns(texts, len(train.columns), train.names)
        labels = label_column(eval_set[1], texts.n_rows, name="eval_set's y")
        unknown = sorted(set(labels.tolist()) - set(classes.tolist()), key=str)
        if unknown:
            raise ValueError(f"eval_set holds labels that y does not: {unknown[:5]}.")
        targets = np.searchsorted(classes, labels).astype("int32")
        return self._sequences(start.tokenizer, texts), targets, np.ones(len(targets), "float32")

    # --- Predicting --------------------------------------------------------------------------------------------

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
        logits = self._predict_logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of float64, shape (n_rows, n_classes)
            Columns in the order of ``classes_``.
        """
        return softmax(self._predict_logits(X).astype("float64"), axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Natural logarithm of `predict_proba`."""
        return log_softmax(self._predict_logits(X).astype("float64"), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)

        Returns
        -------
        ndarray of shape (n_rows,)
            Labels of the type that ``fit`` was given.
        """
        logits = self._predict_logits(X)
        return self.classes_[logits.argmax(axis=1)]

    # --- Saving ------------------------------------------------------------------------------------------------

    def _save_model(self, folder: Path) -> None:
        save_sequence_classifier(self.model_, folder, {i: str(label) for i, label in enumerate(self.classes_)})

    def _load_model(self, folder: Path, policy: str) -> BertForSequenceClassification:
        return load_sequence_classifier(folder, dtype=policy)

    def _learned_to_json(self) -> dict:
        return {"classes": persistence.encode_labels(self.classes_)}

    def _learned_from_json(self, values: dict, folder: Path) -> None:
        self.classes_ = persistence.decode_labels(values["classes"])
        if len(self.classes_) != self.model_.num_labels:
            raise WeightsMismatchError(
                f"{folder} holds {len(self.classes_)} labels and a head of {self.model_.num_labels} outputs."
            )

    def _learned_from_config(self, folder: Path) -> None:
        self.classes_ = persistence.labels_of_config(folder, self.model_.num_labels)


def _evaluator(model, sequences: TokenSequences, targets: np.ndarray, weights: np.ndarray, pad_id: int):
    """A function that gives the model's present loss and accuracy on some rows."""

    def evaluate() -> dict[str, float]:
        logits = predict_logits(model, [sequences], len(targets), pad_id).astype("float64")
        losses = -log_softmax(logits, axis=1)[np.arange(len(targets)), targets]
        return {
            "val_loss": float(np.average(losses, weights=weights)),
            "val_score": float(np.average(logits.argmax(axis=1) == targets, weights=weights)),
        }

    return evaluate
