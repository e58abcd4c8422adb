"""How long rows are for an estimator, which need not be fitted."""

from __future__ import annotations

from typing import Any

from kbert.data.frames import readable_again
from kbert.estimators.parameters import checked_parameters
from kbert.estimators.recipe import settle_lengths
from kbert.tasks.row_lengths import RowLengths, row_lengths


def lengths_of_rows(estimator: Any, X: Any) -> tuple[RowLengths, int]:
    """The lengths of the rows of X in tokens, and the ``max_length`` of the estimator in numbers.

    No model is loaded. The tokenizer is that of the fit, or the one that a fit would start with.

    Parameters
    ----------
    estimator : FineTunedEstimator or BertVectorizer
    X : array-like
        As for its ``fit``.

    Raises
    ------
    TypeError
        If the estimator does not read rows of texts or words.
    ValueError
        If a parameter or X is not usable.
    """
    if not hasattr(estimator, "_row_reader"):
        raise TypeError(
            f"{type(estimator).__name__} does not read rows of texts or words, so that these have no lengths for it. "
            "Give a classifier, regressor, tagger, question answerer, multiple choice or vectorizer of kbert."
        )
    is_fitted = estimator.__sklearn_is_fitted__()
    estimator = estimator._of_one_fit() if is_fitted else estimator
    parameters, reader = checked_parameters(estimator), estimator._row_reader()
    columns = reader.read(readable_again(X))
    if is_fitted:
        estimator._check_columns(columns)
        tokenizer = estimator.tokenizer_
    else:
        start = estimator._start(parameters, columns.texts())
        tokenizer = start.tokenizer
        settle_lengths(parameters, reader, start.config)
    return row_lengths(reader, columns, tokenizer), int(reader.max_length)
