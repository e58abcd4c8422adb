"""scikit-learn estimators. Thin: parameters, validation, labels, save and load."""

from kbert.estimators.classifier import BertClassifier
from kbert.estimators.multiple_choice import BertMultipleChoice
from kbert.estimators.pretrainer import BertPretrainer
from kbert.estimators.qa import BertQA
from kbert.estimators.regressor import BertRegressor
from kbert.estimators.tagger import BertTagger
from kbert.estimators.vectorizer import BertVectorizer

__all__ = [
    "BertClassifier",
    "BertMultipleChoice",
    "BertPretrainer",
    "BertQA",
    "BertRegressor",
    "BertTagger",
    "BertVectorizer",
]
