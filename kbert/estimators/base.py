"""What all estimators share: scikit-learn's conventions, where the weights come from, saving and exporting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags

from kbert.config import BertConfig
from kbert.data.columns import Columns
from kbert.data.frames import readable_again, refuse_one_row
from kbert.estimators.export import ExportableEstimator
from kbert.estimators.parameter_names import did_you_mean, refuse_unknown_parameters
from kbert.estimators.parameters import OF_START, Parameters, check_parameters_read_after_fit
from kbert.forks import is_usable_process, require_usable_process
from kbert.tasks.row_notices import RowReader, RowsRead, tell_cut, tell_missing
from kbert.training.checkpoint_folders import refuse_in_search
from kbert.training.distribution import is_distribution, predicting_on
from kbert.weights.runtimes import ExportedModel
from kbert.weights.start import Start, pretrained_start, random_start

C = TypeVar("C", bound=Columns)


class BertEstimator(ExportableEstimator):
    """Base of the estimators. Subclasses declare their parameters in ``__init__``, which only assigns."""

    n_features_in_: int
    feature_names_in_: np.ndarray

    # What X's columns are, for the error about another number of them than in fit. None where the task fixes the
    # number, and n_features_in_ is not set.
    _columns_are: str | None = "one column for single texts, two for pairs"

    # --- Parameters ------------------------------------------------------------------------------------------------

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse keywords that are no parameters, before ``__init__`` does, with the name that was probably meant."""
        refuse_unknown_parameters(cls, kwargs)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, as in scikit-learn. The error for a name that is none says what may be meant."""
        names = self._get_param_names()
        for name, value in params.items():
            own, _, inner = name.partition("__")
            if inner and own in names and not hasattr(getattr(self, own), "set_params"):
                raise ValueError(
                    f"{type(self).__name__}: {own} is one value, {getattr(self, own)!r}, and {name} sets a part of "
                    f"it. Give it as a whole; a search takes several: {{{own!r}: [...]}}."
                )
            if name not in names and (advice := did_you_mean(name, value, names)):
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}.{advice} Valid parameters are: {names!r}."
                )
        return super().set_params(**params)

    # --- Where a fit starts ----------------------------------------------------------------------------------------

    def _is_warm_start(self) -> bool:
        """Whether a fit goes on from an earlier one."""
        return bool(getattr(self, "warm_start", False)) and self.__sklearn_is_fitted__()

    def _start(self, parameters: Parameters, texts: Iterable[str]) -> Start:
        """The earlier fit, or ``size`` and ``weights``; a random start learns its vocabulary from the texts."""
        require_usable_process()
        if self._is_warm_start():
            self._require_keras_model("fit with warm_start")
            self._refuse_another_start()
            start = Start(self.config_, self.tokenizer_, model=self.model_)
        elif parameters.weights is None:
            start = random_start(parameters.size, texts, getattr(parameters, "vocab_size", None))
        else:
            start = pretrained_start(
                parameters.size, parameters.weights, parameters.revision, caller=type(self).__name__
            )
        self._check_max_length(start.config)
        return start

    def _refuse_another_start(self) -> None:
        """Refuse a warm start of another model than that which the parameters describe."""
        parameters = self._parameters_of_start()
        if getattr(self, "classifier_pooling", "auto") != "auto":
            parameters = {**parameters, "classifier_pooling": self.config_.classifier_pooling}
        for name, before in parameters.items():
            now, before = (os.fspath(v) if isinstance(v, os.PathLike) else v for v in (getattr(self, name), before))
            if now != before:
                raise ValueError(
                    f"{type(self).__name__}: warm_start=True goes on from the model of the earlier fit, which had "
                    f"{name}={before!r}, and {name} is {now!r} now. Set warm_start=False, to start from that; or "
                    f"{name}={before!r}, to go on."
                )

    def _remember_start(self, fitted: Self, parameters: Parameters) -> None:
        """Keep in a fitted estimator what the fit, or in a warm start the first of all fits, started from."""
        started_from = self._parameters_of_start() if self._is_warm_start() else {}
        fitted.started_from_ = started_from or {name: getattr(parameters, name) for name in OF_START}

    def _parameters_of_start(self) -> dict[str, Any]:
        """The parameters that say what the fit started from, as they were then; none where that is not known."""
        started_from: dict[str, Any] = getattr(self, "started_from_", {})
        return started_from

    def _check_max_length(self, config: BertConfig) -> None:
        """A position beyond the table would be looked up in silence on an accelerator."""
        limit, longest = config.max_position_embeddings, self._longest_given()
        if longest is not None and longest > limit:
            raise ValueError(
                f"{type(self).__name__}: max_length must be at most {limit}, the positions of this model, "
                f"got {longest}."
            )

    def _longest_given(self) -> int | None:
        """The most tokens of a row that the parameters ask for; None where they leave it open."""
        return None if isinstance(self.max_length, str) else self.max_length

    # --- The columns of X ------------------------------------------------------------------------------------------

    def _remember_columns(self, columns: Columns) -> None:
        """Keep the number and the names of the columns, which predict expects."""
        if self._columns_are is not None:
            self.n_features_in_ = _n_features(columns)
        if columns.names is not None:
            self.feature_names_in_ = np.array(columns.names, dtype=object)

    def _refuse_one_row(self, X: Any) -> None:
        """Refuse one row of such a table as fit had, whose values would be read as rows of their own."""
        if (names := getattr(self, "feature_names_in_", None)) is not None:
            refuse_one_row(X, tuple(names), "X")

    def _check_columns(self, columns: Columns, like: Columns | None = None, name: str = "X") -> None:
        """Refuse columns that differ from those of fit, or from ``like``."""
        if like is None:
            # A classifier that transformers saved does not say whether it was made for pairs.
            n_features = getattr(self, "n_features_in_", None)
            names = getattr(self, "feature_names_in_", None)
            names = None if names is None else list(names)
        else:
            n_features, names = _n_features(like) if self._columns_are is not None else None, like.names
        if n_features is not None and _n_features(columns) != n_features:
            raise ValueError(
                f"{name} has {_n_features(columns)} features, but {type(self).__name__} is expecting {n_features} "
                f"features as input: {self._columns_are}, as in fit."
            )
        # Where either has no names, all is well.
        if columns.names is not None and names is not None and columns.names != names:
            raise _other_names(columns.names, names, name)

    def _refuse_other_columns(self, X: Any) -> None:
        """Say of a table that was refused what to select of it, if it has other columns than fit had."""
        names: list[str] = getattr(self, "feature_names_in_", np.array([])).tolist()
        columns = list(getattr(X, "columns", ()))
        are_names = all(isinstance(column, str) for column in columns) and len(set(columns)) == len(columns)
        if self._columns_are is None or not names or columns == names or not are_names:
            return  # also where columns are found by their names, among any others
        if set(names) < set(columns):
            raise ValueError(
                f"X has {len(columns)} features, but {type(self).__name__} is expecting {len(names)} features as "
                f"input, as in fit. Select X[{names}]."
            ) from None
        if len(names) == len(columns):
            raise _other_names(columns, names, "X") from None

    def _columns_to_predict(self, reader: RowReader[C], X: Any) -> C:
        """X as plain columns, which are those of fit; with a warning if many more are empty."""
        columns = self._columns_of_fit(reader, X)
        self._tell_missing(reader, X, columns)
        return columns

    def _columns_of_fit(self, reader: RowReader[C], X: Any) -> C:
        """X as plain columns, which are those of fit."""
        self._check_max_length(self.config_)
        self._refuse_one_row(X)
        try:
            columns = reader.read(readable_again(X))
            self._check_columns(columns)
        except (TypeError, ValueError):
            self._refuse_other_columns(X)
            raise
        return columns

    # --- What the user is told of the rows -------------------------------------------------------------------------

    def _tell_missing(self, reader: RowReader[C], X: Any, columns: C) -> None:
        """When predicting: warn of missing texts, if many more rows have some than in fit."""
        shares = getattr(self, "row_shares_", None)  # not known in models that transformers saved
        tell_missing(reader, [RowsRead(X, columns)], shares and shares.empty)

    def _tell_cut(self, reader: RowReader[C], X: Any, columns: C, cut: list[np.ndarray]) -> None:
        """When predicting: warn of rows that were cut, if many more were than in fit."""
        shares = getattr(self, "row_shares_", None)
        tell_cut(reader, [RowsRead(X, columns, np.concatenate(cut))], shares and shares.cut)

    # --- The state of a fit ------------------------------------------------------------------------------------------

    def _without_fit(self) -> Self:
        """An estimator with the same parameters, which has learned nothing."""
        other = object.__new__(type(self))
        other.__dict__.update({name: value for name, value in vars(self).items() if not name.endswith("_")})
        return other

    def _become(self, fitted: Self) -> None:
        """Take over all that a fit has learned, at once: no other thread finds a part of it, or nothing."""
        self.__dict__ = fitted.__dict__

    def _of_one_fit(self) -> Self:
        """This fitted estimator as it is now: a fit in another thread does not change what is returned.

        Parameters that belong to the fit are those of the fit, whatever they were set to since. The others that are
        read after it are checked.
        """
        self._check_fitted()
        if not isinstance(getattr(self, "model_", None), ExportedModel):  # which has threads of its own
            require_usable_process()
        other = object.__new__(type(self))
        other.__dict__.update(vars(self))
        other.__dict__.update(other._parameters_of_fit())
        check_parameters_read_after_fit(other)
        return other

    def _parameters_of_fit(self) -> dict[str, Any]:
        """The parameters that the fitted model was made with, where another value would mean another model."""
        return self._parameters_of_start()

    # --- scikit-learn ----------------------------------------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        if (folder := getattr(self, "checkpoint", None)) is not None:
            refuse_in_search(folder)
        clone: Self = super().__sklearn_clone__()
        return clone

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            name = type(self).__name__
            raise NotFittedError(
                f"This {name} instance is not fitted yet. Call 'fit' with appropriate arguments before using this "
                f"estimator, or load a saved one: {name}.load(folder)."
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The model travels as plain arrays, so that a pickle opens under another backend too.

        A distribution, which names devices of this process, is "auto" in the pickle of a fitted estimator, as in a
        saved one.

        Raises
        ------
        TypeError
            If an estimator that is to be fitted elsewhere has such a distribution.
        """
        state = super().__getstate__()
        if is_distribution(state.get("distribution")):
            if "model_" not in state:
                raise TypeError(
                    f"{type(self).__name__}: distribution={type(state['distribution']).__name__}(...) names devices of "
                    'this process, and cannot be sent to another one (n_jobs, pickle). Set distribution="auto", which '
                    "takes those that a process sees, or None, which takes one."
                )
            state = {**state, "distribution": "auto"}
        # A tuple is what `__setstate__` keeps where no model can be made.
        if "model_" in state and not isinstance(state["model_"], ExportedModel | tuple):
            from kbert.model.base import to_numpy

            model = state["model_"]
            weights = [to_numpy(variable.value) for variable in model.weights]
            state = {**state, "model_": (type(model), model.get_config(), weights)}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # In a process where a backend would wait without end, the arrays are kept: an error here would end a worker of
        # multiprocessing, and its pool would start another one, and wait. Each use of the model raises it instead.
        if isinstance(state.get("model_"), tuple) and is_usable_process():
            from kbert.model.encoder import skip_initialisation

            model_class, config, weights = state["model_"]
            with skip_initialisation():
                model = model_class.from_config(config)
            for variable, array in zip(model.weights, weights, strict=True):
                variable.assign(array)
            state = {**state, "model_": model}
        super().__setstate__(state)


Estimator = TypeVar("Estimator", bound=BertEstimator)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def of_one_fit(
    method: Callable[Concatenate[Estimator, Arguments], Result],
) -> Callable[Concatenate[Estimator, Arguments], Result]:
    """Let a method of an estimator, such as ``predict``, see the state of one fit from its begin to its end."""

    @wraps(method)
    def of_its_state_now(self: Estimator, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        fitted = self._of_one_fit()
        with predicting_on(getattr(fitted, "distribution", "auto")):
            return method(fitted, *args, **kwargs)

    return of_its_state_now


def _other_names(found: list[str], names: list[str], name: str) -> ValueError:
    """In scikit-learn's words."""
    if set(found) == set(names):
        what_to_do = f"Select X[{names}]."
    else:
        renamed = {now: before for now, before in zip(found, names, strict=True) if now != before}
        what_to_do = f"Give the columns of fit; if these are the same, X.rename(columns={renamed})."
    return ValueError(
        "The feature names should match those that were passed during fit.\n"
        f"Feature names must be in the same order as they were in fit: {names}; {name} has {found}. {what_to_do}"
    )


def _n_features(columns: Columns) -> int:
    """How many columns there are; rows of words are one."""
    return len(getattr(columns, "columns", [columns]))
