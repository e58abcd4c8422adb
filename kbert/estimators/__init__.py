"""scikit-learn estimators. Thin: parameters, validation, labels, save and load."""

from kbert.estimators.classifier import BertClassifier

__all__ = ["BertClassifier"]
