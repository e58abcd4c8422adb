"""scikit-learn estimators. Thin: parameters, validation, labels, save and load.

To import those that predict loads neither Keras nor its backend, which an exported model does not need.
"""

from typing import TYPE_CHECKING, Any

from kbert.estimators.classifier import BertClassifier
from kbert.estimators.loading import load
from kbert.estimators.multiple_choice import BertMultipleChoice
from kbert.estimators.qa import BertQA
from kbert.estimators.regressor import BertRegressor
from kbert.estimators.tagger import BertTagger
from kbert.estimators.vectorizer import BertVectorizer

if TYPE_CHECKING:
    from kbert.estimators.pretrainer import BertPretrainer

__all__ = [
    "BertClassifier",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertQA",
    "BertRegressor",
    "BertTagger",
    "BertVectorizer",
    "load",
]


def __getattr__(name: str) -> Any:
    if name != "BertPretrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kbert.estimators.pretrainer import BertPretrainer

    return BertPretrainer
