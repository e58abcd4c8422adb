"""What all estimators share: where the weights come from, tokenising, fitting, saving and loading."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from kbert.config import SIZES, BertConfig, default_learning_rate, named_size
from kbert.data.frames import TextColumns, text_columns, warn_missing
from kbert.errors import TruncationWarning
from kbert.estimators.export import ExportMixin
from kbert.estimators.fitting import fine_tune, with_restarts
from kbert.estimators.parameters import check_parameters, draw_seed
from kbert.estimators.saving import SavingMixin
from kbert.hub import resolve_folder
from kbert.model.encoder import skip_initialisation
from kbert.text import TokenSequences, WordPieceTokenizer, build_sequences, build_windows
from kbert.text.chunks import chunks
from kbert.text.files import check_vocabulary
from kbert.training.loop import TrainingOptions, layer_rates
from kbert.training.precision import dtype_policy
from kbert.training.predict import predict_logits
from kbert.weights import load_encoder_weights, read_checkpoint

# What is tokenised, and when predicting computed, at a time: bounded, since texts may be long.
_PART_ROWS = 8192
_PART_CHARACTERS = 4_000_000


class Start(NamedTuple):
    """Where a fit starts: an architecture, a tokenizer, and weights.

    These are in a folder, or a fitted model of the same architecture and head; without either the start is random.
    """

    config: BertConfig
    tokenizer: WordPieceTokenizer
    folder: Path | None = None
    model: keras.Model | None = None

    @property
    def has_weights(self) -> bool:
        """Whether there are weights to replace a random start."""
        return self.folder is not None or self.model is not None

    def arrays(self) -> dict[str, np.ndarray] | None:
        """Those of the folder; to be read before a model of its size is made."""
        return None if self.folder is None else read_checkpoint(self.folder)[1]


def parts_of(n_characters: np.ndarray) -> Iterator[slice]:
    """The rows of each part, by the characters of each row."""
    return chunks(n_characters, _PART_ROWS, _PART_CHARACTERS)


def check_names(names: list[str] | None, fitted: list[str] | None, name: str = "X") -> None:
    """Refuse other column names than those of fit, in scikit-learn's words; where either has none, all is well."""
    if names is not None and fitted is not None and names != fitted:
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            f"Feature names must be in the same order as they were in fit: {fitted}; {name} has {names}. "
            f"Select X[{fitted}]."
        )


def eval_pair(eval_set: Any) -> tuple[Any, Any]:
    """X and y of an eval_set."""
    if isinstance(eval_set, list) and eval_set and all(_is_pair_of_columns(pair) for pair in eval_set):
        raise ValueError(
            f"eval_set must be a pair (X, y), got a list with {len(eval_set)} such. Give the one to be watched: "
            "eval_set=(X, y)."
        )
    if not isinstance(eval_set, (tuple, list)) or len(eval_set) != 2:
        raise ValueError("eval_set must be a pair (X, y).")
    return eval_set[0], eval_set[1]


def _is_pair_of_columns(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and not any(map(np.isscalar, value))


class BertEstimator(SavingMixin, ExportMixin, BaseEstimator):
    """Base of the estimators. Subclasses declare their parameters in ``__init__``, which only assigns."""

    model_: keras.Model
    tokenizer_: WordPieceTokenizer
    config_: BertConfig
    n_iter_: int
    history_: dict[str, list[float]]
    n_features_in_: int
    feature_names_in_: np.ndarray

    # For messages.
    _columns_are = "one column for single texts, two for pairs"

    # --- Input -------------------------------------------------------------------------------------------------

    def _read_texts(self, X: Any, stacklevel: int = 5, name: str = "X") -> TextColumns:
        """Plain columns from X, with one warning about missing texts, at the user's line: two calls away, or so."""
        texts = text_columns(X, name=name)
        warn_missing(texts.n_missing, texts.n_rows)
        return texts

    def _forget(self) -> None:
        """Drop what an earlier fit learned, once a new one has succeeded."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _remember_columns(self, texts: TextColumns) -> None:
        """What predict is to expect; kept at the end of a fit, so that one that fails changes nothing."""
        self.n_features_in_ = len(texts.columns)
        if texts.names is not None:
            self.feature_names_in_ = np.array(texts.names, dtype=object)

    def _check_columns(
        self, texts: TextColumns, n_columns: int | None = None, names: list[str] | None = None, name: str = "X"
    ) -> None:
        """Refuse other columns than those of fit."""
        if n_columns is None:
            # A classifier that transformers saved does not say whether it was made for pairs.
            n_columns = getattr(self, "n_features_in_", len(texts.columns))
            names = getattr(self, "feature_names_in_", None)
            names = None if names is None else list(names)
        if len(texts.columns) != n_columns:
            raise ValueError(
                f"{name} has {len(texts.columns)} features, but {type(self).__name__} is expecting {n_columns} "
                f"features as input: {self._columns_are}, as in fit."
            )
        check_names(texts.names, names, name)

    def _sequences(self, tokenizer: WordPieceTokenizer, texts: TextColumns, stacklevel: int = 4) -> TokenSequences:
        """All rows as tokens, with one warning that says how many were cut, at the user's line."""
        truncated: list[int] = []
        sequences = TokenSequences.concatenate(self._parts(tokenizer, texts, truncated))
        self._warn_truncated(sum(truncated), texts.n_rows, stacklevel)
        return sequences

    def _parts(
        self, tokenizer: WordPieceTokenizer, texts: TextColumns, truncated: list[int]
    ) -> Iterator[TokenSequences]:
        """All rows as tokens, some at a time; how many were cut is appended to ``truncated``."""
        for rows in parts_of(texts.n_characters):
            columns = [column[rows] for column in texts.columns]
            if self.long_text == "window":
                part = build_windows(
                    tokenizer, *columns, max_length=self.max_length, stride=self.stride, first_row=rows.start
                )
            else:
                part = build_sequences(tokenizer, *columns, max_length=self.max_length, first_row=rows.start)
            truncated.append(part.n_truncated)
            yield part

    def _warn_truncated(self, n_truncated: int, n_rows: int, stacklevel: int = 4) -> None:
        if n_truncated:
            remedy = "A larger max_length reads more of them, and costs time."
            if hasattr(self, "long_text"):
                remedy = "long_text='window' reads all of them, a larger max_length more of them; both cost time."
            warnings.warn(
                f"{n_truncated} of {n_rows} rows have more than max_length={self.max_length} tokens and were cut. "
                f"{remedy}",
                TruncationWarning,
                stacklevel=stacklevel,
            )

    def _predict_logits(self, X: Any) -> np.ndarray:
        """The head's outputs for each row of X, shape (n_rows, n_outputs)."""
        self._check_fitted()
        self._check_max_length(self.config_)
        texts = self._read_texts(X)
        self._check_columns(texts)
        truncated: list[int] = []
        logits = self._logits(texts, truncated)
        self._warn_truncated(sum(truncated), texts.n_rows)
        return logits

    def _logits_of_texts(self, texts: list[str]) -> np.ndarray:
        """For a saved estimator's stored logits: of single texts, or of pairs of each with itself."""
        return self._logits(TextColumns((texts,) * getattr(self, "n_features_in_", 1), None, 0), [])

    def _logits(self, texts: TextColumns, truncated: list[int]) -> np.ndarray:
        parts = self._parts(self.tokenizer_, texts, truncated)
        return predict_logits(self.model_, parts, texts.n_rows, self.tokenizer_.pad_id)

    # --- Start of a fit ----------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Whether a fit continues an earlier one."""
        return bool(getattr(self, "warm_start", False)) and self.__sklearn_is_fitted__()

    def _start(self, texts: TextColumns) -> Start:
        """The earlier fit, or ``size`` and ``weights``; a random start learns its vocabulary from the texts."""
        if self._goes_on():
            return Start(self.config_, self.tokenizer_, model=self.model_)
        if self.weights is None:
            return self._random_start(texts)
        name = self.weights
        if name == "auto":
            if isinstance(self.size, BertConfig):
                raise ValueError(
                    f"{type(self).__name__}: size is a BertConfig, for which there are no released weights. "
                    "Give weights=<a folder or a hub name>, or weights=None for a random start."
                )
            name = named_size(self.size).hub_name
        folder = resolve_folder(name, self.revision)
        config, tokenizer = BertConfig.from_folder(folder), WordPieceTokenizer.from_pretrained(folder)
        check_vocabulary(tokenizer.vocab_size, config.vocab_size, folder)
        return Start(config, tokenizer, folder)

    def _random_start(self, texts: TextColumns) -> Start:
        config = self.size if isinstance(self.size, BertConfig) else named_size(self.size).config
        lowercase = not (isinstance(self.size, str) and self.size.endswith("-cased"))
        tokenizer = WordPieceTokenizer.train(texts.texts(), vocab_size=config.vocab_size, lowercase=lowercase)
        values = {**config.to_dict(), "vocab_size": tokenizer.vocab_size}
        return Start(BertConfig.from_dict(values), tokenizer)

    def _load_weights(self, model: keras.Model, start: Start, arrays: dict[str, np.ndarray] | None) -> None:
        if start.model is not None:
            for variable, earlier in zip(model.weights, start.model.weights, strict=True):
                variable.assign(earlier.value)
        elif start.folder is not None:
            load_encoder_weights(model.encoder, start.folder, arrays)

    def _freeze(self, encoder) -> None:
        """Take the embeddings and the first layers out of the training."""
        if not self.freeze:
            return
        depth = len(encoder.transformer_layers)
        if self.freeze > depth:
            raise ValueError(
                f"{type(self).__name__}: freeze must be at most {depth}, the layers of this model, got {self.freeze}."
            )
        for layer in (encoder.embeddings, *encoder.transformer_layers[: self.freeze]):
            layer.trainable = False

    def _training_options(self, config: BertConfig, encoder_model, seed: int, callbacks):
        callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks] * (callbacks is not None)
        for callback in callbacks:
            if not isinstance(callback, keras.callbacks.Callback):
                raise TypeError(
                    f"callbacks must be a keras.callbacks.Callback or a list of them, got {callback!r} of type "
                    f"{type(callback).__name__}. keras.callbacks.LambdaCallback makes one of a function."
                )
        rate = self.learning_rate
        if rate == "auto":
            named = SIZES.get(self.size) if isinstance(self.size, str) and self.weights in ("auto", None) else None
            rate = named.learning_rate if named else default_learning_rate(config)
        return TrainingOptions(
            epochs=int(self.epochs),
            learning_rate=float(rate),
            warmup=int(self.warmup) if isinstance(self.warmup, numbers.Integral) else float(self.warmup),
            weight_decay=float(self.weight_decay),
            bias_correction=bool(self.bias_correction),
            gradient_accumulation=int(self.gradient_accumulation),
            layer_rates=layer_rates(encoder_model, float(self.layer_decay)),
            seed=seed,
            verbose=int(self.verbose),
            callbacks=callbacks,
        )

    def _rows_aside(self) -> list[str]:
        """The parameters that ask for rows that are not trained on."""
        return [name for name in ("early_stopping", "calibrate", "tune_thresholds") if getattr(self, name, False)]

    def _split(self, strata: np.ndarray | None, weights: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on, and rows to set aside, with the same shares of the strata. The latter have a weight."""
        rows = np.flatnonzero(weights > 0)
        try:
            _, aside = train_test_split(
                rows,
                test_size=self.validation_fraction,
                stratify=None if strata is None else strata[rows],
                random_state=seed % 2**32,
            )
        except ValueError as error:
            raise ValueError(
                f"{self._rows_aside()[0]} sets validation_fraction={self.validation_fraction} of {len(rows)} rows "
                f"aside, with rows of every class on both sides, and that cannot be done here ({error}). Give an "
                "eval_set, a larger validation_fraction, or more rows."
            ) from None
        return np.setdiff1d(np.arange(len(weights)), aside), np.sort(aside)

    def _fine_tune(self, make, task, rows, held_out, start: Start, seed: int, callbacks):
        """A model of ``make(seed=...)``, trained, and its history."""

        def attempt(seed: int) -> tuple[keras.Model, dict[str, list[float]]]:
            arrays = start.arrays()
            with skip_initialisation(start.has_weights):
                model = make(seed=seed)
            self._load_weights(model, start, arrays)
            if start.model is not None:
                task.unfold(model)
            self._freeze(model.encoder)
            options = self._training_options(model.config, model, seed, callbacks)
            patience = self.n_iter_no_change if self.early_stopping else None
            batches = (int(self.batch_size), start.tokenizer.pad_id)
            return model, fine_tune(model, task, rows, held_out, batches, options, patience)

        return with_restarts(attempt, task, rows, start.tokenizer.pad_id, seed, int(self.n_restarts))

    def _check_max_length(self, config: BertConfig) -> None:
        """A position beyond the table would be looked up in silence on an accelerator."""
        limit = config.max_position_embeddings
        if self.max_length > limit:
            raise ValueError(
                f"{type(self).__name__}: max_length must be at most {limit}, the positions of this model, "
                f"got {self.max_length}."
            )

    def _validated(self) -> tuple[int, str]:
        """Check the parameters; the seed of this fit and the dtype policy."""
        check_parameters(self)
        return draw_seed(self.random_state), dtype_policy(self.dtype)

    # --- scikit-learn ------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise NotFittedError(
                f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before using this "
                f"estimator, or load a saved one: {name}.load(folder)."
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags

    def __getstate__(self):
        """The model travels as plain arrays, so that a pickle opens under another backend too."""
        state = super().__getstate__()
        if "model_" in state:
            model = state["model_"]
            weights = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in model.weights]
            state = {**state, "model_": (type(model), model.get_config(), weights)}
        return state

    def __setstate__(self, state):
        if "model_" in state:
            model_class, config, weights = state["model_"]
            with skip_initialisation():
                model = model_class.from_config(config)
            for variable, array in zip(model.weights, weights, strict=True):
                variable.assign(array)
            state = {**state, "model_": model}
        super().__setstate__(state)
