"""scikit-learn estimators. Thin: parameters, validation, labels, save and load."""

from kbert.startup_messages import import_tensorflow

import_tensorflow()

from kbert.estimators.classifier import BertClassifier  # noqa: E402
from kbert.estimators.loading import load  # noqa: E402
from kbert.estimators.multiple_choice import BertMultipleChoice  # noqa: E402
from kbert.estimators.pretrainer import BertPretrainer  # noqa: E402
from kbert.estimators.qa import BertQA  # noqa: E402
from kbert.estimators.regressor import BertRegressor  # noqa: E402
from kbert.estimators.tagger import BertTagger  # noqa: E402
from kbert.estimators.vectorizer import BertVectorizer  # noqa: E402

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
