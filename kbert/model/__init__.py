"""Batches to vectors and logits: the encoder and its heads, as functional Keras models.

The models are imported on first use, since they need Keras. Names and numbers that others need too do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kbert.model.names import INPUT_NAMES, LAYER_CHOICES, POOLINGS

if TYPE_CHECKING:
    from kbert.model.encoder import BertEncoder
    from kbert.model.heads import (
        BertForFeatures,
        BertForQuestionAnswering,
        BertForSequenceClassification,
        BertForTextVectors,
        BertForTokenClassification,
    )
    from kbert.model.pretraining import BertForPreTraining

__all__ = [
    "INPUT_NAMES",
    "LAYER_CHOICES",
    "POOLINGS",
    "BertEncoder",
    "BertForFeatures",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTextVectors",
    "BertForTokenClassification",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in ("encoder", "heads", "pretraining"):  # Keras finds a class of a .keras file once its module is imported
        module = import_module(f"kbert.model.{home}")
        globals().update({name: getattr(module, name) for name in __all__ if hasattr(module, name)})
    return globals()[name]
