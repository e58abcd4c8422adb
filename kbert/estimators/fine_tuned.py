"""What the fine-tuned estimators share: their task, and how its learned state becomes theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import pandas as pd

from kbert.config import BertConfig
from kbert.config_json import read_config_json
from kbert.data.columns import Columns
from kbert.data.texts import TextColumns
from kbert.estimators.explaining import explanation
from kbert.estimators.parameters import Parameters
from kbert.estimators.recipe import remember_settled, settled_values
from kbert.estimators.servable import ServableEstimator
from kbert.tasks import Task, task_of
from kbert.tasks.explaining import Explainer, ToExplain
from kbert.tasks.task import RowTask, learned_attributes
from kbert.training.progress import PredictionProgress
from kbert.values.saved import SavedValues

if TYPE_CHECKING:
    import keras

    from kbert.estimators.fit_plan import FitPlan
    from kbert.reports import Report

# Devlin et al. (2018), appendix A.3, and the original code's run_classifier.py.
_PAPER: dict[str, Any] = {
    "long_text": "truncate", "epochs": 3, "learning_rate": "paper", "classifier_pooling": "cls", "head_start": "random",
    "decoding": "argmax",
}  # fmt: skip
_PAPER_LENGTH = 128

# The class of an estimator's task.
T = TypeVar("T", bound=Task[Any, Any, Any, Any], covariant=True)


class FineTunedEstimator(ServableEstimator, Generic[T]):
    """An estimator with a task of type T. Its ``fit`` is `kbert.estimators.fitting.fit`.

    A subclass names its task, ``_task_type = Regression``, declares the task's parameters among its own, and turns
    outputs into answers in ``predict`` and the like.
    """

    _batch_of_paper: ClassVar[int] = 32

    @classmethod
    def paper(cls, size: str | BertConfig = "base", **parameters: Any) -> Self:
        """An estimator that is fine-tuned as in the paper (Devlin et al., 2018, section 4 and appendix A.3).

        Three epochs at batch 32 (in multiple choice 16, as for SWAG), a head that starts at random, which for texts
        and options reads the pooler's vector of [CLS], and texts that are cut at 128 tokens. The learning rate is the
        size's, ``learning_rate="paper"``: from "small" on one of those that the paper tried, and 1e-4 for "tiny" and
        "mini". Of tags the most probable one is taken for each word. What is saved opens in transformers.

        Parameters
        ----------
        size : str or BertConfig, default="base"
        **parameters
            All others of the estimator, which go before those of the paper.

        Returns
        -------
        estimator

        Examples
        --------
        >>> from kbert import BertClassifier
        >>> classifier = BertClassifier.paper("minilm-l6", epochs=4)
        >>> classifier.head_start, classifier.epochs
        ('random', 4)
        """
        names = cls._get_param_names()
        recipe = {name: value for name, value in _PAPER.items() if name in names} | {"batch_size": cls._batch_of_paper}
        if "long_text" in names:  # the others read rows whole
            recipe["max_length"] = _PAPER_LENGTH
        return cls(size, **{**recipe, **parameters})

    @property
    def _task_type(self) -> type[T]:
        """The class of the task."""
        raise NotImplementedError

    def _task(self) -> T:
        """The task of the fitted estimator, with its present parameters."""
        return task_of(self._task_type, settled_values(vars(self)))

    def _row_reader(self) -> T:
        """What reads rows: the task, with the present parameters."""
        return self._task()

    def _new_task(self, parameters: Parameters, y: Any) -> T:
        """The task of a first fit, which has learned nothing."""
        return task_of(self._task_type, vars(parameters))

    def _fit(self, X: Any, y: Any, sample_weight: Any, eval_set: Any, callbacks: Any) -> None:
        """Fit to X and y, and become the fitted estimator only then, so that a fit that fails changes nothing."""
        from kbert.estimators.fitting import fit  # what trains needs Keras

        found = fit(self, X, y, sample_weight, eval_set, callbacks)
        fitted, parameters = self._without_fit(), found.parameters
        fitted._remember_columns(found.columns)
        self._remember_start(fitted, parameters)
        fitted.model_, fitted.tokenizer_, fitted.config_ = found.model, found.tokenizer, found.model.config
        fitted.history_, fitted.n_iter_ = found.history, len(found.history["loss"])
        fitted.n_rows_, fitted.n_truncated_, fitted.row_shares_ = found.columns.n_rows, found.n_truncated, found.shares
        if self._is_warm_start() and hasattr(parameters, "head_start"):
            parameters.head_start = getattr(self, "head_start_", "auto")  # that of the earlier fit
        remember_settled(fitted, parameters)
        fitted._take_over(found.task)
        self._become(fitted)

    def _take_over(self, task: Task[Any, Any, Any, Any]) -> None:
        """Copy what the task has learned into the fitted attributes."""
        for name, value in learned_attributes(task).items():
            setattr(self, name, value)

    def plan(self, X: Any, y: Any, sample_weight: Any = None) -> FitPlan:
        """Say what ``fit`` would do with these rows, and what it would take, within seconds.

        Nothing is trained, and the estimator stays as it is. What "auto" stands for is exactly what it stands for in
        the fit, but for what its probe decides (``head_start``, ``classifier_pooling``, and twice the rate for a
        classifier of pairs whose head starts at random). Seconds and memory are estimates: docs/howto/plan.md says what
        they rest on, and how far off they are.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``. Of many rows some are tokenised; labels and duplicates are those of all.

        Returns
        -------
        FitPlan
            Rows, labels and their shares, tokens, rows that are cut, duplicates, updates, seconds, memory. It is shown
            as text.

        Raises
        ------
        ValueError, TypeError
            What ``fit`` raises for parameters and rows that cannot be used.

        Examples
        --------
        >>> from kbert import BertClassifier
        >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
        >>> plan = BertClassifier("minilm-l6", epochs=2, batch_size=16).plan(texts, labels)
        >>> plan.n_updates, plan.n_contradictions
        (6, 0)
        >>> plan.seconds_fit < 600
        True
        """
        from kbert.estimators.planning import plan

        return plan(self, X, y, sample_weight)

    # --- Predicting ------------------------------------------------------------------------------------------------

    def _read(self, X: Any) -> tuple[T, Any]:
        """The task, and X as plain columns, which are those of fit; with a warning if many more are empty."""
        self._check_fitted()
        task = self._task()
        return task, self._columns_to_predict(task, X)

    def _outputs(self: FineTunedEstimator[RowTask[Any, Any, Any, Any]], X: Any) -> np.ndarray:
        """The model's outputs for each row of X, float32, shape (n_rows, n_outputs)."""
        return self._outputs_of(X, *self._read(X))

    def _outputs_of(self, X: Any, task: RowTask[Any, Any, Any, Any], columns: Any) -> np.ndarray:
        """The same for an X that has been read."""
        cut: list[np.ndarray] = []
        with PredictionProgress(columns.n_rows, self.verbose):
            outputs = task.predict(self.model_, self.tokenizer_, columns, cut)
        self._tell_cut(task, X, columns, cut)
        return outputs

    def _explained_texts(
        self, explainer: Explainer, X: Any, task: Any, columns: Any, outputs: np.ndarray | None, unit: str
    ) -> pd.DataFrame:
        """``explain`` of texts, pairs and options; ``outputs`` are the numbers of each row's outputs, None for all."""

        def to_explain(some: Columns, rows: slice, cut: list[np.ndarray]) -> ToExplain:
            of_rows = None if outputs is None else outputs[rows]
            return task.to_explain(some, self.tokenizer_, of_rows, cut, rows.start)

        return self._explained(explainer, X, task, columns, to_explain, unit, len(columns.columns) > 1)

    def _explained(
        self,
        explainer: Explainer,
        X: Any,
        task: Any,
        columns: Columns,
        to_explain: Callable[[Any, slice, list[np.ndarray]], ToExplain],
        unit: str,
        has_column: bool,
    ) -> pd.DataFrame:
        """``explain`` of rows that may be cut: ``to_explain`` adds those that were to its list, which is told of."""
        cut: list[np.ndarray] = []
        frame = explanation(
            explainer, X, columns, lambda some, rows: to_explain(some, rows, cut), unit, has_column, self.verbose
        )
        self._tell_cut(task, X, columns, cut)
        return frame

    # --- Judging ---------------------------------------------------------------------------------------------------

    def report(
        self,
        X: Any,
        y: Any,
        *,
        train: tuple[Any, Any] | None = None,
        cv: Any = None,
        max_rows: int = 20,
        explain: bool = True,
    ) -> Report:
        """What the estimator is worth on rows with labels, and which of these rows to look at.

        The result is a page of HTML: the score with its 95% interval beside simple baselines, the scores of each label,
        what was taken for what, whether probabilities are what they say, scores by length, and the rows that are most
        surely wrong, with their words shaded by what they speak for. Nothing is sent anywhere.

        Parameters
        ----------
        X, y : array-like
            As for ``score``: rows that the estimator was not fitted to.
        train : tuple (X, y), optional
            The rows of the fit. The baselines then learn from them, and a linear model on TF-IDF is among them.
        cv : int, cross-validation generator or iterable, optional
            Of a classifier with one label a row, or a regressor: judge each row by a clone that was fitted without it,
            as scikit-learn's ``cross_val_predict`` has it, so that X and y may be the rows of the fit. 5 stands for
            five shuffled folds. This fits as often as there are folds, and is how wrong labels of training rows are
            found. The estimator need not be fitted; if it is, words are shaded by what they say to it.
        max_rows : int, default=20
            How many of the rows to look at are shown. All of them are in the report's ``doubtful``.
        explain : bool, default=True
            Whether the words of these rows are shaded, which takes as long as predicting each 64 times.

        Returns
        -------
        Report
            A notebook shows it. ``save(path)`` writes the page, ``as_dict()`` gives its numbers, and ``doubtful`` is a
            DataFrame of the rows whose prediction is not what is given.

        Raises
        ------
        ValueError, TypeError
            For rows and arguments that cannot be used; the message names them.
        sklearn.exceptions.NotFittedError
            Before ``fit``, without ``cv``.

        Examples
        --------
        >>> from kbert import BertClassifier
        >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
        >>> classifier = BertClassifier("minilm-l6", epochs=1).fit(texts, labels)
        >>> report = classifier.report(["good", "bad"], ["pos", "neg"], train=(texts, labels))
        >>> report.save("report.html")
        """
        from kbert.reports.report import report

        return report(self, X, y, train=train, cv=cv, max_rows=max_rows, explain=explain)

    # --- Saving: what `SavableEstimator` asks for ---------------------------------------------------------------------

    def _logits_of_texts(self: FineTunedEstimator[RowTask[Any, Any, Any, Any]], texts: list[str]) -> np.ndarray:
        columns = TextColumns((texts,) * getattr(self, "n_features_in_", 1), None, 0)
        return self._task().predict(self.model_, self.tokenizer_, columns)

    def _architecture(self) -> str:
        return self._task_type.architecture

    def _save_model(self, folder: Path) -> None:
        self._task().save_model(self.model_, folder)

    def _load_model(self, folder: Path, policy: str) -> keras.Model:
        return self._task_type.load_model(folder, policy)

    def _learned_to_json(self) -> dict[str, Any]:
        return self._task().learned_to_json()

    def _learned_from_json(self, values: SavedValues, folder: Path) -> None:
        task = self._task()
        task.learn_from_json(values, self.model_, folder)
        self._take_over(task)

    def _learned_from_config(self, folder: Path) -> None:
        task = self._task()
        task.learn_from_config(read_config_json(folder), self.model_, folder)
        self._take_over(task)
