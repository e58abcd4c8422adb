"""kbert: BERT for people who work in pandas and scikit-learn and train with Keras 3.

The public names below stand in the order in which data passes through them. They are imported on first use, so that
``import kbert`` is quick and loads no backend.
"""

from importlib import import_module
from typing import Any

from kbert.backend import select_backend, share_accelerator
from kbert.startup_messages import silence_runtime

__version__ = "0.1.0"

_HOMES = {
    "BertConfig": "kbert.config",
    "WordPieceTokenizer": "kbert.text",
    "BertEncoder": "kbert.model",
    "BertForPreTraining": "kbert.model",
    "BertClassifier": "kbert.estimators",
    "BertRegressor": "kbert.estimators",
    "BertTagger": "kbert.estimators",
    "BertQA": "kbert.estimators",
    "BertVectorizer": "kbert.estimators",
    "BertMultipleChoice": "kbert.estimators",
    "BertPretrainer": "kbert.estimators",
    "load": "kbert.estimators",
    "predict_table": "kbert.tables",
    "show_versions": "kbert.versions",
}
_MODULES = ("datasets", "metrics", "plots")
# kbert.errors is loaded with the choice of the backend.
__all__ = [*_HOMES, *_MODULES, "errors"]

# Before anybody imports Keras, whose own default is TensorFlow, installed or not.
select_backend()
share_accelerator()
silence_runtime()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"kbert.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'kbert' has no attribute {name!r}. It has: {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
