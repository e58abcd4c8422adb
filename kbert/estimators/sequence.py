"""What estimators share that give a few numbers for each row: the course of a fit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from kbert.data.frames import TextColumns
from kbert.data.labels import sample_weights
from kbert.estimators.base import BertEstimator, Start, eval_pair
from kbert.estimators.fitting import Rows
from kbert.model import BertForSequenceClassification
from kbert.weights import load_sequence_classifier, save_sequence_classifier


class SequenceEstimator(BertEstimator):
    """An estimator whose model is `BertForSequenceClassification`. A subclass says what y is by three methods:

    ``_read_task(y, n_rows)`` gives a task (`label_tasks`, `regression_task`) and the labels in its encoding,
    ``_task()`` the task of a fitted estimator, and ``_finish(model, task, held_out, pad_id)`` all learned attributes
    that are its own, once the model is trained.
    """

    model_: BertForSequenceClassification

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, eval_set: tuple | None = None, callbacks: Any = None
    ) -> Self:
        """Fine-tune on texts and what belongs to them.

        Parameters
        ----------
        X : array-like of str, shape (n_rows,) or (n_rows, 2)
            Texts: a Series, list or array; or pairs: a DataFrame of two columns, or a list of pairs.
        y : array-like
            One label for each row: strings, whole numbers or booleans, categorical and nullable dtypes included; or
            several (`BertClassifier`): an indicator matrix, whose columns are the labels, or lists of labels. One or
            several numbers for each row (`BertRegressor`).
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row in the loss, and in the score of rows set aside. Only the ratios count.
        eval_set : tuple (X, y), optional
            Rows on which loss and score are taken after each epoch; ``early_stopping``, ``calibrate`` and
            ``tune_thresholds`` use these instead of setting rows aside.
        callbacks : keras.callbacks.Callback or list of them, optional
            ``on_epoch_end`` sees the trained weights in the model.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For rows, labels or parameters that cannot be used; the message names them. A text, label or column name
            with a lone surrogate, half of a character, is one.
        WeightsNotFoundError, WeightsMismatchError
            When there are no weights under that name, or damaged ones.
        """
        seed, policy = self._validated()
        texts = self._read_texts(X, stacklevel=4)
        if self._goes_on():
            self._check_columns(texts)
            task = self._task()
            labels = task.encode(y, texts.n_rows, "y")
        else:
            task, labels = self._read_task(y, texts.n_rows)
        self._check_task(task)
        row_weights = sample_weights(sample_weight, texts.n_rows)
        row_weights = np.ones(texts.n_rows, "float32") if row_weights is None else row_weights
        weighted = task.weighted(labels, row_weights, getattr(self, "class_weight", None))
        start = self._start(texts)
        self._check_max_length(start.config)
        rows = Rows(self._sequences(start.tokenizer, texts), *weighted)

        held_out = None
        if eval_set is not None:
            held_out = self._eval_rows(eval_set, texts, task, start)
        elif self._rows_aside():
            # As for an eval_set: class_weight is for learning, and what is learned is looked at without.
            plain = Rows(rows.sequences, *task.weighted(labels, row_weights, None))
            kept, aside = self._split(task.strata(plain.targets), plain.weights, seed)
            rows, held_out = rows.take(kept), plain.take(aside)

        config = start.config.with_dropout(self.dropout)
        make = partial(BertForSequenceClassification, config, task.n_outputs, dtype=policy)
        model, history = self._fine_tune(make, task, rows, held_out, start, seed, callbacks)
        task.fold(model)
        learned = self._finish(model, task, held_out, start.tokenizer.pad_id)

        self._forget()
        self._remember_columns(texts)
        self.model_, self.tokenizer_, self.config_ = model, start.tokenizer, config
        self.history_, self.n_iter_ = history, len(history["loss"])
        for name, value in learned.items():
            setattr(self, name, value)
        return self

    def _check_task(self, task) -> None:
        """Refuse parameters that do not go with this kind of y."""

    def _eval_rows(self, eval_set: Any, train: TextColumns, task, start: Start) -> Rows:
        X, y = eval_pair(eval_set)
        texts = self._read_texts(X, name="eval_set's X")
        self._check_columns(texts, len(train.columns), train.names, "eval_set's X")
        labels = task.encode(y, texts.n_rows, name="eval_set's y")
        targets, weights = task.weighted(labels, np.ones(texts.n_rows, "float32"), None)
        return Rows(self._sequences(start.tokenizer, texts, stacklevel=5), targets, weights)

    # --- Saving ------------------------------------------------------------------------------------------------

    def _save_model(self, folder: Path) -> None:
        task = self._task()
        save_sequence_classifier(self.model_, folder, task.names, task.problem_type)

    def _load_model(self, folder: Path, policy: str) -> BertForSequenceClassification:
        return load_sequence_classifier(folder, dtype=policy)
